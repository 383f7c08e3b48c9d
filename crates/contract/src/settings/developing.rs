//! Settings of development mode (`develop`). Plain data, the same in every process.

use serde::{Deserialize, Serialize};

/// Differences between development and production, except those that are settings of other sections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Development {
    /// Clients see tracebacks: only clients of this machine can connect.
    pub shows_tracebacks: bool,
    /// `reload-browser`: pages can poll for a reload.
    pub tells_browsers: bool,
    /// `develop-values`: the traceback page contains the values of local variables.
    pub shows_values: bool,
    /// `develop-editor`: a name that the traceback page knows, or an address with `{path}` and `{line}`.
    pub editor: Option<String>,
    /// `open-browser`: the page that the first start opens.
    pub opens: Option<String>,
}

/// Maximum time for requests in flight at a reload or shutdown if `reload-mercy` is not set, in milliseconds: the new code
/// already serves, and an open page must not keep the old code alive.
pub const MERCY_MS: u64 = 3_000;

/// The path that pages poll (`reload-browser`).
pub const BROWSER_PATH: &str = "/.bolide/reload";
