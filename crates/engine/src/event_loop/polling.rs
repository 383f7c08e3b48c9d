//! The leader's poll: fetching events, and how long it may wait for them. It does not know about protocols or the application.
//! The threads that lead run it.

use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use crate::app::Language;
use crate::app_thread::AppThread;
use crate::connection::Connection;
use crate::event_loop::worker_state::{Guard, Housekeeping, LeaderState, Shared};
use crate::exchange::bulkheads::Bulkheads;
use crate::exchange::context::ThreadContext;
use crate::logging::access_log::complain;
use crate::scheduling::connections::{ConnectionTable, EventSource, Key};
use crate::scheduling::deadlines::{CLOCK_TICK_MS, NEVER_MS};

/// The shortest time between two cleanups of the file cache, in milliseconds.
pub(crate) const TIDY_MS: u64 = 500;

/// The peer does not send more, or is gone. An edge-triggered poll reports this once, possibly in the same event as the last
/// bytes.
pub(super) const PEER_HAS_ENDED: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// Fetches events. A first poll without a wait keeps the language. Only if it finds nothing, or is expected to, the language is
/// released for a poll that waits. The second value says whether a signal interrupted it.
pub(super) fn poll<'a, L: Language>(
    shared: &'a Shared<L>,
    mut guard: Guard<'a, L>,
    thread: &mut ThreadContext,
    app: &mut AppThread<L::App>,
    events: &mut [EpollEvent],
) -> (Guard<'a, L>, bool) {
    let looks = guard.connections.has_ready() || guard.housekeeping.polls.should_look();
    let mut found = Ok(0);
    if looks {
        found = shared.poll.wait(events, EpollTimeout::ZERO);
        guard.housekeeping.polls.note_look(found.unwrap_or(0));
    }
    let slept_from_ms = thread.clock.now_ms;
    let mut has_slept = false;
    if matches!(found, Ok(0)) && !guard.connections.has_ready() {
        has_slept = true;
        let timeout = longest_wait(shared, &mut guard, thread.clock.now_ms);
        let timeout = guard.housekeeping.census.limit(timeout, thread.clock.now_ms);
        // Set from before the state is unlocked until it is locked again: see `wake_leader`.
        shared.worker.row.waiting.store(1, Relaxed);
        drop(guard);
        app.let_go();
        found = shared.poll.wait(events, timeout);
        app.come_back();
        guard = shared.lock_state();
        shared.worker.row.waiting.store(0, Relaxed);
        guard.housekeeping.polls.note_wait(found.unwrap_or(0), looks);
        if found == Ok(0) && shared.has_work(&guard) {
            found = shared.poll.wait(events, EpollTimeout::ZERO);
            if found == Ok(0) {
                log_lost_event(shared);
            }
        }
    }
    let is_interrupted = queue_events(shared, found, events, &mut guard.connections, thread);
    let slept_ms = if has_slept { thread.clock.now_ms - slept_from_ms } else { 0 };
    if let Some(admission) = &shared.worker.admission
        && (slept_ms > 0 || has_slept && looks)
        && accepts(shared, &guard.housekeeping)
    {
        admission.note_free(thread.clock.now_ms);
    }
    guard.housekeeping.work.note_sleep(slept_ms, thread.clock.now_ms, shared.worker.row);
    (guard, is_interrupted)
}

/// Connections in the accept queues would have ended the poll's wait.
pub(crate) fn accepts<L: Language>(shared: &Shared<L>, housekeeping: &Housekeeping) -> bool {
    !housekeeping.descriptors.are_missing() && !shared.worker.availability.is_full()
}

/// A time limit has revealed an event without a wake-up, which is served late. The tests fail on this log line.
pub(crate) fn log_lost_event<L: Language>(shared: &Shared<L>) {
    complain(
        shared.worker.number,
        "internal error: the loop missed an event of a connection, which only its time limit revealed",
    );
}

/// Queues the events that the poll has found. Returns `true` if a signal interrupted it.
pub(crate) fn queue_events<L: Language>(
    shared: &Shared<L>,
    found: Result<usize, Errno>,
    events: &[EpollEvent],
    connections: &mut ConnectionTable<Connection<L::App>>,
    thread: &mut ThreadContext,
) -> bool {
    thread.clock.tick();
    shared.worker.row.turned_ms.store(thread.clock.now_ms, Relaxed);
    if shared.worker.settings.logging.may_log_requests() {
        count_elsewhere(shared);
    }
    match found {
        Ok(count) => {
            for event in &events[..count] {
                take_event::<L>(event, connections);
            }
        }
        Err(Errno::EINTR) => {}
        // Every other error of epoll_wait(2) is a bug of this program. The master replaces the worker.
        Err(errno) => {
            complain(shared.worker.number, &format!("the poll failed; the worker exits: {errno}"));
            std::process::abort();
        }
    }
    found == Err(Errno::EINTR)
}

