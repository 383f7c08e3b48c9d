//! FastCGI 1.0 of a responder: the records of one connection become events, and an answer gets its records' heads.
//!
//! Must not know sockets, nor what variables mean (`variables`). Workers run it, one [`Decoder`] a connection. The specification is
//! https://fastcgi-archives.github.io/FastCGI_Specification.html; sections are cited by their numbers there.
//!
//! A connection has one request at a time: no front server in use sends several, and section 3.3 lets an application refuse
//! them. Bytes of a body are not copied; only what must be whole to be understood is kept, each with a bound.

use std::ops::Range;

use crate::fault::{Fault, Span};
use crate::variables::{Faults, Found, Variable, VariableFacts, collect};

mod answers;
mod record;

pub use answers::{Answer, END_OF_ANSWER_BYTES, ProtocolStatus, end_of_answer, frame_stdout, stdout_head};
use record::{Begin, RecordHead, Role, Type};
pub use record::{CONTENT_BYTES_MOST, HEAD_BYTES as RECORD_HEAD_BYTES};

/// Bytes of FCGI_GET_VALUES that are understood. The three names that there are take 49.
pub const VALUES_BYTES_MOST: usize = 512;

/// Bytes of records that say nothing, from one request's beginning to the next one's: what is left of a body that was answered before
/// its end, for the most part.
pub const IGNORED_BYTES_MOST: usize = 1024 * 1024;

/// What the peer is told and allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastCgiLimits {
    /// Bytes of a request's parameters.
    pub parameter_bytes: usize,
    /// Connections and requests at once, as FCGI_GET_VALUES is answered (section 4.1).
    pub connections: u32,
}

/// What the bytes meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FastCgiEvent {
    /// A request's parameters are here: [`Decoder::take_parameters`] has their bytes.
    Head { facts: VariableFacts, keep_connection: bool },
    /// Bytes of the body: this range of the input.
    Data(Range<usize>),
    /// The body is here in full.
    End,
    /// The front server does not want the request's answer any more (FCGI_ABORT_REQUEST, section 5.4). It is to be ended all the same:
    /// with these bytes, where nothing was answered yet, after which the connection is closed or not.
    Aborted { end: Answer, keep_connection: bool },
    /// This is to be sent at once, and `close` says whether it is the connection's last.
    Send { answer: Answer, close: bool },
}

/// A connection's records, as far as they have come.
#[derive(Debug)]
pub struct Decoder {
    limits: FastCgiLimits,
    /// The record's head; `head_bytes` of it are here.
    head: [u8; RECORD_HEAD_BYTES],
    head_bytes: usize,
    /// The record that has begun.
    record: Record,
    request: Option<Request>,
    /// What has come of the request's parameters.
    parameters: Vec<u8>,
    /// Contents of a record that counts as a whole only.
    control: Vec<u8>,
    /// Bytes of records that were ignored since the last request began.
    ignored_bytes: usize,
    fault: Option<Fault>,
}

/// A record whose head is here.
#[derive(Debug, Clone, Copy)]
struct Record {
    head: RecordHead,
    purpose: Purpose,
    content_left: usize,
    padding_left: usize,
    is_closed: bool,
}

/// What a record's content is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Begin,
    Abort,
    Parameters,
    Body,
    Values,
    /// A management record that we don't know, which is answered.
    Unknown,
    /// A record that says nothing to a responder, or is of a request that is over: section 3.3 has it ignored.
    Ignored,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    id: u16,
    keep_connection: bool,
    stage: Stage,
    /// Bytes of the body in records that are still to begin, where CONTENT_LENGTH says.
    body_left: Option<u64>,
}

