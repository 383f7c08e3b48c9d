//! `cancel-on-disconnect`: requests whose clients have left before the application was called. Those that it handles already are
//! ended by their connection ([`crate::connection`]).
//!
//! It does not know how a client leaves, which the transport finds out. Worker threads run it.

use bolide_contract::answering::CancelOnDisconnect;
use bolide_scoreboard::Cancelled;

use crate::app::App;
use crate::exchange::context::ExchangeContext;
use crate::response::end_cancelled;

/// Whether the client has left while the request waited for this thread, so that the application is not called. Then the answer
/// has ended. Asked right before the call, and only if some requests may be cancelled, as it makes a system call.
#[cold]
pub fn ends_before_call<A: App>(context: &mut ExchangeContext<'_, A>, is_websocket: bool) -> bool {
    if is_websocket {
        // Its application gets the disconnect as a message.
        context.writer.notes.cancel_on_disconnect = CancelOnDisconnect::Off;
    }
    let has_left = match context.writer.notes.cancel_on_disconnect {
        // A stream that was reset before its request was served is never begun, with or without the option.
        CancelOnDisconnect::Off => context.writer.client_is_gone(),
        CancelOnDisconnect::Reset => context.writer.transport.peer_has_gone(false),
        CancelOnDisconnect::Fin => context.writer.transport.peer_has_gone(true),
    };
    if has_left {
        end_cancelled(&mut context.writer, Cancelled::Waiting);
    }
    has_left
}
