//! `bolide init`: looks at the folder it is started in, and writes a short `bolide.ini` that runs
//! what it found there. Asks nothing, and never overwrites.

use std::path::Path;

use crate::surroundings::Surroundings;
use crate::{Finding, Reading};

const FILE: &str = "bolide.ini";
/// A source file is looked at so far; what is asked for stands near its beginning.
const MOST_SOURCE_BYTES: usize = 256 * 1024;
/// Where people keep their virtualenv.
const ENVIRONMENTS: &[&str] = &[".venv", "venv", "env", ".virtualenv"];
/// Where people keep their application, likeliest first.
const SOURCES: &[&str] = &["wsgi.py", "app.py", "application.py", "main.py", "server.py", "run.py"];
/// Frameworks that make WSGI applications, by the call that makes one.
const WSGI_CALLS: &[(&str, &str)] = &[
    ("Flask(", "Flask"),
    ("Bottle(", "Bottle"),
    ("default_app(", "Bottle"),
    ("falcon.App(", "Falcon"),
    ("make_wsgi_app(", "Pyramid"),
];
/// Frameworks that make ASGI applications.
const ASGI_CALLS: &[(&str, &str)] =
    &[("FastAPI(", "FastAPI"), ("Starlette(", "Starlette"), ("Quart(", "Quart"), ("Litestar(", "Litestar")];

/// What was found.
struct Found {
    what: String,
    /// The option and its value that name the application.
    option: &'static str,
    value: String,
    /// The callable, where the option does not name it.
    callable: Option<String>,
}

pub fn run(arguments: &[String], around: &Surroundings) -> Reading {
    if let Some(extra) = arguments.first() {
        return super::misused("init", &format!("`{extra}`: it takes no arguments"));
    }
    let folder = &around.folder;
    let target = folder.join(FILE);
    let failed = |message: String, advice: &str| Reading::Print {
        text: format!("{}\n", Finding::error(None, message).advise(advice)),
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
        Err(asgi) => {
            return failed(
                format!("this is an application for {asgi}, which is ASGI: Bolide does not serve that yet"),
                "a WSGI application can be served today",
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

/// The application of a folder; an error names a framework that is not served.
fn look(folder: &Path) -> Result<Option<Found>, &'static str> {
    if let Some(found) = django(folder) {
        return Ok(Some(found));
    }
    let mut asgi = None;
    for name in SOURCES {
        let Some(source) = source(&folder.join(name)) else { continue };
        if let Some((_, framework)) = ASGI_CALLS.iter().find(|(call, _)| source.contains(call)) {
            asgi = asgi.or(Some(*framework));
            continue;
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
                option: "wsgi-file",
                value: (*name).to_owned(),
                callable: Some(callable).filter(|name| name != "application"),
            }));
        }
    }
    match asgi {
        Some(framework) => Err(framework),
        None => Ok(None),
    }
}

/// `manage.py` names the settings, and beside them lies `wsgi.py`.
fn django(folder: &Path) -> Option<Found> {
    let manage = source(&folder.join("manage.py"))?;
    let after = manage.split("DJANGO_SETTINGS_MODULE").nth(1)?;
    let settings = after.split(['"', '\'']).find(|part| {
        part.contains('.') && part.chars().all(|character| character.is_alphanumeric() || "._".contains(character))
    })?;
    let package = settings.split('.').next()?;
    folder.join(package).join("wsgi.py").exists().then(|| Found {
        what: format!("the Django project `{package}`"),
        option: "module",
        value: format!("{package}.wsgi:application"),
        callable: None,
    })
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
    let callable = found.callable.as_ref().map(|name| format!("callable = {name}\n")).unwrap_or_default();
    let environment = environment
        .map(|name| format!("\n; The interpreter and the packages of this virtualenv.\nvirtualenv = %d{name}\n"))
        .unwrap_or_default();
    format!(
        "; Written by `bolide init` for {}. `bolide explain OPTION` tells more of each.\n\
         [uwsgi]\n\
         ; %d is the folder of this file.\n\
         chdir = %d\n\
         {} = {}\n\
         {callable}{environment}\n\
         ; Where to listen. Behind nginx: socket = /run/app.sock, and `uwsgi_pass unix:/run/app.sock;` there.\n\
         http = 127.0.0.1:8000\n\
         \n\
         ; One worker for each CPU. Threads share a worker; the application must be thread-safe for them.\n\
         processes = auto\n\
         threads = 1\n\
         \n\
         ; A request that takes longer, in seconds, loses its worker.\n\
         harakiri = 60\n\
         \n\
         ; Unknown options are errors.\n\
         strict = true\n",
        found.what, found.option, found.value
    )
}
