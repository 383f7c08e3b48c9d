//! Work that needs no rights of root and touches what the application's user can change: a child does it that has permanently
//! become that user, so that nothing the user does in the meantime can end the master, or act with its rights. It does not know
//! the work. The master runs it and waits for it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::child_setup::{self, RawIdentity};
use bolide_supervision::processes::forking;
use bolide_supervision::processes::signals::EndSignals;
use bolide_supervision::system;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use crate::control::signals::end_signals;

/// Maximum bytes of the answer: settings with the certificates in force, and with those of a directory.
const MAX_ANSWER_BYTES: u64 = 64 * 1024 * 1024;
/// How long a killed child may take to exit, in milliseconds.
const MAX_KILLED_MS: u64 = 5000;
/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// Does work in a child and returns its answer, which ends when the child does. Without `privileges`, the child stays the
/// master's user. The child keeps the descriptors `kept`. The work has `most_ms`: the user can make it wait.
///
/// # Errors
/// No child can be made, it can't become the user, or it has not ended in time.
pub fn run(privileges: Option<&Privileges>, kept: &[RawFd], most_ms: u64, work: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    let (reader, mut writer) = io::pipe()?;
    let identity = privileges.map(RawIdentity::of);
    let master = Pid::this().as_raw();
    let kept = [kept, &[writer.as_raw_fd()]].concat();
    let child = forking::fork(&kept, || {
        let became = child_setup::reset_signals(&[])
            .and_then(|()| identity.map_or(Ok(()), |identity| identity.take()))
            .and_then(|()| child_setup::die_with(master));
        // The first byte says whether the rest is an answer. The master may have stopped reading.
        let _ = match became {
            Ok(()) => {
                let answer = work();
                writer.write_all(&[1]).and_then(|()| writer.write_all(&answer))
            }
            Err(error) => writer.write_all(&[0]).and_then(|()| writer.write_all(error.to_string().as_bytes())),
        };
        0
    })?;
    drop(writer);
    let answer = answer_of(reader, most_ms);
    // The child has answered or never will, and programs that it executed are not needed any more.
    system::signal_group(child, libc::SIGKILL);
    system::wait_for(child, MAX_KILLED_MS);
    match answer?.split_first() {
        Some((1, answer)) => Ok(answer.to_vec()),
        Some((_, why)) => Err(io::Error::other(String::from_utf8_lossy(why).into_owned())),
        None => Err(io::Error::other("the child process that does it has exited")),
    }
}

/// Reads the child's output until its end.
fn answer_of(mut reader: io::PipeReader, most_ms: u64) -> io::Result<Vec<u8>> {
    let signals = EndSignals::take(&end_signals())?;
    let end = Instant::now() + Duration::from_millis(most_ms);
    let mut answer = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other(format!("it took more than {} s", most_ms / 1000)));
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut watched = [PollFd::new(reader.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut watched, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            // The signal stays pending for the event loop.
            Ok(_) if watched[1].any() == Some(true) => return Err(io::Error::other("a signal ended it")),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match reader.read(&mut buffer)? {
            0 => return Ok(answer),
            count => answer.extend_from_slice(&buffer[..count]),
        }
        if answer.len() as u64 > MAX_ANSWER_BYTES {
            return Err(io::Error::other("it is too large"));
        }
    }
}
