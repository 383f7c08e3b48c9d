//! Signals that one process of the instance got, as it has reported: the table of their effects, and the reports that wait. A
//! signal to the whole group reaches the master as well, and then it means what it means to the master, so a report waits a
//! moment for the master's own signal, and is dropped if that one comes or has come. It carries nothing out.
//! The master runs it.

use bolide_supervision::log_sink;
use bolide_supervision::processes::signals::name;
use nix::sys::signal::Signal;

use crate::children::child::{Child, State};
use crate::control::commands::Command;
use crate::owner::{Owner, Turn, Waits};

/// How long a report waits for the same signal to the master, in milliseconds. A supervisor signals the processes of a group one
/// after the other, and a busy machine may interrupt it.
const WAIT_MS: u64 = 500;
/// How long after the master's signal a report still belongs to it, in milliseconds: a process may get its own late.
const SAME_MS: u64 = 2_000;

/// The effect of a signal on one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Its replacement comes, and it finishes its requests.
    Replace,
    /// It is killed, and replaced.
    End,
    /// The master reloads.
    Reload,
    /// The master stops, if it has no other rights than the process.
    Stop,
    /// None.
    Nothing,
}

/// A signal, its effect on a worker or helper and on a prototype, and the sentences of the manual about both.
struct Row(Signal, [(Effect, &'static str); 2]);

const REPLACED: &str = "It is replaced. Its requests are completed, and a worker's replacement accepts requests before it exits.";
const ENDED: &str = "It exits immediately, and is replaced. Its open connections without a request go to the other workers.";
const NO_EFFECT_ALONE: &str = "None, but it is logged.";
const ROWS: [Row; 4] = [
    Row(
        Signal::SIGTERM,
        [
            (Effect::Replace, REPLACED),
            (
                Effect::Stop,
                "Stop the instance gracefully. If the master runs as another user, reload instead, which replaces the prototype.",
            ),
        ],
    ),
    Row(
        Signal::SIGHUP,
        [(Effect::Replace, REPLACED), (Effect::Reload, "Reload. Several signals during a reload cause one more reload.")],
    ),
    Row(Signal::SIGINT, [(Effect::End, ENDED), (Effect::Nothing, NO_EFFECT_ALONE)]),
    Row(Signal::SIGQUIT, [(Effect::End, ENDED), (Effect::Nothing, NO_EFFECT_ALONE)]),
];

/// Returns the effect of a signal, or `None` if no process reports this one.
pub fn effect(signal: i32, is_prototype: bool) -> Option<Effect> {
    let row = ROWS.iter().find(|Row(known, _)| *known as i32 == signal)?;
    Some(row.1[usize::from(is_prototype)].0)
}

/// What the master does about a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A worker's replacement comes first.
    Replace,
    /// A helper ends first.
    EndAfterWork,
    EndAtOnce,
    Command(Command),
    Nothing,
}

/// Returns the step for a child, and the words of its log line, empty if it needs none. `has_other_rights`: the application runs
/// as another user than the master.
pub fn step(child: &Child, signal: i32, has_other_rights: bool) -> (Step, &'static str) {
    let is_new = matches!(child.state, State::Ordered | State::Starting);
    match effect(signal, child.is_prototype()) {
        Some(Effect::Replace) if child.state == State::Serving && child.is_request_worker() => (Step::Replace, "it is replaced"),
        Some(Effect::Replace) if child.state == State::Serving => {
            (Step::EndAfterWork, "it exits after its work, and is replaced")
        }
        Some(Effect::Replace) if !is_new => (Step::Nothing, ""),
        Some(Effect::Replace | Effect::End) if child.state != State::Killed => (Step::EndAtOnce, "it exits immediately"),
        Some(Effect::Replace | Effect::End) | None => (Step::Nothing, ""),
        Some(Effect::Reload) => (Step::Command(Command::Reload), "the master reloads"),
        Some(Effect::Stop) if has_other_rights => {
            let what = "the master runs as another user and does not stop; a reload replaces the prototype";
            (Step::Command(Command::Reload), what)
        }
        Some(Effect::Stop) => (Step::Command(Command::Stop), "the master stops"),
        Some(Effect::Nothing) => (Step::Nothing, "no effect"),
    }
}

/// Returns the table as Markdown, for the documentation.
pub fn as_markdown() -> String {
    let head = "| signal | effect on a worker, mule or spooler | effect on a prototype, the parent of workers |\n|---|---|---|\n";
    ROWS.iter().fold(head.to_owned(), |page, Row(signal, [(_, one), (_, parent)])| {
        page + &format!("| {} | {one} | {parent} |\n", name(*signal as i32))
    })
}

/// A report that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    /// The child that got the signal.
    pub child: u64,
    pub signal: i32,
    /// The process that sent it; 0 if unknown.
    pub sender: u32,
    due_ms: u64,
}

impl Reported {
    /// Logs for example `worker 1 (pid 42) got SIGHUP from pid 7: it is replaced`; without words nothing.
    pub fn tell(&self, child: &Child, what: &str) {
        if what.is_empty() {
            return;
        }
        let sender = match self.sender {
            0 => String::new(),
            sender if child.pid.is_some_and(|pid| pid.as_raw().unsigned_abs() == sender) => " from itself".to_owned(),
            sender => format!(" from pid {sender}"),
        };
        log_sink::line(&format!("{child} got {}{sender}: {what}", name(self.signal)));
    }
}

/// The reports that wait: at most one for each child and signal.
#[derive(Debug, Default)]
pub struct SingleSignals {
    waiting: Vec<Reported>,
    /// When the master got each signal last.
    own: Vec<(i32, u64)>,
}

impl SingleSignals {
    /// Notes a signal to the master.
    pub fn note_own(&mut self, signal: i32, now_ms: u64) {
        if effect(signal, false).is_some() {
            self.waiting.retain(|reported| reported.signal != signal);
            self.own.retain(|(known, _)| *known != signal);
            self.own.push((signal, now_ms));
        }
    }

    /// Notes the report of a child that was born at `born_ms`.
    pub fn note(&mut self, child: u64, born_ms: u64, signal: i32, sender: u32, now_ms: u64) {
        let belongs = |(known, own_ms): &(i32, u64)| *known == signal && *own_ms >= born_ms && now_ms < own_ms + SAME_MS;
        let is_known = self.waiting.iter().any(|reported| (reported.child, reported.signal) == (child, signal));
        // The process may run as another user and report what it likes.
        let has_effect = effect(signal, false).is_some();
        if has_effect && !is_known && !self.own.iter().any(belongs) {
            self.waiting.push(Reported { child, signal, sender, due_ms: now_ms + WAIT_MS });
        }
    }

    /// Lets a report wait once more, because the instance can't act on it yet.
    pub fn postpone(&mut self, reported: Reported, now_ms: u64) {
        self.waiting.push(Reported { due_ms: now_ms + WAIT_MS, ..reported });
    }

    /// Takes the reports that have waited long enough.
    pub fn take_due(&mut self, now_ms: u64) -> Vec<Reported> {
        self.waiting.extract_if(.., |reported| now_ms >= reported.due_ms).collect()
    }
}

impl Owner for SingleSignals {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::until(self.waiting.iter().map(|reported| reported.due_ms).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::message::SINGLE_SIGNALS;

    #[test]
    fn every_signal_that_a_process_reports_has_an_effect_in_the_table() {
        for signal in SINGLE_SIGNALS {
            assert!(effect(signal, false).is_some_and(|effect| effect != Effect::Nothing));
            assert!(effect(signal, true).is_some());
        }
        assert_eq!(effect(libc::SIGUSR1, false), None);
        assert_eq!(as_markdown().lines().count(), 2 + SINGLE_SIGNALS.len());
    }

    #[test]
    fn a_report_counts_if_the_master_did_not_get_the_signal_before_or_after_it() {
        let mut signals = SingleSignals::default();
        signals.note(1, 0, libc::SIGHUP, 7, 1000);
        signals.note(1, 0, libc::SIGHUP, 7, 1100);
        signals.note(2, 0, libc::SIGTERM, 7, 1100);
        signals.note_own(libc::SIGTERM, 1200);
        signals.note(3, 0, libc::SIGTERM, 7, 1300);
        assert_eq!(signals.take_due(1000 + WAIT_MS - 1), []);
        let due = signals.take_due(1000 + WAIT_MS);
        assert_eq!(due.iter().map(|reported| (reported.child, reported.signal)).collect::<Vec<_>>(), [(1, libc::SIGHUP)]);
        assert_eq!(signals.waits(&Turn::at(0)).wake_ms, None);
        // A process that did not exist when the master got the signal has got another one.
        signals.note(4, 1250, libc::SIGTERM, 7, 1300);
        signals.note(5, 0, libc::SIGTERM, 7, 1200 + SAME_MS);
        assert_eq!(signals.take_due(u64::MAX).len(), 2);
    }
}
