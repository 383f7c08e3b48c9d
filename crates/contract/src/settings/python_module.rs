//! Settings of the Python module `uwsgi`, and of functions that each worker calls when it starts and ends. Plain data; the
//! prototype and its workers act on it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PythonModule {
    /// `uwsgi-module = false`: the module does not exist.
    pub is_hidden: bool,
    /// The options with their variables expanded, in the order of the configuration; `None` for one without a value. If an option
    /// occurs several times, the module shows the last one, as in uWSGI.
    pub shown_options: Vec<(String, Option<String>)>,
    /// The letters and values of uWSGI's magic variables that are set.
    pub shown_magic: Vec<(char, String)>,
    /// `post-fork`: called in each worker before it serves.
    pub post_fork: Vec<NamedFunction>,
    /// `worker-exit`: called in each worker that exits orderly.
    pub worker_exit: Vec<NamedFunction>,
    /// `rpc-max`: functions that `uwsgi.register_rpc` registers at most.
    pub rpc_most: u32,
    /// `gunicorn-hooks`: the file whose hooks are called.
    pub gunicorn: Option<GunicornHooks>,
}

/// A `gunicorn.conf.py` that the prototype executes for its hooks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GunicornHooks {
    /// An absolute path.
    pub file: PathBuf,
    /// Hooks of gunicorn that Bolide does not call: those in the file are logged. Empty if the configuration reader has already
    /// logged them.
    pub uncalled: Vec<String>,
}

/// A function of the application: `package.module:name`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedFunction {
    pub name: String,
    /// Where it was configured: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}
