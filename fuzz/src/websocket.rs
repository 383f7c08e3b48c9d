//! WebSocket frames of a client. The first byte of an input says whether permessage-deflate was negotiated; the rest is sent.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use bolide_protocol::websocket::{Event, Inflation, MessageKind, Receiver, Violation, close};
use tungstenite::protocol::{Message, Role, WebSocket, WebSocketConfig};

use crate::cases::websocket::{LIMITS, plain_deflate};
use crate::{Kind, Target, cases, ensure};

pub const TARGET: Target = Target {
    name: "websocket",
    check,
    seeds,
    words: &[
        b"\0\0\0\0",
        b"\x81\x81\0\0\0\0a",
        b"\x01\x81\0\0\0\0\xce",
        b"\x80\x81\0\0\0\0\xba",
        b"\x02\x80\0\0\0\0",
        b"\x80\x80\0\0\0\0",
        b"\x00\x80\0\0\0\0",
        b"\x89\x80\0\0\0\0",
        b"\x8a\x81\0\0\0\0!",
        b"\x88\x82\0\0\0\0\x03\xe8",
        b"\x88\x80\0\0\0\0",
        b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\0",
        b"\x41\x83\0\0\0\0\xf2\x48\xcd",
        b"\x80\x84\0\0\0\0\xc9\xc9\x07\0",
        b"\xfe\0\x7e",
        b"\xfe\x01\x2c",
        b"\xff\0\0\0\0\0\0\0\x05",
        b"\x03\0",
        b"\0\0\xff\xff",
        b"\xf4\x8f\xbf\xbf",
    ],
};

thread_local! {
    /// Shared by all inputs, so that state left behind by one input would change the result of another.
    static SHARED: RefCell<Inflation> = RefCell::default();
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    events: Vec<Event<'static>>,
    violation: Option<Violation>,
    is_in_progress: bool,
}

fn check(input: &[u8]) -> Result<Kind, String> {
    let Some((&first, sent)) = input.split_first() else { return Ok(Kind::of("nothing")) };
    let has_deflate = first & 1 == 1;
    let whole = SHARED.with_borrow_mut(|inflation| found(sent, has_deflate, usize::MAX, inflation))?;
    let mut inflation = Inflation::default();
    for piece_bytes in [1, 2, 3, 7] {
        let split = found(sent, has_deflate, piece_bytes, &mut inflation)?;
        ensure!(split == whole, "in pieces of {piece_bytes}: {split:?}, and whole: {whole:?}");
    }
    for event in &whole.events {
        check_event(event)?;
    }
    if let Some(violation) = whole.violation {
        ensure!(matches!(violation.code, 1002 | 1007 | 1009), "a violation with a code of its own");
        ensure!(violation.reason.len() <= close::MAX_REASON_BYTES, "a reason that no close frame takes");
    }
    if !has_deflate {
        check_second_opinion(sent, &whole)?;
    }
    let last = whole.events.last().map(std::mem::discriminant);
    Ok(Kind::of((whole.violation.map(|violation| violation.reason), whole.events.len().min(6), last, whole.is_in_progress)))
}

/// Feeds the input in pieces. The error is a broken invariant.
fn found(sent: &[u8], has_deflate: bool, piece_bytes: usize, inflation: &mut Inflation) -> Result<Found, String> {
    let mut receiver = Receiver::new(LIMITS, has_deflate.then(plain_deflate));
    let mut found = Found { events: Vec::new(), violation: None, is_in_progress: false };
    let mut buffer = sent.to_vec();
    for piece in buffer.chunks_mut(piece_bytes.min(sent.len().max(1))) {
        let mut start = 0;
        loop {
            let left = piece.len() - start;
            match receiver.feed(&mut piece[start..], inflation) {
                Ok((used, Event::More)) => {
                    ensure!(used == left, "more is wanted before all was used");
                    break;
                }
                Ok((used, event)) => {
                    ensure!(0 < used && used <= left, "an event of {used} bytes, where {left} are");
                    found.events.push(event.into_owned());
                    start += used;
                }
                Err(violation) => {
                    ensure!(receiver.feed(&mut [], inflation) == Err(violation), "a receiver reads on after its violation");
                    found.violation = Some(violation);
                    return Ok(found);
                }
            }
        }
    }
    found.is_in_progress = receiver.is_in_progress();
    Ok(found)
}

fn check_event(event: &Event<'_>) -> Result<(), String> {
    match event {
        Event::Message { kind, payload } => {
            ensure!(payload.len() <= LIMITS.message_bytes, "a message beyond the limit");
            ensure!(*kind == MessageKind::Binary || std::str::from_utf8(payload).is_ok(), "a text that is not UTF-8");
        }
        Event::Ping(payload) | Event::Pong(payload) => ensure!(payload.len() <= 125, "a long control frame"),
        Event::Close { code, reason } => {
            ensure!(code.is_some() || reason.is_empty(), "a reason without a code");
            ensure!(code.is_none_or(close::may_be_sent), "a code that may not be sent");
        }
        Event::More => return Err("more was told as an event".to_owned()),
    }
    Ok(())
}

/// `tungstenite`'s own reader returns the same messages, up to those that we refuse, and refuses nothing that we accept.
fn check_second_opinion(sent: &[u8], ours: &Found) -> Result<(), String> {
    let config =
        WebSocketConfig::default().max_message_size(Some(LIMITS.message_bytes)).max_frame_size(Some(LIMITS.message_bytes));
    let mut socket = WebSocket::from_raw_socket(Wire { rest: sent }, Role::Server, Some(config));
    for event in &ours.events {
        let theirs = socket.read().map_err(|error| format!("tungstenite refuses {event:?}: {error}"))?;
        let same = match (event, &theirs) {
            (Event::Message { kind: MessageKind::Text, payload }, Message::Text(text)) => payload.as_ref() == text.as_bytes(),
            (Event::Message { kind: MessageKind::Binary, payload }, Message::Binary(bytes)) => payload.as_ref() == bytes.as_ref(),
            (Event::Ping(payload), Message::Ping(bytes)) | (Event::Pong(payload), Message::Pong(bytes)) => {
                payload.as_ref() == bytes.as_ref()
            }
            (Event::Close { code, reason }, Message::Close(frame)) => {
                // For a code that it does not know, it reports the answer that it sends.
                let known = code.is_none_or(|code| tungstenite::protocol::frame::coding::CloseCode::from(code).is_allowed());
                let (their_code, their_reason) =
                    frame.as_ref().map(|frame| (u16::from(frame.code), frame.reason.as_str())).unzip();
                !known || (*code, reason.as_ref()) == (their_code, their_reason.unwrap_or(""))
            }
            _ => false,
        };
        ensure!(same, "tungstenite reads {event:?} as {theirs:?}");
    }
    let is_closed = matches!(ours.events.last(), Some(Event::Close { .. }));
    if ours.violation.is_none() && !is_closed {
        let end = socket.read();
        let is_silent_end =
            matches!(end, Err(tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)));
        ensure!(is_silent_end, "tungstenite reads on, and finds {end:?}");
    }
    Ok(())
}

/// A connection on which everything was sent, and whose answers are not read.
struct Wire<'sent> {
    rest: &'sent [u8],
}

impl Read for Wire<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.rest.read(room)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let cases = cases::websocket::CASES;
    cases.iter().map(|case| [&[u8::from(case.has_deflate)], case.bytes].concat()).collect()
}
