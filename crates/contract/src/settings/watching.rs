//! Settings of watched files, whose changes trigger actions of the master. Plain data: the options room fills it in, the master
//! acts on it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::hooks::Hook;

/// The watched files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Watching {
    pub files: Vec<WatchedFile>,
    /// `py-autoreload`; `None` if it is off.
    pub imports: Option<WatchedImports>,
    /// Files that are watched additionally, imported or not.
    pub sources: WatchedSources,
    /// The hooks that [`FileAction::Hook`] refers to by index, from 0.
    pub hooks: Vec<Hook>,
}

/// A watched file, and the action of its change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchedFile {
    pub path: PathBuf,
    /// The option that it comes from, for the log.
    pub option: String,
    pub subject: WatchSubject,
    pub action: FileAction,
}

/// Settings of `py-autoreload`, which watches the files of all imported modules, as reported by prototypes and workers, and the
/// configuration files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct WatchedImports {
    /// Interval of the checks without a notification of the kernel, and of the workers' reports of new imports, in milliseconds.
    pub every_ms: u64,
    /// Names of Python's modules (`py-auto-reload-ignore`), and paths of a plugin's files.
    pub ignored: Vec<String>,
    pub configuration: Vec<PathBuf>,
}

/// Files in directories, selected by patterns in Git's syntax. Files that Git ignores, hidden files and virtual environments are
/// excluded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct WatchedSources {
    /// `reload-dir`: directories, searched recursively.
    pub directories: Vec<PathBuf>,
    /// Files that match one of these are watched; if there are none, no directory is searched.
    pub patterns: Vec<String>,
    /// `reload-exclude`: matching files are not watched, even if they are imported.
    pub excluded: Vec<String>,
}

/// The properties of a file that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchSubject {
    /// `touch-*`: its modification time, and whether it exists.
    Touch,
    /// `fs-*`: all its metadata, and if it is a directory, that of the files in it, but not recursively.
    Contents,
}

/// The action of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAction {
    Reload,
    /// A reload that gives requests in flight no time.
    BrutalReload,
    /// Each worker is replaced by a new one of the same generation.
    ReloadWorkers,
    /// Like `ReloadWorkers`, one worker after the other.
    ReloadChain,
    /// Each mule is replaced by a new one of the same generation.
    ReloadMules,
    /// Each spooler is replaced by a new one of the same generation.
    ReloadSpoolers,
    /// Log files are reopened.
    ReopenLogs,
    /// Log files are rotated.
    RotateLogs,
    /// Runs the hook of this index.
    Hook(u32),
    /// Raises this signal of uWSGI's.
    Signal(u8),
}
