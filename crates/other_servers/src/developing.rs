//! Flags for development, and for the program itself. Pure data and functions over values.

use bolide_options::server::Server::{FastApi, Flask, Granian, Gunicorn, Hypercorn, Uvicorn};

use super::row::Meaning::{Done, Fixed, Made, Nothing, Option, Refused, Same};
use super::row::{ServerSetting, flag, settings, switch};
use super::translation::Translation;

const DEBUG: &str = "`--reload` shows tracebacks in the browser, and `breakpoint()` works in the terminal";
const EXCLUDE: &str = "write `--reload-exclude PATTERN`";

pub const FLAGS: &[ServerSetting] = settings![
    // A configuration file may serve production too: it enables reloading, and nothing else of the development mode.
    /// the [development mode](develop.md). Before a pidfile it is uWSGI's command
    switch("reload", &[Gunicorn, Uvicorn, Granian, Hypercorn, Flask, FastApi], Made(develop, "the same"))
        .setting("reload").in_file(Fixed(&[("py-autoreload", "1")])),
    switch("no-reload", &[Granian, Flask, FastApi], Done("it is off by default")),
    flag("reload-dir", &[Uvicorn], Same).keyword("reload_dirs"),
    flag("reload-paths", &[Granian], Option("reload-dir")),
    flag("reload-include", &[Uvicorn], Same).keyword("reload_includes"),
    flag("reload-exclude", &[Uvicorn], Same).keyword("reload_excludes"),
    flag("reload-delay", &[Uvicorn], Nothing("changes are noticed immediately")),
    flag("reload-tick", &[Granian], Nothing("changes are noticed immediately")),
    flag("reload-engine", &[Gunicorn], Nothing("changes are noticed immediately")).setting("reload_engine"),
    flag("reload-extra-file", &[Gunicorn], Made(extra_files, "`touch-reload = FILE`")).setting("reload_extra_files"),
    flag("extra-files", &[Flask], Made(flask_files, "`touch-reload = FILE`")),
    flag("exclude-patterns", &[Flask], Made(flask_patterns, "`reload-exclude = PATTERN`")),
    flag("reload-ignore-dirs", &[Granian], Made(ignored_directory, "`reload-exclude = NAME/`")),
    flag("reload-ignore-patterns", &[Granian], Refused(EXCLUDE)),
    flag("reload-ignore-paths", &[Granian], Option("reload-exclude")),
    switch("reload-ignore-worker-failure", &[Granian], Done("the old code keeps serving if the new code fails to load")),
    switch(
        "no-reload-ignore-worker-failure",
        &[Granian],
        Refused("leave it out: the old code keeps serving if the new code fails to load"),
    ),
    /// as `--reload`
    switch("debug", &[Flask], Made(debug, "`develop = true`")),
    switch("debug", &[Hypercorn], Nothing("`PYTHONASYNCIODEBUG=1` in the environment turns asyncio's debug mode on")),
    switch("no-debug", &[Flask], Done("it is off")),
    switch("debugger", &[Flask], Nothing(DEBUG)),
    switch("no-debugger", &[Flask], Done("there is none by default")),
    /// gunicorn's file, which is executed as Python, hypercorn's TOML, or a configuration of Bolide or uWSGI
    flag("config", &[Gunicorn, Hypercorn], Same).letter('c').setting("config"),
    switch("check-config", &[Gunicorn], Refused("write `bolide check FILE`")).setting("check_config"),
    switch("print-config", &[Gunicorn], Refused("write `bolide config FILE`")).setting("print_config"),
    switch("version", &[Gunicorn, Uvicorn, Granian], Same).letter_of('v', &[Gunicorn]),
    switch(
        "help",
        &[
            Gunicorn,
            Uvicorn,
            Granian,
            Hypercorn,
            bolide_options::server::Server::Waitress,
            Flask,
            FastApi,
            bolide_options::server::Server::Daphne,
        ],
        Same,
    )
    .letter_of('h', &[Gunicorn, Hypercorn, FastApi, bolide_options::server::Server::Daphne]),
];

fn develop(to: &mut Translation, value: &str) -> Result<(), String> {
    to.add("develop", value);
    Ok(())
}

fn debug(to: &mut Translation, value: &str) -> Result<(), String> {
    to.note("it is read as `--reload`");
    develop(to, value)
}

/// flask separates files and patterns by colons.
fn flask_files(to: &mut Translation, files: &str) -> Result<(), String> {
    files.split(':').filter(|file| !file.is_empty()).for_each(|file| to.add("touch-reload", file));
    Ok(())
}

/// granian's is the name of directories anywhere.
fn ignored_directory(to: &mut Translation, name: &str) -> Result<(), String> {
    to.add("reload-exclude", &format!("{}/", name.trim_end_matches('/')));
    Ok(())
}

fn flask_patterns(to: &mut Translation, patterns: &str) -> Result<(), String> {
    patterns.split(':').filter(|pattern| !pattern.is_empty()).for_each(|pattern| to.add("reload-exclude", pattern));
    Ok(())
}

/// In a file, several values are separated by commas.
fn extra_files(to: &mut Translation, files: &str) -> Result<(), String> {
    files.split(',').map(str::trim).filter(|file| !file.is_empty()).for_each(|file| to.add("touch-reload", file));
    Ok(())
}
