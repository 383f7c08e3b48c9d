//! The end of a worker: what happens to its connections after an order to drain or to stop.
//!
//! A drain (a reload) finishes the requests under way. Shutdown does too, but does not keep endless answers open. It does not
//! know about protocols. The event loop of a worker calls it.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::message::Report;
use bolide_contract::settings::Lifecycle;
use bolide_scoreboard::{Accepting, Row};

use crate::answer::Answer;
use crate::app::Language;
use crate::connection::Connection;
use crate::event_loop::accepting::leave_listeners;
use crate::event_loop::moving::{move_all, take_all_moved};
use crate::event_loop::multiplexing::wake_multiplexed;
use crate::event_loop::pausing::let_connections_go_on;
use crate::event_loop::worker_state::{LeaderState, Shared};
use crate::exchange::availability::Service;
use crate::exchange::worker::Worker;
use crate::logging::access_log::complain;
use crate::scheduling::body_timeout::DRAIN_ARRIVAL_MS;
use crate::scheduling::connections::ConnectionTable;
use crate::scheduling::spread::{Spread, place_ms, place_of};

/// The last part of `reload-mercy`, in milliseconds, but a quarter of it at most, is reserved for the application: endless
/// streams get a disconnect, so that they can end by themselves, and the lifespan ends after them. The master kills the worker
/// when all of the mercy has passed.
const LAST_PART_MS: u64 = 5_000;

/// Milliseconds for which a stream (an answer of unknown length, such as server-sent events) may continue after the order to
/// stop, at least. Then its client is treated as disconnected. At a reload it has all of the mercy.
const STREAM_STOP_MS: u64 = 3_000;

/// A draining worker closes its WebSockets within this many milliseconds, and earlier if there are few: the second number is the
/// most that each of them adds. `drain-spread` takes precedence.
const WEBSOCKET_LEAVE_MS: u64 = 5_000;
const WEBSOCKET_LEAVE_EACH_MS: u64 = 10;

/// Milliseconds that a draining worker waits, after the last answer, for another request on a connection that was not told
/// `Connection: close`. Closing immediately would lose a request that is on its way.
const DRAIN_IDLE_MS: u64 = 2_000;

/// The end of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Other workers continue, and take over the connections that can move.
    Replaced,
    /// No other worker of the instance continues.
    Alone,
    /// As `Alone`, and no endless answer is kept open.
    AtOnce,
}

/// How long requests may take after the order to drain, in milliseconds. The rest of `reload-mercy` is for the application.
fn request_mercy_ms(lifecycle: &Lifecycle) -> u64 {
    let mercy_ms = lifecycle.reload_mercy_ms;
    mercy_ms - LAST_PART_MS.min(mercy_ms / 4)
}

/// When this many WebSockets are closed, in monotonic milliseconds.
fn websocket_time(lifecycle: &Lifecycle, count: u64, at_once: bool) -> Range<u64> {
    let over_ms = match lifecycle.drain_spread_ms {
        Some(spread_ms) => spread_ms.min(request_mercy_ms(lifecycle)),
        None if at_once => 0,
        None => WEBSOCKET_LEAVE_MS.min(count * WEBSOCKET_LEAVE_EACH_MS),
    };
    let now = now_ms();
    now..now + over_ms
}

/// Over which time streams are closed at shutdown, in milliseconds, after [`STREAM_STOP_MS`].
pub(crate) fn stream_spread_ms(lifecycle: &Lifecycle) -> u64 {
    lifecycle.drain_spread_ms.unwrap_or(0).min(request_mercy_ms(lifecycle).saturating_sub(STREAM_STOP_MS))
}

/// Cuts off a stream that has continued too long after the master's order to stop. It is for a thread that is in the iterator of
/// an answer, and does not read orders in the meantime. Returns `true` if it has cut the stream off.
pub fn cut_off_late_stream(row: &Row, answer: &mut Answer<'_>) -> bool {
    let stopped_ms = row.stopped_ms.load(Relaxed);
    if stopped_ms == 0 || !answer.writer().is_endless() {
        return false;
    }
    let worker = row.worker.load(Relaxed);
    let own_ms = place_of(row, answer.writer().transport.socket());
    if now_ms() < stopped_ms + STREAM_STOP_MS + own_ms {
        return false;
    }
    answer.writer_mut().cut_off();
    log_cut_streams(worker, 1, STREAM_STOP_MS + own_ms, 0);
    true
}

fn log_cut_streams(worker: u32, count: u32, after_ms: u64, over_ms: u64) {
    let after = after_ms / 1000;
    let over = if over_ms == 0 { String::new() } else { format!(" over {} s", over_ms.div_ceil(1000)) };
    complain(worker, &format!("streams still open {after} s after the order to stop, closing them{over}: {count}"));
}

