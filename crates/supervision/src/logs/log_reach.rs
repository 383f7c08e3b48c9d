//! Log destinations that may be out of reach: sockets, remote hosts and named pipes. Lines for one wait in the processes that
//! write them, while the master tries to open it again. It never waits for one: it connects and opens without blocking, with the
//! rights of the log's user, and looks names up in a process of their own. It only knows the first line after a gap. The
//! master runs it.

use std::io::{self, PipeReader, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use bolide_contract::logging::{LogPlace, Logging};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockaddrStorage, getpeername};
use nix::sys::stat::{FileStat, SFlag};
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::{Pid, alarm};

use crate::files::guarded_files::{self, How, Rights};
use crate::privileges::Privileges;
use crate::processes::{child_setup, forking};
use crate::text::duration;

/// Time between two looks at the destinations, in milliseconds.
const LOOK_MS: u64 = 5_000;
/// Time after which a process that looks a name up is ended, in seconds.
const MAX_LOOKUP_S: u32 = 30;
/// The file system of pipes without a name (statfs(2), PIPEFS_MAGIC).
const PIPEFS: FsType = FsType(0x5049_5045);
/// Bytes of the answer of such a process.
const MAX_ANSWER_BYTES: usize = 512;

/// The replacement of a log.
#[derive(Debug)]
pub struct NewLog {
    /// The log's number in the crate `log`.
    pub number: u32,
    /// A file, pipe or datagram socket.
    pub file: OwnedFd,
}

/// What a look has found.
#[derive(Debug)]
pub struct LogChange {
    /// A line for the log.
    pub words: String,
    /// What the processes write to from now on.
    pub new: NewLog,
    /// The destination is within reach, and the line is the first one that goes there.
    pub is_first_there: bool,
}

/// The destinations of an instance that may be out of reach.
#[derive(Debug, Default)]
pub struct LogReach {
    watched: Vec<Watched>,
    looked_ms: u64,
}

#[derive(Debug)]
struct Watched {
    /// The number in the crate `log`.
    number: u32,
    place: Place,
    /// `None`: it is within reach.
    absence: Option<Absence>,
    /// Lines that this log had lost when it was last known to be within reach.
    lost_before: u64,
    /// A process that looks its name up.
    lookup: Option<PipeReader>,
}

#[derive(Debug)]
struct Absence {
    since_ms: u64,
    why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Socket(PathBuf),
    /// `HOST:PORT`
    Host(String),
    Pipe(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Socket(path) => write!(formatter, "the socket {}", path.display()),
            Place::Host(address) => formatter.write_str(address),
            Place::Pipe(path) => write!(formatter, "the named pipe {}", path.display()),
        }
    }
}

/// A socket that is connected to the destination, or that is not because the destination is out of reach, with the reason.
pub type Opened = (OwnedFd, Option<io::Error>);

/// Opens a socket in the file system.
///
/// # Errors
/// No descriptor is left.
pub fn open_socket(path: &Path, privileges: Option<&Privileges>) -> io::Result<Opened> {
    let socket = OwnedFd::from(UnixDatagram::unbound()?);
    let connected = guarded_files::connect_at(&socket, path, privileges);
    Ok((socket, connected.err()))
}

/// Opens a socket to `HOST:PORT`. Waits for the lookup of the name: at startup only.
///
/// # Errors
/// No descriptor is left.
pub fn open_host(address: &str) -> io::Result<Opened> {
    match resolve(address).and_then(|found| connected(&found)) {
        Ok(socket) => Ok((socket, None)),
        Err(error) => Ok((UdpSocket::bind("0.0.0.0:0")?.into(), Some(error))),
    }
}

/// Stands in for a named pipe without a reader: nothing can be written to it.
///
/// # Errors
/// No descriptor is left.
pub fn closed_pipe() -> io::Result<OwnedFd> {
    let (_reader, writer) = io::pipe()?;
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_NONBLOCK))?;
    Ok(writer.into())
}

/// Whether a log could not be opened because it is a named pipe without a reader.
pub fn is_pipe_without_reader(path: &Path, privileges: Option<&Privileges>) -> bool {
    let rights = Rights::user_first(privileges);
    let is_pipe = || guarded_files::look(path, rights).is_ok_and(|found| kind_of(&found) == SFlag::S_IFIFO);
    let opened = || guarded_files::open(path, How::Pipe, rights);
    is_pipe() && opened().is_err_and(|error| error.raw_os_error() == Some(Errno::ENXIO as i32))
}

