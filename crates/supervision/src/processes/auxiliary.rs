//! The life of a child that is of no generation (the attendant, the exporter, a daemon, an action), from its fork to its end: one
//! table of states and events, the deadline, the kill, and the words about all that. What it does is its owner's business. The
//! master and the attendant run it.

use std::os::fd::AsFd;

use nix::unistd::Pid;

use crate::polling::Source;
use crate::processes::backoff::{self, Backoff};
use crate::processes::channel::{ChildChannel, ChildReport};
use crate::processes::exit_report::Cause;
use crate::processes::forking::Forked;
use crate::processes::leash::Leash;
use crate::processes::life_table::LifeTable;
use crate::processes::signals;
use crate::{log_sink, system};

/// The state of an auxiliary process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuxiliaryState {
    /// At work.
    Working,
    /// Told to end, by an order or a signal.
    Ending,
    /// Killed; the kernel has not reported its end yet.
    Killed,
    /// Gone. Nothing is sent to its pid any more.
    Ended,
}

/// An event in the life of an auxiliary process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuxiliaryEvent {
    /// It was told to end.
    ToldToEnd,
    /// It was killed.
    KillSent,
    /// The kernel reported its end.
    Died,
}

#[rustfmt::skip]
const LIFE: LifeTable<AuxiliaryState, AuxiliaryEvent, 3> = {
    use AuxiliaryEvent::{Died, KillSent, ToldToEnd};
    use AuxiliaryState::{Ended, Ending, Killed, Working};
    LifeTable {
        events:    [ToldToEnd, KillSent, Died],
        rows: &[
            (Working, [Ending, Killed, Ended]),
            (Ending,  [Ending, Killed, Ended]),
            (Killed,  [Killed, Killed, Ended]),
            (Ended,   [Ended,  Ended,  Ended]),
        ],
    }
};

/// Returns the table as Markdown, for the documentation.
pub fn as_markdown() -> String {
    LIFE.as_markdown()
}

/// A process, with what its owner keeps for it.
#[derive(Debug)]
pub struct AuxiliaryProcess<T> {
    /// For the log: `daemon celery`.
    name: String,
    pid: Pid,
    channel: Option<ChildChannel>,
    leash: Option<Leash>,
    born_ms: u64,
    state: AuxiliaryState,
    /// When it is killed unless it has ended.
    deadline_ms: Option<u64>,
    /// The last signal that it was sent, except for the kill at its deadline.
    sent_signal: Option<i32>,
    /// What its owner keeps for it.
    pub record: T,
}

/// An exited process. Dropping it kills the rest of its group, if that is on a leash.
#[derive(Debug)]
pub struct EndedAuxiliary<T> {
    /// The process, with what its owner has kept for it.
    pub process: AuxiliaryProcess<T>,
    /// How it ended.
    pub cause: Cause,
    /// Whether nothing had told it to.
    pub by_itself: bool,
    /// How long it has lived, in milliseconds.
    pub lived_ms: u64,
}

impl<T> AuxiliaryProcess<T> {
    /// The record of a process that was just started. `name` is for the log.
    pub fn new(name: impl Into<String>, forked: Forked, record: T, now_ms: u64) -> AuxiliaryProcess<T> {
        let Forked { pid, channel, leash } = forked;
        let (name, state) = (name.into(), AuxiliaryState::Working);
        AuxiliaryProcess { name, pid, channel, leash, born_ms: now_ms, state, deadline_ms: None, sent_signal: None, record }
    }

    /// Returns its pid.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns whether it is at work: nothing has told it to end.
    pub fn is_working(&self) -> bool {
        self.state == AuxiliaryState::Working
    }

    /// Sends an order to end, and sets when the process is killed unless it has ended by then.
    pub fn order(&mut self, order: u8, deadline_ms: u64) {
        if matches!(self.state, AuxiliaryState::Killed | AuxiliaryState::Ended) {
            return;
        }
        self.apply(AuxiliaryEvent::ToldToEnd);
        self.deadline_ms = Some(deadline_ms);
        let sent = self.channel.as_ref().map_or(Ok(()), |channel| channel.order(order));
        if let Err(error) = sent {
            log_sink::line(&format!("{} (pid {}) can't be reached: {error}", self.name, self.pid));
        }
    }

    /// Sends its group a signal that tells it to end.
    pub fn signal(&mut self, number: i32) {
        if self.state != AuxiliaryState::Ended {
            self.sent_signal = Some(number);
            self.apply(if number == libc::SIGKILL { AuxiliaryEvent::KillSent } else { AuxiliaryEvent::ToldToEnd });
            system::signal_group(self.pid, number);
        }
    }

