//! Rows of the logs.

use bolide_contract::logging::LogStyle;

use crate::catalogue::row::{OptionEntry, Setting, Value, set, words};
use crate::resolve::logging::loggers::expression;
use crate::resolve::logging::{self, or_warn};
use crate::resolve::values;

/// The words of `log-style`; `None` decides by the terminal and the configuration.
const STYLES: [(&str, Option<LogStyle>); 4] =
    [("auto", None), ("uwsgi", Some(LogStyle::Uwsgi)), ("short", Some(LogStyle::Short)), ("json", Some(LogStyle::Json))];

/// A number of uWSGI's that it keeps in 64 bits, here with a sign.
const MOST: i64 = i64::MAX;

pub const ENTRIES: &[OptionEntry] = &[
    on("disable-logging", Setting::Off(|draft| &mut draft.logging.settings.requests), "No line for each request. `log-4xx` and its kin name those that have one all the same.")
        .example("disable-logging = true"),
    OptionEntry::supported(
        "logto",
        Setting::By(logging::set_log_to),
        Value::Path,
        "standard error",
        "Standard output and standard error go to this file, or as datagrams to `HOST:PORT` (UDP), a line each. Programs that move it away have it opened anew by `log-reopen`, `touch-logreopen` or the command of this name; `log-maxsize` does it by itself.",
    )
    .example("logto = /var/log/shop.log"),
    OptionEntry::supported("logto2", Setting::By(logging::set_log_to2), Value::Path, "standard error", "As `logto`, and the file belongs to the user that workers run as.")
        .example("uid = www-data\nlogto2 = /var/log/shop/shop.log"),
    list("logger", set!(|draft, _, pair| draft.logging.loggers.messages.add_logger(&values::text(pair)?, pair, &draft.host.host_name)?), "Where messages go: the server's own lines, what applications print, and request lines where there is no `req-logger`. `[NAME ]KIND[:ARGUMENT]`, with the kinds `file:PATH` (or `file:logfile=PATH,maxsize=BYTES,backupname=PATH`), `fd:NUMBER`, `stdio` (the log itself), `socket:HOST:PORT` (UDP) and `socket:PATH` (a datagram socket) with a prefix behind a comma, `syslog[:IDENT[,FACILITY]]`, `rsyslog:HOST[:PORT][,TEXT]`, `systemd[:IDENT]` (the journal) and `pipe:COMMAND` (a program that ends is started again, in growing pauses where it ends at once). Each line goes to all loggers that have no name, and to one with a name where a `log-route` says so. Files and sockets are opened by the master, with its rights, and each process writes its own lines. A logger that does not take lines keeps nobody waiting: they wait in memory up to 1 MiB in each process, further ones are dropped and counted.")
        .uwsgi("uWSGI sends what one call has written, with its line ends; here each line goes by itself. uWSGI starts without a syslog that is not there and loses the lines; here that is an error.")
        .example("logger = file:/var/log/shop.log\nreq-logger = file:/var/log/shop-requests.log\nlogger = errors syslog:shop,local0\nlog-route = errors (ERROR|CRITICAL)"),
    list("req-logger", set!(|draft, _, pair| draft.logging.loggers.requests.add_logger(&values::text(pair)?, pair, &draft.host.host_name)?), "Where request lines go, in the words of `logger`.")
        .example("req-logger = file:/var/log/shop-requests.log"),
    list("log-syslog", set!(|draft, _, pair| logging::add_logger_of(draft, "syslog", pair)?), "As `logger = syslog:…`.").example("log-syslog = shop"),
    list("log-socket", set!(|draft, _, pair| logging::add_logger_of(draft, "socket", pair)?), "As `logger = socket:…`.").example("log-socket = 127.0.0.1:5140"),
    list("log-route", set!(|draft, _, pair| or_warn(&mut draft.diagnostics, draft.logging.loggers.messages.add_route(&values::text(pair)?, pair))?), "Messages that match a regular expression go to the logger of this name, and not to those without one. One that can't be used is a warning, and the rule has no effect.")
        .uwsgi(EXPRESSIONS)
        .example("logger = errors file:/var/log/errors.log\nlog-route = errors (ERROR|CRITICAL)"),
    list("log-req-route", set!(|draft, _, pair| or_warn(&mut draft.diagnostics, draft.logging.loggers.requests.add_route(&values::text(pair)?, pair))?), "As `log-route`, for request lines.")
        .uwsgi("uWSGI looks for the name among those of `logger` alone; here one of `req-logger` is found too.")
        .example("req-logger = api file:/var/log/api.log\nlog-req-route = api /api/"),
    list("log-drain", set!(|draft, _, pair| draft.logging.loggers.messages.drains.extend(or_warn(&mut draft.diagnostics, expression(&values::text(pair)?, pair))?)), "Messages that match a regular expression go nowhere.").uwsgi(EXPRESSIONS).example("log-drain = GET /healthz"),
    list("log-filter", set!(|draft, _, pair| draft.logging.loggers.messages.filters.extend(or_warn(&mut draft.diagnostics, expression(&values::text(pair)?, pair))?)), "Messages that match none of these regular expressions go nowhere.").uwsgi(EXPRESSIONS).example("log-filter = (ERROR|WARNING)"),
    list("log-encoder", set!(|draft, _, pair| draft.logging.loggers.messages.add_encoder(&values::text(pair)?, pair)?), "Changes messages on their way, one after the other: `prefix TEXT`, `suffix TEXT`, `format TEXT` and `json TEXT` with `${msg}`, `${unix}`, `${millis}`, `${micros}` and `${strftime:FORMAT}`; `gzip` and `compress` (zlib) compress each line by itself, with its newline, as it leaves, so that `zcat` reads a whole file of such lines. A `prefix` or `suffix` named behind them stands around what is compressed, which is for packets of `socket:` loggers. `KIND:NAME` is for the logger of this name alone.")
        .uwsgi("Each line ends in a newline here, so `nl` has nothing to do, and a suffix stands before it. Compressed lines are for loggers of files, descriptors, pipes and sockets: those of syslog and the log itself are refused.")
        .example("log-encoder = json {\"time\":\"${strftime:%Y-%m-%dT%H:%M:%S}\",\"message\":\"${msg}\"}"),
    list("log-req-encoder", set!(|draft, _, pair| draft.logging.loggers.requests.add_encoder(&values::text(pair)?, pair)?), "As `log-encoder`, for request lines.").example("log-req-encoder = prefix shop: "),
    number("log-maxsize", Setting::Positive(|draft| &mut draft.logging.settings.files.most_bytes), "bytes", "A log file with more bytes is put aside, under its own name with the time in seconds behind, and a new one is begun, in all processes. The lengths are looked at once a second.")
        .example("logto = /var/log/shop.log\nlog-maxsize = 104857600"),
    OptionEntry::supported("log-backupname", set!(|draft, _, pair| draft.logging.settings.files.backup = Some(values::text(pair)?.into())), Value::Path, "the name and the time in seconds", "The name of a log file that is put aside. One that is there is replaced.")
        .example("log-maxsize = 104857600\nlog-backupname = /var/log/shop.log.old"),
    on("log-truncate", Setting::Switch(|draft| &mut draft.logging.settings.files.truncate), "The file of `logto` is emptied at the start.").example("log-truncate = true"),
    on("log-reopen", Setting::Switch(|draft| &mut draft.logging.settings.files.reopen_at_reload), "Each reload opens the files of logs anew.").example("log-reopen = true"),
    OptionEntry::supported("logfile-chmod", set!(|draft, _, pair| draft.logging.settings.files.mode = values::mode(pair)?), Value::Text, "0640", "The mode of log files, in octal digits.").example("logfile-chmod = 644"),
    on("logfile-chown", set!(|draft, _, pair| draft.logging.settings.files.are_users |= draft.switch(pair)), "Log files belong to the user that workers run as.").example("logfile-chown = true"),
    OptionEntry::accepted("log-master", Value::Switch, "The master writes all lines.", "each process writes whole lines by itself, so none are mixed, and rotation reaches all of them"),
    OptionEntry::accepted("threaded-logger", Value::Switch, "A thread of the master writes all lines.", "nobody waits for who writes lines"),
    OptionEntry::accepted("log-master-bufsize", Value::Special, "Bytes of a line that the master takes.", "lines of any length are written whole"),
    OptionEntry::accepted("log-master-stream", Value::Switch, "Lines reach the master as a stream.", "each process writes whole lines by itself"),
    OptionEntry::accepted("log-master-req-stream", Value::Switch, "Request lines reach the master as a stream.", "each process writes whole lines by itself"),
    OptionEntry::accepted("rsyslog-packet-size", Value::Special, "Bytes of a line that `rsyslog` sends.", "lines are not cut, up to what a datagram takes"),
    OptionEntry::accepted("rsyslog-split-messages", Value::Switch, "`rsyslog` sends long lines in several packets.", "lines are not cut, up to what a datagram takes"),
    OptionEntry::refused("log-zeromq", Value::Text, "Sends lines by ZeroMQ.", "use `logger = socket:HOST:PORT`, or a log shipper that reads a file"),
    OptionEntry::refused("logger-list", Value::Switch, "Shows the loggers.", "run `bolide explain logger`"),
    OptionEntry::supported(
        "log-format",
        Setting::Text(|draft| &mut draft.logging.settings.format),
        Value::Text,
        "uWSGI's line",
        "The form of a request's line: a text with variables of the form `%(name)`. Of the request: `method`, `uri`, `proto`, `host`, `addr`, `user`, `uagent`, `referer`, `cl` (bytes of the body), `var.NAME` (any variable, `var.HTTP_X_REQUEST_ID`), `vars`, `pktsize`. Of the answer: `status`, `size` (bytes of head and body), `hsize`, `rsize`, `headers`, `werr`, `ioerr`. Times: `micros`, `msecs`, `secs`; of the request's begin `time`, `tmsecs`, `tmicros`, `ctime`, `ltime` (as Apache writes it), `ftime` (see `logformat-strftime`); `epoch` is now. Of the server: `pid`, `wid`, `core`, `vsz`, `rss`, `vszM`, `rssM`. Any other name is a variable that the application has set. What says nothing is `-`, as is `metric.NAME`. In a format with quotes (`\"`) a quote, a backslash and a control character of a text are written as Apache does: `\\\"`, `\\\\`, `\\n`, `\\x1b`. In one without, a control character is shown as `?`.",
    )
    .uwsgi("uWSGI writes what a client has sent as it is, so that a quote in it ends the field. Here, in a format that is an object of JSON (`{…}`), values are escaped as JSON has it, and in another one with quotes as above, so that each line is valid whatever is in it.")
    .example("log-format = %(addr) - %(user) [%(ltime)] \"%(method) %(uri) %(proto)\" %(status) %(size) \"%(referer)\" \"%(uagent)\""),
    on("logformat-strftime", Setting::Switch(|draft| &mut draft.logging.settings.dates_format), "`%(ftime)` in `log-format` has the form of `log-date`.")
        .example("log-date = %Y-%m-%d %H:%M:%S\nlogformat-strftime = true\nlog-format = %(ftime) %(method) %(uri) %(status)"),
    OptionEntry::supported(
        "log-date",
        set!(|draft, _, pair| draft.logging.settings.date = logging::date(pair)),
        Value::Special,
        "2026-11-22 13:40:00",
        "The form of the time before the server's own lines: a format of strftime(3), or without a value that of C's `ctime`. Request lines have their own times, and lines of the application are its own.",
    )
    .example("log-date = %d/%b/%Y %H:%M:%S"),
    on("log-micros", Setting::Switch(|draft| &mut draft.logging.settings.microseconds), "uWSGI's request line counts microseconds.").example("log-micros = true"),
    OptionEntry::supported(
        "log-style",
        set!(|draft, _, pair| draft.logging.style = Some(values::one_of(pair, &STYLES)?)),
        Value::OneOf(&words(&STYLES)),
        "auto",
        "The form of lines without a `log-format`. `uwsgi` is uWSGI's request line; `short` one line for eyes, coloured on a terminal (`21:03:24 GET  /boom  500  19 ms  265 B`), where the variable NO_COLOR takes the colours away, as TERM = dumb does, and FORCE_COLOR brings them anywhere; `json` an object of JSON in each line. `auto` is `short` on a terminal where an application is named on the command line without a configuration file, or with `develop`; else `uwsgi`.",
    )
    .example("log-style = short"),
    on("log-json", set!(|draft, _, pair| draft.logging.style = draft.switch(pair).then_some(Some(LogStyle::Json))), "As `log-style = json`: one valid line of JSON for each request, whatever the bytes in it.")
        .example("log-json = true"),
    on("log-4xx", Setting::Switch(|draft| &mut draft.logging.settings.always.client_errors), "Answers of 400 to 499 have a line, also with `disable-logging`.").example("disable-logging = true\nlog-4xx = true"),
    on("log-5xx", Setting::Switch(|draft| &mut draft.logging.settings.always.server_errors), "Answers of 500 to 599 have a line, also with `disable-logging`.").example("disable-logging = true\nlog-5xx = true"),
    number("log-slow", Setting::Positive(|draft| &mut draft.logging.settings.always.slow_ms), "milliseconds", "Requests that take at least so many milliseconds have a line, also with `disable-logging`.").example("disable-logging = true\nlog-slow = 1000"),
    number("log-big", Setting::Positive(|draft| &mut draft.logging.settings.always.big_bytes), "bytes", "Answers with a body of at least so many bytes have a line, also with `disable-logging`.").example("log-big = 1048576"),
    on("log-zero", Setting::Switch(|draft| &mut draft.logging.settings.always.empty), "Answers without a body have a line, also with `disable-logging`.").example("log-zero = true"),
    on("log-sendfile", Setting::Switch(|draft| &mut draft.logging.settings.always.files), "Answers that are a file have a line, also with `disable-logging`.").example("log-sendfile = true"),
    on("log-ioerror", Setting::Switch(|draft| &mut draft.logging.settings.always.broken), "Answers that their client did not take have a line, also with `disable-logging`.")
        .uwsgi("uWSGI wants a read and a write to fail in one request, which hardly happens.")
        .example("log-ioerror = true"),
    on("memory-report", Setting::Switch(|draft| &mut draft.logging.settings.memory_report), "The line of a request starts with the worker's memory.").example("memory-report = true"),
    on("ignore-write-errors", set!(|draft, _, pair| draft.logging.settings.write_errors = !draft.switch(pair) && draft.logging.settings.write_errors), "A client that left while we wrote to it is not worth a line in the log.")
        .example("ignore-write-errors = true"),
    on("disable-write-exception", set!(|draft, _, pair| draft.logging.settings.write_errors = !draft.switch(pair) && draft.logging.settings.write_errors), "A client that left while we wrote to it is not the application's business: it sees no exception.")
        .example("disable-write-exception = true"),
    OptionEntry::accepted("ignore-sigpipe", Value::Switch, "No line for SIGPIPE.", "SIGPIPE is always ignored"),
];

/// What regular expressions have not.
const EXPRESSIONS: &str = "Look-around and references to groups, which can take a line any time, are an error.";

const fn list(name: &'static str, setting: Setting, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, setting, Value::List, "", help)
}

const fn on(name: &'static str, setting: Setting, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, setting, Value::Switch, "off", help)
}

const fn number(name: &'static str, setting: Setting, unit: &'static str, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, setting, Value::Number { least: 0, most: MOST, unit }, "off", help)
}
