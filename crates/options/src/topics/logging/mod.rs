//! Resolves the options of the logs to settings. It opens nothing. Runs in the process that reads the configuration.

mod log_packing;
pub mod loggers;
pub mod otlp;

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::host_info::SYSLOG_SOCKET;
use bolide_configuration::pair::Pair;
use bolide_contract::logging::{LinePattern, LogDate, LogStyle, Logging};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{
    OptionEntry, OptionRow, Reach, Setting, Value, accepted, field, list, on, refused, rows, set, supported, within, words,
};
use crate::topics::logging::loggers::{LoggerDraft, Loggers, expression};
use crate::values;

/// The values of `log-style`. With `None` the terminal and the configuration decide.
const STYLES: [(&str, Option<LogStyle>); 4] =
    [("auto", None), ("uwsgi", Some(LogStyle::Uwsgi)), ("short", Some(LogStyle::Short)), ("json", Some(LogStyle::Json))];

/// uWSGI keeps this number in 64 bits; here it is signed.
const MAX: i64 = i64::MAX;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Turn off request lines. `log-4xx` and the related options log selected requests anyway.
    /// Example: disable-logging = true
    on("disable-logging", Setting::Off(field!(LoggingDraft.settings.requests))).reach(Reach::Application),
    /// Write standard output and standard error to this file, or as datagrams to `HOST:PORT` (UDP), one line each. If another
    /// program moves the file away, `log-reopen`, `touch-logreopen` or the command of this name opens it again. `log-maxsize`
    /// rotates it automatically.
    /// Example: logto = /var/log/shop.log
    supported("logto", Setting::By(set_log_to)).takes(Value::Path, "standard error").reach(Reach::Master),
    /// Like `logto`, and the file belongs to the user that workers run as.
    /// Example: uid = www-data
    ///          logto2 = /var/log/shop/shop.log
    supported("logto2", Setting::By(set_log_to2)).takes(Value::Path, "standard error").reach(Reach::Master),
    /// What the application and its programs print goes to the log. With `false`, their standard output and standard error stay
    /// as they were at startup, and the files of `logto` and `logger` get the server's own lines, `wsgi.errors`, exceptions of
    /// requests and request lines, as with gunicorn's `--error-logfile` without `--capture-output`.
    /// Example: logto = /var/log/shop.log
    ///          log-output = false
    supported("log-output", Setting::Switch(field!(LoggingDraft.settings.takes_all_output)))
        .takes(Value::Switch, "on").reach(Reach::Master),
    /// The destination of messages, which are the server's own lines, output of applications, and request lines if there is no
    /// `req-logger`. It is written as `[NAME ]KIND[:ARGUMENT]`, with the kinds `file:PATH` (or
    /// `file:logfile=PATH,maxsize=BYTES,backupname=PATH`), `fd:NUMBER`, `stdio` (the log itself), `socket:HOST:PORT` (UDP) and
    /// `socket:PATH` (a datagram socket) with a prefix after a comma, `syslog[:IDENT[,FACILITY]]`, `rsyslog:HOST[:PORT][,TEXT]`,
    /// `systemd[:IDENT]` (the journal) and `pipe:COMMAND` (a program that is restarted when it exits, after growing pauses if it
    /// exits immediately). Each line goes to all unnamed loggers, and to a named one if a `log-route` sends it there. The master
    /// opens files and sockets, with its rights, and each process writes its own lines. A logger that does not accept lines does
    /// not block processes. Lines wait in memory, up to 1 MiB in each process, and others are dropped and counted. A socket,
    /// host, named pipe or program that is out of reach, at startup or later, does not keep an application from serving. Lines
    /// wait in the same way, and the master tries it again every 5 s.
    /// uWSGI: uWSGI sends the output of one call, with its line ends, whereas Bolide sends each line separately. uWSGI loses the
    /// lines while there is no syslog. In Bolide they wait for it.
    /// Example: logger = file:/var/log/shop.log
    ///          req-logger = file:/var/log/shop-requests.log
    ///          logger = errors syslog:shop,local0
    ///          log-route = errors (ERROR|CRITICAL)
    list("logger", set!(|draft, _, pair| add_message_logger(draft, &values::text(pair)?, pair)?)).reach(Reach::Master),
    /// The destination of request lines, in the syntax of `logger`.
    /// Example: req-logger = file:/var/log/shop-requests.log
    list("req-logger", set!(|draft, _, pair| add_request_logger(draft, pair)?)).reach(Reach::Master),
    /// Like `logger = syslog:…`. On a system without syslog the lines stay in the log, with a warning.
    /// Example: log-syslog = shop
    list("log-syslog", set!(|draft, _, pair| add_syslog(draft, pair)?)).reach(Reach::Master),
    /// Like `logger = socket:…`.
    /// Example: log-socket = 127.0.0.1:5140
    list("log-socket", set!(|draft, _, pair| add_logger_of(draft, "socket", pair)?)).reach(Reach::Master),
    /// Messages that match a regular expression go to the logger of this name, and not to unnamed ones. An unusable expression is
    /// a warning, and the rule has no effect.
    /// Example: logger = errors file:/var/log/errors.log
    ///          log-route = errors (ERROR|CRITICAL)
    list("log-route", set!(|draft, _, pair| add_route(draft, |loggers| &mut loggers.messages, pair)?))
        .uwsgi(EXPRESSIONS).reach(Reach::Master),
    /// Like `log-route`, for request lines.
    /// uWSGI: uWSGI looks for the name only among those of `logger`. Bolide also finds one of `req-logger`.
    /// Example: req-logger = api file:/var/log/api.log
    ///          log-req-route = api /api/
    list("log-req-route", set!(|draft, _, pair| add_route(draft, |loggers| &mut loggers.requests, pair)?)).reach(Reach::Master),
    /// Messages that match a regular expression are discarded.
    /// Example: log-drain = GET /healthz
    list("log-drain", set!(|draft, _, pair| add_expression(draft, |messages| &mut messages.drains, pair)?))
        .uwsgi(EXPRESSIONS).reach(Reach::Master),
    /// Messages that match none of these regular expressions are discarded.
    /// Example: log-filter = (ERROR|WARNING)
    list("log-filter", set!(|draft, _, pair| add_expression(draft, |messages| &mut messages.filters, pair)?))
        .uwsgi(EXPRESSIONS).reach(Reach::Master),
    /// Change messages, one encoder after the other, with `prefix TEXT`, `suffix TEXT`, `format TEXT` and `json TEXT`, in which
    /// `${msg}`, `${unix}`, `${millis}`, `${micros}` and `${strftime:FORMAT}` are replaced. `gzip` and `compress` (zlib) compress
    /// each line separately, with its newline, when it is written, so that `zcat` reads a whole file of such lines. A `prefix` or
    /// `suffix` after them surrounds the compressed data, which is meant for packets of `socket:` loggers. `KIND:NAME` applies to
    /// the logger of this name only.
    /// uWSGI: Each line ends in a newline here, so `nl` has no effect, and a suffix precedes the newline. Compressed lines are
    /// for loggers of files, descriptors, pipes and sockets. For syslog and the log itself they are refused.
    /// Example: log-encoder = json {"time":"${strftime:%Y-%m-%dT%H:%M:%S}","message":"${msg}"}
    list(
        "log-encoder",
        set!(|draft, _, pair| draft.of::<LoggingDraft>().loggers.messages.add_encoder(&values::text(pair)?, pair)?),
    )
    .reach(Reach::Master),
    /// Like `log-encoder`, for request lines.
    /// Example: log-req-encoder = prefix shop:
    list(
        "log-req-encoder",
        set!(|draft, _, pair| draft.of::<LoggingDraft>().loggers.requests.add_encoder(&values::text(pair)?, pair)?),
    )
    .reach(Reach::Master),
    /// A log file with more bytes is renamed to its own name followed by the time in seconds, and a new one is started, in all
    /// processes. The sizes are checked once a second.
    /// Example: logto = /var/log/shop.log
    ///          log-maxsize = 104857600
    number("log-maxsize", Setting::Positive(field!(LoggingDraft.settings.files.most_bytes)), "bytes").reach(Reach::Master),
    /// The new name of a rotated log file. An existing file is replaced.
    /// Example: log-maxsize = 104857600
    ///          log-backupname = /var/log/shop.log.old
    supported(
        "log-backupname",
        set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.files.backup = Some(values::text(pair)?.into())),
    )
    .takes(Value::Path, "the name and the time in seconds")
    .reach(Reach::Master),
    /// Empty the file of `logto` at startup.
    /// Example: log-truncate = true
    on("log-truncate", Setting::Switch(field!(LoggingDraft.settings.files.truncate))).reach(Reach::Master),
    /// Each reload opens the log files again.
    /// Example: log-reopen = true
    on("log-reopen", Setting::Switch(field!(LoggingDraft.settings.files.reopen_at_reload))).reach(Reach::Master),
    /// The mode of log files, in octal digits. `new:MODE` is for files that do not exist yet, and the umask reduces it. A file
    /// that exists keeps its mode.
    /// Example: logfile-chmod = 644
    supported("logfile-chmod", set!(|draft, _, pair| set_file_mode(draft, pair)?))
        .takes(Value::Text, "0640").reach(Reach::Master),
    /// Log files belong to the user that workers run as.
    /// Example: logfile-chown = true
    on("logfile-chown", set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.files.are_users |= draft.switch(pair)))
        .reach(Reach::Master),
    /// The master writes all lines.
    /// Why: each process writes whole lines itself, so none are mixed, and rotation reaches all of them, but in a pipe lines of
    /// more than 4096 bytes may be mixed with those of other processes
    accepted("log-master", Value::Switch),
    /// A thread of the master writes all lines.
    /// Why: no process waits for a log writer
    accepted("threaded-logger", Value::Switch),
    /// The maximum line length that the master reads.
    /// Why: lines are not cut
    accepted("log-master-bufsize", Value::Special),
    /// Lines reach the master as a stream.
    /// Why: each process writes whole lines itself
    accepted("log-master-stream", Value::Switch),
    /// Request lines reach the master as a stream.
    /// Why: each process writes whole lines itself
    accepted("log-master-req-stream", Value::Switch),
    /// The maximum line length that `rsyslog` sends.
    /// Why: lines are not truncated, up to the size of a datagram
    accepted("rsyslog-packet-size", Value::Special),
    /// `rsyslog` sends long lines in several packets.
    /// Why: lines are not truncated, up to the size of a datagram
    accepted("rsyslog-split-messages", Value::Switch),
    /// Send lines over ZeroMQ.
    /// Instead: use `logger = socket:HOST:PORT`, or a log shipper that reads a file
    refused("log-zeromq", Value::Text),
    /// Show the loggers.
    /// Instead: run `bolide explain logger`
    refused("logger-list", Value::Switch),
    /// The format of request lines, a text with variables of the form `%(name)`. Of the request, they are `method`, `uri`,
    /// `proto`, `host`, `addr`, `user`, `uagent`, `referer`, `cl` (bytes of the body), `request_id`, `trace_id` and `span_id`
    /// (see `request-id` and `trace-context`), `var.NAME` (any variable, `var.HTTP_X_REQUEST_ID`), `vars` and `pktsize`. Of the
    /// response, they are `status`, `size` (bytes of head and body), `hsize`, `rsize`, `headers`, `werr` and `ioerr`. Times are
    /// `micros`, `msecs` and `secs`. `time`, `tmsecs`, `tmicros`, `ctime`, `ltime` (as Apache writes it) and `ftime` (see
    /// `logformat-strftime`) are those of the request's begin, and `epoch` is now. Of the server, they are `pid`, `wid`, `core`,
    /// `vsz`, `rss`, `vszM` and `rssM`. Any other name is a variable that the application has set. Empty values are `-`, as is
    /// `metric.NAME`. In a format with quotes (`"`), quotes, backslashes and control characters are escaped as Apache does, with
    /// `\"`, `\\`, `\n` and `\x1b`. In a format without quotes, control characters are shown as `?`.
    /// uWSGI: uWSGI writes a client's text unchanged, so that a quote in it ends the field. Here, in a format that is a JSON
    /// object (`{…}`), values are escaped as JSON requires, and in another one with quotes as above, so that each line is valid
    /// whatever it contains.
    /// Example: log-format = %(addr) - %(user) [%(ltime)] "%(method) %(uri) %(proto)" %(status) %(size) "%(referer)" "%(uagent)"
    supported("log-format", Setting::Text(field!(LoggingDraft.settings.format)))
        .takes(Value::Text, "uWSGI's line").reach(Reach::Application),
    /// `%(ftime)` in `log-format` has the format of `log-date`.
    /// Example: log-date = %Y-%m-%d %H:%M:%S
    ///          logformat-strftime = true
    ///          log-format = %(ftime) %(method) %(uri) %(status)
    on("logformat-strftime", Setting::Switch(field!(LoggingDraft.settings.dates_format))).reach(Reach::Application),
    /// The format of the time before the server's own lines, for strftime(3). Without a value it is that of C's `ctime`. Request
    /// lines have their own times, and lines of the application are unchanged.
    /// Example: log-date = %d/%b/%Y %H:%M:%S
    supported("log-date", set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.date = date(pair)))
        .takes(Value::Form("a format for strftime(3)"), "2026-11-22 13:40:00").reach(Reach::Application),
    /// uWSGI's request line counts in microseconds.
    /// Example: log-micros = true
    on("log-micros", Setting::Switch(field!(LoggingDraft.settings.microseconds))).reach(Reach::Application),
    /// The format of request lines without a `log-format`. `uwsgi` is uWSGI's request line. `short` is one short line, colored on
    /// a terminal (`21:03:24 GET  /boom  500  19 ms  265 B`). The variable NO_COLOR and TERM = dumb turn colors off, and
    /// FORCE_COLOR turns them on anywhere. `json` is a JSON object per line. `auto` is `short` on a terminal if an application is
    /// given on the command line without a configuration file, or with `develop`, and `uwsgi` otherwise.
    /// Example: log-style = short
    supported("log-style", set!(|draft, _, pair| draft.of::<LoggingDraft>().style = Some(draft.one_of(pair, &STYLES)?)))
        .takes(Value::OneOf(&words(&STYLES)), "auto").reach(Reach::Application),
    /// Like `log-style = json`, one valid line of JSON for each request, whatever bytes it contains.
    /// Example: log-json = true
    on("log-json", set!(|draft, _, pair| draft.of::<LoggingDraft>().style = draft.switch(pair).then_some(Some(LogStyle::Json))))
        .reach(Reach::Application),
    /// Log responses of 400 to 499, even with `disable-logging`.
    /// Example: disable-logging = true
    ///          log-4xx = true
    on("log-4xx", Setting::Switch(field!(LoggingDraft.settings.always.client_errors))).reach(Reach::Application),
    /// Log responses of 500 to 599, even with `disable-logging`.
    /// Example: disable-logging = true
    ///          log-5xx = true
    on("log-5xx", Setting::Switch(field!(LoggingDraft.settings.always.server_errors))).reach(Reach::Application),
    /// Log requests that take at least this many milliseconds, even with `disable-logging`.
    /// Example: disable-logging = true
    ///          log-slow = 1000
    number("log-slow", Setting::Positive(field!(LoggingDraft.settings.always.slow_ms)), "milliseconds").reach(Reach::Application),
    /// Log responses with a body of at least this many bytes, even with `disable-logging`.
    /// Example: log-big = 1048576
    number("log-big", Setting::Positive(field!(LoggingDraft.settings.always.big_bytes)), "bytes").reach(Reach::Application),
    /// Log responses without a body, even with `disable-logging`.
    /// Example: log-zero = true
    on("log-zero", Setting::Switch(field!(LoggingDraft.settings.always.empty))).reach(Reach::Application),
    /// Log responses that are a file, even with `disable-logging`.
    /// Example: log-sendfile = true
    on("log-sendfile", Setting::Switch(field!(LoggingDraft.settings.always.files))).reach(Reach::Application),
    /// Log responses that their client did not read, even with `disable-logging`.
    /// uWSGI: In uWSGI both a read and a write must fail in one request, which is rare.
    /// Example: log-ioerror = true
    on("log-ioerror", Setting::Switch(field!(LoggingDraft.settings.always.broken))).reach(Reach::Application),
    /// Report routes whose requests leave memory behind. A worker measures its memory between requests that have it to
    /// themselves. After this many measured requests (at least 160) it lists each route whose growth went on throughout, and is
    /// still there after a garbage collection. Requests beside others in the same worker are not measured. Measuring takes at
    /// most about a twentieth of a worker's time. A cache that takes more requests than this to fill looks like a leak.
    /// Example: leak-report = 2000
    number("leak-report", Setting::Positive(field!(LoggingDraft.settings.leak_report_requests)), "requests")
        .reach(Reach::Application),
    /// Report each request that takes at least this many milliseconds, at its end, with where its time went, which can be lines
    /// of the application, peers of its sockets (a database), the GIL, the client's body, and sending to the client. The stack is
    /// looked at when the request has run for 1, 2, 4, 8 … times as long. Requests are not stopped for that. A worker writes at
    /// most 30 reports a minute. WebSockets and streams of events have none.
    /// Example: slow-request = 1000
    number("slow-request", Setting::Positive(field!(LoggingDraft.settings.slow_request_ms)), "milliseconds")
        .reach(Reach::Application),
    /// Request lines start with the worker's memory.
    /// Example: memory-report = true
    on("memory-report", Setting::Switch(field!(LoggingDraft.settings.memory_report))).reach(Reach::Application),
    /// Do not log clients that disconnect during a response.
    /// Example: ignore-write-errors = true
    on(
        "ignore-write-errors",
        set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.write_errors =
            !draft.switch(pair) && draft.of::<LoggingDraft>().settings.write_errors),
    )
    .reach(Reach::Application),
    /// An application does not see an exception when a client disconnects during a response.
    /// Example: disable-write-exception = true
    on(
        "disable-write-exception",
        set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.write_errors =
            !draft.switch(pair) && draft.of::<LoggingDraft>().settings.write_errors),
    )
    .reach(Reach::Application),
    /// No line for SIGPIPE.
    /// Why: SIGPIPE is always ignored
    accepted("ignore-sigpipe", Value::Switch),
];

