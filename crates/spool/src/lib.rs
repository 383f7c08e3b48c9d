//! The spooler's directory. A job is a file in uWSGI's format and with uWSGI's name, so a directory with unfinished jobs can be
//! handed from uWSGI to Bolide and back.
//!
//! It knows neither languages nor processes nor logs: its errors are values. Processes of the application write jobs (`writing`),
//! spoolers find them (`scan`, `watch`), lock them and finish them (`claiming`), and `bolide spool` lists them (`inspection`).
//!
//! Beside the jobs a directory has three directories of ours, which uWSGI ignores: `.new` has jobs that are being written,
//! `.attempts` notes which jobs are being worked on, and `failed` has jobs that no spooler takes any more, each with its reason.

pub mod claiming;
pub mod directory;
mod failed;
pub mod format;
pub mod frequency;
pub mod inspection;
pub mod names;
pub mod scan;
pub mod watch;
pub mod writing;

pub use directory::Directory;
