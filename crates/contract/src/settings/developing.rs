//! Settings of an instance in whose application somebody is working (`develop`). Plain data; every process sees the same.

use serde::{Deserialize, Serialize};

/// What is other in development than in service, beside settings that have a place of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Development {
    /// Clients are shown tracebacks: whoever can connect sits at this machine.
    pub shows_tracebacks: bool,
    /// `reload-browser`: pages can ask whether there is something new to show.
    pub tells_browsers: bool,
}

/// Time that requests in flight may take at a reload or a stop where `reload-mercy` does not say, in milliseconds: the new code serves
/// already, and a page that is left open must not keep the old one.
pub const MERCY_MS: u64 = 3_000;

/// Where pages ask (`reload-browser`).
pub const BROWSER_PATH: &str = "/.bolide/reload";
