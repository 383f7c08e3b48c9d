//! WebSocket as ASGI speaks it (ASGI 3, "WebSocket"): the application's messages into frames, the client's into messages.
//!
//! A message that breaks the specification is an exception in the application, at the line that sent it. The event loop's
//! thread runs all of it.

use std::collections::VecDeque;

use bolide_engine::app::Outcome;
use bolide_engine::inflow::Inflow;
use bolide_engine::reply::Reply;
use bolide_engine::websocket::{Goodbye, Handshake, Line, Message as Received, MessageKind, may_be_sent};
use pyo3::ffi;

use super::exchange::{Exchange, Said, Talk};
use super::http::{self, HttpTalk};
use super::messages::{Headers, Message, text_of};
use super::{Asgi, names};
use crate::faults::log_message;
use crate::object::{Object, bytes_of};

/// Codes that RFC 6455 section 7.4.1 gives these meanings.
const NORMAL: u16 = 1000;
const ABNORMAL: u16 = 1006;

/// How far a WebSocket has come, as the application sees it.
enum Stage {
    /// `websocket.connect` is still to be received, or was, and is not answered.
    Connecting {
        connect_was_told: bool,
    },
    Open,
    /// The application refuses with a response of its own (`websocket.http.response`).
    Refusing(HttpTalk),
    /// The application has closed, or refused.
    Closed,
}

pub struct SocketTalk {
    stage: Stage,
    handshake: Handshake,
    /// Messages that the application has not taken when the connection came to its end.
    left: VecDeque<Received>,
    /// What the application is told at the end, once that is known.
    goodbye: Option<Goodbye>,
    is_lost: bool,
}

/// What a message is to do, once it has been read from Python.
pub enum Act {
    Accept { subprotocol: Option<Object>, headers: Headers },
    Text(Object),
    Binary(Object),
    Close { code: u16, reason: Option<Object> },
    Response(http::Act),
}

/// Reads a message. `None`: an exception is set.
pub fn read(asgi: &'static Asgi, message: &Message<'_>) -> Option<Act> {
    let names = &asgi.names;
    match message.kind() {
        b"websocket.accept" => Some(Act::Accept {
            subprotocol: message.text(&names.subprotocol, "subprotocol")?,
            headers: Headers::read(asgi, message.get(&names.headers))?,
        }),
        b"websocket.send" => match (message.text(&names.text, "text")?, message.get(&names.bytes).is_null()) {
            (Some(text), true) => Some(Act::Text(text)),
            (None, false) => Some(Act::Binary(message.bytes(&names.bytes, "bytes")?)),
            _ => asgi.raise_value("'websocket.send' has either 'text' or 'bytes', and the other is None"),
        },
        b"websocket.close" => {
            let code = if message.get(&names.code).is_null() { NORMAL } else { message.number(&names.code, "code")? };
            Some(Act::Close { code, reason: message.text(&names.reason, "reason")? })
        }
        b"websocket.http.response.start" => Some(Act::Response(http::read_start(asgi, message)?)),
        b"websocket.http.response.body" => Some(Act::Response(http::read_body(asgi, message)?)),
        _ => message.unknown("of a WebSocket"),
    }
}

/// Says a message. `None`: an exception is set.
pub fn say(exchange: &mut Exchange, act: Act) -> Option<Said> {
    let asgi = exchange.asgi;
    if exchange.talk.is_lost() {
        return asgi.raise_gone();
    }
    let said = exchange.reach(|talk, reply, inflow| match talk {
        Talk::Socket(socket) => socket.act(asgi, act, reply, inflow),
        Talk::Http(_) => None,
    });
    match said {
        Some(said) => said,
        None if exchange.talk.is_complete() => asgi.raise_runtime("the WebSocket is closed: nothing may follow"),
        None => {
            exchange.lose();
            asgi.raise_gone()
        }
    }
}

/// The application has returned although nobody has closed. What that means is logged here.
pub fn returned(exchange: &mut Exchange, described: &str) -> Outcome<super::Ticket> {
    let asgi = exchange.asgi;
    if !matches!(&exchange.talk, Talk::Socket(socket) if socket.is_open()) {
        log_message(&asgi.faults, &format!("{described}: the application returned without accepting or closing the WebSocket"));
        return Outcome::Failed;
    }
    if say(exchange, Act::Close { code: NORMAL, reason: None }).is_none() {
        // SAFETY: the thread holds the interpreter. The client has gone by itself: there is nothing to close.
        unsafe { ffi::PyErr_Clear() };
    }
    Outcome::Finished
}

impl SocketTalk {
    pub fn new(handshake: Handshake) -> SocketTalk {
        SocketTalk {
            stage: Stage::Connecting { connect_was_told: false },
            handshake,
            left: VecDeque::new(),
            goodbye: None,
            is_lost: false,
        }
    }

