//! A snapshot of an instance's numbers, and uWSGI's statistics of it. The master takes the snapshot; each view of it is a
//! function. It knows no process and no socket.

use bolide_contract::attendant::Schedule;
use bolide_contract::sharing::MetricKind;
use bolide_scoreboard::Work;
use bolide_scoreboard::census::Counted;

use crate::json::JsonText;
use crate::reloads::ReloadFacts;

/// The numbers of an instance at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    pub version: String,
    /// The master's.
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
    pub cwd: String,
    /// Looks that found an accept queue full.
    pub queue_errors: u64,
    /// Signals of uWSGI's that wait for any worker.
    pub signal_queue: u32,
    pub daemons: Vec<DaemonFacts>,
    pub sockets: Vec<SocketFacts>,
    pub applications: Vec<ApplicationFacts>,
    pub workers: Vec<WorkerFacts>,
    pub helpers: Vec<HelperFacts>,
    /// Messages for mules that found their queue full.
    pub refused_messages: u64,
    /// The log, then each logger.
    pub logs: Vec<LogFacts>,
    /// The application's locks: their names, and the pid of the process that holds each one, or 0.
    pub locks: Vec<(String, u32)>,
    pub caches: Vec<CacheFacts>,
    /// With `enable-metrics`.
    pub metrics: Vec<Metric>,
    pub reloads: ReloadFacts,
    /// Workers that have ended, by the cause.
    pub worker_ends: Vec<(&'static str, u64)>,
    pub jobs: Vec<JobFacts>,
    /// `None` without `otlp`.
    pub spans: Option<SpanCounts>,
}

/// What has become of the spans of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanCounts {
    /// The collector has them.
    pub exported: u64,
    /// It did not want them, or could not be reached.
    pub failed: u64,
    /// They were never sent, because too many waited.
    pub dropped: u64,
}

impl std::ops::AddAssign for SpanCounts {
    fn add_assign(&mut self, other: SpanCounts) {
        self.exported += other.exported;
        self.failed += other.failed;
        self.dropped += other.dropped;
    }
}

/// A log of the instance.
#[derive(Debug, Clone, PartialEq)]
pub struct LogFacts {
    pub name: String,
    /// Lines that were dropped since the start of the instance.
    pub lost: u64,
    /// Why it is out of reach, so that lines wait for it; `None` if it is not.
    pub absence: Option<String>,
    /// For how many milliseconds it has been, as far as that is known.
    pub absent_ms: Option<u64>,
}

/// A program that runs beside the application.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonFacts {
    pub command: String,
    /// 0 if it does not run.
    pub pid: u32,
    /// How often it was restarted.
    pub respawns: u64,
}

/// A command with a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    pub schedule: Schedule,
    pub command: String,
    pub is_unique: bool,
    /// Its last process, with its start in seconds since 1970; `None` if none runs.
    pub running: Option<(u32, u64)>,
}

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SocketFacts {
    /// As bound: `127.0.0.1:8000`.
    pub name: String,
    /// uWSGI's word for the protocol.
    pub protocol: String,
    /// Connections in the accept queue; 0 if the kernel does not report it.
    pub queue: u32,
    /// The capacity of the queue.
    pub queue_most: u32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ApplicationFacts {
    /// The path of its mount; empty for an application without one.
    pub mount: String,
}

/// A worker by its number, over all processes that had it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerFacts {
    pub number: u32,
    /// 0 if there is no such process at present.
    pub pid: u32,
    pub is_accepting: bool,
    pub is_paused: bool,
    /// Requests of the present process.
    pub requests_since_spawn: u64,
    pub harakiri_count: u64,
    /// Calls of handlers of uWSGI's signals, and signals that wait for this worker alone.
    pub signals: u64,
    pub signal_queue: u32,
    pub resident_bytes: u64,
    pub address_space_bytes: u64,
    /// Its share of the memory, in which shared pages count in parts; `None` if it was not measured.
    pub proportional_bytes: Option<u64>,
    /// Connections that it holds open.
    pub connections: u32,
    /// The same by kind and state, counted at most a second ago.
    pub census: Counted,
    /// Seconds since 1970; 0 if never.
    pub last_spawn_s: u64,
    pub spawn_count: u64,
    /// Moving average of the response time, in which the last request counts one half, in microseconds.
    pub average_us: u64,
    /// Time that the application took to load, in seconds.
    pub load_s: u64,
    pub cores: Vec<CoreFacts>,
}

