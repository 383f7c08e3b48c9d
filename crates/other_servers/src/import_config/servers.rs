//! Translates command lines of other servers to options, by the rows of `other_servers`, and adds those defaults that differ from
//! Bolide's. `gunicorn` translates the settings of gunicorn.

use bolide_options::catalog::catalog;
use bolide_options::row::{Argument, Value};
use bolide_options::server::Server;

use super::Plan;
use super::programs::Program;
use crate::{MadeOption, Subject, Translation};

/// The defaults of a server.
struct ServerDefaults {
    server: Server,
    host: &'static str,
    port: &'static str,
    /// Applications are ASGI by default.
    is_asgi: bool,
    /// It serves its requests in this number of threads.
    threads: Option<&'static str>,
    logs_requests: bool,
}

const fn defaults(server: Server, host: &'static str, port: &'static str, is_asgi: bool) -> ServerDefaults {
    ServerDefaults { server, host, port, is_asgi, threads: None, logs_requests: true }
}

fn defaults_of(program: Program) -> Option<ServerDefaults> {
    Some(match program {
        Program::Gunicorn | Program::Uwsgi => return None,
        Program::Uvicorn => defaults(Server::Uvicorn, "127.0.0.1", "8000", true),
        Program::FastApi => defaults(Server::FastApi, "0.0.0.0", "8000", true),
        Program::Hypercorn => ServerDefaults { logs_requests: false, ..defaults(Server::Hypercorn, "127.0.0.1", "8000", false) },
        Program::Granian => ServerDefaults { logs_requests: false, ..defaults(Server::Granian, "127.0.0.1", "8000", false) },
        Program::Daphne => ServerDefaults { logs_requests: false, ..defaults(Server::Daphne, "127.0.0.1", "8000", true) },
        Program::Waitress => {
            ServerDefaults { logs_requests: false, threads: Some("4"), ..defaults(Server::Waitress, "0.0.0.0", "8080", false) }
        }
        Program::Flask => ServerDefaults { threads: Some("4"), ..defaults(Server::Flask, "127.0.0.1", "5000", false) },
    })
}

/// A parsed command line.
#[derive(Default)]
struct Line {
    positional: Vec<String>,
    /// The flags whose values depend on other flags.
    host: Option<String>,
    port: Option<String>,
    interface: Option<String>,
    application: Option<String>,
}

/// Adds the options for a command line of one of these servers.
pub fn import(program: Program, arguments: &[String], plan: &mut Plan) {
    let Some(defaults) = defaults_of(program) else { return };
    let mut translation = Translation::new(Some(defaults.server));
    let line = read(arguments, &defaults, &mut translation, plan);
    match translation.finish(None) {
        Ok((options, remarks)) => {
            options.into_iter().for_each(|MadeOption { key, value, .. }| plan.option(&key, value));
            remarks.into_iter().for_each(|remark| plan.missing(remark.name, remark.message));
        }
        Err(refusal) => plan.missing(refusal.message, refusal.advice),
    }
    application(&line, &defaults, plan);
    let is_bound = plan.keys().any(|key| catalog().get(key).is_some_and(|row| row.value == Value::Address));
    if !is_bound {
        let host = line.host.as_deref().unwrap_or(defaults.host);
        let host = if host.contains(':') && !host.starts_with(['[', '$']) { format!("[{host}]") } else { host.to_owned() };
        plan.option("http", format!("{host}:{}", line.port.as_deref().unwrap_or(defaults.port)));
    }
    if plan.keys().any(|key| catalog().get(key).is_some_and(|row| row.name() == "processes")) {
        // Each worker imports the application.
        plan.option("lazy-apps", "true");
    }
    if let Some(threads) = defaults.threads.filter(|_| !plan.has("threads")) {
        plan.option("threads", threads);
    }
    let logs = defaults.logs_requests || arguments.iter().any(|word| word.starts_with("--access-log"));
    if !logs && !plan.has("disable-logging") {
        plan.option("disable-logging", "true");
    }
}

fn read(arguments: &[String], defaults: &ServerDefaults, translation: &mut Translation, plan: &mut Plan) -> Line {
    let mut line = Line::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            line.positional.push(word.clone());
            continue;
        }
        let Some((flag, given)) = crate::of_word(defaults.server, word) else {
            // A word of a single dash is a value, such as that of a flag which is not known.
            if word != "-" {
                plan.missing(word.clone(), format!("{} has no such flag", defaults.server.command()));
            }
            continue;
        };
        let value = match (flag.argument, given) {
            (Argument::Required, None) => words.next().cloned().unwrap_or_default(),
            (_, given) => given.unwrap_or_default().to_owned(),
        };
        match flag.flag {
            "host" => line.host = Some(value),
            "port" => line.port = Some(value),
            "bind" if defaults.server == Server::Daphne => line.host = Some(value),
            // They are addresses there, like `bind`.
            "insecure-bind" | "listen" => {
                value.split([',', ' ']).filter(|text| !text.is_empty()).for_each(|one| translation.keep(Subject::Bind, one));
            }
            "app" => line.application = Some(value),
            name => {
                if name == "interface" {
                    line.interface = Some(value.clone());
                }
                if let Err(refusal) = translation.translate(flag, &value) {
                    plan.missing(format!("--{name} {value}").trim_end().to_owned(), refusal.advice);
                }
            }
        }
    }
    line
}

/// Adds the option of the application.
fn application(line: &Line, defaults: &ServerDefaults, plan: &mut Plan) {
    let is_framework = matches!(defaults.server, Server::Flask | Server::FastApi);
    let skipped = usize::from(is_framework && line.positional.first().is_some_and(|word| word == "run" || word == "dev"));
    let named = match defaults.server {
        // In `fastapi run FILE --app NAME` the flag contains only the name.
        Server::FastApi => line.positional.get(skipped),
        _ => line.application.as_ref().or_else(|| line.positional.get(skipped)),
    };
    let default = if defaults.server == Server::Flask { "app" } else { "main" };
    let named = named.map_or(default, String::as_str);
    // A file is named by its path, a module by its dotted name.
    let (module, callable) = named.split_once(':').map_or((named, None), |(module, callable)| (module, Some(callable)));
    let module = module.trim_start_matches("./").trim_end_matches(".py").replace('/', ".");
    let usual = if is_framework {
        line.application.as_deref().filter(|_| defaults.server == Server::FastApi).unwrap_or("app")
    } else {
        "application"
    };
    // Hypercorn puts the interface before the name.
    let (module, callable) = match (module.as_str(), callable) {
        ("asgi" | "wsgi", Some(rest)) if rest.contains(':') => rest.split_once(':').unwrap_or((rest, usual)),
        (module, callable) => (module, callable.unwrap_or(usual)),
    };
    let is_asgi = match line.interface.as_deref() {
        Some("wsgi") => false,
        Some("asgi" | "asginl" | "asgi3" | "asgi2") => true,
        _ => defaults.is_asgi,
    };
    if defaults.server == Server::Granian && matches!(line.interface.as_deref(), None | Some("rsgi")) {
        plan.missing(
            "--interface rsgi",
            "RSGI is granian's own interface: the application is served over WSGI or ASGI, if it has one of them",
        );
    }
    plan.option(if is_asgi { "asgi" } else { "module" }, format!("{module}:{callable}"));
}
