//! Settings of the logs: the destinations of lines, the requests that are logged, and the formats.
//!
//! Plain data, passed from the process that reads the configuration to master, prototypes and workers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

crate::with_defaults! {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Logging {
        /// Whether requests are logged (off with `disable-logging`).
        pub requests: bool = true,
        /// Requests that are logged even with `disable-logging`.
        pub always: AlwaysLogged,
        /// `logto`: standard output and standard error go to this file.
        pub file: Option<PathBuf>,
        /// `log-output`: standard output and standard error go to the log. Off: they stay as they were at startup.
        pub takes_all_output: bool = true,
        /// Other destinations of lines: `logger` and `req-logger`. Number 0 is the log itself, 1 is the first of these.
        pub targets: Vec<LogTarget>,
        /// The routing of lines; `None`: all lines go to the log.
        pub flows: Option<LogFlows>,
        /// `log-alarm` and `not-log-alarm`, in the order of the configuration.
        pub alarms: Vec<AlarmRule>,
        pub files: LogFiles,
        /// `log-style`, `log-json`: the format of lines without a `log-format`.
        pub style: LogStyle = LogStyle::Uwsgi,
        /// `log-format`: the format of request lines.
        pub format: Option<String>,
        /// `log-date`: the timestamp of the server's own lines, and with `logformat-strftime` that of `%(ftime)`.
        pub date: LogDate = LogDate::Iso,
        /// `logformat-strftime`
        pub dates_format: bool,
        /// `log-micros`: uWSGI's request line shows microseconds.
        pub microseconds: bool,
        /// `memory-report`: the request line starts with the worker's memory, as uWSGI writes it.
        pub memory_report: bool,
        /// `leak-report`: the requests over which the growth of memory is judged.
        pub leak_report_requests: Option<u64>,
        /// `slow-request`: requests that take longer are looked at and reported, in milliseconds.
        pub slow_request_ms: Option<u64>,
        /// `log-x-forwarded-for`: the request line shows this field's value instead of the client's address.
        pub x_forwarded_for: bool,
        /// `disable-write-exception`, `ignore-write-errors`: disconnects of clients during a write are not reported to the
        /// application.
        pub write_errors: bool = true,
    }
}

/// Maximum number of logs in a process, including the log itself.
pub const MAX_LOGS: usize = 16;

/// A destination of lines: a `logger` or `req-logger`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogTarget {
    pub place: LogPlace,
    /// The prefix of each line.
    pub frame: LineFrame,
    /// `log-encoder = gzip`: each line is compressed separately. `None`: lines are not compressed.
    pub packing: Option<Packing>,
}

/// The compression of lines, and the text before and after each compressed line.
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
    /// A descriptor inherited by the server.
    Descriptor(i32),
    /// `HOST:PORT`, over UDP.
    Udp(String),
    /// The command line of a program that reads lines from its standard input.
    Program(String),
    /// The path of a UNIX datagram socket.
    Unix(PathBuf),
}

/// The prefix of lines at a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineFrame {
    Plain,
    Prefix(String),
    /// Priority, time and tag of syslog (RFC 3164).
    Syslog {
        priority: u8,
        tag: String,
    },
}

/// The routing of lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogFlows {
    pub messages: LogFlow,
    /// `None`: request lines are routed like messages.
    pub requests: Option<LogFlow>,
}

/// The routing of lines of one kind. Logs are identified by their numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogFlow {
    /// `log-drain`: lines that match one of these regular expressions are dropped.
    pub drains: Vec<LinePattern>,
    /// `log-filter`: if there are any, lines that match none of them are dropped.
    pub filters: Vec<LinePattern>,
    /// `log-route`: matching lines go to this log instead of the usual ones.
    pub routes: Vec<(LinePattern, usize)>,
    /// Loggers without a name, or the log itself if there are none.
    pub usual: Vec<usize>,
    pub encoders: Vec<LogEncoder>,
}

/// A condition on lines: two regular expressions of the crate `regex`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinePattern {
    pub matches: String,
    /// This must not match.
    pub except: Option<String>,
}

/// Lines that raise alarms. Request lines without a flow of their own are looked at too, as in uWSGI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmRule {
    pub pattern: LinePattern,
    /// The names of the alarms. With none (`not-log-alarm`) the rules after this one are not looked at.
    pub alarms: Vec<String>,
}

/// `log-encoder`: transforms lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogEncoder {
    /// Restricts the encoder to this log.
    pub only: Option<usize>,
    pub encoding: LineEncoding,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineEncoding {
    Prefix(String),
    Suffix(String),
    /// A text with `${msg}`, `${unix}`, `${micros}`, `${millis}` and `${strftime:FORMAT}`.
    Format(String),
    /// Like `Format`, with values escaped for JSON.
    Json(String),
}

