//! Vassals that the emperor before has left: it finds them, and connects to them. The kernel says who they are, and only their
//! own user's vassals can have their names. It starts and stops nothing. The emperor runs it, at startup.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use bolide_contract::emperor::{Emperor, Place};
use bolide_contract::loyalty::{self, Greeting, MAX_GREETING_BYTES};
use bolide_supervision::polling::Source;
use nix::unistd::geteuid;

use crate::peers::{self, Peer};

/// The sockets of this network namespace (proc_net(5)).
const SOCKETS: &str = "/proc/net/unix";
/// Orphans that are looked for, at most.
const MAX_ORPHANS: usize = 100_000;
/// Connections to orphans at the same time: each needs a descriptor.
const MAX_CONNECTED: usize = 256;
/// Time that an orphan has to say who it is, in milliseconds. Nothing is started before, because it may be there already.
const GREETING_MS: u64 = 1000;
/// The time between two attempts to connect to those whose queue is full, in milliseconds.
const RETRY_MS: u64 = 5;
/// Orphans of one user that do not say who they are. Others of that user are not waited for: any user can make such names.
const MAX_SILENT_OF_USER: u32 = 16;

/// An orphan that has said who it is.
#[derive(Debug)]
pub struct Orphan {
    pub greeting: Greeting,
    pub link: UnixStream,
    pub pid: i32,
    pub user: u32,
}

/// Orphans that have not said who they are.
#[derive(Debug, Default)]
pub struct Orphans {
    /// The names of those to connect to.
    names: Vec<String>,
    silent: Vec<SilentOrphan>,
    /// The names of those whose queue is full, and until when each is tried again.
    busy: Vec<(String, u64)>,
    /// When they are tried again.
    retry_ms: u64,
    /// How many of a user have said nothing in time.
    failures: HashMap<u32, u32>,
}

#[derive(Debug)]
struct SilentOrphan {
    stream: UnixStream,
    peer: Peer,
    received: Vec<u8>,
    until_ms: u64,
}

/// Returns the name of an emperor, by which the next one finds its vassals: the same places, and the same user.
pub fn court_of(emperor: &Emperor) -> String {
    let place = |place: &Place| match place {
        Place::Directory(path) => path.to_string_lossy().into_owned(),
        Place::Glob(pattern) => pattern.clone(),
    };
    let texts: Vec<String> = emperor.places.iter().map(place).chain([geteuid().to_string()]).collect();
    // FNV-1a, which is the same in all versions.
    let hash = texts
        .join("\n")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

impl Orphans {
    /// Finds all that wait for an emperor of this name, and connects to the first of them.
    pub fn find(court: &str, now_ms: u64) -> Orphans {
        let beginning = format!("@{}", loyalty::beginning_of_names(court));
        let text = std::fs::read(SOCKETS).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let names = text.lines().filter_map(|line| line.split_whitespace().nth(7)).filter(|name| name.starts_with(&beginning));
        let mut names: Vec<String> = names.filter_map(|name| name.strip_prefix('@')).map(str::to_owned).collect();
        // A connection has the name too.
        names.sort_unstable();
        names.dedup();
        names.truncate(MAX_ORPHANS);
        let mut orphans = Orphans { names, ..Orphans::default() };
        orphans.connect(now_ms);
        orphans
    }

    /// Whether some may say who they are yet.
    pub fn are_awaited(&self) -> bool {
        !self.silent.is_empty() || !self.busy.is_empty()
    }

    /// When one that has said nothing is given up, or is tried again.
    pub fn wake_ms(&self) -> Option<u64> {
        let retry_ms = (!self.busy.is_empty()).then_some(self.retry_ms);
        self.silent.iter().map(|orphan| orphan.until_ms).chain(retry_ms).min()
    }

    /// Gives up those that have said nothing in time, and connects to others. Returns how many were given up.
    pub fn give_up_late(&mut self, now_ms: u64) -> usize {
        let before = self.silent.len();
        let failures = &mut self.failures;
        self.silent.retain(|orphan| {
            let is_late = now_ms >= orphan.until_ms;
            if is_late {
                *failures.entry(orphan.peer.user).or_default() += 1;
            }
            !is_late
        });
        let count = before - self.silent.len();
        self.connect(now_ms);
        count
    }

    fn connect(&mut self, now_ms: u64) {
        if now_ms >= self.retry_ms {
            self.retry_ms = now_ms + RETRY_MS;
            let busy = std::mem::take(&mut self.busy);
            for (name, until_ms) in busy.into_iter().filter(|(_, until_ms)| now_ms < *until_ms) {
                match peers::connect_to(&name) {
                    Ok(stream) => self.note(stream, now_ms),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.busy.push((name, until_ms)),
                    Err(_) => {}
                }
            }
        }
        while self.silent.len() < MAX_CONNECTED {
            let Some(name) = self.names.pop() else { return };
            let stream = match peers::connect_to(&name) {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.busy.push((name, now_ms + GREETING_MS));
                    continue;
                }
                Err(_) => continue,
            };
            self.note(stream, now_ms);
        }
    }

    /// Waits for what a process says, unless too many others of its user say nothing.
    fn note(&mut self, stream: UnixStream, now_ms: u64) {
        let Some(peer) = Peer::of(&stream) else { return };
        if self.failures.get(&peer.user).is_none_or(|count| *count < MAX_SILENT_OF_USER) {
            self.silent.push(SilentOrphan { stream, peer, received: Vec::new(), until_ms: now_ms + GREETING_MS });
        }
    }

    /// Their sockets.
    pub fn sources<T>(&self, token: impl Fn(i32) -> T) -> impl Iterator<Item = Source<'_, T>> {
        self.silent.iter().map(move |orphan| Source::readable(token(orphan.stream.as_raw_fd()), orphan.stream.as_fd()))
    }

    /// Reads what one has said. Returns it when that is complete. What it reports after its greeting stays in the socket.
    pub fn read(&mut self, descriptor: i32) -> Option<Orphan> {
        let place = self.silent.iter().position(|orphan| orphan.stream.as_raw_fd() == descriptor)?;
        let SilentOrphan { stream, received, .. } = &mut self.silent[place];
        let mut byte = [0];
        loop {
            match stream.read(&mut byte) {
                Ok(1) if byte[0] == b'\n' => break,
                Ok(1) if received.len() < MAX_GREETING_BYTES => received.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.silent.remove(place);
                    return None;
                }
            }
        }
        let SilentOrphan { stream: link, peer, received, .. } = self.silent.remove(place);
        let greeting = Greeting::of(&String::from_utf8_lossy(&received))?;
        Some(Orphan { greeting, link, pid: peer.pid, user: peer.user })
    }
}
