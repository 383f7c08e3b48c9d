//! Settings of CGI programs (RFC 3875). Plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The programs that are executed for requests, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Cgi {
    /// `cgi`, in the order of the configuration.
    pub places: Vec<CgiPlace>,
    /// `cgi-helper`: the end of a file's name, such as `.pl`, and the program that executes such files.
    pub helpers: Vec<(String, String)>,
    /// `cgi-allowed-ext`: the ends of the names of files that may be executed. Empty: any.
    pub allowed_extensions: Vec<String>,
    /// `cgi-index`: the names of files that answer for a directory, in order.
    pub indexes: Vec<String>,
    /// `cgi-safe`: directories that links below `cgi` may lead to.
    pub safe: Vec<PathBuf>,
    /// `cgi-unset`: variables that programs don't get.
    pub unset: Vec<String>,
    /// `cgi-timeout`: the longest time without output of a program, in milliseconds.
    pub timeout_ms: u64,
    /// `cgi-do-not-kill-on-error`: a program goes on if its client has left.
    pub outlives_client: bool,
    /// The most programs that a worker executes at the same time.
    pub programs: u32,
}

impl Cgi {
    /// uWSGI's number of its plugin.
    pub const MODIFIER: u8 = 9;
    /// The programs of a worker if neither `threads` nor `processes` is configured.
    pub const PROGRAMS: u32 = 16;
}

/// Where a program, or a directory of programs, answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgiPlace {
    /// A prefix of paths; empty: all paths.
    pub mount: String,
    pub path: PathBuf,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}
