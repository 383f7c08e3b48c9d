//! The end of a response whose client has left. It knows no application. Worker threads run it.

use super::ResponseWriter;

/// Ends a request that the application has given up because the client has left. If no part of the response has been sent, none
/// is: the request has no status in the log and the counters, because neither the application nor the server has failed.
pub fn end_without_client(writer: &mut ResponseWriter<'_>) {
    if !writer.head_has_left() {
        writer.response.forget_head();
    }
    writer.cut_off();
    writer.give_client_up();
}
