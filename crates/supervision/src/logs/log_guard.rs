//! The guard of a log program: a child of the master, without exec, that starts the program and waits for its end. When the
//! master is gone and the last writer has closed the pipe, the program has some seconds to read the last lines; then the guard
//! ends it. The guard neither reads nor writes lines. It runs in a process of its own.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use bolide_contract::clock::now_ms;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::processes::exit_report::Cause;
use crate::processes::leash::{self, Leash};
use crate::processes::{forking, process_attributes};
use crate::system;

/// Time that a program has to end when the pipe has no writer left, in milliseconds.
const MAX_READING_MS: u64 = 5000;
/// Time that it has after SIGTERM, in milliseconds.
const MAX_ENDING_MS: u64 = 1000;
/// The longest wait in one piece, in milliseconds.
const MAX_WAIT_MS: u64 = 60_000;
/// The signal that the kernel sends the guard when the master exits. It only wakes the guard.
const WAKE: Signal = Signal::SIGUSR2;

/// A log program that has a guard.
#[derive(Debug)]
pub struct GuardedProgram {
    /// The program, a child of the guard.
    pub pid: Pid,
    /// Its wait status, which the guard writes when it ends.
    report: PipeReader,
}

impl GuardedProgram {
    #[cfg(test)]
    pub fn for_test(pid: Pid) -> GuardedProgram {
        let (report, _) = io::pipe().expect("made");
        GuardedProgram { pid, report }
    }

    /// How the program exited, given how its guard did.
    pub fn cause(mut self, of_guard: Cause) -> Cause {
        let mut status = [0; 4];
        // If the guard was killed, its program was killed with it.
        self.report.read_exact(&mut status).map_or(of_guard, |()| Cause::from_status(i32::from_ne_bytes(status)))
    }
}

/// Starts the program of a command, with `lines` as its standard input. Returns its guard, a child of the master, and itself.
///
/// # Errors
/// No process or descriptor is available, or the program can't be executed.
pub fn start(command: Command, lines: PipeReader) -> io::Result<(Pid, GuardedProgram)> {
    let (mut report, writer) = io::pipe()?;
    let master = Pid::this();
    let guard = forking::fork(&[lines.as_raw_fd(), writer.as_raw_fd()], || {
        guard(command, lines, writer, master);
        0
    })?;
    // The guard reports the outcome of startup immediately.
    let mut said = [0; 8];
    let outcome = report.read_exact(&mut said).and_then(|()| {
        let [a, b, c, d, e, f, g, h] = said;
        match (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h])) {
            (0, program) => Ok(Pid::from_raw(program)),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    });
    match outcome {
        Ok(pid) => Ok((guard, GuardedProgram { pid, report })),
        Err(error) => {
            system::wait_for(guard, MAX_ENDING_MS);
            Err(error)
        }
    }
}

/// The guard's whole life.
fn guard(command: Command, lines: PipeReader, mut writer: PipeWriter, master: Pid) {
    let begun = begin(command, &lines, master);
    let (error, program) = match &begun {
        Ok((program, ..)) => (0, program.as_raw()),
        Err(error) => (error.raw_os_error().unwrap_or(libc::EIO), 0),
    };
    let mut said = error.to_ne_bytes().to_vec();
    said.extend(program.to_ne_bytes());
    // The write fails only if the master is gone.
    let _ = writer.write_all(&said);
    let Ok((program, signals, _leash)) = begun else { return };
    let status = wait_for(program, &signals, &lines, master);
    let _ = writer.write_all(&status.to_ne_bytes());
}

fn begin(mut command: Command, lines: &PipeReader, master: Pid) -> io::Result<(Pid, SignalFd, Leash)> {
    process_attributes::set_name("bolide log program");
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None)?;
    let mut heard = SigSet::empty();
    heard.add(Signal::SIGCHLD);
    heard.add(WAKE);
    let signals = SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    nix::sys::prctl::set_pdeathsig(WAKE)?;
    if Pid::parent() != master {
        return Err(nix::errno::Errno::ESRCH.into());
    }
    let leash = Leash::new()?;
    let end_of_leash = leash.end_for_group();
    command.stdin(Stdio::from(lines.try_clone()?)).process_group(0);
    // SAFETY: the closure makes async-signal-safe calls only.
    unsafe {
        command.pre_exec(move || leash::put_on(end_of_leash));
    }
    let program = Pid::from_raw(command.spawn()?.id() as i32);
    // Only the program keeps these descriptors open: a reader of the master's output would wait for the guard as well.
    for number in 0..=libc::STDERR_FILENO {
        let _ = nix::unistd::close(number);
    }
    Ok((program, signals, leash))
}

/// Waits for the end of the program, and ends it if it takes too long. Returns the program's wait status.
fn wait_for(program: Pid, signals: &SignalFd, lines: &PipeReader, master: Pid) -> i32 {
    let mut kill_ms = None;
    let mut number = libc::SIGTERM;
    loop {
        while let Ok(Some(_)) = signals.read_signal() {}
        if system::next_end().is_some() {
            return system::take_status(program);
        }
        let is_orphan = Pid::parent() != master;
        if is_orphan && kill_ms.is_none() && has_no_writer(lines) {
            kill_ms = Some(now_ms() + MAX_READING_MS);
        }
        if kill_ms.is_some_and(|kill_ms| now_ms() >= kill_ms) {
            system::signal_group(program, number);
            kill_ms = Some(now_ms() + MAX_ENDING_MS);
            number = libc::SIGKILL;
        }
        let wait_ms = kill_ms.map_or(MAX_WAIT_MS, |kill_ms| kill_ms.saturating_sub(now_ms()) + 4);
        let mut poll_fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if is_orphan && kill_ms.is_none() {
            // poll(2) reports POLLHUP, the end of the last writer, even if no event is asked for.
            poll_fds.push(PollFd::new(lines.as_fd(), PollFlags::empty()));
        }
        // An interrupted wait counts as a turn without an event.
        let _ = poll(&mut poll_fds, PollTimeout::from(wait_ms.min(MAX_WAIT_MS) as u16));
    }
}

fn has_no_writer(lines: &PipeReader) -> bool {
    let mut poll_fds = [PollFd::new(lines.as_fd(), PollFlags::empty())];
    let is_told = poll(&mut poll_fds, PollTimeout::ZERO).is_ok();
    is_told && poll_fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
}
