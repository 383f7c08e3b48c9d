//! Resolves the options of the number of workers, their replacement, and reloads. It starts nothing. Runs in the process that
//! reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{ApplicationSettings, Lifecycle, RELOAD_MERCY_MS, ReloadOrder, Threads, Workers};

use crate::context::Context;
use crate::draft::Draft;
use crate::reader::Configuration;
use crate::row::{
    OptionEntry, OptionRow, Reach, SECONDS, Setting, Value, accepted, field, on, rows, set, supported, within, words,
};
use crate::topics::interpreter::PythonDraft;

/// Values of `reload-order`.
const RELOAD_ORDERS: [(&str, ReloadOrder); 2] =
    [("start-first", ReloadOrder::StartFirst), ("stop-first", ReloadOrder::StopFirst)];
const RELOAD_ORDER_WORDS: [&str; 2] = words(&RELOAD_ORDERS);

/// The time for load balancers, in seconds. Service managers and orchestrators do not wait longer either.
const DELAY: Value = Value::Decimal { most: 3600, unit: "seconds" };

pub const ENTRIES: &[OptionEntry] = rows![
    /// Show the position of a stuck request.
    /// Why: the log always shows the Python stack of a request that harakiri ends
    accepted("harakiri-verbose", Value::Switch),
    /// The number of router processes.
    /// Why: the workers speak HTTP themselves and there is no router process
    accepted("http-processes", Value::Special),
    /// Threads that send data to slow clients.
    /// Why: the event loop sends it, without a thread
    accepted("offload-threads", Value::Special),
    /// Load the application once, before workers are forked, so that they share its memory, and one that dies is replaced
    /// immediately. Without it a single worker loads the application itself, so that threads that the application starts while
    /// loading keep running. Several workers are always forked.
    /// uWSGI: Bolide always has a master process. Without `master`, uWSGI does not replace workers that die, and `harakiri` and
    /// reloads do nothing.
    /// Example: master = true
    on("master", Setting::Switch(field!(ProcessesDraft.has_master))).reach(Reach::Application),
    /// The order of generations at a reload. With `start-first` the new one serves before the old one ends. With `stop-first` the
    /// old one ends before the new one is loaded, for applications that need exclusive resources (a database file with a lock,
    /// their own port). The sockets stay open, and clients wait.
    /// Example: reload-order = stop-first
    supported(
        "reload-order",
        set!(|draft, _, pair| draft.of::<LifecycleDraft>().settings.reload_order = draft.one_of(pair, &RELOAD_ORDERS)?),
    )
    .takes(Value::OneOf(&RELOAD_ORDER_WORDS), "start-first")
    .reach(Reach::Application),
    /// The priority of prototypes and workers, from -20 to 19 (nice(1)). Only root may raise it. The master is not affected.
    /// Example: prio = 10
    supported(
        "prio",
        set!(|draft, row, pair| draft.of::<LifecycleDraft>().settings.process.priority =
            Some(draft.bounded(row, pair)?.try_into().unwrap_or(0))),
    )
    .takes(within(-20, 19, ""), "that of the process that starts Bolide")
    .reach(Reach::Master),
    /// The number of CPUs for each worker. Worker 1 gets the first ones, worker 2 the next ones, and so on in a circle, of those
    /// that the instance may use. 0 leaves it to the kernel.
    /// Example: cpu-affinity = 1
    supported("cpu-affinity", Setting::Number(field!(ProcessesDraft.cpus_of_each)))
        .takes(within(0, 1024, "CPUs"), "0").reach(Reach::Application),
    /// Workers have the standard input of the process that starts Bolide, instead of /dev/null, so that `breakpoint()` works.
    /// Example: honour-stdin = true
    supported("honour-stdin", Setting::Switch(field!(ApplicationSettings.honour_stdin)))
        .takes(Value::Switch, "off, but on with one worker at a terminal").reach(Reach::Master),
    /// The number of workers. `auto` is the number of CPUs that this process may use, including the quota of its cgroup. For an
    /// application on the command line, `WEB_CONCURRENCY` applies if this is not set.
    /// uWSGI: uWSGI does not have `auto`. Its `%k` counts the machine's CPUs, even if a container may use fewer.
    /// Example: processes = 4
    ///          processes = auto
    supported("processes", Setting::By(set_processes))
        .takes(Value::NumberOrAuto { least: 1, most: MAX_PROCESSES, unit: "processes" }, "1").reach(Reach::Application),
    /// The number of threads of a worker, where 0 means one. `auto` starts with one and adds more while requests wait and the
    /// running ones are blocked.
    /// uWSGI: uWSGI does not have `auto`.
    /// Example: threads = 8
    ///          threads = auto
    supported("threads", Setting::By(set_threads))
        .takes(Value::NumberOrAuto { least: 0, most: 1024, unit: "threads" }, "1").reach(Reach::Application),
    /// Kill a worker whose request takes longer than this. The log identifies the request and shows its stack.
    /// Example: harakiri = 30
    supported("harakiri", Setting::Seconds(field!(LifecycleDraft.settings.harakiri_ms)))
        .takes(SECONDS, "off").reach(Reach::Application),
    /// How long requests in flight may take at shutdown or a reload. Requests of ASGI applications are cut off in its last
    /// quarter, at most 5 s before its end, so that the lifespan can shut down.
    /// Example: reload-mercy = 30
    supported(
        "reload-mercy",
        set!(|draft, row, pair| draft.of::<LifecycleDraft>().settings.reload_mercy_ms = mercy_ms(draft, row, pair)?),
    )
    .takes(SECONDS, "60")
    .reach(Reach::Application),
    /// How long the instance serves after SIGTERM, at most, so that load balancers notice the shutdown. The ready check fails
    /// immediately, answers close their connections (`Connection: close`, GOAWAY), and new connections are served. The drain
    /// begins when no connection has arrived for `drain-quiet`. 0 begins it immediately. A second SIGTERM, SIGINT (Ctrl-C) and
    /// `bolide stop --now` do not wait. Reloads and upgrades have no delay, because the sockets stay open. `reload-mercy`
    /// follows, so a service manager must allow for both.
    /// The master decides, so it is the same for one worker, threads, ASGI, gevent, TLS and `cheaper`. A worker that starts in
    /// the meantime leaves too, and a reload, canary or upgrade in progress is abandoned. uwsgi and FastCGI connections do not
    /// carry more than one request, so a reverse proxy that uses them is not told.
    /// Example: drain-delay = 10
    supported("drain-delay", Setting::Milliseconds(field!(LifecycleDraft.settings.drain_delay_ms)))
        .takes(DELAY, "0").reach(Reach::Application),
    /// The drain begins before the end of `drain-delay` if no connection has arrived for this long. A connection counts from its
    /// first request on, so the checks of a load balancer that do not send one have no effect. It should be longer than the
    /// interval of these checks. 0 waits for all of `drain-delay`.
    /// Example: drain-delay = 10
    ///          drain-quiet = 3
    supported("drain-quiet", Setting::Milliseconds(field!(LifecycleDraft.settings.drain_quiet_ms)))
        .takes(DELAY, "2").reach(Reach::Application),
    /// The time over which a leaving worker closes WebSockets and event streams, so that their clients do not all connect
    /// elsewhere in the same moment. They are closed evenly over this time, counted over all workers. WebSockets begin
    /// immediately, at shutdown and at a reload. Streams begin after 3 s at shutdown, and have `reload-mercy` at a reload. The
    /// last ones are closed before the end of `reload-mercy`. Without this option, WebSockets are closed immediately at shutdown
    /// and over at most 5 s at a reload, and streams after 3 s.
    /// Each worker spreads its own connections, so it is the same for one worker, `cheaper`, a canary and an upgrade. ASGI,
    /// gevent, threads and HTTP/2 count each WebSocket or stream. Behind uwsgi or FastCGI, the reverse proxy passes the end on.
    /// Example: drain-spread = 10
    supported("drain-spread", Setting::Milliseconds(field!(LifecycleDraft.settings.drain_spread_ms)))
        .takes(DELAY, "0").reach(Reach::Application),
    /// Like `reload-mercy`, for workers. It takes precedence if both are set.
    /// Example: worker-reload-mercy = 30
    supported(
        "worker-reload-mercy",
        set!(|draft, row, pair| draft.of::<LifecycleDraft>().worker_mercy = Some(mercy_ms(draft, row, pair)?)),
    )
    .takes(SECONDS, "60")
    .reach(Reach::Application),
    /// Abandon a new generation whose workers do not all serve within this time. The old one continues, and startup fails. SIGHUP
    /// also abandons it, at any time, and starts another.
    /// Example: load-timeout = 120
    supported("load-timeout", Setting::Seconds(field!(LifecycleDraft.settings.load_timeout_ms)))
        .takes(SECONDS, "off").reach(Reach::Application),
    /// Write the master's pid to this file. Only its owner may write to it, whatever the `umask`, because commands send signals
    /// to the pid in it.
    /// uWSGI: With an empty umask, as `daemonize` sets it, every user may write to uWSGI's pidfile.
    /// Example: pidfile = /run/shop.pid
    supported("pidfile", Setting::Text(field!(LifecycleDraft.pidfile))).takes(Value::Path, "").reach(Reach::Master),
    /// Remove the files of UNIX sockets and the pidfile at the end.
    /// Example: vacuum = true
    on("vacuum", Setting::Switch(field!(LifecycleDraft.settings.vacuum))).reach(Reach::Master),
    /// SIGTERM stops the instance.
    /// uWSGI: uWSGI reloads at SIGTERM unless this is set, without waiting for requests. For that, use `bolide reload --now`, or
    /// `R` to the `master-fifo`.
    /// Why: SIGTERM always stops gracefully, as service managers, containers and `kill` expect
    accepted("die-on-term", Value::Switch),
    /// End workers whose master died.
    /// Why: no process outlives the master, however it dies
    accepted("no-orphans", Value::Switch),
    /// Close sockets when a program is executed.
    /// Why: descriptors are always closed on exec
    accepted("close-on-exec", Value::Switch),
    /// Reap orphaned children.
    /// Why: the master reaps all of its children
    accepted("reaper", Value::Switch),
];

