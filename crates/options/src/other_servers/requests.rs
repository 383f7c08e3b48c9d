//! Flags about requests and connections: how large and how long they may be.

use super::row::Flag;
use super::row::Meaning::{Fixed, Made, Nothing, Option, Refused, Taken};
use super::server::Server::{Daphne, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};
use super::translation::Translation;
use super::values;

const ONE_BOUND: &str = "write `--buffer-size BYTES`: one bound for the whole head";
const FIXED_WINDOWS: &str = "leave it out: the windows and bounds of HTTP/2 are fixed";
const STRICT: &str = "leave it out: a request that servers may read differently is refused";
const ONE_PARSER: &str = "leave it out: there is one implementation of HTTP";

pub const FLAGS: &[Flag] = &[
    Flag::new("keep-alive", &[Gunicorn, Hypercorn], Made(values::keep_alive, "`http-keepalive = SECONDS`")).setting("keepalive"),
    Flag::new("timeout-keep-alive", &[Uvicorn], Made(values::keep_alive, "`http-keepalive = SECONDS`")),
    Flag::new("channel-timeout", &[Waitress], Made(values::keep_alive, "`http-keepalive = SECONDS`")),
    Flag::switch("http1-keep-alive", &[Granian], Nothing("connections are kept")),
    Flag::switch("no-http1-keep-alive", &[Granian], Fixed(&[("http-keepalive", "false")])),
    Flag::new("read-timeout", &[Hypercorn], Option("http-timeout")),
    Flag::new("http-timeout", &[Daphne], Taken(never, "write `--harakiri SECONDS` for the time of a request: `--http-timeout` is how long a client may keep a worker waiting")).letter('t'),
    Flag::new("http1-header-read-timeout", &[Granian], Refused("write `--http-timeout SECONDS`")),
    Flag::new("limit-request-line", &[Gunicorn], Refused(ONE_BOUND)).setting("limit_request_line"),
    Flag::new("limit-request-field_size", &[Gunicorn], Refused(ONE_BOUND)).setting("limit_request_field_size"),
    Flag::new("limit-request-fields", &[Gunicorn], Refused("leave it out: a request may have 128 fields")).setting("limit_request_fields"),
    Flag::new("h11-max-incomplete-event-size", &[Uvicorn], Option("buffer-size")),
    Flag::new("max-request-header-size", &[Waitress], Option("buffer-size")),
    Flag::new("http1-buffer-size", &[Granian], Option("buffer-size")),
    Flag::new("max-request-body-size", &[Waitress], Option("limit-post")),
    Flag::new("http", &[Uvicorn], Taken(http, "leave it out: there is one implementation of HTTP")),
    Flag::new("http", &[Granian], Taken(http, "write `--http2 off` for HTTP/1.1 alone, `--http2 h2c` for HTTP/2 without TLS")),
    Flag::switch("http2", &[Uvicorn], Taken(http2, "leave it out: HTTP/2 is spoken within TLS; `--http2 h2c` speaks it without")),
    Flag::new("http-protocols", &[Gunicorn], Made(http_protocols, "`http2 = on` or `off`")).setting("http_protocols"),
    Flag::new("http2-cleartext", &[Gunicorn], Made(cleartext, "`http2 = h2c`")).setting("http2_cleartext"),
    Flag::new("http-parser", &[Gunicorn], Refused(ONE_PARSER)).setting("http_parser"),
    Flag::new("http2-max-concurrent-streams", &[Gunicorn, Granian], Refused(FIXED_WINDOWS)).setting("http2_max_concurrent_streams"),
    Flag::new("http2-initial-window-size", &[Gunicorn], Refused(FIXED_WINDOWS)).setting("http2_initial_window_size"),
    Flag::new("http2-max-frame-size", &[Gunicorn, Granian], Refused(FIXED_WINDOWS)).setting("http2_max_frame_size"),
    Flag::new("http2-max-header-list-size", &[Gunicorn], Refused(ONE_BOUND)).setting("http2_max_header_list_size"),
    Flag::new("http2-max-headers-size", &[Granian], Refused(ONE_BOUND)),
    Flag::switch("http2-adaptive-window", &[Granian], Refused(FIXED_WINDOWS)),
    Flag::switch("no-http2-adaptive-window", &[Granian], Nothing("windows are fixed")),
    Flag::new("http2-initial-connection-window-size", &[Granian], Refused(FIXED_WINDOWS)),
    Flag::new("http2-initial-stream-window-size", &[Granian], Refused(FIXED_WINDOWS)),
    Flag::new("http2-keep-alive-interval", &[Granian], Refused(FIXED_WINDOWS)),
    Flag::new("http2-keep-alive-timeout", &[Granian], Refused(FIXED_WINDOWS)),
    Flag::new("http2-max-send-buffer-size", &[Granian], Refused(FIXED_WINDOWS)),
    Flag::switch("http1-pipeline-flush", &[Granian], Refused(ONE_PARSER)),
    Flag::switch("no-http1-pipeline-flush", &[Granian], Nothing("there is one implementation of HTTP")),
    Flag::switch("permit-obsolete-folding", &[Gunicorn], Refused(STRICT)).setting("permit_obsolete_folding"),
    Flag::switch("strip-header-spaces", &[Gunicorn], Refused(STRICT)).setting("strip_header_spaces"),
    Flag::switch("permit-unconventional-http-method", &[Gunicorn], Refused(STRICT)).setting("permit_unconventional_http_method"),
    Flag::switch("permit-unconventional-http-version", &[Gunicorn], Refused(STRICT)).setting("permit_unconventional_http_version"),
    Flag::switch("casefold-http-method", &[Gunicorn], Refused(STRICT)).setting("casefold_http_method"),
    Flag::new("header-map", &[Gunicorn], Refused("leave it out: a field with an underscore in its name never reaches the variables of WSGI")).setting("header_map"),
    Flag::switch("no-sendfile", &[Gunicorn], Refused("write `--wsgi-disable-file-wrapper`, so that applications read files themselves")).setting("sendfile"),
];

fn never(_: &str) -> std::option::Option<(String, String)> {
    None
}

fn http(value: &str) -> std::option::Option<(String, String)> {
    let advice = match value {
        "auto" | "h11" | "httptools" | "zttp" => {
            "leave it out: there is one implementation of HTTP, and HTTP/2 is spoken within TLS"
        }
        "1" => "write `--http2 off` for HTTP/1.1 alone; for the port 1 `--http :1`",
        "2" => "leave it out: HTTP/2 is spoken within TLS, and `--http2 h2c` speaks it without; for the port 2 `--http :2`",
        _ => return None,
    };
    let message = format!("`--http` is an address, as in uWSGI; `--http {value}` is uvicorn's or granian's choice of a protocol");
    Some((message, advice.to_owned()))
}

fn http2(value: &str) -> std::option::Option<(String, String)> {
    value.contains(':').then(|| {
        let message = format!("`--http2` has a value here: `on`, `off` or `h2c`, not `{value}`");
        (message, "leave it out: HTTP/2 is spoken within TLS; `--http2 h2c` speaks it without".to_owned())
    })
}

fn http_protocols(to: &mut Translation, text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    if !words.iter().all(|word| matches!(*word, "h1" | "h2")) {
        return Err("write `h1` or `h2,h1`: HTTP/3 is not spoken".to_owned());
    }
    to.add("http2", if words.contains(&"h2") { "on" } else { "off" });
    Ok(())
}

fn cleartext(to: &mut Translation, text: &str) -> Result<(), String> {
    if !matches!(text, "off" | "false" | "none") {
        to.add("http2", "h2c");
    }
    Ok(())
}
