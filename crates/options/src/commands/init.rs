//! `bolide init`: looks at the folder it is started in, and writes a short `bolide.ini` that runs
//! what it found there. Asks nothing, and never overwrites.

use std::path::Path;

use crate::command_table::Command;
use crate::diagnostic::Diagnostic;
use crate::host_info::HostInfo;
use crate::reading::Reading;

const FILE: &str = "bolide.ini";
/// A source file is looked at so far; what is asked for stands near its beginning.
const MOST_SOURCE_BYTES: usize = 256 * 1024;
/// Where people keep their virtualenv.
const ENVIRONMENTS: &[&str] = &[".venv", "venv", "env", ".virtualenv"];
/// Where people keep their application, likeliest first.
const SOURCES: &[&str] = &["wsgi.py", "asgi.py", "app.py", "application.py", "main.py", "server.py", "run.py"];
/// Frameworks that make WSGI applications, by the call that makes one.
const WSGI_CALLS: &[(&str, &str)] = &[
    ("Flask(", "Flask"),
    ("Bottle(", "Bottle"),
    ("default_app(", "Bottle"),
    ("falcon.App(", "Falcon"),
    ("make_wsgi_app(", "Pyramid"),
];
/// Frameworks that make ASGI applications; first what is put around the others.
const ASGI_CALLS: &[(&str, &str)] = &[
    ("socketio.ASGIApp(", "Socket.IO"),
    ("FastAPI(", "FastAPI"),
    ("Starlette(", "Starlette"),
    ("Quart(", "Quart"),
    ("Litestar(", "Litestar"),
    ("falcon.asgi.App(", "Falcon"),
    ("get_asgi_application(", "Django"),
];

/// The application that a folder was found to have.
struct Found {
    what: String,
    application: Named,
}

/// The options that name an application.
enum Named {
    /// `asgi`, with the module and its callable.
    Asgi(String),
    /// `module`, with the module and its callable.
    Module(String),
    /// `wsgi-file`, and `callable` where it is not uWSGI's default.
    File(String, Option<String>),
}

/// An ASGI application whose name is not plain.
struct Unnamed {
    framework: &'static str,
    file: &'static str,
}

pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    if let Some(extra) = arguments.first() {
        return Command::Init.misused(&format!("`{extra}`: it takes no arguments"));
    }
    let folder = &host.folder;
    let target = folder.join(FILE);
    let failed = |message: String, advice: &str| Reading::Print {
        text: format!("{}\n", Diagnostic::error(None, message).advise(advice)),
        status: 1,
    };
    if target.exists() {
        return failed(format!("{FILE} is already there"), "remove it first, or look at it with `bolide check bolide.ini`");
    }
    let found = match look(folder) {
        Ok(Some(found)) => found,
        Ok(None) => {
            return failed(
                "there is no application that I know in this folder".to_owned(),
                "name one: `bolide package.module:callable`",
            );
        }
        Err(Unnamed { framework, file }) => {
            let module = file.trim_end_matches(".py");
            return failed(
                format!("{file} makes a {framework} application, but I can't tell what it is called"),
                &format!("name it: `bolide {module}:NAME`, or `bolide '{module}:FUNCTION()'` for a function that returns it"),
            );
        }
    };
    let text = configuration(&found, environment(folder));
    match std::fs::write(&target, &text) {
        Ok(()) => Reading::Print {
            text: format!("{FILE} is written for {}. Start it with: bolide {FILE}\n\n{text}", found.what),
            status: 0,
        },
        Err(error) => failed(format!("can't write {}: {error}", target.display()), "is the folder writable?"),
    }
}

/// The application of a folder.
fn look(folder: &Path) -> Result<Option<Found>, Unnamed> {
    if let Some(found) = django(folder) {
        return Ok(Some(found));
    }
    let mut unnamed = None;
    for name in SOURCES {
        let Some(source) = source(&folder.join(name)) else { continue };
        if let Some((call, framework)) = ASGI_CALLS.iter().find(|(call, _)| source.contains(call)) {
            let Some(callable) = assigned(&source, call) else {
                unnamed = unnamed.or(Some(Unnamed { framework, file: name }));
                continue;
            };
            return Ok(Some(Found {
                what: format!("a {framework} application in {name}"),
                application: Named::Asgi(format!("{}:{callable}", name.trim_end_matches(".py"))),
            }));
        }
        let framework = WSGI_CALLS.iter().find(|(call, _)| source.contains(call));
        let callable = framework.and_then(|(call, _)| assigned(&source, call)).or_else(|| defined(&source));
        if let Some(callable) = callable {
            let what = framework.map_or_else(
                || format!("the WSGI application in {name}"),
                |(_, framework)| format!("a {framework} application in {name}"),
            );
            return Ok(Some(Found {
                what,
                application: Named::File((*name).to_owned(), Some(callable).filter(|name| name != "application")),
            }));
        }
    }
    match unnamed {
        Some(unnamed) => Err(unnamed),
        None => Ok(None),
    }
}

