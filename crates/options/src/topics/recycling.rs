//! Options of worker replacement: recycling, harakiri, and reloads. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::life::MAX_LIVES;
use bolide_contract::recycling::{REFORK_MAX, Recycling};
use bolide_contract::reloading::Reloading;
use bolide_contract::settings::{Lifecycle, ReloadOrder, Settings};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, SECONDS, Setting, Value, accepted, field, on, rows, set, supported, within};
use crate::topics::processes::LifecycleDraft;
use crate::values;

/// Default time limit of a response to `reload-probe`, in seconds.
pub const PROBE_TIMEOUT_S: u64 = 10;

const REQUESTS: Value = within(0, i64::MAX, "requests");
/// A tebibyte in one worker is a mistake in the unit.
const MEGABYTES: Value = within(0, 1_048_576, "MiB");

/// The difference that all memory limits share.
const MEMORY_CHECKS: &str = "uWSGI checks after each request, in the worker. Bolide's master checks once a second, so that \
    requests pay nothing, and idle workers are checked too. The replacement is ready first, and one worker is replaced at \
    a time.";

pub const ENTRIES: &[OptionEntry] = rows![
    /// Replace a worker after this many requests. The replacement is ready first. The number is randomly reduced by up to 10 %,
    /// so that workers are not replaced together.
    /// uWSGI: uWSGI does not reduce the number, so its workers all exit at about the same time, before their replacements serve.
    /// Example: max-requests = 5000
    supported("max-requests", Setting::Positive(field!(RecyclingDraft.settings.max_requests)))
        .takes(REQUESTS, "off").reach(Reach::Application),
    /// Worker 2 serves this many more requests than worker 1 before it is replaced, worker 3 twice as many more, and so on. The
    /// number is not reduced randomly then.
    /// Example: max-requests = 5000
    ///          max-requests-delta = 500
    supported(
        "max-requests-delta",
        set!(|draft, row, pair| draft.of::<RecyclingDraft>().settings.max_requests_delta = draft.positive_or(row, pair, 0)?),
    )
    .takes(REQUESTS, "0")
    .reach(Reach::Application),
    /// Replace a worker after this time. The replacement serves first. The time is randomly reduced by up to 10 %.
    /// Example: max-worker-lifetime = 3600
    supported("max-worker-lifetime", Setting::Seconds(field!(RecyclingDraft.settings.max_lifetime_ms)))
        .takes(SECONDS, "off").reach(Reach::Application),
    /// Worker 2 lives this much longer than worker 1, worker 3 twice as much, and so on. The time is not reduced randomly then.
    /// Example: max-worker-lifetime = 3600
    ///          max-worker-lifetime-delta = 60
    supported(
        "max-worker-lifetime-delta",
        set!(|draft, row, pair| draft.of::<RecyclingDraft>().settings.max_lifetime_delta_ms = least_ms(draft, row, pair)?),
    )
    .takes(SECONDS, "0")
    .reach(Reach::Application),
    /// How long a worker serves at least before `max-requests` or a memory limit replaces it, so that a limit that each worker
    /// exceeds from its first request does not cause a restart loop.
    /// Example: min-worker-lifetime = 60
    supported("min-worker-lifetime", Setting::By(set_min_lifetime)).takes(SECONDS, "10").reach(Reach::Application),
    /// Fork workers from one that has answered this many requests, so that they share what the application has loaded and cached
    /// while it served. The worker is replaced, finishes its requests, and becomes the process that forks workers. The other
    /// workers, mules and spoolers are then replaced one after the other. Connections of Django, SQLAlchemy and redis-py are
    /// closed before. If the application has anything else open that processes can't share (a thread, a connection, a pipe, a
    /// held lock, shared memory), the log lists it, and the worker is replaced like a worn one. It is for WSGI with several
    /// workers, without `lazy-apps` and `gevent`.
    /// Example: processes = 4
    ///          refork-after = 1000
    supported("refork-after", Setting::Positive(field!(RecyclingDraft.settings.refork_after)))
        .takes(REQUESTS, "off").reach(Reach::Application),
    /// How often `refork-after` does that between two reloads.
    /// Example: processes = 4
    ///          refork-after = 1000
    ///          refork-max = 2
    supported(
        "refork-max",
        set!(|draft, row, pair| draft.of::<RecyclingDraft>().settings.refork_max =
            draft.positive_or(row, pair, REFORK_MAX.into())? as u32),
    )
    .takes(within(1, MAX_LIVES as i64 - 1, "times"), "1")
    .reach(Reach::Application),
    /// Replace a worker whose resident memory, including shared memory, is this many MiB or more.
    /// Example: reload-on-rss = 512
    supported("reload-on-rss", Setting::Mebibytes(field!(RecyclingDraft.settings.memory.resident)))
        .takes(MEGABYTES, "off").uwsgi(MEMORY_CHECKS).reach(Reach::Application),
    /// Replace a worker whose address space is this many MiB or more.
    /// Example: reload-on-as = 2048
    supported("reload-on-as", Setting::Mebibytes(field!(RecyclingDraft.settings.memory.address_space)))
        .takes(MEGABYTES, "off").uwsgi(MEMORY_CHECKS).reach(Reach::Application),
    /// Replace a worker whose unshared resident memory, which is its growth since the fork, is this many MiB or more. Measuring
    /// it takes the kernel longer than for `reload-on-rss`, so the master checks one worker per second, in turn.
    /// uWSGI: An option of uWSGI 2.1.
    /// Example: reload-on-uss = 200
    supported("reload-on-uss", Setting::Mebibytes(field!(RecyclingDraft.settings.memory.unique)))
        .takes(MEGABYTES, "off").reach(Reach::Application),
    /// Like `reload-on-uss`, for resident memory with the shared part divided by the number of processes that share it.
    /// uWSGI: An option of uWSGI 2.1.
    /// Example: reload-on-pss = 300
    supported("reload-on-pss", Setting::Mebibytes(field!(RecyclingDraft.settings.memory.proportional)))
        .takes(MEGABYTES, "off").reach(Reach::Application),
    /// Kill a worker whose resident memory is this many MiB or more, immediately and with its requests. It protects against a
    /// single request that would exhaust the machine. The master checks once a second.
    /// uWSGI: uWSGI checks every three seconds. A worker that exceeds its limit right after its start is restarted after a pause,
    /// which doubles up to 10 s.
    /// Example: reload-on-rss = 512
    ///          evil-reload-on-rss = 2048
    supported("evil-reload-on-rss", Setting::Mebibytes(field!(RecyclingDraft.settings.memory.evil_resident)))
        .takes(MEGABYTES, "off").reach(Reach::Application),
    /// Like `evil-reload-on-rss`, for the address space.
    /// Example: evil-reload-on-as = 8192
    supported("evil-reload-on-as", Setting::Mebibytes(field!(RecyclingDraft.settings.memory.evil_address_space)))
        .takes(MEGABYTES, "off").reach(Reach::Application),
    /// In a cgroup version 2 (a container, a systemd service), replace the largest worker when its processes have waited for
    /// memory for this share of the last ten seconds (`memory.pressure`), or have reached `memory.high` or nine tenths of
    /// `memory.max`, before the kernel kills one. One worker is replaced at a time, ten seconds apart so that the numbers can
    /// follow.
    /// Example: reload-on-pressure = 10
    supported("reload-on-pressure", Setting::Count(field!(RecyclingDraft.settings.pressure_percent)))
        .takes(within(0, 100, "percent"), "off").reach(Reach::Application),
    /// The maximum address space of a prototype and of each worker, in MiB. Beyond it Python raises MemoryError, and a library
    /// that can't continue (for example TLS) ends the worker with SIGABRT. The log then mentions the limit. The master has no
    /// limit.
    /// Example: limit-as = 2048
    supported("limit-as", Setting::Mebibytes(field!(LifecycleDraft.settings.process.address_space_bytes)))
        .takes(MEGABYTES, "no limit").reach(Reach::Application),
    /// The maximum number of processes and threads of the user of `uid`, of all programs together. Beyond it no more can be
    /// started. Root has no such limit.
    /// Example: limit-nproc = 200
    supported("limit-nproc", Setting::Positive(field!(LifecycleDraft.settings.process.processes_most)))
        .takes(within(0, i64::MAX, "processes and threads"), "no limit").reach(Reach::Application),
    /// Write a report to this directory when a worker dies unexpectedly because of a signal, `os._exit`, `harakiri` or a memory
    /// limit. It contains the Python stacks of all threads, the native module of a fault, limits, memory, versions, the requests
    /// in flight and the last 64, without bodies, headers and values of query strings. At most 50 reports and 32 MiB are kept,
    /// and the oldest are removed. The directory must exist, and the application's user must be able to write to it. `bolide
    /// crash FILE` explains a report.
    /// Example: crash-reports = /var/lib/shop/crashes
    supported(
        "crash-reports",
        set!(|draft, _, pair| draft.of::<LifecycleDraft>().settings.crash_reports =
            Some(draft.host.directory.join(values::text(pair)?))),
    )
    .takes(Value::Path, "off")
    .reach(Reach::Master),
    /// A worker whose request takes longer than `harakiri` is sent `harakiri-graceful-signal` first, and killed only after this
    /// additional time, unless the request has ended. In this time its other threads can finish, and a signal handler of the
    /// application can abort the request.
    /// Example: harakiri = 30
    ///          harakiri-graceful-timeout = 5
    supported("harakiri-graceful-timeout", Setting::Seconds(field!(LifecycleDraft.settings.harakiri_policy.graceful_ms)))
        .takes(SECONDS, "off").reach(Reach::Application),
    /// The signal that `harakiri-graceful-timeout` sends. With 15 (SIGTERM) a worker does not accept anything new, and its
    /// replacement starts.
    /// Example: harakiri-graceful-signal = 10
    supported(
        "harakiri-graceful-signal",
        set!(|draft, row, pair| draft.of::<LifecycleDraft>().settings.harakiri_policy.graceful_signal = draft.signal(row, pair)?),
    )
    .takes(within(1, 64, "(number of a signal)"), "15")
    .reach(Reach::Application),
    /// `harakiri` does not kill workers while fewer connections than this wait at the listening sockets. The master checks again
    /// every second.
    /// Example: harakiri-queue-threshold = 10
    supported("harakiri-queue-threshold", Setting::Number(field!(LifecycleDraft.settings.harakiri_policy.queue_threshold)))
        .takes(within(0, 65_535, "connections"), "0").reach(Reach::Application),
    /// Exclude work after a request from harakiri.
    /// Why: a request's time ends with its response
    accepted("harakiri-no-arh", Value::Switch),
];

