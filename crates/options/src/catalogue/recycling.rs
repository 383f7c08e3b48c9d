//! Rows of recycling: when a worker is replaced, and how one is ended that takes too long.

use crate::catalogue::row::{Entry, Milestone, Value};
use crate::catalogue::setting::{Recycling, Setting};

const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };
const REQUESTS: Value = Value::Number { least: 0, most: i64::MAX, unit: "requests" };
/// A tebibyte in one worker is a mistake in the unit.
const MEGABYTES: Value = Value::Number { least: 0, most: 1_048_576, unit: "MiB" };

/// What the rows of memory have in common.
const LOOKED_AT: &str = "uWSGI looks after each request, in the worker; here the master looks once a second, so that requests pay nothing, and a worker without requests is found too. The replacement serves first, and one worker is replaced at a time.";

pub const ENTRIES: &[Entry] = &[
    Entry::supported("max-requests", Setting::Positive(|draft| &mut draft.recycling.max_requests), REQUESTS, "off", "Retires a worker after this many requests, when its replacement serves. Up to a tenth is cut off by chance, so that workers do not retire together.")
        .uwsgi("uWSGI cuts nothing off, and its workers end all at about the same time, before their replacements serve.")
        .example("max-requests = 5000"),
    Entry::supported("max-requests-delta", Setting::Recycling(Recycling::MaxRequestsDelta), REQUESTS, "0", "Worker 2 serves so many requests more than worker 1 before it retires, worker 3 twice as many more, and so on. Nothing is cut off by chance then.")
        .example("max-requests = 5000\nmax-requests-delta = 500"),
    Entry::supported("max-worker-lifetime", Setting::Seconds(|draft| &mut draft.recycling.max_lifetime_ms), SECONDS, "off", "Retires a worker after this time, when its replacement serves. Up to a tenth is cut off by chance.")
        .example("max-worker-lifetime = 3600"),
    Entry::supported("max-worker-lifetime-delta", Setting::Recycling(Recycling::MaxLifetimeDelta), SECONDS, "0", "Worker 2 lives so much longer than worker 1, worker 3 twice as much, and so on. Nothing is cut off by chance then.")
        .example("max-worker-lifetime = 3600\nmax-worker-lifetime-delta = 60"),
    Entry::supported("min-worker-lifetime", Setting::Recycling(Recycling::MinLifetime), SECONDS, "10", "How long a worker serves at least before `max-requests` or a limit of its memory replaces it: a limit that each worker exceeds from its first request on makes no storm.")
        .example("min-worker-lifetime = 60"),
    Entry::supported("reload-on-rss", Setting::Mebibytes(|draft| &mut draft.recycling.memory.resident), MEGABYTES, "off", "Replaces a worker whose resident memory, what it shares with others included, is this many MiB or more.")
        .uwsgi(LOOKED_AT)
        .example("reload-on-rss = 512"),
    Entry::supported("reload-on-as", Setting::Mebibytes(|draft| &mut draft.recycling.memory.address_space), MEGABYTES, "off", "Replaces a worker whose address space is this many MiB or more.")
        .uwsgi(LOOKED_AT)
        .example("reload-on-as = 2048"),
    Entry::supported("reload-on-uss", Setting::Mebibytes(|draft| &mut draft.recycling.memory.unique), MEGABYTES, "off", "Replaces a worker whose resident memory that it shares with nobody is this many MiB or more: what it has grown by since it was forked. To measure it takes the kernel longer than `reload-on-rss`, so the master looks at one worker a second, in turn.")
        .uwsgi("An option of uWSGI 2.1.")
        .example("reload-on-uss = 200"),
    Entry::supported("reload-on-pss", Setting::Mebibytes(|draft| &mut draft.recycling.memory.proportional), MEGABYTES, "off", "As `reload-on-uss`, for resident memory with what is shared divided by the number of those that share it.")
        .uwsgi("An option of uWSGI 2.1.")
        .example("reload-on-pss = 300"),
    Entry::supported("evil-reload-on-rss", Setting::Mebibytes(|draft| &mut draft.recycling.memory.evil_resident), MEGABYTES, "off", "Kills a worker whose resident memory is this many MiB or more, at once, with what it serves: for a single request that would eat the machine. The master looks once a second.")
        .uwsgi("uWSGI looks every three seconds. One that is over its limit right after its start is tried again after a pause, which doubles up to 10 s.")
        .example("reload-on-rss = 512\nevil-reload-on-rss = 2048"),
    Entry::supported("evil-reload-on-as", Setting::Mebibytes(|draft| &mut draft.recycling.memory.evil_address_space), MEGABYTES, "off", "As `evil-reload-on-rss`, for the address space.")
        .example("evil-reload-on-as = 8192"),
    Entry::supported("reload-on-pressure", Setting::Recycling(Recycling::OnPressure), Value::Number { least: 0, most: 100, unit: "percent" }, "off", "In a cgroup of version 2 (a container, a service of systemd): replaces the worker with the most memory when its processes have waited for memory for this share of the last ten seconds (`memory.pressure`), or have reached `memory.high` or nine tenths of `memory.max`, before the kernel kills one. One worker at a time, with ten seconds in between for the numbers to follow.")
        .example("reload-on-pressure = 10"),
    Entry::supported("limit-as", Setting::Mebibytes(|draft| &mut draft.lifecycle.process.address_space_bytes), MEGABYTES, "no limit", "Address space that a prototype and each worker may have, in MiB: beyond it Python raises MemoryError, and a library that can't go on (TLS, for one) ends the worker by SIGABRT: the log names the limit then. The master has no limit.")
        .example("limit-as = 2048"),
    Entry::supported("limit-nproc", Setting::Positive(|draft| &mut draft.lifecycle.process.processes_most), Value::Number { least: 0, most: i64::MAX, unit: "processes and threads" }, "no limit", "Processes and threads that the user of `uid` may have, of all programs together: beyond it no further ones start. Root has no such limit.")
        .example("limit-nproc = 200"),
    Entry::supported("harakiri-graceful-timeout", Setting::Seconds(|draft| &mut draft.lifecycle.harakiri_manners.graceful_ms), SECONDS, "off", "A worker whose request takes longer than `harakiri` is sent `harakiri-graceful-signal` first, and killed only after this further time, unless the request has ended: its other threads can finish, and a handler of the application's can break the request off.")
        .example("harakiri = 30\nharakiri-graceful-timeout = 5"),
    Entry::supported("harakiri-graceful-signal", Setting::Recycling(Recycling::HarakiriGracefulSignal), Value::Number { least: 1, most: 64, unit: "(number of a signal)" }, "15", "The signal that `harakiri-graceful-timeout` sends. At 15 (SIGTERM) a worker takes nothing new, and its replacement starts.")
        .example("harakiri-graceful-signal = 10"),
    Entry::supported("harakiri-queue-threshold", Setting::Recycling(Recycling::HarakiriQueueThreshold), Value::Number { least: 0, most: 65_535, unit: "connections" }, "0", "`harakiri` ends nobody while fewer connections than this wait at the listening sockets; the master looks again every second.")
        .example("harakiri-queue-threshold = 10"),
    Entry::accepted("harakiri-no-arh", Value::Switch, "Leaves what runs after a request out of harakiri.", "a request's time ends with its answer"),
    Entry::planned("mule-reload-mercy", SECONDS, Milestone::Services, "How long a mule may take to end at a reload.", "there are no mules yet"),
];
