//! Signals as events of a loop: they are blocked and read from a descriptor (signalfd(2)). It does not know the meaning of a
//! signal: its callers do. The master runs it.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::StartError;
use crate::{log_sink, system};

/// The name of a signal number, for the log: `SIGSEGV`, `SIGRTMIN+10`, `signal 99`.
pub fn name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) if (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number) => format!("SIGRTMIN+{}", number - libc::SIGRTMIN()),
        Err(_) => format!("signal {number}"),
    }
}

/// The descriptor from which a process reads its signals.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks all signals that can be blocked, except for `left_alone`, and opens the descriptor. Called before anything is
    /// started, so that no signal is lost from then on.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn take_all_but(left_alone: &[Signal]) -> Result<Signals, StartError> {
        let mut set = SigSet::all();
        for signal in left_alone {
            set.remove(*signal);
        }
        let trouble = |error: nix::errno::Errno| StartError::new(format!("the signals can't be received: {error}"));
        system::default_child_signal().map_err(|error| StartError::new(format!("SIGCHLD can't be set: {error}")))?;
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None).map_err(trouble)?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Signals).map_err(trouble)
    }

    /// The number of the next pending signal, if any. Never blocks.
    pub fn next(&self) -> Option<i32> {
        loop {
            match self.0.read_signal() {
                Ok(Some(information)) => return Some(information.ssi_signo as i32),
                Ok(None) => return None,
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => {
                    log_sink::line(&format!("signals can't be read: {error}"));
                    return None;
                }
            }
        }
    }
}

/// Signals that a wait outside of the loop reads. Other signals stay pending for the loop.
#[derive(Debug)]
pub struct EndSignals {
    descriptor: SignalFd,
    /// The signal mask to restore.
    before: SigSet,
}

impl EndSignals {
    /// Blocks these signals until the value is dropped, and opens the descriptor.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn take(set: &SigSet) -> nix::Result<EndSignals> {
        let descriptor = SignalFd::with_flags(set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(set), Some(&mut before))?;
        Ok(EndSignals { descriptor, before })
    }

    /// The number of the next pending signal, if any. Never blocks.
    pub fn next(&self) -> Option<i32> {
        self.descriptor.read_signal().ok().flatten().map(|information| information.ssi_signo as i32)
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        // It fails only for an invalid mask, and this one came from the kernel.
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
        assert_eq!(name(bolide_contract::message::stack_signal()), "SIGRTMIN+10");
        assert_eq!(name(200), "signal 200");
    }
}
