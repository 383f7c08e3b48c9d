//! The permission for one process to read the memory of a worker, where the kernel asks for one (Yama, `ptrace_scope = 1`). Only
//! the worker itself can give it (prctl(2), `PR_SET_PTRACER`), so it is asked by a signal, whose handler runs whatever the worker
//! does. The signal carries a secret of this instance, since any process of the user could send one. The master runs it, and
//! reads nothing itself.

use std::io;
use std::os::fd::OwnedFd;

use bolide_contract::message::reader_signal;
use nix::unistd::Pid;

use crate::system::signal_process_with;

/// What a signal must carry to be believed.
#[derive(Debug, Clone, Copy)]
pub struct ReaderPermit {
    secret: u32,
}

impl ReaderPermit {
    /// Returns the permit of a new instance.
    ///
    /// # Errors
    /// The kernel does not give random numbers.
    pub fn new() -> io::Result<ReaderPermit> {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        // 0 stands for no secret.
        Ok(ReaderPermit { secret: u32::from_ne_bytes(bytes).max(1) })
    }

    /// The secret, for the boot record.
    pub fn secret(self) -> u32 {
        self.secret
    }

    /// Asks a process to let this reader read its memory. A process without the handler is left alone: the signal would end it.
    /// Returns whether it was asked.
    pub fn ask(self, process: &OwnedFd, pid: Pid, reader: i32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let value = u64::from(self.secret) << 32 | u64::from(reader.cast_unsigned());
        catches(&status, reader_signal()) && signal_process_with(process, reader_signal(), value).is_ok()
    }
}

/// Whether `/proc/PID/status` says that the process has a handler for a signal.
fn catches(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
    let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_seen_in_the_mask() {
        let status = "Name:\tx\nSigIgn:\tffffffffffffffff\nSigCgt:\t0000400000000002\n";
        assert!(catches(status, 2) && catches(status, 47));
        assert!(!catches(status, 1) && !catches(status, 46) && !catches("", 2));
    }
}
