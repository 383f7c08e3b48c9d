//! The boot record that the master passes to a prototype at exec: the settings and the numbers of the inherited descriptors.
//!
//! It travels as JSON in a sealed memory file, whose descriptor number is the prototype's only argument. It has no logic.

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    pub settings: Settings,
    /// 1 for the first prototype of an instance, incremented by each reload.
    pub generation: u32,
    /// Pid of the master. A prototype with another parent was orphaned before it started.
    pub master_pid: u32,
    /// The application may be debugged at the terminal: SIGINT and SIGHUP stay blocked, since a debugger installs its own
    /// handlers.
    pub at_terminal: bool,
    /// The prototype's end of its order socket.
    pub control: i32,
    /// The scoreboard's memory file, and its capacity in rows and slots.
    pub scoreboard: i32,
    pub scoreboard_rows: u32,
    pub scoreboard_slots: u32,
    /// Rows and slots that this generation reads.
    pub rows_in_use: u32,
    pub slots_in_use: u32,
    /// The memory file of the session ticket keys, if a listener speaks TLS or `sticky` has a cookie.
    pub ticket_keys: Option<i32>,
    /// The memory files of the services that `settings.services` asks for.
    pub memories: Vec<MemoryFile>,
    /// The queues of messages for mules.
    pub message_queues: Vec<MessageQueueFiles>,
    /// The log, opened by the master, because the prototype's user may lack permission.
    pub log: Option<i32>,
    /// The other logs, in the order of `settings.logging.targets`.
    pub log_targets: Vec<i32>,
    /// The memory file in which the processes of an instance count the lines that their logs have lost.
    pub log_losses: Option<i32>,
    /// The socket over which processes raise alarms, if there are any.
    pub alarms: Option<i32>,
    /// The socket to which workers give spans, if there are any.
    pub spans: Option<i32>,
    /// A memory file, initially empty: a process that can't load the application writes the reason there, in one line.
    pub reason: i32,
    /// In development: a memory file for the error page of a process that can't load the application.
    pub error_page: Option<i32>,
    /// No generation serves. In development, an error page then stands in for an application that can't be loaded.
    pub no_generation_serves: bool,
    /// The two ends of the queue of connections that need another worker, if there may be several workers: the end to put into,
    /// and the end to take from.
    pub connection_queue: Option<[i32; 2]>,
    /// What workers need to find the one that has a session; `None` without `sticky`.
    pub sessions: Option<SessionFiles>,
    /// What workers share to count requests, in the order of `settings.answering.bulkheads`.
    pub bulkheads: Vec<BulkheadFiles>,
    /// Listening sockets, in the order of `settings.listeners`. They are non-blocking.
    pub listeners: Vec<ListenerDescriptor>,
    /// The secret of signals that name a reader of memory ([`crate::message::reader_signal`]); 0: there are none.
    pub reader_secret: u32,
    /// Directory of the Python package `bolide`, for an interpreter that can't find it by itself.
    pub package_directory: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerDescriptor {
    pub descriptor: i32,
    /// The bound address, for the log and for SERVER_NAME/SERVER_PORT: `127.0.0.1:8080`, `/run/app.sock`.
    pub bound: String,
    /// The master bound the socket itself; it was not inherited from the process that started the master.
    pub is_ours: bool,
}

/// The table of session owners, and the pairs over which connections move to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFiles {
    /// The memory file of the table.
    pub owners: i32,
    /// The ends of each pair to put into and to take from. A worker has the pair of its number and its generation's side.
    pub pairs: Vec<[i32; 2]>,
    /// Which of the two generations that may serve at the same time this one is.
    pub side: bool,
}

impl SessionFiles {
    /// The place of a worker's pair. Workers are numbered from 1.
    pub fn place(number: u32, side: bool) -> usize {
        (number as usize).saturating_sub(1) * 2 + usize::from(side)
    }

    /// The descriptors of all of it.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.pairs.iter().flatten().copied().chain([self.owners])
    }
}

/// The memory of a bulkhead's permits, and the eventfd that wakes workers whose requests wait for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkheadFiles {
    /// The one of `bulkhead`.
    pub name: String,
    pub memory: i32,
    pub bell: i32,
}

impl BulkheadFiles {
    pub fn descriptors(&self) -> [i32; 2] {
        [self.memory, self.bell]
    }
}

/// A memory file that the processes of the instance share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFile {
    /// Unique within its kind.
    pub name: String,
    pub kind: MemoryKind,
    pub descriptor: i32,
}

/// A queue of messages: a pair of sockets, each packet of which is a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueueFiles {
    /// `mules`, `mule 1`, `farm mail`
    pub name: String,
    /// The end that senders write to.
    pub put: i32,
    /// The end that mules read from.
    pub take: i32,
}

crate::with_words! {
    /// The structure that a memory file holds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum MemoryKind {
        Cache = "cache",
        Locks = "locks",
        Queue = "queue",
        SharedArea = "sharedarea",
        Metrics = "metrics",
        Signals = "signals",
        /// The rows of the engines on the network.
        Engines = "engines",
        /// Who listens to which channels, and whose inbox is whose.
        Inboxes = "inboxes",
        /// The requests of each client that a rate limit counts.
        RateLimit = "rate limit",
        /// Bytes of a file that belong to the memory of this name, without a head.
        Data = "data",
    }
    /// The kind in messages, before the name: `cache "sessions"`.
    pub fn word() -> &'static str;
}

impl MemoryKind {
    /// The number in the head of the memory. 0 is none.
    pub const fn code(self) -> u32 {
        match self {
            MemoryKind::Cache => 1,
            MemoryKind::Locks => 2,
            MemoryKind::Queue => 3,
            MemoryKind::SharedArea => 4,
            MemoryKind::Metrics => 5,
            MemoryKind::Signals => 6,
            MemoryKind::Engines => 7,
            MemoryKind::Data => 8,
            MemoryKind::Inboxes => 9,
            MemoryKind::RateLimit => 10,
        }
    }
}
