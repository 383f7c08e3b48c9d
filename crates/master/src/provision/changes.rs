//! Compares another configuration with the current one: which settings a running instance can adopt, and which need a restart. It
//! changes nothing in the instance. The master runs it, at a reload.

use bolide_command_line::PrivilegedOption;
use bolide_contract::attendant::Daemon;
use bolide_contract::children::Task;
use bolide_contract::hooks::{Hook, HookPhase};
use bolide_contract::settings::{Listener, Settings, Threads};
use bolide_options::row::Reach;
use serde_json::Value;

use crate::provision::Room;

/// Sections of the settings that a reload applies. A section that is not listed keeps its values until a restart; supporting a
/// section in reloads includes adding it here.
const RELOADED: &[&str] = &[
    "reloading",
    "listeners",
    "applications",
    "application",
    "language",
    "workers",
    "helpers",
    "mules",
    "lifecycle",
    "recycling",
    "scaling",
    "limits",
    "logging",
    "tracing",
    "naming",
    "clients",
    "asynchronous",
    "routes",
    "answering",
    "files",
    "watching",
    "signals",
    "attendant",
    "hooks",
    "services",
    "spooling",
    "alarms",
];

/// Settings within those sections that need a restart: the JSON pointer, and the option that sets it.
const KEPT: [(&str, &str); 7] = [
    ("/lifecycle/crash_reports", "crash-reports"),
    ("/lifecycle/pidfile", "pidfile"),
    ("/logging/file", "logto"),
    ("/logging/takes_all_output", "log-output"),
    ("/reloading/descriptors_most", "max-fd"),
    ("/logging/targets", "logger or req-logger"),
    ("/logging/flows", "logger or log-route"),
];

/// Options of sections that need a restart, if a section does not have the name of its option.
const SECTION_OPTIONS: [(&str, &str); 5] = [
    ("identity", "uid, gid or umask"),
    ("confinement", "immediate-uid, immediate-gid, chroot, cap or unshare"),
    ("control", "daemonize, pidfile2, safe-pidfile, master-fifo, control-socket or heartbeat"),
    ("statistics", "stats or the related options"),
    ("development", "develop or the related options"),
];

/// The part of another configuration that a running instance can adopt.
#[derive(Debug)]
pub struct Renewed {
    pub settings: Settings,
    /// The sections that differ from the current settings.
    pub changed: Vec<String>,
    /// The options that keep their value until a restart.
    pub kept: Vec<String>,
}

/// Returns the settings of another configuration that can be adopted.
///
/// # Errors
/// Settings that can't be serialized: an internal error.
pub fn renewed(in_force: &Settings, wanted: &Settings, room: Room) -> serde_json::Result<Renewed> {
    let (old, mut new) = (serde_json::to_value(in_force)?, serde_json::to_value(wanted)?);
    let (mut changed, mut kept) = (Vec::new(), Vec::new());
    for (pointer, option) in KEPT {
        if let (Some(before), Some(now)) = (old.pointer(pointer), new.pointer_mut(pointer))
            && before != now
        {
            *now = before.clone();
            kept.push(option.to_owned());
        }
    }
    if let (Value::Object(old), Value::Object(new)) = (&old, &mut new) {
        for (section, now) in new.iter_mut() {
            let Some(before) = old.get(section).filter(|before| without_places(before) != without_places(now)) else { continue };
            if RELOADED.contains(&section.as_str()) {
                changed.push(section.clone());
            } else {
                *now = before.clone();
                let named = SECTION_OPTIONS.iter().find(|(known, _)| known == section).map(|(_, options)| *options);
                kept.push(named.map_or_else(|| section.replace('_', "-"), str::to_owned));
            }
        }
    }
    let mut settings: Settings = serde_json::from_value(new)?;
    // Output of applications is captured from startup on or not at all.
    if settings.logging.alarms != in_force.logging.alarms && !in_force.logging.takes_output() {
        settings.logging.alarms.clone_from(&in_force.logging.alarms);
        kept.push("log-alarm".to_owned());
    }
    let workers = &mut settings.workers;
    if workers.processes > room.processes {
        kept.push(format!("processes above {}", room.processes));
        workers.processes = room.processes;
    }
    if workers.threads.most() > room.threads {
        kept.push(format!("threads above {}", room.threads));
        workers.threads = Threads::Fixed(room.threads);
    }
    if settings.helpers.len() > room.helpers as usize {
        kept.push(format!("helpers above {}", room.helpers));
        settings.helpers.truncate(room.helpers as usize);
    }
    Ok(Renewed { settings, changed, kept })
}

