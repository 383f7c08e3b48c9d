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
