//! What a request keeps that has passed the rules and is not called yet: its body is still arriving, or it waits for a permit of
//! its bulkhead. The rules are walked once, because some of them count.
//!
//! It does not know about sockets. It runs on the worker thread that read the request.

use crate::exchange::bulkheads::BulkheadVerdict;
use crate::exchange::routing::Routed;
use crate::logging::identity::SharedIdentity;
use crate::logging::waiting::RequestStart;
use crate::request::body::Body;
use crate::response::{ResponseWriter, RoutedChanges};

/// A request that neither a rule nor a file answers.
pub struct Passage {
    /// What the rules have decided; `None` if there are no rules.
    pub routed: Option<Routed>,
    /// When the request arrived, if the application is told by this server.
    pub start: Option<RequestStart>,
    /// Its identity, which an answer during a call of another request has too.
    pub identity: SharedIdentity,
    pub bulkhead: BulkheadVerdict,
    /// The body of a request that waits, if all of it came with its head.
    pub body: Body,
    changes: RoutedChanges,
}

impl Passage {
    /// The request will be called later, and its answer begins again then.
    pub fn of(changes: RoutedChanges, start: Option<RequestStart>, bulkhead: BulkheadVerdict, body: Body) -> Passage {
        Passage { routed: None, start, identity: None, bulkhead, body, changes }
    }

    /// The answer has begun again, and the rules' changes are made to it. Returns what they have decided.
    pub fn resume(&mut self, writer: &mut ResponseWriter<'_>) -> Option<Routed> {
        if !self.is_answered() {
            self.change(writer);
        }
        self.routed.take()
    }

    /// Makes the rules' changes to an answer that has begun.
    pub fn change(&mut self, writer: &mut ResponseWriter<'_>) {
        writer.make_changes(std::mem::take(&mut self.changes));
    }

    /// Its client has the answer already.
    pub fn is_answered(&self) -> bool {
        matches!(self.bulkhead, BulkheadVerdict::Answered)
    }

    /// It has a permit, for which it may have waited.
    pub fn is_permitted(&self) -> bool {
        matches!(self.bulkhead, BulkheadVerdict::Permitted(_))
    }

    /// It waits for a permit.
    pub fn waits(&self) -> bool {
        matches!(self.bulkhead, BulkheadVerdict::Waits(_))
    }
}
