//! Flags about logs and numbers.

use super::access_format;
use super::row::Flag;
use super::row::Meaning::{Fixed, Made, Nothing, Option, Refused, Same};
use super::server::Server::{Daphne, FastApi, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};
use super::translation::Translation;

/// Names of the terminal, where lines go in any case.
const TERMINAL: [&str; 3] = ["-", "/dev/stdout", "/dev/stderr"];

const PYTHONS_LOGGING: &str = "leave it out, and set up `logging` in the application; the server's own lines go where `--logto FILE` says, in the form of `--log-format`";
const SYSLOG: &str = "write `--logger syslog:NAME`, or `--logger rsyslog:HOST:PORT,NAME`";
const COLOURS: &str = "leave it out: colours are for terminals, and `NO_COLOR=1` in the environment has none";
const METRICS: &str = "write `--stats 127.0.0.1:9191`: `uwsgi-exporter` makes a page for Prometheus of it";
const NO_LEVELS: &str = "leave it out: what is logged has one level; `--disable-logging` leaves out the lines of requests";

pub const FLAGS: &[Flag] = &[
    Flag::new("access-logfile", &[Gunicorn, Hypercorn], Made(access_log, "`req-logger = file:FILE`"))
        .setting("accesslog")
        .says("`-` is nothing, since requests are logged; `disable-logging = true` stops it"),
    Flag::switch("access-log", &[Uvicorn, Granian], Nothing("requests are logged")),
    Flag::new("access-log", &[Hypercorn, Daphne], Made(access_log, "`req-logger = file:FILE`")),
    Flag::switch("no-access-log", &[Uvicorn, Granian], Fixed(&[("disable-logging", "true")])),
    Flag::new("access-logformat", &[Gunicorn, Hypercorn], Made(access_format::take, "`log-format = FORMAT`"))
        .setting("access_log_format")
        .says("gunicorn's variables become uWSGI's; one that has no like is an error"),
    Flag::new("access-log-fmt", &[Granian], Refused("write `--log-format FORMAT`, with uWSGI's variables")),
    Flag::new("log-fmt", &[Daphne], Refused("write `--log-format FORMAT`, with uWSGI's variables")),
    Flag::new("error-logfile", &[Gunicorn, Hypercorn], Made(error_log, "`logto = FILE`")).setting("errorlog"),
    Flag::new("log-file", &[Gunicorn, Hypercorn], Made(error_log, "`logto = FILE`")),
    Flag::new("error-log", &[Hypercorn], Made(error_log, "`logto = FILE`")),
    Flag::new("log-level", &[Gunicorn, Uvicorn, Granian, Hypercorn], Made(level, "`disable-logging = true` for `warning` and above"))
        .setting("loglevel")
        .says("what is logged has one level: `info` and below change nothing, `warning` and above leave out the lines of requests, unless an access log is asked for"),
    Flag::new("verbosity", &[Daphne], Refused(NO_LEVELS)).letter('v'),
    Flag::switch("verbose", &[FastApi], Refused(NO_LEVELS)).letter('v'),
    Flag::switch("log", &[Granian], Nothing("it is on")),
    Flag::switch("no-log", &[Granian], Refused("write `--disable-logging` for requests, or `--logto /dev/null` for all")),
    Flag::new("log-config", &[Gunicorn, Uvicorn, Granian, Hypercorn], Refused(PYTHONS_LOGGING)).setting("logconfig"),
    Flag::new("log-config-json", &[Gunicorn], Refused(PYTHONS_LOGGING)).setting("logconfig_json"),
    Flag::new("logger-class", &[Gunicorn], Refused(PYTHONS_LOGGING)).setting("logger_class"),
    Flag::switch("capture-output", &[Gunicorn], Nothing("what the application prints goes to the log")).setting("capture_output"),
    Flag::switch("enable-stdio-inheritance", &[Gunicorn], Nothing("what the application prints goes to the log"))
        .letter('R')
        .setting("enable_stdio_inheritance"),
    Flag::switch("log-syslog", &[Gunicorn], Same).setting("syslog"),
    Flag::new("log-syslog-to", &[Gunicorn], Refused(SYSLOG)).setting("syslog_addr"),
    Flag::new("log-syslog-prefix", &[Gunicorn], Refused(SYSLOG)).setting("syslog_prefix"),
    Flag::new("log-syslog-facility", &[Gunicorn], Refused(SYSLOG)).setting("syslog_facility"),
    Flag::switch("disable-redirect-access-to-syslog", &[Gunicorn], Refused("write `--req-logger file:FILE` beside `--logger syslog:NAME`"))
        .setting("disable_redirect_access_to_syslog"),
    Flag::switch("use-colors", &[Uvicorn], Refused(COLOURS)),
    Flag::switch("no-use-colors", &[Uvicorn], Refused(COLOURS)),
    Flag::switch("log-socket-errors", &[Waitress], Refused("leave it out: a client that leaves is no error")),
    Flag::switch("no-log-socket-errors", &[Waitress], Nothing("a client that leaves is no error")),
    Flag::switch("expose-tracebacks", &[Waitress], Option("catch-exceptions")),
    Flag::switch("no-expose-tracebacks", &[Waitress], Nothing("tracebacks go to the log alone")),
    Flag::new("statsd-host", &[Gunicorn, Hypercorn], Made(statsd_host, "`stats-push = statsd:HOST:PORT,PREFIX`"))
        .setting("statsd_host")
        .says("the numbers are Bolide's ([monitoring](monitoring.md))"),
    Flag::new("statsd-prefix", &[Gunicorn, Hypercorn], Made(statsd_prefix, "`stats-push = statsd:HOST:PORT,PREFIX`")).setting("statsd_prefix"),
    Flag::new("dogstatsd-tags", &[Gunicorn], Refused("leave it out: `stats-push` sends numbers without tags")).setting("dogstatsd_tags"),
    Flag::switch("enable-backlog-metric", &[Gunicorn], Nothing("the queue of each socket is among the numbers")).setting("enable_backlog_metric"),
    Flag::switch("metrics", &[Granian], Refused(METRICS)),
    Flag::switch("no-metrics", &[Granian], Nothing("there are none unless `stats` names an address")),
    Flag::new("metrics-scrape-interval", &[Granian], Refused(METRICS)),
    Flag::new("metrics-address", &[Granian], Refused(METRICS)),
    Flag::new("metrics-port", &[Granian], Refused(METRICS)),
    Flag::switch("spew", &[Gunicorn], Refused("leave it out: SIGUSR1 has the log say what each worker does")).setting("spew"),
];