impl LogReach {
    /// The destinations of startup whose logs are open, and those that were out of reach then, with the reasons.
    pub fn new(logging: &Logging, absences: Vec<(u32, String)>, now_ms: u64) -> LogReach {
        let absence_of = |number: u32| absences.iter().find(|(absent, _)| *absent == number).map(|(_, why)| why.clone());
        // What stands in for a pipe without a reader has no name.
        let is_open = |number: u32| bolide_log::descriptor_of(number as usize).is_some_and(is_named_pipe);
        let is_pipe = |number: u32| absence_of(number).is_some() || is_open(number);
        let pipe = |number: u32, path: &Path| is_pipe(number).then(|| Place::Pipe(path.to_owned()));
        let log = logging.file.as_deref().and_then(|path| Some((0, pipe(0, path)?)));
        let targets = logging.targets.iter().zip(1..).filter_map(|(target, number)| match &target.place {
            LogPlace::Unix(path) => Some((number, Place::Socket(path.clone()))),
            LogPlace::Udp(address) => Some((number, Place::Host(address.clone()))),
            LogPlace::File(path) => Some((number, pipe(number, path)?)),
            LogPlace::Descriptor(_) | LogPlace::Program(_) => None,
        });
        let watch = |(number, place)| {
            let absence = absence_of(number).map(|why| Absence { since_ms: now_ms, why });
            Watched { number, place, absence, lost_before: 0, lookup: None }
        };
        LogReach { watched: log.into_iter().chain(targets).map(watch).collect(), looked_ms: now_ms }
    }

    /// When to look next, in monotonic milliseconds.
    pub fn wake_ms(&self) -> Option<u64> {
        (!self.watched.is_empty()).then_some(self.looked_ms + LOOK_MS)
    }

    /// Why a log is out of reach, and for how many milliseconds it has been.
    pub fn absence(&self, number: u32, now_ms: u64) -> Option<(&str, u64)> {
        let absence = self.watched.iter().find(|watched| watched.number == number)?.absence.as_ref()?;
        Some((&absence.why, now_ms.saturating_sub(absence.since_ms)))
    }

    /// Looks at each destination if it is time, and opens those again that are out of reach. Never waits.
    pub fn look(&mut self, privileges: Option<&Privileges>, now_ms: u64) -> Vec<LogChange> {
        if self.wake_ms().is_none_or(|wake_ms| now_ms < wake_ms) {
            return Vec::new();
        }
        self.looked_ms = now_ms;
        self.watched.iter_mut().filter_map(|watched| watched.look(privileges, now_ms)).collect()
    }
}

impl Watched {
    fn look(&mut self, privileges: Option<&Privileges>, now_ms: u64) -> Option<LogChange> {
        let is_new = self.absence.is_none();
        let number = self.number;
        let lost = bolide_log::losses::of(number as usize);
        if is_new && !self.is_out_of_reach() {
            self.lost_before = lost;
            return None;
        }
        match self.open(privileges) {
            Ok(file) => {
                // The counts are in memory that every process may write to.
                let lost = match lost.saturating_sub(std::mem::replace(&mut self.lost_before, lost)) {
                    0 => "no line was lost".to_owned(),
                    1 => "1 line was lost".to_owned(),
                    lines => format!("{lines} lines were lost"),
                };
                // One that was away between two looks has been for the time between them at most.
                let absent_ms = self.absence.take().map_or(LOOK_MS, |absence| now_ms.saturating_sub(absence.since_ms));
                let words = format!("the log can reach {} again after {}; {lost}", self.place, duration(absent_ms));
                Some(LogChange { words, new: NewLog { number, file }, is_first_there: true })
            }
            Err(Some(error)) if is_new => {
                // Processes write to nothing from now on, so that the first line that a new reader gets is the one about the gap.
                // Without a free descriptor this is tried again.
                let file = self.stand_in().ok()?;
                let words = out_of_reach(&self.place, &error);
                self.absence = Some(Absence { since_ms: now_ms, why: error.to_string() });
                Some(LogChange { words, new: NewLog { number, file }, is_first_there: false })
            }
            Err(error) => {
                if let (Some(absence), Some(error)) = (&mut self.absence, error) {
                    absence.why = error.to_string();
                }
                None
            }
        }
    }

    /// A datagram socket is connected until a send has found that the other end is gone, and a pipe without a reader is in error.
    fn is_out_of_reach(&self) -> bool {
        let Some(descriptor) = bolide_log::descriptor_of(self.number as usize) else { return false };
        match self.place {
            Place::Socket(_) | Place::Host(_) => getpeername::<SockaddrStorage>(descriptor.as_raw_fd()).is_err(),
            Place::Pipe(_) => has_no_reader(descriptor),
        }
    }

    /// Opens the destination. `None` as the error: its name is being looked up.
    fn open(&mut self, privileges: Option<&Privileges>) -> Result<OwnedFd, Option<io::Error>> {
        match &self.place {
            Place::Socket(path) => match open_socket(path, privileges)? {
                (socket, None) => Ok(socket),
                (_, Some(error)) => Err(Some(error)),
            },
            Place::Pipe(path) => Ok(guarded_files::open(path, How::Pipe, Rights::user_first(privileges))?.file.into()),
            Place::Host(address) => {
                let Some(lookup) = self.lookup.take() else {
                    self.lookup = Some(look_up(address)?);
                    return Err(None);
                };
                Ok(connected(&answer_of(lookup)?)?)
            }
        }
    }

