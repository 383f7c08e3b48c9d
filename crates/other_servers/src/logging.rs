//! Flags for logs and metrics. Pure data and functions over values.

use bolide_configuration::host_info::SYSLOG_SOCKET;
use bolide_options::server::Server::{Daphne, FastApi, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};

use super::row::Meaning::{Done, Fixed, Kept, Made, Nothing, Option, Refused, Same, Taken, Worded};
use super::row::{ServerSetting, ServerWord, flag, of_file, settings, switch};
use super::translation::{Subject, Translation};
use super::{access_format, values};

const SYSLOG: &str = "write `--logger syslog:NAME`, or `--logger rsyslog:HOST:PORT,NAME`";
/// The value of Bolide's own option is the name of the program, which may be omitted.
const SYSLOG_ON: &[ServerWord] = &[("true", &[("log-syslog", "")])];
const COLORS: &str = "colors are for terminals, and `NO_COLOR=1` in the environment turns them off";
const METRICS: &str = "write `--metrics 127.0.0.1:9090`, the address at which Prometheus finds `/metrics`";
const NO_LEVELS: &str = "lines of all levels are written, and `disable-logging` turns request lines off";

pub const FLAGS: &[ServerSetting] = settings![
    /// `-` and `/dev/stdout` are standard output. Without it, requests are not logged if there is a file for the other lines
    flag("access-logfile", &[Gunicorn, Hypercorn], Kept(Subject::AccessLog, values::as_it_is, "`req-logger = file:FILE`"))
        .setting("accesslog"),
    switch("access-log", &[Uvicorn, Granian], Done("requests are logged")),
    flag("access-log", &[Hypercorn, Daphne], Kept(Subject::AccessLog, values::as_it_is, "`req-logger = file:FILE`")),
    switch("no-access-log", &[Uvicorn, Granian], Fixed(&[("disable-logging", "true")])),
    /// gunicorn's variables become uWSGI's. A variable without an equivalent becomes `-`, with a warning
    flag("access-logformat", &[Gunicorn, Hypercorn], Made(access_format::take, "`log-format = FORMAT`"))
        .setting("access_log_format"),
    /// granian's variables become uWSGI's. A variable without an equivalent becomes `-`, with a warning
    flag("access-log-fmt", &[Granian], Made(access_format::take_granian, "`log-format = FORMAT`")),
    flag("log-fmt", &[Daphne], Nothing("the server's own lines have one format, and `log-format` is that of request lines")),
    flag(
        "error-logfile",
        &[Gunicorn, Hypercorn],
        Kept(Subject::ErrorLog, values::as_it_is, "`logto = FILE`, `log-output = false`"),
    )
    .setting("errorlog"),
    flag("log-file", &[Gunicorn, Hypercorn], Kept(Subject::ErrorLog, values::as_it_is, "`logto = FILE`, `log-output = false`")),
    flag("error-log", &[Hypercorn], Kept(Subject::ErrorLog, values::as_it_is, "`logto = FILE`, `log-output = false`")),
    /// the server writes its lines of all levels: `info` and below change nothing, and `warning` and above turn request lines
    /// off, unless an access log is configured
    flag("log-level", &[Gunicorn, Uvicorn, Granian, Hypercorn], Made(level, "`disable-logging = true` for `warning` and above"))
        .setting("loglevel"),
    flag("verbosity", &[Daphne], Nothing(NO_LEVELS)).letter('v'),
    switch("verbose", &[FastApi], Nothing(NO_LEVELS)).letter('v'),
    switch("log", &[Granian], Done("it is on")),
    switch("no-log", &[Granian], Refused("write `--disable-logging` for requests, or `--logto /dev/null` for all")),
    flag("log-config", &[Gunicorn, Uvicorn, Granian, Hypercorn], Same).setting("logconfig").in_file(Made(python_logging, "")),
    flag("log-config-json", &[Gunicorn], Same).setting("logconfig_json").in_file(Made(python_logging, "")),
    flag("logger-class", &[Gunicorn], Nothing("the server's own lines are not written by Python")).setting("logger_class"),
    /// without it, the application's output does not go to the file of `--error-logfile`
    switch("capture-output", &[Gunicorn], Kept(Subject::CaptureOutput, values::as_it_is, "`log-output`"))
        .setting("capture_output"),
    switch("enable-stdio-inheritance", &[Gunicorn], Done("the application's output is always inherited"))
        .letter('R').setting("enable_stdio_inheritance"),
    switch("log-syslog", &[Gunicorn], Worded(SYSLOG_ON, |_| None)).setting("syslog"),
    flag("log-syslog-to", &[Gunicorn], Made(syslog_to, "`logger = rsyslog:HOST:PORT`, or `log-syslog`")).setting("syslog_addr"),
    flag("log-syslog-prefix", &[Gunicorn], Nothing("syslog has the name that `log-syslog = NAME` says")).setting("syslog_prefix"),
    flag("log-syslog-facility", &[Gunicorn], Nothing("the facility is `daemon`, or that of `log-syslog = NAME,FACILITY`"))
        .setting("syslog_facility"),
    switch("disable-redirect-access-to-syslog", &[Gunicorn], Nothing("request lines go where `req-logger` says"))
        .setting("disable_redirect_access_to_syslog"),
    switch("use-colors", &[Uvicorn], Nothing(COLORS)),
    switch("no-use-colors", &[Uvicorn], Nothing(COLORS)),
    switch("log-socket-errors", &[Waitress], Nothing("a client that leaves is not an error")),
    switch("no-log-socket-errors", &[Waitress], Done("a client that leaves is not an error")),
    switch("expose-tracebacks", &[Waitress], Option("catch-exceptions")),
    switch("no-expose-tracebacks", &[Waitress], Done("tracebacks go to the log only")),
    /// the numbers are Bolide's ([monitoring](monitoring.md))
    flag(
        "statsd-host",
        &[Gunicorn, Hypercorn],
        Kept(Subject::StatsdHost, values::as_it_is, "`stats-push = statsd:HOST:PORT,PREFIX`"),
    )
    .setting("statsd_host"),
    flag(
        "statsd-prefix",
        &[Gunicorn, Hypercorn],
        Kept(Subject::StatsdPrefix, values::without_dots, "`stats-push = statsd:HOST:PORT,PREFIX`"),
    )
    .setting("statsd_prefix"),
    flag("dogstatsd-tags", &[Gunicorn], Nothing("`stats-push` sends numbers without tags")).setting("dogstatsd_tags"),
    switch("enable-backlog-metric", &[Gunicorn], Done("the statistics include the queue of each socket"))
        .setting("enable_backlog_metric"),
    switch("metrics", &[Granian], Taken(values::never, METRICS)),
    switch("no-metrics", &[Granian], Done("there are none unless `metrics` names an address")),
    flag("metrics-scrape-interval", &[Granian], Refused(METRICS)),
    flag("metrics-address", &[Granian], Refused(METRICS)),
    flag("metrics-port", &[Granian], Refused(METRICS)),
    switch("spew", &[Gunicorn], Nothing("Bolide has no such trace, but SIGUSR1 writes the state of each worker to the log"))
        .setting("spew"),
    of_file("logconfig_dict", Made(python_logging, "")),
];