    /// The application has nothing more to say.
    pub fn is_complete(&self) -> bool {
        match &self.stage {
            Stage::Closed => true,
            Stage::Refusing(http) => http.is_complete(),
            Stage::Connecting { .. } | Stage::Open => false,
        }
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// True when a failure of the application is to be told by a close frame and not by a response.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    pub fn lose(&mut self) {
        self.is_lost = true;
        self.goodbye.get_or_insert(Goodbye { code: ABNORMAL, reason: String::new() });
    }

    /// The next message, if there is one. The outer `None`: an exception is set.
    pub fn receive(&mut self, asgi: &Asgi, inflow: &mut Inflow) -> Option<Option<Object>> {
        if let Stage::Connecting { connect_was_told } = &mut self.stage {
            if !std::mem::replace(connect_was_told, true) {
                return Some(Some(message(asgi, &asgi.names.websocket_connect)?));
            }
            let gone = inflow.body().is_some_and(|flow| flow.is_gone);
            return if gone { Some(Some(self.end_message(asgi)?)) } else { Some(None) };
        }
        let Inflow::Messages(line) = inflow else {
            // Refused: the application may still ask how it went on.
            let is_over = self.is_complete() || inflow.body().is_some_and(|flow| flow.is_gone);
            return if is_over { Some(Some(self.end_message(asgi)?)) } else { Some(None) };
        };
        self.keep_what_is_left(line);
        if self.goodbye.is_some() {
            return Some(Some(self.last_message(asgi)?));
        }
        match line.take() {
            Some(received) => Some(Some(received_message(asgi, received.kind, &received.payload)?)),
            None => Some(None),
        }
    }

    /// The next of the messages that are left, and when there is none the end. `None`: an exception is set.
    pub fn last_message(&mut self, asgi: &Asgi) -> Option<Object> {
        match self.left.pop_front() {
            Some(received) => received_message(asgi, received.kind, &received.payload),
            None => self.end_message(asgi),
        }
    }

    /// The connection ends before the application has taken all: what it has not yet is ours from then on.
    fn keep_what_is_left(&mut self, line: &mut Line) {
        if let (None, Some(goodbye)) = (&self.goodbye, line.goodbye()) {
            self.goodbye = Some(goodbye.clone());
            self.left.extend(std::iter::from_fn(|| line.take()));
        }
    }

    /// Whether `receive` would find something.
    pub fn has_message(&self, inflow: &mut Inflow) -> bool {
        match inflow {
            Inflow::Messages(line) => self.goodbye.is_some() || line.has_news(),
            Inflow::Body(flow) => self.is_complete() || self.is_lost || flow.is_gone,
        }
    }

    /// True: a waiting `send()` may go on.
    pub fn go_on(&mut self, reply: &mut Reply, inflow: &mut Inflow) -> bool {
        match (&mut self.stage, inflow) {
            (Stage::Refusing(http), _) => http.go_on(reply),
            (_, Inflow::Messages(line)) => {
                self.keep_what_is_left(line);
                // After the end nobody waits for room. A client that has gone is told by an exception, which follows.
                !(reply.client_is_gone() || line.is_open() && line.is_behind(reply))
            }
            _ => true,
        }
    }

    /// `websocket.disconnect`. `None`: an exception is set.
    fn end_message(&self, asgi: &Asgi) -> Option<Object> {
        let (code, reason) = self.goodbye.as_ref().map_or((ABNORMAL, ""), |goodbye| (goodbye.code, goodbye.reason.as_str()));
        let message = message(asgi, &asgi.names.websocket_disconnect)?;
        // SAFETY: the results are new; the dictionary takes references of its own.
        unsafe {
            let code = Object::owned(ffi::PyLong_FromLong(code.into()))?;
            names::set(&message, &asgi.names.code, code.as_ptr())?;
            names::set(&message, &asgi.names.reason, text(reason.as_bytes())?.as_ptr())?;
        }
        Some(message)
    }

