//! The master's action for each signal: those of commands (the table in `commands`), and all others. It performs no action. The
//! master runs it; workers and prototypes have their own.

use bolide_supervision::error::StartError;
use bolide_supervision::processes::signals::Signals;
use nix::sys::signal::{SigSet, Signal};

use crate::control::commands::{COMMANDS, Command, SignalNumber};

/// The action that a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    Command(Command),
    /// A child has exited.
    Reap,
    /// No action; the signal is blocked so that it does not end the master.
    Ignore,
    /// No action, and the log reports that this signal arrived.
    Refuse,
}

/// Signals without an effect, each with its sentence in the manual.
const IGNORED: &[(Signal, &str)] = &[
    (Signal::SIGPIPE, "None, because a log reader that has exited is not a reason to stop."),
    (Signal::SIGXFSZ, "None, because a log file that has reached the size limit (`ulimit -f`) is not a reason to stop."),
];

/// Signals that keep their default disposition: those of a fault of the master itself, after which it can't continue, and those
/// that have no effect on a process by default.
const DEFAULT_DISPOSITION: &[Signal] = &[
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGSYS,
    Signal::SIGCONT,
    Signal::SIGWINCH,
    Signal::SIGURG,
];

/// The manual's sentence about all other signals.
const OTHERS: &str = "None, but it is logged. No signal stops the master silently.";

/// Blocks all signals that can be blocked, except those of [`DEFAULT_DISPOSITION`], and opens the signal descriptor. The master
/// calls this before it starts anything, so that no signal is lost from then on.
///
/// # Errors
/// No file descriptor is available.
pub fn take() -> Result<Signals, StartError> {
    Signals::take_all_but(DEFAULT_DISPOSITION)
}

/// Returns the action of a signal.
pub fn action(number: i32) -> SignalAction {
    let of_commands = COMMANDS.iter().find(|command| command.row().signals.iter().any(|(signal, _)| signal.number() == number));
    match of_commands {
        Some(command) => SignalAction::Command(*command),
        None if number == Signal::SIGCHLD as i32 => SignalAction::Reap,
        None if IGNORED.iter().any(|(signal, _)| *signal as i32 == number) => SignalAction::Ignore,
        None => SignalAction::Refuse,
    }
}

/// Returns the signals that request the end of the instance.
pub fn end_signals() -> SigSet {
    let rows = [Command::Stop, Command::Drain, Command::StopNow].map(|command| command.row().signals);
    let standard = rows.into_iter().flatten().filter_map(|(signal, _)| match signal {
        SignalNumber::Standard(signal) => Some(*signal),
        SignalNumber::Realtime(_) => None,
    });
    standard.collect()
}

/// Returns each signal that has an effect, by name, with its effect; then a row for all other signals.
pub fn documented() -> impl Iterator<Item = (String, &'static str)> {
    let named = COMMANDS.iter().flat_map(|command| command.row().signals).map(|(signal, help)| (signal.number(), *help));
    let ignored = IGNORED.iter().map(|(signal, help)| (*signal as i32, *help));
    named
        .chain(ignored)
        .map(|(number, help)| (bolide_supervision::processes::signals::name(number), help))
        .chain([("any other".to_owned(), OTHERS)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_the_action_of_its_row_and_is_not_left_alone() {
        for command in COMMANDS {
            for (signal, _) in command.row().signals {
                assert_eq!(action(signal.number()), SignalAction::Command(*command));
                assert!(DEFAULT_DISPOSITION.iter().all(|left| *left as i32 != signal.number()));
            }
        }
        for (signal, help) in IGNORED {
            assert_eq!(action(*signal as i32), SignalAction::Ignore);
            assert!(!DEFAULT_DISPOSITION.contains(signal) && help.ends_with('.'));
        }
        assert_eq!(action(libc::SIGTSTP), SignalAction::Command(Command::TogglePause));
        assert_eq!(action(libc::SIGRTMIN() + 2), SignalAction::Command(Command::Upgrade));
        assert_eq!(action(libc::SIGCHLD), SignalAction::Reap);
        assert_eq!(action(libc::SIGXCPU), SignalAction::Refuse);
        assert_eq!(end_signals().iter().collect::<Vec<_>>(), [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM]);
    }
}
