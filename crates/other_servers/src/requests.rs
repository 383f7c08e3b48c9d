//! Flags for requests and connections: their limits of size and time. Pure data and functions over values.

use bolide_options::server::Server::{Daphne, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};

use super::row::Meaning::{Done, Fixed, Made, Nothing, Option, Refused, Same, Taken, Worded};
use super::row::{ServerSetting, ServerWord, flag, settings, switch};
use super::translation::Translation;
use super::values;

const ONE_BOUND: &str = "write `--buffer-size BYTES`: one limit applies to the whole head";
const WHOLE_HEAD: &str = "one limit applies to the whole head of a request: `buffer-size`, 65536 bytes";
const LARGER_HEAD: &str = "`buffer-size = BYTES` if it is larger than 65536, else nothing";
const FIXED_WINDOWS: &str = "the windows and limits of HTTP/2 are fixed";
const STRICT: &str = "a request that servers may interpret differently is refused";
const ONE_PARSER: &str = "there is one implementation of HTTP";
const HTTP2: &str = "leave it out, because HTTP/2 is available over TLS. `--http2 h2c` enables it without TLS";
const BUFFERS: &str = "buffers have fixed limits, and `limit-post` limits the body of a request";
const LOOP: &str = "there is no asyncore loop";

/// uvicorn's implementations of HTTP, and granian's versions. HTTP/2 is on where there is TLS.
const PROTOCOLS: &[ServerWord] =
    &[("auto", &[]), ("h11", &[]), ("httptools", &[]), ("zttp", &[]), ("1", &[("http2", "off")]), ("2", &[])];

pub const FLAGS: &[ServerSetting] = settings![
    flag("keep-alive", &[Gunicorn, Hypercorn], Made(values::keep_alive, "`http-keepalive = SECONDS`")).setting("keepalive"),
    flag("timeout-keep-alive", &[Uvicorn], Made(values::keep_alive, "`http-keepalive = SECONDS`")),
    flag("channel-timeout", &[Waitress], Made(values::keep_alive, "`http-keepalive = SECONDS`")),
    switch("http1-keep-alive", &[Granian], Done("connections are kept")),
    switch("no-http1-keep-alive", &[Granian], Fixed(&[("http-keepalive", "false")])),
    flag("read-timeout", &[Hypercorn], Option("http-timeout")),
    flag(
        "http-timeout",
        &[Daphne],
        Taken(
            values::never,
            "write `--harakiri SECONDS` for the time of a request: `--http-timeout` is how long a client may delay a worker",
        ),
    )
    .letter('t'),
    flag("http1-header-read-timeout", &[Granian], Made(header_timeout, "`http-timeout = SECONDS`")),
    flag("limit-request-line", &[Gunicorn], Made(head_bytes, LARGER_HEAD)).setting("limit_request_line"),
    flag("limit-request-field_size", &[Gunicorn], Made(head_bytes, LARGER_HEAD)).setting("limit_request_field_size"),
    flag("limit-request-fields", &[Gunicorn], Nothing("a request may have 128 fields")).setting("limit_request_fields"),
    flag("h11-max-incomplete-event-size", &[Uvicorn], Option("buffer-size")),
    flag("max-request-header-size", &[Waitress], Option("buffer-size")),
    flag("http1-buffer-size", &[Granian], Option("buffer-size")),
    flag("max-request-body-size", &[Waitress], Option("limit-post")),
    /// a word is uvicorn's or granian's. An address is uWSGI's
    flag("http", &[Uvicorn, Granian], Worded(PROTOCOLS, |_| None)),
    switch("http2", &[Uvicorn], Taken(http2, HTTP2)),
    flag("http-protocols", &[Gunicorn], Made(http_protocols, "`http2 = on` or `off`")).setting("http_protocols"),
    flag("http2-cleartext", &[Gunicorn], Made(cleartext, "`http2 = h2c`")).setting("http2_cleartext"),
    flag("http-parser", &[Gunicorn], Nothing("there is one implementation of HTTP")).setting("http_parser"),
    flag("http2-max-concurrent-streams", &[Gunicorn, Granian], Nothing(FIXED_WINDOWS)).setting("http2_max_concurrent_streams"),
    flag("http2-initial-window-size", &[Gunicorn], Nothing(FIXED_WINDOWS)).setting("http2_initial_window_size"),
    flag("http2-max-frame-size", &[Gunicorn, Granian], Nothing(FIXED_WINDOWS)).setting("http2_max_frame_size"),
    flag("http2-max-header-list-size", &[Gunicorn], Nothing(WHOLE_HEAD)).setting("http2_max_header_list_size"),
    flag("http2-max-headers-size", &[Granian], Refused(ONE_BOUND)),
    switch("http2-adaptive-window", &[Granian], Nothing(FIXED_WINDOWS)),
    switch("no-http2-adaptive-window", &[Granian], Done("windows are fixed")),
    flag("http2-initial-connection-window-size", &[Granian], Nothing(FIXED_WINDOWS)),
    flag("http2-initial-stream-window-size", &[Granian], Nothing(FIXED_WINDOWS)),
    flag("http2-keep-alive-interval", &[Granian], Nothing(FIXED_WINDOWS)),
    flag("http2-keep-alive-timeout", &[Granian], Nothing(FIXED_WINDOWS)),
    flag("http2-max-send-buffer-size", &[Granian], Nothing(FIXED_WINDOWS)),
    switch("http1-pipeline-flush", &[Granian], Nothing(ONE_PARSER)),
    switch("no-http1-pipeline-flush", &[Granian], Done("there is one implementation of HTTP")),
    switch("permit-obsolete-folding", &[Gunicorn], Nothing(STRICT)).setting("permit_obsolete_folding"),
    switch("strip-header-spaces", &[Gunicorn], Nothing(STRICT)).setting("strip_header_spaces"),
    switch("permit-unconventional-http-method", &[Gunicorn], Nothing(STRICT)).setting("permit_unconventional_http_method"),
    switch("permit-unconventional-http-version", &[Gunicorn], Nothing(STRICT)).setting("permit_unconventional_http_version"),
    switch("casefold-http-method", &[Gunicorn], Nothing(STRICT)).setting("casefold_http_method"),
    /// even `dangerous` does not pass on a field with an underscore that the server or a reverse proxy sets
    flag("header-map", &[Gunicorn], Same).setting("header_map"),
    switch("no-sendfile", &[Gunicorn], Fixed(&[("wsgi-disable-file-wrapper", "true")])).setting_off("sendfile"),
    flag("recv-bytes", &[Waitress], Nothing(BUFFERS)),
    flag("send-bytes", &[Waitress], Nothing(BUFFERS)),
    flag("outbuf-overflow", &[Waitress], Nothing(BUFFERS)),
    flag("outbuf-high-watermark", &[Waitress], Nothing(BUFFERS)),
    flag("inbuf-overflow", &[Waitress], Nothing(BUFFERS)),
    flag("cleanup-interval", &[Waitress], Nothing("`http-keepalive` is all that an idle connection needs")),
    flag("asyncore-loop-timeout", &[Waitress], Nothing(LOOP)),
    switch("asyncore-use-poll", &[Waitress], Nothing(LOOP)),
    flag("channel-request-lookahead", &[Waitress], Nothing("a client that leaves is noticed")),
];

