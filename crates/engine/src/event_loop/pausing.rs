//! The pause of a worker: requests in flight are finished, and none begins. New connections wait in the listen queue, requests on
//! open connections wait in their sockets, unread, and new streams of HTTP/2 wait in the table. With `health-path`, some new
//! connections are accepted for their health checks.
//!
//! It does not know about sockets or requests: connections say themselves whether they are between two requests. The event loop
//! of a worker calls it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;

use crate::app::Language;
use crate::connection::Connection;
use crate::event_loop::accepting::listen_for_checks;
use crate::event_loop::handing_over::stand_aside;
use crate::event_loop::signal_pools::leave_signal_pools;
use crate::event_loop::worker_state::{Housekeeping, PauseStart, Shared};
use crate::scheduling::connections::{ConnectionTable, Key};

/// Begins no request from here on. A draining worker continues, as no other worker could take its connections over.
pub(crate) fn begin_pause<L: Language>(
    shared: &Shared<L>,
    connections: &ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
) {
    if !shared.worker.availability.pause() {
        return;
    }
    shared.worker.row.paused.store(1, Relaxed);
    housekeeping.pause_began = PauseStart { at_ms: now_ms(), population: connections.population().all() };
    housekeeping.pauses.clear();
    housekeeping.descriptors.forget(shared.worker.row);
    shared.leave_queue();
    shared.leave_sessions();
    leave_signal_pools(shared);
    for listener in &shared.worker.listeners {
        // The listener may not be registered: the worker is held, or ahead of the others.
        let _may_be_unknown = shared.poll.delete(&listener.descriptor);
    }
    if !shared.is_held.load(Relaxed) {
        listen_for_checks(shared);
    }
}

/// Takes requests again.
pub(crate) fn end_pause<L: Language>(
    shared: &Shared<L>,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
) {
    if !shared.worker.availability.resume() {
        return;
    }
    if let Some(admission) = &shared.worker.admission {
        // What came during the pause has not waited for a thread.
        admission.note_free(now_ms());
    }
    let_connections_go_on(shared, connections, housekeeping);
    housekeeping.pauses.clear();
    if !shared.is_held.load(Relaxed) {
        shared.listen_to_all();
        stand_aside(shared, housekeeping);
    }
}

/// Lets the open connections of a worker that is not paused any more continue.
pub(crate) fn let_connections_go_on<L: Language>(
    shared: &Shared<L>,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &Housekeeping,
) {
    shared.worker.row.paused.store(0, Relaxed);
    let lasted_ms = now_ms().saturating_sub(housekeeping.pause_began.at_ms);
    connections.change_all(|connection| {
        if connection.awaits_request() {
            connection.extend_time(lasted_ms);
        }
        connection.due_ms()
    });
    connections.note_event(Key::SIGNALS);
    for key in connections.keys(|connection| std::mem::take(&mut connection.is_resting)) {
        connections.note_event(key);
    }
}

/// Puts a connection back into the table. A connection that `rests` has an event that the poll has reported already, so it is
/// marked for the end of the pause. If the pause has ended in the meantime, the connection is queued now.
pub(crate) fn check_in<L: Language>(
    shared: &Shared<L>,
    key: Key,
    mut connection: Box<Connection<L::App>>,
    rests: bool,
    connections: &mut ConnectionTable<Connection<L::App>>,
) {
    let is_paused = rests && shared.worker.is_paused();
    connection.is_resting = is_paused;
    let due_ms = connection.due_ms();
    connections.check_in(key, connection, due_ms);
    if rests && !is_paused {
        connections.note_event(key);
    }
}
