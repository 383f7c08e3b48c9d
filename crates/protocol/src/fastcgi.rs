//! The responder role of FastCGI 1.0: turns the records of a connection into events, and makes the record heads of an answer.
//!
//! Must not know sockets, nor the meaning of variables (`variables`). Workers run it, one [`Decoder`] for each connection. The
//! specification is https://fastcgi-archives.github.io/FastCGI_Specification.html; sections are cited by its numbers.
//!
//! A connection has one request at a time: no reverse proxy in use multiplexes, and section 3.3 lets an application refuse it.
//! Bytes of a body are not copied. Only the parts that must be complete to be parsed are buffered, each with a bound.

use std::ops::Range;

use crate::fault::{Fault, Span};
use crate::variables::{Faults, Found, Variable, VariableFacts, collect};

mod answers;
mod record;

pub use answers::{Answer, END_OF_ANSWER_BYTES, ProtocolStatus, end_of_answer, frame_stdout, stdout_head};
use record::{Begin, RecordHead, Role, Type};
pub use record::{HEAD_BYTES as RECORD_HEAD_BYTES, MAX_CONTENT_BYTES};

/// Maximum size of an FCGI_GET_VALUES record, in bytes. The three defined names take 49.
pub const MAX_VALUES_BYTES: usize = 512;

/// Maximum size of ignored records from the beginning of one request to the next, in bytes: mostly the rest of a body that was
/// answered before its end.
pub const MAX_IGNORED_BYTES: usize = 1024 * 1024;

/// Limits of the peer, and the values that it may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastCgiLimits {
    /// Bytes of a request's parameters.
    pub parameter_bytes: usize,
    /// Concurrent connections and requests, as reported for FCGI_GET_VALUES (section 4.1).
    pub connections: u32,
}

/// The meaning of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FastCgiEvent {
    /// A request's parameters are complete: [`Decoder::take_parameters`] returns their bytes.
    Head { facts: VariableFacts, keep_connection: bool },
    /// Bytes of the body: this range of the input.
    Data(Range<usize>),
    /// The body is complete.
    End,
    /// The reverse proxy no longer wants the answer (FCGI_ABORT_REQUEST, section 5.4). The request must still be ended: with
    /// these bytes if nothing was answered yet, after which the connection closes or continues.
    Aborted { end: Answer, keep_connection: bool },
    /// To be sent immediately; `close`: it is the connection's last.
    Send { answer: Answer, close: bool },
}

/// Decodes the records of one connection.
#[derive(Debug)]
pub struct Decoder {
    limits: FastCgiLimits,
    /// The record's head, of which `head_bytes` have arrived.
    head: [u8; RECORD_HEAD_BYTES],
    head_bytes: usize,
    /// The current record.
    record: Record,
    request: Option<Request>,
    /// The request's parameters so far.
    parameters: Vec<u8>,
    /// The content of a record that is only processed when complete.
    control: Vec<u8>,
    /// Bytes of ignored records since the last request began.
    ignored_bytes: usize,
    fault: Option<Fault>,
}

/// A record whose head is complete.
#[derive(Debug, Clone, Copy)]
struct Record {
    head: RecordHead,
    purpose: Purpose,
    content_left: usize,
    padding_left: usize,
    is_closed: bool,
}

/// The purpose of a record's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Begin,
    Abort,
    Parameters,
    Body,
    Values,
    /// An unknown management record, which gets an answer.
    Unknown,
    /// A record without meaning for a responder, or of a request that is over: section 3.3 has it ignored.
    Ignored,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    id: u16,
    keep_connection: bool,
    stage: Stage,
    /// Bytes of the body in records that have not begun, if CONTENT_LENGTH is known.
    body_left: Option<u64>,
}

/// How far a request has progressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Parameters,
    Body,
    Complete,
    Aborted,
}

impl Decoder {
    pub fn new(limits: FastCgiLimits) -> Decoder {
        Decoder {
            limits,
            head: [0; RECORD_HEAD_BYTES],
            head_bytes: 0,
            record: Record::NONE,
            request: None,
            parameters: Vec::new(),
            control: Vec::new(),
            ignored_bytes: 0,
            fault: None,
        }
    }

