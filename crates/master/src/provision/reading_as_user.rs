//! A configuration that the application's user may write is read by a child that has become that user for good, when an instance of root's
//! reloads: files that it names, and programs that it has executed (`gunicorn.conf.py`), get no rights of root's by that. What of it counts
//! is decided elsewhere (`changes`). The master runs it, and waits for it, as it does where it reads itself.

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

/// Time that it may take, in milliseconds. The master does nothing else meanwhile, and the user could make it wait.
const READING_MS: u64 = 10_000;
/// Bytes of the answer: settings with the certificates that are in force, and with those of a folder.
const ANSWER_MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Time that a killed child has until it is gone, in milliseconds.
const KILLED_MOST_MS: u64 = 5000;
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 * 1024;

/// What the child has read.
#[derive(Debug)]
pub struct Answer {
    pub settings: Settings,
    /// Lines to be said of it.
    pub warnings: Vec<String>,
    pub said: Vec<PrivilegedOption>,
}

/// The same between the child and us.
type Wire = Result<(Settings, Vec<String>, Vec<PrivilegedOption>), Vec<String>>;

/// Has a child read the configuration as this user, with `read`.
///
/// # Errors
/// Lines that say what is wrong with it, or why no child can read it.
pub fn run(privileges: &Privileges, read: impl FnOnce() -> Result<Answer, Vec<String>>) -> Result<Answer, Vec<String>> {
    let trouble = |error: io::Error| vec![format!("the configuration can't be read as the user of uid: {error}")];
    let (reader, writer) = io::pipe().map_err(trouble)?;
    let identity = RawIdentity::of(privileges);
    let master = Pid::this().as_raw();
    let Some(child) = system::fork().map_err(trouble)? else {
        system::close_others(&[writer.as_raw_fd()]);
        // A group of its own, which is killed where it takes too long. It fails where that is ours already.
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
        let became = child_setup::reset_signals(&[]).and_then(|()| identity.take()).and_then(|()| child_setup::die_with(master));
        let outcome = became.map_err(trouble).and_then(|()| read());
        tell(writer, outcome);
        system::leave(0);
    };
    drop(writer);
    let answer = answer_of(reader);
    // It has said what there is to say, or never will, and so have programs that it has executed.
    system::signal_group(child, libc::SIGKILL);
    system::wait_for(child, KILLED_MOST_MS);
    let answer = answer.map_err(trouble)?;
    let heard: Wire =
        serde_json::from_slice(&answer).map_err(|_| trouble(io::Error::other("the child that reads it has ended")))?;
    heard.map(|(settings, warnings, said)| Answer { settings, warnings, said })
}

/// The child's: writes the outcome, of which the master may have heard enough.
fn tell(mut writer: io::PipeWriter, outcome: Result<Answer, Vec<String>>) {
    let told: Wire = outcome.map(|answer| (answer.settings, answer.warnings, answer.said));
    // Without an answer the master says that the child has ended.
    if let Ok(text) = serde_json::to_vec(&told) {
        let _ = writer.write_all(&text);
    }
}

/// What the child writes, up to its end.
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
            // It stays pending, for the loop.
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
