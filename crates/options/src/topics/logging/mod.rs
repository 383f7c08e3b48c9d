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
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, set, words};
use crate::topics::logging::loggers::{LoggerDraft, Loggers, expression};
use crate::values;

/// The values of `log-style`. With `None` the terminal and the configuration decide.
const STYLES: [(&str, Option<LogStyle>); 4] =
    [("auto", None), ("uwsgi", Some(LogStyle::Uwsgi)), ("short", Some(LogStyle::Short)), ("json", Some(LogStyle::Json))];

/// uWSGI keeps this number in 64 bits; here it is signed.
const MAX: i64 = i64::MAX;

pub const ENTRIES: &[OptionEntry] = &[
    on("disable-logging", Setting::Off(|draft| &mut draft.of::<LoggingDraft>().settings.requests), "Turns off request lines. `log-4xx` and the related options log selected requests anyway.")
        .example("disable-logging = true").reach(Reach::Application),
    OptionEntry::supported(
        "logto",
        Setting::By(set_log_to),
        Value::Path,
        "standard error",
        "Standard output and standard error go to this file, or as datagrams to `HOST:PORT` (UDP), one line each. If another program moves the file away, `log-reopen`, `touch-logreopen` or the command of this name opens it again; `log-maxsize` rotates it automatically.",
    )
    .example("logto = /var/log/shop.log").reach(Reach::Master),
    OptionEntry::supported("logto2", Setting::By(set_log_to2), Value::Path, "standard error", "Like `logto`, and the file belongs to the user that workers run as.")
        .example("uid = www-data\nlogto2 = /var/log/shop/shop.log").reach(Reach::Master),
    OptionEntry::supported(
        "log-output",
        Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.takes_all_output),
        Value::Switch,
        "on",
        "What the application and its programs print goes to the log. Off: their standard output and standard error stay as they were at the start, and the files of `logto` and `logger` get the server's own lines, `wsgi.errors`, exceptions of requests and request lines, as with gunicorn's `--error-logfile` without `--capture-output`.",
    )
    .example("logto = /var/log/shop.log\nlog-output = false").reach(Reach::Master),
    list("logger", set!(|draft, _, pair| add_message_logger(draft, &values::text(pair)?, pair)?), "The destination of messages: the server's own lines, output of applications, and request lines if there is no `req-logger`. `[NAME ]KIND[:ARGUMENT]`, with the kinds `file:PATH` (or `file:logfile=PATH,maxsize=BYTES,backupname=PATH`), `fd:NUMBER`, `stdio` (the log itself), `socket:HOST:PORT` (UDP) and `socket:PATH` (a datagram socket) with a prefix after a comma, `syslog[:IDENT[,FACILITY]]`, `rsyslog:HOST[:PORT][,TEXT]`, `systemd[:IDENT]` (the journal) and `pipe:COMMAND` (a program that is restarted when it ends, after growing pauses if it ends immediately). Each line goes to all unnamed loggers, and to a named one if a `log-route` says so. The master opens files and sockets, with its rights, and each process writes its own lines. A logger that does not accept lines blocks no process: lines wait in memory, up to 1 MiB in each process; further ones are dropped and counted. A socket, host, named pipe or program that is out of reach, at the start or later, keeps no application from serving: lines wait in the same way, and the master tries it again every 5 s.")
        .uwsgi("uWSGI sends the output of one call, with its line ends; here each line is sent separately. uWSGI loses the lines while there is no syslog; here they wait for it.")
        .example("logger = file:/var/log/shop.log\nreq-logger = file:/var/log/shop-requests.log\nlogger = errors syslog:shop,local0\nlog-route = errors (ERROR|CRITICAL)").reach(Reach::Master),
    list("req-logger", set!(|draft, _, pair| add_request_logger(draft, pair)?), "The destination of request lines, in the syntax of `logger`.")
        .example("req-logger = file:/var/log/shop-requests.log").reach(Reach::Master),
    list("log-syslog", set!(|draft, _, pair| add_syslog(draft, pair)?), "Like `logger = syslog:…`. On a system without syslog the lines stay in the log, with a warning.").example("log-syslog = shop").reach(Reach::Master),
    list("log-socket", set!(|draft, _, pair| add_logger_of(draft, "socket", pair)?), "Like `logger = socket:…`.").example("log-socket = 127.0.0.1:5140").reach(Reach::Master),
    list("log-route", set!(|draft, _, pair| add_route(draft, |loggers| &mut loggers.messages, pair)?), "Messages that match a regular expression go to the logger of this name, and not to unnamed ones. An unusable expression is a warning, and the rule has no effect.")
        .uwsgi(EXPRESSIONS)
        .example("logger = errors file:/var/log/errors.log\nlog-route = errors (ERROR|CRITICAL)").reach(Reach::Master),
    list("log-req-route", set!(|draft, _, pair| add_route(draft, |loggers| &mut loggers.requests, pair)?), "Like `log-route`, for request lines.")
        .uwsgi("uWSGI looks for the name only among those of `logger`; here one of `req-logger` is found too.")
        .example("req-logger = api file:/var/log/api.log\nlog-req-route = api /api/").reach(Reach::Master),
    list("log-drain", set!(|draft, _, pair| add_expression(draft, |messages| &mut messages.drains, pair)?), "Messages that match a regular expression are discarded.").uwsgi(EXPRESSIONS).example("log-drain = GET /healthz").reach(Reach::Master),
    list("log-filter", set!(|draft, _, pair| add_expression(draft, |messages| &mut messages.filters, pair)?), "Messages that match none of these regular expressions are discarded.").uwsgi(EXPRESSIONS).example("log-filter = (ERROR|WARNING)").reach(Reach::Master),
    list("log-encoder", set!(|draft, _, pair| draft.of::<LoggingDraft>().loggers.messages.add_encoder(&values::text(pair)?, pair)?), "Changes messages, one encoder after the other: `prefix TEXT`, `suffix TEXT`, `format TEXT` and `json TEXT` with `${msg}`, `${unix}`, `${millis}`, `${micros}` and `${strftime:FORMAT}`; `gzip` and `compress` (zlib) compress each line separately, with its newline, when it is written, so that `zcat` reads a whole file of such lines. A `prefix` or `suffix` after them surrounds the compressed data, which is meant for packets of `socket:` loggers. `KIND:NAME` applies to the logger of this name only.")
        .uwsgi("Each line ends in a newline here, so `nl` has no effect, and a suffix precedes the newline. Compressed lines are for loggers of files, descriptors, pipes and sockets: those of syslog and the log itself are refused.")
        .example("log-encoder = json {\"time\":\"${strftime:%Y-%m-%dT%H:%M:%S}\",\"message\":\"${msg}\"}").reach(Reach::Master),
    list("log-req-encoder", set!(|draft, _, pair| draft.of::<LoggingDraft>().loggers.requests.add_encoder(&values::text(pair)?, pair)?), "Like `log-encoder`, for request lines.").example("log-req-encoder = prefix shop: ").reach(Reach::Master),
    number("log-maxsize", Setting::Positive(|draft| &mut draft.of::<LoggingDraft>().settings.files.most_bytes), "bytes", "A log file with more bytes is renamed to its own name followed by the time in seconds, and a new one is started, in all processes. The sizes are checked once a second.")
        .example("logto = /var/log/shop.log\nlog-maxsize = 104857600").reach(Reach::Master),
    OptionEntry::supported("log-backupname", set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.files.backup = Some(values::text(pair)?.into())), Value::Path, "the name and the time in seconds", "The new name of a rotated log file. An existing file is replaced.")
        .example("log-maxsize = 104857600\nlog-backupname = /var/log/shop.log.old").reach(Reach::Master),
    on("log-truncate", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.files.truncate), "Empties the file of `logto` at the start.").example("log-truncate = true").reach(Reach::Master),
    on("log-reopen", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.files.reopen_at_reload), "Each reload opens the log files again.").example("log-reopen = true").reach(Reach::Master),
    OptionEntry::supported("logfile-chmod", set!(|draft, _, pair| set_file_mode(draft, pair)?), Value::Text, "0640", "The mode of log files, in octal digits. `new:MODE` is for files that do not exist yet, and the umask reduces it; a file that exists keeps its mode.").example("logfile-chmod = 644").reach(Reach::Master),
    on("logfile-chown", set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.files.are_users |= draft.switch(pair)), "Log files belong to the user that workers run as.").example("logfile-chown = true").reach(Reach::Master),
    OptionEntry::accepted("log-master", Value::Switch, "The master writes all lines.", "each process writes whole lines itself, so none are mixed, and rotation reaches all of them; in a pipe, lines of more than 4096 bytes may be mixed with those of other processes"),
    OptionEntry::accepted("threaded-logger", Value::Switch, "A thread of the master writes all lines.", "no process waits for a log writer"),
    OptionEntry::accepted("log-master-bufsize", Value::Special, "The maximum line length that the master reads.", "lines are not cut"),
    OptionEntry::accepted("log-master-stream", Value::Switch, "Lines reach the master as a stream.", "each process writes whole lines itself"),
    OptionEntry::accepted("log-master-req-stream", Value::Switch, "Request lines reach the master as a stream.", "each process writes whole lines itself"),
    OptionEntry::accepted("rsyslog-packet-size", Value::Special, "The maximum line length that `rsyslog` sends.", "lines are not truncated, up to the size of a datagram"),
    OptionEntry::accepted("rsyslog-split-messages", Value::Switch, "`rsyslog` sends long lines in several packets.", "lines are not truncated, up to the size of a datagram"),
    OptionEntry::refused("log-zeromq", Value::Text, "Sends lines over ZeroMQ.", "use `logger = socket:HOST:PORT`, or a log shipper that reads a file"),
    OptionEntry::refused("logger-list", Value::Switch, "Shows the loggers.", "run `bolide explain logger`"),
    OptionEntry::supported(
        "log-format",
        Setting::Text(|draft| &mut draft.of::<LoggingDraft>().settings.format),
        Value::Text,
        "uWSGI's line",
        "The format of request lines: a text with variables of the form `%(name)`. Of the request: `method`, `uri`, `proto`, `host`, `addr`, `user`, `uagent`, `referer`, `cl` (bytes of the body), `request_id`, `trace_id` and `span_id` (see `request-id` and `trace-context`), `var.NAME` (any variable, `var.HTTP_X_REQUEST_ID`), `vars`, `pktsize`. Of the response: `status`, `size` (bytes of head and body), `hsize`, `rsize`, `headers`, `werr`, `ioerr`. Times: `micros`, `msecs`, `secs`; of the request's begin `time`, `tmsecs`, `tmicros`, `ctime`, `ltime` (as Apache writes it), `ftime` (see `logformat-strftime`); `epoch` is now. Of the server: `pid`, `wid`, `core`, `vsz`, `rss`, `vszM`, `rssM`. Any other name is a variable that the application has set. Empty values are `-`, as is `metric.NAME`. In a format with quotes (`\"`), quotes, backslashes and control characters are escaped as Apache does: `\\\"`, `\\\\`, `\\n`, `\\x1b`. In a format without quotes, control characters are shown as `?`.",
    )
    .uwsgi("uWSGI writes a client's text unchanged, so that a quote in it ends the field. Here, in a format that is a JSON object (`{…}`), values are escaped as JSON requires, and in another one with quotes as above, so that each line is valid whatever it contains.")
    .example("log-format = %(addr) - %(user) [%(ltime)] \"%(method) %(uri) %(proto)\" %(status) %(size) \"%(referer)\" \"%(uagent)\"").reach(Reach::Application),
    on("logformat-strftime", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.dates_format), "`%(ftime)` in `log-format` has the format of `log-date`.")
        .example("log-date = %Y-%m-%d %H:%M:%S\nlogformat-strftime = true\nlog-format = %(ftime) %(method) %(uri) %(status)").reach(Reach::Application),
    OptionEntry::supported(
        "log-date",
        set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.date = date(pair)),
        Value::Special,
        "2026-11-22 13:40:00",
        "The format of the time before the server's own lines, for strftime(3); without a value that of C's `ctime`. Request lines have their own times, and lines of the application are unchanged.",
    )
    .example("log-date = %d/%b/%Y %H:%M:%S").reach(Reach::Application),
    on("log-micros", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.microseconds), "uWSGI's request line counts in microseconds.").example("log-micros = true").reach(Reach::Application),
    OptionEntry::supported(
        "log-style",
        set!(|draft, _, pair| draft.of::<LoggingDraft>().style = Some(draft.one_of(pair, &STYLES)?)),
        Value::OneOf(&words(&STYLES)),
        "auto",
        "The format of request lines without a `log-format`. `uwsgi` is uWSGI's request line. `short` is one short line, coloured on a terminal (`21:03:24 GET  /boom  500  19 ms  265 B`); the variable NO_COLOR and TERM = dumb turn colours off, and FORCE_COLOR turns them on anywhere. `json` is a JSON object per line. `auto` is `short` on a terminal if an application is named on the command line without a configuration file, or with `develop`; else `uwsgi`.",
    )
    .example("log-style = short").reach(Reach::Application),
    on("log-json", set!(|draft, _, pair| draft.of::<LoggingDraft>().style = draft.switch(pair).then_some(Some(LogStyle::Json))), "Like `log-style = json`: one valid line of JSON for each request, whatever bytes it contains.")
        .example("log-json = true").reach(Reach::Application),
    on("log-4xx", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.always.client_errors), "Logs responses of 400 to 499, even with `disable-logging`.").example("disable-logging = true\nlog-4xx = true").reach(Reach::Application),
    on("log-5xx", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.always.server_errors), "Logs responses of 500 to 599, even with `disable-logging`.").example("disable-logging = true\nlog-5xx = true").reach(Reach::Application),
    number("log-slow", Setting::Positive(|draft| &mut draft.of::<LoggingDraft>().settings.always.slow_ms), "milliseconds", "Logs requests that take at least this many milliseconds, even with `disable-logging`.").example("disable-logging = true\nlog-slow = 1000").reach(Reach::Application),
    number("log-big", Setting::Positive(|draft| &mut draft.of::<LoggingDraft>().settings.always.big_bytes), "bytes", "Logs responses with a body of at least this many bytes, even with `disable-logging`.").example("log-big = 1048576").reach(Reach::Application),
    on("log-zero", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.always.empty), "Logs responses without a body, even with `disable-logging`.").example("log-zero = true").reach(Reach::Application),
    on("log-sendfile", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.always.files), "Logs responses that are a file, even with `disable-logging`.").example("log-sendfile = true").reach(Reach::Application),
    on("log-ioerror", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.always.broken), "Logs responses that their client did not read, even with `disable-logging`.")
        .uwsgi("In uWSGI both a read and a write must fail in one request, which is rare.")
        .example("log-ioerror = true").reach(Reach::Application),
    number("leak-report", Setting::Positive(|draft| &mut draft.of::<LoggingDraft>().settings.leak_report_requests), "requests", "Reports routes whose requests leave memory behind: a worker measures its memory between requests that have it to themselves, and after this many measured requests (at least 160) names each route whose growth went on throughout, and is still there after a garbage collection. Requests beside others in the same worker are not measured. Measuring takes at most about a twentieth of a worker's time. A cache that takes more requests than this to fill looks like a leak.").example("leak-report = 2000").reach(Reach::Application),
    number("slow-request", Setting::Positive(|draft| &mut draft.of::<LoggingDraft>().settings.slow_request_ms), "milliseconds", "Reports each request that takes at least this many milliseconds, at its end, with where its time went: lines of the application, peers of its sockets (a database), the GIL, the client's body, sending to the client. The stack is looked at when the request has run for 1, 2, 4, 8 … times as long; requests are not stopped for that. A worker writes at most 30 reports a minute. WebSockets and streams of events have none.").example("slow-request = 1000").reach(Reach::Application),
    on("memory-report", Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.memory_report), "Request lines start with the worker's memory.").example("memory-report = true").reach(Reach::Application),
    on("ignore-write-errors", set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.write_errors = !draft.switch(pair) && draft.of::<LoggingDraft>().settings.write_errors), "Does not log clients that disconnect during a response.")
        .example("ignore-write-errors = true").reach(Reach::Application),
    on("disable-write-exception", set!(|draft, _, pair| draft.of::<LoggingDraft>().settings.write_errors = !draft.switch(pair) && draft.of::<LoggingDraft>().settings.write_errors), "An application sees no exception when a client disconnects during a response.")
        .example("disable-write-exception = true").reach(Reach::Application),
    OptionEntry::accepted("ignore-sigpipe", Value::Switch, "No line for SIGPIPE.", "SIGPIPE is always ignored"),
];

/// Syntax that the engine of regular expressions does not support.
const EXPRESSIONS: &str = "Look-around and backreferences, which can take any time for a line, are an error.";

const fn list(name: &'static str, setting: Setting, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, setting, Value::List, "", help)
}

const fn on(name: &'static str, setting: Setting, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, setting, Value::Switch, "off", help)
}

const fn number(name: &'static str, setting: Setting, unit: &'static str, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, setting, Value::Number { least: 0, most: MAX, unit }, "off", help)
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
    /// Completes the settings. Files of loggers start at the folder of `chdir`, as in uWSGI, which opens them after `logto`.
    pub fn complete(mut self, context: &mut Context) -> Logging {
        if let (true, Some(location)) = (self.has_log_to2, &self.log_to) {
            let message =
                "`logto` is not used: lines go to the file of `logto2`, as in uWSGI, which only begins with that of `logto`";
            context.diagnostics.push(Diagnostic::note(Some(location), message));
        }
        let mut made = self.settings;
        made.file = self.file.map(|path| context.absolute_at_start(path));
        if let Some(path) = made.file.take_if(|_| !made.takes_all_output) {
            // The file of `logto` is standard output. A logger's is a further one.
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
