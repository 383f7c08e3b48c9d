//! The settings of static files. Plain data, as in [`crate::settings`]: paths are absolute, and all patterns are known to
//! compile. Workers act on it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which static files are served, and how. Absent if there are no files in the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// In the order of lookup: `check-static`, then `static-map`, then `static-map2`.
    pub maps: Vec<Map>,
    /// `check-static-docroot`: the directory in a reverse proxy's DOCUMENT_ROOT is searched last.
    pub document_root: bool,
    pub missing: Missing,
    pub mode: Mode,
    /// Files that the application may name in its answers.
    pub x_sendfile: XSendfile,
    /// `static-index`: index files of a directory; the first that exists is served.
    pub index: Vec<String>,
    /// `static-skip-ext`: paths with these suffixes go to the application.
    pub skip: Vec<String>,
    /// `static-safe`: additional directories that a symbolic link may lead to.
    pub safe: Vec<PathBuf>,
    /// `static-dot-files`: names that begin with a dot are served too.
    pub dot_files: bool,
    /// The first rule that matches sets the `Expires` field.
    pub expires: Vec<Expiry>,
    /// `static-cache-control`.
    pub cache_control: Option<String>,
    /// `static-immutable`: patterns of paths whose content never changes.
    pub immutable: Vec<String>,
    pub precompressed: Precompressed,
    /// `mime-file`: these have precedence over the built-in table, the last file first.
    pub mime_files: Vec<PathBuf>,
    /// The charset of text types; `None` sends none.
    pub charset: Option<String>,
    pub cache: Cache,
    /// Mount points that are removed from the start of the path before the lookup (`manage-script-name`).
    pub mounts: Vec<String>,
}

/// A map from paths that begin with `prefix` to files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// As written; empty matches every path.
    pub prefix: String,
    /// A directory, or a single file.
    pub target: PathBuf,
    pub kind: MapKind,
    pub origin: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MapKind {
    /// `check-static`: the whole path is looked up in the directory; a missing file always goes to the application.
    Check,
    /// `static-map`: the path is looked up without its prefix.
    Replace,
    /// `static-map2`: the path is looked up with its prefix.
    Append,
}

/// `static-serve`: the answer to a path below a prefix that has no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Missing {
    /// The application answers.
    #[default]
    Fallback,
    /// The server answers with 404, or with 405 for methods that files do not support.
    Only,
}

/// `file-serve-mode`: which server sends the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Mode {
    #[default]
    Direct,
    /// The reverse proxy, instructed by `X-Sendfile`.
    XSendfile,
    /// The reverse proxy, instructed by `X-Accel-Redirect`.
    XAccelRedirect,
}

/// Files that the application may have sent instead of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct XSendfile {
    /// `x-sendfile`: directories of the files that it may name by path in `X-Sendfile`.
    pub by_path: Vec<PathBuf>,
    /// `x-accel-redirect`: paths that it may name in `X-Accel-Redirect`, and the directories that they map to.
    pub by_location: Vec<(String, PathBuf)>,
}

/// A rule for `Expires`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expiry {
    pub subject: ExpirySubject,
    /// A regular expression, or the MIME type itself.
    pub pattern: String,
    pub seconds: i64,
    /// Counted from the file's last change instead of from the request.
    pub from_change: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ExpirySubject {
    /// The file's own path.
    File,
    /// PATH_INFO.
    Path,
    /// REQUEST_URI.
    Uri,
    /// The MIME type, without its charset.
    Type,
}

/// Which files may have a precompressed `.br`, `.zst` or `.gz` beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Precompressed {
    /// `static-gzip-all`.
    pub all: bool,
    /// `static-gzip-dir`: prefixes of the files' own paths.
    pub directories: Vec<PathBuf>,
    /// `static-gzip-ext`: suffixes of the files' own paths.
    pub suffixes: Vec<String>,
    /// `static-gzip`: regular expressions for the files' own paths.
    pub patterns: Vec<String>,
}

crate::with_defaults! {
    /// Limits of a worker's file cache.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Cache {
        /// `static-cache-files`: the maximum number of files; 0 reads the disk for each request.
        pub files: usize = 1024,
        /// `static-cache-memory`: bytes of small files that are kept in memory.
        pub memory_bytes: u64 = 16 * 1024 * 1024,
    }
}
