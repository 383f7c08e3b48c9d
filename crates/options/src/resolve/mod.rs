//! Converts pairs to [`Settings`]: applies each effect in order, by the field or function in its row. All faults are collected
//! and reported together, each with its file and line.
//!
//! Relative paths become absolute here, starting at the folder that uWSGI would use: it writes `pidfile` and opens `logto` before
//! it changes to `chdir`, and handles everything else (sockets, the application, its virtualenv and `pythonpath`, `chdir2`) after
//! it. `pythonpath` patterns are matched before it.

mod address;
pub mod answering;
mod application;
pub mod asynchronous;
pub mod attendant;
pub mod background;
pub mod clients;
pub mod confinement;
pub mod context;
pub mod control;
pub mod developing;
pub mod draft;
pub mod files;
pub mod gevent;
pub mod gunicorn_hooks;
pub mod hooks;
pub mod interpreter;
pub mod logging;
pub mod mules;
pub mod platform;
pub mod processes;
pub mod scaling;
pub mod services;
pub mod sockets;
pub mod statistics;
pub mod tls;
mod unsupported;
pub mod values;
pub mod watching;
mod work;

pub use application::asgi_file;
pub use application::positional::PositionalApplication;
pub use platform::port;
pub use tls::ciphers;
pub use work::{NO_APPLICATION, NO_SOCKET, WITHOUT_APPLICATION};

use bolide_configuration::diagnostic::{Diagnostic, Severity};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::pair::Pair;
use bolide_contract::children::{Helper, Task};
use bolide_contract::settings::Settings;
use context::Context;
use draft::Draft;
use work::Requests;

use crate::catalogue::catalogue;
use crate::catalogue::row::{OptionRow, Setting, Status, Value};
use crate::reader::Configuration;
use crate::reader::other_servers::OtherServers;

const MEBIBYTE: u64 = 1024 * 1024;

/// Resolves a configuration to settings. The second part contains all diagnostics, with errors among them if the first is `None`.
pub fn resolve(
    read: &Configuration,
    positional: Option<&PositionalApplication>,
    host: &HostInfo,
    others: &dyn OtherServers,
) -> (Option<Settings>, Vec<Diagnostic>) {
    let mut draft = Draft::new(host, read.strict.is_some());
    draft.diagnostics.extend(read.diagnostics.iter().cloned());
    unsupported::note_allowed(&mut draft, read);
    sockets::note_shared(&mut draft, &read.effects);
    for pair in &read.effects {
        match catalogue().get(&pair.key) {
            Some(row) => draft.take(row, pair, read),
            None => unsupported::report_unknown(&mut draft, pair, read, others),
        }
    }
    let (settings, diagnostics) = draft.complete(read, positional);
    let failed = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    ((!failed).then_some(settings), diagnostics)
}

/// Whether an unsupported option asks for nothing, or for something that Bolide always does.
fn is_done_already(row: &OptionRow, pair: &Pair) -> bool {
    match row.name() {
        // There is a single plugin, and this is its number.
        name if name.ends_with("-modifier1") || name.ends_with("-modifier2") => pair.value.as_deref().map(str::trim) == Some("0"),
        "ssl-option" => tls::asks_for_nothing(pair),
        _ => row.value == Value::Switch && !bolide_configuration::values::switch(pair.value.as_deref()).on,
    }
}

impl<'a> Draft<'a> {
    /// Applies one effect, by the verdict of its row.
    fn take(&mut self, row: &OptionRow, pair: &Pair, read: &Configuration) {
        let location = &pair.location;
        match row.status {
            Status::Supported(_) if self.is_placeholder(row, pair, read) => {
                let message = format!("`{}` is a placeholder here: its value does not suit the option of this name", pair.key);
                self.diagnostics.push(Diagnostic::note(Some(location), message).advise("give the placeholder another name"));
            }
            // uWSGI continues without it. If everything depends on it, a later error says so.
            Status::Supported(_)
                if matches!(row.name(), "module" | "pythonpath" | "virtualenv") && pair.value.as_deref() == Some("") =>
            {
                self.diagnostics
                    .push(Diagnostic::warning(Some(location), format!("`{}` has no value: it has no effect", pair.key)));
            }
            Status::Supported(setting) => {
                if let Err(diagnostic) = self.set(setting, row, pair) {
                    self.diagnostics.push(diagnostic);
                }
            }
            // "No" to something that Bolide always does is worth a note, "yes" is not.
            Status::Accepted(why) => {
                if row.value == Value::Switch && !bolide_configuration::values::switch(pair.value.as_deref()).on {
                    self.diagnostics
                        .push(Diagnostic::note(Some(location), format!("`{}` can't be switched off: {why}", pair.key)));
                }
            }
            Status::Planned(..) | Status::Protective(_) | Status::Absent(_) | Status::Refused(_)
                if is_done_already(row, pair) => {}
            Status::Planned(_, meanwhile) => self.planned(location, &pair.key, meanwhile),
            Status::Protective(instead) => unsupported::protective(self, location, row, &pair.key, instead),
            Status::Absent(instead) => {
                let message = format!("`{}` is not supported: it has no effect", pair.key);
                self.diagnostics.push(Diagnostic::warning(Some(location), message).advise(instead));
            }
            Status::Refused(instead) => {
                self.diagnostics
                    .push(Diagnostic::error(Some(location), format!("`{}` is not supported", pair.key)).advise(instead));
            }
        }
    }

