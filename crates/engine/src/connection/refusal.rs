//! Refusals: the answer to an invalid request, and its log line. It knows no session. Workers run it.

use bolide_protocol::Fault;
use bolide_protocol::response::Wire;

use crate::app::App;
use crate::exchange::context::Context;
use crate::exchange::thread_context::ThreadContext;
use crate::exchange::worker::Worker;
use crate::logging::access_log::complain;
use crate::response::{Progress, ResponseWriter, Terms, reason_phrase};
use crate::sockets::client::Client;

/// Logs at most one line a minute for each peer and kind of fault. `subject` is the refused thing, `what` follows the peer's
/// name.
pub(super) fn log_refusal<A: App>(client: &Client, (kind, subject): (&'static str, &str), what: &str, context: &Context<'_, A>) {
    let peer = client.own_peer();
    let Some(suppressed) = context.worker.peer_warnings.note(kind, &peer.address, context.thread.clock.now_ms) else { return };
    let more = if suppressed > 0 { format!(" ({suppressed} failures of other peers were not logged)") } else { String::new() };
    complain(context.worker.number, &format!("refused {subject} of {}{what}{more}", peer.name()));
}

/// The listening socket of a connection, as a part of a sentence: its configuration may be wrong.
pub(super) fn place(listener: usize, worker: &Worker) -> String {
    let listener = worker.listeners.get(listener);
    listener.map_or_else(String::new, |listener| format!(" at {} ({})", listener.bound, listener.origin))
}

/// Answers a fault that was logged.
pub(super) fn answer_fault(wire: Option<Wire>, writer: &mut ResponseWriter<'_>, fault: Fault, thread: &mut ThreadContext) {
    let Some(wire) = wire else { return };
    let date_line = thread.clock.date_line();
    let terms = Terms { wire, head_only: false, keep_alive: false, client_keeps: false, may_cork: false, date_line };
    writer.begin(terms, thread.buffers.lend());
    if fault.status == 426 {
        writer.answer_upgrade_required(fault.reason);
    } else {
        writer.answer(fault.status, reason_phrase(fault.status), fault.reason);
    }
    // They are few bytes, and the last ones: they may exceed the turn.
    if writer.send_last() == Progress::Done {
        thread.buffers.keep(writer.end());
    }
}
