//! A snapshot of an instance's numbers. The master takes it; each view of it is a function elsewhere. It knows neither processes
//! nor sockets .

use bolide_contract::attendant::Schedule;
use bolide_contract::sharing::MetricKind;
use bolide_scoreboard::Work;
use bolide_scoreboard::census::Counted;

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
    pub rate_limits: Vec<RateLimitFacts>,
    /// With `enable-metrics`.
    pub metrics: Vec<Metric>,
    pub reloads: ReloadFacts,
    /// It serves until load balancers have noticed that it will be stopped.
    pub is_leaving: bool,
    /// Exited workers, by the cause.
    pub worker_ends: Vec<(&'static str, u64)>,
    pub jobs: Vec<JobFacts>,
    /// `None` without `otlp`.
    pub spans: Option<SpanCounts>,
    /// `None` without `publish`.
    pub messages: Option<MessageCounts>,
    /// `None` without `admission`.
    pub admission: Option<AdmissionFacts>,
    /// `None` without `refork-after`.
    pub reforks: Option<ReforkCounts>,
}

/// How often a worker was to become the prototype of its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReforkCounts {
    pub done: u64,
    /// Its application held what forks can't share, or it has exited.
    pub failed: u64,
}

/// The numbers of adaptive admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionFacts {
    /// Requests that were refused since startup.
    pub rejected: u64,
    /// Requests and connections that wait for a thread.
    pub waiting: u64,
    /// How many may wait; `None` while the capacity is not known.
    pub limit: Option<u32>,
    /// How long a request keeps a thread, on average of the last ones.
    pub service_us: Option<u64>,
}

/// What has become of the messages of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCounts {
    pub published: u64,
    /// Messages in inboxes: each for every process that listened.
    pub delivered: u64,
    /// An inbox had no room for them.
    pub missed: u64,
    /// Processes that listen at present.
    pub listeners: u64,
    /// What has become of them at the server of `publish` with `engine`. `None` without one.
    pub remote: Option<RemoteMessageCounts>,
}

/// Messages between instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteMessageCounts {
    /// The server has taken them.
    pub sent: u64,
    /// They did not reach the server.
    pub unsent: u64,
    /// Messages of other instances: each for every process that has received it.
    pub received: u64,
    /// How often a process has lost its connection.
    pub interruptions: u64,
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

impl SpanCounts {
    /// The counts by the names of the results.
    pub fn by_result(self) -> [(&'static str, u64); 3] {
        [("exported", self.exported), ("failed", self.failed), ("dropped", self.dropped)]
    }
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
    /// Its memory that no other process shares; `None` if it was not measured.
    pub private_bytes: Option<u64>,
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
    /// A spooler's directory.
    pub directory: String,
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

/// A rate limit, and how often it has acted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateLimitFacts {
    pub name: String,
    /// As it was written, such as `60/m`.
    pub rate: String,
    pub burst: u32,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that have passed without being counted.
    pub uncounted: u64,
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
    /// Requests that it is serving: one at most, except for an asynchronous application.
    pub fn in_request(&self) -> u64 {
        self.ongoing.max(u64::from(self.in_flight.is_some()))
    }
}
