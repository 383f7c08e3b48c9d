//! The attendant: a child of the master that supervises attached daemons and starts the commands of `cron`. The master forks it
//! without exec, and before it starts any thread, when the application is loaded. The attendant has no application code, no
//! listening socket and no log: its log lines and its programs' output are packets to the master. It exits with the master, and
//! its programs exit with it.

mod attendant;
pub mod attendants;
mod cron;
mod output;
mod packets;
mod pidfile;
mod program;
mod supervise;

pub use attendant::{Instructions, run, this_minute};
pub use output::Output;
pub use packets::{AttendantOrder, AttendantReport, ProgramState};
pub use program::LaunchEnvironment;
