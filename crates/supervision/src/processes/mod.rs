//! Child processes from fork to exit status, and changes that the calling process makes to itself.

pub mod auxiliary;
pub mod backoff;
pub mod channel;
pub mod child_setup;
pub mod confinement;
pub mod control_groups;
pub mod environment;
pub mod exit_report;
pub mod forking;
pub mod leash;
pub mod life_table;
pub mod memory_watch;
pub mod needs;
pub mod oom_kills;
pub mod preparation;
pub mod process_attributes;
pub mod reader_permit;
pub mod signals;
pub mod spawn;
