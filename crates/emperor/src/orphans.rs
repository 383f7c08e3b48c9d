//! Vassals that the emperor before has left: it finds them, and connects to them. The kernel says who they are, and only their
//! own user's vassals can have their names. It starts and stops nothing. The emperor runs it, at startup.

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
const MAX_ORPHANS: usize = 10_000;
/// Time that an orphan has to say who it is, in milliseconds. Nothing is started before, because it may be there already.
const GREETING_MS: u64 = 1000;

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
    silent: Vec<(UnixStream, Vec<u8>)>,
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
    /// Connects to all that wait for an emperor of this name.
    pub fn find(court: &str, now_ms: u64) -> Orphans {
        let beginning = format!("@{}", loyalty::beginning_of_names(court));
        let text = std::fs::read(SOCKETS).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let names = text.lines().filter_map(|line| line.split_whitespace().nth(7)).filter(|name| name.starts_with(&beginning));
        let mut names: Vec<&str> = names.filter_map(|name| name.strip_prefix('@')).collect();
        // A connection has the name too.
        names.sort_unstable();
        names.dedup();
        let silent = names.into_iter().take(MAX_ORPHANS).filter_map(|name| peers::connect_to(name).ok());
        Orphans { silent: silent.map(|stream| (stream, Vec::new())).collect(), until_ms: now_ms + GREETING_MS }
    }

    /// Whether some may say who they are yet.
    pub fn are_awaited(&self, now_ms: u64) -> bool {
        !self.silent.is_empty() && now_ms < self.until_ms
    }

    /// When those that have said nothing are given up.
    pub fn wake_ms(&self) -> Option<u64> {
        (!self.silent.is_empty()).then_some(self.until_ms)
    }

    /// Their sockets.
    pub fn sources<T>(&self, token: impl Fn(i32) -> T) -> impl Iterator<Item = Source<'_, T>> {
        self.silent.iter().map(move |(stream, _)| Source::readable(token(stream.as_raw_fd()), stream.as_fd()))
    }

    /// Gives up those that have said nothing in time. Returns their number.
    pub fn give_up_late(&mut self, now_ms: u64) -> usize {
        if now_ms < self.until_ms {
            return 0;
        }
        std::mem::take(&mut self.silent).len()
    }

    /// Reads what one has said. Returns it when that is complete. What it reports after its greeting stays in the socket.
    pub fn read(&mut self, descriptor: i32) -> Option<Orphan> {
        let place = self.silent.iter().position(|(stream, _)| stream.as_raw_fd() == descriptor)?;
        let (stream, received) = &mut self.silent[place];
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
        let (link, received) = self.silent.remove(place);
        let greeting = Greeting::of(&String::from_utf8_lossy(&received))?;
        let Peer { pid, user } = Peer::of(&link)?;
        Some(Orphan { greeting, link, pid, user })
    }
}
