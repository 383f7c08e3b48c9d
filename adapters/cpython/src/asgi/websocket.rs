//! WebSocket in ASGI (ASGI 3, "WebSocket"): converts the application's messages into frames, and the client's frames into
//! messages.
//!
//! A message that breaks the specification raises an exception in the application, at the line that sent it. It does not know
//! about sockets. The event loop's thread runs all of it.

use std::collections::VecDeque;

use bolide_engine::answer::{Answer, Failure};
use bolide_engine::request_stream::RequestStream;
use bolide_engine::websocket::{CloseStatus, Handshake, Message as Received, MessageKind, WebSocket, may_be_sent};

use super::context::Asgi;
use super::events::{ReceiveEvent, SendError, SendResult};
use super::http::{self, HttpState};
use super::messages::{Headers, Message, text_of};
use crate::exceptions::{raise, value_error};
use crate::object::{Object, bytes_of};

/// Status codes of RFC 6455 section 7.4.1.
pub const NORMAL: u16 = 1000;
const ABNORMAL: u16 = 1006;

/// The stages of a WebSocket, as the application sees them.
enum WebSocketStage {
    /// `websocket.connect` was not received yet, or not answered yet.
    Connecting {
        connect_was_told: bool,
    },
    Open,
    /// The application refuses the handshake with a response of its own (`websocket.http.response`).
    Refusing(HttpState),
    /// The application has closed, or refused.
    Closed,
}

pub struct WebSocketState {
    stage: WebSocketStage,
    handshake: Handshake,
    /// Messages that the application had not taken at the end of the connection.
    left: VecDeque<Received>,
    /// The message at the end, once it is known.
    close_status: Option<CloseStatus>,
    is_disconnected: bool,
}

/// An event of the application's `send()`, after it was read from Python.
pub enum WebSocketSendEvent {
    /// A subprotocol that can't be UTF-8 becomes empty: neither is a token.
    Accept {
        subprotocol: Option<Vec<u8>>,
        headers: Headers,
    },
    /// A str that can be UTF-8.
    Text(Object),
    Binary(Object),
    Close {
        code: u16,
        reason: String,
    },
    Response(http::HttpSendEvent),
}

/// Reads a message. `None`: an exception is set.
pub fn read(asgi: &'static Asgi, message: &Message<'_>) -> Option<WebSocketSendEvent> {
    let names = &asgi.names;
    match message.kind() {
        b"websocket.accept" => {
            let subprotocol = message.text(&names.subprotocol, "subprotocol")?;
            // SAFETY: a str that lives through this call.
            let subprotocol = subprotocol.map(|name| unsafe { text_of(name.as_ptr()) }.unwrap_or_default().to_vec());
            Some(WebSocketSendEvent::Accept { subprotocol, headers: Headers::read(asgi, message.get(&names.headers))? })
        }
        b"websocket.send" => match (message.text(&names.text, "text")?, message.get(&names.bytes).is_null()) {
            // SAFETY: a str that lives through this call.
            (Some(text), true) => match unsafe { text_of(text.as_ptr()) } {
                Some(_) => Some(WebSocketSendEvent::Text(text)),
                None => raise(value_error(), "'text' has lone surrogates, which UTF-8 can't encode"),
            },
            (None, false) => Some(WebSocketSendEvent::Binary(message.bytes(&names.bytes, "bytes")?)),
            _ => raise(value_error(), "'websocket.send' takes either 'text' or 'bytes', and the other must be None"),
        },
        b"websocket.close" => {
            let code = if message.get(&names.code).is_null() { NORMAL } else { message.number(&names.code, "code")? };
            let reason = message.text(&names.reason, "reason")?;
            // SAFETY: a str that lives through this call.
            let Some(text) = reason.as_ref().map_or(Some(&b""[..]), |reason| unsafe { text_of(reason.as_ptr()) }) else {
                return raise(value_error(), "'reason' has lone surrogates, which UTF-8 can't encode");
            };
            Some(WebSocketSendEvent::Close { code, reason: String::from_utf8_lossy(text).into_owned() })
        }
        b"websocket.http.response.start" => Some(WebSocketSendEvent::Response(http::read_start(asgi, message)?)),
        b"websocket.http.response.body" => Some(WebSocketSendEvent::Response(http::read_body(asgi, message)?)),
        _ => message.unknown("of a WebSocket"),
    }
}

