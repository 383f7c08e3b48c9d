//! Whether the application is called for a valid request now, later, or never: routes, files and bulkheads decide.
//!
//! It does not know how the application is called, or how answers end. It runs on the worker thread that read the request.

use bolide_scoreboard::Cancelled;

use crate::app::App;
use crate::exchange::bulkheads::{BulkheadVerdict, Permit};
use crate::exchange::context::ExchangeContext;
use crate::exchange::dispatch::serve_directly;
use crate::exchange::passage::Passage;
use crate::exchange::refusing::refuse_for_bulkhead;
use crate::exchange::routing::Routed;
use crate::logging::counting::AnsweredBy;
use crate::request::body::Body;
use crate::request::{Parts, Request};
use crate::response::end_cancelled;

/// What happens to a valid request.
pub enum Entrance {
    /// The application is called, with the permit of its bulkhead.
    Called(Option<Permit>),
    /// The server has answered it, or its client has left.
    Answered(AnsweredBy),
    /// The application is called when its body is here, or when it gets a permit.
    Later(Box<Passage>),
}

/// Decides whether the application is called now.
pub fn admit<A: App>(
    context: &mut ExchangeContext<'_, A>,
    request: &mut Request<'_, A::Memo>,
    routed: Option<&Routed>,
    is_unread: bool,
) -> Entrance {
    let bulkhead = match context.passage.take() {
        // Neither a rule nor a file answers it, as was found before its body was read, or before it waited.
        Some(passage) => passage.bulkhead,
        None => {
            if context.worker.has_own_answers
                && let Some(answered_by) = serve_directly(context, request, routed.and_then(Routed::verdict))
            {
                return Entrance::Answered(answered_by);
            }
            match context.worker.bulkheads {
                None => BulkheadVerdict::Free,
                Some(bulkheads) => bulkheads.admit(path_of(request), context.thread.clock.now_ms),
            }
        }
    };
    match bulkhead {
        verdict @ (BulkheadVerdict::Free | BulkheadVerdict::Permitted(_)) if is_unread => pass(context, verdict, Body::Empty),
        BulkheadVerdict::Free => Entrance::Called(None),
        BulkheadVerdict::Permitted(permit) => Entrance::Called(Some(permit)),
        verdict @ BulkheadVerdict::Waits(_) => pass(context, verdict, std::mem::take(&mut request.body)),
        BulkheadVerdict::Refused(refused) => {
            refuse_for_bulkhead(&refused, context.worker, context.thread.clock.now_ms, &mut context.writer);
            Entrance::Answered(AnsweredBy::Route)
        }
        BulkheadVerdict::Answered => Entrance::Answered(AnsweredBy::Route),
        BulkheadVerdict::Left => {
            end_cancelled(&mut context.writer, Cancelled::Waiting);
            Entrance::Answered(AnsweredBy::Application)
        }
    }
}

/// The path for which a request looks for its bulkhead.
fn path_of<'a, Memo>(request: &'a Request<'_, Memo>) -> &'a [u8] {
    match &request.parts.0 {
        Parts::Http(http) => http.path,
        Parts::Variables(variables) => {
            let paths = variables.pairs().filter(|(name, _)| *name == b"PATH_INFO");
            paths.last().map_or(&b""[..], |(_, path)| path)
        }
    }
}

/// The application is called later. The answer that has begun gives its buffers back.
fn pass<A: App>(context: &mut ExchangeContext<'_, A>, bulkhead: BulkheadVerdict, body: Body) -> Entrance {
    let changes = context.writer.take_changes();
    context.thread.buffers.keep(context.writer.end());
    Entrance::Later(Box::new(Passage::of(changes, context.start, bulkhead, body)))
}
