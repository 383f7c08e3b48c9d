//! Rows of how workers are replaced: recycling, harakiri, and what a reload does.

use crate::catalogue::row::{Milestone, OptionEntry, Setting, Value, set};
use crate::resolve::context::normalized;
use crate::resolve::draft::PROBE_TIMEOUT_S;
use crate::resolve::processes::{least_ms, request_target, set_min_lifetime};
use crate::resolve::values;

const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };
const REQUESTS: Value = Value::Number { least: 0, most: i64::MAX, unit: "requests" };
/// A tebibyte in one worker is a mistake in the unit.
const MEGABYTES: Value = Value::Number { least: 0, most: 1_048_576, unit: "MiB" };

/// What the rows of memory have in common.
const LOOKED_AT: &str = "uWSGI looks after each request, in the worker; here the master looks once a second, so that requests pay nothing, and a worker without requests is found too. The replacement serves first, and one worker is replaced at a time.";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("max-requests", Setting::Positive(|draft| &mut draft.recycling.settings.max_requests), REQUESTS, "off", "Retires a worker after this many requests, when its replacement serves. Up to a tenth is cut off by chance, so that workers do not retire together.")
        .uwsgi("uWSGI cuts nothing off, and its workers end all at about the same time, before their replacements serve.")
        .example("max-requests = 5000"),
    OptionEntry::supported("max-requests-delta", set!(|draft, row, pair| draft.recycling.settings.max_requests_delta = draft.positive_or(row, pair, 0)?), REQUESTS, "0", "Worker 2 serves so many requests more than worker 1 before it retires, worker 3 twice as many more, and so on. Nothing is cut off by chance then.")
        .example("max-requests = 5000\nmax-requests-delta = 500"),
    OptionEntry::supported("max-worker-lifetime", Setting::Seconds(|draft| &mut draft.recycling.settings.max_lifetime_ms), SECONDS, "off", "Retires a worker after this time, when its replacement serves. Up to a tenth is cut off by chance.")
        .example("max-worker-lifetime = 3600"),
    OptionEntry::supported("max-worker-lifetime-delta", set!(|draft, row, pair| draft.recycling.settings.max_lifetime_delta_ms = least_ms(draft, row, pair)?), SECONDS, "0", "Worker 2 lives so much longer than worker 1, worker 3 twice as much, and so on. Nothing is cut off by chance then.")
        .example("max-worker-lifetime = 3600\nmax-worker-lifetime-delta = 60"),
    OptionEntry::supported("min-worker-lifetime", Setting::By(set_min_lifetime), SECONDS, "10", "How long a worker serves at least before `max-requests` or a limit of its memory replaces it: a limit that each worker exceeds from its first request on makes no storm.")
        .example("min-worker-lifetime = 60"),
    OptionEntry::supported("reload-on-rss", Setting::Mebibytes(|draft| &mut draft.recycling.settings.memory.resident), MEGABYTES, "off", "Replaces a worker whose resident memory, what it shares with others included, is this many MiB or more.")
        .uwsgi(LOOKED_AT)
        .example("reload-on-rss = 512"),
    OptionEntry::supported("reload-on-as", Setting::Mebibytes(|draft| &mut draft.recycling.settings.memory.address_space), MEGABYTES, "off", "Replaces a worker whose address space is this many MiB or more.")
        .uwsgi(LOOKED_AT)
        .example("reload-on-as = 2048"),
    OptionEntry::supported("reload-on-uss", Setting::Mebibytes(|draft| &mut draft.recycling.settings.memory.unique), MEGABYTES, "off", "Replaces a worker whose resident memory that it shares with nobody is this many MiB or more: what it has grown by since it was forked. To measure it takes the kernel longer than `reload-on-rss`, so the master looks at one worker a second, in turn.")
        .uwsgi("An option of uWSGI 2.1.")
        .example("reload-on-uss = 200"),
    OptionEntry::supported("reload-on-pss", Setting::Mebibytes(|draft| &mut draft.recycling.settings.memory.proportional), MEGABYTES, "off", "As `reload-on-uss`, for resident memory with what is shared divided by the number of those that share it.")
        .uwsgi("An option of uWSGI 2.1.")
        .example("reload-on-pss = 300"),
    OptionEntry::supported("evil-reload-on-rss", Setting::Mebibytes(|draft| &mut draft.recycling.settings.memory.evil_resident), MEGABYTES, "off", "Kills a worker whose resident memory is this many MiB or more, at once, with what it serves: for a single request that would eat the machine. The master looks once a second.")
        .uwsgi("uWSGI looks every three seconds. One that is over its limit right after its start is tried again after a pause, which doubles up to 10 s.")
        .example("reload-on-rss = 512\nevil-reload-on-rss = 2048"),
    OptionEntry::supported("evil-reload-on-as", Setting::Mebibytes(|draft| &mut draft.recycling.settings.memory.evil_address_space), MEGABYTES, "off", "As `evil-reload-on-rss`, for the address space.")
        .example("evil-reload-on-as = 8192"),
    OptionEntry::supported("reload-on-pressure", Setting::Count(|draft| &mut draft.recycling.settings.pressure_percent), Value::Number { least: 0, most: 100, unit: "percent" }, "off", "In a cgroup of version 2 (a container, a service of systemd): replaces the worker with the most memory when its processes have waited for memory for this share of the last ten seconds (`memory.pressure`), or have reached `memory.high` or nine tenths of `memory.max`, before the kernel kills one. One worker at a time, with ten seconds in between for the numbers to follow.")
        .example("reload-on-pressure = 10"),
    OptionEntry::supported("limit-as", Setting::Mebibytes(|draft| &mut draft.lifecycle.settings.process.address_space_bytes), MEGABYTES, "no limit", "Address space that a prototype and each worker may have, in MiB: beyond it Python raises MemoryError, and a library that can't go on (TLS, for one) ends the worker by SIGABRT: the log names the limit then. The master has no limit.")
        .example("limit-as = 2048"),
    OptionEntry::supported("limit-nproc", Setting::Positive(|draft| &mut draft.lifecycle.settings.process.processes_most), Value::Number { least: 0, most: i64::MAX, unit: "processes and threads" }, "no limit", "Processes and threads that the user of `uid` may have, of all programs together: beyond it no further ones start. Root has no such limit.")
        .example("limit-nproc = 200"),
    OptionEntry::supported("harakiri-graceful-timeout", Setting::Seconds(|draft| &mut draft.lifecycle.settings.harakiri_manners.graceful_ms), SECONDS, "off", "A worker whose request takes longer than `harakiri` is sent `harakiri-graceful-signal` first, and killed only after this further time, unless the request has ended: its other threads can finish, and a handler of the application's can break the request off.")
        .example("harakiri = 30\nharakiri-graceful-timeout = 5"),
    OptionEntry::supported("harakiri-graceful-signal", set!(|draft, row, pair| draft.lifecycle.settings.harakiri_manners.graceful_signal = draft.bounded_u32(row, pair)?.cast_signed()), Value::Number { least: 1, most: 64, unit: "(number of a signal)" }, "15", "The signal that `harakiri-graceful-timeout` sends. At 15 (SIGTERM) a worker takes nothing new, and its replacement starts.")
        .example("harakiri-graceful-signal = 10"),
    OptionEntry::supported("harakiri-queue-threshold", Setting::Number(|draft| &mut draft.lifecycle.settings.harakiri_manners.queue_threshold), Value::Number { least: 0, most: 65_535, unit: "connections" }, "0", "`harakiri` ends nobody while fewer connections than this wait at the listening sockets; the master looks again every second.")
        .example("harakiri-queue-threshold = 10"),
    OptionEntry::accepted("harakiri-no-arh", Value::Switch, "Leaves what runs after a request out of harakiri.", "a request's time ends with its answer"),
    OptionEntry::planned("mule-reload-mercy", SECONDS, Milestone::Services, "How long a mule may take to end at a reload.", "there are no mules yet"),
];