/// How log files are created, rotated and reopened.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogFiles {
    /// `log-maxsize`: larger files are rotated.
    pub most_bytes: Option<u64>,
    /// `log-backupname`: the name of the rotated file; `None` appends the time in seconds to the file's own name.
    pub backup: Option<PathBuf>,
    /// `log-truncate`
    pub truncate: bool,
    /// `log-reopen`: each reload reopens the files.
    pub reopen_at_reload: bool,
    /// `logfile-chmod`
    pub mode: Option<u32>,
    /// `logfile-chmod = new:MODE`: the mode of new files, which the mask of the process reduces.
    pub new_mode: Option<u32>,
    /// The file of all lines is that of `logger`, which uWSGI opens as the user of the workers, and not that of `logto`.
    pub is_loggers: bool,
    /// `logfile-chown`, `logto2`: files are owned by the user of the workers.
    pub are_users: bool,
}

/// The default format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogStyle {
    /// uWSGI's request line.
    Uwsgi,
    /// One short line for people.
    Short,
    /// The short line if the log is a terminal, else uWSGI's.
    ShortAtTerminal,
    /// A JSON object per line, for requests and messages.
    Json,
}

/// The timestamp of the server's own lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogDate {
    /// `2026-11-22 13:40:00`
    Iso,
    /// `log-date` without a value: like C's `ctime`, with uWSGI's dash.
    Ctime,
    /// `log-date = FORMAT` of strftime(3).
    Strftime(String),
}

/// Requests that are logged even if request logging is off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AlwaysLogged {
    /// `log-4xx`
    pub client_errors: bool,
    /// `log-5xx`
    pub server_errors: bool,
    /// `log-slow`: requests that take at least this many milliseconds.
    pub slow_ms: Option<u64>,
    /// `log-big`: answers with a body of at least this many bytes.
    pub big_bytes: Option<u64>,
    /// `log-zero`: answers without a body.
    pub empty: bool,
    /// `log-sendfile`: answers whose body is a file.
    pub files: bool,
    /// `log-ioerror`: answers that could not be sent completely.
    pub broken: bool,
}

impl AlwaysLogged {
    /// Whether any condition is set.
    pub fn is_any(&self) -> bool {
        *self != AlwaysLogged::default()
    }
}

impl Logging {
    /// Output of applications goes to the log, and can't go there directly: the master reads it and routes it like messages.
    pub fn takes_output(&self) -> bool {
        let is_plain = |flow: &LogFlow| {
            *flow == LogFlow { drains: vec![], filters: vec![], routes: vec![], usual: vec![], encoders: vec![] }
        };
        let is_routed = self.flows.as_ref().is_some_and(|flows| !is_plain(&flows.messages));
        self.takes_all_output && (self.style == LogStyle::Json || !self.alarms.is_empty() || is_routed)
    }

    /// Whether any request may be logged.
    pub fn may_log_requests(&self) -> bool {
        self.requests || self.always.is_any()
    }
}

/// Which requests have identifiers, and what happens to their traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Tracing {
    /// `request-id`: each request has an identifier.
    pub request_ids: bool,
    /// `request-id-answer`: answers have it too.
    pub answers_have_ids: bool,
    /// `trace-context`: each request belongs to a trace, and answers name it.
    pub has_traces: bool,
    /// `request-start`: requests say when they arrived.
    pub gives_start: bool,
    /// `otlp` and its options: requests have spans, and so belong to traces.
    pub spans: Spans,
    /// Workers measure when each phase of a request begins: something that is configured needs it.
    pub times_phases: bool,
}

impl Tracing {
    /// Whether requests need identifiers, apart from what the log needs.
    pub fn is_any(&self) -> bool {
        self.request_ids || self.answers_have_ids || self.has_traces
    }
}

/// Spans of requests for a collector of OpenTelemetry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Spans {
    /// `otlp`, with the path. `None`: there are no spans, whatever the other fields say.
    pub collector: Option<SpanCollector>,
    /// `otlp-sample`: requests of a million that have a span, if their parent does not decide.
    pub sampled_ppm: Option<u32>,
    /// `otlp-header`: names and values. Values are secrets.
    pub headers: Vec<(String, String)>,
    /// `otlp-service`, as the collector names the instance.
    pub service: Option<String>,
}

/// An endpoint of OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct SpanCollector {
    pub is_https: bool,
    /// A name, or a number without brackets.
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub target: String,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}

impl Spans {
    /// Requests of a million, where there are none by default.
    pub const ALL_PPM: u32 = 1_000_000;

    pub fn is_on(&self) -> bool {
        self.collector.is_some()
    }

    /// The share of traces that begin here and have spans, from 0 to 1.
    pub fn share(&self) -> f64 {
        f64::from(self.sampled_ppm.unwrap_or(Spans::ALL_PPM)) / f64::from(Spans::ALL_PPM)
    }
}
