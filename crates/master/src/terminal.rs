//! The terminal that an instance was started in: its settings, which a debugger changes, and its end. It reads and writes nothing
//! there, and does not know debuggers. The master runs it.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use bolide_contract::settings::Settings;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

/// The terminal settings at startup: a debugger that is killed while it reads a line leaves the terminal without echo.
pub struct TerminalSettings(Option<Termios>);

impl TerminalSettings {
    pub fn remember() -> TerminalSettings {
        TerminalSettings(if io::stdin().is_terminal() { tcgetattr(io::stdin()).ok() } else { None })
    }

    pub fn restore(self) {
        // In the background the terminal is another program's, and the kernel would stop us.
        if let Some(before) = self.0
            && tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
        {
            // If the terminal is gone, there is nothing to restore.
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &before);
        }
    }
}

/// Whether a person may be at the terminal of this process, whose Ctrl-C is SIGINT.
pub fn is_attached() -> bool {
    io::stdin().is_terminal() || io::stderr().is_terminal()
}

/// Whether the instance exits with its terminal. An instance with a configuration file is operated, and reloads at SIGHUP as
/// uWSGI does. Without one, or in development, a person has typed the command and expects the server to end with the terminal's
/// window.
#[derive(Debug)]
pub struct EndsWithTerminal(bool);

impl EndsWithTerminal {
    pub fn of(settings: &Settings, has_files: bool) -> EndsWithTerminal {
        let is_personal = settings.development.is_some() || !has_files;
        EndsWithTerminal(is_personal && io::stdin().is_terminal() && !ignores_hangups())
    }

    /// Returns whether the terminal is gone and the instance is to end. Asked when SIGHUP has arrived.
    pub fn is_due(&self) -> bool {
        if !self.0 {
            return false;
        }
        let stdin = io::stdin();
        let mut watched = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        let found = poll(&mut watched, PollTimeout::ZERO).is_ok();
        found && watched[0].revents().is_some_and(|events| events.intersects(gone))
    }
}

/// Returns whether SIGHUP was ignored at startup, as nohup(1) asks: this process never changes its disposition.
fn ignores_hangups() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| ignored_signals(&status) & 1 << (Signal::SIGHUP as u32 - 1) != 0)
}

fn ignored_signals(status: &str) -> u64 {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|hexadecimal| u64::from_str_radix(hexadecimal.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ignored_signals_of_a_status_are_read() {
        assert_eq!(ignored_signals("Name:\tx\nSigIgn:\t0000000001001001\nSigCgt:\t0\n") & 1, 1);
        assert_eq!(ignored_signals("Name:\tx\n"), 0);
    }
}