/// A process beside the workers: a mule, a spooler.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HelperFacts {
    /// uWSGI's word for its kind: `mule`, `spooler`.
    pub kind: &'static str,
    /// Its number within its kind.
    pub number: u32,
    /// 0 if there is no such process at present.
    pub pid: u32,
    /// Pieces of work that the present process has done.
    pub done: u64,
    /// Earlier processes with this number.
    pub respawns: u64,
    /// A spooler's folder.
    pub folder: String,
    pub resident_bytes: u64,
    pub address_space_bytes: u64,
    /// Seconds since 1970; 0 if it does not run.
    pub last_spawn_s: u64,
    /// The piece of work in progress.
    pub in_flight: Option<RequestFacts>,
}

/// A thread of a worker, by its number.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CoreFacts {
    pub work: Work,
    /// Requests that an asynchronous application is working on.
    pub ongoing: u64,
    pub in_flight: Option<RequestFacts>,
}

/// A request in flight.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestFacts {
    /// Seconds since 1970.
    pub began_s: u64,
    /// `GET /path?query`, as far as it was stored.
    pub line: String,
}

/// A cache that processes share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheFacts {
    pub name: String,
    pub buckets: u64,
    pub key_bytes: u64,
    pub items_most: u64,
    pub blocks: u64,
    pub block_bytes: u64,
    /// With those that have expired and were not replaced yet.
    pub items: u64,
    pub hits: u64,
    pub misses: u64,
    /// Items that found it full.
    pub full: u64,
    /// Items that were too large.
    pub refused: u64,
    /// Seconds since 1970; 0 if it is not kept.
    pub changed_s: u64,
}

/// The form of the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Form {
    pub is_minified: bool,
    pub omits_cores: bool,
    pub omits_metrics: bool,
}

/// A named number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    pub name: String,
    /// uWSGI's number for SNMP; empty if it has none.
    pub oid: String,
    pub kind: MetricKind,
    pub value: i64,
}

impl Snapshot {
    /// Connections in the fullest accept queue.
    pub fn queue(&self) -> u32 {
        self.sockets.iter().map(|socket| socket.queue).max().unwrap_or(0)
    }
}

impl WorkerFacts {
    /// The total of its threads.
    pub fn work(&self) -> Work {
        self.cores.iter().map(|core| core.work).sum()
    }

    pub fn is_busy(&self) -> bool {
        self.cores.iter().any(|core| core.in_request() > 0)
    }

    /// uWSGI's word for its state.
    pub fn status(&self) -> &'static str {
        match self {
            WorkerFacts { pid: 0, .. } => "cheap",
            worker if worker.is_busy() => "busy",
            WorkerFacts { is_paused: true, .. } => "pause",
            _ => "idle",
        }
    }
}

impl CoreFacts {
    /// Requests that it is serving: one at the most, except for an asynchronous application.
    pub fn in_request(&self) -> u64 {
        self.ongoing.max(u64::from(self.in_flight.is_some()))
    }
}

/// uWSGI's statistics, with its keys and units.
pub fn as_json(snapshot: &Snapshot, form: Form) -> String {
    let mut json = JsonText::new(form.is_minified);
    let queue = snapshot.queue();
    json.text("version", &snapshot.version);
    json.number("listen_queue", queue);
    json.number("listen_queue_errors", snapshot.queue_errors);
    json.number("signal_queue", snapshot.signal_queue);
    json.number("load", queue);
    json.number("pid", snapshot.pid);
    json.number("uid", snapshot.uid);
    json.number("gid", snapshot.gid);
    json.text("cwd", &snapshot.cwd);
    if !snapshot.daemons.is_empty() {
        json.list("daemons", |list| {
            for daemon in &snapshot.daemons {
                list.entry(|entry| write_daemon(entry, daemon));
            }
        });
    }
    json.list("locks", |list| {
        for (name, holder) in &snapshot.locks {
            list.entry(|entry| entry.number(name, *holder));
        }
    });
    if !snapshot.caches.is_empty() {
        json.list("caches", |list| {
            for cache in &snapshot.caches {
                list.entry(|entry| write_cache(entry, cache));
            }
        });
    }
    if !snapshot.metrics.is_empty() && !form.omits_metrics {
        json.object("metrics", |object| {
            for metric in &snapshot.metrics {
                object.object(&metric.name, |entry| {
                    entry.number("type", metric.kind as u8);
                    entry.text("oid", &metric.oid);
                    entry.number("value", metric.value);
                });
            }
        });
    }
    json.list("sockets", |list| {
        for socket in &snapshot.sockets {
            list.entry(|entry| write_socket(entry, socket));
        }
    });
    json.list("workers", |list| {
        for worker in &snapshot.workers {
            list.entry(|entry| write_worker(entry, worker, &snapshot.applications, form));
        }
    });
    if snapshot.helpers.iter().any(|helper| helper.kind == "mule") {
        json.number("refused_messages", snapshot.refused_messages);
    }
    write_helpers(&mut json, "mules", "mule", &snapshot.helpers, write_mule);
    write_helpers(&mut json, "spoolers", "spooler", &snapshot.helpers, write_spooler);
    if !snapshot.jobs.is_empty() {
        json.list("crons", |list| {
            for job in &snapshot.jobs {
                list.entry(|entry| write_job(entry, job));
            }
        });
    }
    write_reloads(&mut json, &snapshot.reloads);
    let mut text = json.finish();
    if !form.is_minified {
        text.push('\n');
    }
    text
}

