//! What a client is told whose request is none. Workers run it.

use bolide_protocol::Fault;

use super::Connection;
use crate::access_log::complain;
use crate::app::App;
use crate::context::Context;
use crate::response::{Progress, Terms, reason_phrase};

impl<A: App> Connection<A> {
    /// Answers a peer's mistake and logs it: the fault, never the bytes.
    pub(super) fn refuse(&mut self, fault: Fault, context: &mut Context<'_, A>) {
        // Whoever scans for TLS comes again and again.
        if fault.is_misplaced_tls() {
            self.complain_of_peer(&format!(" with {}: {}", fault.status, fault.reason), "a request", context);
        } else {
            let who = self.client.own_peer().name();
            complain(context.worker.number, &format!("refused a request of {who} with {}: {}", fault.status, fault.reason));
        }
        self.answer_fault(fault, context);
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
