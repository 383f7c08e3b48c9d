//! The record that a master passes to its successor at an upgrade, and the messages of the two masters afterwards.
//!
//! The record travels as JSON in an environment variable, with the numbers of the inherited descriptors; the messages over a pair
//! of sockets. It has no logic. Only masters use it.

use serde::{Deserialize, Serialize};

use crate::boot::{BulkheadFiles, MemoryFile, MessageQueueFiles};
use crate::settings::Address;

/// The environment variable. It does not have Bolide's prefix, because variables with that prefix are options.
pub const VARIABLE: &str = "SUCCESSION_OF_BOLIDE";

/// The state that the successor takes over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Succession {
    /// Pid of the master that hands over. A process with another parent has inherited the variable by accident.
    pub master_pid: u32,
    /// The successor's end of the pair.
    pub channel: i32,
    /// Descriptors that are only kept open: the locks of pidfiles.
    pub locks: Vec<i32>,
    pub sockets: Vec<HandedSocket>,
    /// The socket of `stats`.
    pub statistics: Option<HandedSocket>,
    /// The socket of `metrics`.
    #[serde(default)]
    pub metrics: Option<HandedSocket>,
    /// The memory of services. A master of an earlier version hands none over.
    #[serde(default)]
    pub memories: Vec<MemoryFile>,
    /// The queues of messages for mules.
    #[serde(default)]
    pub message_queues: Vec<MessageQueueFiles>,
    /// The queue of open connections that need a worker.
    #[serde(default)]
    pub connection_queue: Option<HandedQueue>,
    /// The memory file of the keys that seal session tickets and the cookie of `sticky`.
    #[serde(default)]
    pub ticket_keys: Option<i32>,
    /// The permits of bulkheads.
    #[serde(default)]
    pub bulkheads: Vec<BulkheadFiles>,
}

/// The queue of open connections: its two ends, and the version of its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedQueue {
    pub put: i32,
    pub take: i32,
    pub version: u8,
}

/// A listening socket, and its configured address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandedSocket {
    pub address: Address,
    pub descriptor: i32,
}

/// The progress of the upgrade: a byte from one master to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// From the successor, before `Serves`: its workers take open connections from the queue that it was handed.
    TakesConnections,
    /// From the successor: its workers serve.
    Serves,
    /// From the successor: it failed to start. The reason follows, up to the end of the stream.
    Failed,
    /// From the old master: it no longer serves, and no longer talks to the service manager.
    HandedOver,
    /// From the old master: its daemons have exited.
    DaemonsGone,
}

impl Step {
    const ALL: [Step; 5] = [Step::TakesConnections, Step::Serves, Step::Failed, Step::HandedOver, Step::DaemonsGone];

    pub fn byte(self) -> u8 {
        match self {
            Step::TakesConnections => b'c',
            Step::Serves => b's',
            Step::Failed => b'f',
            Step::HandedOver => b'p',
            Step::DaemonsGone => b'd',
        }
    }

    pub fn of(byte: u8) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.byte() == byte)
    }
}
