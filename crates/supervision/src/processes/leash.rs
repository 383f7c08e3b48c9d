//! The leash of a process group: the kernel kills the group when the process that holds the leash is gone, however that one ended. The
//! master has the groups of hooks on one, the attendant those of daemons and of commands. It starts and waits for nothing.
//!
//! It is a pipe that nobody writes to. Its writing end is the holder's alone. Its reading end is inherited by the group, and asks for a
//! signal to the group when the pipe changes (fcntl(2): F_SETOWN, F_SETSIG, O_ASYNC), which it does once: when the writing end is closed.
//! So it needs no process that watches, and a shell's children, of which PR_SET_PDEATHSIG knows nothing, are on it as the shell is.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};

use crate::processes::child_setup::check;

/// fcntl(2) of Linux: the signal in the place of SIGIO. The libc crate has no name for it on each of its targets.
const F_SETSIG: libc::c_int = 10;

/// The holder's end. Dropped, it kills the group.
#[derive(Debug)]
pub struct Leash {
    /// The same open file as the group's: what is changed here holds for it there.
    reader: PipeReader,
    _writer: PipeWriter,
}

impl Leash {
    /// A leash that no group is on yet. Neither end is inherited by what is executed before [`put_on`].
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Leash> {
        let (reader, writer) = io::pipe()?;
        Ok(Leash { reader, _writer: writer })
    }

    /// The end for the group, to be handed to [`put_on`] in its first process.
    pub fn end_for_group(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// What is left of the group may live on.
    pub fn let_go(self) {
        // SAFETY: a plain system call on numbers: no signal is asked for any more.
        let _ = unsafe { libc::fcntl(self.reader.as_raw_fd(), libc::F_SETFL, 0) };
    }
}

/// Puts the group of the calling process, which leads it, on a leash. It has to come before a change of identity, which may take
/// the right to signal the group. Async-signal-safe: it may be called between fork and exec.
///
/// # Errors
/// What fcntl(2) says.
pub fn put_on(end_for_group: RawFd) -> io::Result<()> {
    // SAFETY: plain system calls on numbers. Without FD_CLOEXEC the end stays open in what is executed.
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