pub(crate) fn take_event<L: Language>(event: &EpollEvent, connections: &mut ConnectionTable<Connection<L::App>>) {
    let key = Key(event.data());
    // The end of a relay is not that of the connection's peer.
    let is_of_peer = !matches!(key.source(), EventSource::Relay(_));
    if is_of_peer && event.events().intersects(PEER_HAS_ENDED) {
        connections.note_end(key);
    }
    connections.note_event(key);
}

pub(crate) fn longest_wait<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, now: u64) -> EpollTimeout {
    let wait_ms = longest_wait_ms(shared, state, now);
    state.housekeeping.sleeps_until_ms = wait_ms.map_or(NEVER_MS, |wait_ms| now + wait_ms);
    match wait_ms {
        Some(milliseconds) => EpollTimeout::try_from(milliseconds).unwrap_or(EpollTimeout::MAX),
        None => EpollTimeout::NONE,
    }
}

/// Milliseconds until a timer is due, whatever the sockets do.
pub(crate) fn longest_wait_ms<L: Language>(shared: &Shared<L>, state: &LeaderState<L::App>, now: u64) -> Option<u64> {
    let pauses = state.housekeeping.pauses.iter().filter(|pause| pause.until_ms != NEVER_MS);
    let pause = pauses.map(|pause| pause.until_ms.saturating_sub(now).max(1)).min();
    let next_look_ms = next_look_ms(shared, &state.connections);
    let look = (next_look_ms != NEVER_MS).then(|| (next_look_ms + CLOCK_TICK_MS).saturating_sub(now));
    let tidy = shared.worker.files.and_then(|files| files.tidy_within_ms(now));
    let tidy = tidy.map(|milliseconds| milliseconds.max(TIDY_MS));
    let mercy_ends_ms = shared.worker.availability.mercy_ends_ms();
    let mercy =
        (mercy_ends_ms != u64::MAX && !state.housekeeping.mercy_is_over).then(|| mercy_ends_ms.saturating_sub(now).max(1));
    let log = bolide_log::retry_ms();
    let streams_end_ms = shared.worker.availability.streams_end_ms();
    let streams =
        (streams_end_ms != u64::MAX && !state.housekeeping.streams_have_ended).then(|| streams_end_ms.saturating_sub(now).max(1));
    let memory = state.housekeeping.memory_trim.within_ms(now);
    let moves = state.housekeeping.moves_at_ms.map(|when_ms| when_ms.saturating_sub(now).max(1));
    let descriptors = state.housekeeping.descriptors.wake_ms().map(|when_ms| when_ms.saturating_sub(now).max(1));
    [pause, look, tidy, mercy, streams, log, moves, memory, descriptors].into_iter().flatten().min()
}

/// A connection's time limit ends, or a count of warnings is due, before a wait until `until_ms` ends.
pub(crate) fn must_look_before<L: Language>(
    shared: &Shared<L>,
    connections: &ConnectionTable<Connection<L::App>>,
    until_ms: u64,
) -> bool {
    next_look_ms(shared, connections).saturating_add(CLOCK_TICK_MS) < until_ms
}

fn next_look_ms<L: Language>(shared: &Shared<L>, connections: &ConnectionTable<Connection<L::App>>) -> u64 {
    let permits_ms = shared.worker.bulkheads.map_or(NEVER_MS, Bulkheads::look_ms);
    connections.next_look_ms().min(shared.worker.peer_warnings.due_ms()).min(permits_ms)
}

pub(super) fn count_elsewhere<L: Language>(shared: &Shared<L>) {
    let own = shared.worker.row;
    let others = shared.scoreboard.rows().iter().filter(|row| row.is_of_request_worker() && !std::ptr::eq(*row, own));
    let elsewhere: u64 = others.map(|row| row.requests.load(Relaxed)).sum();
    shared.worker.requests_elsewhere.store(elsewhere, Relaxed);
}
