//! Settings of a language whose adapter is a library. Plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A language whose adapter is a library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Plugin {
    /// The name in the configuration: `plugin = lua` loads `bolide_lua.so`.
    pub name: String,
    /// uWSGI's number of the language (modifier1); 0: it has none.
    pub modifier: u8,
    /// `plugin-dir`, in order.
    pub directories: Vec<PathBuf>,
    /// The library itself, if `plugin` is a path.
    pub library: Option<PathBuf>,
    pub applications: Vec<PluginApplication>,
    /// The options of the plugin in the order of the configuration: the name without its prefix, and the value.
    pub options: Vec<(String, String)>,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}

/// An application of such a language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginApplication {
    /// As [`Application::mount`](crate::settings::Application::mount).
    pub mount: String,
    /// What the plugin loads, as written: a file, or whatever it takes.
    pub source: String,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}
