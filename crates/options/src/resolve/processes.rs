//! The number of workers. It starts nothing; runs in the process that reads the configuration.

use bolide_contract::settings::Workers;

use super::draft::Draft;
use crate::reader::Configuration;

/// Beginnings of the names of options for which uWSGI starts a master unasked (its flag UWSGI_OPT_MASTER).
const WITH_MASTER: &[&str] = &[
    "alarm",
    "attach-daemon",
    "cheap",
    "cron",
    "idle",
    "legion",
    "log-alarm",
    "log-encoder",
    "log-master",
    "log-route",
    "logger",
    "master-fifo",
    "mule",
    "py-auto",
    "python-auto",
    "smart-attach-daemon",
    "spooler",
    "stats",
    "subscribe",
    "timer",
    "touch-",
    "unique-cron",
];

/// A configuration has a master in uWSGI though it does not ask for one.
pub(super) fn implies_master(read: &Configuration) -> bool {
    read.effects.iter().any(|pair| WITH_MASTER.iter().any(|start| pair.key.starts_with(start)))
}

impl Draft<'_> {
    /// The workers of the instance. `bare` is an application on the command line without a configuration file.
    pub(super) fn workers(&mut self, bare: bool) -> Workers {
        let wished = self.processes.or_else(|| if bare { self.web_concurrency() } else { None });
        Workers {
            processes: wished.unwrap_or(1),
            processes_chosen: wished.is_some(),
            processes_auto: self.processes.is_some() && self.processes_auto,
            threads: self.threads,
            cpus: self.host.cpus,
            cpus_of_each: self.cpus_of_each,
        }
    }
}