    /// Decodes the next bytes. Returns how many bytes of `input` were used, and the event. Without an event all of them were
    /// used; an event uses at least one. `variables` is filled with [`FastCgiEvent::Head`]; its spans are relative to the
    /// parameters.
    ///
    /// # Errors
    /// A mistake of the peer. The connection cannot continue, and each later call returns the same error.
    pub fn next(&mut self, input: &[u8], variables: &mut Vec<Variable>) -> Result<(usize, Option<FastCgiEvent>), Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.read_on(input, variables).inspect_err(|fault| self.fault = Some(*fault))
    }

    /// Returns the bytes of the parameters of the request whose [`FastCgiEvent::Head`] came last.
    pub fn take_parameters(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.parameters)
    }

    /// Returns the current request's id, which each record of its answer carries.
    pub fn request_id(&self) -> Option<u16> {
        self.request.map(|request| request.id)
    }

    /// Whether a request's body is incomplete.
    pub fn is_body_open(&self) -> bool {
        self.request.is_some_and(|request| request.stage == Stage::Body)
    }

    /// Whether the current request is complete, and may still be aborted.
    pub fn is_complete(&self) -> bool {
        self.request.is_some_and(|request| request.stage == Stage::Complete)
    }

    /// Whether no part of a request or a record is buffered.
    pub fn is_idle(&self) -> bool {
        self.request.is_none() && self.head_bytes == 0
    }

    /// Records that the request was answered: later records of it are ignored, and the next one may begin.
    pub fn note_answered(&mut self) {
        self.request = None;
        self.parameters = Vec::new();
    }

    fn read_on(&mut self, input: &[u8], variables: &mut Vec<Variable>) -> Result<(usize, Option<FastCgiEvent>), Fault> {
        let mut at = 0;
        loop {
            if self.head_bytes < RECORD_HEAD_BYTES {
                let part = (RECORD_HEAD_BYTES - self.head_bytes).min(input.len() - at);
                self.head[self.head_bytes..self.head_bytes + part].copy_from_slice(&input[at..at + part]);
                self.head_bytes += part;
                at += part;
                if self.head_bytes < RECORD_HEAD_BYTES {
                    return Ok((at, None));
                }
                self.record = self.open_record()?;
            }
            let part = self.record.content_left.min(input.len() - at);
            if part > 0 {
                self.record.content_left -= part;
                let range = at..at + part;
                at += part;
                if let Some(event) = self.take_content(range, input) {
                    return Ok((at, Some(event)));
                }
            }
            if self.record.content_left > 0 {
                return Ok((at, None));
            }
            if !std::mem::replace(&mut self.record.is_closed, true)
                && let Some(event) = self.close_record(variables)?
            {
                self.skip_no_padding();
                return Ok((at, Some(event)));
            }
            let part = self.record.padding_left.min(input.len() - at);
            self.record.padding_left -= part;
            at += part;
            if self.record.padding_left > 0 {
                return Ok((at, None));
            }
            self.head_bytes = 0;
        }
    }

    /// A record without padding ends with its content, also if the content caused an event.
    fn skip_no_padding(&mut self) {
        if self.record.padding_left == 0 {
            self.head_bytes = 0;
        }
    }

    fn open_record(&mut self) -> Result<Record, Fault> {
        let head = RecordHead::read(self.head).ok_or_else(|| record::not_a_record(&self.head))?;
        let content_left = usize::from(head.content_bytes);
        let purpose = match head.id {
            0 if head.kind == Some(Type::GetValues) && content_left > MAX_VALUES_BYTES => {
                return Err(Fault::bad_request("The FastCGI record GET_VALUES is larger than the limit."));
            }
            0 if head.kind == Some(Type::GetValues) => Purpose::Values,
            0 => Purpose::Unknown,
            _ if head.kind == Some(Type::BeginRequest) && content_left != Begin::BYTES => {
                return Err(Fault::bad_request("The FastCGI record BEGIN_REQUEST is not eight bytes long."));
            }
            _ if head.kind == Some(Type::BeginRequest) => Purpose::Begin,
            id => match self.request.filter(|request| request.id == id) {
                Some(request) => purpose_in_request(head, request)?,
                None => Purpose::Ignored,
            },
        };
        match purpose {
            Purpose::Parameters if self.parameters.len() + content_left > self.limits.parameter_bytes => {
                return Err(Fault::new(431, "The FastCGI request's parameters are larger than buffer-size."));
            }
            Purpose::Body => self.count_body(content_left as u64)?,
            Purpose::Ignored => {
                self.ignored_bytes += RECORD_HEAD_BYTES + content_left + usize::from(head.padding_bytes);
                if self.ignored_bytes > MAX_IGNORED_BYTES {
                    return Err(Fault::bad_request("There are more FastCGI records without a request than the limit."));
                }
            }
            _ => {}
        }
        self.control.clear();
        Ok(Record { head, purpose, content_left, padding_left: usize::from(head.padding_bytes), is_closed: false })
    }

    /// The size was checked against its limit when the record began.
    fn take_content(&mut self, range: Range<usize>, input: &[u8]) -> Option<FastCgiEvent> {
        match self.record.purpose {
            Purpose::Begin | Purpose::Values => self.control.extend_from_slice(&input[range]),
            Purpose::Parameters => self.parameters.extend_from_slice(&input[range]),
            Purpose::Body => return Some(FastCgiEvent::Data(range)),
            Purpose::Abort | Purpose::Unknown | Purpose::Ignored => {}
        }
        None
    }

    /// Section 6.2: "compare the number of bytes received on FCGI_STDIN with CONTENT_LENGTH and abort the update if the two
    /// numbers are not equal". A record is counted when it begins, so that the result does not depend on how the bytes are split.
    fn count_body(&mut self, bytes: u64) -> Result<(), Fault> {
        if let Some(left) = self.request.as_mut().and_then(|request| request.body_left.as_mut()) {
            *left = left
                .checked_sub(bytes)
                .ok_or(Fault::bad_request("The FastCGI request's body is longer than its CONTENT_LENGTH."))?;
        }
        Ok(())
    }

    /// The current record is complete.
    fn close_record(&mut self, variables: &mut Vec<Variable>) -> Result<Option<FastCgiEvent>, Fault> {
        let head = self.record.head;
        match self.record.purpose {
            Purpose::Begin => self.begin(),
            Purpose::Abort => Ok(self.abort()),
            // Section 3.3: an empty record ends a stream.
            Purpose::Parameters if head.content_bytes == 0 => self.end_parameters(variables).map(Some),
            Purpose::Body if head.content_bytes == 0 => self.end_body().map(Some),
            Purpose::Values => {
                let answer = answers::values_result(asked_values(&self.control)?, self.limits.connections);
                Ok(Some(FastCgiEvent::Send { answer, close: false }))
            }
            Purpose::Unknown => Ok(Some(FastCgiEvent::Send { answer: answers::unknown_type(head.type_byte), close: false })),
            Purpose::Parameters | Purpose::Body | Purpose::Ignored => Ok(None),
        }
    }

    fn begin(&mut self) -> Result<Option<FastCgiEvent>, Fault> {
        let id = self.record.head.id;
        let begin = Begin::read(&self.control);
        match self.request {
            Some(request) if request.id == id => {
                return Err(Fault::bad_request("The FastCGI record BEGIN_REQUEST is for a request that is already in progress."));
            }
            Some(_) => {
                let answer = answers::end_request(id, ProtocolStatus::CantMultiplex);
                return Ok(Some(FastCgiEvent::Send { answer, close: false }));
            }
            None => {}
        }
        let keep_connection = begin.keep_connection;
        if begin.role != Role::Responder {
            let answer = answers::end_request(id, ProtocolStatus::UnknownRole);
            return Ok(Some(FastCgiEvent::Send { answer, close: !keep_connection }));
        }
        self.parameters.clear();
        self.ignored_bytes = 0;
        self.request = Some(Request { id, keep_connection, stage: Stage::Parameters, body_left: None });
        Ok(None)
    }

    /// Ends an aborted request here if its head was not reported yet. Otherwise the caller, which serves it, ends it.
    fn abort(&mut self) -> Option<FastCgiEvent> {
        let request = self.request.as_mut()?;
        let was = std::mem::replace(&mut request.stage, Stage::Aborted);
        let end = answers::end_request(request.id, ProtocolStatus::Complete);
        let keep_connection = request.keep_connection;
        if was != Stage::Parameters {
            return Some(FastCgiEvent::Aborted { end, keep_connection });
        }
        self.note_answered();
        Some(FastCgiEvent::Send { answer: end, close: !keep_connection })
    }

    fn end_parameters(&mut self, variables: &mut Vec<Variable>) -> Result<FastCgiEvent, Fault> {
        let facts = parameters(&self.parameters, variables)?;
        let Some(request) = &mut self.request else { return Err(OUT_OF_ORDER) };
        request.stage = Stage::Body;
        request.body_left = facts.content_length;
        Ok(FastCgiEvent::Head { facts, keep_connection: request.keep_connection })
    }

    fn end_body(&mut self) -> Result<FastCgiEvent, Fault> {
        let Some(request) = &mut self.request else { return Err(OUT_OF_ORDER) };
        if request.body_left.is_some_and(|left| left > 0) {
            return Err(Fault::bad_request("The FastCGI request's body is shorter than its CONTENT_LENGTH."));
        }
        request.stage = Stage::Complete;
        Ok(FastCgiEvent::End)
    }
}

