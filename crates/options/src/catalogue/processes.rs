//! Rows of processes and threads: their number, and when they start and stop; and of how an instance goes into the background,
//! and how commands find and control it. Pure data.

use bolide_contract::control::Control;
use bolide_contract::settings::ApplicationSettings;
use bolide_contract::settings::ReloadOrder;

use crate::resolve::control;
use crate::resolve::processes::LifecycleDraft;
use crate::resolve::processes::ProcessesDraft;
use crate::resolve::processes::{MAX_PROCESSES, mercy_ms, set_processes, set_threads};
use crate::row::{OptionEntry, Setting, Value, set, words};
use crate::values;

/// Values of `reload-order`.
const RELOAD_ORDERS: [(&str, ReloadOrder); 2] =
    [("start-first", ReloadOrder::StartFirst), ("stop-first", ReloadOrder::StopFirst)];
const RELOAD_ORDER_WORDS: [&str; 2] = words(&RELOAD_ORDERS);
const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::accepted("harakiri-verbose", Value::Switch, "Shows the position of a stuck request.", "the log always shows the Python stack of a request that harakiri ends"),
    OptionEntry::accepted("http-processes", Value::Special, "The number of router processes.", "the workers speak HTTP themselves, there is no router process"),
    OptionEntry::accepted("offload-threads", Value::Special, "Threads that send data to slow clients.", "the event loop sends it, without a thread"),
    OptionEntry::supported("master", Setting::Switch(|draft| &mut draft.of::<ProcessesDraft>().has_master), Value::Switch, "off", "Loads the application once, before workers are forked: they share its memory, and one that dies is replaced immediately. Without it a single worker loads the application itself, so that threads that the application starts while loading keep running; several workers are always forked.")
        .uwsgi("The master process always exists: without `master` uWSGI does not replace workers that die, and `harakiri` and reloads do nothing.")
        .example("master = true"),
    OptionEntry::supported("reload-order", set!(|draft, _, pair| draft.of::<LifecycleDraft>().settings.reload_order = draft.one_of(pair, &RELOAD_ORDERS)?), Value::OneOf(&RELOAD_ORDER_WORDS), "start-first", "The order of generations at a reload: with `start-first` the new one serves before the old one ends; with `stop-first` the old one ends before the new one is loaded, for applications that need exclusive resources (a database file with a lock, their own port). The sockets stay open, and clients wait.")
        .example("reload-order = stop-first"),
    OptionEntry::supported("prio", set!(|draft, row, pair| draft.of::<LifecycleDraft>().settings.process.priority = Some(draft.bounded(row, pair)?.try_into().unwrap_or(0))), Value::Number { least: -20, most: 19, unit: "" }, "that of the process that starts Bolide", "The priority of prototypes and workers, from -20 to 19 (nice(1)); only root may raise it. The master is not affected.")
        .example("prio = 10"),
    OptionEntry::supported("cpu-affinity", Setting::Number(|draft| &mut draft.of::<ProcessesDraft>().cpus_of_each), Value::Number { least: 0, most: 1024, unit: "CPUs" }, "0", "The number of CPUs for each worker: the first ones for worker 1, the next ones for worker 2, and so on in a circle, of those that the instance may use. 0 leaves it to the kernel.")
        .example("cpu-affinity = 1"),
    OptionEntry::supported("honour-stdin", Setting::Switch(|draft| &mut draft.of::<ApplicationSettings>().honour_stdin), Value::Switch, "off, but on with one worker at a terminal", "Workers have the standard input of the process that starts Bolide, instead of /dev/null: for `breakpoint()`.")
        .example("honour-stdin = true"),
    OptionEntry::supported("processes", Setting::By(set_processes), Value::NumberOrAuto { least: 1, most: MAX_PROCESSES, unit: "processes" }, "1", "The number of workers; `auto` is the number of CPUs that this process may use, including the quota of its cgroup. For an application on the command line, `WEB_CONCURRENCY` applies if this is not set.")
        .uwsgi("uWSGI has no `auto`; `%k` counts the machine's CPUs, even if a container may use fewer.")
        .example("processes = 4\nprocesses = auto"),
    OptionEntry::supported("threads", Setting::By(set_threads), Value::NumberOrAuto { least: 0, most: 1024, unit: "threads" }, "1", "The number of threads of a worker, where 0 means one; `auto` starts with one and adds more while requests wait and the running ones are blocked.")
        .uwsgi("uWSGI has no `auto`.")
        .example("threads = 8\nthreads = auto"),
    OptionEntry::supported("harakiri", Setting::Seconds(|draft| &mut draft.of::<LifecycleDraft>().settings.harakiri_ms), SECONDS, "off", "Kills a worker whose request takes longer than this; the log names the request and shows its stack.").example("harakiri = 30"),
    OptionEntry::supported("reload-mercy", set!(|draft, row, pair| draft.of::<LifecycleDraft>().settings.reload_mercy_ms = mercy_ms(draft, row, pair)?), SECONDS, "60", "How long requests in flight may take at a stop or a reload. Requests of ASGI applications are cut off in its last quarter, at most 5 s before its end, so that the lifespan can shut down.").example("reload-mercy = 30"),
    OptionEntry::supported("worker-reload-mercy", set!(|draft, row, pair| draft.of::<LifecycleDraft>().worker_mercy = Some(mercy_ms(draft, row, pair)?)), SECONDS, "60", "Like `reload-mercy`, for workers; it takes precedence if both are set.").example("worker-reload-mercy = 30"),
    OptionEntry::supported("load-timeout", Setting::Seconds(|draft| &mut draft.of::<LifecycleDraft>().settings.load_timeout_ms), SECONDS, "off", "Abandons a new generation whose workers do not all serve within this time: the old one continues, and a start fails. SIGHUP also abandons it, at any time, and starts another.").example("load-timeout = 120"),
    OptionEntry::supported("pidfile", Setting::Text(|draft| &mut draft.of::<LifecycleDraft>().pidfile), Value::Path, "", "Writes the master's pid to this file. Only its owner may write to it, whatever the `umask`: commands send signals to the pid in it.").uwsgi("With an empty umask, as `daemonize` sets it, every user may write to uWSGI's pidfile.").example("pidfile = /run/shop.pid"),
    OptionEntry::supported("vacuum", Setting::Switch(|draft| &mut draft.of::<LifecycleDraft>().settings.vacuum), Value::Switch, "off", "Removes the files of UNIX sockets and the pidfile at the end.").example("vacuum = true"),
    OptionEntry::accepted("die-on-term", Value::Switch, "SIGTERM stops the instance.", "SIGTERM always stops gracefully, as service managers, containers and `kill` expect").uwsgi("uWSGI reloads at SIGTERM unless this is set, without waiting for requests. For that, use `bolide reload --now`, or `R` to the `master-fifo`."),
    OptionEntry::accepted("no-orphans", Value::Switch, "Ends workers whose master died.", "no process outlives the master, however it dies"),
    OptionEntry::accepted("close-on-exec", Value::Switch, "Closes sockets when a program is executed.", "descriptors are always closed on exec"),
    OptionEntry::accepted("reaper", Value::Switch, "Reaps orphaned children.", "the master reaps all of its children"),
];

