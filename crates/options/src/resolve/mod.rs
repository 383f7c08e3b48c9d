//! Converts pairs to [`Settings`]: applies each effect in order, by the field or function in its row. All faults are collected
//! and reported together, each with its file and line.
//!
//! Relative paths become absolute here, starting at the directory that uWSGI would use: it writes `pidfile` and opens `logto`
//! before it changes to `chdir`, and handles everything else (sockets, the application, its virtualenv and `pythonpath`,
//! `chdir2`) after it. `pythonpath` patterns are matched before it.

mod unsupported;
mod work;

pub use crate::topics::application::naming::asgi_file;
pub use crate::topics::application::positional::PositionalApplication;
pub use crate::topics::platform::{WEB_CONCURRENCY, port};
pub use crate::topics::tls::ciphers;
pub use work::{NO_APPLICATION, NO_SOCKET, WITHOUT_APPLICATION};

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::pair::Pair;
use bolide_contract::answering::{Answering, CancelOnDisconnect, RouteRule};
use bolide_contract::attendant::Attendant;
use bolide_contract::children::{Helper, Task};
use bolide_contract::confinement::Confinement;
use bolide_contract::control::Control;
use bolide_contract::distributed::Distributed;
use bolide_contract::files::Files;
use bolide_contract::reloading::Reloading;
use bolide_contract::scaling::Scaling;
use bolide_contract::services::{PreloadedItem, SharedCache};
use bolide_contract::settings::{Application, ApplicationSettings, Identity, Language, Lifecycle, Listener, Settings, Workers};
use work::Requests;

