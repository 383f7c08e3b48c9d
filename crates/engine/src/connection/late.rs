//! Requests that do not come to their end in time: of a slow client, or of any client when the worker ends. Workers run it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_protocol::Fault;

use super::{Connection, ConnectionStage, NextAction};
use crate::app::App;
use crate::exchange::context::Context;
use crate::exchange::worker::Worker;
use crate::scheduling::patience::DRAIN_ARRIVAL_MS;
use crate::sockets::tls::TlsFault;

impl<A: App> Connection<A> {
    /// A request that has begun to come has so long to come whole. A body that keeps coming may take all of the mercy at a reload, where others
    /// serve by now; at a stop it may not.
    pub fn arrive_by(&mut self, when_ms: u64, worker: &Worker, now_ms: u64) {
        let body = self.exchange.body_patience().filter(|_| !worker.is_stopping());
        let until_ms = if let Some(patience) = body {
            patience.shorten(DRAIN_ARRIVAL_MS, now_ms);
            patience.until_ms().min(worker.mercy_ends_ms.load(Relaxed))
        } else if self.is_arriving() {
            when_ms
        } else {
            return;
        };
        self.deadline_ms = self.deadline_ms.min(until_ms);
    }

    /// A head or a body is on its way, and the application has not been called for it yet.
    pub(super) fn is_arriving(&self) -> bool {
        self.exchange.is_collecting()
            || self.exchange.is_idle() && self.stage == ConnectionStage::Serves && self.has_part_of_request()
    }

    /// What has come of a body, or of a PROXY header, does not buy it more time.
    pub(super) fn is_too_slow(&self, now_ms: u64) -> bool {
        let is_incomplete = self.exchange.is_collecting() || self.stage == ConnectionStage::AwaitsProxyHeader;
        is_incomplete && self.deadline_ms <= now_ms
    }

    /// The answer, where there is one to give, is 408.
    pub(super) fn expire(&mut self, context: &mut Context<'_, A>) -> NextAction {
        let begun = self.is_arriving() || self.exchange.is_streaming() && !self.exchange.response.head_has_left();
        if begun && self.session.is_http() {
            self.refuse(Fault::new(408, "The request did not come to its end in time."), context);
        }
        if self.transport.is_within_handshake() {
            self.tell_of_handshake(&TlsFault::TooSlow, context);
        }
        if self.has_served && self.is_idle() { self.part_when_idle(context) } else { NextAction::Close }
    }
}
