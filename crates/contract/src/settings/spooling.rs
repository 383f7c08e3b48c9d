//! Settings of the spooler: directories of jobs, and how spoolers work on them. Plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

crate::with_defaults! {
    /// `spooler` and the related options.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Spooling {
        /// In the order of the configuration: the first one is the default.
        pub directories: Vec<SpoolDirectory>,
        /// `spooler-processes`: the spoolers of each directory that is ours.
        pub processes: u32 = 1,
        /// `spooler-ordered`
        pub is_ordered: bool,
        /// `spooler-frequency`: seconds between two looks at a directory in which nothing happens.
        pub frequency_s: u32 = FREQUENCY_S,
        /// `spooler-max-tasks`: jobs after which a spooler is replaced.
        pub max_tasks: Option<u64>,
        /// `spooler-chdir`: the working directory of jobs, instead of the spooler's directory.
        pub job_directory: Option<PathBuf>,
        /// `spooler-import`: modules and files that spoolers import in addition to the application.
        pub imports: Vec<String>,
        /// `spooler-quiet`: jobs are not logged.
        pub is_quiet: bool,
    }
}

/// A directory of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolDirectory {
    /// Absolute.
    pub path: PathBuf,
    /// The number of the engine that has the jobs. The directory keeps those that come while it is away.
    pub engine: Option<usize>,
    /// `spooler-external`: another instance works on its jobs.
    pub is_external: bool,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}

/// As in uWSGI.
const FREQUENCY_S: u32 = 30;
