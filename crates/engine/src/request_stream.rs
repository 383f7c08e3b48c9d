//! What a client sends to an application that has the request in its hands already: a body as it comes, or a WebSocket's messages.
//!
//! It knows no sockets: the connection feeds it, the application takes from it, and it says whether there is room for more.

use bolide_contract::scoreboard::now_ms;
use bolide_protocol::Fault;
use bolide_protocol::http1::Framing;
use bolide_protocol::http1::chunked::{ChunkedDecoder, ChunkedStep};

use crate::patience::Patience;
use crate::websocket::WebSocket;

/// Bytes of a body that wait for the application. With as many, the client is not read from.
pub const WAITING_BYTES: usize = 64 * 1024;

/// The client's side of an exchange.
pub enum RequestStream {
    Body(BodyStream),
    /// After the switch to WebSocket.
    Messages(Box<WebSocket>),
}

/// A body on its way to the application.
pub struct BodyStream {
    framing: Incoming,
    most_bytes: u64,
    received: u64,
    waiting: Vec<u8>,
    is_complete: bool,
    end_was_told: bool,
    /// The client waits for `100 Continue` (RFC 9110 section 10.1.1), which it gets when the application asks for the body.
    pub owes_continue: bool,
    /// The application waits for more.
    pub is_wanted: bool,
    /// The client has ended its side, or is gone.
    pub is_gone: bool,
    /// How long the client may still be waited for.
    pub(crate) patience: Patience,
}

enum Incoming {
    Length(u64),
    Chunked(ChunkedDecoder),
}

/// A part of a body; the last one has no more after it and may be empty.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    pub bytes: Vec<u8>,
    pub more: bool,
}

const TOO_LARGE: Fault = Fault { status: 413, reason: "the body is larger than limit-post allows" };

impl BodyStream {
    /// # Errors
    /// 413 when the announced length is already too much.
    pub(crate) fn new(framing: Framing, most_bytes: u64, owes_continue: bool, patience: Patience) -> Result<BodyStream, Fault> {
        let (framing, is_complete) = match framing {
            Framing::None => (Incoming::Length(0), true),
            Framing::Length(length) if length > most_bytes => return Err(TOO_LARGE),
            Framing::Length(length) => (Incoming::Length(length), length == 0),
            Framing::Chunked => (Incoming::Chunked(ChunkedDecoder::default()), false),
        };
        Ok(BodyStream {
            framing,
            most_bytes,
            received: 0,
            waiting: Vec::new(),
            is_complete,
            end_was_told: false,
            owes_continue: owes_continue && !is_complete,
            is_wanted: false,
            is_gone: false,
            patience,
        })
    }

    /// Takes what belongs to the body from the start of `input`; returns the bytes used.
    ///
    /// # Errors
    /// 400 for a malformed chunk, 413 beyond the limit.
    pub fn feed(&mut self, input: &[u8]) -> Result<usize, Fault> {
        if self.is_complete {
            return Ok(0);
        }
        self.owes_continue &= input.is_empty();
        if let Incoming::Length(length) = self.framing {
            let taken = (length - self.received).min(input.len() as u64) as usize;
            self.waiting.extend_from_slice(&input[..taken]);
            self.received += taken as u64;
            self.is_complete = self.received == length;
            return Ok(taken);
        }
        let mut used = 0;
        while used < input.len() {
            let Incoming::Chunked(decoder) = &mut self.framing else { break };
            match decoder.step(&input[used..])? {
                ChunkedStep::Data { data, used: step } => {
                    let bytes = data.of(&input[used..]);
                    used += step;
                    self.received += bytes.len() as u64;
                    if self.received > self.most_bytes {
                        return Err(TOO_LARGE);
                    }
                    self.waiting.extend_from_slice(bytes);
                }
                ChunkedStep::More { used: step } => return Ok(used + step),
                ChunkedStep::Done { used: step } => {
                    self.is_complete = true;
                    return Ok(used + step);
                }
            }
        }
        Ok(used)
    }

    /// The next part for the application; `None` while there is nothing to tell, and for ever after the last one.
    pub fn take(&mut self) -> Option<Part> {
        if !self.has_part() {
            return None;
        }
        self.end_was_told = self.is_complete;
        Some(Part { bytes: std::mem::take(&mut self.waiting), more: !self.is_complete })
    }

    /// Whether [`BodyStream::take`] would find something.
    pub fn has_part(&self) -> bool {
        !self.end_was_told && (self.is_complete || !self.waiting.is_empty())
    }