fn access_log(to: &mut Translation, file: &str) -> Result<(), String> {
    to.has_access_log = true;
    if !TERMINAL.contains(&file) {
        to.add("req-logger", &format!("file:{file}"));
    }
    Ok(())
}

fn error_log(to: &mut Translation, file: &str) -> Result<(), String> {
    to.error_log = Some(file.to_owned()).filter(|file| !TERMINAL.contains(&file.as_str()));
    Ok(())
}

fn level(to: &mut Translation, text: &str) -> Result<(), String> {
    match text.to_ascii_lowercase().as_str() {
        // gunicorn's and hypercorn's level is not about their access logs.
        "critical" | "error" | "warning" | "warn" => to.quiet = !matches!(to.server(), Some(Gunicorn | Hypercorn)),
        "info" | "notset" => {}
        "debug" | "trace" => to.note(format!("`--log-level {text}` says no more than `info`: what is logged has one level")),
        _ => return Err("write one of `debug`, `info`, `warning`, `error` and `critical`".to_owned()),
    }
    Ok(())
}

fn statsd_host(to: &mut Translation, address: &str) -> Result<(), String> {
    to.statsd.0 = Some(address.to_owned());
    Ok(())
}

fn statsd_prefix(to: &mut Translation, prefix: &str) -> Result<(), String> {
    to.statsd.1 = Some(prefix.trim_end_matches('.').to_owned());
    Ok(())
}
