//! Files whose change asks something of the master. The options room fills it in, the master acts on it. Plain data; nobody changes it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::hooks::Hook;

/// What is watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Watching {
    pub files: Vec<WatchedFile>,
    /// `py-autoreload`; `None` where it is off.
    pub imports: Option<WatchedImports>,
    /// What is watched beside that, imported or not.
    pub sources: WatchedSources,
    /// What [`FileAction::Hook`] counts from 0.
    pub hooks: Vec<Hook>,
}

/// A file, and what its change asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchedFile {
    pub path: PathBuf,
    /// The option that names it, for the log.
    pub option: String,
    pub subject: WatchSubject,
    pub action: FileAction,
}

/// What `py-autoreload` watches: the files of all modules that are imported, as prototypes and workers tell them, and what the
/// configuration was read from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct WatchedImports {
    /// Time between two looks at them where nothing rings, and at what workers have imported meanwhile, in milliseconds.
    pub every_ms: u64,
    /// `py-auto-reload-ignore`: names of modules.
    pub ignored: Vec<String>,
    pub configuration: Vec<PathBuf>,
}

/// Files below folders, found by patterns as Git's. What Git ignores is left out, and so are hidden files and virtual environments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct WatchedSources {
    /// `reload-dir`: each with all that is below it.
    pub folders: Vec<PathBuf>,
    /// Files that match one of these are watched; with none, no folder is looked through.
    pub patterns: Vec<String>,
    /// `reload-exclude`: files that match are not watched, nor are imported ones.
    pub excluded: Vec<String>,
}

/// What of a file counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchSubject {
    /// `touch-*`: its time of modification, and whether it is there.
    Touch,
    /// `fs-*`: all that is known of it, and of the files in it where it is a folder; not of those below them.
    Contents,
}

/// What a change asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAction {
    Reload,
    /// A reload that leaves requests in flight no time.
    BrutalReload,
    /// Each worker is replaced by a new one of the same generation.
    ReloadWorkers,
    /// The same, one after the other.
    ReloadChain,
    /// Files of logs are opened anew.
    ReopenLogs,
    /// Files of logs are put aside.
    RotateLogs,
    /// The hook of this number is done.
    Hook(u32),
}
