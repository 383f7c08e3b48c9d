//! The connection of two masters at an upgrade, a socket pair, as each side sees the other: the successor, which takes over, and
//! the predecessor, which has handed over its sockets. The resources that only one master of an instance can have (pidfiles,
//! files of sockets, the address of `stats`, daemons) belong to the successor once its workers serve. The master runs it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bolide_contract::boot::{MemoryFile, MessageQueueFiles};
use bolide_contract::settings::Address;
use bolide_contract::succession::{HandedQueue, HandedSocket, Step, Succession, VARIABLE};
use nix::unistd::Pid;

use crate::polling::Source;
use crate::sockets::bulkheads::HandedBulkhead;
use crate::system;

/// Bytes of a successor's failure message.
const MAX_WHY_BYTES: usize = 2000;
/// Reads of it in a turn: a program that writes without end must not block the master.
const READS_A_TURN: usize = 8;

/// The master that takes over from us, or has done so.
#[derive(Debug)]
pub struct Successor {
    /// Its pid.
    pub pid: Pid,
    /// Its pidfd, which keeps referring to it when its pid is reused.
    pub process: OwnedFd,
    /// `None` if it has closed its end.
    pub channel: Option<UnixStream>,
    /// Its stage.
    pub stage: SuccessorStage,
    /// Its workers take open connections from the queue that it was handed.
    pub takes_connections: bool,
}

/// The stage of a successor.
#[derive(Debug)]
pub enum SuccessorStage {
    /// It does not serve yet.
    Starting {
        /// Its deadline.
        until_ms: u64,
        /// The beginning of its failure message.
        why: Vec<u8>,
    },
    /// It serves, and we are stopping.
    InPlace {
        /// It was told that our daemons have exited.
        knows_that_daemons_are_gone: bool,
    },
}

/// An event of the successor.
#[derive(Debug, PartialEq, Eq)]
pub enum SuccessorEvent {
    /// No event.
    Nothing,
    /// Its workers serve.
    Serves,
    /// It has closed its end: it has exited, or failed.
    Gone,
}

impl Successor {
    /// Its end of the pair, to wait on; `None` if it is closed.
    pub fn source<T>(&self, token: T) -> Option<Source<'_, T>> {
        Some(Source::readable(token, self.channel.as_ref()?.as_fd()))
    }

    /// Whether it has taken over.
    pub fn is_in_place(&self) -> bool {
        matches!(self.stage, SuccessorStage::InPlace { .. })
    }

    /// Its deadline.
    pub fn wake_ms(&self) -> Option<u64> {
        match self.stage {
            SuccessorStage::Starting { until_ms, .. } => Some(until_ms),
            SuccessorStage::InPlace { .. } => None,
        }
    }

    /// Reads all of its pending messages.
    pub fn take_news(&mut self) -> SuccessorEvent {
        let mut bytes = [0; 512];
        for _ in 0..READS_A_TURN {
            let Some(channel) = &mut self.channel else { break };
            let count = match channel.read(&mut bytes) {
                Ok(count) => count,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                Err(_) => 0,
            };
            if count == 0 {
                self.channel = None;
                return SuccessorEvent::Gone;
            }
            let SuccessorStage::Starting { why, .. } = &mut self.stage else { break };
            let steps = bytes[..count].iter().map_while(|byte| Step::of(*byte));
            let steps: Vec<Step> = if why.is_empty() { steps.take(2).collect() } else { Vec::new() };
            if let [Step::Serves, ..] | [Step::TakesConnections, Step::Serves] = steps[..] {
                self.takes_connections = steps[0] == Step::TakesConnections;
                return SuccessorEvent::Serves;
            }
            let room = MAX_WHY_BYTES.saturating_sub(why.len());
            why.extend_from_slice(&bytes[..count.min(room)]);
        }
        SuccessorEvent::Nothing
    }

    /// Its failure message.
    pub fn why(&self) -> Option<String> {
        let SuccessorStage::Starting { why, .. } = &self.stage else { return None };
        let (first, words) = why.split_first()?;
        (Step::of(*first) == Some(Step::Failed)).then(|| String::from_utf8_lossy(words).into_owned())
    }

    /// Sends it a step.
    pub fn tell(&mut self, step: Step) {
        // The write fails if it has exited. The socket has room for the few bytes that are ever sent.
        let _ = self.channel.as_mut().map(|channel| channel.write_all(&[step.byte()]));
    }
}

/// The previous master, from which this process takes over.
#[derive(Debug)]
pub struct Predecessor {
    channel: UnixStream,
    stage: PredecessorStage,
    takes_connections: bool,
    /// The locks of the pidfiles, which are ours as long as they are open.
    _locks: Vec<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PredecessorStage {
    /// Our workers do not serve yet.
    Awaited,
    /// They serve, and the previous master was told.
    Ours,
    /// It is gone.
    Alone,
}

/// Everything that the previous master has handed over.
#[derive(Debug)]
pub struct Inheritance {
    /// The other end of the pair.
    pub place: Predecessor,
    /// The listening sockets, by the addresses of the configuration.
    pub sockets: Vec<(Address, OwnedFd)>,
    /// The sockets of `stats` and `metrics`.
    pub statistics: Vec<(Address, OwnedFd)>,
    /// The memory of services.
    pub memories: Vec<(MemoryFile, OwnedFd)>,
    /// The queues of messages for mules: the name, and the ends to put into and to take from.
    pub message_queues: Vec<(String, OwnedFd, OwnedFd)>,
    /// The queue of open connections: the record, and the ends to put into and to take from.
    pub connection_queue: Option<(HandedQueue, OwnedFd, OwnedFd)>,
    /// The memory of the keys that seal session tickets and the cookie of `sticky`.
    pub ticket_keys: Option<OwnedFd>,
    /// The permits of bulkheads.
    pub bulkheads: Vec<HandedBulkhead>,
}

/// An event of the previous master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredecessorEvent {
    /// It has given up its place, and no longer notifies the service manager.
    Given,
    /// Its daemons have exited.
    DaemonsGone,
    /// It has exited before our workers served.
    Lost,
}