/// Syntax that the engine of regular expressions does not support.
const EXPRESSIONS: &str = "Look-around and backreferences, which can take any time for a line, are an error.";

const fn number(name: &'static str, setting: Setting, unit: &'static str) -> OptionEntry {
    supported(name, setting).takes(within(0, MAX, unit), "off")
}

pub fn set_log_to(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<LoggingDraft>().log_to = Some(pair.location.clone());
    // uWSGI turns to the file of `logto2` last, wherever it is written.
    if draft.of::<LoggingDraft>().has_log_to2 { values::text(pair).map(drop) } else { log_to(draft, pair) }
}

/// Like `logto`, but the files belong to the user of the workers.
pub fn set_log_to2(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<LoggingDraft>().has_log_to2 = true;
    draft.of::<LoggingDraft>().settings.files.are_users = true;
    log_to(draft, pair)
}

/// `MODE`, or `new:MODE`.
pub fn set_file_mode(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let files = &mut draft.of::<LoggingDraft>().settings.files;
    match pair.value.as_deref().and_then(|text| text.strip_prefix("new:")) {
        Some(mode) => files.new_mode = values::mode(&Pair { value: Some(mode.to_owned()), ..pair.clone() })?,
        None => files.mode = values::mode(pair)?,
    }
    Ok(())
}

