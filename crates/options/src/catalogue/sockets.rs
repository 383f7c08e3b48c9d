//! Rows of the sockets: what is listened on, how long a peer may take, and what the kernel is told.

use bolide_contract::settings::Protocol;

use crate::catalogue::row::{Milestone, OptionEntry, Setting, Value, set};
use crate::resolve::draft::{HTTP_TIMEOUT_SECONDS, SOCKET_TIMEOUT_SECONDS, SocketKind};
use crate::resolve::sockets::OPEN_SOCKET_MODE;
use crate::resolve::values;

const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };

const MODIFIER: Value = Value::Number { least: 0, most: 255, unit: "" };

/// The applications are Python's.
const ONE_PLUGIN: &str = "leave it out: each request is the application's";

/// Their applications speak by `uwsgi.send` and `uwsgi.recv`.
const INSTEAD_OF_RAW: &str = "a WSGI application can take a connection over (`gunicorn.socket` in its environ); `uwsgi.send` and `uwsgi.recv`, by which raw applications speak, are not there yet";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("socket", Setting::Listen(SocketKind::Default), Value::Address, "", "Listen on this address with the uwsgi protocol (or with the one that `protocol` names).")
        .example("socket = /run/app.sock\nsocket = 127.0.0.1:3031\nsocket = @app\nsocket = fd://3\nsocket = unix:/run/app.sock"),
    OptionEntry::supported("uwsgi-socket", Setting::Listen(SocketKind::Of(Protocol::Uwsgi)), Value::Address, "", "Listen on this address with the uwsgi protocol.")
        .example("uwsgi-socket = 127.0.0.1:3031"),
    OptionEntry::supported("puwsgi-socket", Setting::Listen(SocketKind::Of(Protocol::PersistentUwsgi)), Value::Address, "", "Listen on this address with the uwsgi protocol, one request behind the other on a connection.")
        .uwsgi("uWSGI gives the application no body there, and never closes, so that the client of an answer without Content-Length waits for ever; here bodies are read, and such an answer ends with its connection.")
        .example("puwsgi-socket = 127.0.0.1:3031"),
    OptionEntry::supported("fastcgi-socket", Setting::Listen(SocketKind::Of(Protocol::FastCgi)), Value::Address, "", "Listen on this address with FastCGI, as a responder.")
        .uwsgi("uWSGI closes the connection after each answer; here it is kept where the front server asks for it (nginx: `fastcgi_keep_conn on`).")
        .example("fastcgi-socket = /run/app.sock\nfastcgi-socket = 127.0.0.1:9000"),
    OptionEntry::supported("fastcgi-nph-socket", Setting::Listen(SocketKind::Of(Protocol::FastCgiNph)), Value::Address, "", "The same, with a status line of HTTP at the head of each answer in place of CGI's field Status. nginx does not understand it.")
        .example("fastcgi-nph-socket = 127.0.0.1:9000"),
    OptionEntry::refused("fastcgi-modifier1", MODIFIER, "Which of uWSGI's plugins serves requests of FastCGI.", ONE_PLUGIN),
    OptionEntry::refused("fastcgi-modifier2", MODIFIER, "A variant of what `fastcgi-modifier1` names.", ONE_PLUGIN),
    OptionEntry::supported("scgi-socket", Setting::Listen(SocketKind::Of(Protocol::Scgi)), Value::Address, "", "Listen on this address with SCGI.")
        .uwsgi("uWSGI takes what comes; here a request without `SCGI` = 1, or without CONTENT_LENGTH as its first variable, is refused, as the protocol says.")
        .example("scgi-socket = 127.0.0.1:4000"),
    OptionEntry::supported("scgi-nph-socket", Setting::Listen(SocketKind::Of(Protocol::ScgiNph)), Value::Address, "", "The same, with a status line of HTTP at the head of each answer in place of CGI's field Status.")
        .example("scgi-nph-socket = 127.0.0.1:4000"),
    OptionEntry::refused("scgi-modifier1", MODIFIER, "Which of uWSGI's plugins serves requests of SCGI.", ONE_PLUGIN),
    OptionEntry::refused("scgi-modifier2", MODIFIER, "A variant of what `scgi-modifier1` names.", ONE_PLUGIN),
    OptionEntry::planned("raw-socket", Value::Address, Milestone::Services, "Listen on this address, and call what `python-raw` names with the descriptor of each connection.", INSTEAD_OF_RAW),
    OptionEntry::planned("python-raw", Value::Path, Milestone::Services, "A file whose callable gets the descriptors of `raw-socket`.", INSTEAD_OF_RAW),
    OptionEntry::planned("raw-modifier1", MODIFIER, Milestone::Services, "Which of uWSGI's plugins serves the connections of `raw-socket`.", INSTEAD_OF_RAW),
    OptionEntry::planned("raw-modifier2", MODIFIER, Milestone::Services, "A variant of what `raw-modifier1` names.", INSTEAD_OF_RAW),
    OptionEntry::supported("http", Setting::Listen(SocketKind::HttpRouter), Value::Address, "", "Listen on this address with HTTP/1.1.")
        .uwsgi("uWSGI puts a router process in front of the workers; here the workers speak HTTP themselves, which costs less.")
        .example("http = 127.0.0.1:8080\nhttp = :8080"),
    OptionEntry::supported("http-socket", Setting::Listen(SocketKind::Of(Protocol::Http)), Value::Address, "", "Listen on this address with HTTP/1.1.")
        .uwsgi("uWSGI closes the connection after each answer; here it is kept alive as HTTP/1.1 has it.")
        .example("http-socket = :8080"),
    OptionEntry::supported("http11-socket", Setting::Listen(SocketKind::Of(Protocol::Http)), Value::Address, "", "Listen on this address with HTTP/1.1.")
        .example("http11-socket = :8080"),
    OptionEntry::supported("protocol", set!(|draft, _, pair| draft.sockets.protocol = values::protocol(pair)?), Value::Text, "uwsgi", "The protocol of the addresses that `socket` names: `uwsgi`, `puwsgi`, `http` or `http11`, `fastcgi`, `fastcgi-nph`, `scgi`, `scgi-nph`.")
        .example("protocol = http"),
    OptionEntry::supported(
        "listen",
        Setting::Number(|draft| &mut draft.sockets.backlog),
        Value::Number { least: 0, most: i32::MAX as i64, unit: "connections" },
        "the kernel's own limit",
        "How many new connections the kernel keeps waiting for a socket; 0 is the kernel's own limit.",
    )
    .uwsgi("uWSGI's default is 100, and it does not start with a number above the kernel's limit; here the kernel's limit is the default, and a larger number is cut to it.")
    .example("listen = 1024"),
    OptionEntry::supported("chmod-socket", set!(|draft, _, pair| draft.sockets.mode = Some(values::mode(pair)?.unwrap_or(OPEN_SOCKET_MODE))), Value::Text, "the umask", "Mode of the files of UNIX sockets, three octal digits; without a value, 666.")
        .example("chmod-socket = 660"),
    OptionEntry::supported("chown-socket", Setting::Text(|draft| &mut draft.sockets.owner), Value::Text, "", "Owner of the files of UNIX sockets: `user` or `user:group`.")
        .example("chown-socket = www-data:www-data"),
    OptionEntry::supported("socket-timeout", set!(|draft, row, pair| draft.sockets.timeout_s = draft.positive_or(row, pair, SOCKET_TIMEOUT_SECONDS)?), SECONDS, "30", "How long a peer of `socket` or `http-socket` may keep a worker waiting for the next byte, or for room to send.")
        .uwsgi("uWSGI's default is 4 seconds, which cuts off slow clients; here they cost no thread, so the default is 30.")
        .example("socket-timeout = 10"),
    OptionEntry::supported("http-timeout", set!(|draft, row, pair| draft.sockets.http_timeout_s = draft.positive_or(row, pair, HTTP_TIMEOUT_SECONDS)?), SECONDS, "60", "How long a client of `http` may keep us waiting for the next byte, or for room to send.")
        .example("http-timeout = 120"),
    OptionEntry::supported("http-keepalive", set!(|draft, row, pair| draft.limits.keepalive_ms = draft.keepalive_ms(row, pair)?), SECONDS, "65", "How long an idle HTTP connection is kept: 0 or `false` closes after each answer, 1 or `true` keeps the default, more is a number of seconds.")
        .uwsgi("uWSGI's `http` closes after each answer unless this is set, and reads `true` as 0, which is off; here connections are kept by default, and `true` is on.")
        .example("http-keepalive = 75"),
    OptionEntry::refused("shared-socket", Value::Special, "A socket that several others refer to by its number.", "name its address with `http` or `socket`"),
    OptionEntry::accepted("thunder-lock", Value::Switch, "Lets one worker at a time wait for connections.", "workers share the sockets fairly, without a lock"),
    OptionEntry::accepted("http-auto-chunked", Value::Switch, "Answers of unknown length are sent in chunks.", "HTTP/1.1 answers of unknown length are always sent in chunks"),
    OptionEntry::accepted("http-websockets", Value::Switch, "Passes WebSockets on to the application.", "a request for a WebSocket is always recognised, and an ASGI application gets it"),
    OptionEntry::accepted("no-defer-accept", Value::Switch, "Takes connections before their first byte has come.", "waiting connections cost no worker, so accept is never deferred"),
    OptionEntry::accepted("tcp-nodelay", Value::Switch, "Sends small packets at once.", "TCP_NODELAY is always set"),
];

