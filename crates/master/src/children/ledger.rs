//! The records of a worker's number beyond its present process: how many processes had it, how many of them harakiri killed, and
//! the work of those that have ended. The scoreboard forgets a worker when it ends; these statistics continue. It does not
//! know processes. The master runs it.

use bolide_scoreboard::{Measured, Work};
use bolide_supervision::system::seconds_since_1970;

/// The accounts of all worker numbers.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The account of worker 1 comes first.
    accounts: Vec<Account>,
    /// Messages that exited processes could not send.
    refused_messages: u64,
    /// Processes of each helper number that have ended, of number 1 first.
    ended_helpers: Vec<u64>,
    /// What exited workers had measured.
    measured: Measured,
    /// Exited workers, by [`EndKind`].
    ends: [u64; EndKind::ALL.len()],
}

/// Why a worker has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndKind {
    /// By an order: a reload, `max-requests`, fewer workers, the end of the instance.
    Ordered,
    Harakiri,
    /// It exceeded a limit of its memory.
    Memory,
    /// It was killed because it did not end or begin in time.
    Late,
    /// A signal that the master has not sent.
    Signal,
    /// It has exited by itself.
    Exit,
    Other,
}

impl EndKind {
    const ALL: [(EndKind, &str); 7] = [
        (EndKind::Ordered, "ordered"),
        (EndKind::Harakiri, "harakiri"),
        (EndKind::Memory, "memory"),
        (EndKind::Late, "late"),
        (EndKind::Signal, "signal"),
        (EndKind::Exit, "exit"),
        (EndKind::Other, "other"),
    ];

    /// The word of the statistics.
    pub fn name(self) -> &'static str {
        EndKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// The account of one worker number.
#[derive(Debug, Clone, Default)]
pub struct Account {
    pub spawn_count: u64,
    /// Seconds since 1970; 0 means never.
    pub last_spawn_s: u64,
    pub harakiri_count: u64,
    /// Calls of handlers of uWSGI's signals by exited processes.
    pub signals: u64,
    /// The work of each thread, summed over the exited processes.
    pub past: Vec<Work>,
}

impl Account {
    /// Adds the work of a process, by thread.
    pub fn add(&mut self, works: impl Iterator<Item = Work>) {
        for (core, work) in works.enumerate() {
            if self.past.len() <= core {
                self.past.resize(core + 1, Work::default());
            }
            self.past[core] += &work;
        }
    }
}

impl Ledger {
    pub fn account(&self, number: u32) -> Account {
        self.accounts.get(number as usize - 1).cloned().unwrap_or_default()
    }

    /// Returns the work of all request workers that have exited.
    pub fn past_work(&self) -> Work {
        self.accounts.iter().flat_map(|account| account.past.iter().copied()).sum()
    }

    /// Records a new process of this number.
    pub fn note_spawn(&mut self, number: u32) {
        let account = self.account_mut(number);
        account.spawn_count += 1;
        account.last_spawn_s = seconds_since_1970();
    }

    pub fn note_harakiri(&mut self, number: u32) {
        self.account_mut(number).harakiri_count += 1;
    }

    /// Adds the work of a process of this number that has ended, by thread, and its calls of signal handlers.
    pub fn note_end(&mut self, number: u32, works: impl Iterator<Item = Work>, signals: u64) {
        let account = self.account_mut(number);
        account.signals += signals;
        account.add(works);
    }

    /// Adds what an exited worker had measured.
    pub fn note_measured(&mut self, measured: &Measured) {
        self.measured += measured;
    }

    pub fn count_end(&mut self, kind: EndKind) {
        self.ends[kind as usize] += 1;
    }

    /// Returns how many workers have exited, by cause.
    pub fn ends(&self) -> Vec<(&'static str, u64)> {
        EndKind::ALL.iter().zip(self.ends).map(|((_, name), count)| (*name, count)).collect()
    }

    pub fn measured(&self) -> &Measured {
        &self.measured
    }

    /// Adds the messages that an exited process could not send.
    pub fn note_refused_messages(&mut self, count: u64) {
        self.refused_messages = self.refused_messages.saturating_add(count);
    }

    pub fn refused_messages(&self) -> u64 {
        self.refused_messages
    }

    /// Records that a helper of this number has ended.
    pub fn note_end_of_helper(&mut self, number: u32) {
        let place = number as usize - 1;
        if self.ended_helpers.len() <= place {
            self.ended_helpers.resize(place + 1, 0);
        }
        self.ended_helpers[place] += 1;
    }

    pub fn ended_helpers(&self, number: u32) -> u64 {
        self.ended_helpers.get(number as usize - 1).copied().unwrap_or(0)
    }

    fn account_mut(&mut self, number: u32) -> &mut Account {
        let place = number as usize - 1;
        if self.accounts.len() <= place {
            self.accounts.resize(place + 1, Account::default());
        }
        &mut self.accounts[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_worker_stays_when_it_has_ended() {
        let mut ledger = Ledger::default();
        let work = |requests| Work { requests, ..Work::default() };
        ledger.note_spawn(2);
        ledger.note_end(2, [work(3), work(4)].into_iter(), 2);
        ledger.note_harakiri(2);
        ledger.note_spawn(2);
        ledger.note_end(2, [work(1)].into_iter(), 3);
        let account = ledger.account(2);
        assert_eq!((account.spawn_count, account.harakiri_count, account.signals), (2, 1, 5));
        assert!(account.last_spawn_s > 1_700_000_000);
        assert_eq!(account.past, [work(4), work(4)]);
        assert_eq!((ledger.account(1).spawn_count, ledger.account(7).past.len()), (0, 0));
    }
}
