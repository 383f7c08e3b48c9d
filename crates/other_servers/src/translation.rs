//! The state of a translation from another server's settings. Most become options immediately; those that determine an option
//! together (`--host` and `--port`) are kept until all are known. Plain data: `translate` translates each setting.

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_options::server::Server;

/// An option of Bolide that a setting was translated to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeOption {
    pub key: String,
    pub value: String,
    /// The line of the file, counted from one; 0 without a file.
    pub line: u32,
}

/// A remark about a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRemark {
    /// The setting as the user named it: `--timeout`, or `timeout` in a file.
    pub name: String,
    pub line: u32,
    pub severity: Severity,
    pub message: String,
}

impl SettingRemark {
    pub fn diagnostic(&self, location: &Location) -> Diagnostic {
        let message = format!("`{}`: {}", self.name, self.message);
        Diagnostic { severity: self.severity, ..Diagnostic::note(Some(location), message) }
    }
}

/// Settings that are kept until all are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    AccessLog,
    Bind,
    CaptureOutput,
    Daemon,
    DirtyApps,
    DirtyWorkers,
    ErrorLog,
    Host,
    /// hypercorn's addresses without TLS.
    InsecureBind,
    /// uvicorn's `uds` or `fd`, beside which host and port have no effect.
    OnlySocket,
    Port,
    /// gunicorn's protocol for the addresses of `bind`.
    Protocol,
    StaticDirectory,
    StaticRoute,
    /// flask's `--cert adhoc`.
    SelfSigned,
    StatsdHost,
    StatsdPrefix,
    Threads,
    Timeout,
    Umask,
    WorkerClass,
    WorkerConnections,
}

/// A setting as it was written.
#[derive(Debug, Clone, Default)]
pub(super) struct SettingPlace {
    pub name: String,
    pub line: u32,
}

#[derive(Debug, Clone)]
pub(super) struct KeptSetting {
    pub subject: Subject,
    pub value: String,
    pub place: SettingPlace,
}

/// Options that are on the line already.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnOptions {
    /// `chmod-socket`
    pub has_mode: bool,
    /// `vacuum`
    pub has_vacuum: bool,
    /// `logger`, `req-logger`, `logto`, `daemonize` or `disable-logging`
    pub has_log: bool,
    /// `logfile-chmod` or `logfile-chown`
    pub has_log_mode: bool,
}

impl OwnOptions {
    /// Notes an option of the line by its first name.
    pub fn note(&mut self, name: &str) {
        match name {
            "chmod-socket" => self.has_mode = true,
            "vacuum" => self.has_vacuum = true,
            "logfile-chmod" | "logfile-chown" => self.has_log_mode = true,
            "logger" | "req-logger" | "logto" | "logto2" | "daemonize" | "daemonize2" | "disable-logging" | "log-syslog"
            | "log-json" => {
                self.has_log = true;
            }
            _ => {}
        }
    }
}

/// How another server names a UNIX socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnixOption {
    /// `--bind unix:PATH` of gunicorn and hypercorn.
    Bind,
    /// `--uds` of uvicorn and granian.
    Uds,
    /// `--unix-socket` of waitress and daphne, and an endpoint of Twisted's.
    Socket,
}

/// The settings of another server that were read so far.
#[derive(Debug, Default)]
pub struct Translation {
    server: Option<Server>,
    /// The options so far have a certificate for the addresses of `http`.
    pub has_certificate: bool,
    pub(super) made: Vec<MadeOption>,
    pub(super) remarks: Vec<SettingRemark>,
    pub(super) kept: Vec<KeptSetting>,
    /// The log level, as it was written.
    pub log_level: Option<String>,
    /// The log level excludes request lines.
    pub(super) quiet: bool,
    /// Options of Bolide's own on the line, with which another server's default does not count.
    pub own: OwnOptions,
    /// The line may be uvicorn's or granian's, and standard output is not a terminal.
    pub requests_on_stdout: bool,
    /// The UNIX sockets of options that are not `bind`.
    pub(super) unix_sockets: Vec<(UnixOption, SettingPlace, String)>,
    /// The setting that is being read.
    pub(super) place: SettingPlace,
}

impl Translation {
    /// For the settings of a server; `None` is Bolide's own command line, where any server may be meant.
    pub fn new(server: Option<Server>) -> Translation {
        Translation { server, ..Translation::default() }
    }

    /// Removes and returns the options since the last call, in their order.
    pub fn drain(&mut self) -> Vec<MadeOption> {
        std::mem::take(&mut self.made)
    }

    /// Whether there is a host without a port.
    pub fn needs_port(&self) -> bool {
        self.has(Subject::Host) && !self.has(Subject::Port)
    }

    pub fn has(&self, subject: Subject) -> bool {
        self.kept.iter().any(|kept| kept.subject == subject)
    }

    /// Keeps a setting until all are known.
    pub fn keep(&mut self, subject: Subject, value: &str) {
        self.kept.push(KeptSetting { subject, value: value.to_owned(), place: self.place.clone() });
    }

    /// Removes and returns the last value of a subject.
    pub(super) fn take_kept(&mut self, subject: Subject) -> Option<KeptSetting> {
        self.take_all(subject).pop()
    }

    pub(super) fn take_all(&mut self, subject: Subject) -> Vec<KeptSetting> {
        let (taken, rest) = std::mem::take(&mut self.kept).into_iter().partition(|kept| kept.subject == subject);
        self.kept = rest;
        taken
    }

    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.made.push(MadeOption { key: name.to_owned(), value: value.to_owned(), line: self.place.line });
    }

    pub(super) fn note(&mut self, message: impl Into<String>) {
        self.remark(Severity::Note, message.into());
    }

    pub(super) fn warn(&mut self, message: impl Into<String>) {
        self.remark(Severity::Warning, message.into());
    }

    pub(super) fn remark(&mut self, severity: Severity, message: String) {
        let SettingPlace { name, line } = self.place.clone();
        self.remarks.push(SettingRemark { name, line, severity, message });
    }

    pub(super) fn server(&self) -> Option<Server> {
        self.server
    }

    /// The line turns out to be this server's, whose defaults apply from now on.
    pub fn is_of(&mut self, server: Server) {
        self.server = Some(server);
    }

    /// Keeps a setting that the environment has under this name.
    pub fn keep_of_variable(&mut self, subject: Subject, variable: &str, value: &str) {
        self.place = SettingPlace { name: variable.to_owned(), line: 0 };
        self.keep(subject, value);
    }
}
