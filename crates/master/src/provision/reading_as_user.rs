//! Reads a configuration that the application's user may write, in a child that has permanently become that user, when an
//! instance of root reloads. Files that it names, and programs that it executes (`gunicorn.conf.py`), thus gain no rights of
//! root. It does not decide which settings are applied (`changes` does). The master runs it and waits for it, as when it reads
//! itself.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use bolide_contract::settings::Settings;
use bolide_options::PrivilegedOption;
use bolide_supervision::processes::child_setup::{self, RawIdentity};
use bolide_supervision::processes::privileges::Privileges;
use bolide_supervision::processes::signals::EndSignals;
use bolide_supervision::processes::system;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, setpgid};

use crate::control::signals::end_signals;

/// Time limit, in milliseconds. The master does nothing else meanwhile, and the user could make it wait.
const READING_MS: u64 = 10_000;
/// Maximum bytes of the answer: settings with the certificates in force, and with those of a folder.
const ANSWER_MOST_BYTES: u64 = 64 * 1024 * 1024;

/// How long a killed child may take to exit, in milliseconds.
const KILLED_MOST_MS: u64 = 5000;
/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// The result of the child's reading.
#[derive(Debug)]
pub struct Answer {
    pub settings: Settings,
    /// Log lines about it.
    pub warnings: Vec<String>,
    pub said: Vec<PrivilegedOption>,
}

/// The encoding of [`Answer`] between the child and the master.
type Wire = Result<(Settings, Vec<String>, Vec<PrivilegedOption>), Vec<String>>;

/// Reads the configuration with `read`, in a child that runs as this user.
///
/// # Errors
/// Log lines that describe the errors in it, or why no child can read it.
pub fn run(privileges: &Privileges, read: impl FnOnce() -> Result<Answer, Vec<String>>) -> Result<Answer, Vec<String>> {
    let trouble = |error: io::Error| vec![format!("the configuration can't be read as the user of uid: {error}")];
    let (reader, writer) = io::pipe().map_err(trouble)?;
    let identity = RawIdentity::of(privileges);
    let master = Pid::this().as_raw();
    let Some(child) = system::fork().map_err(trouble)? else {
        system::close_others(&[writer.as_raw_fd()]);
        // A process group of its own, which is killed at the time limit. The call fails if the group is already ours.
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
        let became = child_setup::reset_signals(&[]).and_then(|()| identity.take()).and_then(|()| child_setup::die_with(master));
        let outcome = became.map_err(trouble).and_then(|()| read());
        send_outcome(writer, outcome);
        system::leave(0);
    };
    drop(writer);
    let answer = answer_of(reader);
    // The child has answered or never will, and programs that it executed are not needed any more.
    system::signal_group(child, libc::SIGKILL);
    system::wait_for(child, KILLED_MOST_MS);
    let answer = answer.map_err(trouble)?;
    let outcome: Wire =
        serde_json::from_slice(&answer).map_err(|_| trouble(io::Error::other("the child that reads it has ended")))?;
    outcome.map(|(settings, warnings, said)| Answer { settings, warnings, said })
}

/// In the child: writes the outcome. The master may have stopped reading.
fn send_outcome(mut writer: io::PipeWriter, outcome: Result<Answer, Vec<String>>) {
    let encoded: Wire = outcome.map(|answer| (answer.settings, answer.warnings, answer.said));
    // Without an answer, the master reports that the child has ended.
    if let Ok(text) = serde_json::to_vec(&encoded) {
        let _ = writer.write_all(&text);
    }
}

/// Reads the child's output until its end.
fn answer_of(mut reader: io::PipeReader) -> io::Result<Vec<u8>> {
    let signals = EndSignals::take(&end_signals())?;
    let end = Instant::now() + Duration::from_millis(READING_MS);
    let mut answer = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other(format!("it took more than {} s", READING_MS / 1000)));
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
        if answer.len() as u64 > ANSWER_MOST_BYTES {
            return Err(io::Error::other("it is too large"));
        }
    }
}