/// granian's is in milliseconds.
fn header_timeout(to: &mut Translation, text: &str) -> Result<(), String> {
    let milliseconds: u64 = text.parse().map_err(|_| "write a number of milliseconds".to_owned())?;
    to.add("http-timeout", &milliseconds.div_ceil(1000).max(1).to_string());
    Ok(())
}

fn http2(value: &str) -> std::option::Option<(String, String)> {
    value.contains(':').then(|| {
        let message = format!("`--http2` has a value here: `on`, `off` or `h2c`, not `{value}`");
        (message, HTTP2.to_owned())
    })
}

fn http_protocols(to: &mut Translation, text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    if !words.iter().all(|word| matches!(*word, "h1" | "h2")) {
        return Err("write `h1` or `h2,h1`: HTTP/3 is not supported".to_owned());
    }
    to.add("http2", if words.contains(&"h2") { "on" } else { "off" });
    Ok(())
}

fn cleartext(to: &mut Translation, text: &str) -> Result<(), String> {
    if !matches!(text, "off" | "false" | "none" | "") {
        to.add("http2", "h2c");
    }
    Ok(())
}

/// Size of a request head without `buffer-size`, in bytes.
const HEAD_BYTES: u64 = 65_536;

fn head_bytes(to: &mut Translation, text: &str) -> Result<(), String> {
    match text.trim().parse::<u64>() {
        Ok(bytes) if bytes > HEAD_BYTES => to.add("buffer-size", text.trim()),
        Ok(_) => to.note(format!("nothing to do: {WHOLE_HEAD}")),
        Err(_) => return Err("write a number of bytes".to_owned()),
    }
    Ok(())
}