/// With uWSGI's keys, and the count of items that were too large.
fn write_cache(entry: &mut JsonText, cache: &CacheFacts) {
    entry.text("name", &cache.name);
    // A name that uWSGI does not have: the hash depends on a secret number.
    entry.text("hash", "seeded");
    entry.number("hashsize", cache.buckets);
    entry.number("keysize", cache.key_bytes);
    entry.number("max_items", cache.items_most);
    entry.number("blocks", cache.blocks);
    entry.number("blocksize", cache.block_bytes);
    entry.number("items", cache.items);
    entry.number("hits", cache.hits);
    entry.number("miss", cache.misses);
    entry.number("full", cache.full);
    entry.number("refused", cache.refused);
    entry.number("last_modified_at", cache.changed_s);
}

/// A list of the helpers of one kind, unless there are none.
fn write_helpers(json: &mut JsonText, key: &str, kind: &str, helpers: &[HelperFacts], write: fn(&mut JsonText, &HelperFacts)) {
    if !helpers.iter().any(|helper| helper.kind == kind) {
        return;
    }
    json.list(key, |list| {
        for helper in helpers.iter().filter(|helper| helper.kind == kind) {
            list.entry(|entry| {
                write(entry, helper);
                entry.number("working_since", helper.in_flight.as_ref().map_or(0, |work| work.began_s));
                entry.text("working_on", helper.in_flight.as_ref().map_or("", |work| &work.line));
            });
        }
    });
}

/// Keys that uWSGI does not have.
fn write_mule(entry: &mut JsonText, mule: &HelperFacts) {
    entry.number("id", mule.number);
    entry.number("pid", mule.pid);
    entry.text("status", if mule.in_flight.is_some() { "busy" } else { "idle" });
    entry.number("messages", mule.done);
    entry.number("rss", mule.resident_bytes);
    entry.number("vsz", mule.address_space_bytes);
    entry.number("last_spawn", mule.last_spawn_s);
}

/// With uWSGI's keys.
fn write_spooler(entry: &mut JsonText, spooler: &HelperFacts) {
    entry.text("dir", &spooler.folder);
    entry.number("pid", spooler.pid);
    entry.number("tasks", spooler.done);
    entry.number("respawns", spooler.respawns);
    entry.number("running", u32::from(spooler.in_flight.is_some()));
}

/// Keys that uWSGI does not have.
fn write_reloads(json: &mut JsonText, reloads: &ReloadFacts) {
    json.number("reloads", reloads.done);
    json.number("failed_reloads", reloads.failed);
    json.object("last_reload", |object| {
        if let Some(last) = &reloads.last {
            object.number("at", last.at_s);
            object.text("outcome", last.outcome());
            object.text("why", last.failure.as_deref().unwrap_or_default());
        }
    });
}

fn write_daemon(json: &mut JsonText, daemon: &DaemonFacts) {
    json.text("cmd", &daemon.command);
    json.number("pid", daemon.pid);
    json.number("respawns", daemon.respawns);
}