fn level(to: &mut Translation, text: &str) -> Result<(), String> {
    let word = text.to_ascii_lowercase();
    to.log_level = Some(word.clone());
    // The numbers are those of Python's `logging`, in which INFO is 20.
    let is_above = match (word.as_str(), word.parse::<u32>()) {
        ("critical" | "error" | "warning" | "warn", _) => true,
        ("info" | "notset", _) => false,
        ("debug" | "trace", _) => {
            to.note(format!("the server writes its lines of all levels: `{text}` logs no more than `info`"));
            false
        }
        (_, Ok(number)) => number > 20,
        _ => return Err("write one of `debug`, `info`, `warning`, `error` and `critical`".to_owned()),
    };
    // The log level of gunicorn and hypercorn does not apply to their access logs.
    to.quiet = is_above && !matches!(to.server(), Some(Gunicorn | Hypercorn));
    Ok(())
}

/// gunicorn's `udp://HOST:PORT` and `unix:///dev/log`.
fn syslog_to(to: &mut Translation, address: &str) -> Result<(), String> {
    if let Some(place) = address.strip_prefix("udp://").filter(|place| !place.is_empty()) {
        to.add("logger", &format!("rsyslog:{place}"));
        return Ok(());
    }
    let path = address.strip_prefix("unix://").and_then(|path| path.split('#').next());
    if path != Some(SYSLOG_SOCKET) {
        return Err(SYSLOG.to_owned());
    }
    to.add("log-syslog", "");
    Ok(())
}

/// The prototype executes the file and applies it.
fn python_logging(to: &mut Translation, _: &str) -> Result<(), String> {
    to.note(
        "it configures Python's `logging` before the application is loaded; the server's own lines and request lines go where \
        `logger` and `req-logger` say",
    );
    Ok(())
}
