//! The settings of static files. Plain data, as in [`crate::settings`]; paths are absolute, patterns were compiled once to try them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Static files: which are served, and how. There is none of this where the configuration names no file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// In the order in which they are looked at: `check-static`, then `static-map`, then `static-map2`.
    pub maps: Vec<Map>,
    /// `check-static-docroot`: the folder that a front server names in DOCUMENT_ROOT is looked at last.
    pub document_root: bool,
    pub missing: Missing,
    pub mode: Mode,
    /// Files that the application may name in its answers.
    pub x_sendfile: XSendfile,
    /// `static-index`: names that stand for a folder, the first that is there.
    pub index: Vec<String>,
    /// `static-skip-ext`: paths with such an end are the application's.
    pub skip: Vec<String>,
    /// `static-safe`: folders to which a symbolic link may lead.
    pub safe: Vec<PathBuf>,
    /// `static-dot-files`: names that begin with a dot are served, too.
    pub dot_files: bool,
    /// The first rule that fits gives the `Expires` field.
    pub expires: Vec<Expiry>,
    /// `static-cache-control`.
    pub cache_control: Option<String>,
    /// `static-immutable`: patterns of paths whose content never changes.
    pub immutable: Vec<String>,
    pub precompressed: Precompressed,
    /// `mime-file`: they come before the built-in table, the last first.
    pub mime_files: Vec<PathBuf>,
    /// The charset that text is said to have; `None` says nothing.
    pub charset: Option<String>,
    pub cache: Cache,
    /// Mounts that are taken from the start of the path before it is looked up (`manage-script-name`).
    pub mounts: Vec<String>,
}

/// Paths that begin with `prefix`, and where their files are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// As written; empty is every path.
    pub prefix: String,
    /// A folder, or a single file.
    pub target: PathBuf,
    pub kind: MapKind,
    pub origin: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MapKind {
    /// `check-static`: the whole path, below the folder; what is not there is always the application's.
    Check,
    /// `static-map`: the path without its prefix.
    Replace,
    /// `static-map2`: the path with its prefix.
    Append,
}

/// `static-serve`: who answers for a path below a prefix that has no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Missing {
    /// The application.
    #[default]
    Fallback,
    /// We do: with 404, or 405 for a method that files do not have.
    Only,
}

/// `file-serve-mode`: who sends the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Mode {
    #[default]
    Direct,
    /// The front server, told by `X-Sendfile`.
    XSendfile,
    /// The front server, told by `X-Accel-Redirect`.
    XAccelRedirect,
}

/// From where the application may have files sent in place of a body of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct XSendfile {
    /// `x-sendfile`: folders with what it may name by path in `X-Sendfile`.
    pub by_path: Vec<PathBuf>,
    /// `x-accel-redirect`: paths that it may name in `X-Accel-Redirect`, and the folders they stand for.
    pub by_location: Vec<(String, PathBuf)>,
}

/// A rule for `Expires`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expiry {
    pub subject: ExpirySubject,
    /// A regular expression, or the MIME type itself.
    pub pattern: String,
    pub seconds: i64,
    /// Counted from the file's last change rather than from the request.
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

/// Which files may have a `.br`, `.zst` or `.gz` beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Precompressed {
    /// `static-gzip-all`.
    pub all: bool,
    /// `static-gzip-dir`: starts of the files' own paths.
    pub folders: Vec<PathBuf>,
    /// `static-gzip-ext`: ends of the files' own paths.
    pub suffixes: Vec<String>,
    /// `static-gzip`: regular expressions for the files' own paths.
    pub patterns: Vec<String>,
}

/// The bounds of a worker's cache of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// `static-cache-files`: how many; 0 looks at the disk for each request.
    pub files: usize,
    /// `static-cache-memory`: bytes of small files that are kept in memory.
    pub memory_bytes: u64,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { files: 1024, memory_bytes: 16 * 1024 * 1024 }
    }
}
