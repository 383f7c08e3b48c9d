//! The standby at the poll: while the leader is inside a call it waits here until somebody needs a leader, and fetches nothing. So a call
//! that blocks costs its thread the lead only where another client, an order or a time limit would wait for it.
//!
//! It knows no language: the standby holds none. [`crate::scheduling::leadership`] says who stands by, and until when. Threads of workers with several run it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::now_ms;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::app::Language;
use crate::event_loop::worker_state::{Guard, LeaderState, Shared};
use crate::scheduling::leadership::Need;

/// A standby looks around at least this often, in milliseconds, whatever the poll says.
const STAND_MOST_MS: u32 = 30_000;

impl<L: Language> Shared<L> {
    /// Waits until somebody needs a leader, or the doorbell rings. Nobody does when the leader has come back from the call of this number.
    pub(crate) fn wait_for_need(&self, inside: u64) -> Need {
        let Some(doorbell) = self.leadership.doorbell() else { return Need::Nobody };
        if self.is_poll_ready() {
            return Need::Waits;
        }
        let mut guard = self.lock_state();
        if !self.leadership.is_inside(inside) {
            return Need::Nobody;
        }
        if self.needs_leader(&guard) {
            return Need::Waits;
        }
        let due_ms = self.longest_wait(&mut guard, now_ms()).as_millis();
        // Under the lock, so that whoever leaves something for a leader sees it: see `tell_leader`.
        self.worker.row.waiting.store(1, Relaxed);
        drop(guard);
        let wait_ms = due_ms.unwrap_or(STAND_MOST_MS).min(STAND_MOST_MS);
        let mut waits =
            [PollFd::new(self.poll.0.as_fd(), PollFlags::POLLIN), PollFd::new(doorbell.descriptor(), PollFlags::POLLIN)];
        let found = poll(&mut waits, PollTimeout::try_from(wait_ms).unwrap_or(PollTimeout::MAX));
        let [at_poll, at_door] = waits.map(|wait| wait.any().unwrap_or(false));
        if at_door {
            doorbell.hear();
        }
        let guard = self.lock_state();
        // A leader that has come back says itself whether it waits.
        if self.leadership.is_inside(inside) {
            self.worker.row.waiting.store(0, Relaxed);
        }
        drop(guard);
        match found {
            Ok(0) if due_ms.is_some_and(|due_ms| due_ms <= wait_ms) => Need::Came,
            Ok(0) => Need::Nobody,
            Ok(_) if at_poll => Need::Came,
            Ok(_) => Need::Nobody,
            // A signal, whose handler in the language runs where the first thread leads.
            Err(_) => Need::Came,
        }
    }

    /// The leader is back from the call of this number: the state, and whether it leads still. `None`: there is no other thread.
    pub(crate) fn come_back(&self, inside: Option<u64>) -> (Guard<'_, L>, bool) {
        let Some(inside) = inside else { return (self.lock_state(), true) };
        let still_leads = self.leadership.leave_call(inside);
        let guard = self.lock_state();
        if still_leads {
            self.note_leader();
        }
        (guard, still_leads)
    }

    /// Somebody leads who does not wait. The caller has locked the state: a standby may have said that the worker waits.
    pub(crate) fn note_leader(&self) {
        self.worker.row.waiting.store(0, Relaxed);
    }

    /// Whether there is something to do for a leader, whatever the sockets say.
    pub(crate) fn needs_leader(&self, state: &LeaderState<L::App>) -> bool {
        let leaves = self.worker.leaving.load(Relaxed) && !self.worker.is_draining();
        self.has_news(state) || leaves || self.is_worn() && !state.housekeeping.worn_reported
    }

    /// The poll has news that nobody has fetched.
    fn is_poll_ready(&self) -> bool {
        let mut waits = [PollFd::new(self.poll.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut waits, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }
}
