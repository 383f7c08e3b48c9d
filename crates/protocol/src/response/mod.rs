//! An answer on its way to bytes: its head as fields, and the encoder that writes head, body and end as a protocol wants them.
//!
//! It must not know sockets, applications or what may be said in an answer: whoever fills a head has checked it. Workers run it.

mod blocks;
mod encoder;
mod head;

pub use encoder::{BodyLength, HeadTerms, Outgoing, ResponseEncoder, StreamEnd, Wire};
pub use head::ResponseHead;