const BUFFER: Value = Value::Number { least: 0, most: 1_073_741_824, unit: "bytes" };

pub const TUNING: &[OptionEntry] = &[
    OptionEntry::supported(
        "so-keepalive",
        Setting::Switch(|draft| &mut draft.sockets.tuning.keepalive),
        Value::Switch,
        "off",
        "Have the kernel ask a silent TCP peer whether it is still there (SO_KEEPALIVE).",
    )
    .example("so-keepalive = true"),
    OptionEntry::supported(
        "reuse-port",
        Setting::Switch(|draft| &mut draft.sockets.tuning.reuse_port),
        Value::Switch,
        "off",
        "Another instance of the same user may listen at the same address, and the kernel shares the connections out (SO_REUSEPORT). What waits at the socket of an instance that ends is served before its end.",
    )
    .example("reuse-port = true"),
    OptionEntry::supported(
        "freebind",
        Setting::Switch(|draft| &mut draft.sockets.tuning.free_bind),
        Value::Switch,
        "off",
        "Listen at an address that is not this machine's yet, as one that moves between two machines (IP_FREEBIND).",
    )
    .example("freebind = true"),
    OptionEntry::supported(
        "socket-sndbuf",
        Setting::Count(|draft| &mut draft.sockets.tuning.send_buffer_bytes),
        BUFFER,
        "the kernel's own",
        "Bytes that the kernel keeps of an answer for one client (SO_SNDBUF); it doubles the number, and grows the buffer no more.",
    )
    .example("socket-sndbuf = 65536"),
    OptionEntry::supported(
        "socket-rcvbuf",
        Setting::Count(|draft| &mut draft.sockets.tuning.receive_buffer_bytes),
        BUFFER,
        "the kernel's own",
        "Bytes that the kernel keeps of a request until they are read (SO_RCVBUF); it doubles the number, and grows the buffer no more.",
    )
    .example("socket-rcvbuf = 65536"),
    OptionEntry::supported(
        "tcp-fast-open",
        Setting::Count(|draft| &mut draft.sockets.tuning.fast_open_queue),
        Value::Number { least: 0, most: 65_535, unit: "connections" },
        "off",
        "Connections of TCP Fast Open (RFC 7413) that may wait: a client that was here before sends its request with its first packet.",
    )
    .example("tcp-fast-open = 256"),
    OptionEntry::supported(
        "abstract-socket",
        Setting::Switch(|draft| &mut draft.sockets.are_abstract),
        Value::Switch,
        "off",
        "UNIX sockets are names in Linux' abstract space, not files: `/run/app.sock` is `@/run/app.sock`.",
    )
    .example("abstract-socket = true"),
    OptionEntry::accepted(
        "tcp-fast-open-client",
        Value::Switch,
        "Fast Open for connections that uWSGI's routers begin.",
        "no connection to another server is begun",
    ),
    OptionEntry::accepted(
        "so-send-timeout",
        Value::Special,
        "How long the kernel waits for a client that takes nothing.",
        "`socket-timeout` and `http-timeout` bound it, without a thread that waits",
    ),
];