pub const RELOADS: &[OptionEntry] = &[
    OptionEntry::supported("reload-probe", set!(|draft, _, pair| draft.reloading.probe = Some(request_target(pair)?)), Value::Text, "", "Before a worker of a new generation serves, it asks its own application for this path, and none serves before all have their answer. Where that is a status of 500 and above, an exception, or does not come in `reload-probe-timeout`, the generation is given up and the old one goes on. WSGI and ASGI; not at the start, where there is nothing to go on with.")
        .example("reload-probe = /health"),
    OptionEntry::supported("reload-probe-timeout", set!(|draft, row, pair| draft.reloading.probe_timeout_ms = draft.positive_or(row, pair, PROBE_TIMEOUT_S)? * 1000), Value::Number { least: 1, most: 86_400, unit: "seconds" }, "10", "How long the answer to `reload-probe` may take.")
        .example("reload-probe-timeout = 5"),
    OptionEntry::supported("reload-canary", Setting::Seconds(|draft| &mut draft.reloading.canary_ms), Value::Number { least: 1, most: 86_400, unit: "seconds" }, "", "At a reload one worker of the new generation is forked first, and serves beside the old ones for so long. An error is an answer of 500 and above, one that an exception breaks off, or a request with which the worker is killed (`harakiri`). Where the canary makes more errors than the old workers do in the same time, by more than chance explains, or dies, the generation is rolled back as if it had not loaded: the old one goes on, with its settings. At two errors at least; what is beyond doubt is not waited for. New connections go round among it and the old workers, so it has its share also where they come one by one. A canary with too few requests to judge (10 of its own) passes, which the log says: `reload-probe` asks where no client does. One that has answered nothing well meanwhile is watched for as long again, and rolled back then unless an answer was good or the old workers' errors explain it. Not at the start, where there is nothing to go on with, and not at a chain reload.")
        .example("reload-canary = 30"),
    OptionEntry::supported("warmup", set!(|draft, _, pair| draft.reloading.warmup.push(request_target(pair)?)), Value::Text, "", "Asks the application for this path when it is loaded, before workers are forked: what it makes at its first request (Django's URL patterns and templates, say) is made once and shared. Django's database connections are closed after it. May be given several times. An answer of 500 or above and an exception are told in the log, and nothing else happens. WSGI alone: the event loop of ASGI applications is each worker's own, and they have their lifespan.")
        .example("warmup = /\nwarmup = /login"),
    OptionEntry::supported("exit-on-reload", Setting::Switch(|draft| &mut draft.reloading.exits), Value::Switch, "off", "A reload ends the instance in good order, with status 0, for whoever starts it anew: a container, a service manager.")
        .example("exit-on-reload = true"),
    OptionEntry::supported("binary-path", set!(|draft, _, pair| draft.reloading.program = Some(normalized(&draft.host.folder.join(values::text(pair)?)))), Value::Path, "", "The program that an upgrade executes, with the arguments of the start. Else it is the one that was started.")
        .uwsgi("uWSGI executes it at every reload; here reloads need no new master, and an upgrade is another command.")
        .example("binary-path = /opt/bolide/bin/bolide"),
    OptionEntry::supported("max-fd", Setting::Positive(|draft| &mut draft.reloading.descriptors_most), Value::Number { least: 16, most: 1_048_576, unit: "descriptors" }, "", "How many files and connections each process may have open. Beyond the limit that the instance was started with it needs root; where it can't be had the log says so.")
        .example("max-fd = 65536"),
    OptionEntry::accepted("reload-os-env", Value::Switch, "Reads the environment again when an application is loaded.", "each generation is a fresh interpreter, which reads the environment and `env` anew"),
];
