//! Encodes a server's frames, appended to a buffer. A server's frames are never masked (RFC 6455 section 5.1), and a message is
//! always one frame.
//!
//! Must not know when or whether the bytes are sent. Workers run it.

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::{Deflate, Deflation, MessageKind, close};

/// Longest header of a server's frame in bytes: two, and eight of length.
pub const MAX_HEAD_BYTES: usize = 10;

/// Longest payload of a ping or a pong in bytes (RFC 6455 section 5.5).
pub const MAX_CONTROL_BYTES: usize = 125;

/// Shortest payload in bytes that is compressed. Starting a message without a context costs microseconds whatever its length,
/// many times the other costs of a short message, and below this size it only shortens a packet that is sent anyway.
pub const MIN_COMPRESSED_BYTES: usize = 256;

/// Appends a message. With permessage-deflate it is compressed if that makes it shorter. The payload of a text must be UTF-8.
pub fn encode_message(kind: MessageKind, payload: &[u8], deflate: Option<(&Deflate, &mut Deflation)>, out: &mut Vec<u8>) {
    if payload.len() >= MIN_COMPRESSED_BYTES
        && let Some((deflate, deflation)) = deflate
        && let Some(compressed) = deflation.deflate(payload, deflate.server_window_bits())
    {
        encode_frame(data(kind), true, compressed, out);
        return;
    }
    encode_frame(data(kind), false, payload, out);
}

/// Appends only the head of a message, whose `length` bytes of payload are sent without a copy.
pub fn encode_head(kind: MessageKind, length: u64, out: &mut Vec<u8>) {
    encode_header(data(kind), false, length, out);
}

/// Appends a ping. The payload is truncated to 125 bytes.
pub fn encode_ping(payload: &[u8], out: &mut Vec<u8>) {
    encode_frame(OpCode::Control(Control::Ping), false, &payload[..payload.len().min(MAX_CONTROL_BYTES)], out);
}

/// Appends a pong. The payload is truncated to 125 bytes.
pub fn encode_pong(payload: &[u8], out: &mut Vec<u8>) {
    encode_frame(OpCode::Control(Control::Pong), false, &payload[..payload.len().min(MAX_CONTROL_BYTES)], out);
}

/// Appends a close frame. The reason is truncated to fit. Without a code, or with one that may not be sent (such as 1005, by
/// which applications mean none), the frame is empty: a reason requires a code.
pub fn encode_close(code: Option<u16>, reason: &str, out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    if let Some(code) = code.filter(|&code| close::may_be_sent(code)) {
        payload.extend_from_slice(&code.to_be_bytes());
        payload.extend_from_slice(close::cut_reason(reason).as_bytes());
    }
    encode_frame(OpCode::Control(Control::Close), false, &payload, out);
}

fn data(kind: MessageKind) -> OpCode {
    OpCode::Data(match kind {
        MessageKind::Text => Data::Text,
        MessageKind::Binary => Data::Binary,
    })
}

fn encode_frame(opcode: OpCode, is_compressed: bool, payload: &[u8], out: &mut Vec<u8>) {
    out.reserve(MAX_HEAD_BYTES + payload.len());
    encode_header(opcode, is_compressed, payload.len() as u64, out);
    out.extend_from_slice(payload);
}

fn encode_header(opcode: OpCode, is_compressed: bool, length: u64, out: &mut Vec<u8>) {
    let header = FrameHeader { is_final: true, rsv1: is_compressed, rsv2: false, rsv3: false, opcode, mask: None };
    let written = header.format(length, out);
    debug_assert!(written.is_ok(), "a Vec takes all that is written");
}