    /// Whether a file for uWSGI uses the name of one of Bolide's own options, which uWSGI does not have, as a placeholder:
    /// `interface = eth0`, and `%(interface)` elsewhere.
    fn is_placeholder(&self, row: &OptionRow, pair: &Pair, read: &Configuration) -> bool {
        !self.strict && row.home == "bolide" && read.used.contains(&pair.key) && !values::fits(row, pair)
    }

    fn set(&mut self, setting: Setting, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
        let located = || Ok::<_, Diagnostic>((values::text(pair)?, pair.location.clone()));
        match setting {
            Setting::Switch(field) => *field(self) = self.switch(pair),
            Setting::Off(field) => *field(self) = !self.switch(pair),
            Setting::Number(field) => *field(self) = self.bounded_u32(row, pair)?,
            Setting::Size(field) => *field(self) = self.bounded_usize(row, pair)?,
            Setting::Count(field) => *field(self) = Some(self.bounded_u32(row, pair)?).filter(|&number| number > 0),
            Setting::Positive(field) => *field(self) = self.positive(row, pair)?,
            Setting::Seconds(field) => *field(self) = self.positive(row, pair)?.map(|seconds| seconds * 1000),
            Setting::Milliseconds(field) => *field(self) = self.milliseconds(row, pair)?,
            Setting::Mebibytes(field) => *field(self) = self.positive(row, pair)?.map(|count| count.saturating_mul(MEBIBYTE)),
            Setting::Text(field) => *field(self) = Some(values::text(pair)?),
            Setting::Texts(field) => field(self).push(values::text(pair)?),
            Setting::Located(field) => *field(self) = Some(located()?),
            Setting::LocatedTexts(field) => field(self).push(located()?),
            Setting::LocatedSwitch(field) => *field(self) = self.switch(pair).then(|| pair.location.clone()),
            Setting::Listen(kind) => sockets::listen(self, kind, pair)?,
            Setting::Watch(subject, action) => watching::add_file(self, subject, action, row, pair)?,
            Setting::By(set) => set(self, row, pair)?,
            // It was applied before all others.
            Setting::AllowMissing => {}
            // These acted while the configuration was read.
            Setting::Language(_) => {}
        }
        Ok(())
    }

