//! Decodes a client's bytes into events: RFC 6455 sections 5 to 8, for a server.
//!
//! A violation is found as early as possible: a bad header before its payload, a message beyond the limit by its announced
//! length, a text that is not UTF-8 at its first bad byte, also within a frame. Must not know sockets; the caller decides on the
//! answer. Workers run it.

use std::borrow::Cow;
use std::io::Cursor;
use std::ops::Range;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::{Deflate, Event, Inflation, MessageKind, Violation, close};

/// Longest header of a frame: two bytes, eight of length, four of mask (RFC 6455 section 5.2).
const MAX_HEADER_BYTES: usize = 14;

/// Bytes unmasked at a time. The compiler vectorises a loop over whole words.
const WORD_BYTES: usize = size_of::<u64>();

/// Longest payload of a control frame (section 5.5).
const MAX_CONTROL_BYTES: u64 = 125;

/// By how much a compressed message may exceed the limit of its inflated size: an eighth of it, and this many bytes. Stored
/// blocks add five bytes for some thousands. A sender that flushes after every few bytes exceeds this, and is refused.
const COMPRESSED_EXCESS_BYTES: usize = 1024;

const NOT_UTF8: Violation = Violation::payload("A text message is not UTF-8.");

/// Limits of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message, after inflation.
    pub message_bytes: usize,
}

/// The receiving side of one connection.
#[derive(Debug)]
pub struct Receiver {
    limits: Limits,
    has_deflate: bool,
    header: HeaderStart,
    /// Only while a frame or a message is incomplete.
    progress: Option<Box<MessageProgress>>,
    end: End,
}

/// Why nothing more is read.
#[derive(Debug, Clone, Copy)]
enum End {
    Open,
    /// After a close frame the client must not send more data (RFC 6455 section 5.5.1), and any input is ignored.
    Closed,
    /// The input after a violation cannot be trusted, so every later call returns it.
    Failed(Violation),
}

/// The stored part of an incomplete frame or message.
#[derive(Debug, Default)]
struct MessageProgress {
    frame: Option<Frame>,
    message: Option<Message>,
    /// Payload of the control frame in `frame`.
    control: Vec<u8>,
}

/// A frame whose payload is incomplete.
#[derive(Debug, Clone, Copy)]
struct Frame {
    content: Content,
    is_final: bool,
    /// Rotated so that its first byte is for the next byte of payload.
    mask: [u8; 4],
    remaining: u64,
}

/// The frame's role.
#[derive(Debug, Clone, Copy)]
enum Content {
    Start { kind: MessageKind, is_compressed: bool },
    Continuation,
    Control(ControlKind),
}

#[derive(Debug, Clone, Copy)]
enum ControlKind {
    Close,
    Ping,
    Pong,
}

/// A message whose last frame is incomplete.
#[derive(Debug)]
struct Message {
    kind: MessageKind,
    is_compressed: bool,
    /// Unmasked; still compressed if it is.
    payload: Vec<u8>,
    /// Bytes of an uncompressed text that were validated as UTF-8.
    valid_bytes: usize,
}

/// A complete control frame or message.
struct Whole {
    content: WholeContent,
    body: Body,
}

enum WholeContent {
    Message { kind: MessageKind, is_compressed: bool },
    Control(ControlKind),
}

/// The location of a payload.
enum Body {
    /// In the input, unmasked.
    Here(Range<usize>),
    Gathered(Vec<u8>),
}

impl Receiver {
    /// `deflate` is the negotiated extension.
    pub fn new(limits: Limits, deflate: Option<Deflate>) -> Receiver {
        Receiver { limits, has_deflate: deflate.is_some(), header: HeaderStart::default(), progress: None, end: End::Open }
    }

