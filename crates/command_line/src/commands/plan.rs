//! The plan of startup in a few lines: the applications, the addresses, the workers, and where each was set. `bolide config`
//! prints it first. It starts nothing.

use bolide_configuration::diagnostic::Location;
use bolide_contract::settings::{
    Address, Application, ApplicationSource, CgiPlace, Language, Listener, Protocol, Settings, Threads,
};
use bolide_options::catalog::catalog;
use bolide_options::reader::Configuration;
use bolide_options::resolve::WEB_CONCURRENCY;

/// The flag whose several workers each load the application, without an option for it.
pub const FLAG: &str = "--workers";

/// One line of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanStep {
    pub what: &'static str,
    pub value: String,
    /// A location, or `default`.
    pub from: String,
}

pub fn of(settings: &Settings, read: &Configuration) -> Vec<PlanStep> {
    let step = |what, value: String, from: String| PlanStep { what, value, from };
    let (loading, implied) = (loading(settings), implied_loading(read));
    let mut steps: Vec<PlanStep> = settings
        .applications
        .iter()
        .map(|one| {
            let from = implied.clone().unwrap_or_else(|| one.origin.clone());
            step("application", format!("{}, {loading}", application(one)), from)
        })
        .collect();
    if let Language::Cgi(cgi) = &settings.language {
        steps.extend(cgi.places.iter().map(|place| step("application", programs(place), place.origin.clone())));
    }
    steps.extend(settings.listeners.iter().map(|listener| step("address", address(listener), listener.origin.clone())));
    let threads = match (settings.language.programs(), settings.language.greenlets(), settings.workers.threads) {
        (Some(programs), ..) => format!("{programs} programs (CGI)"),
        (None, Some(greenlets), _) => format!("{greenlets} greenlets (gevent)"),
        (None, None, Threads::Fixed(1)) => "1 thread".to_owned(),
        (None, None, Threads::Fixed(count)) => format!("{count} threads"),
        (None, None, Threads::Auto) => format!("1 to {} threads", Threads::MAX_AUTO),
    };
    let workers = match settings.workers.processes {
        1 => format!("1 worker of {threads}"),
        count => format!("{count} workers of {threads}"),
    };
    steps.push(step("workers", workers, origin(read, &["processes", "cheaper", "threads", "gevent"])));
    let directory =
        settings.application.chdir.as_ref().map_or_else(|| ".".to_owned(), |directory| directory.display().to_string());
    steps.push(step("directory", directory, origin(read, &["chdir"])));
    if let Some(virtualenv) = settings.language.python().and_then(|python| python.virtualenv.as_ref()) {
        steps.push(step("Python", virtualenv.join("bin/python").display().to_string(), origin(read, &["virtualenv"])));
    }
    if let Some(user) = &settings.identity.user {
        steps.push(step("user", user.clone(), origin(read, &["uid"])));
    }
    steps
}

/// Which processes load the application.
fn loading(settings: &Settings) -> String {
    match (settings.application.lazy, settings.workers.processes) {
        (true, 1) => "loaded in the worker".to_owned(),
        (true, count) => format!("loaded in each of {count} workers"),
        (false, 1) => "loaded once, the worker is forked from it".to_owned(),
        (false, _) => "loaded once, workers are forked from it".to_owned(),
    }
}

/// The place that makes each worker load the application, if no option does.
fn implied_loading(read: &Configuration) -> Option<String> {
    let places = [FLAG.to_owned(), Location::environment(WEB_CONCURRENCY).to_string()];
    let lazy = read.effects.iter().find(|pair| pair.key == "lazy-apps")?;
    places.into_iter().find(|place| *place == lazy.location.to_string())
}

/// Where one of these options was last set.
fn origin(read: &Configuration, names: &[&str]) -> String {
    let is_one = |key: &str| catalog().get(key).is_some_and(|row| names.contains(&row.name()));
    let found = read.effects.iter().rev().find(|pair| is_one(&pair.key));
    found.map_or_else(|| "default".to_owned(), |pair| pair.location.to_string())
}

fn application(one: &Application) -> String {
    let source = match &one.source {
        ApplicationSource::Module(module) => module.clone(),
        ApplicationSource::File(path) | ApplicationSource::Pecan(path) => path.display().to_string(),
        ApplicationSource::Paste(text) => text.clone(),
        ApplicationSource::Text(_) => "the text of `eval`".to_owned(),
    };
    let callable = one.callable.as_ref().map(|callable| format!(":{callable}")).unwrap_or_default();
    let mount = if one.mount.is_empty() { String::new() } else { format!(" at {}", one.mount) };
    format!("{source}{callable}{mount}")
}

fn programs(place: &CgiPlace) -> String {
    let mount = if place.mount.is_empty() { String::new() } else { format!(" at {}", place.mount) };
    format!("{}{mount}, executed for each request (CGI)", place.path.display())
}

fn address(listener: &Listener) -> String {
    let scheme = match (listener.protocol, &listener.tls) {
        (Protocol::Http, Some(_)) => "https",
        (protocol, _) => protocol.word(),
    };
    match &listener.address {
        Address::Tcp { host, port } if host.is_empty() => format!("{scheme}://0.0.0.0:{port}"),
        Address::Tcp { host, port } => format!("{scheme}://{host}:{port}"),
        Address::Unix(path) => format!("{scheme} at {}", path.display()),
        Address::Abstract(name) => format!("{scheme} at @{name}"),
        Address::Descriptor(number) | Address::Passed(number) => format!("{scheme} at descriptor {number}"),
    }
}
