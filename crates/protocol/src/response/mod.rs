//! Answers: the head as fields, and the encoder that writes head, body and end in the format of a protocol.
//!
//! Must not know sockets, applications or the rules for an answer's content: the code that fills a head has checked it. Workers
//! run it.

mod blocks;
mod encoder;
mod head;

pub use encoder::{BodyLength, HeadTerms, Outgoing, ResponseEncoder, StreamEnd, Wire};
pub use head::ResponseHead;
