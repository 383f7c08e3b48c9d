//! From pairs to [`Settings`]: each effect in order, by the one `match` over what options mean.
//! Everything that is wrong is collected and reported together, each with its file and line.
//!
//! Relative paths become absolute here, against the folder that uWSGI would use: it writes `pidfile`
//! and opens `logto` before it changes to `chdir`, and everything else (sockets, the application, its
//! virtualenv and `pythonpath`, `chdir2`) after it. `pythonpath` patterns are matched before it.

mod address;
mod answering;
mod application;
mod asynchronous;
mod attendant;
mod clients;
mod confinement;
mod control;
mod developing;
pub mod draft;
mod elastic;
mod files;
mod hooks;
mod interpreter;
mod logging;
mod paths;
mod platform;
mod processes;
mod protection;
mod python_module;
mod requests;
mod statistics;
mod tls;
mod unknown;
mod values;
mod watching;

use std::path::Path;

pub use application::asgi_file;
pub use application::positional::PositionalApplication;
pub use platform::port;
pub use tls::ciphers;

use bolide_contract::settings::{Address, Listener, Protocol, Settings, Threads};
use bolide_contract::tls::Tls;

use draft::{Draft, HTTP_TIMEOUT_SECONDS, RELOAD_MERCY_SECONDS, SOCKET_TIMEOUT_SECONDS, SocketDraft, SocketKind};
use paths::normalized;

use crate::catalogue::RELOAD_ORDERS;
use crate::catalogue::application::INTERFACES;
use crate::catalogue::catalogue;
use crate::catalogue::row::{Row, Status};
use crate::catalogue::setting::Setting;
use crate::diagnostic::{Diagnostic, Location, Severity};
use crate::host_info::{FIRST_PASSED, HostInfo};
use crate::pair::Pair;
use crate::reader::Configuration;

/// An error of which `check` makes a note where the command line is to name the application.
pub const NO_APPLICATION: &str = "there is no application to serve";
/// `chmod-socket` without a value.
const OPEN_SOCKET_MODE: u32 = 0o666;
const MEBIBYTE: u64 = 1024 * 1024;

/// Makes settings of what was read. All diagnostics are in the second part, errors among them when the first is `None`.
pub fn resolve(
    read: &Configuration,
    positional: Option<&PositionalApplication>,
    host: &HostInfo,
) -> (Option<Settings>, Vec<Diagnostic>) {
    let mut draft = Draft::new(host, read.strict.is_some());
    draft.diagnostics.extend(read.diagnostics.iter().cloned());
    draft.note_allowed(read);
    for pair in &read.effects {
        match catalogue().get(&pair.key) {
            Some(row) => draft.take(row, pair, read),
            None => draft.unknown(pair, read),
        }
    }
    let settings = draft.complete(read, positional);
    let failed = draft.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    (settings.filter(|_| !failed), draft.diagnostics)
}

/// An option that is not there asks for what is always done here.
fn is_done_already(name: &str, pair: &Pair) -> bool {
    match name {
        // There is one plugin to choose, and this is its number.
        name if name.ends_with("-modifier1") || name.ends_with("-modifier2") => pair.value.as_deref().map(str::trim) == Some("0"),
        _ => false,
    }
}