    /// Consumes bytes up to the end of the next event, and returns how many. Call it again with the rest of the input until it
    /// returns [`Event::More`]: then all of it was used, and the buffer may be reused.
    ///
    /// Payloads are unmasked in place, so the consumed bytes change. After a close all input is consumed and ignored.
    ///
    /// # Errors
    /// The violation that the connection must be failed with. Every later call returns the same error.
    pub fn feed<'input>(
        &mut self,
        input: &'input mut [u8],
        inflation: &'input mut Inflation,
    ) -> Result<(usize, Event<'input>), Violation> {
        match self.end {
            End::Open => {}
            End::Closed => return Ok((input.len(), Event::More)),
            End::Failed(violation) => return Err(violation),
        }
        let read = self.read(input, inflation);
        match &read {
            Ok((_, Event::Close { .. })) => self.stop(End::Closed),
            Err(violation) => self.stop(End::Failed(*violation)),
            Ok(_) => {}
        }
        read
    }

    /// Whether a message or a frame is incomplete.
    pub fn is_in_progress(&self) -> bool {
        self.progress.is_some() || self.header.length > 0
    }

    fn stop(&mut self, end: End) {
        self.end = end;
        self.progress = None;
        self.header.length = 0;
    }

    fn read<'input>(
        &mut self,
        input: &'input mut [u8],
        inflation: &'input mut Inflation,
    ) -> Result<(usize, Event<'input>), Violation> {
        let (used, whole) = self.take_frames(input)?;
        let Some(Whole { content, body }) = whole else { return Ok((used, Event::More)) };
        // An uncompressed text that was gathered was validated as it came, to its last character.
        let is_gathered = matches!(body, Body::Gathered(_));
        let payload = match body {
            Body::Here(place) => Cow::Borrowed(&input[place]),
            Body::Gathered(payload) => Cow::Owned(payload),
        };
        let event = match content {
            WholeContent::Control(ControlKind::Ping) => Event::Ping(payload),
            WholeContent::Control(ControlKind::Pong) => Event::Pong(payload),
            WholeContent::Control(ControlKind::Close) => close_event(payload)?,
            WholeContent::Message { kind, is_compressed } => {
                let payload = if is_compressed { inflation.inflate(&payload, self.limits.message_bytes)? } else { payload };
                let is_validated = kind == MessageKind::Binary || (is_gathered && !is_compressed);
                if !is_validated && std::str::from_utf8(&payload).is_err() {
                    return Err(NOT_UTF8);
                }
                Event::Message { kind, payload }
            }
        };
        Ok((used, event))
    }

    /// Consumes frames until one of them completes a message or is a control frame.
    fn take_frames(&mut self, input: &mut [u8]) -> Result<(usize, Option<Whole>), Violation> {
        let mut used = 0;
        loop {
            let frame_under_way = self.progress.as_ref().is_some_and(|progress| progress.frame.is_some());
            if !frame_under_way {
                let Some((taken, header, length)) = self.header.complete(&input[used..])? else {
                    return Ok((input.len(), None));
                };
                used += taken;
                let frame = self.admit(&header, length)?;
                if let Some(whole) = take_at_once(&frame, &mut input[used..]) {
                    let Whole { content, body: Body::Here(place) } = whole else { return Ok((used, Some(whole))) };
                    let place = used + place.start..used + place.end;
                    return Ok((place.end, Some(Whole { content, body: Body::Here(place) })));
                }
                self.progress.get_or_insert_default().begin(frame);
            }
            let Some(progress) = &mut self.progress else { return Ok((used, None)) };
            let taken = progress.take(&mut input[used..])?;
            used += taken;
            if progress.frame.is_some_and(|frame| frame.remaining > 0) {
                return Ok((used, None));
            }
            let whole = progress.end_frame()?;
            if progress.message.is_none() {
                self.progress = None;
            }
            if whole.is_some() {
                return Ok((used, whole));
            }
        }
    }

    /// Validates a frame by its header.
    fn admit(&self, header: &FrameHeader, length: u64) -> Result<Frame, Violation> {
        let message = self.progress.as_ref().and_then(|progress| progress.message.as_ref());
        let content = match (header.opcode, message) {
            (OpCode::Control(control), _) => {
                Content::Control(control_kind(control).ok_or(Violation::protocol("A frame's opcode is reserved."))?)
            }
            (OpCode::Data(Data::Continue), Some(_)) => Content::Continuation,
            (OpCode::Data(Data::Continue), None) => {
                return Err(Violation::protocol("A continuation frame arrived without a message to continue."));
            }
            (OpCode::Data(_), Some(_)) => {
                return Err(Violation::protocol("A message begins before the previous one has ended."));
            }
            (OpCode::Data(Data::Text), None) => Content::Start { kind: MessageKind::Text, is_compressed: header.rsv1 },
            (OpCode::Data(Data::Binary), None) => Content::Start { kind: MessageKind::Binary, is_compressed: header.rsv1 },
            (OpCode::Data(Data::Reserved(_)), None) => return Err(Violation::protocol("A frame's opcode is reserved.")),
        };
        // RFC 7692 section 6: the first reserved bit marks a compressed message, and is set in its first frame only.
        let may_be_compressed = self.has_deflate && matches!(content, Content::Start { .. });
        if header.rsv2 || header.rsv3 || (header.rsv1 && !may_be_compressed) {
            return Err(Violation::protocol("A frame has a reserved bit set."));
        }
        let Some(mask) = header.mask else { return Err(Violation::protocol("A client's frame is not masked.")) };
        let is_final = header.is_final;
        match content {
            Content::Control(_) if !is_final => return Err(Violation::protocol("A control frame is fragmented.")),
            Content::Control(_) if length > MAX_CONTROL_BYTES => {
                return Err(Violation::protocol("A control frame is longer than 125 bytes."));
            }
            Content::Control(_) => {}
            Content::Start { .. } | Content::Continuation => {
                if length >> 63 != 0 {
                    return Err(Violation::protocol("A frame's length has its most significant bit set."));
                }
                let is_compressed = message.map_or(header.rsv1, |message| message.is_compressed);
                let before = message.map_or(0, |message| message.payload.len());
                if length > self.payload_bytes_most(is_compressed).saturating_sub(before) as u64 {
                    return Err(Violation::too_big());
                }
            }
        }
        Ok(Frame { content, is_final, mask, remaining: length })
    }

    fn payload_bytes_most(&self, is_compressed: bool) -> usize {
        let most = self.limits.message_bytes;
        if is_compressed { most.saturating_add(most / 8).saturating_add(COMPRESSED_EXCESS_BYTES) } else { most }
    }
}