/// How far a request has come.
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

    /// Reads on. Gives how many bytes of `input` were used and what they meant; without an event all of them were used, and
    /// each event has used at least one. `variables` is filled with [`FastCgiEvent::Head`]; its spans are relative to the parameters.
    ///
    /// # Errors
    /// What the peer has done wrong; the connection can't go on, and each further call says the same.
    pub fn next(&mut self, input: &[u8], variables: &mut Vec<Variable>) -> Result<(usize, Option<FastCgiEvent>), Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.read_on(input, variables).inspect_err(|fault| self.fault = Some(*fault))
    }

    /// The bytes of the parameters of the request whose [`FastCgiEvent::Head`] came last.
    pub fn take_parameters(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.parameters)
    }

    /// The request that is under way. Its number is on each record of its answer.
    pub fn request_id(&self) -> Option<u16> {
        self.request.map(|request| request.id)
    }

    /// A request's body has not come in full.
    pub fn is_body_open(&self) -> bool {
        self.request.is_some_and(|request| request.stage == Stage::Body)
    }

    /// The request that is under way is here in full, and may still be aborted.
    pub fn is_complete(&self) -> bool {
        self.request.is_some_and(|request| request.stage == Stage::Complete)
    }

    /// Nothing of a request or of a record is here.
    pub fn is_idle(&self) -> bool {
        self.request.is_none() && self.head_bytes == 0
    }

    /// The request's end was said: what still comes of it is ignored, and the next one may begin.
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

    /// A record without padding is over with its content, also where an event follows from it.
    fn skip_no_padding(&mut self) {
        if self.record.padding_left == 0 {
            self.head_bytes = 0;
        }
    }

    fn open_record(&mut self) -> Result<Record, Fault> {
        let head = RecordHead::read(self.head).ok_or_else(|| record::not_a_record(&self.head))?;
        let content_left = usize::from(head.content_bytes);
        let purpose = match head.id {
            0 if head.kind == Some(Type::GetValues) && content_left > VALUES_BYTES_MOST => {
                return Err(Fault::bad_request("The FastCGI record GET_VALUES is larger than the limit."));
            }
            0 if head.kind == Some(Type::GetValues) => Purpose::Values,
            0 => Purpose::Unknown,
            _ if head.kind == Some(Type::BeginRequest) && content_left != Begin::BYTES => {
                return Err(Fault::bad_request("The FastCGI record BEGIN_REQUEST is not of eight bytes."));
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
                if self.ignored_bytes > IGNORED_BYTES_MOST {
                    return Err(Fault::bad_request("The FastCGI records that belong to no request are more than the limit."));
                }
            }
            _ => {}
        }
        self.control.clear();
        Ok(Record { head, purpose, content_left, padding_left: usize::from(head.padding_bytes), is_closed: false })
    }

    /// What is kept was found to be within its limit when the record began.
    fn take_content(&mut self, range: Range<usize>, input: &[u8]) -> Option<FastCgiEvent> {
        match self.record.purpose {
            Purpose::Begin | Purpose::Values => self.control.extend_from_slice(&input[range]),
            Purpose::Parameters => self.parameters.extend_from_slice(&input[range]),
            Purpose::Body => return Some(FastCgiEvent::Data(range)),
            Purpose::Abort | Purpose::Unknown | Purpose::Ignored => {}
        }
        None
    }

    /// Section 6.2: "compare the number of bytes received on FCGI_STDIN with CONTENT_LENGTH and abort the update if the two numbers
    /// are not equal". A record is counted when it begins, so that it does not matter in which pieces it comes.
    fn count_body(&mut self, bytes: u64) -> Result<(), Fault> {
        if let Some(left) = self.request.as_mut().and_then(|request| request.body_left.as_mut()) {
            *left = left
                .checked_sub(bytes)
                .ok_or(Fault::bad_request("The FastCGI request's body is longer than its CONTENT_LENGTH."))?;
        }
        Ok(())
    }

    /// A record is here in full.
    fn close_record(&mut self, variables: &mut Vec<Variable>) -> Result<Option<FastCgiEvent>, Fault> {
        let head = self.record.head;
        match self.record.purpose {
            Purpose::Begin => self.begin(),
            Purpose::Abort => Ok(self.abort()),
            // Section 3.3: a stream is ended by a record without content.
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
                return Err(Fault::bad_request("The FastCGI record BEGIN_REQUEST names a request that is under way."));
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

    /// A request that nobody has seen yet is ended here, and one that was told of by who serves it.
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

const OUT_OF_ORDER: Fault = Fault::bad_request("A FastCGI record of the request comes before or after its time.");

const FAULTS: Faults = Faults {
    nameless: Fault::bad_request("A parameter of the FastCGI request has no name."),
    too_many: Fault::new(431, "The FastCGI request has more parameters than the limit."),
    doubled_length: Fault::bad_request("The FastCGI request has more than one CONTENT_LENGTH."),
    bad_length: Fault::bad_request("The FastCGI request's CONTENT_LENGTH is not one number of bytes."),
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

/// Reads a request's parameters, which are here in full.
///
/// Values may hold any byte, line ends included: front-ends send client certificates in them.
fn parameters(bytes: &[u8], out: &mut Vec<Variable>) -> Result<VariableFacts, Fault> {
    collect(bytes, out, &FAULTS, |at| pair(bytes, at))
}

/// The names that FCGI_GET_VALUES asks for, of those that there are.
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

/// The name and the value whose lengths stand at `at` (section 3.4).
#[inline]
fn pair(bytes: &[u8], at: usize) -> Result<Found, Fault> {
    const BEYOND: Fault = Fault::bad_request("A parameter of the FastCGI request ends beyond the parameters.");
    let (name_bytes, at) = length(bytes, at).ok_or(BEYOND)?;
    let (value_bytes, start) = length(bytes, at).ok_or(BEYOND)?;
    // Neither is of more than 31 bits.
    let (middle, end) = (start as u64 + name_bytes, start as u64 + name_bytes + value_bytes);
    if end > bytes.len().min(Span::REACH_BYTES) as u64 {
        return Err(BEYOND);
    }
    let (middle, end) = (middle as usize, end as usize);
    Ok(Found { name: Span::between(start, middle), value: Span::between(middle, end), next: end })
}

/// A length of one byte, or of four where the first has its highest bit set; and where it ends.
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
