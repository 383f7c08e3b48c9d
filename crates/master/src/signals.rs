//! Signals as events of a loop: they are blocked and read from a descriptor. It knows no meaning of a signal: its callers have the tables. The
//! master runs it.

use std::os::fd::{AsFd, BorrowedFd};

pub use bolide_contract::message::stack_signal;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::StartError;

/// The name of a signal number, for the log: `SIGSEGV`, `SIGRTMIN+10`, `signal 99`.
pub fn name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) if (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number) => format!("SIGRTMIN+{}", number - libc::SIGRTMIN()),
        Err(_) => format!("signal {number}"),
    }
}

/// The descriptor from which the master reads its signals.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks all signals that can be blocked, except these, and opens the descriptor. Called before anything is started: no signal is lost from
    /// then on.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn take_all_but(left_alone: &[Signal]) -> Result<Signals, StartError> {
        let mut set = SigSet::all();
        for signal in left_alone {
            set.remove(*signal);
        }
        let trouble = |error: nix::errno::Errno| StartError::new(format!("the signals can't be taken: {error}"));
        crate::system::default_child_signal().map_err(|error| StartError::new(format!("SIGCHLD can't be set: {error}")))?;
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None).map_err(trouble)?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Signals).map_err(trouble)
    }

    /// The number of the next signal, if one is pending. Never waits.
    pub fn next(&self) -> Option<i32> {
        loop {
            match self.0.read_signal() {
                Ok(Some(information)) => return Some(information.ssi_signo as i32),
                Ok(None) => return None,
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => {
                    crate::log_sink::line(&format!("signals can't be read: {error}"));
                    return None;
                }
            }
        }
    }
}

/// Signals that a wait outside of the loop takes. Others stay for the loop.
#[derive(Debug)]
pub struct EndSignals {
    descriptor: SignalFd,
    /// What was blocked before.
    before: SigSet,
}

impl EndSignals {
    /// Blocks these until this is dropped, and opens the descriptor.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn take(set: &SigSet) -> nix::Result<EndSignals> {
        let descriptor = SignalFd::with_flags(set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(set), Some(&mut before))?;
        Ok(EndSignals { descriptor, before })
    }

    /// The next one, if one is pending. Never waits.
    pub fn next(&self) -> Option<i32> {
        self.descriptor.read_signal().ok().flatten().map(|information| information.ssi_signo as i32)
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        // It takes what it gave.
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name() {
        assert_eq!(name(libc::SIGSEGV), "SIGSEGV");
        assert_eq!(name(stack_signal()), "SIGRTMIN+10");
        assert_eq!(name(200), "signal 200");
    }
}
