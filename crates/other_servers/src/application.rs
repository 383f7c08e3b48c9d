//! Flags for the application: where it is, its interface, and its environment. Pure data and functions over values.

use bolide_options::server::Server::{Daphne, FastApi, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};

use super::row::Meaning::{Done, Fixed, Listed, Made, Nothing, Option, Refused, Same, Worded};
use super::row::{ServerSetting, ServerWord, flag, of_file, settings, switch};
use super::translation::Translation;

/// Words of uvicorn and granian. The version of ASGI is detected.
const INTERFACES: &[ServerWord] = &[
    ("asgi3", &[("interface", "asgi")]),
    ("asgi2", &[("interface", "asgi")]),
    ("asginl", &[("interface", "asgi"), ("lifespan", "off")]),
];
const NO_WEBSOCKETS: &str = "an application without WebSockets answers them with 403 or 404 itself";
const ONE_WEBSOCKET: &str = "leave it out: there is one implementation of WebSockets";

pub const FLAGS: &[ServerSetting] = settings![
    of_file("wsgi_app", Option("module")),
    flag("app-dir", &[Uvicorn], Option("pythonpath")),
    flag("chdir", &[Gunicorn], Same).setting("chdir"),
    flag("working-dir", &[Granian], Option("chdir")),
    /// one directory per option, where gunicorn accepts several, separated by commas
    flag("pythonpath", &[Gunicorn], Listed(several_directories)).setting("pythonpath"),
    flag("env", &[Gunicorn], Same).letter('e').setting("raw_env"),
    flag("env-file", &[Uvicorn], Same)
        .says("as in uvicorn, existing variables keep their value. `PORT` and `WEB_CONCURRENCY` in the file \
            apply"),
    flag("env-files", &[Granian], Option("env-file")),
    /// or `module:create_app()`
    switch("factory", &[Uvicorn, Granian], Same),
    switch("no-factory", &[Granian], Done("a name without `()` is not a factory")),
    switch("call", &[Waitress], Fixed(&[("factory", "true")])),
    flag("app", &[FastApi], Option("callable")),
    flag("entrypoint", &[FastApi], Refused("write the application alone: `bolide main:app`")).letter('e'),
    flag("interface", &[Uvicorn, Granian], Worded(INTERFACES, interface))
        .says("usually not needed, because Bolide detects it. `asgi2` and `asgi3` are `asgi`, and `asginl` is that with \
            `lifespan = off`"),
    flag("lifespan", &[Uvicorn], Same),
    flag("asgi-lifespan", &[Gunicorn], Option("lifespan")).setting("asgi_lifespan"),
    /// `asyncio`, `uvloop`, `rloop` or `auto`
    flag("loop", &[Uvicorn, Granian], Same),
    flag("asgi-loop", &[Gunicorn], Option("loop")).setting("asgi_loop"),
    flag(
        "asgi-disconnect-grace-period",
        &[Gunicorn],
        Nothing("a task whose client has left gets `http.disconnect`, and may continue"),
    )
    .setting("asgi_disconnect_grace_period"),
    flag("application-close-timeout", &[Daphne], Nothing("an application is notified immediately when its client leaves")),
    /// there is only one implementation
    flag("ws", &[Uvicorn], Made(websockets, "nothing")),
    switch("ws", &[Granian], Done("WebSockets are always served")),
    switch("no-ws", &[Granian], Nothing(NO_WEBSOCKETS)),
    flag("ws-max-size", &[Uvicorn], Option("websocket-max-message-size")),
    flag("websocket-max-message-size", &[Gunicorn, Daphne], Same).setting("websocket_max_message_size"),
    flag(
        "websocket-max-frame-size",
        &[Daphne],
        Refused("write `--websocket-max-message-size BYTES`: it limits a frame together with its message"),
    ),
    flag("ws-max-queue", &[Uvicorn], Nothing("the limit for waiting data is in bytes")),
    flag("ws-ping-interval", &[Uvicorn], Option("websocket-ping-interval")),
    flag("ws-ping-timeout", &[Uvicorn], Option("websocket-ping-timeout")),
    flag("websocket-ping-interval", &[Hypercorn], Same),
    flag("ping-interval", &[Daphne], Option("websocket-ping-interval")),
    flag("ping-timeout", &[Daphne], Option("websocket-ping-timeout")),
    flag("ws-per-message-deflate", &[Uvicorn], Option("websocket-compression")),
    flag("websocket_timeout", &[Daphne], Nothing("a WebSocket may stay open for as long as its peer answers pings")),
    flag("websocket_connect_timeout", &[Daphne], Nothing("`http-timeout` limits how long a client may delay a worker")),
    switch("reset-contextvars", &[Uvicorn], Done("each request has its own context variables")),
    flag("paste", &[Gunicorn], Same).setting("paste"),
    flag("paster", &[Gunicorn], Option("paste")),
    flag("paste-global", &[Gunicorn], Refused("leave it out, and write the value into the file of `--paste`"))
        .setting("raw_paste_global_conf"),
];

fn several_directories(value: &str) -> std::option::Option<(String, String)> {
    value.contains(',').then(|| {
        let each: Vec<String> = value.split(',').map(|directory| format!("--pythonpath {}", directory.trim())).collect();
        (format!("`--pythonpath {value}` would be a single directory"), format!("write `{}`", each.join(" ")))
    })
}

fn interface(value: &str) -> std::option::Option<(String, String)> {
    (value == "rsgi").then(|| {
        let instead = "serve the application over ASGI: only granian supports RSGI";
        (format!("`--interface {value}` is not an interface here"), instead.to_owned())
    })
}

fn websockets(to: &mut Translation, value: &str) -> Result<(), String> {
    match value {
        "auto" | "websockets" | "websockets-sansio" | "wsproto" => Ok(()),
        "none" => {
            to.note(format!("nothing to do: {NO_WEBSOCKETS}"));
            Ok(())
        }
        _ => Err(ONE_WEBSOCKET.to_owned()),
    }
}
