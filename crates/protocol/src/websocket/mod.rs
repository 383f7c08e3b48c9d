//! The server's half of WebSocket: RFC 6455, and permessage-deflate of RFC 7692.
//!
//! * [`handshake`] makes the two answers of the opening handshake: the accept key and the extension.
//! * [`Receiver`] makes events of a client's bytes, one for each connection. It owns nothing but numbers while no message is
//!   in progress, keeps whatever part of a frame has come, and so never asks its caller to keep or to grow a buffer.
//! * [`send`] writes frames behind what a caller's buffer already holds.
//! * [`close`] knows which close codes may be on the wire.
//! * [`Inflation`] and [`Deflation`] are the working memory of compression, one of each for a thread: no context is taken over
//!   from one message to the next (RFC 7692 section 7.1.1), so no connection owns a compressor, and ten thousand idle ones cost
//!   nothing.
//!
//! Frame headers are read and written by `tungstenite`, deflate by `flate2` with `zlib-rs`. What a sequence of frames means is
//! decided here. It must not know sockets, time (pings are the caller's to send and to miss) or applications. Workers run it.

pub mod close;
mod compression;
pub mod handshake;
mod mask;
mod receiver;
pub mod send;

use std::borrow::Cow;

pub use compression::{Deflation, Inflation};
pub use handshake::Deflate;
pub use receiver::{Limits, Receiver};

/// What a data message is (RFC 6455 section 5.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// UTF-8.
    Text,
    Binary,
}

/// What a client has said. Short payloads that lay whole in the input are borrowed from it, or from the [`Inflation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'input> {
    /// All of the input was taken, and more is needed to say anything.
    More,
    /// A message, whole, unmasked and inflated. The payload of a text is valid UTF-8.
    Message {
        kind: MessageKind,
        payload: Cow<'input, [u8]>,
    },
    /// To be answered by a pong with the same payload, of 125 bytes at the most. It may come between the frames of a message.
    Ping(Cow<'input, [u8]>),
    Pong(Cow<'input, [u8]>),
    /// The client will send nothing more. Without a code (which applications know as 1005) the reason is empty.
    Close {
        code: Option<u16>,
        reason: Cow<'input, str>,
    },
}

impl Event<'_> {
    /// The same event with a payload of its own, to be kept after the input is gone.
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

/// A client's mistake: the close code that the connection is failed with, and one sentence that names it.
///
/// The sentence is fixed text, fits a close frame and never quotes the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    pub code: u16,
    pub reason: &'static str,
}

impl Violation {
    /// 1002: the frames are not what the protocol allows.
    pub(crate) const fn protocol(reason: &'static str) -> Violation {
        Violation { code: close::PROTOCOL_ERROR, reason }
    }

    /// 1007: the frames are good, but their payload is not what they say it is.
    pub(crate) const fn payload(reason: &'static str) -> Violation {
        Violation { code: close::INVALID_PAYLOAD, reason }
    }

    /// 1009.
    pub(crate) const fn too_big() -> Violation {
        Violation { code: close::MESSAGE_TOO_BIG, reason: "The message is longer than the limit." }
    }
}