impl Draft<'_> {
    /// One effect: the row's verdict decides.
    fn take(&mut self, row: &Row, pair: &Pair, read: &Configuration) {
        let location = &pair.location;
        match row.status {
            Status::Supported(_) if self.is_placeholder(row, pair, read) => {
                let message = format!("`{}` is a placeholder here: its value is none of the option of this name", pair.key);
                self.diagnostics.push(Diagnostic::note(Some(location), message).advise("give the placeholder another name"));
            }
            // uWSGI goes on without it; where all depends on it, that is said in the end.
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
            // Saying "no" to what is always done is worth a word, saying "yes" is not.
            Status::Accepted(why) => {
                if row.value == crate::catalogue::row::Value::Switch && !crate::values::switch(pair.value.as_deref()).on {
                    self.diagnostics
                        .push(Diagnostic::note(Some(location), format!("`{}` can't be switched off: {why}", pair.key)));
                }
            }
            Status::Planned(..) | Status::Refused(_) if is_done_already(row.name(), pair) => {}
            Status::Planned(_, meanwhile) => self.planned(location, &pair.key, meanwhile),
            Status::Protective(instead) => self.protective(location, row, &pair.key, instead),
            Status::Refused(instead) => {
                self.diagnostics
                    .push(Diagnostic::error(Some(location), format!("`{}` is not supported", pair.key)).advise(instead));
            }
        }
    }

    /// Warns of an option that is known and not there yet; the advice may be empty.
    fn planned(&mut self, location: &Location, what: &str, meanwhile: &str) {
        let diagnostic =
            Diagnostic::warning(Some(location), format!("`{what}` is known, but not supported yet: it has no effect"));
        self.diagnostics.push(if meanwhile.is_empty() { diagnostic } else { diagnostic.advise(meanwhile) });
    }

    /// A file of uWSGI uses one of our own names, which uWSGI does not have, for a placeholder of its own:
    /// `interface = eth0`, and `%(interface)` elsewhere.
    fn is_placeholder(&self, row: &Row, pair: &Pair, read: &Configuration) -> bool {
        !self.strict && row.home == "bolide" && read.used.contains(&pair.key) && !values::fits(row, pair)
    }

    /// The one match over the meanings of supported options.
    fn set(&mut self, setting: Setting, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
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
            Setting::Socket => self.socket(SocketKind::Default, pair)?,
            Setting::SocketOf(protocol) => self.socket(SocketKind::Of(protocol), pair)?,
            Setting::Http => self.socket(SocketKind::HttpRouter, pair)?,
            Setting::SocketProtocol => self.socket_protocol = values::protocol(pair)?,
            Setting::ChmodSocket => self.mode = Some(values::mode(pair)?.unwrap_or(OPEN_SOCKET_MODE)),
            Setting::SocketTimeout => self.socket_timeout = self.positive_or(row, pair, SOCKET_TIMEOUT_SECONDS)?,
            Setting::HttpTimeout => self.http_timeout = self.positive_or(row, pair, HTTP_TIMEOUT_SECONDS)?,
            Setting::HttpKeepalive => self.limits.keepalive_ms = self.keepalive_ms(row, pair)?,
            Setting::Named(by) => self.named_by = Some((by, values::text(pair)?, pair.location.clone())),
            Setting::Interface => self.interface = Some((values::one_of(pair, &INTERFACES)?, pair.location.clone())),
            Setting::PythonPath => {
                let found = crate::conditionals::matches(&values::text(pair)?, &self.host.folder);
                // uWSGI puts each at the start of `sys.path`, so the last comes first.
                for path in found.map_err(|message| Diagnostic::error(Some(&pair.location), message))? {
                    self.python_path.insert(0, path);
                }
            }
            Setting::Environment => self.application.environment.push(values::variable(pair)?),
            Setting::PyArgv => {
                self.python.arguments =
                    values::text(pair)?.split([' ', '\t']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
            }
            Setting::Processes => {
                let (cpus, number) = (self.host.cpus, self.number_or_auto(row, pair)?);
                self.processes_auto = number.is_none();
                self.processes = Some(number.unwrap_or(cpus));
            }
            Setting::Threads => {
                self.threads =
                    self.number_or_auto(row, pair)?.map_or(Threads::Auto, |count| Threads::Fixed(count.clamp(1, Threads::MOST)))
            }
            Setting::Recycling(setting) => self.set_recycling(setting, row, pair)?,
            Setting::Elastic(setting) => self.set_elastic(setting, row, pair)?,
            Setting::ReloadMercy => self.lifecycle.reload_mercy_ms = self.positive_or(row, pair, RELOAD_MERCY_SECONDS)? * 1000,
            Setting::WorkerReloadMercy => self.worker_mercy = Some(self.positive_or(row, pair, RELOAD_MERCY_SECONDS)? * 1000),
            Setting::ReloadOrder => self.lifecycle.reload_order = values::one_of(pair, &RELOAD_ORDERS)?,
            Setting::Priority => self.lifecycle.process.priority = Some(self.bounded(row, pair)?.try_into().unwrap_or(0)),
            Setting::ProcessNamePrefix | Setting::ProcessNamePrefixSpaced => {
                let space = if matches!(setting, Setting::ProcessNamePrefixSpaced) { " " } else { "" };
                self.naming.prefix = pair.value.clone().unwrap_or_default() + space;
                self.naming.auto = true;
            }
            Setting::ProcessName | Setting::ProcessNameMaster | Setting::ProcessNameSuffix => {
                let text = values::text(pair)?;
                match setting {
                    Setting::ProcessName => self.naming.name = Some(text),
                    Setting::ProcessNameMaster => self.naming.master = Some(text),
                    _ => self.naming.suffix = text,
                }
                self.naming.auto = true;
            }
            Setting::Umask => self.identity.umask = Some(values::umask(pair)?),
            // It was looked for before all others.
            Setting::AllowMissing => {}
            Setting::Confinement(setting) => self.set_confinement(setting, pair)?,
            Setting::Plugin => self.plugins(pair),
            Setting::Tls(setting) => self.set_tls(setting, row, pair)?,
            Setting::Control(setting) => self.set_control(setting, pair)?,
            Setting::Logging(setting) => self.set_logging(setting, pair)?,
            Setting::Reloading(setting) => self.set_reloading(setting, row, pair)?,
            Setting::Requests(setting) => self.set_requests(setting, row, pair)?,
            Setting::Interpreter(setting) => self.set_interpreter(setting, row, pair)?,
            Setting::Clients(setting) => self.set_clients(setting, pair)?,
            Setting::Asynchronous(setting) => self.set_asynchronous(setting, row, pair)?,
            Setting::Hook(kind, phase) => self.add_hook(kind, phase, pair)?,
            Setting::Attendant(setting) => self.set_attendant(setting, pair)?,
            Setting::Answering(setting) => self.set_answering(setting, row, pair)?,
            Setting::Files(setting) => self.set_files(setting, row, pair)?,
            Setting::Watching(setting) => self.set_watching(setting, row, pair)?,
            Setting::PythonModule(setting) => self.set_python_module(setting, pair)?,
            Setting::Statistics(setting) => self.set_statistics(setting, pair)?,
            // These acted while the configuration was read.
            Setting::Language(_) => {}
        }
        Ok(())
    }

    fn socket(&mut self, kind: SocketKind, pair: &Pair) -> Result<(), Diagnostic> {
        let (address, doubt) = address::read(pair, self.host)?;
        self.diagnostics.extend(doubt);
        let location = pair.location.clone();
        self.sockets.push(SocketDraft { kind, address, location, credentials: None, https_port: None });
        Ok(())
    }

    /// The sockets of `LISTEN_FDS` are served beside the configuration's own, with the protocol of `socket`, as in uWSGI. For an application
    /// on the command line they stand in the place of its own, which would speak HTTP.
    fn add_passed_sockets(&mut self, bare: bool) {
        let kind = if bare { SocketKind::HttpRouter } else { SocketKind::Default };
        let location = Location::environment("LISTEN_FDS");
        self.sockets.extend((FIRST_PASSED..FIRST_PASSED + self.host.passed_sockets).map(|descriptor| SocketDraft {
            kind,
            address: Address::Passed(descriptor),
            location: location.clone(),
            credentials: None,
            https_port: None,
        }));
    }

    fn plugins(&mut self, pair: &Pair) {
        for name in pair.value.as_deref().unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !crate::conditionals::is_built_in(name) {
                self.diagnostics.push(Diagnostic::warning(
                    Some(&pair.location),
                    format!("the plugin `{name}` is not built in: what it does is missing"),
                ));
            }
        }
    }

    /// Puts together what the options said, and checks that there is something to serve and somewhere to serve it.
    fn complete(&mut self, read: &Configuration, positional: Option<&PositionalApplication>) -> Option<Settings> {
        let folder = match &self.chdir {
            _ if self.confinement.root.is_some() => self.folder_within_root(),
            Some((chdir, location)) => {
                let folder = self.host.folder.join(chdir);
                if !folder.is_dir() {
                    self.diagnostics.push(
                        Diagnostic::error(
                            Some(location),
                            format!("can't change to `{}`: there is no such folder", folder.display()),
                        )
                        .local(),
                    );
                }
                folder
            }
            None => self.host.folder.clone(),
        };
        // The folder that the master is in: it stays outside of a root.
        let entered = if self.confinement.root.is_some() { self.host.folder.clone() } else { folder.clone() };
        let applications = self.applications(&folder, positional, read);
        // Without a configuration file, an application on the command line is enough to serve.
        let bare = read.files.is_empty() && positional.is_some();
        if bare && self.sockets.is_empty() && self.host.passed_sockets == 0 {
            let (address, location) = self.usual_address();
            self.sockets.push(SocketDraft {
                kind: SocketKind::HttpRouter,
                address,
                location,
                credentials: None,
                https_port: None,
            });
        }
        self.add_passed_sockets(bare);
        self.show_options(read);
        self.prepare_development(read);
        let (routes, answering, names_files) = self.complete_answering(&folder);
        let files = self.complete_files(&folder, &applications, names_files);
        let serves_itself = files.is_some() || routes.len() > usize::from(self.tells_browsers());
        // One that the command line names wrongly was told of.
        let is_named = !applications.is_empty() || positional.is_some();
        self.check_something_to_serve(is_named || serves_itself && !self.needs_application, read);
        let mut listeners = self.listeners(&folder);
        self.make_abstract(&mut listeners);
        self.check_proxy_headers(&listeners);
        self.open_daemonized_sockets(read, &mut listeners);
        let workers = self.workers(bare);
        let elastic = self.elastic(workers.processes);
        // Without a master uWSGI loads the application where it serves: threads that it starts meanwhile live on there.
        self.application.lazy |= workers.processes == 1 && !self.master && !processes::implies_master(read);
        self.lifecycle.reload_mercy_ms = self.worker_mercy.unwrap_or(self.lifecycle.reload_mercy_ms);
        let has_mercy = read.effects.iter().any(|pair| pair.key == "reload-mercy");
        let attendant = self.complete_attendant(&folder, has_mercy);
        self.lifecycle.pidfile = self.pidfile.as_ref().map(|path| normalized(&self.host.folder.join(path)));
        self.complete_control(read, &entered);
        self.check_reloading(read);
        let logging = self.complete_logging(bare, &entered);
        // A folder that can't be entered by its path (others may not look into one above it) is only stayed in.
        let enterable = self.chdir.is_some() || self.confinement.root.is_some() || folder.join(".").exists();
        self.application.chdir = enterable.then(|| normalized(&folder));
        self.application.chdir_after = self.chdir_after.as_ref().map(|path| normalized(&folder.join(path)));
        self.python.virtualenv = self.virtualenv.as_ref().map(|path| normalized(&folder.join(path)));
        self.complete_interpreter(&folder);
        if bare {
            self.note_usual_file();
        }
        self.complete_environment();
        self.python.path = self.python_path.iter().map(|path| normalized(&folder.join(path))).collect();
        let development = self.development(&listeners);
        Some(Settings {
            development,
            listeners,
            applications,
            application: self.application.clone(),
            python: self.python.clone(),
            workers,
            helpers: Vec::new(),
            lifecycle: self.lifecycle.clone(),
            control: self.control.clone(),
            recycling: self.recycling(),
            reloading: self.reloading.clone(),
            elastic,
            limits: self.limits.clone(),
            logging,
            hooks: self.complete_hooks(&folder),
            attendant,
            statistics: self.complete_statistics(&folder),
            identity: self.identity.clone(),
            confinement: self.confinement.clone(),
            naming: self.naming.clone(),
            clients: self.complete_clients(),
            asynchronous: self.asynchronous.clone(),
            python_module: self.python_module.clone(),
            routes,
            answering,
            files,
            watching: self.complete_watching(&folder, read),
        })
    }

    fn check_something_to_serve(&mut self, serves: bool, read: &Configuration) {
        let end = match read.files.last() {
            Some(file) => Location::file(file, 0),
            None => Location::command_line(),
        };
        if !serves {
            self.diagnostics.push(
                Diagnostic::error(Some(&end), NO_APPLICATION)
                    .advise("write `module = package.module:callable`, `asgi = package.module:callable` or `wsgi-file = app.py`, or name one on the command line: `bolide package.module:callable`"),
            );
        }
        if self.sockets.is_empty() {
            self.diagnostics.push(
                Diagnostic::error(Some(&end), "there is no socket to serve on")
                    .advise("write `http = 127.0.0.1:8000`, or `socket = /path/to/app.sock` behind a web server that speaks the uwsgi protocol"),
            );
        }
    }

    /// `abstract-socket`: no socket is a file.
    fn make_abstract(&self, listeners: &mut [Listener]) {
        for listener in listeners {
            if let (true, Address::Unix(path)) = (self.abstract_sockets, &listener.address) {
                listener.address = Address::Abstract(path.to_string_lossy().into_owned());
            }
        }
    }

    fn listeners(&mut self, folder: &Path) -> Vec<Listener> {
        self.assign_common_certificate();
        let tls = self.tls_of_sockets(folder);
        let listener = |(socket, tls): (&SocketDraft, Option<Tls>)| {
            let protocol = socket.protocol(self.socket_protocol);
            let seconds = if socket.kind == SocketKind::HttpRouter { self.http_timeout } else { self.socket_timeout };
            Listener {
                address: address::absolute(&socket.address, folder),
                protocol,
                backlog: self.backlog,
                mode: self.mode,
                owner: self.owner.clone(),
                timeout_ms: seconds * 1000,
                tls,
                http2: self.http2_of(protocol),
                redirects_to_https: socket.https_port,
                has_proxy_header: protocol == Protocol::Http && self.clients.has_proxy_header(socket.kind).is_some(),
                tuning: self.tuning.clone(),
                origin: socket.location.to_string(),
            }
        };
        self.sockets.iter().zip(tls).map(listener).collect()
    }
}
