//! `bolide check` of an emperor: each vassal's configuration is read by a process of its own, as its user and with its words, as
//! when it starts. It does not know what they report. The process of the command runs it.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use bolide_contract::clock::now_ms;
use bolide_contract::emperor::Emperor;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::text::printable;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::answers;
use crate::launch::{self, Origin};
use crate::places::{self, Found};

/// How long the check of a vassal may take, in milliseconds. It may import an application.
const CHECK_MS: u64 = 120_000;
/// The time between two looks at a process that is about to exit, in milliseconds.
const EXIT_LOOK_MS: u64 = 10;
/// Maximum length of a vassal's report, in bytes.
const MAX_REPORT_BYTES: usize = 1 << 20;

/// What has come of the check of a vassal.
#[derive(Debug)]
pub struct Checked {
    /// Its name.
    pub name: String,
    /// Where relative paths in its report begin.
    pub directory: PathBuf,
    /// What the command has printed, or why it has not.
    pub report: Result<String, String>,
}

/// Checks all vassals that the places have, some at a time, with this command. They run as `identity` unless a tyrant says whose
/// they are. Returns what is wrong with the places, and the reports in the order of the names.
pub fn check(emperor: &Emperor, origin: &Origin, identity: Option<&Privileges>, command: &[&str]) -> (Vec<String>, Vec<Checked>) {
    let mut look = places::look(emperor, &origin.directory);
    let failed = look.failed.iter().map(|(place, why)| format!("{}: {why}", answers::place_of(emperor, *place)));
    let refused = look.refused.iter().map(|(name, why)| format!("vassal {} is not started: {why}", printable(name)));
    let problems = failed.chain(refused).collect();
    look.found.sort_by(|one, other| (one.place, &one.name).cmp(&(other.place, &other.name)));
    let mut checked = Vec::new();
    for some in look.found.chunks(emperor.starts_most.max(1) as usize) {
        let begun: Vec<(&Found, io::Result<Child>)> =
            some.iter().map(|found| (found, launch::check(emperor, origin, found, identity, command))).collect();
        checked.extend(begun.into_iter().map(|(found, child)| Checked {
            name: found.name.clone(),
            directory: launch::directory_of(emperor, origin, found).to_owned(),
            report: child.and_then(report_of).map_err(|error| error.to_string()),
        }));
    }
    (problems, checked)
}

/// Returns what a process has printed when it has exited. One that takes too long is killed.
fn report_of(mut child: Child) -> io::Result<String> {
    let due_ms = now_ms() + CHECK_MS;
    let report = read_all(&mut child, due_ms).and_then(|report| wait_until(&mut child, due_ms).map(|()| report));
    if report.is_err() {
        // It may have exited. Its group is what it has started.
        let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
        child.wait()?;
    }
    Ok(String::from_utf8_lossy(&report?).into_owned())
}

/// Waits for the exit of a process that has closed its output.
fn wait_until(child: &mut Child, due_ms: u64) -> io::Result<()> {
    while child.try_wait()?.is_none() {
        if now_ms() >= due_ms {
            return Err(too_long());
        }
        std::thread::sleep(Duration::from_millis(EXIT_LOOK_MS));
    }
    Ok(())
}

fn too_long() -> io::Error {
    io::Error::other(format!("its check takes more than {} s", CHECK_MS / 1000))
}

fn read_all(child: &mut Child, due_ms: u64) -> io::Result<Vec<u8>> {
    let Some(output) = &mut child.stdout else { return Ok(Vec::new()) };
    let mut report = Vec::new();
    let mut part = [0; 8192];
    loop {
        let left_ms = due_ms.saturating_sub(now_ms());
        if left_ms == 0 {
            return Err(too_long());
        }
        let mut polled = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait is one without output.
        if poll(&mut polled, PollTimeout::try_from(left_ms as i32).unwrap_or(PollTimeout::MAX)).unwrap_or(0) == 0 {
            continue;
        }
        match output.read(&mut part)? {
            0 => return Ok(report),
            count if report.len() + count > MAX_REPORT_BYTES => {
                return Err(io::Error::other(format!("its check reports more than {MAX_REPORT_BYTES} bytes")));
            }
            count => report.extend_from_slice(&part[..count]),
        }
    }
}
