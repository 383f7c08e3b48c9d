//! Settings of an emperor: where its vassals are, and how it starts and watches them. Plain data; the emperor acts on it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::statistics::StatisticsServer;

/// The emperor of an instance that has one. It has nothing else to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Emperor {
    /// `emperor`, in the order of the configuration.
    pub places: Vec<Place>,
    /// `emperor-extra-extension`
    pub extensions: Vec<String>,
    /// `emperor-nofollow`: the time of a link counts, and not that of its file.
    pub looks_at_links: bool,
    /// `emperor-freq`: the time between two looks at all files, in addition to what the kernel reports.
    pub look_ms: u64,
    pub tyrant: Option<Tyrant>,
    /// `emperor-throttle`: the first pause before a vassal is started again that has not served.
    pub pause_ms: u64,
    /// `emperor-max-throttle`: the longest of these pauses.
    pub longest_pause_ms: u64,
    /// `emperor-no-blacklist`: there are no pauses.
    pub is_without_pauses: bool,
    /// `emperor-curse-tolerance`: a vassal that was told to end is killed after this.
    pub tolerance_ms: u64,
    /// `emperor-required-heartbeat`: a vassal that has sent heartbeats is killed after this time without one.
    pub heartbeat_ms: u64,
    /// `emperor-graceful-shutdown`: vassals are told to end gracefully, which concerns those that are a uWSGI.
    pub ends_gracefully: bool,
    pub on_demand: Option<OnDemand>,
    /// `emperor-stats`
    pub statistics: Option<StatisticsServer>,
    /// `emperor-pidfile`
    pub pidfile: Option<PathBuf>,
    /// `emperor-procname`
    pub process_name: Option<String>,
    /// What comes before the file on the command line of a vassal: `vassals-inherit-before`, `vassals-include-before`,
    /// `vassal-set`.
    pub words_before: Vec<String>,
    /// What comes after the file: `vassals-inherit`, `vassals-include`.
    pub words_after: Vec<String>,
    /// `emperor-wrapper-override`, `emperor-wrapper`, and `emperor-wrapper-fallback`; Bolide itself if there is none.
    pub programs: Programs,
    pub hooks: VassalHooks,
    /// `emperor-starts-max`: vassals that start at the same time.
    pub starts_most: u32,
    /// `vassal-limits`: of each kind, the last one for a vassal counts.
    pub limits: Vec<VassalLimits>,
}

/// The most that all processes of a vassal may use together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct VassalLimits {
    /// A pattern of names; `None` for all vassals.
    pub names: Option<String>,
    pub memory_bytes: Option<u64>,
    /// Percent of one CPU.
    pub cpu_percent: Option<u32>,
    /// Processes and threads.
    pub tasks: Option<u32>,
}

/// Where vassals are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A directory. A vassal is started in it, and named like its file.
    Directory(PathBuf),
    /// A pattern of paths. A vassal is started where the emperor was, and named by its path.
    Glob(String),
}

/// `emperor-tyrant`: each vassal runs as the owner of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tyrant {
    /// `emperor-tyrant-nofollow`: the owner of a link, and not that of its file.
    pub owns_by_link: bool,
}

/// How a vassal names the socket at which the emperor waits for its first connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDemand {
    /// `emperor-on-demand-extension`: the file with this appended to the name of the vassal has the address.
    Extension(String),
    /// `emperor-on-demand-directory`: the socket is in this directory, with the name of the vassal and `.socket`.
    Directory(PathBuf),
}

/// What is run for each vassal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct VassalHooks {
    /// `vassals-start-hook`: a program that the vassal's process executes first, as its user, with its name as the one word. Its
    /// failure is ignored.
    pub start: Option<String>,
    /// `exec-as-vassal`: commands of a shell that the vassal's process executes then. If one fails, the vassal does not start.
    pub as_vassal: Vec<String>,
    /// `exec-as-emperor`: commands of a shell that the emperor executes beside a vassal that it has started.
    pub as_emperor: Vec<String>,
    /// `vassals-stop-hook`: a program that the emperor executes after the end of a vassal, with its name as the one word.
    pub stop: Option<String>,
}

/// The programs of vassals: the first that can be executed is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Programs {
    pub first: Vec<PathBuf>,
    pub usual: Option<PathBuf>,
    pub last: Vec<PathBuf>,
}