    /// Moves its deadline closer, never back.
    pub fn end_by(&mut self, deadline_ms: u64) {
        if matches!(self.state, AuxiliaryState::Working | AuxiliaryState::Ending) {
            self.deadline_ms = Some(self.deadline_ms.map_or(deadline_ms, |before| before.min(deadline_ms)));
        }
    }

    /// Leaves it all the time that it needs.
    pub fn forget_deadline(&mut self) {
        self.deadline_ms = None;
    }

    /// Kills its group, once.
    pub fn kill(&mut self) {
        if matches!(self.state, AuxiliaryState::Working | AuxiliaryState::Ending) {
            self.apply(AuxiliaryEvent::KillSent);
            // It is our child and was not reaped, so its pid was not reused.
            system::signal_group(self.pid, libc::SIGKILL);
        }
    }

    /// Kills it if its deadline has passed. Returns the line for the log; `limit` is its reason if nothing has told the process
    /// to end: `takes too long`.
    pub fn kill_if_late(&mut self, limit: &str, now_ms: u64) -> Option<String> {
        self.deadline_ms.filter(|deadline_ms| now_ms >= *deadline_ms)?;
        let why = match (self.sent_signal, self.is_working()) {
            (Some(signal), _) => format!("has not exited after {}", signals::name(signal)),
            (None, true) => limit.to_owned(),
            (None, false) => "has not exited".to_owned(),
        };
        self.kill();
        Some(format!("{} (pid {}) {why}: killing it", self.name, self.pid))
    }

    /// Returns when it is killed unless it has ended.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    /// Records that the kernel has reported its end, with this cause.
    pub fn ended(mut self, cause: Cause, now_ms: u64) -> EndedAuxiliary<T> {
        let (by_itself, lived_ms) = (self.is_working(), now_ms.saturating_sub(self.born_ms));
        self.apply(AuxiliaryEvent::Died);
        EndedAuxiliary { process: self, cause, by_itself, lived_ms }
    }

    fn apply(&mut self, event: AuxiliaryEvent) {
        self.state = LIFE.after(self.state, event);
        if matches!(self.state, AuxiliaryState::Killed | AuxiliaryState::Ended) {
            self.deadline_ms = None;
        }
    }
}

impl<T> EndedAuxiliary<T> {
    /// Returns for example `daemon celery (pid 42) exited with status 3`.
    pub fn words(&self) -> String {
        let AuxiliaryProcess { name, pid, sent_signal, .. } = &self.process;
        format!("{name} (pid {pid}) {}", self.cause.words_after(*sent_signal))
    }

    /// Notes the end of one that another follows. Returns the line for the log.
    pub fn followed(&self, backoff: &mut Backoff, now_ms: u64) -> String {
        let pause_ms = backoff.ended(self.lived_ms, now_ms);
        format!("{}: starting another {}", self.words(), backoff::in_words(pause_ms))
    }

    /// Lets the rest of its group live, which is not ours any more.
    pub fn let_go(self) -> T {
        if let Some(leash) = self.process.leash {
            leash.let_go();
        }
        self.process.record
    }
}

/// All processes of an owner.
#[derive(Debug)]
pub struct Auxiliaries<T>(Vec<AuxiliaryProcess<T>>);

impl<T> Default for Auxiliaries<T> {
    fn default() -> Auxiliaries<T> {
        Auxiliaries(Vec::new())
    }
}

impl<T> Auxiliaries<T> {
    /// Adds a process that was just started.
    pub fn add(&mut self, process: AuxiliaryProcess<T>) {
        self.0.push(process);
    }

