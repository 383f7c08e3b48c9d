//! Rows of reloads: what a new generation must show before it is let in, and what a reload does.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::{Reloading, Setting};

const fn reloading(setting: Reloading) -> Setting {
    Setting::Reloading(setting)
}

pub const ENTRIES: &[Entry] = &[
    Entry::supported("reload-probe", reloading(Reloading::Probe), Value::Text, "", "Before a worker of a new generation serves, it asks its own application for this path, and none serves before all have their answer. Where that is a status of 500 and above, an exception, or does not come in `reload-probe-timeout`, the generation is given up and the old one goes on. WSGI and ASGI; not at the start, where there is nothing to go on with.")
        .example("reload-probe = /health"),
    Entry::supported("reload-probe-timeout", reloading(Reloading::ProbeTimeout), Value::Number { least: 1, most: 86_400, unit: "seconds" }, "10", "How long the answer to `reload-probe` may take.")
        .example("reload-probe-timeout = 5"),
    Entry::supported("reload-canary", Setting::Seconds(|draft| &mut draft.reloading.canary_ms), Value::Number { least: 1, most: 86_400, unit: "seconds" }, "", "At a reload one worker of the new generation is forked first, and serves beside the old ones for so long. An error is an answer of 500 and above, one that an exception breaks off, or a request with which the worker is killed (`harakiri`). Where the canary makes more errors than the old workers do in the same time, by more than chance explains, or dies, the generation is rolled back as if it had not loaded: the old one goes on, with its settings. At two errors at least; what is beyond doubt is not waited for. New connections go round among it and the old workers, so it has its share also where they come one by one. A canary with too few requests to judge (10 of its own) passes, which the log says: `reload-probe` asks where no client does. One that has answered nothing well meanwhile is watched for as long again, and rolled back then unless an answer was good or the old workers' errors explain it. Not at the start, where there is nothing to go on with, and not at a chain reload.")
        .example("reload-canary = 30"),
    Entry::supported("warmup", reloading(Reloading::Warmup), Value::Text, "", "Asks the application for this path when it is loaded, before workers are forked: what it makes at its first request (Django's URL patterns and templates, say) is made once and shared. Django's database connections are closed after it. May be given several times. An answer of 500 or above and an exception are told in the log, and nothing else happens. WSGI alone: the event loop of ASGI applications is each worker's own, and they have their lifespan.")
        .example("warmup = /\nwarmup = /login"),
    Entry::supported("exit-on-reload", Setting::Switch(|draft| &mut draft.reloading.exits), Value::Switch, "off", "A reload ends the instance in good order, with status 0, for whoever starts it anew: a container, a service manager.")
        .example("exit-on-reload = true"),
    Entry::supported("binary-path", reloading(Reloading::Program), Value::Path, "", "The program that an upgrade executes, with the arguments of the start. Else it is the one that was started.")
        .uwsgi("uWSGI executes it at every reload; here reloads need no new master, and an upgrade is another command.")
        .example("binary-path = /opt/bolide/bin/bolide"),
    Entry::supported("max-fd", Setting::Positive(|draft| &mut draft.reloading.descriptors_most), Value::Number { least: 16, most: 1_048_576, unit: "descriptors" }, "", "How many files and connections each process may have open. Beyond the limit that the instance was started with it needs root; where it can't be had the log says so.")
        .example("max-fd = 65536"),
    Entry::accepted("reload-os-env", Value::Switch, "Reads the environment again when an application is loaded.", "each generation is a fresh interpreter, which reads the environment and `env` anew"),
];
