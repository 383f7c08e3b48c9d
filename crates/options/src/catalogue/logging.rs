//! Rows of the logs.

use bolide_contract::logging::LogStyle;

use crate::catalogue::row::{Entry, Value, words};
use crate::catalogue::setting::{Logging, Setting};

/// The words of `log-style`; `None` decides by the terminal and the configuration.
pub const STYLES: [(&str, Option<LogStyle>); 4] =
    [("auto", None), ("uwsgi", Some(LogStyle::Uwsgi)), ("short", Some(LogStyle::Short)), ("json", Some(LogStyle::Json))];

/// A number of uWSGI's that it keeps in 64 bits, here with a sign.
const MOST: i64 = i64::MAX;

pub const ENTRIES: &[Entry] = &[
    on("disable-logging", Logging::DisableLogging, "No line for each request. `log-4xx` and its kin name those that have one all the same.")
        .example("disable-logging = true"),
    Entry::supported(
        "logto",
        Setting::Logging(Logging::LogTo),
        Value::Path,
        "standard error",
        "Standard output and standard error go to this file.",
    )
    .example("logto = /var/log/shop.log"),
    Entry::supported(
        "log-format",
        Setting::Logging(Logging::Format),
        Value::Text,
        "uWSGI's line",
        "The form of a request's line: a text with variables of the form `%(name)`. Of the request: `method`, `uri`, `proto`, `host`, `addr`, `user`, `uagent`, `referer`, `cl` (bytes of the body), `var.NAME` (any variable, `var.HTTP_X_REQUEST_ID`), `vars`, `pktsize`. Of the answer: `status`, `size` (bytes of head and body), `hsize`, `rsize`, `headers`, `werr`, `ioerr`. Times: `micros`, `msecs`, `secs`; of the request's begin `time`, `tmsecs`, `tmicros`, `ctime`, `ltime` (as Apache writes it), `ftime` (see `logformat-strftime`); `epoch` is now. Of the server: `pid`, `wid`, `core`, `vsz`, `rss`, `vszM`, `rssM`. Any other name is a variable that the application has set. What says nothing is `-`, as is `metric.NAME`. A control character that a client has sent is shown as `?`.",
    )
    .uwsgi("uWSGI writes what a client has sent as it is. Here, in a format that is an object of JSON (`{…}`), values are escaped, so that each line is valid whatever is in it.")
    .example("log-format = %(addr) - %(user) [%(ltime)] \"%(method) %(uri) %(proto)\" %(status) %(size) \"%(referer)\" \"%(uagent)\""),
    on("logformat-strftime", Logging::FormatDates, "`%(ftime)` in `log-format` has the form of `log-date`.")
        .example("log-date = %Y-%m-%d %H:%M:%S\nlogformat-strftime = true\nlog-format = %(ftime) %(method) %(uri) %(status)"),
    Entry::supported(
        "log-date",
        Setting::Logging(Logging::Date),
        Value::Special,
        "2026-11-22 13:40:00",
        "The form of the time before the server's own lines: a format of strftime(3), or without a value that of C's `ctime`. Request lines have their own times, and lines of the application are its own.",
    )
    .example("log-date = %d/%b/%Y %H:%M:%S"),
    on("log-micros", Logging::Microseconds, "uWSGI's request line counts microseconds.").example("log-micros = true"),
    Entry::supported(
        "log-style",
        Setting::Logging(Logging::Style),
        Value::OneOf(&words(&STYLES)),
        "auto",
        "The form of lines without a `log-format`. `uwsgi` is uWSGI's request line; `short` one line for eyes, coloured on a terminal unless the variable NO_COLOR is set (`21:03:24 GET /boom 500 19 ms 265 B`); `json` an object of JSON in each line. `auto` is `short` on a terminal where an application is named on the command line without a configuration file, else `uwsgi`.",
    )
    .example("log-style = short"),
    on("log-json", Logging::Json, "As `log-style = json`: one valid line of JSON for each request, whatever the bytes in it.")
        .example("log-json = true"),
    on("log-4xx", Logging::ClientErrors, "Answers of 400 to 499 have a line, also with `disable-logging`.").example("disable-logging = true\nlog-4xx = true"),
    on("log-5xx", Logging::ServerErrors, "Answers of 500 to 599 have a line, also with `disable-logging`.").example("disable-logging = true\nlog-5xx = true"),
    number("log-slow", Logging::Slow, "milliseconds", "Requests that take at least so many milliseconds have a line, also with `disable-logging`.").example("disable-logging = true\nlog-slow = 1000"),
    number("log-big", Logging::Big, "bytes", "Answers with a body of at least so many bytes have a line, also with `disable-logging`.").example("log-big = 1048576"),
    on("log-zero", Logging::Empty, "Answers without a body have a line, also with `disable-logging`.").example("log-zero = true"),
    on("log-sendfile", Logging::Sendfile, "Answers that are a file have a line, also with `disable-logging`.").example("log-sendfile = true"),
    on("log-ioerror", Logging::Broken, "Answers that their client did not take have a line, also with `disable-logging`.")
        .uwsgi("uWSGI wants a read and a write to fail in one request, which hardly happens.")
        .example("log-ioerror = true"),
    on("memory-report", Logging::MemoryReport, "The line of a request starts with the worker's memory.").example("memory-report = true"),
    on("ignore-write-errors", Logging::QuietWriteErrors, "A client that left while we wrote to it is not worth a line in the log.")
        .example("ignore-write-errors = true"),
    on("disable-write-exception", Logging::QuietWriteErrors, "A client that left while we wrote to it is not the application's business: it sees no exception.")
        .example("disable-write-exception = true"),
    Entry::accepted("ignore-sigpipe", Value::Switch, "No line for SIGPIPE.", "SIGPIPE is always ignored"),
];

const fn on(name: &'static str, setting: Logging, help: &'static str) -> Entry {
    Entry::supported(name, Setting::Logging(setting), Value::Switch, "off", help)
}

const fn number(name: &'static str, setting: Logging, unit: &'static str, help: &'static str) -> Entry {
    Entry::supported(name, Setting::Logging(setting), Value::Number { least: 0, most: MOST, unit }, "off", help)
}
