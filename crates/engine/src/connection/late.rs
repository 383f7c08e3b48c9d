//! Requests that do not come to their end in time: of a slow client, or of any client when the worker ends. Workers run it.

use bolide_protocol::Fault;

use super::{Connection, ConnectionStage, NextAction};
use crate::app::App;
use crate::context::Context;
use crate::tls::TlsFault;

impl<A: App> Connection<A> {
    /// A request that has begun to come has so long to come whole.
    pub fn arrive_by(&mut self, when_ms: u64) {
        if self.is_arriving() {
            self.deadline_ms = self.deadline_ms.min(when_ms);
        }
    }

    /// A head or a body is on its way, and the application has not been called for it yet.
    pub(super) fn is_arriving(&self) -> bool {
        self.exchange.is_collecting()
            || self.exchange.is_idle() && self.stage == ConnectionStage::Serves && self.has_part_of_request()
    }

    /// The answer, where there is one to give, is 408.
    pub(super) fn expire(&mut self, context: &mut Context<'_, A>) -> NextAction {
        let begun = self.is_arriving() || self.exchange.is_streaming() && !self.exchange.response.head_has_left();
        if begun && self.session.is_http() {
            self.refuse(Fault { status: 408, reason: "The request did not come to its end in time." }, context);
        }
        if self.transport.is_within_handshake() {
            self.tell_of_handshake(&TlsFault::TooSlow, context);
        }
        NextAction::Close
    }
}
