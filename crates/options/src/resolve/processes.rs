//! Resolves the options of the number of workers, their replacement, and reloads. It starts nothing. Runs in the process that
//! reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::diagnostic::Location;
use bolide_configuration::pair::Pair;
use bolide_contract::recycling::Recycling;
use bolide_contract::reloading::Reloading;
use bolide_contract::settings::Naming;
use bolide_contract::settings::{Lifecycle, ReloadOrder, Threads, Workers};

use crate::context::Context;
use crate::draft::Draft;
use crate::reader::Configuration;
use crate::resolve::interpreter::PythonDraft;
use crate::row::OptionRow;
use crate::values;

/// Prefixes of options for which uWSGI starts a master implicitly (its flag UWSGI_OPT_MASTER).
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

/// No machine can run more processes with an interpreter in each.
pub const MAX_PROCESSES: i64 = 1024;

pub fn set_processes(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let number = draft.number_or_auto(row, pair)?;
    draft.of::<ProcessesDraft>().is_auto = number.is_none();
    draft.of::<ProcessesDraft>().count = Some(number.unwrap_or(draft.host.cpus));
    Ok(())
}

pub fn set_threads(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let number = draft.number_or_auto(row, pair)?;
    draft.of::<ProcessesDraft>().threads =
        Some(number.map_or(Threads::Auto, |count| Threads::Fixed(count.clamp(1, Threads::MAX))));
    Ok(())
}

