//! Settings of locks, the queue, memory areas and metrics, which the processes of an instance share. Plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `queue`: a ring of items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub slots: u64,
    /// `queue-blocksize`: bytes of a slot, of which 16 are for the item's length and time.
    pub block_bytes: u64,
    /// `queue-store`
    pub store: Option<QueueStore>,
    /// Where the queue was configured.
    pub origin: String,
}

/// `queue-store`: the file of the queue, which keeps it beyond the end of the instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStore {
    pub path: PathBuf,
    /// Seconds between two writes to the disk; 0 leaves the time to the kernel.
    pub sync_s: u64,
}

impl Queue {
    /// As in uWSGI.
    pub const BLOCK_BYTES: u64 = 8192;
}

/// `publish`: the inboxes of processes that subscribe to channels (`bolide.subscribe`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inboxes {
    /// How many processes may listen at the same time.
    pub count: u32,
    /// `publish-inbox-size`: bytes of an inbox, with the kernel's overhead; `None` is [`Inboxes::BYTES`], or what the kernel
    /// allows.
    pub bytes: Option<usize>,
}

impl Inboxes {
    /// Bytes of an inbox: what the kernel allows a process without root by default (net.core.wmem_max), and counts twice.
    pub const BYTES: usize = 212_992;
    /// The most inboxes. Each is two descriptors in every process.
    pub const MAX: u32 = 1024;
    /// Their number is a multiple of it, so that a reload with one more worker keeps them.
    const STEP: u32 = 8;

    /// The number for this many workers and helpers: three generations of workers at the same time, as in the scoreboard.
    pub fn count_for(workers: u32, helpers: u32) -> u32 {
        let processes = workers.saturating_mul(3).saturating_add(2).saturating_add(helpers);
        processes.checked_next_multiple_of(Self::STEP).unwrap_or(Self::MAX).min(Self::MAX)
    }

    /// The names of their queues. They contain the number of inboxes: a memory for another number never shares a queue with
    /// this one.
    pub fn queue_names(&self) -> impl Iterator<Item = String> {
        let count = self.count;
        (1..=count).map(move |number| format!("inbox {number} of {count}"))
    }

    /// Returns whether a queue of this name is an inbox.
    pub fn is_queue_name(name: &str) -> bool {
        name.starts_with("inbox ")
    }
}

/// `sharedarea`: bytes that processes read and write in place. Areas have numbers from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    pub bytes: u64,
    pub source: AreaSource,
    /// Where the area was configured.
    pub origin: String,
}

/// The bytes of an area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AreaSource {
    /// Memory of the instance, which begins as zeros.
    Memory,
    File {
        path: PathBuf,
        offset: u64,
    },
    /// A descriptor that the server has inherited.
    Descriptor {
        number: i32,
        offset: u64,
    },
}

impl AreaSource {
    /// The first byte of the area in its file.
    pub fn offset(&self) -> u64 {
        match self {
            AreaSource::Memory => 0,
            AreaSource::File { offset, .. } | AreaSource::Descriptor { offset, .. } => *offset,
        }
    }
}

/// `enable-metrics`, and everything that adds to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// The metrics of the configuration, which come after those of the server.
    pub own: Vec<OwnMetric>,
    pub thresholds: Vec<Threshold>,
    /// `metrics-dir`: a file for each metric.
    pub directory: Option<PathBuf>,
    /// `metrics-dir-restore`: metrics begin with the values in the directory.
    pub restores: bool,
    /// The workers and sockets that have metrics of their own.
    pub workers: u32,
    pub sockets: u32,
    /// The threads of a worker that have metrics of their own: none with `metrics-no-cores`.
    pub cores: u32,
}

impl Metrics {
    /// The most metrics of an instance.
    pub const MAX: usize = 16_384;
}

/// `metric`: a metric that the configuration adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnMetric {
    pub name: String,
    pub oid: String,
    pub kind: MetricKind,
    pub source: MetricSource,
    /// The first value; a collected value is added to it.
    pub initial: i64,
    /// Seconds between two collections.
    pub every_s: u64,
    /// The value returns to the first one after each push of the statistics.
    pub resets_after_push: bool,
    /// Where the metric was configured.
    pub origin: String,
}

/// How a metric is to be read. The codes are uWSGI's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetricKind {
    /// It only grows.
    Counter = 0,
    /// It goes up and down.
    Gauge = 1,
    /// A counter that begins again.
    Absolute = 2,
    /// Another name for a metric.
    Alias = 3,
}

/// Where the value of a metric comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetricSource {
    /// The application sets it.
    Application,
    /// It is the value of this metric.
    Alias(String),
    /// The word of this number, from 0, in a file.
    File { path: PathBuf, word: u32 },
    /// A number computed from these metrics.
    Of { children: Vec<String>, how: Collector },
}

/// A computation on the values of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collector {
    Sum,
    /// The sum, added to the last value.
    Accumulator,
    /// The sum and this number.
    Adder(i64),
    /// The sum, multiplied by this number.
    Multiplier(i64),
    Average,
}

/// `metric-threshold`: what happens when a metric reaches a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Threshold {
    /// The name of the metric.
    pub metric: String,
    pub value: i64,
    /// The value that the metric is set to.
    pub reset: Option<i64>,
    /// The name of an alarm.
    pub alarm: Option<String>,
    /// Seconds between two alarms at least.
    pub rate_s: u64,
    /// The text of the alarm; the metric's name if there is none.
    pub message: Option<String>,
    /// Where the threshold was configured.
    pub origin: String,
}
