//! A pause: what is in flight comes to its end, and nothing begins. Who connects waits in the listen queue; a request on an open connection
//! waits in its socket, unread, and a new stream of HTTP/2 in the table.
//!
//! It knows no sockets and no requests: connections say by themselves whether they are between two of them. The loop calls it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::now_ms;

use crate::app::Language;
use crate::connection::Connection;
use crate::event_loop::worker_state::{Housekeeping, Shared};
use crate::scheduling::connections::{ConnectionTable, Key};

/// Begins no request from here on. One that drains has nobody who could take its connections over: it goes on.
pub(crate) fn begin_pause<L: Language>(shared: &Shared<L>, housekeeping: &mut Housekeeping) {
    if shared.worker.is_draining() || shared.worker.paused.swap(true, Relaxed) {
        return;
    }
    shared.worker.row.paused.store(1, Relaxed);
    housekeeping.paused_ms = now_ms();
    housekeeping.pauses.clear();
    shared.leave_queue();
    for listener in &shared.worker.listeners {
        // The poll may not know it: the worker is held, or ahead of the others.
        let _may_be_unknown = shared.poll.delete(&listener.descriptor);
    }
}

/// Takes requests again.
pub(crate) fn end_pause<L: Language>(
    shared: &Shared<L>,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
) {
    if let_go_on(shared, connections, housekeeping) && !shared.is_held.load(Relaxed) {
        shared.listen_to_all();
    }
}

/// Lets open connections go on. Gives whether they were kept from it.
pub(crate) fn let_go_on<L: Language>(
    shared: &Shared<L>,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &Housekeeping,
) -> bool {
    if !shared.worker.paused.swap(false, Relaxed) {
        return false;
    }
    shared.worker.row.paused.store(0, Relaxed);
    let lasted_ms = now_ms().saturating_sub(housekeeping.paused_ms);
    connections.change_all(|connection| {
        if connection.awaits_request() {
            connection.extend_time(lasted_ms);
        }
        connection.due_ms()
    });
    for key in connections.keys(|connection| std::mem::take(&mut connection.is_resting)) {
        connections.news(key);
    }
    true
}

/// Puts a connection back into the table. One that `rests` has news that the poll has told already, so it is noted for the pause's end;
/// where that has come meanwhile, its turn is now.
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
        connections.news(key);
    }
}
