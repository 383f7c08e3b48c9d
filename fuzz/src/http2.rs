//! An HTTP/2 connection: its events do not depend on how its bytes are split, its heads are valid for HTTP/1, and its windows add
//! up: bytes that were received and not given back belong to an open stream, or are less than half of a window.

use std::collections::BTreeMap;

use bolide_protocol::Progress;
use bolide_protocol::http1::head::{HeadLimits, Version, header_block};
use bolide_protocol::http2::{ErrorCode, Http2, Http2Event, Http2Limits, MAX_CONTROL_BYTES};
use bolide_protocol::session::{HeadEvent, HeadParts, RequestHead};

use crate::{Kind, Target, cases, ensure};
use cases::http2::BEGINNING;

pub const TARGET: Target = Target {
    name: "http2",
    check,
    seeds,
    words: &[
        b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01x",
        b"\0\0\x06\x01\x04\0\0\0\x03\x83\x86\x84\x41\x01x",
        b"\0\0\x05\0\x01\0\0\0\x01hello",
        b"\0\0\x04\x08\0\0\0\0\x01\0\0\0\x01",
        b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
        b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\x01",
        b"\0\0\x02\x09\x04\0\0\0\x01\xbe\xbf",
        b"\x40\x01x\x01y",
        b"\0\x06cookie\x03a=b",
    ],
};

const LIMITS: HeadLimits = HeadLimits::of(200, 400, 10);

/// Streams of a connection: few, so that the limit is soon exceeded.
const STREAMS: u32 = 3;

/// The events of a connection. Parts of a body are joined.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Head(u32, Vec<u8>, bool),
    Refused(u32, u16),
    Body(u32, Vec<u8>),
    End(u32),
    Reset(u32, u32),
    Room(u32),
    Ended,
    Error(u32),
}

/// Received body bytes are not consumed.
const LEAVES_BODIES: u8 = 0x40;

/// The first byte says how the bytes are split, the second what happens to requests, and whether a connection preface precedes
/// them.
fn check(input: &[u8]) -> Result<Kind, String> {
    let [cut, policy, rest @ ..] = input else { return Ok(Kind::of("none")) };
    let beginning = if policy & 0x80 == 0 { BEGINNING } else { b"" };
    let bytes = [beginning, rest].concat();
    let whole = told(&bytes, bytes.len().max(1), policy & (LEAVES_BODIES | 3))?;
    let cut = usize::from(*cut).max(1);
    let pieces = told(&bytes, cut, policy & (LEAVES_BODIES | 3))?;
    ensure!(whole == pieces, "in pieces of {cut} bytes it means {pieces:?}, and whole {whole:?}");
    let count = |wanted: fn(&Told) -> bool| whole.0.iter().filter(|told| wanted(told)).count().min(3);
    let error = whole.0.iter().find_map(|told| if let Told::Error(code) = told { Some(*code) } else { None });
    Ok(Kind::of((
        count(|told| matches!(told, Told::Head(..))),
        count(|told| matches!(told, Told::Body(..))),
        count(|told| matches!(told, Told::End(_))),
        count(|told| matches!(told, Told::Reset(..) | Told::Refused(..))),
        count(|told| matches!(told, Told::Room(_) | Told::Ended)),
        error,
        whole.1.len().min(200) / 13,
    )))
}

