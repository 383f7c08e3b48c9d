//! Flags about the application: where it lies, what it is, and what it finds.

use super::row::Meaning::{Fixed, Made, Mostly, Nothing, Option, Refused, Same, Taken, Worded};
use super::row::{Flag, ForeignWord};
use super::server::Server::{Daphne, FastApi, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};
use super::translation::Translation;

/// Words of uvicorn and granian. Of what is ASGI, the two versions are told apart by themselves.
const INTERFACES: &[ForeignWord] = &[
    ("asgi3", &[("interface", "asgi")]),
    ("asgi2", &[("interface", "asgi")]),
    ("asginl", &[("interface", "asgi"), ("lifespan", "off")]),
];
const ONE_WEBSOCKET: &str = "leave it out: there is one implementation of WebSockets";

pub const FLAGS: &[Flag] = &[
    Flag::new("app-dir", &[Uvicorn], Option("pythonpath")),
    Flag::new("chdir", &[Gunicorn], Same).setting("chdir"),
    Flag::new("working-dir", &[Granian], Option("chdir")),
    Flag::new("pythonpath", &[Gunicorn], Mostly(several_folders))
        .setting("pythonpath")
        .says("one folder each; gunicorn takes several with commas between them"),
    Flag::new("env", &[Gunicorn], Same).letter('e').setting("raw_env"),
    Flag::new("env-file", &[Uvicorn], Same)
        .says("what is set in the environment already stays, as there; `PORT` and `WEB_CONCURRENCY` count from it"),
    Flag::new("env-files", &[Granian], Option("env-file")),
    Flag::switch("factory", &[Uvicorn, Granian], Same).says("or `module:create_app()`"),
    Flag::switch("no-factory", &[Granian], Nothing("a name without `()` is no factory")),
    Flag::switch("call", &[Waitress], Fixed(&[("factory", "true")])),
    Flag::new("app", &[FastApi], Option("callable")),
    Flag::new("entrypoint", &[FastApi], Refused("write the application alone: `bolide main:app`")).letter('e'),
    Flag::new("interface", &[Uvicorn, Granian], Worded(INTERFACES, interface)).says(
        "usually nothing, since they are told apart; `asgi2` and `asgi3` are `asgi`, and `asginl` is that with `lifespan = off`",
    ),
    Flag::new("lifespan", &[Uvicorn], Same),
    Flag::new("asgi-lifespan", &[Gunicorn], Option("lifespan")).setting("asgi_lifespan"),
    Flag::new("loop", &[Uvicorn, Granian], Same).says("`asyncio`, `uvloop`, `rloop` or `auto`"),
    Flag::new("asgi-loop", &[Gunicorn], Option("loop")).setting("asgi_loop"),
    Flag::new(
        "asgi-disconnect-grace-period",
        &[Gunicorn],
        Refused("leave it out: an application is told at once that its client has left"),
    )
    .setting("asgi_disconnect_grace_period"),
    Flag::new(
        "application-close-timeout",
        &[Daphne],
        Refused("leave it out: an application is told at once that its client has left"),
    ),
    Flag::new("ws", &[Uvicorn], Made(websockets, "nothing")).says("there is one implementation"),
    Flag::switch("ws", &[Granian], Nothing("WebSockets are always served")),
    Flag::switch(
        "no-ws",
        &[Granian],
        Refused("leave it out: an application that takes no WebSockets answers them with 403 or 404 itself"),
    ),
    Flag::new("ws-max-size", &[Uvicorn], Option("websocket-max-message-size")),
    Flag::new("websocket-max-message-size", &[Gunicorn, Daphne], Same).setting("websocket_max_message_size"),
    Flag::new(
        "websocket-max-frame-size",
        &[Daphne],
        Refused("write `--websocket-max-message-size BYTES`: a frame is bounded with its message"),
    ),
    Flag::new("ws-max-queue", &[Uvicorn], Refused("leave it out: what waits is bounded in bytes")),
    Flag::new("ws-ping-interval", &[Uvicorn], Option("websocket-ping-interval")),
    Flag::new("ws-ping-timeout", &[Uvicorn], Option("websocket-ping-timeout")),
    Flag::new("websocket-ping-interval", &[Hypercorn], Same),
    Flag::new("ping-interval", &[Daphne], Option("websocket-ping-interval")),
    Flag::new("ping-timeout", &[Daphne], Taken(never, "write `--websocket-ping-timeout SECONDS`")),
    Flag::new("ws-per-message-deflate", &[Uvicorn], Option("websocket-compression")),
    Flag::new(
        "websocket_timeout",
        &[Daphne],
        Refused("leave it out: a WebSocket may be open for as long as its peer answers pings"),
    ),
    Flag::new(
        "websocket_connect_timeout",
        &[Daphne],
        Refused("leave it out: `--http-timeout SECONDS` limits what a client may keep a worker waiting"),
    ),
    Flag::switch("reset-contextvars", &[Uvicorn], Nothing("each request has context variables of its own")),
    Flag::new("paste", &[Gunicorn], Same).setting("paste"),
    Flag::new("paster", &[Gunicorn], Option("paste")),
    Flag::new("paste-global", &[Gunicorn], Refused("leave it out, and write the value into the file of `--paste`"))
        .setting("raw_paste_global_conf"),
];

fn never(_: &str) -> std::option::Option<(String, String)> {
    None
}

fn several_folders(value: &str) -> std::option::Option<(String, String)> {
    value.contains(',').then(|| {
        let each: Vec<String> = value.split(',').map(|folder| format!("--pythonpath {}", folder.trim())).collect();
        (format!("`--pythonpath {value}` would be one folder"), format!("write `{}`", each.join(" ")))
    })
}

fn interface(value: &str) -> std::option::Option<(String, String)> {
    (value == "rsgi").then(|| {
        let instead = "serve the application by ASGI: RSGI is spoken by granian alone";
        (format!("`--interface {value}` is no interface here"), instead.to_owned())
    })
}

fn websockets(_: &mut Translation, value: &str) -> Result<(), String> {
    match value {
        "auto" | "websockets" | "websockets-sansio" | "wsproto" => Ok(()),
        "none" => Err("leave it out: an application that takes no WebSockets answers them with 403 or 404 itself".to_owned()),
        _ => Err(ONE_WEBSOCKET.to_owned()),
    }
}