/// A file, or an address to which each line is sent.
fn log_to(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let is_address = values::is_udp_address(&text);
    draft.of::<LoggingDraft>().loggers.messages.send_to(is_address.then_some(&text), pair);
    draft.of::<LoggingDraft>().file = Some(text).filter(|_| !is_address);
    Ok(())
}

/// `logger`
pub fn add_message_logger(draft: &mut Draft, text: &str, pair: &Pair) -> Result<(), Diagnostic> {
    let host = draft.host;
    let warning = draft.of::<LoggingDraft>().loggers.messages.add_logger(text, pair, &host.host_name)?;
    draft.diagnostics.extend(warning);
    Ok(())
}

/// `req-logger`
pub fn add_request_logger(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let host = draft.host;
    let warning = draft.of::<LoggingDraft>().loggers.requests.add_logger(&values::text(pair)?, pair, &host.host_name)?;
    draft.diagnostics.extend(warning);
    Ok(())
}

/// Another name for `logger = KIND:…`.
pub fn add_logger_of(draft: &mut Draft, kind: &str, pair: &Pair) -> Result<(), Diagnostic> {
    let argument = pair.value.as_deref().filter(|text| !text.is_empty());
    let text = argument.map_or(kind.to_owned(), |text| format!("{kind}:{text}"));
    add_message_logger(draft, &text, pair)
}