/// The handover message, if this process takes over from another master.
fn handed() -> Option<Succession> {
    let text = std::env::var(VARIABLE).ok()?;
    let handed: Succession = serde_json::from_str(&text).ok()?;
    (handed.master_pid == nix::unistd::getppid().as_raw().cast_unsigned()).then_some(handed)
}

/// The pid of the master from which this process takes over.
pub fn predecessor() -> Option<u32> {
    handed().map(|handed| handed.master_pid)
}

/// Reports a failed start to the previous master, if there is one.
#[derive(Debug)]
pub struct FailureReport(Option<UnixStream>);

impl FailureReport {
    /// The pair that the environment names; without one nothing is sent.
    pub fn of_environment() -> FailureReport {
        FailureReport(handed().and_then(|handed| system::copy_of(handed.channel).ok()).map(UnixStream::from))
    }

    /// Sends the reason of the failure, cut to 2000 bytes.
    pub fn say(self, why: &str) {
        let Some(mut channel) = self.0 else { return };
        let mut said = vec![Step::Failed.byte()];
        said.extend(why.bytes().take(MAX_WHY_BYTES - 1));
        // The write fails if it has exited.
        let _ = channel.write_all(&said);
    }
}

impl Inheritance {
    /// The handed-over resources, if this process takes over from another master.
    pub fn of_environment() -> Option<Inheritance> {
        let handed = handed()?;
        let take = |descriptor: i32| system::adopt(descriptor).ok();
        let socket = |socket: HandedSocket| Some((socket.address, take(socket.descriptor)?));
        let memory = |memory: MemoryFile| take(memory.descriptor).map(|descriptor| (memory, descriptor));
        let queue = |queue: MessageQueueFiles| Some((queue.name, take(queue.put)?, take(queue.take)?));
        let channel = UnixStream::from(take(handed.channel)?);
        channel.set_nonblocking(true).ok()?;
        let locks = handed.locks.iter().filter_map(|lock| take(*lock)).collect();
        Some(Inheritance {
            place: Predecessor { channel, stage: PredecessorStage::Awaited, takes_connections: false, _locks: locks },
            sockets: handed.sockets.into_iter().filter_map(socket).collect(),
            statistics: handed.statistics.into_iter().chain(handed.metrics).filter_map(socket).collect(),
            memories: handed.memories.into_iter().filter_map(memory).collect(),
            message_queues: handed.message_queues.into_iter().filter_map(queue).collect(),
            connection_queue: handed.connection_queue.and_then(|queue| Some((queue, take(queue.put)?, take(queue.take)?))),
            ticket_keys: handed.ticket_keys.and_then(take),
            bulkheads: handed
                .bulkheads
                .into_iter()
                .filter_map(|files| Some((files.name, take(files.memory)?, take(files.bell)?)))
                .collect(),
        })
    }
}

impl Predecessor {
    /// Whether our workers do not serve yet: then the instance still belongs to the previous master.
    pub fn is_awaited(&self) -> bool {
        self.stage == PredecessorStage::Awaited
    }

    /// Its end of the pair, to wait on; `None` if it is closed.
    pub fn source<T>(&self, token: T) -> Option<Source<'_, T>> {
        (self.stage != PredecessorStage::Alone).then(|| Source::readable(token, self.channel.as_fd()))
    }

    /// Our workers take open connections from the queue that the previous master has handed over.
    pub fn will_take_connections(&mut self) {
        self.takes_connections = true;
    }

    /// Our workers serve: tells the previous master to stop.
    pub fn take(&mut self) {
        self.stage = PredecessorStage::Ours;
        let steps = [Step::TakesConnections.byte(), Step::Serves.byte()];
        // One write, so that the other side reads both together. It fails if it has exited in the meantime.
        let _ = self.channel.write_all(if self.takes_connections { &steps } else { &steps[1..] });
    }

    /// Reads the messages of the previous master. The end of the stream implies all of them.
    pub fn take_news(&mut self) -> Vec<PredecessorEvent> {
        let mut bytes = [0; 16];
        match self.channel.read(&mut bytes) {
            Ok(count) if count > 0 => {
                let news = |byte: &u8| match Step::of(*byte)? {
                    Step::HandedOver => Some(PredecessorEvent::Given),
                    Step::DaemonsGone => Some(PredecessorEvent::DaemonsGone),
                    Step::TakesConnections | Step::Serves | Step::Failed => None,
                };
                bytes[..count].iter().filter_map(news).collect()
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Vec::new(),
            _ => match std::mem::replace(&mut self.stage, PredecessorStage::Alone) {
                PredecessorStage::Awaited => vec![PredecessorEvent::Lost],
                _ => vec![PredecessorEvent::Given, PredecessorEvent::DaemonsGone],
            },
        }
    }
}