impl Record {
    const NONE: Record =
        Record { head: RecordHead::NONE, purpose: Purpose::Ignored, content_left: 0, padding_left: 0, is_closed: true };
}

const OUT_OF_ORDER: Fault = Fault::bad_request("A FastCGI record of the request is out of order.");

const FAULTS: Faults = Faults {
    nameless: Fault::bad_request("A parameter of the FastCGI request has no name."),
    too_many: Fault::new(431, "The FastCGI request has more parameters than the limit."),
    doubled_length: Fault::bad_request("The FastCGI request has more than one CONTENT_LENGTH."),
    bad_length: Fault::bad_request("The FastCGI request's CONTENT_LENGTH is not a single number."),
};

fn purpose_in_request(head: RecordHead, request: Request) -> Result<Purpose, Fault> {
    match (head.kind, request.stage) {
        (_, Stage::Aborted) => Ok(Purpose::Ignored),
        (Some(Type::Parameters), Stage::Parameters) => Ok(Purpose::Parameters),
        (Some(Type::Stdin), Stage::Body) => Ok(Purpose::Body),
        (Some(Type::Parameters | Type::Stdin), _) => Err(OUT_OF_ORDER),
        (Some(Type::AbortRequest), _) => Ok(Purpose::Abort),
        _ => Ok(Purpose::Ignored),
    }
}