/// Settings that may change if the application's user may write the configuration: processes that have become that user act on
/// them, or they are numbers that grant no rights. The master and the attendant act on all other settings with root's rights, so
/// those keep their values. Listeners, hooks, daemons and the surroundings of daemons are compared one by one below.
const APPLICATION_SETTINGS: &[&str] = &[
    "/applications",
    "/signals",
    "/language/python/virtualenv",
    "/language/python/path",
    "/application/chdir_after",
    "/language/python/arguments",
    "/application/removed_variables",
    "/language/python/imports",
    "/language/python/aliases",
    "/language/python/late_aliases",
    "/language/python/paste_logger",
    "/language/python/logging_file",
    "/language/python/optimize",
    "/language/python/no_site",
    "/language/python/executable",
    "/language/python/thread_stack_bytes",
    "/application/root_path",
    "/application/manage_script_name",
    "/application/ignore_script_name",
    "/language/python/wsgi_strict",
    "/language/python/no_file_wrapper",
    "/application/by_host",
    "/application/no_default_app",
    "/application/lazy",
    "/language/python/catch_exceptions",
    "/language/python/reload_on",
    "/application/fork_safety",
    "/workers",
    "/helpers",
    "/services/locks",
    // Workers and helpers talk to engines. Their numbers are places in one list, so all of it is taken or none.
    "/services/distributed",
    // Inboxes are bounded in number and size, and they refer to an engine by its place in that list.
    "/services/inboxes",
    // Rate limits are bounded in number and size, and rules refer to a limit by its place in that list.
    "/services/rate_limits",
    "/mules",
    "/lifecycle/harakiri_ms",
    "/lifecycle/shortest_route_harakiri_ms",
    "/lifecycle/harakiri_policy",
    "/lifecycle/reload_mercy_ms",
    "/lifecycle/drain_delay_ms",
    "/lifecycle/drain_quiet_ms",
    "/lifecycle/drain_spread_ms",
    "/lifecycle/load_timeout_ms",
    "/lifecycle/reload_order",
    // A process sets these for itself after it has become that user, who may only lower them.
    "/lifecycle/process/address_space_bytes",
    "/lifecycle/process/processes_most",
    "/recycling",
    "/reloading/exits",
    "/reloading/probe",
    "/reloading/probe_timeout_ms",
    "/reloading/canary_ms",
    "/reloading/warmup",
    "/scaling",
    "/limits",
    "/logging/requests",
    "/logging/always",
    "/logging/style",
    "/logging/format",
    "/logging/date",
    "/logging/dates_format",
    "/logging/microseconds",
    "/logging/memory_report",
    "/logging/leak_report_requests",
    "/logging/slow_request_ms",
    "/logging/x_forwarded_for",
    "/logging/write_errors",
    "/tracing",
    // Commands of `cron` have no user of their own.
    "/attendant/jobs",
    "/attendant/mercy_ms",
    "/naming",
    "/clients",
    "/asynchronous",
    "/language/python/module",
    "/language/python/gevent",
    "/language/cgi",
    "/language/plugin",
    "/routes",
    "/answering",
    "/files",
    // At a reload, directories are created with the rights of the application's user.
    "/spooling",
];

/// Settings that also reach daemons with a user of their own: a variable (LD_PRELOAD) or a directory may determine the code that
/// a daemon runs.
const DAEMON_ENVIRONMENT_SETTINGS: [&str; 2] = ["/application/environment", "/application/chdir"];

/// The part of a configuration that its writer, the application's user, may change.
#[derive(Debug)]
pub struct Harmless {
    pub settings: Settings,
    /// A setting kept its value that does not belong to the application.
    pub keeps_masters: bool,
    /// A setting of the daemons' surroundings kept its value.
    pub keeps_surroundings: bool,
    /// The origins of daemons and hooks that were requested but refused, or that stay although they were removed.
    pub kept_origins: Vec<String>,
}

