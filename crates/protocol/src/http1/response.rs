//! An answer as a client of HTTP/1.1 reads it: interim heads, the head, the body and its trailer fields (RFC 9112 sections 4, 6.3
//! and 7.1). A worker reads answers of the worker that has a request's session, to send them on.
//!
//! It copies nothing and must not know sockets or what happens to an answer. A head that arrives in pieces is parsed from its
//! beginning each time. Workers run it.

use std::ops::Range;

use super::Field;
use super::chunked::{ChunkedDecoder, ChunkedLimits, ChunkedStep};
use super::framing::decimal;
use super::head::{Line, read_field};
use crate::fault::{Fault, Progress, Span};

/// Maximum size of a status line and its fields, and of trailer fields, in bytes. A field of an application may have 64 KiB.
pub const MAX_RESPONSE_HEAD_BYTES: usize = 1024 * 1024;

/// Maximum number of fields of a head.
pub const MAX_RESPONSE_FIELDS: usize = 10_000;

/// What the answer to a request may be, besides a body that its head describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerTo {
    Request,
    /// The head describes a body that does not follow (RFC 9110 section 9.3.2).
    Head,
}

/// The first line of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusLine {
    pub status: u16,
    /// The status and its reason phrase, as in `404 Not Found`.
    pub text: Span,
}

/// A piece of an answer. Spans are relative to the input of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponsePart {
    /// More bytes are needed, behind those that were not used.
    More,
    /// An answer before the answer (RFC 9110 section 15.2), with its fields.
    Interim(StatusLine),
    /// The head, with its fields.
    Head(StatusLine),
    /// Bytes of the body.
    Data(Range<usize>),
    /// Trailer fields, behind the body.
    Trailers,
    /// The answer is complete.
    End,
    /// The connection carries another protocol from here on: all bytes that follow are its data.
    Switched,
}

/// What is read next.
#[derive(Debug, Clone)]
enum ResponseState {
    Head,
    Length(u64),
    Chunks(Box<ChunkedDecoder>),
    Trailers,
    /// The end of the stream ends the body.
    ToTheEnd,
    /// The head that switches protocols was returned, and [`ResponsePart::Switched`] follows.
    Switching,
    Switched,
    Done,
    /// The bytes after a fault can't be trusted, so every later call returns it.
    Failed(Fault),
}

/// Decodes one answer.
#[derive(Debug, Clone)]
pub struct ResponseDecoder {
    to: AnswerTo,
    state: ResponseState,
}

/// How the end of a body is found, as the fields of its head say.
#[derive(Debug, Clone, Copy, Default)]
struct BodyFields {
    length: Option<u64>,
    is_chunked: bool,
}

impl ResponseDecoder {
    pub fn new(to: AnswerTo) -> ResponseDecoder {
        ResponseDecoder { to, state: ResponseState::Head }
    }

    /// Returns the next part, and how many bytes of `input` it has used. `fields` are those of a head or of trailers.
    ///
    /// # Errors
    /// 502 for bytes that do not form an answer, or a head that is too long.
    pub fn next(&mut self, input: &[u8], fields: &mut Vec<Field>) -> Result<(usize, ResponsePart), Fault> {
        let part = self.part(input, fields);
        if let Err(fault) = &part {
            self.state = ResponseState::Failed(*fault);
        }
        part
    }

