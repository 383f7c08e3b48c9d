//! The outcome of a command line: a server to start, with the sources of its settings, a text to print, a request to a running
//! instance, or errors. The process that reads the configuration runs it.

use std::path::PathBuf;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::instance_commands::{InstanceCommand, InstanceRequest};
use bolide_configuration::pair::Pair;
use bolide_contract::settings::Settings;
use bolide_options::catalog::catalog;
use bolide_options::reader::Configuration;
use bolide_options::row::{Reach, Status};
use serde::{Deserialize, Serialize};

use crate::check_report::CheckReport;
use crate::manual::help;
use crate::manual::paint::Paint;
use crate::observing_commands::ObservingRequest;
use crate::plugin_request::PluginRequest;
use crate::subcommand::{FAILED, Subcommand};

/// The sources of the settings, from which the master determines the users that can change them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Files that were read, and the Python that has executed one of them.
    pub files: Vec<PathBuf>,
    /// Options that act with more than the application's privileges, in the order in which they took effect.
    pub privileged: Vec<PrivilegedOption>,
}

impl Sources {
    /// The sources of a configuration that has been read.
    pub(crate) fn of(read: &Configuration, host: &HostInfo) -> Sources {
        Sources { files: host.trust.take_used(), privileged: read.effects.iter().filter_map(privileged_option).collect() }
    }
}

/// An option as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivilegedOption {
    pub option: String,
    pub value: Option<String>,
    /// `uwsgi.ini:3`, `command line`.
    pub origin: String,
    pub reach: Reach,
}

/// The outcome of a command line without an error.
#[derive(Debug)]
pub enum Reading {
    /// Start a server. The diagnostics are warnings and notes, to be printed first.
    Run { settings: Box<Settings>, diagnostics: Vec<Diagnostic>, sources: Sources },
    /// Print this on standard output and exit with this status.
    Print { text: String, status: i32 },
    /// Load each application of these settings in a child process, add the errors to the report, print it, and exit.
    Load { settings: Vec<Settings>, report: Box<CheckReport> },
    /// Print this man page, with the signals in the line [`crate::manual::man::SIGNALS_PLACE`], and exit.
    Manual { page: String },
    /// Print the version, and exit: the version of Bolide is here, the caller adds that of Python.
    Version { bolide: &'static str },
    /// Send a request to a running instance, and exit.
    AskInstance(InstanceRequest),
    /// Look at a running instance, or at what it has left, and exit.
    Observe(ObservingRequest),
    /// Build a plugin, or print where its header is, and exit.
    Plugin(PluginRequest),
    /// Send the signal of a command to the instance whose pid is in a file, and exit.
    SignalInstance { command: InstanceCommand, pidfile: PathBuf },
}

impl Reading {
    /// The error for wrong arguments of a command, with its usage.
    pub fn usage_error(command: Subcommand, message: &str) -> Reading {
        let usage = format!("bolide {} {}", command.name(), command.usage());
        let diagnostic = Diagnostic::error(Some(&Location::command_line()), message).advise(usage.trim_end());
        Reading::Print { text: format!("{diagnostic}\n"), status: FAILED }
    }

    /// The outcome of `bolide --help`.
    pub fn help(host: &HostInfo) -> Reading {
        Reading::Print { text: help::summary(Paint::of(host)), status: 0 }
    }

    /// The outcome of `bolide --version`.
    pub fn version() -> Reading {
        Reading::Version { bolide: env!("CARGO_PKG_VERSION") }
    }
}

/// Bolide can't start: the errors, with the warnings before them. Exit status 1.
#[derive(Debug)]
pub struct Failure {
    pub diagnostics: Vec<Diagnostic>,
}

fn privileged_option(pair: &Pair) -> Option<PrivilegedOption> {
    let row = catalog().get(&pair.key).filter(|row| matches!(row.status, Status::Supported(_)))?;
    let reach = row.reach;
    let (value, origin) = (pair.value.clone(), pair.location.to_string());
    (reach != Reach::Application).then(|| PrivilegedOption { option: pair.key.clone(), value, origin, reach })
}