    fn stand_in(&self) -> io::Result<OwnedFd> {
        match self.place {
            Place::Socket(_) => Ok(UnixDatagram::unbound()?.into()),
            Place::Host(_) => Ok(UdpSocket::bind("0.0.0.0:0")?.into()),
            Place::Pipe(_) => closed_pipe(),
        }
    }
}

/// The line about a destination that is out of reach.
pub fn out_of_reach(place: impl std::fmt::Display, why: &io::Error) -> String {
    format!(
        "WARNING: the log can't reach {place}: {why}; each process keeps up to {} MiB of lines for it and tries again every {} s",
        bolide_log::MAX_WAITING_BYTES / (1024 * 1024),
        LOOK_MS / 1000,
    )
}

/// What a destination of these settings is called in messages.
pub fn name_of(place: &LogPlace) -> String {
    match place {
        LogPlace::File(path) => path.display().to_string(),
        LogPlace::Unix(path) => Place::Socket(path.clone()).to_string(),
        LogPlace::Udp(address) => Place::Host(address.clone()).to_string(),
        LogPlace::Descriptor(number) => format!("the descriptor {number}"),
        LogPlace::Program(command) => format!("the program `{command}`"),
    }
}

/// Whether this is a FIFO with a name in a file system. The pipe behind `/dev/stdout` has none.
pub fn is_named_pipe(descriptor: impl AsFd) -> bool {
    let is_pipe = nix::sys::stat::fstat(descriptor.as_fd()).is_ok_and(|found| kind_of(&found) == SFlag::S_IFIFO);
    is_pipe && fstatfs(descriptor.as_fd()).is_ok_and(|found| found.filesystem_type() != PIPEFS)
}

fn kind_of(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}

fn has_no_reader(pipe: BorrowedFd<'_>) -> bool {
    let mut poll_fds = [PollFd::new(pipe, PollFlags::empty())];
    matches!(poll(&mut poll_fds, PollTimeout::ZERO), Ok(1))
}

fn resolve(address: &str) -> io::Result<SocketAddr> {
    address.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("the name has no address"))
}

fn connected(address: &SocketAddr) -> io::Result<OwnedFd> {
    let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(address)?;
    Ok(socket.into())
}

/// Looks a name up in a process of its own, because the C library may wait for name servers. The master's loop reaps it.
fn look_up(address: &str) -> io::Result<PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_RDONLY | OFlag::O_NONBLOCK))?;
    let master = Pid::this().as_raw();
    forking::fork(&[writer.as_raw_fd()], || {
        let outcome = child_setup::reset_signals(&[]).and_then(|()| child_setup::die_with(master)).and_then(|()| {
            // SIGALRM, which is as it was by default, ends a lookup that takes too long.
            alarm::set(MAX_LOOKUP_S);
            resolve(address)
        });
        let answer = outcome.map_or_else(|error| format!("!{error}"), |found| found.to_string());
        // The write fails only if the master is gone.
        let _ = writer.write_all(&answer.as_bytes()[..answer.len().min(MAX_ANSWER_BYTES)]);
        0
    })?;
    Ok(reader)
}

/// The answer of a lookup, which has ended, or takes longer than the time between two looks and is asked again.
fn answer_of(mut lookup: PipeReader) -> io::Result<SocketAddr> {
    let mut answer = [0; MAX_ANSWER_BYTES];
    let length =
        lookup.read(&mut answer).map_err(|_| io::Error::other("no name server has answered the lookup of its name yet"))?;
    let text = String::from_utf8_lossy(&answer[..length]);
    match text.strip_prefix('!') {
        Some(words) => Err(io::Error::other(words.to_owned())),
        None => text.parse().map_err(|_| io::Error::other("the lookup of its name has ended without an answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_in_a_process_of_its_own() {
        let answer = |address: &str| {
            let reader = look_up(address).expect("asked");
            let mut poll_fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
            poll(&mut poll_fds, PollTimeout::from(60_000u16)).expect("answered");
            answer_of(reader)
        };
        assert_eq!(answer("127.0.0.1:514").expect("an address"), "127.0.0.1:514".parse().expect("an address"));
        assert!(answer("no name at all:514").is_err());
    }

    #[test]
    fn a_pipe_whose_reader_is_gone_is_found() {
        let (reader, writer) = io::pipe().expect("made");
        let is_found = || has_no_reader(writer.as_fd());
        assert!(!is_found());
        drop(reader);
        assert!(is_found());
        assert!(has_no_reader(closed_pipe().expect("made").as_fd()));
    }
}