impl MessageProgress {
    fn begin(&mut self, frame: Frame) {
        if let Content::Start { kind, is_compressed } = frame.content {
            self.message = Some(Message { kind, is_compressed, payload: Vec::new(), valid_bytes: 0 });
        }
        self.frame = Some(frame);
    }

    /// Consumes the available bytes of the frame's payload.
    fn take(&mut self, input: &mut [u8]) -> Result<usize, Violation> {
        let Some(frame) = &mut self.frame else { return Ok(0) };
        let taken = usize::try_from(frame.remaining).unwrap_or(usize::MAX).min(input.len());
        let piece = &mut input[..taken];
        frame.mask = apply_mask(piece, frame.mask);
        frame.remaining -= taken as u64;
        match (frame.content, &mut self.message) {
            (Content::Control(_), _) => self.control.extend_from_slice(piece),
            (_, Some(message)) => message.append(piece, frame)?,
            (_, None) => {}
        }
        Ok(taken)
    }

    /// Ends a frame after its last byte. Returns the message or control frame that it completes.
    fn end_frame(&mut self) -> Result<Option<Whole>, Violation> {
        let Some(frame) = self.frame.take() else { return Ok(None) };
        if let Content::Control(kind) = frame.content {
            let body = Body::Gathered(std::mem::take(&mut self.control));
            return Ok(Some(Whole { content: WholeContent::Control(kind), body }));
        }
        let Some(message) = self.message.take_if(|_| frame.is_final) else { return Ok(None) };
        if message.is_plain_text() && message.valid_bytes < message.payload.len() {
            return Err(NOT_UTF8);
        }
        let Message { kind, is_compressed, payload, .. } = message;
        Ok(Some(Whole { content: WholeContent::Message { kind, is_compressed }, body: Body::Gathered(payload) }))
    }
}

impl Message {
    /// Memory grows with the received bytes, by doubling, and at most to the message's end if that is known: an announced length
    /// alone allocates nothing.
    fn append(&mut self, piece: &[u8], frame: &Frame) -> Result<(), Violation> {
        let needed = self.payload.len() + piece.len();
        if frame.is_final && needed > self.payload.capacity() {
            let end = needed.saturating_add(usize::try_from(frame.remaining).unwrap_or(usize::MAX));
            let capacity = (self.payload.len() * 2).clamp(needed, end);
            self.payload.reserve_exact(capacity - self.payload.len());
        }
        self.payload.extend_from_slice(piece);
        if self.is_plain_text() { self.validate() } else { Ok(()) }
    }

    fn is_plain_text(&self) -> bool {
        self.kind == MessageKind::Text && !self.is_compressed
    }

    /// An incomplete character at the end may still become valid.
    fn validate(&mut self) -> Result<(), Violation> {
        let new = self.payload.get(self.valid_bytes..).unwrap_or(&[]);
        match std::str::from_utf8(new) {
            Ok(_) => self.valid_bytes += new.len(),
            Err(error) if error.error_len().is_none() => self.valid_bytes += error.valid_up_to(),
            Err(_) => return Err(NOT_UTF8),
        }
        Ok(())
    }
}