use crate::catalog::catalog;
use crate::context::Context;
use crate::draft::Draft;
use crate::reader::Configuration;
use crate::reader::other_servers::OtherServers;
use crate::row::{OptionRow, Setting, Status, Value};
use crate::topics::answering::AnsweringDraft;
use crate::topics::answering::admission::AdmissionDraft;
use crate::topics::application::ApplicationDraft;
use crate::topics::attendant::AttendantDraft;
use crate::topics::clients::ClientsDraft;
use crate::topics::developing::DevelopingDraft;
use crate::topics::emperor::EmperorDraft;
use crate::topics::files::FilesDraft;
use crate::topics::gevent::GeventDraft;
use crate::topics::hooks::HooksDraft;
use crate::topics::interpreter::{PythonDraft, PythonModuleDraft};
use crate::topics::languages::{Modifier, ModifiersDraft, cgi, plugins};
use crate::topics::logging::LoggingDraft;
use crate::topics::mules::MulesDraft;
use crate::topics::processes::{LifecycleDraft, ProcessesDraft};
use crate::topics::recycling::{RecyclingDraft, ReloadingDraft};
use crate::topics::scaling::ScalingDraft;
use crate::topics::services::alarms::AlarmsDraft;
use crate::topics::services::cached_answers::CachedAnswersDraft;
use crate::topics::services::caching::CachingDraft;
use crate::topics::services::named_in_rules::CompiledRules;
use crate::topics::sockets::SocketsDraft;
use crate::topics::spooler::SpoolerDraft;
use crate::topics::statistics::StatisticsDraft;
use crate::topics::{
    answering, application, control, developing, hooks, identity, interpreter, languages, listeners, logging, platform,
    processes, recycling, services, sockets, spooler, tls, watching,
};

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
    plugins::note_named(&mut draft, &read.effects, |name| catalog().is_plugin_of_uwsgi(name));
    for pair in &read.effects {
        match catalog().get(&pair.key) {
            Some(row) => draft.apply(row, pair, read),
            None => match plugins::take_unknown(&mut draft, pair) {
                Ok(true) => {}
                Ok(false) => unsupported::report_unknown(&mut draft, pair, read, others),
                Err(diagnostic) => draft.diagnostics.push(diagnostic),
            },
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
    fn apply(&mut self, row: &OptionRow, pair: &Pair, read: &Configuration) {
        let location = &pair.location;
        match row.status {
            Status::Supported(_) if self.is_placeholder(row, pair, read) => {
                let message = format!("`{}` is a placeholder here: its value does not suit the option of this name", pair.key);
                self.diagnostics.push(Diagnostic::note(Some(location), message).advise("give the placeholder another name"));
            }
            // uWSGI continues without it. If everything depends on it, a later error reports it.
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
            Status::Refused(instead) if row.name().ends_with("-modifier1") => {
                let number = self.bounded_u32(row, pair).map(|number| u8::try_from(number).unwrap_or(u8::MAX));
                match number {
                    Ok(number) => self.of::<ModifiersDraft>().0.push(Modifier {
                        number,
                        key: pair.key.clone(),
                        location: location.clone(),
                        instead,
                    }),
                    Err(diagnostic) => self.diagnostics.push(diagnostic),
                }
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
        !self.strict && row.home == "bolide" && read.used.contains(&pair.key) && !crate::values::fits(row, pair)
    }

    fn set(&mut self, setting: Setting, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
        let located = || Ok::<_, Diagnostic>((crate::values::text(pair)?, pair.location.clone()));
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
            Setting::Text(field) => *field(self) = Some(crate::values::text(pair)?),
            Setting::Texts(field) => field(self).push(crate::values::text(pair)?),
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
        let mut served = Served::complete(&mut self, positional, &mut context);
        let shape = Shape::complete(&mut self, &mut served, &mut context);
        let settings = settings(self, served, shape, &mut context);
        (settings, context.diagnostics)
    }

    /// Creates the shared state for the completion of all parts.
    fn context<'c>(&mut self, read: &'c Configuration, positional: Option<&PositionalApplication>) -> Context<'c>
    where
        'a: 'c,
    {
        let chdir = self.of::<ApplicationDraft>().chdir.take();
        let mut context = Context {
            host: self.host,
            read,
            strict: self.strict,
            is_bare: read.files.is_empty() && (positional.is_some() || read.has_typed_paste()),
            directory: self.host.directory.clone(),
            entered: self.host.directory.clone(),
            has_chdir: chdir.is_some(),
            diagnostics: std::mem::take(&mut self.diagnostics),
        };
        context.enter(chdir.as_ref(), self.of::<Confinement>());
        context
    }
}

/// What an instance answers requests with, and the sockets that it listens on. It is complete first: everything else depends on
/// it.
struct Served {
    sockets: SocketsDraft,
    python: PythonDraft,
    applications: Vec<Application>,
    /// The language of the applications, if it is not Python.
    other_language: Option<Language>,
    application: ApplicationSettings,
    caches: Vec<SharedCache>,
    preloaded: Vec<PreloadedItem>,
    rules: Vec<RouteRule>,
    answering: Answering,
    compiled: CompiledRules,
    fairness: Fairness,
    files: Option<Files>,
    script: Option<Helper>,
    is_jailed: bool,
}

impl Served {
    fn complete(draft: &mut Draft, positional: Option<&PositionalApplication>, context: &mut Context) -> Served {
        let mut found = work::Found::of(draft);
        let is_jailed = draft.of::<Confinement>().root.is_some();
        let mounts = plugins::take_mounts(draft);
        let applications = draft.take::<ApplicationDraft>();
        let is_needed = applications.is_needed;
        let applications = applications.complete(positional, draft.of(), is_jailed, context);
        let applications = application::below_script_name(applications, draft.of(), context);
        let other_language = languages::complete(draft, &applications, mounts, is_jailed, context);
        if let Some(language) = &other_language {
            work::warn_of_python(language, context);
        }
        draft.take::<ModifiersDraft>().check(other_language.as_ref(), context);
        let mut sockets = draft.take::<SocketsDraft>();
        sockets.add_default(draft.of(), context);
        let has_script = draft.of::<PythonDraft>().script.is_some();
        let script = take_script(draft, &mut sockets, context);
        developing::prepare(draft, context);
        let caching = draft.take::<CachingDraft>();
        caching.complete_engine_caches(&mut draft.of::<Distributed>().caches);
        let caches = caching.complete(context);
        let (preloaded, checked_cache) = draft.take::<CachedAnswersDraft>().complete(&caches, context);
        let answers_from_cache = checked_cache.is_some();
        let (mut answering, mut files) = (draft.take::<AnsweringDraft>(), draft.take::<FilesDraft>());
        answering::named_files::take_rules(&mut answering, &mut files, context);
        if let Some(path) = &answering.answering.health_path {
            answering::health::warn_of_hidden(path, &answering.routes, &files, context);
        }
        let fairness = Fairness::take(&mut answering);
        if matches!(other_language, Some(Language::Cgi(_))) && fairness.cancel.is_none() {
            // As in uWSGI, a program does not outlive its client.
            answering.answering.cancel_on_disconnect = CancelOnDisconnect::Reset;
        }
        let (rules, answering, compiled) = answering.complete(checked_cache, context);
        let needs_files = !compiled.routes.needs.directories.is_empty() || compiled.routes.needs.media_types;
        let application = draft.take::<ApplicationSettings>();
        let files = files.complete(&applications, &application, needs_files, context);
        let own_rules = usize::from(draft.of::<DevelopingDraft>().tells_browsers());
        let answering_rules = rules.iter().filter(|rule| !answering::rate_limit::is_one(rule)).count();
        let serves_itself = files.is_some() || answers_from_cache || answering_rules > own_rules;
        check_hosts(application.by_host, context);
        // An invalid application on the command line gets an error of its own.
        let requests = match (!applications.is_empty() || other_language.is_some() || positional.is_some(), serves_itself) {
            (true, _) => Requests::Served,
            (false, true) => Requests::ServedFromFiles,
            (false, false) => Requests::NotFound,
        };
        found.has_sockets = !sockets.list.is_empty();
        match draft.of::<EmperorDraft>().location() {
            Some(location) => work::check_emperor(requests, found, &location, context),
            None if has_script => {}
            None => work::check(requests, is_needed, found, context),
        }
        let python = draft.take::<PythonDraft>();
        Served {
            sockets,
            python,
            applications,
            other_language,
            application,
            caches,
            preloaded,
            rules,
            answering,
            compiled,
            fairness,
            files,
            script,
            is_jailed,
        }
    }
}

/// The processes of an instance, their life, and the addresses at which they serve.
struct Shape {
    socket_mode: Option<u32>,
    identity: Identity,
    clients: ClientsDraft,
    listeners: Vec<Listener>,
    workers: Workers,
    scaling: Scaling,
    lifecycle: Lifecycle,
    reloading: Reloading,
    attendant: Attendant,
    control: Control,
}

impl Shape {
    fn complete(draft: &mut Draft, served: &mut Served, context: &mut Context) -> Shape {
        let sockets = std::mem::take(&mut served.sockets);
        let (socket_mode, has_sockets) = (sockets.mode, !sockets.list.is_empty());
        let (identity, clients) = (identity::complete(draft.take(), context), draft.take::<ClientsDraft>());
        let listeners = listeners::complete(sockets, &draft.take(), &clients, &identity, context);
        platform::note_unused_port(&listeners, context);
        let processes = draft.take::<ProcessesDraft>();
        let mut workers = processes.complete(&served.python, context);
        if let Some(Language::Cgi(cgi)) = &mut served.other_language {
            cgi::share_programs(cgi, &processes, &mut workers);
        }
        let mut scaling = draft.take::<ScalingDraft>().complete(workers.processes, context);
        // Workers without a socket have nothing to do.
        scaling.starts_empty |= !has_sockets;
        // Without a master uWSGI loads the application where it serves, and threads that the application starts while loading
        // continue to run there.
        let lazy = &mut served.application.lazy;
        let has_master = processes.has_master || processes::implies_master(context.read) || context.host.has_emperor();
        *lazy |= workers.processes == 1 && !has_master;
        let is_like_others = !*lazy && context.is_bare && processes::are_of_other_servers(&workers, context.read);
        *lazy |= is_like_others;
        served.application.tells_preload = is_like_others;
        let lifecycle = draft.take::<LifecycleDraft>().complete(served.compiled.routes.needs.harakiri_ms.map(u64::from), context);
        let has_mercy = context.read.effects.iter().any(|pair| pair.key == "reload-mercy");
        let attendant = draft.take::<AttendantDraft>().complete(has_mercy.then_some(lifecycle.reload_mercy_ms), context);
        let control = control::complete(draft.take(), draft.of(), context);
        let ReloadingDraft(reloading) = draft.take();
        recycling::check_reloading(&reloading, &lifecycle, context);
        if !served.is_jailed {
            processes::check_crash_reports(&lifecycle, context);
        }
        Shape { socket_mode, identity, clients, listeners, workers, scaling, lifecycle, reloading, attendant, control }
    }
}

/// Completes everything that nothing else depends on.
fn settings(mut draft: Draft, mut served: Served, shape: Shape, context: &mut Context) -> Settings {
    let is_jailed = served.is_jailed;
    let mut logging = draft.take::<LoggingDraft>().complete(context);
    let mules = draft.take::<MulesDraft>();
    let (alarms, rules_of_alarms) = draft.take::<AlarmsDraft>().complete(is_jailed, mules.list.len(), context);
    logging.alarms = rules_of_alarms;
    // If the directory can't be entered by its path (others may not search a directory above it), processes only stay in it.
    let is_enterable = context.has_chdir || is_jailed || context.directory.join(".").exists();
    let application = served.python.complete_application(served.application, &shape.identity, is_enterable, context);
    let mut python = served.python.complete(context);
    let (mut helpers, mules) = mules.complete(context);
    python.gevent = draft.take::<GeventDraft>().complete(&served.applications, context);
    let development = draft.of::<DevelopingDraft>().complete(&shape.listeners, context);
    let counts = [shape.workers.processes, shape.workers.threads.most(), shape.listeners.len() as u32];
    let spooler = draft.take::<SpoolerDraft>();
    let spooler_harakiri_ms = spooler.harakiri_ms;
    let spooling = spooler.complete(context);
    if !is_jailed {
        spooler::check_directories(&spooling, &shape.identity, context);
    }
    helpers.extend(spooler::helpers(&spooling, spooler_harakiri_ms));
    helpers.extend(served.script);
    let of_helpers = u32::try_from(helpers.len()).unwrap_or(u32::MAX);
    let mut services = services::complete(&mut draft, served.caches, served.preloaded, counts, of_helpers, context);
    services.rate_limits = served.compiled.routes.needs.rate_limits.iter().map(|limit| limit.settings.clone()).collect();
    served.compiled.check(&services, &alarms, context);
    python.module = interpreter::complete_module(draft.take::<PythonModuleDraft>().0, context.read);
    let settings = Settings {
        development,
        listeners: shape.listeners,
        applications: served.applications,
        application,
        language: served.other_language.unwrap_or_else(|| Language::Python(Box::new(python))),
        workers: shape.workers,
        helpers,
        mules,
        lifecycle: shape.lifecycle,
        control: shape.control,
        recycling: draft.take::<RecyclingDraft>().complete(context),
        reloading: shape.reloading,
        scaling: shape.scaling,
        limits: draft.take(),
        logging,
        tracing: logging::otlp::complete(draft.take()),
        hooks: hooks::complete(draft.take::<HooksDraft>().0, is_jailed, context),
        attendant: shape.attendant,
        statistics: draft.take::<StatisticsDraft>().complete(shape.socket_mode, context),
        identity: shape.identity,
        confinement: draft.take(),
        naming: draft.take(),
        clients: shape.clients.complete(&context.read.words),
        asynchronous: draft.take(),
        routes: served.rules,
        answering: served.answering,
        files: served.files,
        watching: watching::complete(draft.take(), &draft.take(), context),
        services,
        spooling,
        alarms,
        signals: draft.take(),
        emperor: draft.take::<EmperorDraft>().complete(context),
    };
    served.fairness.check(&served.compiled, &settings, context);
    recycling::check_refork(&settings, context);
    debug_assert!(draft.is_empty(), "the settings lack a part of the draft");
    settings
}

/// The options that decide which worker serves a request and whether it is served, where they were configured.
struct Fairness {
    sticky: Option<Location>,
    bulkheads: Vec<Location>,
    cancel: Option<Location>,
    admission: AdmissionDraft,
}

impl Fairness {
    fn take(answering: &mut AnsweringDraft) -> Fairness {
        let admission = std::mem::take(&mut answering.admission);
        answering.answering.admission = admission.complete();
        Fairness {
            sticky: answering.sticky_location.take(),
            bulkheads: answering.bulkheads.iter().map(|(_, location)| location.clone()).collect(),
            cancel: answering.cancel_location.take(),
            admission,
        }
    }

    /// Tells of those that have no effect with these settings.
    fn check(&self, compiled: &CompiledRules, settings: &Settings, context: &mut Context) {
        answering::rate_limit::check(compiled, settings, context);
        if let Some(location) = &self.sticky {
            answering::sticky::check(location, settings, context);
        }
        answering::bulkheads::check(&self.bulkheads, settings, context);
        if let Some(location) = &self.cancel {
            answering::cancelling::check(location, settings, context);
        }
        self.admission.check(settings, context);
    }
}

/// Takes the script of `pyrun`, which has the place of one worker: a single one leaves none that could serve.
fn take_script(draft: &mut Draft, sockets: &mut SocketsDraft, context: &mut Context) -> Option<Helper> {
    let (file, location) = draft.of::<PythonDraft>().script.take()?;
    let count = &mut draft.of::<ProcessesDraft>().count;
    match *count {
        Some(processes) if processes > 1 => *count = Some(processes - 1),
        _ if sockets.list.is_empty() => {}
        _ => {
            sockets.list.clear();
            let message = "the script runs in place of the only worker, so no socket is opened";
            context.diagnostics.push(Diagnostic::note(Some(&location), message));
        }
    }
    Some(Helper::new(Task::Script { file: context.absolute(file) }))
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
