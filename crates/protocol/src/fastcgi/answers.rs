//! The bytes that a FastCGI responder writes: record heads around an answer, and the responder's own short records.
//!
//! Must not know the request. Workers run it. The bytes of an answer are not copied here: the sender puts a head before each
//! part.

use super::record::{HEAD_BYTES, MAX_CONTENT_BYTES, RecordHead, Type};

/// Bytes of the two records that end an answer: the empty record of its stream, and FCGI_END_REQUEST.
pub const END_OF_ANSWER_BYTES: usize = HEAD_BYTES + END_REQUEST_BYTES;

/// A short, complete record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    bytes: [u8; MAX_ANSWER_BYTES],
    length: u8,
}

/// Why a request is over (FCGI_END_REQUEST, section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// FCGI_REQUEST_COMPLETE
    Complete = 0,
    /// FCGI_CANT_MPX_CONN: the connection already has another request.
    CantMultiplex = 1,
    /// FCGI_UNKNOWN_ROLE
    UnknownRole = 3,
}

/// Returns the head of a record with `content_bytes` bytes of an answer, at most
/// [`MAX_CONTENT_BYTES`](super::MAX_CONTENT_BYTES). It must not be 0: an empty record ends the answer's stream.
#[inline]
pub fn stdout_head(id: u16, content_bytes: u16) -> [u8; HEAD_BYTES] {
    debug_assert!(content_bytes > 0);
    RecordHead::written(Type::Stdout, id, content_bytes, 0)
}

/// Turns an answer's head in `out` into records: at `start` there is space for a record's head, followed by the bytes.
pub fn frame_stdout(id: u16, out: &mut Vec<u8>, start: usize) {
    let content = out.len() - start - HEAD_BYTES;
    // Most heads fit one record, and are not moved.
    let first = content.min(MAX_CONTENT_BYTES);
    let further = out.split_off(start + HEAD_BYTES + first);
    out[start..start + HEAD_BYTES].copy_from_slice(&stdout_head(id, first as u16));
    for part in further.chunks(MAX_CONTENT_BYTES) {
        out.extend_from_slice(&stdout_head(id, part.len() as u16));
        out.extend_from_slice(part);
    }
}

/// Returns the records that follow an answer's last byte.
pub fn end_of_answer(id: u16) -> [u8; END_OF_ANSWER_BYTES] {
    let mut bytes = [0; END_OF_ANSWER_BYTES];
    let (stream, request) = bytes.split_at_mut(HEAD_BYTES);
    stream.copy_from_slice(&RecordHead::written(Type::Stdout, id, 0, 0));
    request.copy_from_slice(end_request(id, ProtocolStatus::Complete).as_bytes());
    bytes
}

impl Answer {
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn of(kind: Type, id: u16, content: &[u8]) -> Answer {
        let mut answer = Answer { bytes: [0; MAX_ANSWER_BYTES], length: 0 };
        // Contents come from this file only, and the longest one fits.
        let content = &content[..content.len().min(MAX_ANSWER_BYTES - HEAD_BYTES)];
        answer.bytes[..HEAD_BYTES].copy_from_slice(&RecordHead::written(kind, id, content.len() as u16, 0));
        answer.bytes[HEAD_BYTES..HEAD_BYTES + content.len()].copy_from_slice(content);
        answer.length = (HEAD_BYTES + content.len()) as u8;
        answer
    }
}

const END_REQUEST_BYTES: usize = HEAD_BYTES + 8;

/// FCGI_GET_VALUES_RESULT with all three names, and up to ten digits for each number.
const MAX_ANSWER_BYTES: usize = 96;

const CONNECTIONS: &[u8] = b"FCGI_MAX_CONNS";
const REQUESTS: &[u8] = b"FCGI_MAX_REQS";
const MULTIPLEXES: &[u8] = b"FCGI_MPXS_CONNS";

/// The requested values. An unknown name is not answered (section 4.1).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    connections: bool,
    requests: bool,
    multiplexes: bool,
}

impl Asked {
    pub fn note(&mut self, name: &[u8]) {
        self.connections |= name == CONNECTIONS;
        self.requests |= name == REQUESTS;
        self.multiplexes |= name == MULTIPLEXES;
    }
}

pub(super) fn values_result(asked: Asked, connections: u32) -> Answer {
    let number = connections.to_string();
    let mut content = Vec::with_capacity(MAX_ANSWER_BYTES);
    for (is_asked, name, value) in [
        (asked.connections, CONNECTIONS, number.as_str()),
        // A connection has one request at a time.
        (asked.requests, REQUESTS, number.as_str()),
        (asked.multiplexes, MULTIPLEXES, "0"),
    ] {
        if is_asked {
            content.extend([name.len() as u8, value.len() as u8]);
            content.extend(name);
            content.extend(value.as_bytes());
        }
    }
    Answer::of(Type::GetValuesResult, 0, &content)
}

/// Section 4.2: the unknown type, and seven reserved bytes.
pub(super) fn unknown_type(type_byte: u8) -> Answer {
    Answer::of(Type::Unknown, 0, &[type_byte, 0, 0, 0, 0, 0, 0, 0])
}

/// Four bytes of application status, which is 0, one of protocol status, and three reserved bytes.
pub(super) fn end_request(id: u16, status: ProtocolStatus) -> Answer {
    Answer::of(Type::EndRequest, id, &[0, 0, 0, 0, status as u8, 0, 0, 0])
}
