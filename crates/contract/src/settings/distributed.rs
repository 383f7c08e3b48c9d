//! Settings of the services that several machines share on a Redis or Valkey server. Plain data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The engines, and what is on them. A number of an engine is its place in `engines`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distributed {
    /// Each address once.
    pub engines: Vec<EngineSettings>,
    /// `lock-engine`: the engine of `uwsgi.lock` and of leases.
    pub lock_engine: Option<usize>,
}

/// A server that an option names.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSettings {
    /// The address as written, with the password.
    pub url: String,
    /// The address without user and password.
    pub shown: String,
    /// Where it was written first.
    pub origin: String,
}

/// Hides the password.
impl fmt::Debug for EngineSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EngineSettings({} of {})", self.shown, self.origin)
    }
}