/// Prefixes of options for which uWSGI starts a master implicitly (its flag UWSGI_OPT_MASTER).
const WITH_MASTER: &[&str] = &[
    "alarm",
    "attach-daemon",
    "cheap",
    "cron",
    "idle",
    "legion",
    "log-alarm",
    "log-encoder",
    "log-master",
    "log-route",
    "logger",
    "master-fifo",
    "mule",
    "py-auto",
    "python-auto",
    "smart-attach-daemon",
    "spooler",
    "stats",
    "subscribe",
    "timer",
    "touch-",
    "unique-cron",
];

/// No machine can run more processes with an interpreter in each.
pub const MAX_PROCESSES: i64 = 1024;

pub fn set_processes(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let number = draft.number_or_auto(row, pair)?;
    draft.of::<ProcessesDraft>().is_auto = number.is_none();
    draft.of::<ProcessesDraft>().count = Some(number.unwrap_or(draft.host.cpus));
    Ok(())
}

pub fn set_threads(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let number = draft.number_or_auto(row, pair)?;
    draft.of::<ProcessesDraft>().threads =
        Some(number.map_or(Threads::Auto, |count| Threads::Fixed(count.clamp(1, Threads::MAX))));
    Ok(())
}

/// Time that requests have to finish at a reload, in milliseconds.
pub fn mercy_ms(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<u64, Diagnostic> {
    Ok(draft.positive_or(row, pair, RELOAD_MERCY_MS / 1000)? * 1000)
}

/// Whether uWSGI would start a master although the configuration does not ask for one.
pub fn implies_master(read: &Configuration) -> bool {
    read.effects.iter().any(|pair| WITH_MASTER.iter().any(|start| pair.key.starts_with(start)))
}

/// Whether the number of workers is written in the words of servers that load the application in each worker unless they are
/// told to preload it: `--workers`, or WEB_CONCURRENCY. `--processes` is uWSGI's word.
pub fn are_of_other_servers(workers: &Workers, read: &Configuration) -> bool {
    let says_otherwise =
        |pair: &Pair| matches!(pair.key.as_str(), "processes" | "p" | "master" | "lazy-apps" | "lazy" | "fork-safety");
    workers.processes > 1 && !read.effects.iter().any(says_otherwise)
}

impl ProcessesDraft {
    /// Completes the settings of the workers.
    pub fn complete(&self, python: &PythonDraft, context: &mut Context) -> Workers {
        let requested = self.count.or_else(|| if context.is_bare { python.web_concurrency(context) } else { None });
        Workers {
            processes: requested.unwrap_or(1),
            processes_chosen: requested.is_some(),
            processes_auto: self.count.is_some() && self.is_auto,
            threads: self.threads.unwrap_or(Threads::Fixed(1)),
            cpus: context.host.cpus,
            cpus_of_each: self.cpus_of_each,
        }
    }
}

impl LifecycleDraft {
    pub fn complete(mut self, shortest_route_harakiri_ms: Option<u64>, context: &Context) -> Lifecycle {
        self.settings.shortest_route_harakiri_ms = shortest_route_harakiri_ms;
        self.settings.reload_mercy_ms = self.worker_mercy.unwrap_or(self.settings.reload_mercy_ms);
        self.settings.pidfile = self.pidfile.map(|path| context.absolute_at_start(path));
        self.settings
    }
}

/// Reports a directory of `crash-reports` that is not there: otherwise the first worker that dies would be the first to tell.
pub fn check_crash_reports(lifecycle: &Lifecycle, context: &mut Context) {
    let Some(directory) = lifecycle.crash_reports.as_ref().filter(|directory| !directory.is_dir()) else { return };
    let place = context.read.effects.iter().rev().find(|pair| pair.key == "crash-reports").map(|pair| &pair.location);
    let message = format!("`crash-reports`: there is no directory `{}`, so no report can be written", directory.display());
    let advice = "create it, and let the application's user write to it";
    context.diagnostics.push(Diagnostic::warning(place, message).advise(advice).local());
}

/// The numbers of processes and threads.
#[derive(Default)]
pub struct ProcessesDraft {
    pub has_master: bool,
    pub count: Option<u32>,
    pub is_auto: bool,
    /// `None`: one.
    pub threads: Option<Threads>,
    pub cpus_of_each: u32,
}

/// How processes start and stop.
#[derive(Default)]
pub struct LifecycleDraft {
    pub settings: Lifecycle,
    pub worker_mercy: Option<u64>,
    pub pidfile: Option<String>,
}
