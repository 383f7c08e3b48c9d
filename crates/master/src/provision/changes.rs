//! What of another configuration can be taken into use while an instance runs, and what needs a restart. It compares, and changes
//! nothing that runs. The master runs it, at a reload.

use bolide_contract::attendant::Daemon;
use bolide_contract::hooks::{Hook, HookPhase};
use bolide_contract::settings::{Listener, Settings, Threads};
use bolide_options::{Reach, Said};
use serde_json::Value;

use crate::provision::Room;

/// Sections of the settings that a reload takes into use. A section that is not named here stays as it was until a restart: whoever
/// lets a reload take it writes it down.
const RELOADED: &[&str] = &[
    "reloading",
    "listeners",
    "applications",
    "application",
    "python",
    "workers",
    "helpers",
    "lifecycle",
    "recycling",
    "scaling",
    "limits",
    "logging",
    "naming",
    "clients",
    "asynchronous",
    "routes",
    "answering",
    "files",
    "watching",
    "python_module",
    "attendant",
    "hooks",
];

/// What needs a restart within those sections: where it is, and the option that sets it.
const KEPT: [(&str, &str); 5] = [
    ("/lifecycle/pidfile", "pidfile"),
    ("/logging/file", "logto"),
    ("/reloading/descriptors_most", "max-fd"),
    ("/logging/targets", "logger or req-logger"),
    ("/logging/flows", "logger or log-route"),
];

/// Options of sections that need a restart, where a section is not called like its option.
const SECTION_OPTIONS: [(&str, &str); 5] = [
    ("identity", "uid, gid or umask"),
    ("confinement", "immediate-uid, immediate-gid, chroot, cap or unshare"),
    ("control", "daemonize, pidfile2, safe-pidfile, master-fifo or control-socket"),
    ("statistics", "stats or the related options"),
    ("development", "develop or reload-browser"),
];

/// Another configuration, as far as an instance that runs can have it.
#[derive(Debug)]
pub struct Renewed {
    pub settings: Settings,
    /// The sections that are other ones now.
    pub changed: Vec<String>,
    /// What stays as it was until a restart, by its options.
    pub kept: Vec<String>,
}

/// Takes what can be taken of another configuration.
///
/// # Errors
/// Settings that can't be written down: a fault of our own.
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

/// What may differ where the application's user may write the configuration: it is acted on by processes that have become that user, or is a
/// number that gives no rights. Everything else, master and attendant do with root's rights, and it stays as it is. Listeners, hooks, daemons
/// and what daemons see are looked at one by one below.
const OF_THE_APPLICATION: &[&str] = &[
    "/applications",
    "/python/virtualenv",
    "/python/path",
    "/application/chdir_after",
    "/python/arguments",
    "/application/removed_variables",
    "/python/imports",
    "/python/aliases",
    "/python/late_aliases",
    "/python/paste_logger",
    "/python/optimize",
    "/python/executable",
    "/python/thread_stack_bytes",
    "/application/root_path",
    "/application/manage_script_name",
    "/application/ignore_script_name",
    "/python/wsgi_strict",
    "/python/no_file_wrapper",
    "/application/no_default_app",
    "/application/lazy",
    "/python/catch_exceptions",
    "/python/reload_on",
    "/application/fork_safety",
    "/workers",
    "/helpers",
    "/lifecycle/harakiri_ms",
    "/lifecycle/shortest_route_harakiri_ms",
    "/lifecycle/harakiri_policy",
    "/lifecycle/reload_mercy_ms",
    "/lifecycle/load_timeout_ms",
    "/lifecycle/reload_order",
    // A process sets these for itself when it is that user, who may only lower them.
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
    "/logging/x_forwarded_for",
    "/logging/write_errors",
    // Commands of `cron` have no user of their own.
    "/attendant/jobs",
    "/attendant/mercy_ms",
    "/naming",
    "/clients",
    "/asynchronous",
    "/python_module",
    "/routes",
    "/answering",
    "/files",
];

/// What a daemon with a user of its own is given, too: a variable (LD_PRELOAD) or a folder may be what it runs.
const OF_THE_SURROUNDINGS: [&str; 2] = ["/application/environment", "/application/chdir"];

/// A configuration that the application's user may write, as far as that user may have it.
#[derive(Debug)]
pub struct Harmless {
    pub settings: Settings,
    /// A part that stays as it was is not the application's.
    pub keeps_masters: bool,
    /// So does what daemons see.
    pub keeps_surroundings: bool,
    /// Where daemons and hooks were asked for that are not taken, or that go on although they are gone.
    pub kept_origins: Vec<String>,
}

