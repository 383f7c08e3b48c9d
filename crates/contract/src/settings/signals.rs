//! Settings of uWSGI's signals. Plain data: the options room fills it in, the master acts on it.

use serde::{Deserialize, Serialize};

/// Settings of signals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Signals {
    /// `timer` and `rbtimer`.
    pub timers: Vec<ConfiguredTimer>,
}

/// A timer of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfiguredTimer {
    pub number: u8,
    pub seconds: u32,
    /// `timer` keeps its rhythm, `rbtimer` counts from each firing.
    pub keeps_time: bool,
}