/// Fast path: the frame is a complete message, and all of its bytes are here. Nothing is copied.
#[inline]
fn take_at_once(frame: &Frame, input: &mut [u8]) -> Option<Whole> {
    let content = match frame.content {
        Content::Control(kind) => WholeContent::Control(kind),
        Content::Start { kind, is_compressed } if frame.is_final => WholeContent::Message { kind, is_compressed },
        Content::Start { .. } | Content::Continuation => return None,
    };
    let length = usize::try_from(frame.remaining).ok()?;
    apply_mask(input.get_mut(..length)?, frame.mask);
    Some(Whole { content, body: Body::Here(0..length) })
}

fn control_kind(control: Control) -> Option<ControlKind> {
    match control {
        Control::Close => Some(ControlKind::Close),
        Control::Ping => Some(ControlKind::Ping),
        Control::Pong => Some(ControlKind::Pong),
        Control::Reserved(_) => None,
    }
}

/// RFC 6455 section 5.5.1: empty, or a code and a reason in UTF-8.
fn close_event(payload: Cow<'_, [u8]>) -> Result<Event<'_>, Violation> {
    let code = match *payload {
        [] => return Ok(Event::Close { code: None, reason: Cow::Borrowed("") }),
        [_] => return Err(Violation::protocol("A close frame's code is incomplete.")),
        [high, low, ..] => u16::from_be_bytes([high, low]),
    };
    if !close::may_be_sent(code) {
        return Err(Violation::protocol("A close frame's code is invalid."));
    }
    let not_utf8 = Violation::payload("A close frame's reason is not UTF-8.");
    let reason = match payload {
        Cow::Borrowed(payload) => std::str::from_utf8(&payload[2..]).map(Cow::Borrowed).map_err(|_| not_utf8)?,
        Cow::Owned(payload) => String::from_utf8(payload[2..].to_vec()).map(Cow::Owned).map_err(|_| not_utf8)?,
    };
    Ok(Event::Close { code: Some(code), reason })
}

/// An incomplete frame header.
#[derive(Debug, Default)]
struct HeaderStart {
    bytes: [u8; MAX_HEADER_BYTES],
    length: u8,
}

impl HeaderStart {
    /// Returns the header that ends in `input`, the length of its frame's payload, and how many bytes of the input it used. If
    /// the header is still incomplete, the whole input is stored.
    ///
    /// A length in a longer form than necessary is accepted: RFC 6455 section 5.2 requires senders to use the shortest form, but
    /// no two parsers could read a longer one differently.
    #[inline]
    fn complete(&mut self, input: &[u8]) -> Result<Option<(usize, FrameHeader, u64)>, Violation> {
        // The only error that `parse` returns for bytes in memory.
        let refusal = |_| Violation::protocol("A frame's opcode is reserved.");
        if self.length == 0 {
            let mut cursor = Cursor::new(input);
            let parsed = FrameHeader::parse(&mut cursor).map_err(refusal)?;
            return match parsed {
                Some((header, length)) => Ok(Some((cursor.position() as usize, header, length))),
                None => {
                    self.keep(input);
                    Ok(None)
                }
            };
        }
        let kept = usize::from(self.length);
        self.keep(input);
        let mut cursor = Cursor::new(&self.bytes[..usize::from(self.length)]);
        let parsed = FrameHeader::parse(&mut cursor).map_err(refusal)?;
        Ok(parsed.map(|(header, length)| {
            let taken = (cursor.position() as usize).saturating_sub(kept);
            self.length = 0;
            (taken, header, length)
        }))
    }

    fn keep(&mut self, input: &[u8]) {
        let room = &mut self.bytes[usize::from(self.length)..];
        let kept = room.len().min(input.len());
        room[..kept].copy_from_slice(&input[..kept]);
        self.length += kept as u8;
    }
}

/// Masks or unmasks (section 5.3), which is the same operation. Returns the mask rotated for the byte after the last one of
/// `bytes`.
#[inline]
fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) -> [u8; 4] {
    let [a, b, c, d] = mask;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<WORD_BYTES>();
    for masked in words {
        *masked = (u64::from_ne_bytes(*masked) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    let mut turned = mask;
    turned.rotate_left(rest.len() % mask.len());
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_words_and_bytes_are_masked_alike_however_they_are_split() {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        for length in 0..50 {
            let plain: Vec<u8> = (0..length).collect();
            let masked: Vec<u8> = plain.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            for split in 0..=plain.len() {
                let mut bytes = masked.clone();
                let (first, second) = bytes.split_at_mut(split);
                let turned = apply_mask(first, mask);
                apply_mask(second, turned);
                assert_eq!(bytes, plain, "{length} bytes split at {split}");
            }
        }
    }
}
