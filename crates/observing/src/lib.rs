//! What the command line does with a running instance: it finds the instance and asks it. Commands that only look (`bolide tune`)
//! are here as a whole. Each runs in a process of its own, which never becomes a master: whatever it costs, no request waits for it.

pub mod instances;
pub mod masters;