    /// All of it has come.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The application has got all of it.
    pub fn is_told(&self) -> bool {
        self.end_was_told
    }

    /// Whether it is the client's turn: the application waits for more.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_wanted && !self.is_complete && !self.is_gone
    }

    /// How many bytes may be read now.
    pub fn room(&self) -> usize {
        if self.is_complete || self.is_gone { 0 } else { WAITING_BYTES.saturating_sub(self.waiting.len()) }
    }

    /// Nobody wants what comes any more.
    pub fn drop_waiting(&mut self) {
        self.waiting = Vec::new();
    }
}

impl RequestStream {
    /// How many bytes may be read now.
    pub fn room(&self) -> usize {
        match self {
            RequestStream::Body(body) => body.room(),
            RequestStream::Messages(line) => line.room(),
        }
    }

    /// Counts the client's time from where it is its turn, and no further than where it is not any more.
    pub(crate) fn keep_time(&mut self) {
        if let RequestStream::Body(body_stream) = self
            && body_stream.is_owed() != body_stream.patience.is_waiting()
        {
            body_stream.patience.wait(body_stream.is_owed(), now_ms());
        }
    }

    /// The client sends no more.
    pub fn hang_up(&mut self) {
        match self {
            RequestStream::Body(body) => body.is_gone = true,
            RequestStream::Messages(line) => line.hang_up(),
        }
    }

    /// A request's body; `None` after the switch to WebSocket.
    pub fn body(&mut self) -> Option<&mut BodyStream> {
        match self {
            RequestStream::Body(body) => Some(body),
            RequestStream::Messages(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_stream(framing: Framing, most_bytes: u64, owes_continue: bool) -> Result<BodyStream, Fault> {
        BodyStream::new(framing, most_bytes, owes_continue, Patience::new(1000, 500))
    }

    fn collected(framing: Framing, input: &[u8], step: usize) -> (Vec<u8>, usize, bool) {
        let mut body_stream = body_stream(framing, 1 << 20, false).expect("within limits");
        let (mut bytes, mut used) = (Vec::new(), 0);
        while !body_stream.is_complete() {
            let end = (used + step).min(input.len());
            let taken = body_stream.feed(&input[used..end]).expect("well-formed");
            assert!(taken > 0, "no progress at {used}");
            used += taken;
            if let Some(part) = body_stream.take() {
                bytes.extend_from_slice(&part.bytes);
                assert_eq!(part.more, !body_stream.is_complete());
            }
        }
        (bytes, used, body_stream.is_told())
    }

    #[test]
    fn a_body_is_the_same_whole_byte_by_byte_and_with_a_request_behind_it() {
        let cases: [(Framing, &[u8]); 2] =
            [(Framing::Length(5), b"hello"), (Framing::Chunked, b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n")];
        for (framing, wire) in cases {
            for step in [1, 2, wire.len(), wire.len() + 100] {
                let mut input = wire.to_vec();
                input.extend_from_slice(b"GET / HTTP/1.1\r\n");
                assert_eq!(collected(framing, &input, step), (b"hello".to_vec(), wire.len(), true), "step {step}");
            }
        }
    }

    #[test]
    fn a_request_without_a_body_has_one_empty_part() {
        let mut body_stream = body_stream(Framing::None, 10, true).expect("no body");
        assert_eq!(body_stream.take(), Some(Part { bytes: Vec::new(), more: false }));
        assert_eq!(body_stream.take(), None);
        assert!(!body_stream.owes_continue, "nothing to continue with");
    }

    #[test]
    fn a_body_beyond_its_limit_is_refused_by_its_announcement_or_as_it_comes() {
        assert_eq!(body_stream(Framing::Length(5), 4, false).err().map(|fault| fault.status), Some(413));
        let mut chunked = body_stream(Framing::Chunked, 4, false).expect("begun");
        assert_eq!(chunked.feed(b"5\r\nhello\r\n").err().map(|fault| fault.status), Some(413));
    }

    #[test]
    fn a_client_is_not_read_from_while_the_application_takes_nothing() {
        let mut body_stream = body_stream(Framing::Length(1 << 20), 1 << 20, false).expect("within limits");
        while body_stream.room() > 0 {
            let piece = vec![0; body_stream.room().min(10_000)];
            assert_eq!(body_stream.feed(&piece), Ok(piece.len()));
        }
        assert_eq!(body_stream.take().map(|part| part.bytes.len()), Some(WAITING_BYTES));
        assert!(body_stream.room() > 0);
    }
}
