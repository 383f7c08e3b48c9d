//! The log lines of startup: addresses, workers and threads, and the URL to open once workers serve. It decides nothing and opens
//! nothing. The master runs it.

use std::io::IsTerminal;

use bolide_contract::settings::{Settings, Threads, Workers};
use bolide_options::imports;
use bolide_supervision::log_sink;
use bolide_supervision::privileges::{self, Privileges};
use bolide_supervision::sockets::listeners::{self, Endpoint};
use bolide_supervision::text::workers_in_words;
use nix::unistd::Pid;

use crate::provision::Provision;
use crate::provision::configuration::Configuration;
use crate::provision::error_report::page_written;

/// Begins the line about an address.
const LISTENING: &str = "listening on ";

/// Logs the lines that precede any loading. If the application on the command line may not exist, startup may fail: then
/// `configuration` keeps the lines about the addresses until it is loaded.
pub fn start(
    settings: &Settings,
    endpoints: &[Endpoint],
    privileges: Option<&Privileges>,
    warnings: &[String],
    configuration: &mut Configuration,
) {
    let mut lines = start_lines(settings, endpoints, bolide_log::is_terminal());
    if !imports::finds_application(settings, &configuration.imports()) {
        let (held, others) = lines.into_iter().partition(|line| line.starts_with(LISTENING));
        configuration.hold(held);
        lines = others;
    }
    log_sink::lines(&lines);
    log_sink::lines(warnings);
    if let Some(warning) = privileges::warning(privileges) {
        log_sink::line(warning);
    }
    let asked = settings.listeners.iter().map(|listener| listener.backlog).max().unwrap_or(0);
    if let Some(limit) = listeners::backlog_limit().filter(|limit| *limit < asked) {
        log_sink::line(&format!("listen = {asked} is reduced to {limit} by the kernel: raise net.core.somaxconn for more"));
    }
}

/// The facts about startup that decide the words of its last lines.
#[derive(Debug, Clone, Copy)]
pub struct What {
    /// In development: the page that says why the application could not be loaded.
    pub is_error_page: bool,
    /// A person has typed the command line, and reads the log.
    pub is_advised: bool,
}

impl What {
    pub fn of(provision: &Provision, configuration: &Configuration) -> What {
        What {
            is_error_page: provision.shown_error_page().is_some_and(|page| page_written(page).is_some()),
            is_advised: !configuration.has_files() && std::io::stdin().is_terminal(),
        }
    }
}

/// Logs the lines for the moment when the first generation serves, `how_long` after startup. The URL to open comes last, where
/// it is easiest to see.
pub fn ready(settings: &Settings, endpoints: &[Endpoint], count: u32, how_long: &str, what: What) {
    let advice = if what.is_advised { idle_cpus_in_words(&settings.workers) } else { String::new() };
    if what.is_error_page {
        log_sink::line("ready: pages show the error until the application can be loaded");
    } else {
        log_sink::line(&format!("ready: {}{how_long}{advice}", workers_in_words(count)));
    }
    if count == 0 && !settings.listeners.is_empty() {
        log_sink::line("no worker is running yet (cheap): the first connection starts them");
    }
    if let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.is_web()) {
        let developed = if settings.development.is_some() { " (it reloads when a file changes; Ctrl-C stops)" } else { "" };
        log_sink::line(&format!("open {}{}{developed}", endpoint.to_open(), bound_in_words(endpoint)));
    }
}