pub const CONTROL: &[OptionEntry] = &[
    OptionEntry::supported("daemonize", set!(|draft, _, pair| draft.of::<Control>().background = control::background(pair, false)?), Value::Path, "", "Serves in the background, with this file as the log, even if `logto` names another. The command returns when workers serve, with status 0; a failed start is shown in the terminal, and in the exit status.")
        .uwsgi("uWSGI's command returns immediately with status 0, whatever happens to the start, and clears the umask; here only UNIX sockets are accessible to all users (mode 666), if neither `chmod-socket` nor `umask` is set. A systemd service or a container needs no daemon: leave it out there.")
        .example("daemonize = /var/log/shop.log"),
    OptionEntry::supported("daemonize2", set!(|draft, _, pair| draft.of::<Control>().background = control::background(pair, true)?), Value::Path, "", "Like `daemonize`, and the log is also shown in the terminal until workers serve.")
        .example("daemonize2 = /var/log/shop.log"),
    OptionEntry::supported("pidfile2", set!(|draft, _, pair| control::add_pidfile(draft, pair, true, false)?), Value::Path, "", "Writes the master's pid to this file, with the rights of `uid` and `gid`: the file belongs to them.")
        .example("pidfile2 = /home/shop/run/shop.pid"),
    OptionEntry::supported("safe-pidfile", set!(|draft, _, pair| control::add_pidfile(draft, pair, false, true)?), Value::Path, "", "Writes the master's pid to this file when workers serve for the first time: a failed start leaves it unchanged.")
        .example("safe-pidfile = /run/shop.pid"),
    OptionEntry::supported("safe-pidfile2", set!(|draft, _, pair| control::add_pidfile(draft, pair, true, true)?), Value::Path, "", "Like `safe-pidfile`, with the rights of `uid` and `gid`.")
        .example("safe-pidfile2 = /home/shop/run/shop.pid"),
    OptionEntry::supported("master-fifo", set!(|draft, _, pair| draft.of::<Control>().fifos.push(values::text(pair)?.into())), Value::List, "", "A FIFO that accepts commands, one letter each: `echo r > FILE` reloads. Of several (at most ten) the first is read at the beginning, and a digit selects another. The page about signals and processes lists the letters.")
        .uwsgi("uWSGI removes any file of that name, and creates the FIFO again after each command, so it is missing meanwhile; unknown letters are silently ignored.")
        .example("master-fifo = /run/shop.fifo"),
    OptionEntry::supported("control-socket", set!(|draft, _, pair| draft.of::<Control>().channel = control::channel(pair)?), Value::Path, "an abstract socket", "The UNIX socket at which `bolide status`, `bolide reload` and the related commands reach the master; `off` disables it. Only root and the user that started the master may use it.")
        .example("control-socket = /run/shop/control.sock"),
];
