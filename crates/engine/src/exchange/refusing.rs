//! The answer to a request that is refused because it has waited too long (`admission`). It does not decide which ones those are,
//! and does not know about sockets. The threads that would begin the request run it.

use bolide_protocol::session::{HeadEvent, RequestHead};

use super::Served;
use super::beginning::begin;
use super::finishing::{finish_unnoted, keep_unnoted};
use super::health::{is_head, wire_of};
use crate::app::App;
use crate::exchange::context::ExchangeContext;
use crate::logging::counting::AnsweredBy;
use crate::response::Progress;

/// Answers the request with this head, of these bytes. It is neither logged nor counted as a request. `may_keep`: all of the
/// request has arrived, so the connection may go on.
pub fn refuse<A: App>(
    context: &mut ExchangeContext<'_, A>,
    head: &HeadEvent,
    bytes: &[u8],
    retry_after: &str,
    may_keep: bool,
) -> Served<A::Pending> {
    let keep_alive = match &head.head {
        RequestHead::Http { facts, .. } => facts.keep_alive,
        RequestHead::Variables { keep_alive, .. } => *keep_alive,
    };
    begin(context, wire_of(&head.head, head.wire), is_head(&head.head, bytes), keep_alive && may_keep);
    context.writer.answer_overloaded(retry_after);
    match context.writer.advance() {
        Progress::Done | Progress::Broken => finish_unnoted(context),
        Progress::Blocked => Served::Blocked(keep_unnoted(context, AnsweredBy::Admission)),
    }
}