impl WebSocketState {
    pub fn new(handshake: Handshake) -> WebSocketState {
        WebSocketState {
            stage: WebSocketStage::Connecting { connect_was_told: false },
            handshake,
            left: VecDeque::new(),
            close_status: None,
            is_disconnected: false,
        }
    }

    /// True if the application can send no more.
    pub fn is_complete(&self) -> bool {
        match &self.stage {
            WebSocketStage::Closed => true,
            WebSocketStage::Refusing(http) => http.is_complete(),
            WebSocketStage::Connecting { .. } | WebSocketStage::Open => false,
        }
    }

    pub fn is_disconnected(&self) -> bool {
        self.is_disconnected
    }

    pub fn has_ended(&self) -> bool {
        self.is_disconnected || self.close_status.is_some()
    }

    /// True if a failure of the application ends in a close frame and not in a response.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, WebSocketStage::Open)
    }

    pub fn disconnect(&mut self) {
        self.is_disconnected = true;
        self.close_status.get_or_insert(CloseStatus { code: ABNORMAL, reason: String::new() });
    }

    /// Returns the next message, if there is one.
    pub fn receive(&mut self, request_stream: &mut RequestStream) -> ReceiveEvent {
        if let WebSocketStage::Connecting { connect_was_told } = &mut self.stage {
            if !std::mem::replace(connect_was_told, true) {
                return ReceiveEvent::Connect;
            }
            let gone = request_stream.body().is_some_and(|flow| flow.is_gone);
            return if gone { self.end() } else { ReceiveEvent::Nothing };
        }
        let RequestStream::Messages(websocket) = request_stream else {
            // Refused: the application may still receive.
            let is_over = self.is_complete() || request_stream.body().is_some_and(|flow| flow.is_gone);
            return if is_over { self.end() } else { ReceiveEvent::Nothing };
        };
        self.keep_what_is_left(websocket);
        if self.close_status.is_some() {
            return self.last_message();
        }
        websocket.take().map_or(ReceiveEvent::Nothing, ReceiveEvent::Message)
    }

    /// Returns the next remaining message, or the end if there is none.
    pub fn last_message(&mut self) -> ReceiveEvent {
        self.left.pop_front().map_or_else(|| self.end(), ReceiveEvent::Message)
    }

    /// `websocket.disconnect`
    fn end(&self) -> ReceiveEvent {
        ReceiveEvent::End(self.close_status.clone().unwrap_or(CloseStatus { code: ABNORMAL, reason: String::new() }))
    }

    /// The connection ends before the application has taken all messages: this keeps the rest.
    fn keep_what_is_left(&mut self, websocket: &mut WebSocket) {
        if let (None, Some(close_status)) = (&self.close_status, websocket.close_status()) {
            self.close_status = Some(close_status.clone());
            self.left.extend(std::iter::from_fn(|| websocket.take()));
        }
    }

    /// Whether `receive` would return a message.
    pub fn has_message(&self, request_stream: &mut RequestStream) -> bool {
        match request_stream {
            RequestStream::Messages(websocket) => self.close_status.is_some() || websocket.has_event(),
            RequestStream::Body(flow) => self.is_complete() || self.is_disconnected || flow.is_gone,
        }
    }

    /// True: a waiting `send()` may continue.
    pub fn go_on(&mut self, answer: &mut Answer<'_>, request_stream: &mut RequestStream) -> bool {
        match (&mut self.stage, request_stream) {
            (WebSocketStage::Refusing(http), _) => http.go_on(answer),
            (_, RequestStream::Messages(websocket)) => {
                self.keep_what_is_left(websocket);
                // After the end, calls do not wait for room. A client's disconnect raises an exception, which follows.
                !(answer.client_is_gone() || websocket.is_open() && websocket.is_behind(answer))
            }
            _ => true,
        }
    }

    /// Sends a message, if it is allowed now.
    pub fn apply(
        &mut self,
        event: &mut WebSocketSendEvent,
        answer: &mut Answer<'_>,
        request_stream: &mut RequestStream,
    ) -> Result<SendResult, SendError> {
        match (&mut self.stage, event) {
            (WebSocketStage::Connecting { .. }, WebSocketSendEvent::Accept { subprotocol, headers }) => {
                self.accept(subprotocol.as_deref(), headers, answer, request_stream)
            }
            (WebSocketStage::Connecting { .. }, WebSocketSendEvent::Close { .. }) => {
                // ASGI, "Close": before the handshake is accepted, the server answers 403.
                answer.fail(Failure::Status(403));
                answer.flush();
                self.stage = WebSocketStage::Closed;
                Ok(SendResult::Done)
            }
            (WebSocketStage::Connecting { .. }, WebSocketSendEvent::Response(event)) => {
                let mut http = HttpState::new();
                http.may_send(event)?;
                let result = http.apply(event, answer)?;
                self.stage = WebSocketStage::Refusing(http);
                Ok(result)
            }
            (WebSocketStage::Refusing(http), WebSocketSendEvent::Response(event)) => {
                http.may_send(event)?;
                http.apply(event, answer)
            }
            (WebSocketStage::Open, WebSocketSendEvent::Text(payload)) => {
                // SAFETY: a str that lives as long as `payload`; Python has kept its UTF-8 since it was read.
                let text = unsafe { text_of(payload.as_ptr()) }.unwrap_or_default();
                Self::send(MessageKind::Text, text, answer, request_stream)
            }
            (WebSocketStage::Open, WebSocketSendEvent::Binary(payload)) => {
                // SAFETY: a bytes object that lives as long as `payload`.
                Self::send(MessageKind::Binary, unsafe { bytes_of(payload.as_ptr()) }, answer, request_stream)
            }
            (WebSocketStage::Open, WebSocketSendEvent::Close { code, reason }) => {
                if !may_be_sent(*code) {
                    return Err(SendError::Value(format!(
                        "the close code {code} can't be sent: use 1000 to 1003, 1007 to 1014 or 3000 to 4999"
                    )));
                }
                if let RequestStream::Messages(websocket) = request_stream {
                    websocket.close(*code, reason, answer);
                    self.close_status =
                        websocket.close_status().cloned().or(Some(CloseStatus { code: *code, reason: std::mem::take(reason) }));
                }
                self.stage = WebSocketStage::Closed;
                Ok(SendResult::Done)
            }
            (WebSocketStage::Connecting { .. }, _) => SendError::mistake("the WebSocket is neither accepted nor refused yet"),
            (WebSocketStage::Open, _) => SendError::mistake("the WebSocket was already accepted"),
            (WebSocketStage::Refusing(_), _) => {
                SendError::mistake("the WebSocket was refused with a response; only its body may follow")
            }
            (WebSocketStage::Closed, _) => SendError::mistake("the WebSocket is closed: nothing may follow"),
        }
    }

    fn accept(
        &mut self,
        chosen: Option<&[u8]>,
        headers: &Headers,
        answer: &mut Answer<'_>,
        request_stream: &mut RequestStream,
    ) -> Result<SendResult, SendError> {
        let mut kept: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        headers
            .each(|name, value| {
                let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
                if is(b"sec-websocket-protocol") || is(b"sec-websocket-accept") || is(b"sec-websocket-extensions") {
                    return Err("the server sets it; use 'subprotocol' for a subprotocol");
                }
                kept.push((name.to_vec(), value.to_vec()));
                Ok(())
            })
            .map_err(|refusal| SendError::Value(format!("the header {refusal}")))?;
        let fields: Vec<(&[u8], &[u8])> = kept.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        match self.handshake.accept(answer, chosen, &fields) {
            Ok(websocket) => {
                *request_stream = RequestStream::Messages(Box::new(websocket));
                self.stage = WebSocketStage::Open;
                Ok(SendResult::Done)
            }
            Err(refusal) => Err(SendError::Value(format!("a header or the subprotocol is refused: {refusal}"))),
        }
    }

    fn send(
        kind: MessageKind,
        payload: &[u8],
        answer: &mut Answer<'_>,
        request_stream: &mut RequestStream,
    ) -> Result<SendResult, SendError> {
        let RequestStream::Messages(websocket) = request_stream else { return Err(SendError::Gone) };
        if websocket.is_open() {
            websocket.say(kind, payload, answer);
        }
        if !websocket.is_open() || answer.client_is_gone() {
            return Err(SendError::Gone);
        }
        Ok(if websocket.is_behind(answer) || answer.turn_is_over() { SendResult::Wait } else { SendResult::Done })
    }
}