    /// Completes the settings, and checks that there is an application and an address to serve it at.
    fn complete(mut self, read: &Configuration, positional: Option<&PositionalApplication>) -> (Settings, Vec<Diagnostic>) {
        let mut context = self.context(read, positional);
        let mut other_work = work::Found::of(&self);
        let has_script = self.python.script.is_some();
        let (is_jailed, is_needed) = (self.confinement.root.is_some(), self.applications.is_needed);
        let applications = std::mem::take(&mut self.applications).complete(positional, &self.python, is_jailed, &mut context);
        let applications = application::below_script_name(applications, &mut self.application, &mut context);
        self.sockets.add_default(&self.python, &mut context);
        let script = self.take_script(&mut context);
        developing::prepare(&mut self, &mut context);
        self.caching.complete_engine_caches(&mut self.services.distributed.caches);
        let caches = self.caching.complete(&mut context);
        let (preloaded, checked_cache) = self.cached_answers.complete(&caches, &mut context);
        let answers_from_cache = checked_cache.is_some();
        answering::named_files::take_rules(&mut self.answering, &mut self.files, &mut context);
        let (rules, answering, compiled) = self.answering.complete(checked_cache, &mut context);
        let routes = &compiled.routes;
        let needs_files = !routes.folders.is_empty() || routes.needs_types;
        let files = self.files.complete(&applications, &self.application, needs_files, &mut context);
        let serves_itself = files.is_some() || answers_from_cache || rules.len() > usize::from(self.developing.tells_browsers());
        // An invalid application on the command line has its own error.
        let is_named = !applications.is_empty() || positional.is_some();
        check_hosts(self.application.by_host, &mut context);
        let requests = match (is_named, serves_itself) {
            (true, _) => Requests::Served,
            (false, true) => Requests::ServedFromFiles,
            (false, false) => Requests::NotFound,
        };
        other_work.has_sockets = !self.sockets.list.is_empty();
        if !has_script {
            work::check(requests, is_needed, other_work, &mut context);
        }
        let socket_mode = self.sockets.mode;
        let listeners = self.sockets.complete(&self.tls, &self.clients, &self.identity, &mut context);
        platform::note_unused_port(&listeners, &mut context);
        let workers = self.processes.complete(&self.python, &mut context);
        let mut scaling = self.scaling.complete(workers.processes, &mut context);
        // Workers without a socket have nothing to do.
        scaling.starts_empty |= !other_work.has_sockets;
        // Without a master uWSGI loads the application where it serves, and threads that the application starts while loading
        // continue to run there.
        self.application.lazy |= workers.processes == 1 && !self.processes.has_master && !processes::implies_master(read);
        self.application.lazy |= context.is_bare && processes::are_of_other_servers(&workers, read);
        let lifecycle = self.lifecycle.complete(routes.shortest_harakiri_ms(), &context);
        let has_mercy = read.effects.iter().any(|pair| pair.key == "reload-mercy");
        let attendant = self.attendant.complete(has_mercy.then_some(lifecycle.reload_mercy_ms), &context);
        let control = control::complete(self.control, &mut self.logging, &mut context);
        processes::check_reloading(&self.reloading, &lifecycle, &mut context);
        if !is_jailed {
            processes::check_crash_reports(&lifecycle, &mut context);
        }
        let mut logging = self.logging.complete(&mut context);
        let (alarms, rules_of_alarms) = self.alarms.complete(is_jailed, self.mules.list.len(), &mut context);
        logging.alarms = rules_of_alarms;
        // If the folder can't be entered by its path (others may not search a folder above it), processes only stay in it.
        let is_enterable = self.chdir.is_some() || is_jailed || context.folder.join(".").exists();
        let application = self.python.complete_application(self.application, &self.identity, is_enterable, &mut context);
        let python = self.python.complete(&mut context);
        let (mut helpers, mules) = self.mules.complete(&mut context);
        self.asynchronous.gevent = self.gevent.complete(&applications, &mut context);
        let development = self.developing.complete(&listeners, &mut context);
        let counts = [workers.processes, workers.threads.most(), listeners.len() as u32];
        let services = self.services.complete(caches, preloaded, counts, &mut context);
        compiled.check(&services, &alarms, &mut context);
        let spooler_harakiri_ms = self.spooler.harakiri_ms;
        let spooling = self.spooler.complete(&mut context);
        if !is_jailed {
            background::spooler::check_folders(&spooling, &self.identity, &mut context);
        }
        helpers.extend(background::spooler::helpers(&spooling, spooler_harakiri_ms));
        helpers.extend(script);
        let settings = Settings {
            development,
            listeners,
            applications,
            application,
            python,
            workers,
            helpers,
            mules,
            lifecycle,
            control,
            recycling: self.recycling.complete(&mut context),
            reloading: self.reloading,
            scaling,
            limits: self.limits,
            logging,
            tracing: logging::otlp::complete(self.tracing),
            hooks: hooks::complete(self.hooks, is_jailed, &context),
            attendant,
            statistics: self.statistics.complete(socket_mode, &mut context),
            identity: self.identity,
            confinement: self.confinement,
            naming: self.naming,
            clients: self.clients.complete(&read.words),
            asynchronous: self.asynchronous,
            python_module: interpreter::complete_module(self.python_module, read),
            routes: rules,
            answering,
            files,
            watching: watching::complete(self.watching, &self.developing, &context),
            services,
            spooling,
            alarms,
            signals: self.signals,
        };
        (settings, context.diagnostics)
    }

    /// Takes the script of `pyrun`, which has the place of one worker: a single one leaves none that could serve.
    fn take_script(&mut self, context: &mut Context) -> Option<Helper> {
        let (file, location) = self.python.script.take()?;
        match self.processes.count {
            Some(count) if count > 1 => self.processes.count = Some(count - 1),
            _ if self.sockets.list.is_empty() => {}
            _ => {
                self.sockets.list.clear();
                let message = "the script has the place of the only worker: no socket is opened";
                context.diagnostics.push(Diagnostic::note(Some(&location), message));
            }
        }
        Some(Helper::new(Task::Script { file: context.absolute(file) }))
    }

    /// Creates the shared state for the completion of all parts.
    fn context<'c>(&mut self, read: &'c Configuration, positional: Option<&PositionalApplication>) -> Context<'c>
    where
        'a: 'c,
    {
        let mut context = Context {
            host: self.host,
            read,
            strict: self.strict,
            is_bare: read.files.is_empty() && (positional.is_some() || read.has_typed_paste()),
            folder: self.host.folder.clone(),
            entered: self.host.folder.clone(),
            diagnostics: std::mem::take(&mut self.diagnostics),
        };
        context.enter(self.chdir.as_ref(), &self.confinement);
        context
    }
}

/// Reports mounts at hosts, which no request reaches without `vhost`.
fn check_hosts(by_host: bool, context: &mut Context) {
    let has_host = |value: &str| value.split_once('=').is_some_and(|(mount, _)| mount.contains('|'));
    let mounts = context.read.effects.iter().filter(|pair| pair.key == "mount" && !by_host);
    for pair in mounts.filter(|pair| pair.value.as_deref().is_some_and(has_host)) {
        let message = format!("`mount = {}`: requests have no host without `vhost`", pair.value.as_deref().unwrap_or_default());
        context.diagnostics.push(Diagnostic::error(Some(&pair.location), message).advise("write `vhost = true` too"));
    }
}
