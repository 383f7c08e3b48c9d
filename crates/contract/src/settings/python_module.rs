//! What applications find in the Python module `uwsgi`, and their functions that each worker calls when it begins and when it ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PythonModule {
    /// `uwsgi-module = false`: there is no such module, as without uWSGI.
    pub is_hidden: bool,
    /// The options in the order in which they were read, filled in; `None` for one without a value. The last of a name is what the
    /// module shows, as in uWSGI.
    pub shown_options: Vec<(String, Option<String>)>,
    /// uWSGI's magic variables that have a value: their letters and their values.
    pub shown_magic: Vec<(char, String)>,
    /// `post-fork`: called in each worker before it serves.
    pub post_fork: Vec<NamedFunction>,
    /// `worker-exit`: called in each worker that ends in good order.
    pub worker_exit: Vec<NamedFunction>,
    /// `gunicorn-hooks`: the file whose hooks are called.
    pub gunicorn: Option<GunicornHooks>,
}

/// A `gunicorn.conf.py` that the prototype executes for its hooks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GunicornHooks {
    /// Absolute.
    pub file: PathBuf,
    /// Hooks of gunicorn's that nobody calls here: the log says so of those that the file has. Empty where the reading of the
    /// configuration has said it.
    pub uncalled: Vec<String>,
}

/// A function of the application's: `package.module:name`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedFunction {
    pub name: String,
    /// Where it was asked for: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}