/// `log-syslog`: a system without syslog, such as a container, keeps the lines in the log.
pub fn add_syslog(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    if draft.host.has_syslog {
        return add_logger_of(draft, "syslog", pair);
    }
    let message = format!("`{}`: lines go to the log, since there is no socket of syslog here ({SYSLOG_SOCKET})", pair.key);
    draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise("leave it out, or start a syslog").local());
    Ok(())
}

/// `log-route`, `log-req-route`
pub fn add_route(draft: &mut Draft, of: fn(&mut Loggers) -> &mut LoggerDraft, pair: &Pair) -> Result<(), Diagnostic> {
    let added = of(&mut draft.of::<LoggingDraft>().loggers).add_route(&values::text(pair)?, pair);
    or_warn(&mut draft.diagnostics, added).map(drop)
}

/// `log-drain`, `log-filter`
pub fn add_expression(
    draft: &mut Draft,
    of: fn(&mut LoggerDraft) -> &mut Vec<LinePattern>,
    pair: &Pair,
) -> Result<(), Diagnostic> {
    let made = or_warn(&mut draft.diagnostics, expression(&values::text(pair)?, pair))?;
    of(&mut draft.of::<LoggingDraft>().loggers.messages).extend(made);
    Ok(())
}

/// Turns a fault that disables only its own rule into a warning.
fn or_warn<T>(diagnostics: &mut Vec<Diagnostic>, outcome: Result<T, Diagnostic>) -> Result<Option<T>, Diagnostic> {
    match outcome {
        Ok(made) => Ok(Some(made)),
        Err(diagnostic) if diagnostic.severity == Severity::Warning => {
            diagnostics.push(diagnostic);
            Ok(None)
        }
        Err(diagnostic) => Err(diagnostic),
    }
}

