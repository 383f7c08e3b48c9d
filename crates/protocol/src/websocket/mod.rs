//! The server side of WebSocket: RFC 6455, and permessage-deflate of RFC 7692.
//!
//! * [`handshake`] makes the two answers of the opening handshake: the accept key and the extension.
//! * [`Receiver`] turns a client's bytes into events, one for each connection. It has no buffers while no message is in progress.
//!   It stores incomplete frames itself, so its caller need not keep or grow a buffer.
//! * [`send`] appends frames to a caller's buffer.
//! * [`close`] defines which close codes may be on the wire.
//! * [`Inflation`] and [`Deflation`] are the compressors, one of each for each thread: messages do not share a context (RFC 7692
//!   section 7.1.1), so no connection owns a compressor, and ten thousand idle ones cost nothing.
//!
//! `tungstenite` reads and writes frame headers, `flate2` with `zlib-rs` does deflate. This module interprets sequences of
//! frames. It must not know sockets, time (the caller sends pings and checks for pongs) or applications. Workers run it.

pub mod close;
mod compression;
pub mod handshake;
mod receiver;
pub mod send;

use std::borrow::Cow;

pub use compression::{Deflation, Inflation};
pub use handshake::Deflate;
pub use receiver::{Limits, Receiver};

/// The type of a data message (RFC 6455 section 5.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// UTF-8.
    Text,
    Binary,
}

/// An event of a client. Short payloads that are contiguous in the input are borrowed from it, or from the [`Inflation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'input> {
    /// All of the input was used, and more is needed for an event.
    More,
    /// A complete message, unmasked and inflated. The payload of a text is valid UTF-8.
    Message {
        kind: MessageKind,
        payload: Cow<'input, [u8]>,
    },
    /// Must be answered by a pong with the same payload, of at most 125 bytes. It may come between the frames of a message.
    Ping(Cow<'input, [u8]>),
    Pong(Cow<'input, [u8]>),
    /// The client sends nothing more. Without a code (1005 for applications) the reason is empty.
    Close {
        code: Option<u16>,
        reason: Cow<'input, str>,
    },
}

impl Event<'_> {
    /// Returns the same event with an owned payload, which outlives the input.
    pub fn into_owned(self) -> Event<'static> {
        match self {
            Event::More => Event::More,
            Event::Message { kind, payload } => Event::Message { kind, payload: Cow::Owned(payload.into_owned()) },
            Event::Ping(payload) => Event::Ping(Cow::Owned(payload.into_owned())),
            Event::Pong(payload) => Event::Pong(Cow::Owned(payload.into_owned())),
            Event::Close { code, reason } => Event::Close { code, reason: Cow::Owned(reason.into_owned()) },
        }
    }
}

/// A client's violation: the close code that the connection is failed with, and a sentence that describes it.
///
/// The sentence is fixed text, fits a close frame and never quotes the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    pub code: u16,
    pub reason: &'static str,
}

impl Violation {
    /// 1002: the frames violate the protocol.
    pub(crate) const fn protocol(reason: &'static str) -> Violation {
        Violation { code: close::PROTOCOL_ERROR, reason }
    }

    /// 1007: the frames are valid, but their payload does not match its type.
    pub(crate) const fn payload(reason: &'static str) -> Violation {
        Violation { code: close::INVALID_PAYLOAD, reason }
    }

    /// 1009.
    pub(crate) const fn too_big() -> Violation {
        Violation { code: close::MESSAGE_TOO_BIG, reason: "The message is longer than the limit." }
    }
}
