//! The number of workers: `processes` and `WEB_CONCURRENCY`. It starts nothing; runs in the process that reads the configuration.

use bolide_contract::settings::Workers;

use super::draft::Draft;
use crate::diagnostic::{Diagnostic, Location};
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

/// Variable with the number of workers of an application on the command line, as with other Python servers and on hosting platforms.
const WEB_CONCURRENCY: &str = "WEB_CONCURRENCY";

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

    fn web_concurrency(&mut self) -> Option<u32> {
        let text = self.host.variable(WEB_CONCURRENCY).filter(|text| !text.is_empty())?;
        let most = u32::try_from(crate::catalogue::MOST_PROCESSES).unwrap_or(u32::MAX);
        let number = text.trim().parse().ok().filter(|number| (1..=most).contains(number));
        if number.is_none() {
            let diagnostic = Diagnostic::error(
                Some(&Location::environment(WEB_CONCURRENCY)),
                format!("`{WEB_CONCURRENCY} = {text}` is no number of workers"),
            );
            self.diagnostics.push(diagnostic.advise(format!("1 to {most}; or unset it")));
        }
        number
    }
}
