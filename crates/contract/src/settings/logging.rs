//! Settings of the logs: where lines go, which requests have one, and what it looks like.
//!
//! Plain data that travels from the process that reads the configuration to master, prototypes and workers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Logging {
    /// A line for each request (off with `disable-logging`).
    pub requests: bool,
    /// Requests that have a line also with `disable-logging`.
    pub always: AlwaysLogged,
    /// `logto`: standard output and standard error go to this file.
    pub file: Option<PathBuf>,
    /// Where lines go beside that: `logger` and `req-logger`. Number 0 is the log itself, the first of these is 1.
    pub targets: Vec<LogTarget>,
    /// What goes where; `None`: all to the log.
    pub flows: Option<LogFlows>,
    pub files: LogFiles,
    /// `log-style`, `log-json`: the form of lines without a `log-format`.
    pub style: LogStyle,
    /// `log-format`: the form of a request's line.
    pub format: Option<String>,
    /// `log-date`: the time before the server's own lines, and with `logformat-strftime` that of `%(ftime)`.
    pub date: LogDate,
    /// `logformat-strftime`
    pub dates_format: bool,
    /// `log-micros`: uWSGI's line counts microseconds.
    pub microseconds: bool,
    /// `memory-report`: the request line starts with the worker's memory, as uWSGI writes it.
    pub memory_report: bool,
    /// `log-x-forwarded-for`: the request line has the field's value in the place of the client's address.
    pub x_forwarded_for: bool,
    /// `disable-write-exception`, `ignore-write-errors`: a client that left while we wrote is not the application's business.
    pub write_errors: bool,
}

/// Logs in one process, the log itself among them.
pub const LOGS_MOST: usize = 16;

/// Somewhere that lines go: a `logger` or `req-logger`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogTarget {
    pub place: LogPlace,
    /// What stands before each line there.
    pub frame: LineFrame,
    /// `log-encoder = gzip`: lines are compressed, each by itself. `None`: they stay as they are.
    pub packing: Option<Packing>,
}

/// How the lines of a log are compressed, and what stands before and behind each where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packing {
    pub form: PackedForm,
    pub before: String,
    pub after: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PackedForm {
    Gzip,
    /// `compress`
    Zlib,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LogPlace {
    File(PathBuf),
    /// A descriptor that the server was started with.
    Descriptor(i32),
    /// `HOST:PORT`, by UDP.
    Udp(String),
    /// A program, by its command line: it reads lines from its standard input.
    Program(String),
    /// A datagram socket of the file system.
    Unix(PathBuf),
}

/// What stands before a line where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineFrame {
    Plain,
    Prefix(String),
    /// Priority, time and tag, as syslog takes them (RFC 3164).
    Syslog {
        priority: u8,
        tag: String,
    },
}

/// The ways of lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogFlows {
    pub messages: LogFlow,
    /// `None`: request lines go the way of messages.
    pub requests: Option<LogFlow>,
}

/// The way of lines of one kind. Logs are named by their numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogFlow {
    /// `log-drain`: lines that match one of these regular expressions go nowhere.
    pub drains: Vec<LinePattern>,
    /// `log-filter`: where there are some, lines that match none of these go nowhere.
    pub filters: Vec<LinePattern>,
    /// `log-route`: lines that match go to this log, and not to the usual ones.
    pub routes: Vec<(LinePattern, usize)>,
    /// Loggers without a name; the log itself where there are none.
    pub usual: Vec<usize>,
    pub encoders: Vec<LogEncoder>,
}

/// What a line has to be like: two regular expressions of the crate `regex`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinePattern {
    pub matches: String,
    /// This must not match.
    pub except: Option<String>,
}

/// `log-encoder`: changes lines on their way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogEncoder {
    /// For the lines of this log alone.
    pub only: Option<usize>,
    pub encoding: LineEncoding,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineEncoding {
    Prefix(String),
    Suffix(String),
    /// A text with `${msg}`, `${unix}`, `${micros}`, `${millis}` and `${strftime:FORMAT}`.
    Format(String),
    /// The same, whose values are escaped for JSON.
    Json(String),
}

/// How files of logs are made, and made anew.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogFiles {
    /// `log-maxsize`: a file with more bytes is put aside.
    pub most_bytes: Option<u64>,
    /// `log-backupname`: under this name; without it, under its own with the time in seconds behind.
    pub backup: Option<PathBuf>,
    /// `log-truncate`
    pub truncate: bool,
    /// `log-reopen`: each reload opens the files anew.
    pub reopen_at_reload: bool,
    /// `logfile-chmod`
    pub mode: Option<u32>,
    /// `logfile-chown`, `logto2`: files belong to the user that workers run as.
    pub are_users: bool,
}

/// The form of lines that the configuration gives no format of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogStyle {
    /// uWSGI's request line.
    Uwsgi,
    /// One short line, for eyes.
    Short,
    /// The short one where the log is a terminal, else uWSGI's.
    ShortAtTerminal,
    /// An object of JSON in each line, whether of a request or a message.
    Json,
}

/// The time before the server's own lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogDate {
    /// `2026-11-22 13:40:00`
    Iso,
    /// `log-date` without a value: as C's `ctime`, with uWSGI's dash.
    Ctime,
    /// `log-date = FORMAT` of strftime(3).
    Strftime(String),
}

/// Requests that have a line whether or not the others have one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AlwaysLogged {
    /// `log-4xx`
    pub client_errors: bool,
    /// `log-5xx`
    pub server_errors: bool,
    /// `log-slow`: those that take at least so many milliseconds.
    pub slow_ms: Option<u64>,
    /// `log-big`: answers whose body has at least so many bytes.
    pub big_bytes: Option<u64>,
    /// `log-zero`: answers without a body.
    pub empty: bool,
    /// `log-sendfile`: answers that are a file.
    pub files: bool,
    /// `log-ioerror`: answers that the client did not take.
    pub broken: bool,
}

impl AlwaysLogged {
    /// There is a request that would have a line.
    pub fn is_any(&self) -> bool {
        *self != AlwaysLogged::default()
    }
}

impl Logging {
    /// What applications print can't go to the log as it is: the master takes it and sends it the way of messages.
    pub fn takes_output(&self) -> bool {
        let is_plain = |flow: &LogFlow| {
            *flow == LogFlow { drains: vec![], filters: vec![], routes: vec![], usual: vec![], encoders: vec![] }
        };
        self.style == LogStyle::Json || self.flows.as_ref().is_some_and(|flows| !is_plain(&flows.messages))
    }

    /// Some request may have a line.
    pub fn may_log_requests(&self) -> bool {
        self.requests || self.always.is_any()
    }
}

/// The logs of a start that says nothing of them.
impl Default for Logging {
    fn default() -> Logging {
        Logging {
            requests: true,
            always: AlwaysLogged::default(),
            file: None,
            targets: Vec::new(),
            flows: None,
            files: LogFiles::default(),
            style: LogStyle::Uwsgi,
            format: None,
            date: LogDate::Iso,
            dates_format: false,
            microseconds: false,
            memory_report: false,
            x_forwarded_for: false,
            write_errors: true,
        }
    }
}
