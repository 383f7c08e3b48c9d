//! Input from a client to an application that already handles the request: a body as it arrives, or a WebSocket's messages.
//!
//! It does not know about sockets: the connection feeds it, the application reads from it, and it reports whether there is room
//! for more. Worker threads run it.

use bolide_contract::clock::now_ms;
use bolide_protocol::Fault;
use bolide_protocol::http1::Framing;

use crate::request::websocket::WebSocket;
use crate::scheduling::body_timeout::BodyTimeout;

/// Maximum size in bytes of the part of a body that waits for the application. At this size the client is not read from.
pub const WAITING_BYTES: usize = 64 * 1024;

/// The client's side of an exchange.
pub enum RequestStream {
    Body(BodyStream),
    /// After the switch to WebSocket.
    Messages(Box<WebSocket>),
}

/// A body that is streamed to the application.
pub struct BodyStream {
    most_bytes: u64,
    received: u64,
    waiting: Vec<u8>,
    is_complete: bool,
    end_was_told: bool,
    /// The client waits for `100 Continue` (RFC 9110 section 10.1.1), which is sent when the application asks for the body.
    pub owes_continue: bool,
    /// The application waits for more data.
    pub is_wanted: bool,
    /// The client has closed its sending side, or has disconnected.
    pub is_gone: bool,
    /// The client has aborted its request, which only FastCGI can on a connection that goes on.
    pub(crate) is_aborted: bool,
    /// The client's remaining time budget.
    pub(crate) body_timeout: BodyTimeout,
}

/// A part of a body. The last one has `more` unset, and may be empty.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    pub bytes: Vec<u8>,
    pub more: bool,
}

const TOO_LARGE: Fault = Fault::new(413, "the body is larger than limit-post allows");

impl BodyStream {
    /// # Errors
    /// 413 if the announced length exceeds the limit.
    pub(crate) fn new(
        framing: Framing,
        most_bytes: u64,
        owes_continue: bool,
        body_timeout: BodyTimeout,
    ) -> Result<BodyStream, Fault> {
        let is_complete = match framing {
            Framing::None | Framing::Length(0) => true,
            Framing::Length(length) if length > most_bytes => return Err(TOO_LARGE),
            Framing::Length(_) | Framing::Chunked => false,
        };
        Ok(BodyStream {
            most_bytes,
            received: 0,
            waiting: Vec::new(),
            is_complete,
            end_was_told: false,
            owes_continue: owes_continue && !is_complete,
            is_wanted: false,
            is_gone: false,
            is_aborted: false,
            body_timeout,
        })
    }

    /// A body that was passed to the application as a whole.
    pub(crate) fn collected(body_timeout: BodyTimeout) -> BodyStream {
        BodyStream {
            most_bytes: 0,
            received: 0,
            waiting: Vec::new(),
            is_complete: true,
            end_was_told: true,
            owes_continue: false,
            is_wanted: false,
            is_gone: false,
            is_aborted: false,
            body_timeout,
        }
    }

    /// Adds bytes of the body.
    ///
    /// # Errors
    /// 413 beyond the limit.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.received += bytes.len() as u64;
        if self.received > self.most_bytes {
            return Err(TOO_LARGE);
        }
        self.waiting.extend_from_slice(bytes);
        Ok(())
    }

    /// The body has begun to arrive, even if only with an empty frame: the client does not wait for `100 Continue`.
    pub fn note_begun(&mut self) {
        self.owes_continue = false;
    }

    /// The body is complete.
    pub fn note_end(&mut self) {
        self.is_complete = true;
    }

    /// Returns the next part for the application; `None` if there is nothing new, and always after the last part.
    pub fn take(&mut self) -> Option<Part> {
        if !self.has_part() {
            return None;
        }
        self.end_was_told = self.is_complete;
        Some(Part { bytes: std::mem::take(&mut self.waiting), more: !self.is_complete })
    }

    /// Whether [`BodyStream::take`] would return a part.
    pub fn has_part(&self) -> bool {
        !self.end_was_told && (self.is_complete || !self.waiting.is_empty())
    }

    /// The body is complete.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The application has received the whole body.
    pub fn is_told(&self) -> bool {
        self.end_was_told
    }

    /// Whether it is the client's turn: the application waits for more data.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_wanted && !self.is_complete && !self.is_gone
    }

    /// The number of bytes that may be read now.
    pub fn room(&self) -> usize {
        if self.is_complete || self.is_gone { 0 } else { WAITING_BYTES.saturating_sub(self.waiting.len()) }
    }

    /// Drops unread data, because the application no longer needs it.
    pub fn drop_waiting(&mut self) {
        self.waiting = Vec::new();
    }
}

impl RequestStream {
    /// The number of bytes that may be read now.
    pub fn room(&self) -> usize {
        match self {
            RequestStream::Body(body) => body.room(),
            RequestStream::Messages(line) => line.room(),
        }
    }

    /// Starts or stops the client's time budget when its turn begins or ends.
    pub(crate) fn keep_time(&mut self) {
        if let RequestStream::Body(body_stream) = self
            && body_stream.is_owed() != body_stream.body_timeout.is_waiting()
        {
            body_stream.body_timeout.wait(body_stream.is_owed(), now_ms());
        }
    }

    /// The client sends no more data.
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
        BodyStream::new(framing, most_bytes, owes_continue, BodyTimeout::new(1000, 500))
    }

    #[test]
    fn a_body_is_the_same_whole_and_byte_by_byte() {
        for step in [1, 2, 5] {
            let mut body_stream = body_stream(Framing::Chunked, 1 << 20, false).expect("within limits");
            let mut bytes = Vec::new();
            let mut pieces = b"hello".chunks(step).peekable();
            while let Some(piece) = pieces.next() {
                body_stream.push(piece).expect("within limits");
                if pieces.peek().is_none() {
                    body_stream.note_end();
                }
                let part = body_stream.take().expect("a part");
                bytes.extend_from_slice(&part.bytes);
                assert_eq!(part.more, !body_stream.is_complete());
            }
            assert_eq!((bytes, body_stream.is_told()), (b"hello".to_vec(), true), "step {step}");
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
        assert_eq!(chunked.push(b"hello").err().map(|fault| fault.status), Some(413));
    }

    #[test]
    fn a_client_is_not_read_from_while_the_application_takes_nothing() {
        let mut body_stream = body_stream(Framing::Length(1 << 20), 1 << 20, false).expect("within limits");
        while body_stream.room() > 0 {
            let piece = vec![0; body_stream.room().min(10_000)];
            assert_eq!(body_stream.push(&piece), Ok(()));
        }
        assert_eq!(body_stream.take().map(|part| part.bytes.len()), Some(WAITING_BYTES));
        assert!(body_stream.room() > 0);
    }
}
