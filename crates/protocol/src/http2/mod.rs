//! HTTP/2 as an origin server speaks it (RFC 9113, RFC 7541, RFC 8441, RFC 9218): turns bytes into the events of streams, and
//! writes the frames that the protocol itself sends. [`crate::response`] writes the answers.
//!
//! Must not know sockets, applications or time. Workers run it.

mod control;
mod error;
mod event;
pub mod frame;
mod head;
mod hpack_decoder;
mod limits;
mod messages;
mod priority;
mod session;
mod streams;
mod text;

pub use error::{ErrorCode, Http2Error};
pub use event::Http2Event;
pub use frame::{FRAME_HEAD_BYTES, MAX_FRAME_BYTES, PREFACE};
pub use limits::{Http2Limits, MAX_CONTINUATIONS, MAX_CONTROL_BYTES, MAX_IDLE_FRAMES, MAX_RESETS};
pub use priority::Priority;
pub use session::Http2;