/// Returns the settings of another configuration that the application's user may change.
///
/// # Errors
/// Settings that can't be serialized: an internal error.
pub fn harmless(in_force: &Settings, wanted: &Settings) -> serde_json::Result<Harmless> {
    let (mut taken, new) = (serde_json::to_value(in_force)?, serde_json::to_value(wanted)?);
    let (daemons, mut kept_origins) = harmless_daemons(&in_force.attendant.daemons, &wanted.attendant.daemons);
    let has_own_user = daemons.iter().any(is_privileged);
    let surroundings = DAEMON_ENVIRONMENT_SETTINGS.iter().filter(|_| !has_own_user);
    for pointer in APPLICATION_SETTINGS.iter().chain(surroundings) {
        if let (Some(place), Some(now)) = (taken.pointer_mut(pointer), new.pointer(pointer)) {
            *place = now.clone();
        }
    }
    let mut settings: Settings = serde_json::from_value(taken)?;
    if runs_script(&settings) != runs_script(in_force) {
        // When a script exits, the instance exits, and has no socket, which is the master's to decide: all of it or nothing.
        settings.helpers.clone_from(&in_force.helpers);
        settings.scaling.clone_from(&in_force.scaling);
    }
    settings.attendant.daemons = daemons;
    let (hooks, origins) = harmless_hooks(&in_force.hooks, &wanted.hooks);
    settings.hooks = hooks;
    kept_origins.extend(origins);
    for listener in &mut settings.listeners {
        // Only workers use these.
        let is_it = |now: &&Listener| (&now.address, now.protocol) == (&listener.address, listener.protocol);
        if let Some(now) = wanted.listeners.iter().find(is_it) {
            (listener.timeout_ms, listener.http2) = (now.timeout_ms, now.http2);
            (listener.has_proxy_header, listener.may_lack_proxy_header) = (now.has_proxy_header, now.may_lack_proxy_header);
        }
    }
    let mut compared = serde_json::to_value(&settings)?;
    let mut keeps_surroundings = false;
    for pointer in DAEMON_ENVIRONMENT_SETTINGS {
        let Some((place, now)) = compared.pointer_mut(pointer).zip(new.pointer(pointer)) else { continue };
        keeps_surroundings |= *place != *now;
        *place = now.clone();
    }
    let is_given_stdin = |daemon: &Daemon| daemon.has_stdin && !settings.attendant.daemons.iter().any(|taken| taken.has_stdin);
    let keeps_stdin = wanted.attendant.daemons.iter().any(is_given_stdin);
    for pointer in ["/attendant/daemons", "/hooks"] {
        if let Some((place, now)) = compared.pointer_mut(pointer).zip(new.pointer(pointer)) {
            *place = now.clone();
        }
    }
    let keeps_masters = keeps_stdin || without_places(&compared) != without_places(&new);
    Ok(Harmless { settings, keeps_masters, keeps_surroundings, kept_origins })
}

/// Whether the instance executes a file instead of a worker (`pyrun`).
fn runs_script(settings: &Settings) -> bool {
    settings.helpers.iter().any(|helper| matches!(helper.task, Task::Script { .. }))
}

/// Returns whether the attendant uses root's rights for a daemon: it becomes another user than the application's, its process is
/// found by a pidfile, or it has the terminal of the user that started the instance.
fn is_privileged(daemon: &Daemon) -> bool {
    needs_rights(daemon) || daemon.has_stdin
}

fn needs_rights(daemon: &Daemon) -> bool {
    daemon.user.is_some() || daemon.group.is_some() || daemon.pidfile.is_some()
}

/// Returns the old daemons that use root's rights and the new ones that do not; and the origins of those that were refused or
/// that stay although they were removed.
fn harmless_daemons(old: &[Daemon], new: &[Daemon]) -> (Vec<Daemon>, Vec<String>) {
    let before: Vec<&Daemon> = old.iter().filter(|daemon| is_privileged(daemon)).collect();
    let is_same = |one: &Daemon, other: &Daemon| *one == Daemon { origin: one.origin.clone(), ..other.clone() };
    let is_known = |daemon: &Daemon| before.iter().any(|old| is_same(old, daemon));
    let refused = new.iter().filter(|daemon| needs_rights(daemon) && !is_known(daemon));
    let missed = before.iter().copied().filter(|old| !new.iter().any(|now| is_same(old, now)));
    let origins = refused.chain(missed).map(|daemon| daemon.origin.clone()).collect();
    // A daemon without access to the terminal does not get it.
    let plain = new.iter().filter(|daemon| !needs_rights(daemon) && !is_known(daemon));
    let plain = plain.map(|daemon| Daemon { has_stdin: false, ..daemon.clone() });
    (before.iter().copied().cloned().chain(plain).collect(), origins)
}

