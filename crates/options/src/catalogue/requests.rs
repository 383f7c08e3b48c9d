//! Rows of the limits on a request. Pure data.

use bolide_contract::settings::Limits;

use crate::catalogue::row::{OptionEntry, Setting, Value, set};
use crate::resolve::sockets::{set_body_memory, set_head_bytes};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::accepted("http-chunked-input", Value::Switch, "Accepts chunked request bodies.", "chunked request bodies are always read"),
    OptionEntry::accepted("http-manage-expect", Value::Special, "Answers `Expect: 100-continue`.", "it is always answered when the body is wanted"),
    OptionEntry::accepted("post-buffering-bufsize", Value::Special, "The size of the buffer for request bodies.", "the buffer grows as needed"),
    OptionEntry::supported("wsgi-strict", Setting::Switch(|draft| &mut draft.python.settings.wsgi_strict), Value::Switch, "off", "A WSGI application that returns `bytes` instead of an iterable of them gets an error, as PEP 3333 specifies: to Python such an object is an iterable of integers. Without this option it is served as one part, as in uWSGI.")
        .example("wsgi-strict = true"),
    OptionEntry::supported("buffer-size", Setting::By(set_head_bytes), Value::Number { least: 0, most: 1_048_576, unit: "bytes" }, "65536", "The maximum size of a request's head in bytes, including the request line (at most 16384); a larger one is answered with 431, or 414 for the request line. Values below 1024 mean 1024, and 0 means the default.")
        .uwsgi("uWSGI's default is 4096, too small for many cookies, its maximum is 65535, and it drops the connection of a larger head.")
        .example("buffer-size = 32768"),
    OptionEntry::supported("post-buffering", Setting::By(set_body_memory), Value::Number { least: 0, most: 1_073_741_824, unit: "bytes" }, "1048576", "Bytes of a request's body that are kept in memory; the rest goes to a temporary file.")
        .uwsgi("uWSGI passes the body to the application as it arrives unless this is set; here it is always read first, so that a slow client occupies no thread. 0 means the default.")
        .example("post-buffering = 65536"),
    OptionEntry::supported("limit-post", Setting::Positive(|draft| &mut draft.limits.body_bytes), Value::Number { least: 0, most: i64::MAX, unit: "bytes" }, "no limit", "The maximum size of a request's body in bytes; a larger one is answered with 413.").example("limit-post = 10485760"),
    OptionEntry::supported("limit-post-disk", set!(|draft, row, pair| draft.limits.body_disk_bytes = draft.positive_or(row, pair, Limits::default().body_disk_bytes)?), Value::Number { least: 0, most: i64::MAX, unit: "bytes" }, "1073741824", "The maximum total size of bodies that a worker keeps in temporary files, in bytes. A body that could never fit is answered with 413, one for which there is currently no room with 507. 0 means the default. ASGI applications get bodies as they arrive, without files.")
        .uwsgi("uWSGI has no such limit; it keeps bodies in files only beyond `post-buffering`, at most one per thread at the same time.")
        .example("limit-post-disk = 10737418240"),
    OptionEntry::supported("body-min-rate", set!(|draft, row, pair| draft.limits.body_bytes_per_second = draft.positive_or(row, pair, 0)?), Value::Number { least: 0, most: 1_073_741_824, unit: "bytes per second" }, "500", "The minimum rate of a request's body. A client that stays below it for `socket-timeout` (or `http-timeout`) gets 408; time in which an ASGI application does not wait for the body does not count. 0 allows any rate: an occasional byte then keeps the connection open forever.")
        .example("body-min-rate = 50"),
    OptionEntry::supported("lenient-targets", Setting::Switch(|draft| &mut draft.limits.lenient_targets), Value::Switch, "off", "Accepts non-ASCII bytes and backslashes in the path and the query of a request, which old scripts and scanners send unescaped; without it they are answered with 400.")
        .uwsgi("uWSGI passes such bytes on. Browsers escape them; they are not allowed in a URI (RFC 3986), and many applications fail on them.")
        .example("lenient-targets = true"),
];
