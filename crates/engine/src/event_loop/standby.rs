//! The standby's wait at the poll. While the leader is inside a call, the standby waits here until a leader is needed, and
//! fetches no events. So a blocking call costs its thread the lead only if another client, an order or a time limit would wait
//! for it.
//!
//! It does not know about languages: the standby holds none. [`crate::scheduling::leadership`] decides which thread stands by,
//! and until when. Workers with several threads run it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::app::Language;
use crate::event_loop::polling::{accepts, longest_wait};
use crate::event_loop::worker_state::Shared;
use crate::scheduling::leadership::Need;

/// The longest wait of a standby, in milliseconds, whatever the poll reports.
const MAX_WAIT_MS: u32 = 30_000;

/// Waits until a leader is needed, or the doorbell rings. None is needed if the leader has come back from the call of this
/// number.
pub(crate) fn wait_for_need<L: Language>(shared: &Shared<L>, inside: u64) -> Need {
    let Some(doorbell) = shared.leadership.doorbell() else { return Need::None };
    if is_poll_ready(shared) {
        return Need::Waits;
    }
    let mut guard = shared.lock_state();
    if !shared.leadership.is_inside(inside) {
        return Need::None;
    }
    if shared.needs_leader(&guard) {
        return Need::Waits;
    }
    let wait = longest_wait(shared, &mut guard, now_ms());
    // nix panics at the milliseconds of a wait without a limit.
    let due_ms = if wait.is_none() { None } else { wait.as_millis() };
    // Set under the lock, so that a thread that puts a connection back sees it: see `wake_leader`.
    shared.worker.row.waiting.store(1, Relaxed);
    drop(guard);
    let wait_ms = due_ms.unwrap_or(MAX_WAIT_MS).min(MAX_WAIT_MS);
    let mut waits =
        [PollFd::new(shared.poll.0.as_fd(), PollFlags::POLLIN), PollFd::new(doorbell.descriptor(), PollFlags::POLLIN)];
    let found = poll(&mut waits, PollTimeout::try_from(wait_ms).unwrap_or(PollTimeout::MAX));
    let [at_poll, at_door] = waits.map(|wait| wait.any().unwrap_or(false));
    if at_door {
        doorbell.clear();
    }
    let guard = shared.lock_state();
    if let Some(admission) = &shared.worker.admission
        && accepts(shared, &guard.housekeeping)
    {
        // This thread was free until now, so nothing has waited for one.
        admission.note_free(now_ms());
    }
    // A leader that has come back sets the mark itself.
    if shared.leadership.is_inside(inside) {
        shared.worker.row.waiting.store(0, Relaxed);
    }
    drop(guard);
    match found {
        Ok(0) if due_ms.is_some_and(|due_ms| due_ms <= wait_ms) => Need::Came,
        Ok(0) => Need::None,
        Ok(_) if at_poll => Need::Came,
        Ok(_) => Need::None,
        // A signal: its handlers run on the first thread when that leads.
        Err(_) => Need::Came,
    }
}

/// The poll has events that no thread has fetched.
fn is_poll_ready<L: Language>(shared: &Shared<L>) -> bool {
    let mut waits = [PollFd::new(shared.poll.0.as_fd(), PollFlags::POLLIN)];
    poll(&mut waits, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}
