//! What a responder of FastCGI writes: the heads around an answer's bytes, and the short records of its own.
//!
//! Must not know what came. Workers run it. The bytes of an answer are not copied here: who sends it puts a head before each part.

use super::record::{CONTENT_BYTES_MOST, HEAD_BYTES, RecordHead, Type};

/// Bytes of the two records that end an answer: its stream without content, and FCGI_END_REQUEST.
pub const END_OF_ANSWER_BYTES: usize = HEAD_BYTES + END_REQUEST_BYTES;

/// A short record, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    bytes: [u8; ANSWER_BYTES_MOST],
    length: u8,
}

/// Why a request is over (FCGI_END_REQUEST, section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// FCGI_REQUEST_COMPLETE
    Complete = 0,
    /// FCGI_CANT_MPX_CONN: the connection has another request already.
    CantMultiplex = 1,
    /// FCGI_UNKNOWN_ROLE
    UnknownRole = 3,
}

/// The head of a record with `content_bytes` bytes of an answer, at most [`CONTENT_BYTES_MOST`](super::CONTENT_BYTES_MOST). It
/// must not be 0: that would end the answer's stream.
#[inline]
pub fn stdout_head(id: u16, content_bytes: u16) -> [u8; HEAD_BYTES] {
    debug_assert!(content_bytes > 0);
    RecordHead::written(Type::Stdout, id, content_bytes, 0)
}

/// Makes records of what an answer's head has in `out`: from `start` on there is room for a record's head, and then the bytes.
pub fn frame_stdout(id: u16, out: &mut Vec<u8>, start: usize) {
    let content = out.len() - start - HEAD_BYTES;
    // Most heads are one record, and stay where they are.
    let first = content.min(CONTENT_BYTES_MOST);
    let further = out.split_off(start + HEAD_BYTES + first);
    out[start..start + HEAD_BYTES].copy_from_slice(&stdout_head(id, first as u16));
    for part in further.chunks(CONTENT_BYTES_MOST) {
        out.extend_from_slice(&stdout_head(id, part.len() as u16));
        out.extend_from_slice(part);
    }
}

/// What follows an answer's last byte.
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
        let mut answer = Answer { bytes: [0; ANSWER_BYTES_MOST], length: 0 };
        // Contents are those of this file, the longest of which fits.
        let content = &content[..content.len().min(ANSWER_BYTES_MOST - HEAD_BYTES)];
        answer.bytes[..HEAD_BYTES].copy_from_slice(&RecordHead::written(kind, id, content.len() as u16, 0));
        answer.bytes[HEAD_BYTES..HEAD_BYTES + content.len()].copy_from_slice(content);
        answer.length = (HEAD_BYTES + content.len()) as u8;
        answer
    }
}

const END_REQUEST_BYTES: usize = HEAD_BYTES + 8;

/// FCGI_GET_VALUES_RESULT with all three names, and ten digits for each number that is one.
const ANSWER_BYTES_MOST: usize = 96;

const CONNECTIONS: &[u8] = b"FCGI_MAX_CONNS";
const REQUESTS: &[u8] = b"FCGI_MAX_REQS";
const MULTIPLEXES: &[u8] = b"FCGI_MPXS_CONNS";

/// Which values were asked for. A name that nobody knows is not answered (section 4.1).
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
    let mut content = Vec::with_capacity(ANSWER_BYTES_MOST);
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

/// Section 4.2: the type that was not understood, and seven bytes for nothing.
pub(super) fn unknown_type(type_byte: u8) -> Answer {
    Answer::of(Type::Unknown, 0, &[type_byte, 0, 0, 0, 0, 0, 0, 0])
}

/// Four bytes of the application's status, which is 0, one of the protocol's, and three for nothing.
pub(super) fn end_request(id: u16, status: ProtocolStatus) -> Answer {
    Answer::of(Type::EndRequest, id, &[0, 0, 0, 0, status as u8, 0, 0, 0])
}
