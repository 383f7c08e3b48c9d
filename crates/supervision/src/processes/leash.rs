//! The leash of a process group: the kernel kills the group when the process that holds the leash is gone, however that one
//! ended. The master holds the leashes of groups of hooks, the attendant those of daemons and commands. It does not start
//! processes and does not wait.
//!
//! A leash is a pipe that is never written to. Only the holder has the write end. The group inherits the read end, which is set
//! to signal the group on an event (fcntl(2): F_SETOWN, F_SETSIG, O_ASYNC); the only event is that the write end is closed. So no
//! watching process is needed, and the children of a shell, which PR_SET_PDEATHSIG does not cover, are on the leash as the shell
//! is.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};

use crate::processes::child_setup::check;

/// fcntl(2) of Linux: the signal to send instead of SIGIO. The libc crate does not define it on each of its targets.
const F_SETSIG: libc::c_int = 10;

/// The holder's end. Dropping it kills the group.
#[derive(Debug)]
pub struct Leash {
    /// It shares the open file description with the group's end: changes of its flags apply there as well.
    reader: PipeReader,
    _writer: PipeWriter,
}

impl Leash {
    /// A leash without a group. Neither end is inherited by an exec before [`put_on`].
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Leash> {
        let (reader, writer) = io::pipe()?;
        Ok(Leash { reader, _writer: writer })
    }

    /// The end for the group, to be passed to [`put_on`] in its first process.
    pub fn end_for_group(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Releases the group: its remaining processes live on.
    pub fn let_go(self) {
        // SAFETY: a plain system call on numbers: it turns the signal off.
        let _ = unsafe { libc::fcntl(self.reader.as_raw_fd(), libc::F_SETFL, 0) };
    }
}

/// Puts the group of the calling process, which must be its leader, on a leash. It must come before a change of identity, which
/// may take away the right to signal the group. Async-signal-safe: it may be called between fork and exec.
///
/// # Errors
/// The error of fcntl(2).
pub fn put_on(end_for_group: RawFd) -> io::Result<()> {
    // SAFETY: plain system calls on numbers. Without FD_CLOEXEC the executed program keeps the end open.
    unsafe {
        check(libc::fcntl(end_for_group, libc::F_SETOWN, -libc::getpid()))?;
        check(libc::fcntl(end_for_group, F_SETSIG, libc::SIGKILL))?;
        check(libc::fcntl(end_for_group, libc::F_SETFL, libc::O_ASYNC))?;
        check(libc::fcntl(end_for_group, libc::F_SETFD, 0))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};

    use super::*;

    fn sleeper(leash: &Leash) -> Child {
        let end = leash.end_for_group();
        let mut command = Command::new("sleep");
        command.arg("1000").process_group(0);
        // SAFETY: the closure makes async-signal-safe calls only.
        unsafe {
            command.pre_exec(move || put_on(end));
        }
        command.spawn().expect("started")
    }

    #[test]
    fn a_group_dies_with_its_leash_and_one_that_was_let_go_lives_on() {
        let (held, free) = (Leash::new().expect("made"), Leash::new().expect("made"));
        let (mut on_leash, mut let_go) = (sleeper(&held), sleeper(&free));
        free.let_go();
        drop(held);
        assert_eq!(on_leash.wait().expect("ended").signal(), Some(libc::SIGKILL));
        assert_eq!(let_go.try_wait().expect("asked"), None);
        let_go.kill().expect("killed");
        let_go.wait().expect("ended");
    }
}
