//! How a generation is let in, and what a reload is asked to do. Plain data; the master reads it, and prototypes what is asked of the
//! application before it serves.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of reloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Reloading {
    /// `exit-on-reload`: a reload ends the instance.
    pub exits: bool,
    /// `reload-probe`: each worker of a new generation asks its application for this before it serves.
    /// A path, with a query or without.
    pub probe: Option<String>,
    /// Time that the answer may take, in milliseconds.
    pub probe_timeout_ms: u64,
    /// `reload-canary`: so long one worker of a new generation serves beside the old ones, in milliseconds.
    pub canary_ms: Option<u64>,
    /// `warmup`: what the application is asked for when it is loaded, before workers are forked.
    pub warmup: Vec<String>,
    /// `binary-path`: the program that an upgrade executes, in the place of the one that was started.
    pub program: Option<PathBuf>,
    /// `max-fd`: descriptors that each process may have.
    pub descriptors_most: Option<u64>,
}
