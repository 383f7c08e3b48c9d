//! Two masters at an upgrade, as each sees the other at its end of a pair of sockets: the successor, which is to take this one's place, and
//! the predecessor, which has handed its sockets over. What only one master of an instance can have (pidfiles, files of sockets, the address
//! of `stats`, daemons) is the successor's when its workers serve. The master runs it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bolide_contract::settings::Address;
use bolide_contract::succession::{HandedSocket, Step, Succession, VARIABLE};
use nix::unistd::Pid;

use crate::polling::Source;
use crate::processes::system;

/// Bytes of what a successor says of its failure.
const WHY_MOST_BYTES: usize = 2000;
/// Parts that are read of it in a turn: a program that writes without end keeps nobody waiting.
const READS_A_TURN: usize = 8;

/// The master that is to take our place, or has done so.
#[derive(Debug)]
pub struct Successor {
    /// Its pid.
    pub pid: Pid,
    /// Names it still when its number is another's.
    pub process: OwnedFd,
    /// `None`: it has closed its end.
    pub channel: Option<UnixStream>,
    /// How far it is.
    pub stage: SuccessorStage,
}

/// How far a successor is.
#[derive(Debug)]
pub enum SuccessorStage {
    /// It does not serve yet.
    Starting {
        /// When patience with it ends.
        until_ms: u64,
        /// What it has said of its failure.
        why: Vec<u8>,
        /// A reload was asked for meanwhile, a brutal one or not.
        reload_waits: Option<bool>,
    },
    /// It serves, and we end.
    InPlace {
        /// It was told that our daemons have ended.
        knows_that_daemons_are_gone: bool,
    },
}

/// News of the successor.
#[derive(Debug, PartialEq, Eq)]
pub enum SuccessorNews {
    /// There is none.
    Nothing,
    /// Its workers serve.
    Serves,
    /// It has closed its end: it has ended, or is of no use.
    Gone,
}

impl Successor {
    /// Its end of the pair, to wait on; `None` when that is closed.
    pub fn source<T>(&self, token: T) -> Option<Source<'_, T>> {
        Some(Source::readable(token, self.channel.as_ref()?.as_fd()))
    }

    /// Whether it serves in our place.
    pub fn is_in_place(&self) -> bool {
        matches!(self.stage, SuccessorStage::InPlace { .. })
    }

    /// When patience with it ends.
    pub fn wake_ms(&self) -> Option<u64> {
        match self.stage {
            SuccessorStage::Starting { until_ms, .. } => Some(until_ms),
            SuccessorStage::InPlace { .. } => None,
        }
    }

    /// Takes what it says, all that has come.
    pub fn take_news(&mut self) -> SuccessorNews {
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
                return SuccessorNews::Gone;
            }
            let SuccessorStage::Starting { why, .. } = &mut self.stage else { break };
            if why.is_empty() && Step::of(bytes[0]) == Some(Step::Serves) {
                return SuccessorNews::Serves;
            }
            let room = WHY_MOST_BYTES.saturating_sub(why.len());
            why.extend_from_slice(&bytes[..count.min(room)]);
        }
        SuccessorNews::Nothing
    }

    /// What it has said of its failure.
    pub fn why(&self) -> Option<String> {
        let SuccessorStage::Starting { why, .. } = &self.stage else { return None };
        let (first, words) = why.split_first()?;
        (Step::of(*first) == Some(Step::Failed)).then(|| String::from_utf8_lossy(words).into_owned())
    }

    /// Tells it of a step.
    pub fn tell(&mut self, step: Step) {
        // One that has ended has nothing to hear; the pair has room for the few bytes that are ever sent.
        let _ = self.channel.as_mut().map(|channel| channel.write_all(&[step.byte()]));
    }
}

