//! What a request keeps that has passed the rules and is not called yet: its body is still arriving. The rules are walked once,
//! because some of them count.
//!
//! It does not know about sockets or bodies. It runs on the worker thread that read the request.

use crate::exchange::routing::Routed;
use crate::logging::waiting::RequestStart;
use crate::response::{ResponseWriter, RoutedChanges};

/// A request that nothing but the application answers.
pub struct Passage {
    /// What the rules have decided; `None` if there are no rules.
    pub routed: Option<Routed>,
    /// When the request arrived, if the application is told by this server.
    pub start: Option<RequestStart>,
    changes: RoutedChanges,
}

impl Passage {
    /// The request will be called later, and its answer begins again then.
    pub fn of(changes: RoutedChanges, start: Option<RequestStart>) -> Passage {
        Passage { routed: None, start, changes }
    }

    /// The answer has begun again, and the rules' changes are made to it. Returns what they have decided.
    pub fn resume(self, writer: &mut ResponseWriter<'_>) -> Option<Routed> {
        writer.make_changes(self.changes);
        self.routed
    }
}
