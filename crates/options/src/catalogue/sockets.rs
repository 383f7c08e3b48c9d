//! Rows of the sockets: what is listened on, and how long a peer may take.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::Setting;

const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };

pub const ENTRIES: &[Entry] = &[
    Entry::supported("socket", Setting::Socket, Value::Address, "", "Listen on this address with the uwsgi protocol (or with the one that `protocol` names).")
        .example("socket = /run/app.sock\nsocket = 127.0.0.1:3031\nsocket = @app\nsocket = fd://3\nsocket = unix:/run/app.sock"),
    Entry::supported("uwsgi-socket", Setting::UwsgiSocket, Value::Address, "", "Listen on this address with the uwsgi protocol.")
        .example("uwsgi-socket = 127.0.0.1:3031"),
    Entry::supported("http", Setting::Http, Value::Address, "", "Listen on this address with HTTP/1.1.")
        .uwsgi("uWSGI puts a router process in front of the workers; here the workers speak HTTP themselves, which costs less.")
        .example("http = 127.0.0.1:8080\nhttp = :8080"),
    Entry::supported("http-socket", Setting::HttpSocket, Value::Address, "", "Listen on this address with HTTP/1.1.")
        .uwsgi("uWSGI closes the connection after each answer; here it is kept alive as HTTP/1.1 has it.")
        .example("http-socket = :8080"),
    Entry::supported("http11-socket", Setting::HttpSocket, Value::Address, "", "Listen on this address with HTTP/1.1.")
        .example("http11-socket = :8080"),
    Entry::supported("protocol", Setting::SocketProtocol, Value::Text, "uwsgi", "The protocol of the addresses that `socket` names: `uwsgi`, `http` or `http11`.")
        .example("protocol = http"),
    Entry::supported(
        "listen",
        Setting::Listen,
        Value::Number { least: 0, most: i32::MAX as i64, unit: "connections" },
        "the kernel's own limit",
        "How many new connections the kernel keeps waiting for a socket; 0 is the kernel's own limit.",
    )
    .uwsgi("uWSGI's default is 100, and it does not start with a number above the kernel's limit; here the kernel's limit is the default, and a larger number is cut to it.")
    .example("listen = 1024"),
    Entry::supported("chmod-socket", Setting::ChmodSocket, Value::Text, "the umask", "Mode of the files of UNIX sockets, three octal digits; without a value, 666.")
        .example("chmod-socket = 660"),
    Entry::supported("chown-socket", Setting::ChownSocket, Value::Text, "", "Owner of the files of UNIX sockets: `user` or `user:group`.")
        .example("chown-socket = www-data:www-data"),
    Entry::supported("socket-timeout", Setting::SocketTimeout, SECONDS, "30", "How long a peer of `socket` or `http-socket` may keep a worker waiting for the next byte, or for room to send.")
        .uwsgi("uWSGI's default is 4 seconds, which cuts off slow clients; here they cost no thread, so the default is 30.")
        .example("socket-timeout = 10"),
    Entry::supported("http-timeout", Setting::HttpTimeout, SECONDS, "60", "How long a client of `http` may keep us waiting for the next byte, or for room to send.")
        .example("http-timeout = 120"),
    Entry::supported("http-keepalive", Setting::HttpKeepalive, SECONDS, "65", "How long an idle HTTP connection is kept: 0 or `false` closes after each answer, 1 or `true` keeps the default, more is a number of seconds.")
        .uwsgi("uWSGI's `http` closes after each answer unless this is set, and reads `true` as 0, which is off; here connections are kept by default, and `true` is on.")
        .example("http-keepalive = 75"),
    Entry::planned("shared-socket", Value::Special, "A socket that several others refer to by its number.", "name its address with `http` or `socket`"),
    Entry::accepted("thunder-lock", Value::Switch, "Lets one worker at a time wait for connections.", "workers share the sockets fairly, without a lock"),
    Entry::accepted("http-auto-chunked", Value::Switch, "Answers of unknown length are sent in chunks.", "HTTP/1.1 answers of unknown length are always sent in chunks"),
    Entry::accepted("http-websockets", Value::Switch, "Passes WebSockets on to the application.", "a request for a WebSocket is always recognised, and an ASGI application gets it"),
    Entry::accepted("no-defer-accept", Value::Switch, "Takes connections before their first byte has come.", "waiting connections cost no worker, so accept is never deferred"),
    Entry::accepted("tcp-nodelay", Value::Switch, "Sends small packets at once.", "TCP_NODELAY is always set"),
];
