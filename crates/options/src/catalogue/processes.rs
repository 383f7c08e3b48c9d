//! Rows of processes and threads: how many there are, and when they come and go.

use bolide_contract::settings::ReloadOrder;

use crate::catalogue::row::{OptionEntry, Setting, Value, set, words};
use crate::resolve::processes::{MOST_PROCESSES, mercy_ms, set_processes, set_threads};
use crate::resolve::values;

/// Values of `reload-order`.
const RELOAD_ORDERS: [(&str, ReloadOrder); 2] =
    [("start-first", ReloadOrder::StartFirst), ("stop-first", ReloadOrder::StopFirst)];
const RELOAD_ORDER_WORDS: [&str; 2] = words(&RELOAD_ORDERS);
const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::accepted("harakiri-verbose", Value::Switch, "Shows where a request was stuck.", "the log always shows the Python stack of a request that harakiri ends"),
    OptionEntry::accepted("http-processes", Value::Special, "How many router processes there are.", "the workers speak HTTP themselves, there is no router process"),
    OptionEntry::accepted("offload-threads", Value::Special, "Threads that send what clients are slow to take.", "the event loop sends it, without a thread"),
    OptionEntry::supported("master", Setting::Switch(|draft| &mut draft.processes.has_master), Value::Switch, "off", "Loads the application once, before workers are forked: they share its memory, and one that dies is replaced at once. Without it a single worker loads the application itself, so that threads which the application starts meanwhile live on; several workers are forked in any case.")
        .uwsgi("The process itself is always there: without `master` uWSGI does not replace workers that die, and `harakiri` and reloads do nothing.")
        .example("master = true"),
    OptionEntry::supported("reload-order", set!(|draft, _, pair| draft.lifecycle.settings.reload_order = values::one_of(pair, &RELOAD_ORDERS)?), Value::OneOf(&RELOAD_ORDER_WORDS), "start-first", "Which generation goes first at a reload: with `start-first` the new one serves before the old one ends; with `stop-first` the old one ends before the new one is loaded, for applications that hold what only one process can hold (a database file with a lock, a port of their own). The sockets stay open, and clients wait.")
        .example("reload-order = stop-first"),
    OptionEntry::supported("prio", set!(|draft, row, pair| draft.lifecycle.settings.process.priority = Some(draft.bounded(row, pair)?.try_into().unwrap_or(0))), Value::Number { least: -20, most: 19, unit: "" }, "that of whoever starts Bolide", "How pressing prototypes and workers are to the kernel, from -20 to 19 (nice(1)); below that of the start only root may. The master stays as it is.")
        .example("prio = 10"),
    OptionEntry::supported("cpu-affinity", Setting::Number(|draft| &mut draft.processes.cpus_of_each), Value::Number { least: 0, most: 1024, unit: "CPUs" }, "0", "So many CPUs for each worker: the first ones for worker 1, the next ones for worker 2, and so on in a circle, of those that the instance may use. 0 leaves it to the kernel.")
        .example("cpu-affinity = 1"),
    OptionEntry::supported("honour-stdin", Setting::Switch(|draft| &mut draft.application.honour_stdin), Value::Switch, "off, but on with one worker at a terminal", "Workers have the standard input of whoever starts Bolide, in place of /dev/null: for `breakpoint()`.")
        .example("honour-stdin = true"),
    OptionEntry::supported("processes", Setting::By(set_processes), Value::NumberOrAuto { least: 1, most: MOST_PROCESSES, unit: "processes" }, "1", "How many workers serve; `auto` is the number of CPUs that this process may use, the quota of its cgroup counted. For an application on the command line `WEB_CONCURRENCY` counts where this is not set.")
        .uwsgi("uWSGI has no `auto`; `%k` counts the machine's CPUs, also where a container may use fewer.")
        .example("processes = 4\nprocesses = auto"),
    OptionEntry::supported("threads", Setting::By(set_threads), Value::NumberOrAuto { least: 0, most: 1024, unit: "threads" }, "1", "How many threads a worker has, 0 being one; `auto` starts with one and adds more while requests wait and the running ones are blocked.")
        .uwsgi("uWSGI has no `auto`.")
        .example("threads = 8\nthreads = auto"),
    OptionEntry::supported("harakiri", Setting::Seconds(|draft| &mut draft.lifecycle.settings.harakiri_ms), SECONDS, "off", "Kills a worker whose request takes longer than this; the log names the request and shows where it was stuck.").example("harakiri = 30"),
    OptionEntry::supported("reload-mercy", set!(|draft, row, pair| draft.lifecycle.settings.reload_mercy_ms = mercy_ms(draft, row, pair)?), SECONDS, "60", "How long requests in flight may take at a stop or a reload. Of ASGI applications they are cut off in its last quarter, at most 5 s before its end, so that the lifespan can shut down.").example("reload-mercy = 30"),
    OptionEntry::supported("worker-reload-mercy", set!(|draft, row, pair| draft.lifecycle.worker_mercy = Some(mercy_ms(draft, row, pair)?)), SECONDS, "60", "As `reload-mercy`, for workers; it wins where both are set.").example("worker-reload-mercy = 30"),
    OptionEntry::supported("load-timeout", Setting::Seconds(|draft| &mut draft.lifecycle.settings.load_timeout_ms), SECONDS, "off", "Gives up a new generation whose workers do not all serve within this time: the old one goes on, and a start fails. SIGHUP gives it up too, at any time, and starts another.").example("load-timeout = 120"),
    OptionEntry::supported("pidfile", Setting::Text(|draft| &mut draft.lifecycle.pidfile), Value::Path, "", "Write the master's pid to this file. Nobody but its owner may write to it, whatever the `umask`: commands send signals to the pid that it names.").uwsgi("With an empty umask, as `daemonize` sets it, everybody may write to uWSGI's.").example("pidfile = /run/shop.pid"),
    OptionEntry::supported("vacuum", Setting::Switch(|draft| &mut draft.lifecycle.settings.vacuum), Value::Switch, "off", "Remove the files of UNIX sockets and the pidfile at the end.").example("vacuum = true"),
    OptionEntry::accepted("die-on-term", Value::Switch, "SIGTERM stops the instance.", "SIGTERM always stops, gracefully, as service managers, containers and `kill` mean it").uwsgi("uWSGI reloads at SIGTERM unless this is set, without waiting for requests. Where that is wanted: `bolide reload --now`, or `R` to the `master-fifo`."),
    OptionEntry::accepted("no-orphans", Value::Switch, "Ends workers whose master died.", "no process outlives the master, however it dies"),
    OptionEntry::accepted("close-on-exec", Value::Switch, "Closes sockets when a program is started.", "descriptors are always closed on exec"),
    OptionEntry::accepted("reaper", Value::Switch, "Waits for children that nobody else waits for.", "the master waits for all of its children"),
];
