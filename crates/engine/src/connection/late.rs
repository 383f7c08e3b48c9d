//! Requests that do not come to their end in time: of a slow client, or of any client when the worker ends. Workers run it.

use bolide_protocol::Fault;

use super::{Connection, NextAction, Stage};
use crate::app::App;
use crate::worker::{ThreadContext, Worker};

impl<A: App> Connection<A> {
    /// A request that has begun to come has so long to come whole.
    pub fn arrive_by(&mut self, when_ms: u64) {
        if self.is_arriving() {
            self.deadline_ms = self.deadline_ms.min(when_ms);
        }
    }

    /// A head or a body is on its way, and the application has not been called for it yet.
    pub(super) fn is_arriving(&self) -> bool {
        match self.stage {
            Stage::Head => !self.input.is_empty(),
            Stage::Body(_) => true,
            _ => false,
        }
    }

    /// The answer, where there is one to give, is 408.
    pub(super) fn expire(&mut self, thread: &mut ThreadContext, worker: &Worker) -> NextAction {
        let begun = self.is_arriving() || matches!(self.stage, Stage::Open(_)) && !self.response.head_has_left();
        if begun && self.is_http(worker) {
            self.refuse(Fault { status: 408, reason: "The request did not come to its end in time." }, thread, worker);
        }
        NextAction::Close
    }
}