/// Like [`harmless_daemons`], for hooks: a master with root's rights runs those of startup.
fn harmless_hooks(old: &[Hook], new: &[Hook]) -> (Vec<Hook>, Vec<String>) {
    let runs_at_start = |hook: &&Hook| HookPhase::OF_START.contains(&hook.phase);
    let is_same = |one: &Hook, other: &Hook| *one == Hook { origin: one.origin.clone(), ..other.clone() };
    let (before, wanted): (Vec<&Hook>, Vec<&Hook>) =
        (old.iter().filter(runs_at_start).collect(), new.iter().filter(runs_at_start).collect());
    let refused = wanted.iter().filter(|now| !before.iter().any(|old| is_same(old, now)));
    let missed = before.iter().filter(|old| !wanted.iter().any(|now| is_same(old, now)));
    let origins = refused.chain(missed).map(|hook| hook.origin.clone()).collect();
    let of_the_user = new.iter().filter(|hook| !runs_at_start(hook));
    (before.iter().copied().chain(of_the_user).cloned().collect(), origins)
}

impl Harmless {
    /// Returns the options that are not applied, each with its line. `before` is from the last reading with root's rights.
    pub fn named(&self, before: &[PrivilegedOption], now: &[PrivilegedOption]) -> Vec<String> {
        // Daemons are named with their option.
        let is_of = |origin: &str, said: &PrivilegedOption| {
            *origin == said.origin || *origin == format!("{} ({})", said.option, said.origin)
        };
        let is_kept = |said: &PrivilegedOption| match said.reach {
            Reach::Application => false,
            Reach::Surroundings => self.keeps_surroundings,
            Reach::Each => self.kept_origins.iter().any(|origin| is_of(origin, said)),
            Reach::Master => self.keeps_masters,
        };
        let is_new =
            |said: &&PrivilegedOption| !before.iter().any(|old| (&old.option, &old.value) == (&said.option, &said.value));
        let is_gone = |said: &&PrivilegedOption| !now.iter().any(|new| (&new.option, &new.value) == (&said.option, &said.value));
        // An option that has another value now is named at its present line.
        let is_replaced = |said: &PrivilegedOption| now.iter().any(|new| new.option == said.option && is_new(&new));
        let changed =
            now.iter().filter(is_new).filter(|said| is_kept(said)).map(|said| format!("{}: `{}`", said.origin, said.option));
        let gone = before.iter().filter(is_gone).filter(|said| is_kept(said) && !is_replaced(said));
        let gone = gone.map(|said| format!("`{}`, which used to be at {}", said.option, said.origin));
        let named: Vec<String> = changed.chain(gone).collect();
        let keeps = self.keeps_masters || self.keeps_surroundings || !self.kept_origins.is_empty();
        if !named.is_empty() || !keeps {
            return named;
        }
        // A relative path of another option resolves differently because of it.
        let moves = now.iter().filter(is_new).filter(|said| said.reach == Reach::Surroundings);
        let moves = moves.map(|said| format!("{}: file operations by root below `{}`", said.origin, said.option));
        Some(moves.collect())
            .filter(|named: &Vec<String>| !named.is_empty())
            .unwrap_or_else(|| vec!["a setting that needs root".to_owned()])
    }
}

/// Parts of settings that are ignored in comparisons: the lines of their definitions, and the values that `uwsgi.opt` and
/// `uwsgi.magic_table` show, which include the time. Other sections have everything that has an effect.
const NO_CHANGES: [&str; 3] = ["origin", "shown_options", "shown_magic"];

/// Returns settings without the lines of their definitions: a line inserted above them changes nothing.
fn without_places(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| !NO_CHANGES.contains(&name.as_str()));
            Value::Object(fields.map(|(name, value)| (name.clone(), without_places(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(without_places).collect()),
        plain => plain.clone(),
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