/// `manage.py` names the settings, and beside them lie `wsgi.py` and `asgi.py`. Every new project has both; the one that its author
/// wants is ASGI where the settings name an ASGI application, as Channels has it.
fn django(folder: &Path) -> Option<Found> {
    let manage = source(&folder.join("manage.py"))?;
    let after = manage.split("DJANGO_SETTINGS_MODULE").nth(1)?;
    let settings = after.split(['"', '\'']).find(|part| {
        part.contains('.') && part.chars().all(|character| character.is_alphanumeric() || "._".contains(character))
    })?;
    let package = settings.split('.').next()?;
    let has = |name: &str| folder.join(package).join(name).exists();
    let asgi = source(&folder.join(format!("{}.py", settings.replace('.', "/"))))
        .is_some_and(|settings| settings.lines().any(|line| line.starts_with("ASGI_APPLICATION")));
    let application = match (has("wsgi.py"), has("asgi.py")) {
        (wsgi, true) if asgi || !wsgi => Named::Asgi(format!("{package}.asgi:application")),
        (true, _) => Named::Module(format!("{package}.wsgi:application")),
        (false, _) => return None,
    };
    Some(Found { what: format!("the Django project `{package}`"), application })
}

fn source(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_SOURCE_BYTES)]).into_owned())
}

/// The name at the left of `name = …call(…`, at the start of a line.
fn assigned(source: &str, call: &str) -> Option<String> {
    source.lines().filter(|line| line.contains(call)).find_map(|line| {
        let (name, _) = line.split_once('=')?;
        let name = name.split(':').next()?.trim_end();
        is_name(name).then(|| name.to_owned())
    })
}

/// A callable that is usually one, at the start of a line.
fn defined(source: &str) -> Option<String> {
    let defines = |line: &str, name: &str| {
        line.strip_prefix("def ").is_some_and(|rest| rest.starts_with(&format!("{name}(")))
            || line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    ["application", "app"].iter().find(|name| source.lines().any(|line| defines(line, name))).map(|name| (*name).to_owned())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_alphanumeric() || character == '_')
}

fn environment(folder: &Path) -> Option<&'static str> {
    ENVIRONMENTS.iter().copied().find(|name| folder.join(name).join("pyvenv.cfg").exists())
}

fn configuration(found: &Found, environment: Option<&str>) -> String {
    let application = match &found.application {
        Named::Asgi(value) => format!("asgi = {value}\n"),
        Named::Module(value) => format!("module = {value}\n"),
        Named::File(value, None) => format!("wsgi-file = {value}\n"),
        Named::File(value, Some(callable)) => format!("wsgi-file = {value}\ncallable = {callable}\n"),
    };
    let workers = match &found.application {
        Named::Asgi(_) => {
            "; One worker for each CPU. Each has an event loop, and serves as many requests at once as come.\nprocesses = auto\n"
        }
        Named::Module(_) | Named::File(..) => {
            "; One worker for each CPU. Threads share a worker; the application must be thread-safe for them.\n\
             processes = auto\n\
             threads = 1\n\
             \n\
             ; A request that takes longer, in seconds, loses its worker.\n\
             harakiri = 60\n"
        }
    };
    let environment = environment
        .map(|name| format!("\n; The interpreter and the packages of this virtualenv.\nvirtualenv = %d{name}\n"))
        .unwrap_or_default();
    format!(
        "; Written by `bolide init` for {}. `bolide explain OPTION` tells more of each.\n\
         [uwsgi]\n\
         ; %d is the folder of this file.\n\
         chdir = %d\n\
         {application}{environment}\n\
         ; Where to listen. Behind nginx: socket = /run/app.sock, and `uwsgi_pass unix:/run/app.sock;` there.\n\
         http = 127.0.0.1:8000\n\
         \n\
         {workers}\n\
         ; Unknown options are errors.\n\
         strict = true\n",
        found.what
    )
}