fn write_job(json: &mut JsonText, job: &JobFacts) {
    let Schedule { minute, hour, day, month, weekday } = job.schedule;
    for (key, number) in [("minute", minute), ("hour", hour), ("day", day), ("month", month), ("week", weekday)] {
        json.number(key, number);
    }
    json.text("command", &job.command);
    json.number("unique", u32::from(job.is_unique));
    json.text("legion", "");
    json.number("pid", job.running.map_or(-1, |(pid, _)| i64::from(pid)));
    json.number("started_at", job.running.map_or(0, |(_, started_s)| started_s));
}

fn write_socket(json: &mut JsonText, socket: &SocketFacts) {
    json.text("name", &socket.name);
    json.text("proto", &socket.protocol);
    json.number("queue", socket.queue);
    json.number("max_queue", socket.queue_most);
    json.number("shared", 0);
    json.number("can_offload", 0);
}

fn write_worker(json: &mut JsonText, worker: &WorkerFacts, applications: &[ApplicationFacts], form: Form) {
    let work = worker.work();
    json.number("id", worker.number);
    json.number("pid", worker.pid);
    json.number("accepting", u32::from(worker.is_accepting));
    json.number("requests", work.requests);
    json.number("delta_requests", worker.requests_since_spawn);
    json.number("exceptions", work.exceptions());
    json.number("harakiri_count", worker.harakiri_count);
    json.number("signals", worker.signals);
    json.number("signal_queue", worker.signal_queue);
    json.text("status", worker.status());
    json.number("rss", worker.resident_bytes);
    json.number("vsz", worker.address_space_bytes);
    json.number("running_time", work.busy_us);
    json.number("last_spawn", worker.last_spawn_s);
    json.number("respawn_count", worker.spawn_count);
    json.number("tx", work.sent_bytes);
    json.number("avg_rt", worker.average_us);
    json.list("apps", |list| {
        let unlisted = applications.len().saturating_sub(work.applications.len());
        for ((number, application), done) in (0u32..).zip(applications).zip(work.applications) {
            let is_last = number as usize + 1 == work.applications.len();
            list.entry(|entry| {
                entry.number("id", number);
                entry.number("modifier1", 0);
                match unlisted {
                    // The last application also has the numbers of those that are not counted separately.
                    1.. if is_last => entry.text("mountpoint", &format!("{} and {unlisted} more", application.mount)),
                    _ => entry.text("mountpoint", &application.mount),
                }
                entry.number("startup_time", worker.load_s);
                entry.number("requests", done.requests);
                entry.number("exceptions", done.exceptions);
                entry.text("chdir", "");
            });
        }
    });
    if form.omits_cores {
        return;
    }
    json.list("cores", |list| {
        for (number, core) in (0u32..).zip(&worker.cores) {
            list.entry(|entry| write_core(entry, number, core));
        }
    });
}

fn write_core(json: &mut JsonText, number: u32, core: &CoreFacts) {
    json.number("id", number);
    json.number("requests", core.work.requests);
    json.number("static_requests", core.work.static_requests);
    json.number("routed_requests", core.work.routed_requests);
    json.number("offloaded_requests", 0);
    json.number("write_errors", core.work.write_errors);
    json.number("read_errors", core.work.read_errors);
    json.number("in_request", core.in_request());
    json.list("vars", |list| {
        for variable in core.in_flight.iter().flat_map(variables_of) {
            list.item(&variable);
        }
    });
    json.object("req_info", |object| {
        if let Some(request) = &core.in_flight {
            object.number("request_start", request.began_s);
        }
    });
}

/// The stored variables of a request: those of its first line. A text that is not a request line (about a blocked event loop) is
/// reported as the URI.
fn variables_of(request: &RequestFacts) -> Vec<String> {
    let Some((method, target)) = request.line.split_once(' ').filter(|(_, target)| target.starts_with(['/', '*'])) else {
        return vec![format!("REQUEST_URI={}", request.line)];
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    vec![
        format!("REQUEST_METHOD={method}"),
        format!("PATH_INFO={}", decoded(path)),
        format!("REQUEST_URI={target}"),
        format!("QUERY_STRING={query}"),
    ]
}

/// Decodes the escapes of a path; invalid escapes stay.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let hexadecimal = |digit: u8| char::from(digit).to_digit(16);
        match (first, after) {
            (b'%', [high, low, tail @ ..]) if hexadecimal(*high).is_some() && hexadecimal(*low).is_some() => {
                bytes.push((hexadecimal(*high).unwrap_or(0) * 16 + hexadecimal(*low).unwrap_or(0)) as u8);
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
pub(crate) mod tests;
