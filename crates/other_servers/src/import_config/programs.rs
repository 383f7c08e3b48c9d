//! Finds the server that a command line starts, behind everything that may precede its name: variables, `exec`, runners of
//! virtual environments, `python -m`. It must not know the flags of a server.

use super::{Plan, Start};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Gunicorn,
    Uvicorn,
    Hypercorn,
    Granian,
    Waitress,
    Daphne,
    Flask,
    FastApi,
    Uwsgi,
}

const PROGRAMS: &[(&str, Program)] = &[
    ("gunicorn", Program::Gunicorn),
    ("uvicorn", Program::Uvicorn),
    ("hypercorn", Program::Hypercorn),
    ("granian", Program::Granian),
    ("waitress-serve", Program::Waitress),
    ("waitress", Program::Waitress),
    ("daphne", Program::Daphne),
    ("flask", Program::Flask),
    ("fastapi", Program::FastApi),
    ("uwsgi", Program::Uwsgi),
];

/// Programs that run the words that follow them, and how many words of their own come first.
const RUNNERS: &[(&str, usize)] = &[
    ("exec", 0),
    ("env", 0),
    ("nohup", 0),
    ("time", 0),
    ("tini", 0),
    ("dumb-init", 0),
    ("catchsegv", 0),
    ("poetry", 1),
    ("uv", 1),
    ("pipenv", 1),
    ("pdm", 1),
    ("rye", 1),
    ("hatch", 1),
    ("conda", 1),
];

/// Runners that change how the program runs, so that an equivalent has to be configured elsewhere.
const WATCHERS: &[(&str, usize)] =
    &[("ddtrace-run", 0), ("opentelemetry-instrument", 0), ("newrelic-admin", 1), ("sudo", 0), ("gosu", 1), ("su-exec", 1)];

/// Returns the server of a command line, with its arguments; the words before it go into the plan. `None` if there is none.
pub fn found(start: &Start, plan: &mut Plan) -> Option<(Program, Vec<String>)> {
    let mut words = start.words.iter().map(String::as_str).peekable();
    let mut environment = start.environment.clone();
    let mut missing = Vec::new();
    let mut interpreter = None;
    let (program, path) = loop {
        let word = words.next()?;
        let name = word.rsplit('/').next().unwrap_or_default();
        if let Some((variable, value)) = word.split_once('=').filter(|(variable, _)| is_variable(variable)) {
            environment.push((variable.to_owned(), value.to_owned()));
        } else if word.starts_with('-') {
            // An option of a runner, such as tini's `--` or uv's `--no-sync`.
        } else if let Some((_, program)) = PROGRAMS.iter().find(|(known, _)| *known == name) {
            break (*program, word);
        } else if let Some((_, own)) = RUNNERS.iter().find(|(known, _)| *known == name) {
            words.by_ref().take(*own).for_each(drop);
        } else if let Some((_, own)) = WATCHERS.iter().find(|(known, _)| *known == name) {
            missing.push((
                word.to_owned(),
                "its other work around the server is not done: see its documentation for starting within the application",
            ));
            words.by_ref().take(*own).for_each(drop);
        } else if name.starts_with("python") || name.starts_with("pypy") {
            interpreter = Some(word);
        } else {
            return None;
        }
    };
    for (variable, value) in environment {
        plan.option("env", format!("{variable}={value}"));
    }
    for (what, why) in missing {
        plan.missing(what, why);
    }
    if let Some(directory) = [Some(path), interpreter].into_iter().flatten().find_map(environment_of) {
        plan.option("virtualenv", directory);
    }
    Some((program, words.map(str::to_owned).collect()))
}

/// The virtual environment that contains a program, if it exists on this machine.
fn environment_of(path: &str) -> Option<String> {
    let directory = path.rsplit_once("/bin/")?.0;
    std::path::Path::new(directory).join("pyvenv.cfg").exists().then(|| directory.to_owned())
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !name.starts_with(|first: char| first.is_ascii_digit())
}