/// Until when a draining worker keeps a connection that has become idle, in monotonic milliseconds. After an order to stop, a
/// connection that was answered is closed immediately. A connection that has had no request yet gets the full time, as one may be
/// on its way.
pub(crate) fn idle_until_ms(worker: &Worker, has_served: bool) -> u64 {
    if worker.is_stopping() && has_served { 0 } else { now_ms() + DRAIN_IDLE_MS }
}

pub(crate) fn begin_drain<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, end: End) {
    shared.language.note_leaving();
    let at_once = end == End::AtOnce;
    let how = match end {
        End::Replaced if shared.queue.is_some() => Service::HandsOver,
        End::Replaced | End::Alone => Service::Drains,
        End::AtOnce => Service::Stops,
    };
    let lifecycle = &shared.worker.settings.lifecycle;
    let LeaderState { connections, housekeeping, .. } = &mut *state;
    if !shared.worker.is_draining() && end != End::Replaced {
        // No other worker may be left that would take them from the queue.
        take_all_moved(shared, connections);
    }
    let before = shared.worker.availability.leave(how);
    if before < Service::HandsOver {
        shared.worker.row.accepting.store(Accepting::No.code(), Relaxed);
        let ends_ms = now_ms() + request_mercy_ms(lifecycle);
        shared.worker.availability.set_mercy_end(ends_ms);
        housekeeping.arrivals_end_ms = now_ms() + DRAIN_ARRIVAL_MS;
        let was_paused = before == Service::Paused;
        if was_paused {
            let_connections_go_on(shared, connections, housekeeping);
        }
        let somebody_waits = !was_paused && leave_listeners(shared, connections, housekeeping);
        shared.report(|row, _| Report::Left { row, somebody_waits });
        connections.for_each(|connection| connection.give_up_at(ends_ms));
        // Workers that do not know of the drain yet may still move connections here.
        shared.watch_sessions();
    }
    if at_once && before != Service::Stops {
        housekeeping.arrivals_end_ms = now_ms() + DRAIN_ARRIVAL_MS;
        end_streams(shared, connections);
    }
    let mut websockets = 0;
    connections.for_each(|connection| websockets += u64::from(connection.is_websocket()));
    let mut leaving = Spread::new(websocket_time(lifecycle, websockets, at_once), websockets, shared.worker.number);
    connections.change_all(|connection| {
        if connection.is_idle() {
            connection.deadline_ms = connection.deadline_ms.min(idle_until_ms(&shared.worker, connection.has_served()));
        } else if connection.is_websocket() {
            connection.leave_at(leaving.next_ms(), at_once);
        } else {
            connection.arrive_by(housekeeping.arrivals_end_ms, &shared.worker, now_ms());
        }
        connection.due_ms()
    });
    wake_multiplexed(connections);
    if shared.worker.hands_over() {
        move_all(shared, state);
    }
}

/// The instance stops: gives each stream its end. A request whose answer becomes a stream later has one too.
fn end_streams<L: Language>(shared: &Shared<L>, connections: &mut ConnectionTable<Connection<L::App>>) {
    let (from_ms, over_ms) = (now_ms() + STREAM_STOP_MS, stream_spread_ms(&shared.worker.settings.lifecycle));
    shared.worker.availability.set_streams_end(from_ms);
    let (mut streams, mut others) = (0, 0);
    connections.for_each(|connection| streams += u64::from(connection.is_endless()));
    let mut ends = Spread::new(from_ms..from_ms + over_ms, streams, shared.worker.number);
    connections.for_each(|connection| {
        let end_ms = if connection.is_endless() {
            ends.next_ms()
        } else {
            others += 1;
            from_ms + place_ms(over_ms, others, shared.worker.number)
        };
        connection.end_stream_at(end_ms);
    });
}

/// The instance will be stopped when load balancers do not send connections any more. Connections are served, each with its last
/// answer.
pub(crate) fn begin_departure<L: Language>(shared: &Shared<L>, connections: &mut ConnectionTable<Connection<L::App>>) {
    if shared.worker.availability.leave_balancer() {
        wake_multiplexed(connections);
    }
}

pub(crate) fn log_stream_end<L: Language>(shared: &Shared<L>, connections: &mut ConnectionTable<Connection<L::App>>) {
    let mut count = 0;
    connections.for_each(|connection| count += u32::from(connection.is_endless()));
    if count > 0 {
        let over_ms = stream_spread_ms(&shared.worker.settings.lifecycle);
        log_cut_streams(shared.worker.number, count, STREAM_STOP_MS, over_ms);
    }
}

pub(crate) fn log_mercy_end<L: Language>(shared: &Shared<L>, connections: &mut ConnectionTable<Connection<L::App>>) {
    let mut count = 0;
    connections.for_each(|connection| count += u32::from(connection.is_streaming()));
    if count > 0 {
        let mercy_s = shared.worker.settings.lifecycle.reload_mercy_ms / 1000;
        let problem = format!("the {mercy_s} s of reload-mercy are nearly over, closing requests: {count}");
        complain(shared.worker.number, &problem);
    }
}
