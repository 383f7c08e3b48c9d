//! Rows of what a request may be at the most.

use bolide_contract::settings::Limits;

use crate::catalogue::row::{OptionEntry, Setting, Value, set};
use crate::resolve::sockets::{set_body_memory, set_head_bytes};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::accepted("http-chunked-input", Value::Switch, "Takes request bodies in chunks.", "request bodies in chunks are always read"),
    OptionEntry::accepted("http-manage-expect", Value::Special, "Answers `Expect: 100-continue`.", "it is always answered when the body is wanted"),
    OptionEntry::accepted("post-buffering-bufsize", Value::Special, "Size of the buffer for request bodies.", "the buffer grows as it is needed"),
    OptionEntry::supported("wsgi-strict", Setting::Switch(|draft| &mut draft.python.settings.wsgi_strict), Value::Switch, "off", "A WSGI application that returns `bytes` in place of an iterable of them gets an error, as PEP 3333 has it: to Python such an object is an iterable of integers. Without this option it is served as one part, as uWSGI does.")
        .example("wsgi-strict = true"),
    OptionEntry::supported("buffer-size", Setting::By(set_head_bytes), Value::Number { least: 0, most: 1_048_576, unit: "bytes" }, "65536", "Bytes that the head of a request may have, the request line included (that may have 16384 at the most); beyond it the answer is 431, or 414 for the request line. Less than 1024 is taken for 1024, and 0 for the default.")
        .uwsgi("uWSGI's default is 4096, too small for many cookies, its bound is 65535, and it drops the connection of a larger head.")
        .example("buffer-size = 32768"),
    OptionEntry::supported("post-buffering", Setting::By(set_body_memory), Value::Number { least: 0, most: 1_073_741_824, unit: "bytes" }, "1048576", "Bytes of a request's body that are kept in memory; the rest goes to a temporary file.")
        .uwsgi("uWSGI hands the body to the application while it comes unless this is set; here it is always collected first, so that a slow client costs no thread. 0 is the default.")
        .example("post-buffering = 65536"),
    OptionEntry::supported("limit-post", Setting::Positive(|draft| &mut draft.limits.body_bytes), Value::Number { least: 0, most: i64::MAX, unit: "bytes" }, "no limit", "Bytes that a request's body may have; beyond it the answer is 413.").example("limit-post = 10485760"),
    OptionEntry::supported("limit-post-disk", set!(|draft, row, pair| draft.limits.body_disk_bytes = draft.positive_or(row, pair, Limits::default().body_disk_bytes)?), Value::Number { least: 0, most: i64::MAX, unit: "bytes" }, "1073741824", "Bytes of bodies that a worker keeps in temporary files, those of all its requests together. A body that could never fit is 413, one for which there is no room at present 507. 0 is the default. ASGI applications get bodies as they come, without files.")
        .uwsgi("uWSGI has no such limit; it keeps bodies in files only beyond `post-buffering`, and at once one for each thread at the most.")
        .example("limit-post-disk = 10737418240"),
    OptionEntry::supported("body-min-rate", set!(|draft, row, pair| draft.limits.body_bytes_per_second = draft.positive_or(row, pair, 0)?), Value::Number { least: 0, most: 1_073_741_824, unit: "bytes a second" }, "500", "The rate at which a request's body has to come. A client that stays below it for as long as `socket-timeout` (or `http-timeout`) gets 408; time in which an ASGI application does not wait for the body does not count. 0 is any rate: a byte now and then holds the connection for ever.")
        .example("body-min-rate = 50"),
    OptionEntry::supported("lenient-targets", Setting::Switch(|draft| &mut draft.limits.lenient_targets), Value::Switch, "off", "Takes bytes beyond ASCII and backslashes in the path and the query of a request, which old scripts and scanners send as they are; without it the answer is 400.")
        .uwsgi("uWSGI hands such bytes on. Browsers escape them; they stand in no URI (RFC 3986), and many applications fail at them.")
        .example("lenient-targets = true"),
];
