//! The number of workers: `processes`, `WEB_CONCURRENCY`, and what `cheaper` asks for at the beginning. It starts nothing; runs in the
//! process that reads the configuration.

use bolide_contract::settings::Workers;

use super::draft::{Cheaper, Draft};
use crate::diagnostic::{Diagnostic, Location};
use crate::reader::{Configuration, Pair};

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
    /// Takes note of a planned option that decides how many workers start; false for every other one.
    pub(super) fn take_cheaper(&mut self, name: &str, pair: &Pair) -> bool {
        let number = crate::values::number(pair.value.as_deref().unwrap_or("1")).value;
        let asked = u32::try_from(number).ok().filter(|&number| number > 0).map(|number| (number, pair.location.clone()));
        match name {
            "cheaper" => self.cheaper.least = asked,
            "cheaper-initial" => self.cheaper.first = asked,
            _ => return false,
        }
        true
    }

    /// The workers of the instance. `bare` is an application on the command line without a configuration file.
    pub(super) fn workers(&mut self, bare: bool) -> Workers {
        let wished = self.processes.or_else(|| if bare { self.web_concurrency() } else { None });
        let most = wished.unwrap_or(1);
        Workers {
            processes: self.cheaper_start(most),
            processes_chosen: wished.is_some(),
            threads: self.threads,
            cpus: self.host.cpus,
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

    /// uWSGI starts as many as `cheaper-initial` says, else `cheaper`, and adds more under load up to `processes`. Nothing is added yet;
    /// starting the most would fill a memory that was counted for the least.
    fn cheaper_start(&mut self, most: u32) -> u32 {
        let Cheaper { least, first } = std::mem::take(&mut self.cheaper);
        let Some((least, location)) = least else {
            if let Some((_, location)) = first {
                self.planned(&location, "cheaper-initial", "without `cheaper` it does nothing in uWSGI either");
            }
            return most;
        };
        if least >= most {
            let message = format!("`cheaper = {least}` is not below the number of processes, which is {most}: all of them start");
            let diagnostic = Diagnostic::warning(Some(&location), message);
            self.diagnostics.push(diagnostic.advise("it is how many workers stay when there is nothing to do"));
            return most;
        }
        let start = first.map_or(least, |(first, _)| first.clamp(least, most));
        let message = format!(
            "`cheaper` is known, but not supported yet: {start} of {most} processes start, and no more are added under load"
        );
        let diagnostic = Diagnostic::warning(Some(&location), message);
        self.diagnostics.push(
            diagnostic.advise(format!("for all of them at once, leave `cheaper` out; for {start}, write `processes = {start}`")),
        );
        start
    }
}