/// Takes of another configuration what the application's user may change.
///
/// # Errors
/// Settings that can't be written down: a fault of our own.
pub fn harmless(in_force: &Settings, wanted: &Settings) -> serde_json::Result<Harmless> {
    let (mut taken, new) = (serde_json::to_value(in_force)?, serde_json::to_value(wanted)?);
    let (daemons, mut kept_origins) = harmless_daemons(&in_force.attendant.daemons, &wanted.attendant.daemons);
    let has_own_user = daemons.iter().any(is_privileged);
    let surroundings = OF_THE_SURROUNDINGS.iter().filter(|_| !has_own_user);
    for pointer in OF_THE_APPLICATION.iter().chain(surroundings) {
        if let (Some(place), Some(now)) = (taken.pointer_mut(pointer), new.pointer(pointer)) {
            *place = now.clone();
        }
    }
    let mut settings: Settings = serde_json::from_value(taken)?;
    settings.attendant.daemons = daemons;
    let (hooks, origins) = harmless_hooks(&in_force.hooks, &wanted.hooks);
    settings.hooks = hooks;
    kept_origins.extend(origins);
    for listener in &mut settings.listeners {
        // Workers alone look at these.
        let is_it = |now: &&Listener| (&now.address, now.protocol) == (&listener.address, listener.protocol);
        if let Some(now) = wanted.listeners.iter().find(is_it) {
            (listener.timeout_ms, listener.http2, listener.has_proxy_header) = (now.timeout_ms, now.http2, now.has_proxy_header);
        }
    }
    let mut compared = serde_json::to_value(&settings)?;
    let mut keeps_surroundings = false;
    for pointer in OF_THE_SURROUNDINGS {
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

/// The attendant uses root's rights for it: it becomes another user than the application's, its process is found by a file, or it has the
/// terminal of who started the instance.
fn is_privileged(daemon: &Daemon) -> bool {
    names_rights(daemon) || daemon.has_stdin
}

fn names_rights(daemon: &Daemon) -> bool {
    daemon.user.is_some() || daemon.group.is_some() || daemon.pidfile.is_some()
}

/// Daemons that use root's rights as they were, and the others as they are wanted; and where those were asked for that are not taken, or
/// stay although they are gone.
fn harmless_daemons(old: &[Daemon], new: &[Daemon]) -> (Vec<Daemon>, Vec<String>) {
    let before: Vec<&Daemon> = old.iter().filter(|daemon| is_privileged(daemon)).collect();
    let is_same = |one: &Daemon, other: &Daemon| *one == Daemon { origin: one.origin.clone(), ..other.clone() };
    let is_known = |daemon: &Daemon| before.iter().any(|old| is_same(old, daemon));
    let refused = new.iter().filter(|daemon| names_rights(daemon) && !is_known(daemon));
    let missed = before.iter().copied().filter(|old| !new.iter().any(|now| is_same(old, now)));
    let origins = refused.chain(missed).map(|daemon| daemon.origin.clone()).collect();
    // The terminal is not given to one that has not had it.
    let plain = new.iter().filter(|daemon| !names_rights(daemon) && !is_known(daemon));
    let plain = plain.map(|daemon| Daemon { has_stdin: false, ..daemon.clone() });
    (before.iter().copied().cloned().chain(plain).collect(), origins)
}

/// The same of hooks: those of the start are done by a master with root's rights.
fn harmless_hooks(old: &[Hook], new: &[Hook]) -> (Vec<Hook>, Vec<String>) {
    let is_masters = |hook: &&Hook| HookPhase::OF_START.contains(&hook.phase);
    let is_same = |one: &Hook, other: &Hook| *one == Hook { origin: one.origin.clone(), ..other.clone() };
    let (before, wanted): (Vec<&Hook>, Vec<&Hook>) =
        (old.iter().filter(is_masters).collect(), new.iter().filter(is_masters).collect());
    let refused = wanted.iter().filter(|now| !before.iter().any(|old| is_same(old, now)));
    let missed = before.iter().filter(|old| !wanted.iter().any(|now| is_same(old, now)));
    let origins = refused.chain(missed).map(|hook| hook.origin.clone()).collect();
    let of_the_user = new.iter().filter(|hook| !is_masters(hook));
    (before.iter().copied().chain(of_the_user).cloned().collect(), origins)
}

impl Harmless {
    /// The options that are not taken, each with its line. `before` was said when this was last read with root's rights.
    pub fn named(&self, before: &[Said], now: &[Said]) -> Vec<String> {
        // Daemons are named with their option.
        let is_of = |origin: &str, said: &Said| *origin == said.origin || *origin == format!("{} ({})", said.option, said.origin);
        let is_kept = |said: &Said| match said.reach {
            Reach::Application => false,
            Reach::Surroundings => self.keeps_surroundings,
            Reach::Each => self.kept_origins.iter().any(|origin| is_of(origin, said)),
            Reach::Master => self.keeps_masters,
        };
        let is_new = |said: &&Said| !before.iter().any(|old| (&old.option, &old.value) == (&said.option, &said.value));
        let is_gone = |said: &&Said| !now.iter().any(|new| (&new.option, &new.value) == (&said.option, &said.value));
        // One that has another value now is named where it stands now.
        let is_replaced = |said: &Said| now.iter().any(|new| new.option == said.option && is_new(&new));
        let changed =
            now.iter().filter(is_new).filter(|said| is_kept(said)).map(|said| format!("{}: `{}`", said.origin, said.option));
        let gone = before.iter().filter(is_gone).filter(|said| is_kept(said) && !is_replaced(said));
        let gone = gone.map(|said| format!("`{}`, which used to be at {}", said.option, said.origin));
        let named: Vec<String> = changed.chain(gone).collect();
        let keeps = self.keeps_masters || self.keeps_surroundings || !self.kept_origins.is_empty();
        if !named.is_empty() || !keeps {
            return named;
        }
        // A relative path of another option leads elsewhere by it.
        let moves = now.iter().filter(is_new).filter(|said| said.reach == Reach::Surroundings);
        let moves = moves.map(|said| format!("{}: file operations by root below `{}`", said.origin, said.option));
        Some(moves.collect())
            .filter(|named: &Vec<String>| !named.is_empty())
            .unwrap_or_else(|| vec!["a setting that needs root".to_owned()])
    }
}

/// Parts of settings whose change is none: the lines in which they were written, and what `uwsgi.opt` and `uwsgi.magic_table` show,
/// with the time in it. All that is meant by it is in other sections.
const NO_CHANGES: [&str; 3] = ["origin", "shown_options", "shown_magic"];

/// Settings without the lines in which they were written: a line above them changes nothing.
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
