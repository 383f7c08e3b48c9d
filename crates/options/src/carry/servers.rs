//! Command lines of other servers as options: their flags, and the defaults that differ from ours. gunicorn's settings are in `gunicorn`.

use super::Plan;
use super::programs::Program;

/// What a flag is here.
#[derive(Clone, Copy)]
enum Meaning {
    /// The option of this name, with the flag's value.
    Same(&'static str),
    /// This option with this value.
    Set(&'static str, &'static str),
    Host,
    Port,
    /// A whole address, or several.
    Bind,
    UnixSocket,
    Descriptor,
    Interface,
    Factory,
    /// The application.
    Application,
    AccessLog,
    /// It changes nothing here.
    Nothing,
    /// It is not carried over; what to write instead.
    Missing(&'static str),
}

use Meaning::{
    AccessLog, Application, Bind, Descriptor, Factory, Host, Interface, Missing, Nothing, Port, Same, Set, UnixSocket,
};
use Program::{Daphne, FastApi, Flask, Granian, Hypercorn, Uvicorn, Waitress};

/// Servers, flags, whether a value follows, and what it means.
struct Flag {
    programs: &'static [Program],
    names: &'static [&'static str],
    takes_value: bool,
    meaning: Meaning,
}

const fn value(programs: &'static [Program], names: &'static [&'static str], meaning: Meaning) -> Flag {
    Flag { programs, names, takes_value: true, meaning }
}

const fn switch(programs: &'static [Program], names: &'static [&'static str], meaning: Meaning) -> Flag {
    Flag { programs, names, takes_value: false, meaning }
}

const ALL: &[Program] = &[Uvicorn, Hypercorn, Granian, Waitress, Daphne, Flask, FastApi];
const VARIABLES: &str = "write `env = KEY=VALUE` for each, or have the service manager set them";
const CIPHERS: &str = "name them behind the key: `https = ADDRESS,CERTIFICATE,KEY,CIPHERS`";

const FLAGS: &[Flag] = &[
    value(&[Uvicorn, Granian, Waitress, FastApi], &["--host"], Host),
    value(&[Flask], &["-h", "--host"], Host),
    value(&[Daphne], &["-b", "--bind"], Host),
    value(&[Uvicorn, Granian, Waitress, FastApi], &["--port"], Port),
    value(&[Flask, Daphne], &["-p", "--port"], Port),
    value(&[Hypercorn], &["-b", "--bind", "--insecure-bind"], Bind),
    value(&[Waitress], &["--listen"], Bind),
    value(&[Uvicorn, Granian], &["--uds"], UnixSocket),
    value(&[Daphne], &["-u", "--unix-socket"], UnixSocket),
    value(&[Waitress], &["--unix-socket"], UnixSocket),
    value(&[Uvicorn, Daphne], &["--fd"], Descriptor),
    value(&[Hypercorn], &["-w", "--workers"], Same("processes")),
    value(&[Uvicorn, Granian, FastApi], &["--workers"], Same("processes")),
    value(&[Granian], &["--blocking-threads"], Same("threads")),
    value(&[Waitress], &["--threads"], Same("threads")),
    switch(&[Uvicorn, Granian], &["--factory"], Factory),
    switch(&[Waitress], &["--call"], Factory),
    value(&[Uvicorn, Granian], &["--interface"], Interface),
    value(&[Flask], &["-A", "--app"], Application),
    value(&[Uvicorn], &["--app-dir"], Same("pythonpath")),
    value(&[Granian], &["--working-dir"], Same("chdir")),
    value(&[Uvicorn, Hypercorn, Daphne, FastApi], &["--root-path"], Same("root-path")),
    value(&[Granian], &["--url-path-prefix"], Same("root-path")),
    value(&[Waitress], &["--url-prefix"], Missing("write `mount = /PREFIX=MODULE:CALLABLE` with `manage-script-name = true`")),
    value(&[Waitress], &["--url-scheme"], Missing("the scheme is taken from X-Forwarded-Proto of `trusted-proxies`")),
    value(&[Waitress], &["--trusted-proxy"], Same("trusted-proxies")),
    value(&[Uvicorn, FastApi], &["--forwarded-allow-ips"], Same("trusted-proxies")),
    switch(&[Uvicorn], &["--no-proxy-headers"], Set("proxy-headers", "false")),
    switch(&[FastApi], &["--no-proxy-headers"], Set("proxy-headers", "false")),
    switch(&[Uvicorn, Daphne, FastApi], &["--proxy-headers"], Nothing),
    value(&[Uvicorn, Granian], &["--loop"], Same("loop")),
    value(&[Uvicorn], &["--lifespan"], Same("lifespan")),
    value(&[Uvicorn, Granian, Hypercorn], &["--backlog"], Same("listen")),
    value(&[Uvicorn], &["--limit-concurrency"], Same("limit-concurrency")),
    value(&[Uvicorn], &["--limit-max-requests"], Same("max-requests")),
    value(&[Hypercorn], &["--max-requests"], Same("max-requests")),
    value(&[Uvicorn], &["--timeout-keep-alive"], Same("http-keepalive")),
    value(&[Hypercorn], &["--keep-alive"], Same("http-keepalive")),
    value(&[Uvicorn], &["--timeout-graceful-shutdown"], Same("worker-reload-mercy")),
    value(&[Hypercorn], &["--graceful-timeout"], Same("worker-reload-mercy")),
    value(&[Uvicorn], &["--h11-max-incomplete-event-size"], Same("buffer-size")),
    value(&[Uvicorn], &["--header"], Same("add-header")),
    value(&[Uvicorn], &["--ws-max-size"], Same("websocket-max-message-size")),
    value(&[Uvicorn], &["--ws-ping-interval"], Same("websocket-ping-interval")),
    value(&[Uvicorn], &["--ws-ping-timeout"], Same("websocket-ping-timeout")),
    value(&[Uvicorn], &["--ws-per-message-deflate"], Same("websocket-compression")),
    value(
        &[Uvicorn, Granian],
        &["--http", "--ws", "--ws-max-queue", "--runtime-threads", "--runtime-mode", "--runtime-blocking-threads", "--task-impl"],
        Nothing,
    ),
    value(&[Hypercorn], &["-k", "--worker-class"], Nothing),
    switch(ALL, &["--reload"], Set("py-autoreload", "1")),
    value(
        &[Uvicorn, FastApi, Granian],
        &["--reload-dir", "--reload-include", "--reload-exclude", "--reload-delay", "--reload-paths"],
        Nothing,
    ),
    switch(&[Uvicorn, Granian], &["--no-access-log"], Set("disable-logging", "true")),
    switch(&[Uvicorn, Granian], &["--access-log"], Set("disable-logging", "false")),
    value(&[Hypercorn, Daphne], &["--access-logfile", "--access-log"], AccessLog),
    value(
        &[Hypercorn],
        &["--error-logfile", "--error-log", "--log-file"],
        Missing("write `logto = FILE`; without it the log is the standard error"),
    ),
    value(
        &[Uvicorn, Hypercorn, Granian, FastApi],
        &["--log-config"],
        Missing("the server's own lines are not Python's to write; set up `logging` in the application"),
    ),
    value(&[Uvicorn, Hypercorn, Granian], &["--log-level"], Nothing),
    switch(
        &[Uvicorn, Granian],
        &[
            "--use-colors",
            "--no-use-colors",
            "--no-server-header",
            "--server-header",
            "--date-header",
            "--no-date-header",
            "--log",
            "--respawn-failed-workers",
            "--no-ws",
            "--websockets",
        ],
        Nothing,
    ),
    value(&[Uvicorn, Granian], &["--env-file", "--env-files"], Missing(VARIABLES)),
    value(&[Granian], &["--process-name"], Same("procname-prefix-spaced")),
    value(&[Granian], &["--static-path-mount"], Missing("write `static-map = /PREFIX=FOLDER`")),
    value(&[Hypercorn], &["-c", "--config"], Missing("what that file sets is not read: write each of its settings as an option")),
    value(&[Hypercorn], &["-p", "--pid"], Same("pidfile")),
    value(&[Hypercorn], &["-u", "--user"], Same("uid")),
    value(&[Hypercorn], &["-g", "--group"], Same("gid")),
    value(&[Hypercorn], &["-m", "--umask"], Same("umask")),
    value(&[Hypercorn], &["--certfile"], Same("certfile")),
    value(&[Hypercorn], &["--keyfile"], Same("keyfile")),
    value(&[Hypercorn], &["--ca-certs"], Same("ca-certs")),
    value(&[Uvicorn], &["--ssl-certfile"], Same("certfile")),
    value(&[Granian], &["--ssl-certificate"], Same("certfile")),
    value(&[Uvicorn, Granian], &["--ssl-keyfile"], Same("keyfile")),
    value(&[Uvicorn], &["--ssl-ca-certs"], Same("ca-certs")),
    value(&[Uvicorn], &["--ssl-cert-reqs"], Same("cert-reqs")),
    value(&[Flask], &["--cert"], Same("certfile")),
    value(&[Flask], &["--key"], Same("keyfile")),
    value(&[Uvicorn, Hypercorn], &["--ssl-ciphers", "--ciphers"], Missing(CIPHERS)),
    value(
        &[Uvicorn, Granian, Hypercorn],
        &["--ssl-keyfile-password", "--keyfile-password"],
        Missing("the key without a password: `openssl pkey -in KEY -out NEW`"),
    ),
    switch(&[Flask], &["--debug", "--no-debug", "--no-debugger", "--debugger", "--no-reload", "--with-threads"], Nothing),
    value(&[Flask], &["-e", "--env-file"], Missing(VARIABLES)),
    value(&[FastApi], &["--app"], Nothing),
];

/// The host and port where none is named.
fn default_address(program: Program) -> (&'static str, &'static str) {
    match program {
        Waitress => ("0.0.0.0", "8080"),
        Flask => ("127.0.0.1", "5000"),
        FastApi => ("0.0.0.0", "8000"),
        _ => ("127.0.0.1", "8000"),
    }
}

/// What was said, as far as several flags say it together.
#[derive(Default)]
struct Said {
    host: Option<String>,
    port: Option<String>,
    interface: Option<String>,
    application: Option<String>,
    is_factory: bool,
    has_address: bool,
    has_access_log: bool,
}

/// The options of a command line of one of these servers.
pub fn carry(program: Program, arguments: &[String], plan: &mut Plan) {
    let mut said = Said::default();
    let mut positional = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some((name, given)) = flag_of(word) else {
            positional.push(word.clone());
            continue;
        };
        let Some(flag) = FLAGS.iter().find(|flag| flag.programs.contains(&program) && flag.names.contains(&name)) else {
            plan.missing(word.clone(), "no such flag is known");
            continue;
        };
        let text = match (flag.takes_value, given) {
            (true, None) => words.next().cloned().unwrap_or_default(),
            (_, given) => given.unwrap_or_default().to_owned(),
        };
        act(flag.meaning, name, text, &mut said, plan);
    }
    // `flask run`, `fastapi run main.py`.
    if matches!(program, Flask | FastApi) && positional.first().is_some_and(|first| matches!(first.as_str(), "run" | "dev")) {
        positional.remove(0);
    }
    let application = said.application.clone().or_else(|| positional.into_iter().next());
    application_of(program, application, &said, plan);
    let (host, port) = default_address(program);
    if !said.has_address {
        let host = said.host.unwrap_or_else(|| host.to_owned());
        let host =
            if host.contains(':') && !host.starts_with('[') && !host.starts_with('$') { format!("[{host}]") } else { host };
        plan.option("http", format!("{host}:{}", said.port.unwrap_or_else(|| port.to_owned())));
    }
    defaults(program, said.has_access_log, plan);
}

/// What these servers do unasked, and we do not.
fn defaults(program: Program, has_access_log: bool, plan: &mut Plan) {
    if plan.has("processes") {
        // Each worker imports the application.
        plan.option("lazy-apps", "true");
    }
    if matches!(program, Waitress | Flask) && !plan.has("threads") {
        plan.option("threads", "4");
    }
    let is_quiet = matches!(program, Hypercorn | Granian | Waitress | Daphne) && !has_access_log;
    if is_quiet && !plan.has("disable-logging") {
        plan.option("disable-logging", "true");
    }
}

/// The name of a flag, and the value that is a part of the word.
fn flag_of(word: &str) -> Option<(&str, Option<&str>)> {
    if let Some(long) = word.strip_prefix("--").filter(|long| !long.is_empty()) {
        return Some(match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (&word[..long.len() + 2], None),
        });
    }
    let letter = word.strip_prefix('-')?.chars().next()?;
    let (name, value) = word.split_at(1 + letter.len_utf8());
    Some((name, Some(value).filter(|value| !value.is_empty())))
}

fn act(meaning: Meaning, name: &str, text: String, said: &mut Said, plan: &mut Plan) {
    match meaning {
        Same(key) => plan.option(key, text),
        Set(key, value) => plan.option(key, value),
        Host => said.host = Some(text),
        Port => said.port = Some(text),
        Bind => {
            said.has_address = true;
            for address in text.split([',', ' ']).filter(|address| !address.is_empty()) {
                match address.strip_prefix("unix:") {
                    Some(path) => plan.option("http-socket", path),
                    None if address.contains("://") && !address.starts_with("fd://") => {
                        plan.missing(format!("{name} {address}"), "no such address is known")
                    }
                    None => plan.option("http", address.replacen("*:", "0.0.0.0:", 1)),
                }
            }
        }
        UnixSocket => {
            said.has_address = true;
            plan.option("http-socket", text);
        }
        Descriptor => {
            said.has_address = true;
            plan.option("http-socket", format!("fd://{text}"));
        }
        Interface => said.interface = Some(text),
        Factory => said.is_factory = true,
        Application => said.application = Some(text),
        AccessLog => {
            said.has_access_log = true;
            if text != "-" {
                plan.option("req-logger", format!("file:{text}"));
            }
        }
        Nothing => {}
        Missing(instead) => plan.missing(format!("{name} {text}").trim().to_owned(), instead),
    }
}

/// The option that names the application.
fn application_of(program: Program, named: Option<String>, said: &Said, plan: &mut Plan) {
    let default = if matches!(program, Flask) { "app" } else { "main" };
    let named = named.unwrap_or_else(|| default.to_owned());
    // A file is named by its path, a module by its dots.
    let module = named.trim_start_matches("./").replace(".py", "").replace('/', ".");
    let module = match module.contains(':') {
        true => module,
        false => format!("{module}:{}", if matches!(program, Flask | FastApi) { "app" } else { "application" }),
    };
    let module = module.trim_start_matches("asgi.").trim_start_matches("wsgi.");
    let is_asgi = match (program, said.interface.as_deref()) {
        (_, Some("wsgi")) => false,
        (Uvicorn | Daphne | FastApi, _) | (Granian, Some("asgi" | "asginl")) => true,
        _ => false,
    };
    if matches!(said.interface.as_deref(), Some("rsgi")) || matches!((program, said.interface.as_deref()), (Granian, None)) {
        plan.missing(
            "--interface rsgi",
            "RSGI is granian's own interface: this serves the application by WSGI or ASGI, if it has one of them",
        );
    }
    plan.option(if is_asgi { "asgi" } else { "module" }, module);
    if said.is_factory {
        plan.option("factory", "true");
    }
}