/// Time that requests have to finish at a reload, in milliseconds.
pub fn mercy_ms(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<u64, Diagnostic> {
    Ok(draft.positive_or(row, pair, RELOAD_MERCY_SECONDS)? * 1000)
}

/// Seconds as milliseconds; 0 stays 0.
pub fn least_ms(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<u64, Diagnostic> {
    Ok(draft.positive(row, pair)?.map_or(0, |seconds| seconds.saturating_mul(1000)))
}

pub fn set_min_lifetime(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<RecyclingDraft>().settings.min_lifetime_ms = least_ms(draft, row, pair)?;
    draft.of::<RecyclingDraft>().min_lifetime = Some(pair.location.clone());
    Ok(())
}

/// Sets the prefix of all process names.
pub fn set_name_prefix(draft: &mut Draft, pair: &Pair, space: &str) {
    draft.of::<Naming>().prefix = pair.value.clone().unwrap_or_default() + space;
    draft.of::<Naming>().auto = true;
}

/// A process name, which turns on individual names.
pub fn process_name(draft: &mut Draft, pair: &Pair) -> Result<String, Diagnostic> {
    let text = values::text(pair)?;
    draft.of::<Naming>().auto = true;
    Ok(text)
}

/// Whether uWSGI would start a master although the configuration does not ask for one.
pub(super) fn implies_master(read: &Configuration) -> bool {
    read.effects.iter().any(|pair| WITH_MASTER.iter().any(|start| pair.key.starts_with(start)))
}

/// Whether the number of workers is written in the words of servers that load the application in each worker unless they are
/// told to preload it: `--workers`, or WEB_CONCURRENCY. `--processes` is uWSGI's word.
pub(super) fn are_of_other_servers(workers: &Workers, read: &Configuration) -> bool {
    let says_otherwise =
        |pair: &Pair| matches!(pair.key.as_str(), "processes" | "p" | "master" | "lazy-apps" | "lazy" | "fork-safety");
    workers.processes > 1 && !read.effects.iter().any(says_otherwise)
}

impl ProcessesDraft {
    /// Completes the settings of the workers.
    pub fn complete(&self, python: &PythonDraft, context: &mut Context) -> Workers {
        let requested = self.count.or_else(|| if context.is_bare { python.web_concurrency(context) } else { None });
        Workers {
            processes: requested.unwrap_or(1),
            processes_chosen: requested.is_some(),
            processes_auto: self.count.is_some() && self.is_auto,
            threads: self.threads.unwrap_or(Threads::Fixed(1)),
            cpus: context.host.cpus,
            cpus_of_each: self.cpus_of_each,
        }
    }
}

impl RecyclingDraft {
    /// As in uWSGI, a minimum lifetime above the maximum is an error.
    pub fn complete(self, context: &mut Context) -> Recycling {
        let Recycling { max_lifetime_ms, min_lifetime_ms, .. } = self.settings;
        if let (Some(most), Some(location)) = (max_lifetime_ms, &self.min_lifetime)
            && min_lifetime_ms >= most
        {
            let (least, most) = (min_lifetime_ms / 1000, most / 1000);
            let message = format!("`min-worker-lifetime = {least}` is not below `max-worker-lifetime`, which is {most}");
            context.diagnostics.push(Diagnostic::error(Some(location), message).advise("make it shorter"));
        }
        self.settings
    }
}

impl LifecycleDraft {
    pub fn complete(mut self, shortest_route_harakiri_ms: Option<u64>, context: &Context) -> Lifecycle {
        self.settings.shortest_route_harakiri_ms = shortest_route_harakiri_ms;
        self.settings.reload_mercy_ms = self.worker_mercy.unwrap_or(self.settings.reload_mercy_ms);
        self.settings.pidfile = self.pidfile.map(|path| context.absolute_at_start(path));
        self.settings
    }
}

/// Checks for options that exclude each other.
pub fn check_reloading(reloading: &Reloading, lifecycle: &Lifecycle, context: &mut Context) {
    if reloading.canary_ms.is_none() || lifecycle.reload_order != ReloadOrder::StopFirst {
        return;
    }
    let place = context.read.effects.iter().rev().find(|pair| pair.key == "reload-canary").map(|pair| &pair.location);
    context.diagnostics.push(
        Diagnostic::error(
            place,
            "`reload-canary` and `reload-order = stop-first` exclude each other: a canary serves beside the old workers, which \
                have ended then",
        )
        .advise("leave `reload-canary` out, or leave `reload-order` as it is (`start-first`)"),
    );
}

/// Reports a folder of `crash-reports` that is not there: otherwise the first worker that dies would be the first to tell.
pub fn check_crash_reports(lifecycle: &Lifecycle, context: &mut Context) {
    let Some(folder) = lifecycle.crash_reports.as_ref().filter(|folder| !folder.is_dir()) else { return };
    let place = context.read.effects.iter().rev().find(|pair| pair.key == "crash-reports").map(|pair| &pair.location);
    let message = format!("`crash-reports`: there is no folder `{}`, so no report can be written", folder.display());
    let advice = "create it, and let the application's user write to it";
    context.diagnostics.push(Diagnostic::warning(place, message).advise(advice).local());
}

/// The target of a request to the application: a path, with an optional query.
pub fn request_target(pair: &Pair) -> Result<String, Diagnostic> {
    let text = values::text(pair)?;
    let is_plain = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain {
        return Ok(text);
    }
    Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not a path that can be requested", pair.key))
        .advise("write it as a browser sends it, beginning with the first slash: `/health?deep=1`"))
}

/// The numbers of processes and threads.
#[derive(Default)]
pub struct ProcessesDraft {
    pub has_master: bool,
    pub count: Option<u32>,
    pub is_auto: bool,
    /// `None`: one.
    pub threads: Option<Threads>,
    pub cpus_of_each: u32,
}

/// How processes start and stop.
pub struct LifecycleDraft {
    pub settings: Lifecycle,
    pub worker_mercy: Option<u64>,
    pub pidfile: Option<String>,
}

impl Default for LifecycleDraft {
    fn default() -> LifecycleDraft {
        let settings = Lifecycle {
            harakiri_ms: None,
            shortest_route_harakiri_ms: None,
            harakiri_policy: Default::default(),
            process: Default::default(),
            reload_mercy_ms: RELOAD_MERCY_SECONDS * 1000,
            load_timeout_ms: None,
            pidfile: None,
            crash_reports: None,
            reload_order: Default::default(),
            vacuum: false,
        };
        LifecycleDraft { settings, worker_mercy: None, pidfile: None }
    }
}

/// When workers are replaced.
#[derive(Default)]
pub struct RecyclingDraft {
    pub settings: Recycling,
    /// Where `min-worker-lifetime` was set.
    pub min_lifetime: Option<Location>,
}

/// The values of reloads so far.
pub struct ReloadingDraft(pub Reloading);

impl Default for ReloadingDraft {
    fn default() -> ReloadingDraft {
        ReloadingDraft(Reloading { probe_timeout_ms: PROBE_TIMEOUT_S * 1000, ..Reloading::default() })
    }
}

pub const RELOAD_MERCY_SECONDS: u64 = 60;

/// Default time limit of a response to `reload-probe`, in seconds.
pub const PROBE_TIMEOUT_S: u64 = 10;
