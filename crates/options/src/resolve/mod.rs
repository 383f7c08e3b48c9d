//! From pairs to [`Settings`]: each effect in order, by the fields and functions that their rows name.
//! Everything that is wrong is collected and reported together, each with its file and line.
//!
//! Relative paths become absolute here, against the folder that uWSGI would use: it writes `pidfile`
//! and opens `logto` before it changes to `chdir`, and everything else (sockets, the application, its
//! virtualenv and `pythonpath`, `chdir2`) after it. `pythonpath` patterns are matched before it.

mod address;
pub mod answering;
mod application;
pub mod asynchronous;
pub mod attendant;
pub mod clients;
pub mod confinement;
pub mod control;
pub mod developing;
pub mod draft;
pub mod elastic;
pub mod files;
pub mod hooks;
pub mod interpreter;
pub mod logging;
pub mod paths;
pub mod platform;
pub mod processes;
mod protection;
pub mod python_module;
pub mod sockets;
pub mod statistics;
pub mod tls;
mod unknown;
pub mod values;
pub mod watching;

use std::path::Path;

pub use application::asgi_file;
pub use application::positional::PositionalApplication;
pub use platform::port;
pub use tls::ciphers;

use bolide_contract::settings::{Address, Listener, Protocol, Settings};
use bolide_contract::tls::Tls;

use draft::{Draft, SocketDraft, SocketKind};
use paths::normalized;

use crate::catalogue::catalogue;
use crate::catalogue::row::{Row, Setting, Status};
use crate::diagnostic::{Diagnostic, Location, Severity};
use crate::host_info::{FIRST_PASSED, HostInfo};
use crate::pair::Pair;
use crate::reader::Configuration;

/// An error of which `check` makes a note where the command line is to name the application.
pub const NO_APPLICATION: &str = "there is no application to serve";
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

    /// A file of uWSGI uses one of our own names, which uWSGI does not have, for a placeholder of its own:
    /// `interface = eth0`, and `%(interface)` elsewhere.
    fn is_placeholder(&self, row: &Row, pair: &Pair, read: &Configuration) -> bool {
        !self.strict && row.home == "bolide" && read.used.contains(&pair.key) && !values::fits(row, pair)
    }

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
            Setting::LocatedSwitch(field) => *field(self) = self.switch(pair).then(|| pair.location.clone()),
            Setting::Listen(kind) => sockets::listen(self, kind, pair)?,
            Setting::Watch(subject, action) => watching::add_file(self, subject, action, row, pair)?,
            Setting::By(set) => set(self, row, pair)?,
            // It was looked for before all others.
            Setting::AllowMissing => {}
            // These acted while the configuration was read.
            Setting::Language(_) => {}
        }
        Ok(())
    }

    /// The sockets of `LISTEN_FDS` are served beside the configuration's own, with the protocol of `socket`, as in uWSGI. For an application
    /// on the command line they stand in the place of its own, which would speak HTTP.
    fn add_passed_sockets(&mut self, bare: bool) {
        let kind = if bare { SocketKind::HttpRouter } else { SocketKind::Default };
        let location = Location::environment("LISTEN_FDS");
        let passed = FIRST_PASSED..FIRST_PASSED + self.host.passed_sockets;
        let socket = |descriptor| SocketDraft::new(kind, Address::Passed(descriptor), location.clone());
        self.sockets.extend(passed.map(socket));
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
            self.sockets.push(SocketDraft::new(SocketKind::HttpRouter, address, location));
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
        self.python.lazy |= workers.processes == 1 && !self.master && !processes::implies_master(read);
        self.lifecycle.reload_mercy_ms = self.worker_mercy.unwrap_or(self.lifecycle.reload_mercy_ms);
        let has_mercy = read.effects.iter().any(|pair| pair.key == "reload-mercy");
        let attendant = self.complete_attendant(&folder, has_mercy);
        self.lifecycle.pidfile = self.pidfile.as_ref().map(|path| normalized(&self.host.folder.join(path)));
        self.complete_control(read, &entered);
        self.check_reloading(read);
        let logging = self.complete_logging(bare, &entered);
        // A folder that can't be entered by its path (others may not look into one above it) is only stayed in.
        let enterable = self.chdir.is_some() || self.confinement.root.is_some() || folder.join(".").exists();
        self.python.chdir = enterable.then(|| normalized(&folder));
        self.python.chdir_after = self.chdir_after.as_ref().map(|path| normalized(&folder.join(path)));
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
