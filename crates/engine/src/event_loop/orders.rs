//! Orders of the master to a worker, as they arrive at its control socket. What each one means is in the file of its topic. The
//! leading thread reads them, or one that stands in for it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::message::{self, Order, Received};

use crate::app::Language;
use crate::event_loop::accepting::{accept_handed_over, recheck_listeners, shut_listeners};
use crate::event_loop::draining::{End, begin_departure, begin_drain};
use crate::event_loop::handing_over::{begin_handover, end_handover};
use crate::event_loop::pausing::{begin_pause, end_pause};
use crate::event_loop::signal_pools::join_signal_pool;
use crate::event_loop::worker_state::{LeaderState, Shared};
use crate::logging::access_log::complain;
use crate::scheduling::connections::Key;

/// Carries out the pending orders, or begins to.
pub(crate) fn take_orders<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>) {
    loop {
        let received = match shared.signals.next_kept() {
            Some((order, descriptor)) => Ok(Received::Message(order, descriptor)),
            None => message::receive::<Order>(shared.control.as_fd()),
        };
        let LeaderState { connections, housekeeping, .. } = &mut *state;
        match received {
            Ok(Received::Message(Order::Drain { has_successors }, _)) => {
                begin_drain(shared, state, if has_successors { End::Replaced } else { End::Alone });
            }
            Ok(Received::Message(Order::Succeed, Some(control))) => {
                shared.order_succession(control);
                begin_drain(shared, state, End::Replaced);
            }
            Ok(Received::Message(Order::Stop, _)) => begin_drain(shared, state, End::AtOnce),
            Ok(Received::Message(Order::LeaveBalancer, _)) => begin_departure(shared, connections),
            Ok(Received::Message(Order::Admit, _)) => shared.admit(),
            Ok(Received::Message(Order::Pause, _)) => begin_pause(shared, connections, housekeeping),
            Ok(Received::Message(Order::Resume, _)) => end_pause(shared, connections, housekeeping),
            Ok(Received::Message(Order::Look, _)) => recheck_listeners(shared, connections, housekeeping),
            Ok(Received::Message(Order::HandOver { has_takers }, _)) => begin_handover(shared, state, has_takers),
            Ok(Received::Message(Order::Spare, _)) => end_handover(housekeeping),
            Ok(Received::Message(Order::Serve { listener }, Some(socket))) => {
                accept_handed_over(shared, listener, socket, connections, housekeeping);
            }
            Ok(Received::Message(Order::TakeLog { log }, Some(file))) => {
                if let Err(error) = bolide_log::replace(log as usize, &file) {
                    complain(shared.worker.number, &format!("the log {log} can't be replaced: {error}"));
                }
            }
            Ok(Received::Message(Order::Signal { number }, _)) => {
                shared.signals.put(number);
                connections.note_event(Key::SIGNALS);
            }
            Ok(Received::Message(Order::JoinPool { .. }, Some(pipe))) => join_signal_pool(shared, pipe),
            Ok(Received::Message(order, _)) => {
                complain(shared.worker.number, &format!("ignoring the order {order:?}, which can't be carried out here"));
            }
            Ok(Received::Nothing) => return,
            // The master is gone. The remaining workers finish the requests in flight and end.
            Ok(Received::End) | Err(_) => {
                shared.is_orphaned.store(true, Relaxed);
                let _known_to_be_there = shared.poll.delete(&shared.control);
                // A draining worker has successors that serve at these sockets, possibly those of another master.
                if !shared.worker.is_draining() {
                    shut_listeners(shared, connections, housekeeping);
                }
                return begin_drain(shared, state, End::AtOnce);
            }
        }
    }
}
