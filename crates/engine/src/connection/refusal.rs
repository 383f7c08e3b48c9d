//! What a client is told whose request is none. Workers run it.

use bolide_protocol::Fault;

use super::Connection;
use crate::app::App;
use crate::exchange::context::Context;
use crate::logging::access_log::complain;
use crate::response::{Progress, Terms, reason_phrase};

impl<A: App> Connection<A> {
    /// Answers a peer's mistake and logs it: the fault, never the bytes.
    pub(super) fn refuse(&mut self, fault: Fault, context: &mut Context<'_, A>) {
        // A front server that is set up for another protocol makes the same mistake with each request, and scanners come again and again.
        if fault.is_mixup {
            let what = format!(" with {}{}: {}", fault.status, self.place(context), fault.reason);
            self.complain_of_peer(fault.reason, "a request", &what, context);
        } else {
            let who = self.client.own_peer().name();
            complain(context.worker.number, &format!("refused a request of {who} with {}: {}", fault.status, fault.reason));
        }
        self.answer_fault(fault, context);
    }

    /// One line a minute of each peer and kind of fault, at the most. `what` goes on behind the peer's name.
    pub(super) fn complain_of_peer(&self, kind: &'static str, subject: &str, what: &str, context: &Context<'_, A>) {
        let peer = self.client.own_peer();
        let Some(untold) = context.worker.complaints.note(kind, &peer.address, context.thread.clock.now_ms) else { return };
        let more = if untold > 0 { format!(" ({untold} faults of other peers were not told)") } else { String::new() };
        complain(context.worker.number, &format!("refused {subject} of {}{what}{more}", peer.name()));
    }

    /// Where the connection came in, for a sentence: what is wrong may be the configuration of that socket.
    pub(super) fn place(&self, context: &Context<'_, A>) -> String {
        let listener = context.worker.listeners.get(self.listener);
        listener.map_or_else(String::new, |listener| format!(" at {} ({})", listener.bound, listener.origin))
    }

    /// Answers a fault of which the log knows.
    pub(super) fn answer_fault(&mut self, fault: Fault, context: &mut Context<'_, A>) {
        let Some(wire) = self.session.wire() else { return };
        let date_line = context.thread.clock.date_line();
        let terms = Terms { wire, head_only: false, keep_alive: false, client_keeps: false, may_cork: false, date_line };
        let buffers = context.thread.buffers.lend();
        let mut writer = self.writer();
        writer.begin(terms, buffers);
        if fault.status == 426 {
            writer.answer_upgrade_required(fault.reason);
        } else {
            writer.answer(fault.status, reason_phrase(fault.status), fault.reason);
        }
        // Few bytes, and the last ones: they leave whatever was sent before them.
        if writer.send_last() == Progress::Done {
            context.thread.buffers.keep(writer.end());
        }
    }
}
