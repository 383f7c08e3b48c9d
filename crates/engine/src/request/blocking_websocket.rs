//! A WebSocket for an application that waits for each message during its call (`uwsgi.websocket_recv`): the WebSocket of
//! streaming applications, with its own reads. It never blocks: its owner waits between two calls of [`BlockingWebSocket::look`].
//!
//! It does not know about languages. The thread that serves the request runs it, on a connection that carries only this request.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::settings::WebSocket as Settings;
use bolide_protocol::websocket::close::NORMAL;
use bolide_scoreboard::{Recorder, Row};

use crate::answer::{Answer, Failure, Stage};
use crate::request::request_stream::RequestStream;
use crate::request::websocket::{Message, MessageKind, WebSocket, asked_by_variables};
use crate::scheduling::spread::place_of;
use crate::scheduling::turn::TurnBudget;
use crate::sockets::socket::Read;
use crate::sockets::taken_connections::{Held, TakenConnections};

/// The size of the read buffer: more than a TLS record.
const READ_BYTES: usize = 64 * 1024;

/// Maximum wait between two checks, in milliseconds: an order to stop does not wake a thread that is in a call.
const MAX_LOOK_MS: u64 = 500;

pub struct BlockingWebSocket {
    websocket: WebSocket,
    /// Input that was read while there was no room for its messages.
    input: Vec<u8>,
    buffer: Vec<u8>,
    /// Maximum time for which a client may read nothing of pending data, in milliseconds.
    timeout_ms: u64,
    row: &'static Row,
    _held: Held,
}

/// The result of a receive.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Message(Message),
    Nothing,
    /// The WebSocket has ended, and all earlier messages have been received.
    End,
}

/// The worker's data that a WebSocket needs.
pub struct WebSocketTerms<'a> {
    pub settings: &'a Settings,
    pub row: &'static Row,
    pub timeout_ms: u64,
    pub taken: &'static TakenConnections,
    /// The scoreboard slot of the request.
    pub slot: Option<Recorder<'static>>,
}

/// Answers 101 to a request that the engine keeps, and has its stream carry messages from then on. The rest is as in
/// [`BlockingWebSocket::accept`].
///
/// # Errors
/// As there.
pub fn accept_kept<'a>(
    answer: &mut Answer<'_>,
    request_stream: &mut RequestStream,
    find: &dyn Fn(&[u8]) -> &'a [u8],
    protocol: Option<&[u8]>,
    settings: &Settings,
) -> Result<(), &'static str> {
    *request_stream = RequestStream::Messages(Box::new(accepted(answer, find, protocol, settings)?));
    Ok(())
}

fn accepted<'a>(
    answer: &mut Answer<'_>,
    find: &dyn Fn(&[u8]) -> &'a [u8],
    protocol: Option<&[u8]>,
    settings: &Settings,
) -> Result<WebSocket, &'static str> {
    if answer.stage() >= Stage::Body {
        return Err("the response has begun");
    }
    if answer.writer().shares_connection() {
        return Err("the connection carries other requests too (HTTP/2)");
    }
    let asked = asked_by_variables(find, settings).map_err(|fault| fault.reason)?;
    let handshake = asked.ok_or("the client did not ask for a WebSocket")?;
    handshake.accept(answer, protocol, &[])
}

impl BlockingWebSocket {
    /// Answers 101. `find` returns the variables of the request, `protocol` is the application's choice of a subprotocol.
    ///
    /// # Errors
    /// The request is invalid, the subprotocol is invalid, or the response has already begun.
    pub fn accept<'a>(
        answer: &mut Answer<'_>,
        find: &dyn Fn(&[u8]) -> &'a [u8],
        protocol: Option<&[u8]>,
        terms: &WebSocketTerms<'_>,
    ) -> Result<BlockingWebSocket, &'static str> {
        Ok(BlockingWebSocket {
            websocket: accepted(answer, find, protocol, terms.settings)?,
            input: Vec::new(),
            buffer: Vec::new(),
            timeout_ms: terms.timeout_ms,
            row: terms.row,
            _held: terms.taken.hold_call(terms.slot),
        })
    }

    /// Returns the next message if it has arrived.
    pub fn take(&mut self, answer: &mut Answer<'_>) -> Received {
        if let Some(message) = self.websocket.take() {
            return Received::Message(message);
        }
        self.look(answer);
        match self.websocket.take() {
            Some(message) => Received::Message(message),
            None if self.websocket.close_status().is_some() || answer.client_is_gone() => Received::End,
            None => Received::Nothing,
        }
    }

    /// Sends a message. The payload of a text must be UTF-8. Returns false if the WebSocket has ended.
    pub fn say(&mut self, kind: MessageKind, payload: &[u8], answer: &mut Answer<'_>) -> bool {
        if self.has_ended(answer) {
            return false;
        }
        answer.writer_mut().begin_turn();
        self.websocket.say(kind, payload, answer);
        true
    }

    /// Whether data still waits for the client to read.
    pub fn is_behind(&self, answer: &Answer<'_>) -> bool {
        self.websocket.has_outgoing(answer.writer()) && !answer.client_is_gone()
    }

    pub fn has_ended(&self, answer: &Answer<'_>) -> bool {
        !self.websocket.is_open() || answer.client_is_gone()
    }

    /// Reads input, sends pending data, and enforces time limits.
    pub fn look(&mut self, answer: &mut Answer<'_>) {
        self.read(answer);
        let now = now_ms();
        let (stopped_ms, drained_ms) = (self.row.stopped_ms.load(Relaxed), self.row.drained_ms.load(Relaxed));
        let told_ms = if stopped_ms == 0 { drained_ms } else { stopped_ms };
        if told_ms != 0 {
            let own_ms = place_of(self.row, answer.writer().transport.socket());
            self.websocket.leave_at(told_ms + own_ms, stopped_ms != 0);
        }
        answer.writer_mut().begin_turn();
        self.websocket.tend(answer.writer_mut(), now, self.timeout_ms);
    }

    /// The number of milliseconds that the owner may wait for the client before the next check.
    pub fn wait_ms(&self, answer: &Answer<'_>) -> u64 {
        let next_ms = self.websocket.next_ms(answer.writer().has_unsent(), self.timeout_ms);
        next_ms.saturating_sub(now_ms()).clamp(1, MAX_LOOK_MS)
    }

    /// The application has returned: sends a close frame, and ends the connection.
    pub fn end(mut self, answer: &mut Answer<'_>) {
        answer.writer_mut().begin_turn();
        self.websocket.close(NORMAL, "", answer);
        answer.fail(Failure::Disconnect);
    }

    fn read(&mut self, answer: &mut Answer<'_>) {
        let mut turn = TurnBudget::default();
        self.websocket.take_in(answer.writer_mut(), &mut self.input, &mut turn);
        self.buffer.resize(READ_BYTES, 0);
        while self.websocket.room() > 0 && self.input.is_empty() && turn.may_read() {
            match answer.writer_mut().transport.read(&mut self.buffer) {
                Read::Bytes(count) => {
                    turn.note_read(answer.writer_mut().transport.read_cost(count));
                    self.websocket.hear(now_ms());
                    let used = self.websocket.feed(&mut self.buffer[..count], answer.writer_mut(), &mut turn);
                    self.input.extend_from_slice(&self.buffer[used..count]);
                }
                Read::Nothing => break,
                Read::End | Read::Broken => {
                    self.websocket.hang_up();
                    break;
                }
            }
        }
    }
}
