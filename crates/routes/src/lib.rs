//! uWSGI's internal routing: rules that answer, change or let pass a request before the application sees it, and change
//! its answer before it leaves. Compiled once, then walked for each request.
//!
//! It knows no socket and no protocol: a request is whatever answers [`Values`]. The only files that it looks at are those
//! that a rule names (`exists:`, the password file of `basicauth:`); those that a rule has served are opened by others. The process that reads the configuration compiles the rules to say
//! what is wrong with them; workers compile them to walk them.

mod access;
mod action;
mod compile;
mod condition;
mod des_crypt;
mod diagnostics;
mod hashes;
mod passwords;
mod pattern;
mod served;
mod status;
mod template;
mod values;
mod walk;

pub use access::{BasicAuth, Credentials};
pub use compile::{Routes, Table};
pub use diagnostics::Mistake;
pub use pattern::for_lines;
pub use served::{Form, Page, Served};
pub use status::reason;
pub use values::{ServerValue, Values};
pub use walk::{Answer, Overrides, Verdict};