impl LoggingDraft {
    /// Completes the settings. Files of loggers start at the directory of `chdir`, as in uWSGI, which opens them after `logto`.
    pub fn complete(mut self, context: &mut Context) -> Logging {
        if let (true, Some(location)) = (self.has_log_to2, &self.log_to) {
            let message =
                "`logto` is not used: lines go to the file of `logto2`, as in uWSGI, which only begins with that of `logto`";
            context.diagnostics.push(Diagnostic::note(Some(location), message));
        }
        let mut made = self.settings;
        made.file = self.file.map(|path| context.absolute_at_start(path));
        if let Some(path) = made.file.take_if(|_| !made.takes_all_output) {
            // The file of `logto` is standard output. A logger's is another one.
            self.loggers.messages.add_file(path, self.log_to);
        }
        made.files.backup = made.files.backup.map(|path| context.absolute_at_start(path));
        if let Err(diagnostic) = self.loggers.complete(&context.entered, &mut made) {
            context.diagnostics.push(diagnostic);
        }
        made.style = match self.style {
            Some(Some(style)) => style,
            _ if context.is_bare => LogStyle::ShortAtTerminal,
            _ => LogStyle::Uwsgi,
        };
        made
    }
}

/// Users write `log-date` as a switch or as a format.
pub fn date(pair: &Pair) -> LogDate {
    let switch = bolide_configuration::values::switch(pair.value.as_deref());
    match (switch.plain, switch.on, &pair.value) {
        (true, false, _) => LogDate::Iso,
        (false, _, Some(format)) => LogDate::Strftime(format.clone()),
        _ => LogDate::Ctime,
    }
}

/// Settings of the logs.
#[derive(Default)]
pub struct LoggingDraft {
    pub settings: Logging,
    pub file: Option<String>,
    /// Where `logto` was last set.
    pub log_to: Option<Location>,
    pub has_log_to2: bool,
    pub loggers: Loggers,
    /// `Some(None)` is `log-style = auto`.
    pub style: Option<Option<LogStyle>>,
}
