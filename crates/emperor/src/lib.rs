//! The emperor: it starts an instance, a vassal, for each configuration that its places have, keeps it running, reloads it when
//! its file changes, and stops it when the file is gone. A vassal is an ordinary instance, which reads its configuration itself.
//! The emperor does not read configurations or know a vassal's options. Its only clients ask for its state.
//!
//! The master's program runs it instead of a master, in one process with one loop.

mod answers;
mod checking;
mod demand;
mod governor;
mod hooks;
mod launch;
mod limits;
mod names;
mod orphans;
mod peers;
mod places;
mod roster;
mod scraping;
mod vassal;
mod watch;

pub use checking::{Checked, check};
pub use governor::{Governor, Means};
pub use launch::Origin;
pub use limits::{Limits, of_lines};
pub use orphans::court_of;
pub use scraping::Scraping;