/// The place of the master before us.
#[derive(Debug)]
pub struct Predecessor {
    channel: UnixStream,
    stage: PredecessorStage,
    /// Locks of pidfiles, which are ours as long as they are open.
    _locks: Vec<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PredecessorStage {
    /// Our workers do not serve yet.
    Awaited,
    /// They serve, and the master before us knows.
    Ours,
    /// It is gone.
    Alone,
}

/// What the master before us has handed over.
#[derive(Debug)]
pub struct Inheritance {
    /// The other end of the pair.
    pub place: Predecessor,
    /// The listening sockets, by the addresses of the configuration.
    pub sockets: Vec<(Address, OwnedFd)>,
    /// The socket of `stats`.
    pub statistics: Option<(Address, OwnedFd)>,
}

/// News of the master before us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredecessorNews {
    /// It speaks to nobody any more.
    Given,
    /// Its daemons have ended.
    DaemonsGone,
    /// It has ended before our workers served.
    Lost,
}

/// What was handed to this process, if it takes another one's place.
fn handed() -> Option<Succession> {
    let text = std::env::var(VARIABLE).ok()?;
    let handed: Succession = serde_json::from_str(&text).ok()?;
    (handed.master_pid == nix::unistd::getppid().as_raw().cast_unsigned()).then_some(handed)
}

/// The pid of the master whose place this process is to take.
pub fn predecessor() -> Option<u32> {
    handed().map(|handed| handed.master_pid)
}

/// The way to say to the master before us, if there is one, why this process does not come to serve.
#[derive(Debug)]
pub struct LastWord(Option<UnixStream>);

impl LastWord {
    /// The pair that the environment names; without one nothing is said.
    pub fn of_environment() -> LastWord {
        LastWord(handed().and_then(|handed| system::copy_of(handed.channel).ok()).map(UnixStream::from))
    }

    /// Says why this process does not come to serve, cut to 2000 bytes.
    pub fn say(self, why: &str) {
        let Some(mut channel) = self.0 else { return };
        let mut said = vec![Step::Failed.byte()];
        said.extend(why.bytes().take(WHY_MOST_BYTES - 1));
        // One that has ended has nothing to hear.
        let _ = channel.write_all(&said);
    }
}

impl Inheritance {
    /// What was handed to this process, if it takes another one's place.
    pub fn of_environment() -> Option<Inheritance> {
        let handed = handed()?;
        let take = |descriptor: i32| system::adopt(descriptor).ok();
        let socket = |socket: HandedSocket| Some((socket.address, take(socket.descriptor)?));
        let channel = UnixStream::from(take(handed.channel)?);
        channel.set_nonblocking(true).ok()?;
        let locks = handed.locks.iter().filter_map(|lock| take(*lock)).collect();
        Some(Inheritance {
            place: Predecessor { channel, stage: PredecessorStage::Awaited, _locks: locks },
            sockets: handed.sockets.into_iter().filter_map(socket).collect(),
            statistics: handed.statistics.and_then(socket),
        })
    }
}

impl Predecessor {
    /// Our workers do not serve yet: the instance is the other master's.
    pub fn is_awaited(&self) -> bool {
        self.stage == PredecessorStage::Awaited
    }

    /// Its end of the pair, to wait on; `None` when that is closed.
    pub fn source<T>(&self, token: T) -> Option<Source<'_, T>> {
        (self.stage != PredecessorStage::Alone).then(|| Source::readable(token, self.channel.as_fd()))
    }

    /// Our workers serve: the master before us ends.
    pub fn take(&mut self) {
        self.stage = PredecessorStage::Ours;
        // One that has ended meanwhile has nothing to hear.
        let _ = self.channel.write_all(&[Step::Serves.byte()]);
    }

    /// Takes what the master before us says. Its end says all of it.
    pub fn take_news(&mut self) -> Vec<PredecessorNews> {
        let mut bytes = [0; 16];
        match self.channel.read(&mut bytes) {
            Ok(count) if count > 0 => {
                let news = |byte: &u8| match Step::of(*byte)? {
                    Step::PlaceGiven => Some(PredecessorNews::Given),
                    Step::DaemonsGone => Some(PredecessorNews::DaemonsGone),
                    Step::Serves | Step::Failed => None,
                };
                bytes[..count].iter().filter_map(news).collect()
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Vec::new(),
            _ => match std::mem::replace(&mut self.stage, PredecessorStage::Alone) {
                PredecessorStage::Awaited => vec![PredecessorNews::Lost],
                _ => vec![PredecessorNews::Given, PredecessorNews::DaemonsGone],
            },
        }
    }
}
