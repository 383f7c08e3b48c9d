//! Settings of reloads: how a new generation is verified before it serves, and how a reload works. Plain data; the master reads
//! it, and prototypes read the requests for the application.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of reloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Reloading {
    /// `exit-on-reload`: a reload ends the instance.
    pub exits: bool,
    /// `reload-probe`: a request that each worker of a new generation sends to its application before it serves. A path, with an
    /// optional query.
    pub probe: Option<String>,
    /// Maximum time for the answer, in milliseconds.
    pub probe_timeout_ms: u64,
    /// `reload-canary`: time for which one worker of a new generation serves beside the old workers, in milliseconds.
    pub canary_ms: Option<u64>,
    /// `warmup`: requests that are sent to the application after it is loaded, before workers are forked.
    pub warmup: Vec<String>,
    /// `binary-path`: the program that an upgrade executes instead of the one that was started.
    pub program: Option<PathBuf>,
    /// `max-fd`: maximum number of descriptors of each process.
    pub descriptors_most: Option<u64>,
}