pub const RELOADS: &[OptionEntry] = rows![
    /// Each worker of a new generation requests this path from its own application before it serves, and all of them wait until
    /// every worker has its response. If the status of a response is 500 or above, or the request raises an exception, or the
    /// response does not arrive within `reload-probe-timeout`, the generation is abandoned and the old one continues. It applies
    /// to WSGI, ASGI and plugins at reloads. Startup skips it, because an old generation does not exist.
    /// Example: reload-probe = /health
    supported("reload-probe", set!(|draft, _, pair| draft.of::<ReloadingDraft>().0.probe = Some(request_target(pair)?)))
        .reach(Reach::Application),
    /// How long the response to `reload-probe` may take.
    /// Example: reload-probe-timeout = 5
    supported(
        "reload-probe-timeout",
        set!(|draft, row, pair| draft.of::<ReloadingDraft>().0.probe_timeout_ms =
            draft.positive_or(row, pair, PROBE_TIMEOUT_S)? * 1000),
    )
    .takes(within(1, 86_400, "seconds"), "10")
    .reach(Reach::Application),
    /// At a reload one worker of the new generation is forked first, and serves beside the old ones for this long. An error is a
    /// response of 500 or above, a response that an exception cuts off, or a request that `harakiri` kills. If the canary makes
    /// at least two errors and significantly more than the old workers in the same time, or dies, the generation is rolled back,
    /// as if it had failed to load, and the old one continues with its settings. A clear failure is rolled back immediately. New
    /// connections are distributed round-robin among it and the old workers. A canary with too few requests to judge (10 of its
    /// own) passes, and this is logged. Use `reload-probe` to check without traffic. One without any successful response is
    /// watched for the same time again, and then rolled back unless a response succeeded or the old workers' errors explain it.
    /// There is no canary at startup, where there is no old generation, or at a chain reload.
    /// Example: reload-canary = 30
    supported("reload-canary", Setting::Seconds(field!(ReloadingDraft.0.canary_ms)))
        .takes(within(1, 86_400, "seconds"), "").reach(Reach::Application),
    /// Request this path from the application after it is loaded, before workers are forked. Objects that it creates at its first
    /// request (for example Django's URL patterns and templates) are then created once and shared. Django's database connections
    /// are closed afterwards. A response of 500 or above and an exception are logged, and do not have another effect. It works
    /// for WSGI and the languages of plugins. ASGI applications have their lifespan instead, because each worker has its own
    /// event loop.
    /// Example: warmup = /
    ///          warmup = /login
    supported("warmup", set!(|draft, _, pair| draft.of::<ReloadingDraft>().0.warmup.push(request_target(pair)?)))
        .several().reach(Reach::Application),
    /// A reload ends the instance gracefully, with status 0, for a container or a service manager that starts it again.
    /// Example: exit-on-reload = true
    on("exit-on-reload", Setting::Switch(field!(ReloadingDraft.0.exits))).reach(Reach::Application),
    /// The program that an upgrade executes, with the arguments of startup. The default is the program that was started.
    /// uWSGI: uWSGI executes it at every reload. Bolide does not need a new master for a reload, and an upgrade is another
    /// command.
    /// Example: binary-path = /opt/bolide/bin/bolide
    supported(
        "binary-path",
        set!(|draft, _, pair| draft.of::<ReloadingDraft>().0.program =
            Some(normalized(&draft.host.directory.join(values::text(pair)?)))),
    )
    .takes(Value::Path, "")
    .reach(Reach::Master),
    /// The number of files and connections that each process may have open. Only root can exceed the limit that applies at
    /// startup. Without root, this is logged.
    /// Example: max-fd = 65536
    supported("max-fd", Setting::Positive(field!(ReloadingDraft.0.descriptors_most)))
        .takes(within(16, 1_048_576, "descriptors"), "").reach(Reach::Master),
    /// Read the environment again when an application is loaded.
    /// Why: each generation is a fresh interpreter, which reads the environment and `env` again
    accepted("reload-os-env", Value::Switch),
];