    fn part(&mut self, input: &[u8], fields: &mut Vec<Field>) -> Result<(usize, ResponsePart), Fault> {
        match &mut self.state {
            ResponseState::Head => self.head(input, fields),
            ResponseState::Length(0) => Ok(self.end(0)),
            ResponseState::ToTheEnd | ResponseState::Switched | ResponseState::Length(_) if input.is_empty() => {
                Ok((0, ResponsePart::More))
            }
            ResponseState::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= taken as u64;
                Ok((taken, ResponsePart::Data(0..taken)))
            }
            ResponseState::Chunks(decoder) => match decoder.step(input).map_err(|_| malformed())? {
                ChunkedStep::Data { data, used } => Ok((used, ResponsePart::Data(data.start as usize..data.end as usize))),
                ChunkedStep::More { used } => Ok((used, ResponsePart::More)),
                ChunkedStep::Done { used } => {
                    self.state = ResponseState::Trailers;
                    let (more, part) = self.trailers(&input[used..], used, fields)?;
                    Ok((used + more, part))
                }
            },
            ResponseState::Trailers => self.trailers(input, 0, fields),
            ResponseState::ToTheEnd | ResponseState::Switched => Ok((input.len(), ResponsePart::Data(0..input.len()))),
            ResponseState::Switching => {
                self.state = ResponseState::Switched;
                Ok((0, ResponsePart::Switched))
            }
            ResponseState::Done => Ok((0, ResponsePart::End)),
            ResponseState::Failed(fault) => Err(*fault),
        }
    }

    /// The sender has ended its side. Returns whether the answer is complete.
    pub fn is_complete_at_end(&self) -> bool {
        matches!(self.state, ResponseState::ToTheEnd | ResponseState::Switched | ResponseState::Done)
    }

    fn end(&mut self, used: usize) -> (usize, ResponsePart) {
        self.state = ResponseState::Done;
        (used, ResponsePart::End)
    }

    fn head(&mut self, input: &[u8], fields: &mut Vec<Field>) -> Result<(usize, ResponsePart), Fault> {
        let head = &input[..input.len().min(MAX_RESPONSE_HEAD_BYTES)];
        let Progress::Complete((line, at)) = status_line(head)? else { return partial(head) };
        let Some((end, body)) = read_fields(head, at, fields)? else { return partial(head) };
        match line.status {
            101 => self.state = ResponseState::Switching,
            // RFC 9110 section 15.2: a final answer follows.
            100..=199 => return Ok((end, ResponsePart::Interim(line))),
            // RFC 9112 section 6.3.
            204 | 304 => self.state = ResponseState::Length(0),
            _ if self.to == AnswerTo::Head => self.state = ResponseState::Length(0),
            _ if body.is_chunked => {
                self.state = ResponseState::Chunks(Box::new(ChunkedDecoder::without_trailers(ChunkedLimits::DEFAULT)));
            }
            _ => self.state = body.length.map_or(ResponseState::ToTheEnd, ResponseState::Length),
        }
        Ok((end, ResponsePart::Head(line)))
    }

    /// Parses the trailer section at the start of `input`. The caller's input has `before` more bytes in front of it.
    fn trailers(&mut self, input: &[u8], before: usize, fields: &mut Vec<Field>) -> Result<(usize, ResponsePart), Fault> {
        let block = &input[..input.len().min(MAX_RESPONSE_HEAD_BYTES)];
        let Some((end, _)) = read_fields(block, 0, fields)? else { return partial(block) };
        if fields.is_empty() {
            return Ok(self.end(end));
        }
        for field in fields.iter_mut() {
            *field = Field { name: field.name.shifted(before as u32), value: field.value.shifted(before as u32) };
        }
        self.state = ResponseState::Done;
        Ok((end, ResponsePart::Trailers))
    }
}

#[cold]
fn malformed() -> Fault {
    Fault::new(502, "The bytes do not form an answer of HTTP/1.1.")
}

/// A block of which the end has not come.
fn partial(block: &[u8]) -> Result<(usize, ResponsePart), Fault> {
    match block.len() {
        MAX_RESPONSE_HEAD_BYTES => Err(Fault::new(502, "The head of the answer is too long.")),
        _ => Ok((0, ResponsePart::More)),
    }
}

/// Parses `HTTP/1.1 200 OK` and its line end. Also returns where the fields begin. The reason phrase may be empty, and the space
/// before it must not be missing (RFC 9112 section 4).
fn status_line(head: &[u8]) -> Result<Progress<(StatusLine, usize)>, Fault> {
    const SHAPE: &[u8; 13] = b"HTTP/1.d ddd ";
    const STATUS: Range<usize> = 9..12;
    for (byte, wanted) in head.iter().zip(SHAPE) {
        let fits = if *wanted == b'd' { byte.is_ascii_digit() } else { byte == wanted };
        if !fits {
            return Err(malformed());
        }
    }
    let Some(rest) = head.get(SHAPE.len()..) else { return Ok(Progress::Partial) };
    let reason_bytes = rest.iter().take_while(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..)).count();
    match &rest[reason_bytes..] {
        [b'\r', b'\n', ..] => {}
        [] | [b'\r'] => return Ok(Progress::Partial),
        _ => return Err(malformed()),
    }
    let status = head[STATUS].iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
    if status < 100 {
        return Err(malformed());
    }
    let end = SHAPE.len() + reason_bytes;
    Ok(Progress::Complete((StatusLine { status, text: Span::between(STATUS.start, end) }, end + 2)))
}

/// Parses fields from `at` up to the empty line. `None`: its end has not come.
fn read_fields(block: &[u8], mut at: usize, fields: &mut Vec<Field>) -> Result<Option<(usize, BodyFields)>, Fault> {
    fields.clear();
    let mut body = BodyFields::default();
    loop {
        match read_field(block, at).map_err(|_| malformed())? {
            Line::Field { name_end, value, next, .. } => {
                let field = Field { name: Span::between(at, name_end), value };
                if fields.len() == MAX_RESPONSE_FIELDS {
                    return Err(Fault::new(502, "The answer contains too many fields."));
                }
                body.note(field.name.of(block), value.of(block))?;
                fields.push(field);
                at = next;
            }
            Line::End { next } => return Ok(Some((next, body))),
            Line::Partial => return Ok(None),
        }
    }
}

impl BodyFields {
    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = decimal(value).ok_or_else(malformed)?;
            if self.length.replace(length).is_some_and(|before| before != length) {
                return Err(malformed());
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // The only coding that a client of ours can't refuse (RFC 9112 section 7.4).
            if !value.eq_ignore_ascii_case(b"chunked") || std::mem::replace(&mut self.is_chunked, true) {
                return Err(malformed());
            }
        }
        Ok(())
    }
}