/// The events of a connection, and the bytes that it sends.
fn told(bytes: &[u8], piece_bytes: usize, policy: u8) -> Result<(Vec<Told>, Vec<u8>), String> {
    let limits = Http2Limits { streams: STREAMS, has_extended_connect: true, ..Http2Limits::default() };
    let (mut session, mut parts) = (Http2::new(limits), HeadParts::default());
    let (mut told, mut waiting, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    let mut in_flight = BTreeMap::new();
    for piece in bytes.chunks(piece_bytes) {
        waiting.extend_from_slice(piece);
        loop {
            let (used, event) = match session.next(&waiting, &LIMITS, &mut parts) {
                Ok(step) => step,
                Err(error) => {
                    told.push(Told::Error(error.code.0));
                    return Ok((told, std::mem::take(session.output())));
                }
            };
            ensure!(used <= waiting.len(), "more bytes are used than there are");
            ensure!(session.output().len() <= MAX_CONTROL_BYTES, "{} bytes wait", session.output().len());
            ensure!(session.open_streams() <= STREAMS as usize, "{} streams are open", session.open_streams());
            let is_waiting = matches!(event, Http2Event::More);
            if let Some(event) = understood(&event, &waiting, &parts, &mut fields)? {
                if let Told::Body(stream, part) = &event
                    && policy & LEAVES_BODIES != 0
                {
                    *in_flight.entry(*stream).or_insert(0) += part.len() as i64;
                }
                follow(&mut session, &event, policy);
                in_flight.retain(|stream, _| session.is_open(*stream));
                let sum = in_flight.values().sum::<i64>();
                ensure!(session.in_flight() == sum, "{} bytes are in flight, and {sum} in streams", session.in_flight());
                match (told.last_mut(), event) {
                    (Some(Told::Body(last, body)), Told::Body(stream, part)) if *last == stream => body.extend_from_slice(&part),
                    (_, event) => told.push(event),
                }
            }
            waiting.drain(..used);
            if is_waiting {
                break;
            }
        }
    }
    Ok((told, std::mem::take(session.output())))
}

/// Applies the policy to a stream.
fn follow(session: &mut Http2, event: &Told, policy: u8) {
    match (event, policy & 3) {
        (Told::Head(stream, ..) | Told::Refused(stream, _), 1) | (Told::End(stream), 3) => session.note_answered(*stream),
        (Told::Head(stream, ..), 2) => session.reset(*stream, ErrorCode::INTERNAL_ERROR),
        (Told::Head(stream, ..), 3) => session.note_sent(*stream, session.room(*stream)),
        (Told::Body(stream, part), _) if policy & LEAVES_BODIES == 0 => session.note_taken(*stream, part.len() as u64),
        _ => {}
    }
}

/// `fields` are those of the last head that was not a repetition.
fn understood(
    event: &Http2Event,
    input: &[u8],
    parts: &HeadParts,
    fields: &mut Vec<bolide_protocol::http1::head::Field>,
) -> Result<Option<Told>, String> {
    Ok(Some(match event {
        Http2Event::More => return Ok(None),
        Http2Event::Head { stream, head, is_complete, protocol } => {
            fields.clone_from(&parts.fields);
            check_head(head, parts, fields, protocol.is_some())?;
            Told::Head(*stream, parts.bytes.clone(), *is_complete)
        }
        Http2Event::Refused { stream, fault } => Told::Refused(*stream, fault.status),
        Http2Event::Data { stream, range } => {
            let part = input.get(range.clone()).ok_or("a part of a body that is not in the input")?;
            ensure!(!part.is_empty(), "a part of a body without bytes");
            Told::Body(*stream, part.to_vec())
        }
        Http2Event::End { stream } => Told::End(*stream),
        Http2Event::Reset { stream, code, .. } => Told::Reset(*stream, code.0),
        Http2Event::Room { stream } => Told::Room(*stream),
        Http2Event::Ended => Told::Ended,
    }))
}

/// An HTTP/1 parser reads the same from the block.
fn check_head(
    head: &HeadEvent,
    parts: &HeadParts,
    fields: &[bolide_protocol::http1::head::Field],
    is_extended: bool,
) -> Result<(), String> {
    let RequestHead::Http { line, facts } = head.head else { return Err("a head of another protocol".to_owned()) };
    let (start, end) = (line.length as usize, (line.length + facts.length) as usize);
    let block = parts.bytes.get(start..end).ok_or("a head that is longer than its bytes")?;
    ensure!(is_extended || end == parts.bytes.len(), "a head that is shorter than its bytes");
    let first = [line.method.of(&parts.bytes), b" ", line.target.of(&parts.bytes), b" HTTP/2.0\r\n"].concat();
    ensure!(parts.bytes.starts_with(&first) && first.len() == start, "a request line of other parts");
    let mut again = Vec::new();
    let read = header_block(block, Version::Http2, &HeadLimits { header_count: usize::MAX, ..LIMITS }, &mut again);
    let Ok(Progress::Complete(known)) = read else { return Err(format!("HTTP/1 takes its block for {read:?}")) };
    ensure!(again == *fields, "HTTP/1 reads {again:?}, and not {fields:?}");
    let lines = block.windows(2).filter(|pair| pair == b"\r\n").count();
    ensure!(lines == fields.len() + 1, "a block of {lines} lines has {} fields: some of them were left out later", fields.len());
    ensure!((known.length, known.host) == (facts.length, facts.host), "HTTP/1 knows {known:?}, and not {facts:?}");
    Ok(())
}

fn seeds() -> Vec<Vec<u8>> {
    let cases = cases::http2::cases().into_iter().enumerate();
    cases
        .map(|(number, case)| {
            let policy = number as u8 & 3 | (number as u8 & 4) << 4 | if case.has_own_beginning { 0x80 } else { 0 };
            [&[number as u8 % 11, policy], case.bytes.as_slice()].concat()
        })
        .collect()
}