/// Seconds as milliseconds; 0 stays 0.
fn least_ms(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<u64, Diagnostic> {
    Ok(draft.positive(row, pair)?.map_or(0, |seconds| seconds.saturating_mul(1000)))
}

fn set_min_lifetime(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<RecyclingDraft>().settings.min_lifetime_ms = least_ms(draft, row, pair)?;
    draft.of::<RecyclingDraft>().min_lifetime = Some(pair.location.clone());
    Ok(())
}

impl RecyclingDraft {
    /// As in uWSGI, a minimum lifetime above the maximum is an error.
    pub fn complete(self, context: &mut Context) -> Recycling {
        let Recycling { max_lifetime_ms, min_lifetime_ms, .. } = self.settings;
        if let (Some(most), Some(location)) = (max_lifetime_ms, &self.min_lifetime)
            && min_lifetime_ms >= most
        {
            let (least, most) = (min_lifetime_ms / 1000, most / 1000);
            let message = format!("`min-worker-lifetime = {least}` is not below `max-worker-lifetime`, which is {most}");
            context.diagnostics.push(Diagnostic::error(Some(location), message).advise("make it shorter"));
        }
        self.settings
    }
}

/// `refork-after` is for several workers that are forked from a process that has loaded the application, and that can be forked
/// themselves.
pub fn check_refork(settings: &Settings, context: &mut Context) {
    if settings.recycling.refork_after.is_none() {
        return;
    }
    let place = context.read.effects.iter().rev().find(|pair| pair.key == "refork-after").map(|pair| &pair.location);
    let is_gevent = settings.language.greenlets().is_some();
    let (why, advice) = if settings.workers.processes < 2 {
        ("it needs at least two workers", "set `processes` to 2 or more, or leave it out")
    } else if settings.application.lazy {
        ("with `lazy-apps`, workers share nothing", "leave `lazy-apps` out, or leave it out")
    } else if is_gevent {
        ("an event loop and its greenlets can't be forked", "leave it out")
    } else if settings.development.is_some() || settings.watching.imports.is_some() {
        ("with `develop` and `py-autoreload`, workers live until the next change", "leave it out")
    } else {
        return;
    };
    context.diagnostics.push(Diagnostic::error(place, format!("`refork-after` can't be used here: {why}")).advise(advice));
}

/// Checks for options that can't be combined.
pub fn check_reloading(reloading: &Reloading, lifecycle: &Lifecycle, context: &mut Context) {
    if reloading.canary_ms.is_none() || lifecycle.reload_order != ReloadOrder::StopFirst {
        return;
    }
    let place = context.read.effects.iter().rev().find(|pair| pair.key == "reload-canary").map(|pair| &pair.location);
    context.diagnostics.push(
        Diagnostic::error(
            place,
            "`reload-canary` and `reload-order = stop-first` can't be combined: a canary handles requests beside the old \
                workers, which have exited by then",
        )
        .advise("leave `reload-canary` out, or leave `reload-order` as it is (`start-first`)"),
    );
}

/// The target of a request to the application: a path, with an optional query.
fn request_target(pair: &Pair) -> Result<String, Diagnostic> {
    let text = values::text(pair)?;
    let is_plain = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain {
        return Ok(text);
    }
    Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not a path that can be requested", pair.key))
        .advise("write it as a browser sends it, beginning with the first slash: `/health?deep=1`"))
}

/// When workers are replaced.
#[derive(Default)]
pub struct RecyclingDraft {
    pub settings: Recycling,
    /// Where `min-worker-lifetime` was set.
    pub min_lifetime: Option<Location>,
}

/// The values of reloads so far.
pub struct ReloadingDraft(pub Reloading);

impl Default for ReloadingDraft {
    fn default() -> ReloadingDraft {
        ReloadingDraft(Reloading { probe_timeout_ms: PROBE_TIMEOUT_S * 1000, ..Reloading::default() })
    }
}