/// Parses a request's complete parameters.
///
/// Values may contain any byte, including line ends: front ends send client certificates in them.
fn parameters(bytes: &[u8], out: &mut Vec<Variable>) -> Result<VariableFacts, Fault> {
    collect(bytes, out, &FAULTS, |at| pair(bytes, at))
}

/// Returns the known names that FCGI_GET_VALUES asks for.
fn asked_values(bytes: &[u8]) -> Result<answers::Asked, Fault> {
    let mut asked = answers::Asked::default();
    let mut at = 0;
    while at < bytes.len() {
        let Found { name, next, .. } = pair(bytes, at)?;
        asked.note(name.of(bytes));
        at = next;
    }
    Ok(asked)
}

/// Returns the name and value whose lengths start at `at` (section 3.4).
#[inline]
fn pair(bytes: &[u8], at: usize) -> Result<Found, Fault> {
    const BEYOND: Fault = Fault::bad_request("A parameter of the FastCGI request ends beyond the parameters.");
    let (name_bytes, at) = length(bytes, at).ok_or(BEYOND)?;
    let (value_bytes, start) = length(bytes, at).ok_or(BEYOND)?;
    // Each length has at most 31 bits.
    let (middle, end) = (start as u64 + name_bytes, start as u64 + name_bytes + value_bytes);
    if end > bytes.len().min(Span::REACH_BYTES) as u64 {
        return Err(BEYOND);
    }
    let (middle, end) = (middle as usize, end as usize);
    Ok(Found { name: Span::between(start, middle), value: Span::between(middle, end), next: end })
}

/// Parses a length of one byte, or of four if the first has its highest bit set. Returns it and its end.
#[inline]
fn length(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    match *bytes.get(at..)? {
        [first @ 0x80..=0xff, second, third, fourth, ..] => {
            Some((u64::from(u32::from_be_bytes([first & 0x7f, second, third, fourth])), at + 4))
        }
        [first @ 0..=0x7f, ..] => Some((u64::from(first), at + 1)),
        _ => None,
    }
}