    /// Returns the processes, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &AuxiliaryProcess<T>> {
        self.0.iter()
    }

    /// Returns the processes, the oldest first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut AuxiliaryProcess<T>> {
        self.0.iter_mut()
    }

    /// Returns the number of processes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no process is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the pid and the start of each process, and whether it was told to end.
    pub fn processes(&self) -> impl Iterator<Item = (Pid, u64, bool)> {
        self.iter().map(|process| (process.pid, process.born_ms, !process.is_working()))
    }

    /// Returns the channels to wait on, each under the token of its process' pid.
    pub fn sources<U>(&self, token: impl Fn(i32) -> U) -> impl Iterator<Item = Source<'_, U>> {
        let channels = self.iter().filter_map(|process| Some((process.pid, process.channel.as_ref()?)));
        channels.map(move |(pid, channel)| Source::readable(token(pid.as_raw()), channel.as_fd()))
    }

    /// Passes on the reports of a process that have arrived, at most `most` of them.
    pub fn take_reports(&mut self, pid: i32, most: usize, mut take: impl FnMut(ChildReport<'_>, &mut AuxiliaryProcess<T>)) {
        let Some(process) = self.0.iter_mut().find(|process| process.pid.as_raw() == pid) else { return };
        let Some(channel) = process.channel.take() else { return };
        channel.take_reports(most, |report| take(report, process));
        process.channel = Some(channel);
    }

    /// Records the end of a process. Returns `None` if none of these has this pid.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> Option<EndedAuxiliary<T>> {
        let position = self.0.iter().position(|process| process.pid == pid)?;
        Some(self.0.remove(position).ended(Cause::from_status(status), now_ms))
    }

    /// Kills the processes whose deadline has passed. Returns the lines for the log ([`AuxiliaryProcess::kill_if_late`]).
    pub fn kill_late(&mut self, limit: &str, now_ms: u64) -> Vec<String> {
        self.iter_mut().filter_map(|process| process.kill_if_late(limit, now_ms)).collect()
    }

    /// Returns when the next deadline passes.
    pub fn wake_ms(&self) -> Option<u64> {
        self.iter().filter_map(AuxiliaryProcess::deadline_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pid that no process has: nothing is sent to it here.
    const NOBODY: Pid = Pid::from_raw(i32::MAX);

    fn one() -> Auxiliaries<()> {
        let mut list = Auxiliaries::default();
        list.add(AuxiliaryProcess::new("daemon x", Forked { pid: NOBODY, channel: None, leash: None }, (), 1000));
        list
    }

    fn only(list: &mut Auxiliaries<()>) -> &mut AuxiliaryProcess<()> {
        list.iter_mut().next().expect("it is there")
    }

    #[test]
    fn the_table_has_each_state_once_and_only_death_leads_out_of_a_kill() {
        use AuxiliaryState::{Ended, Ending, Killed, Working};
        for state in [Working, Ending, Killed, Ended] {
            assert_eq!(LIFE.rows.iter().filter(|(of_row, _)| *of_row == state).count(), 1, "{state:?}");
            assert_eq!(LIFE.after(state, AuxiliaryEvent::Died), Ended);
        }
        assert_eq!(LIFE.after(Killed, AuxiliaryEvent::ToldToEnd), Killed);
        assert!(as_markdown().contains("| Working | Ending | Killed | Ended |\n| Ending | | Killed | Ended |\n"));
    }

    #[test]
    fn a_deadline_only_comes_nearer_until_another_order_and_kills_once() {
        let mut list = one();
        only(&mut list).end_by(3000);
        only(&mut list).end_by(5000);
        assert_eq!(only(&mut list).deadline_ms(), Some(3000));
        only(&mut list).order(b's', 9000);
        assert_eq!((list.wake_ms(), list.kill_late("takes too long", 8999)), (Some(9000), Vec::new()));
        assert_eq!(list.kill_late("takes too long", 9000), ["daemon x (pid 2147483647) has not exited: killing it"]);
        only(&mut list).order(b's', 9500);
        only(&mut list).end_by(9500);
        assert_eq!((list.wake_ms(), list.kill_late("takes too long", 10_000)), (None, Vec::new()));
    }

    #[test]
    fn the_words_say_what_it_was_told() {
        let mut list = one();
        only(&mut list).end_by(0);
        assert_eq!(list.kill_late("takes too long", 0), ["daemon x (pid 2147483647) takes too long: killing it"]);
        assert!(list.note_end(Pid::from_raw(1), 0, 0).is_none());
        let ended = list.note_end(NOBODY, libc::SIGKILL, 3500).expect("it was there");
        assert_eq!((ended.words().as_str(), ended.lived_ms), ("daemon x (pid 2147483647) was killed by SIGKILL", 2500));
        assert!(!ended.by_itself && list.is_empty());
        let mut list = one();
        only(&mut list).signal(libc::SIGTERM);
        only(&mut list).end_by(0);
        assert_eq!(list.kill_late("", 0), ["daemon x (pid 2147483647) has not exited after SIGTERM: killing it"]);
        let ended = list.note_end(NOBODY, libc::SIGTERM, 3500).expect("it was there");
        assert_eq!((ended.words().as_str(), ended.by_itself), ("daemon x (pid 2147483647) ended on SIGTERM", false));
        let ended = one().note_end(NOBODY, 0, 1500).expect("it was there");
        let (words, mut backoff) = ("daemon x (pid 2147483647) exited with status 0: starting another", Backoff::default());
        assert_eq!((ended.followed(&mut backoff, 1500), ended.by_itself), (format!("{words} in 100 ms"), true));
    }
}
