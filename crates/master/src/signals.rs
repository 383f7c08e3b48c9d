//! Signals of the master: one table of what each asks. They are blocked and read from a descriptor, so that
//! they are events of the one loop like any other. The master runs it; workers and prototypes have their own.

pub use bolide_contract::message::stack_signal;
use bolide_supervision::error::StartError;
use bolide_supervision::processes::signals::Signals;
use nix::sys::signal::{SigSet, Signal};

use crate::command::Command;

/// The action that a signal asks of the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// A command of the master's.
    Ask(Command),
    /// A child has ended.
    Reap,
    /// Nothing: it is in the table so that it does not end the master.
    Ignore,
    /// Nothing, and the log says that this signal came.
    Refuse,
}

/// The table: signal, what it asks, what the manual says of it.
pub const TABLE: &[(Signal, SignalAction, &str)] = &[
    (
        Signal::SIGTERM,
        SignalAction::Ask(Command::Stop),
        "Graceful stop: requests in flight are finished, for `reload-mercy` at the most. A second one stops at once.",
    ),
    (Signal::SIGINT, SignalAction::Ask(Command::Stop), "As SIGTERM."),
    (Signal::SIGQUIT, SignalAction::Ask(Command::StopNow), "Stop at once: workers are killed."),
    (
        Signal::SIGHUP,
        SignalAction::Ask(Command::Reload),
        "Reload: a new generation loads the application and serves before the old one finishes. The configuration is read again.",
    ),
    (
        Signal::SIGTTIN,
        SignalAction::Ask(Command::AddWorker),
        "One worker more, up to `processes`. With `cheaper` the algorithm goes on deciding, unless it is `manual`.",
    ),
    (
        Signal::SIGTTOU,
        SignalAction::Ask(Command::RemoveWorker),
        "One worker less, when it has finished what it has; the last one stays.",
    ),
    (
        Signal::SIGTSTP,
        SignalAction::Ask(Command::TogglePause),
        "Pause: requests in flight are finished, no other is begun, and clients wait. A second one lets it go on. So does Ctrl-Z in its \
         terminal: the master is never stopped by it, and the log says what it did.",
    ),
    (Signal::SIGUSR1, SignalAction::Ask(Command::Status), "Write the state of each process to the log."),
    (Signal::SIGUSR2, SignalAction::Ask(Command::Status), "As SIGUSR1."),
    (Signal::SIGCHLD, SignalAction::Reap, "A process has ended: the master's own business."),
    (Signal::SIGPIPE, SignalAction::Ignore, "Nothing: a reader of the log that has left is not a reason to stop."),
    (
        Signal::SIGXFSZ,
        SignalAction::Ignore,
        "Nothing: a log file that has become as large as it may (`ulimit -f`) is not a reason to stop.",
    ),
];

/// Signals that are left as they are: those of a fault of the master's own, which can't go on, and those that do nothing to a process
/// unless it asks for them.
const LEFT_ALONE: &[Signal] = &[
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

/// The manual's sentence about signals that are not in the table.
const OTHERS: &str = "Nothing, and the log says that it came: no signal stops or ends the master in silence.";

/// The manual's sentence about [`upgrade_signal`].
const UPGRADE: &str = "Upgrade: another master is executed, of the program that is installed by now, and has the sockets. This one serves until that \
    one does, and then ends like an old generation.";

/// The signal that asks for an upgrade: uWSGI has none for it, and no ordinary one is free.
fn upgrade_signal() -> i32 {
    libc::SIGRTMIN() + 2
}

/// The table as Markdown, for the manual.
pub fn as_markdown() -> String {
    let page = "| signal | what the master does |\n|---|---|\n".to_owned();
    documented().fold(page, |page, (name, help)| page + &format!("| {name} | {help} |\n"))
}

/// The same for the man page.
pub fn as_roff() -> String {
    let plain = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    documented().fold(String::new(), |page, (name, help)| page + &format!(".TP\n.B {}\n{}\n", plain(name), plain(help)))
}

/// Each signal that means something to who sends it, and the others.
fn documented() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = TABLE.iter().filter(|(_, action, _)| *action != SignalAction::Reap);
    rows.map(|(signal, _, help)| (signal.as_str(), *help)).chain([("SIGRTMIN+2", UPGRADE), ("any other", OTHERS)])
}

/// The action of a signal.
pub fn action(number: u32) -> SignalAction {
    if number == upgrade_signal().cast_unsigned() {
        return SignalAction::Ask(Command::Upgrade);
    }
    let row = TABLE.iter().find(|(signal, _, _)| *signal as u32 == number);
    row.map_or(SignalAction::Refuse, |(_, action, _)| *action)
}

/// Blocks all signals that can be, but for those that are left alone, and opens the descriptor. The master's call, before it starts
/// anything: no signal is lost from then on.
///
/// # Errors
/// No descriptor left.
pub fn take() -> Result<Signals, StartError> {
    Signals::take_all_but(LEFT_ALONE)
}

/// The signals that ask for an end.
pub fn end_signals() -> SigSet {
    let ends = TABLE.iter().filter(|(_, action, _)| matches!(action, SignalAction::Ask(Command::Stop | Command::StopNow)));
    ends.map(|(signal, ..)| *signal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_is_in_the_table_once_and_in_the_manual() {
        for (position, (signal, request_of_row, help)) in TABLE.iter().enumerate() {
            assert!(TABLE[position + 1..].iter().all(|(other, _, _)| other != signal), "{signal} twice");
            assert_eq!(action(*signal as u32), *request_of_row);
            assert!(!LEFT_ALONE.contains(signal));
            assert!(help.ends_with('.'));
        }
        assert!(as_markdown().contains("| SIGHUP | Reload"));
        assert!(!as_markdown().contains("SIGCHLD"));
        assert_eq!(action(libc::SIGTSTP as u32), SignalAction::Ask(Command::TogglePause));
        assert_eq!(action(libc::SIGXCPU as u32), SignalAction::Refuse);
    }
}