/// Returns the lines of startup. A person at a terminal gets the address that the last line will have once.
fn start_lines(settings: &Settings, endpoints: &[Endpoint], at_terminal: bool) -> Vec<String> {
    let mut lines = vec![format!("version {}, master pid {}", env!("CARGO_PKG_VERSION"), Pid::this())];
    let told_later = endpoints.iter().position(|endpoint| at_terminal && endpoint.is_web());
    let told = endpoints.iter().enumerate().filter(|(place, _)| Some(*place) != told_later);
    lines.extend(told.map(|(_, endpoint)| format!("{LISTENING}{}{}", endpoint.to_open(), bound_in_words(endpoint))));
    let workers = &settings.workers;
    let threads = match (settings.language.programs(), settings.language.greenlets(), workers.threads) {
        (Some(programs), ..) => format!("{} (CGI)", counted(programs, "program")),
        (None, Some(greenlets), _) => format!("{} (gevent)", counted(greenlets, "greenlet")),
        (None, None, Threads::Fixed(count)) => counted(count, "thread"),
        // The line gives the reason, so that an operator need not look up what `auto` chose.
        (None, None, Threads::Auto) => format!(
            "1 to {} threads (auto: starts with one, adds more while requests wait and the running ones are blocked)",
            workers.threads.most()
        ),
    };
    let least = settings.scaling.cheaper.as_ref().map(|cheaper| cheaper.least);
    let count = match least {
        Some(least) => format!("{least} to {}", workers_in_words(workers.processes)),
        None => workers_in_words(workers.processes),
    };
    let why = if workers.processes_auto { " (auto: one per CPU that this process may use)" } else { "" };
    lines.push(format!("{count}{why} × {threads}"));
    lines
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Suggests more workers if their number was not configured.
fn idle_cpus_in_words(workers: &Workers) -> String {
    if workers.processes_chosen || workers.cpus <= workers.processes {
        return String::new();
    }
    format!("; `workers = auto` (or `--workers auto`) starts one per CPU ({})", workers.cpus)
}

fn bound_in_words(endpoint: &Endpoint) -> String {
    if endpoint.is_everywhere() { format!(" (all addresses of this machine: {})", endpoint.bound) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::settings::Gevent;
    use bolide_supervision::sockets::listeners::Listeners;

    #[test]
    fn a_start_says_where_it_listens_and_with_what() {
        let mut settings = bolide_supervision::testing::settings();
        let listeners = Listeners::bind(&settings.listeners, Vec::new(), None).expect("bound");
        assert!(start_lines(&settings, listeners.endpoints(), false)[1].starts_with("listening on http://127.0.0.1:"));
        assert!(!start_lines(&settings, listeners.endpoints(), true)[1].contains("listening"));
        for (processes, threads, said) in [
            (1, Threads::Fixed(2), "1 worker × 2 threads"),
            (2, Threads::Fixed(1), "2 workers × 1 thread"),
            (
                4,
                Threads::Auto,
                "4 workers × 1 to 64 threads (auto: starts with one, adds more while requests wait and the running ones are \
                blocked)",
            ),
        ] {
            settings.workers =
                Workers { processes, processes_chosen: true, processes_auto: false, cpus: 2, cpus_of_each: 0, threads };
            assert_eq!(start_lines(&settings, listeners.endpoints(), false).last().map(String::as_str), Some(said));
        }
        settings.language.python_mut().expect("Python").gevent =
            Some(Gevent { origin: String::new(), greenlets: 100, patching: true, waits_for_hub: false, websocket: false });
        assert_eq!(start_lines(&settings, &[], false).last().map(String::as_str), Some("4 workers × 100 greenlets (gevent)"));
    }

    #[test]
    fn a_start_says_what_auto_has_chosen_and_between_what_cheaper_may_choose() {
        let mut settings = bolide_supervision::testing::settings();
        let cheaper = bolide_contract::scaling::Cheaper { least: 2, ..Default::default() };
        settings.workers = Workers { processes: 3, processes_auto: true, ..settings.workers };
        let said = |settings: &Settings| start_lines(settings, &[], false).last().cloned().unwrap_or_default();
        assert_eq!(said(&settings), "3 workers (auto: one per CPU that this process may use) × 1 thread");
        (settings.scaling.cheaper, settings.workers.processes_auto) = (Some(cheaper), false);
        assert_eq!(said(&settings), "2 to 3 workers × 1 thread");
    }

    #[test]
    fn idle_cpus_are_mentioned_unless_the_number_of_workers_was_chosen() {
        let said = |processes, processes_chosen, cpus| {
            idle_cpus_in_words(&Workers {
                processes,
                processes_chosen,
                processes_auto: false,
                cpus,
                cpus_of_each: 0,
                threads: Threads::Fixed(1),
            })
        };
        assert_eq!(said(1, false, 4), "; `workers = auto` (or `--workers auto`) starts one per CPU (4)");
        assert_eq!(said(1, true, 4), "");
        assert_eq!(said(1, false, 1), "");
    }
}
