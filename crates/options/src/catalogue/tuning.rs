//! Rows of what the kernel is told about sockets.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::Setting;

const BUFFER: Value = Value::Number { least: 0, most: 1_073_741_824, unit: "bytes" };

pub const ENTRIES: &[Entry] = &[
    Entry::supported(
        "so-keepalive",
        Setting::Switch(|draft| &mut draft.tuning.keepalive),
        Value::Switch,
        "off",
        "Have the kernel ask a silent TCP peer whether it is still there (SO_KEEPALIVE).",
    )
    .example("so-keepalive = true"),
    Entry::supported(
        "reuse-port",
        Setting::Switch(|draft| &mut draft.tuning.reuse_port),
        Value::Switch,
        "off",
        "Another instance of the same user may listen at the same address, and the kernel shares the connections out (SO_REUSEPORT). What waits at the socket of an instance that ends is served before its end.",
    )
    .example("reuse-port = true"),
    Entry::supported(
        "freebind",
        Setting::Switch(|draft| &mut draft.tuning.free_bind),
        Value::Switch,
        "off",
        "Listen at an address that is not this machine's yet, as one that moves between two machines (IP_FREEBIND).",
    )
    .example("freebind = true"),
    Entry::supported(
        "socket-sndbuf",
        Setting::Count(|draft| &mut draft.tuning.send_buffer_bytes),
        BUFFER,
        "the kernel's own",
        "Bytes that the kernel keeps of an answer for one client (SO_SNDBUF); it doubles the number, and grows the buffer no more.",
    )
    .example("socket-sndbuf = 65536"),
    Entry::supported(
        "socket-rcvbuf",
        Setting::Count(|draft| &mut draft.tuning.receive_buffer_bytes),
        BUFFER,
        "the kernel's own",
        "Bytes that the kernel keeps of a request until they are read (SO_RCVBUF); it doubles the number, and grows the buffer no more.",
    )
    .example("socket-rcvbuf = 65536"),
    Entry::supported(
        "tcp-fast-open",
        Setting::Count(|draft| &mut draft.tuning.fast_open_queue),
        Value::Number { least: 0, most: 65_535, unit: "connections" },
        "off",
        "Connections of TCP Fast Open (RFC 7413) that may wait: a client that was here before sends its request with its first packet.",
    )
    .example("tcp-fast-open = 256"),
    Entry::supported(
        "abstract-socket",
        Setting::Switch(|draft| &mut draft.abstract_sockets),
        Value::Switch,
        "off",
        "UNIX sockets are names in Linux' abstract space, not files: `/run/app.sock` is `@/run/app.sock`.",
    )
    .example("abstract-socket = true"),
    Entry::accepted(
        "tcp-fast-open-client",
        Value::Switch,
        "Fast Open for connections that uWSGI's routers begin.",
        "no connection to another server is begun",
    ),
    Entry::accepted(
        "so-send-timeout",
        Value::Special,
        "How long the kernel waits for a client that takes nothing.",
        "`socket-timeout` and `http-timeout` bound it, without a thread that waits",
    ),
];
