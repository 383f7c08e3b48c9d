//! Flags about development and about the program itself.

use super::row::Flag;
use super::row::Meaning::{Made, Nothing, Option, Refused, Same, Taken};
use super::server::Server::{FastApi, Flask, Granian, Gunicorn, Hypercorn, Uvicorn};
use super::translation::Translation;

const DEBUG: &str =
    "write `--reload`: it reloads, and shows tracebacks of what does not load; `breakpoint()` works with one worker";
const INCLUDE: &str = "write `--reload-include PATTERN`";
const EXCLUDE: &str = "write `--reload-exclude PATTERN`";

pub const FLAGS: &[Flag] = &[
    Flag::switch("reload", &[Gunicorn, Uvicorn, Granian, Hypercorn, Flask, FastApi], Made(develop, "the same"))
        .setting("reload")
        .says("the development mode ([how](develop.md)); before a pidfile it is uWSGI's command"),
    Flag::switch("no-reload", &[Granian, Flask, FastApi], Nothing("it is off unless asked for")),
    Flag::new("reload-dir", &[Uvicorn], Same),
    Flag::new("reload-paths", &[Granian], Option("reload-dir")),
    Flag::new("reload-include", &[Uvicorn], Same),
    Flag::new("reload-exclude", &[Uvicorn], Same),
    Flag::new("reload-delay", &[Uvicorn], Nothing("changes are seen as they are made")),
    Flag::new("reload-tick", &[Granian], Nothing("changes are seen as they are made")),
    Flag::new("reload-engine", &[Gunicorn], Nothing("changes are seen as they are made")).setting("reload_engine"),
    Flag::new("reload-extra-file", &[Gunicorn], Refused(INCLUDE)).setting("reload_extra_files"),
    Flag::new("extra-files", &[Flask], Refused(INCLUDE)),
    Flag::new("exclude-patterns", &[Flask], Refused(EXCLUDE)),
    Flag::new("reload-ignore-dirs", &[Granian], Refused(EXCLUDE)),
    Flag::new("reload-ignore-patterns", &[Granian], Refused(EXCLUDE)),
    Flag::new("reload-ignore-paths", &[Granian], Refused(EXCLUDE)),
    Flag::switch("reload-ignore-worker-failure", &[Granian], Nothing("the old code serves where the new does not load")),
    Flag::switch(
        "no-reload-ignore-worker-failure",
        &[Granian],
        Refused("leave it out: the old code serves where the new does not load"),
    ),
    Flag::switch("debug", &[Flask, Hypercorn], Refused(DEBUG)),
    Flag::switch("no-debug", &[Flask], Nothing("it is off")),
    Flag::switch("debugger", &[Flask], Refused(DEBUG)),
    Flag::switch("no-debugger", &[Flask], Nothing("there is none unless asked for")),
    Flag::new("config", &[Gunicorn, Hypercorn], Taken(never, "write `bolide FILE` for a configuration of Bolide or uWSGI"))
        .letter('c')
        .setting("config"),
    Flag::switch("check-config", &[Gunicorn], Refused("write `bolide check FILE`")).setting("check_config"),
    Flag::switch("print-config", &[Gunicorn], Refused("write `bolide config FILE`")).setting("print_config"),
    Flag::switch("version", &[Gunicorn, Uvicorn, Granian], Same).letter_of('v', &[Gunicorn]),
    Flag::switch(
        "help",
        &[Gunicorn, Uvicorn, Granian, Hypercorn, super::server::Server::Waitress, Flask, FastApi, super::server::Server::Daphne],
        Same,
    )
    .letter_of('h', &[Gunicorn, Hypercorn, FastApi, super::server::Server::Daphne]),
];

fn develop(to: &mut Translation, value: &str) -> Result<(), String> {
    to.add("develop", value);
    Ok(())
}

fn never(_: &str) -> std::option::Option<(String, String)> {
    None
}