    /// `None`: an exception is set.
    fn act(&mut self, asgi: &'static Asgi, act: Act, reply: &mut Reply, inflow: &mut Inflow) -> Option<Said> {
        match (&mut self.stage, act) {
            (Stage::Connecting { .. }, Act::Accept { subprotocol, headers }) => {
                self.accept(asgi, subprotocol.as_ref(), &headers, reply, inflow)
            }
            (Stage::Connecting { .. }, Act::Close { .. }) => {
                // ASGI, "Close": before the handshake is accepted, the server answers 403.
                reply.answer(403, "Forbidden", "Forbidden");
                reply.advance();
                self.stage = Stage::Closed;
                Some(Said::Done)
            }
            (Stage::Connecting { .. }, Act::Response(act)) => {
                let mut http = HttpTalk::new();
                let said = http.say_act(asgi, act, reply)?;
                self.stage = Stage::Refusing(http);
                Some(said)
            }
            (Stage::Refusing(http), Act::Response(act)) => http.say_act(asgi, act, reply),
            (Stage::Open, Act::Text(payload)) => {
                // SAFETY: a str that lives as long as `payload`.
                match unsafe { text_of(payload.as_ptr()) } {
                    Some(text) => self.send(MessageKind::Text, text, asgi, reply, inflow),
                    None => asgi.raise_value("'text' has lone surrogates, which UTF-8 can't say"),
                }
            }
            (Stage::Open, Act::Binary(payload)) => {
                // SAFETY: a bytes object that lives as long as `payload`.
                self.send(MessageKind::Binary, unsafe { bytes_of(payload.as_ptr()) }, asgi, reply, inflow)
            }
            (Stage::Open, Act::Close { code, reason }) => {
                // SAFETY: a str that lives as long as `reason`.
                let Some(text) = reason.as_ref().map_or(Some(&b""[..]), |reason| unsafe { text_of(reason.as_ptr()) }) else {
                    return asgi.raise_value("'reason' has lone surrogates, which UTF-8 can't say");
                };
                if !may_be_sent(code) {
                    return asgi.raise_value(&format!(
                        "the close code {code} can't be sent: 1000 to 1003, 1007 to 1014 and 3000 to 4999 can"
                    ));
                }
                if let Inflow::Messages(line) = inflow {
                    line.close(code, &String::from_utf8_lossy(text), reply);
                    self.goodbye =
                        line.goodbye().cloned().or(Some(Goodbye { code, reason: String::from_utf8_lossy(text).into_owned() }));
                }
                self.stage = Stage::Closed;
                Some(Said::Done)
            }
            (Stage::Connecting { .. }, _) => asgi.raise_runtime("the WebSocket is neither accepted nor refused yet"),
            (Stage::Open, _) => asgi.raise_runtime("the WebSocket was accepted before"),
            (Stage::Refusing(_), _) => asgi.raise_runtime("the WebSocket was refused with a response; only its body may follow"),
            (Stage::Closed, _) => asgi.raise_runtime("the WebSocket is closed: nothing may follow"),
        }
    }

    fn accept(
        &mut self,
        asgi: &'static Asgi,
        subprotocol: Option<&Object>,
        headers: &Headers,
        reply: &mut Reply,
        inflow: &mut Inflow,
    ) -> Option<Said> {
        // SAFETY: a str that lives through this call. One that UTF-8 can't say is no token either.
        let chosen = subprotocol.map(|name| unsafe { text_of(name.as_ptr()) }.unwrap_or_default());
        let mut kept: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let read = headers.each(|name, value| {
            let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
            if is(b"sec-websocket-protocol") || is(b"sec-websocket-accept") || is(b"sec-websocket-extensions") {
                return Err(String::from_utf8_lossy(name).into_owned());
            }
            kept.push((name.to_vec(), value.to_vec()));
            Ok(())
        });
        if let Err(name) = read {
            return asgi.raise_value(&format!("the header {name:?} is the server's to set; a subprotocol is 'subprotocol'"));
        }
        let fields: Vec<(&[u8], &[u8])> = kept.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        match self.handshake.accept(reply, chosen, &fields) {
            Ok(line) => {
                *inflow = Inflow::Messages(Box::new(line));
                self.stage = Stage::Open;
                Some(Said::Done)
            }
            Err(refusal) => asgi.raise_value(&format!("a header or the subprotocol is refused: {refusal}")),
        }
    }

    fn send(
        &mut self,
        kind: MessageKind,
        payload: &[u8],
        asgi: &'static Asgi,
        reply: &mut Reply,
        inflow: &mut Inflow,
    ) -> Option<Said> {
        let Inflow::Messages(line) = inflow else { return asgi.raise_gone() };
        if line.is_open() {
            line.say(kind, payload, reply);
        }
        if !line.is_open() || reply.client_is_gone() {
            return asgi.raise_gone();
        }
        Some(if line.is_behind(reply) { Said::Wait } else { Said::Done })
    }
}

fn message(asgi: &Asgi, kind: &Object) -> Option<Object> {
    // SAFETY: the result is new.
    let message = unsafe { Object::owned(ffi::PyDict_New())? };
    names::set(&message, &asgi.names.kind, kind.as_ptr())?;
    Some(message)
}

/// `websocket.receive`. `None`: an exception is set.
fn received_message(asgi: &Asgi, kind: MessageKind, payload: &[u8]) -> Option<Object> {
    let names = &asgi.names;
    let message = message(asgi, &names.websocket_receive)?;
    // Frameworks look for either key, and expect None in the other.
    // SAFETY: None is immortal.
    let none = unsafe { ffi::Py_None() };
    match kind {
        MessageKind::Text => {
            names::set(&message, &names.text, text(payload)?.as_ptr())?;
            names::set(&message, &names.bytes, none)?;
        }
        MessageKind::Binary => {
            names::set(&message, &names.bytes, super::scope::bytes(payload)?.as_ptr())?;
            names::set(&message, &names.text, none)?;
        }
    }
    Some(message)
}

/// A str from UTF-8. `None`: an exception is set.
fn text(utf8: &[u8]) -> Option<Object> {
    // SAFETY: the pointer and length are those of a slice; the result is new.
    unsafe { Object::owned(ffi::PyUnicode_DecodeUTF8(utf8.as_ptr().cast(), utf8.len() as isize, std::ptr::null())) }
}
