//! HTTP in ASGI (ASGI 3, "HTTP"): converts the application's messages into the response, and the request's body into messages.
//!
//! A message that breaks the specification raises an exception in the application, at the line that sent it; nothing of the
//! message has been sent to the client then. It does not know about scopes or tasks. The event loop's thread runs all of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bolide_engine::answer::{Answer, Failure, FileIs, Interim, Pushed, ServerFields, Stage, Status, Then, When};
use bolide_engine::request_stream::RequestStream;
use bolide_files::named::NamedFile;

use super::context::Asgi;
use super::events::{ReceiveEvent, SendError, SendResult};
use super::messages::{Headers, Message, file_part, path_file};
use crate::exceptions::{raise, runtime_error};
use crate::object::{Object, bytes_of};

/// How long an application may send parts of a dropped body without a length, as an event stream does for HEAD. After that its
/// `send()` raises that the client has disconnected, which ends it.
const ENDLESS_BODY_TIME: Duration = Duration::from_secs(10);

/// The stages of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseStage {
    /// Nothing was sent.
    Fresh,
    /// `http.response.start`
    Started,
    /// The body is complete, trailers are expected.
    Trailers,
    /// The answer is complete without a body, but the application still sends parts of one.
    Silent,
    Complete,
}

pub struct HttpState {
    stage: ResponseStage,
    /// Parts that a slow client has not taken yet. A `send()` waits for each, so the application bounds them.
    unsent: VecDeque<UnsentPart>,
    is_disconnected: bool,
    /// Since when parts of a body without a length have been dropped.
    silent_since: Option<Instant>,
}

/// A part of the body, the number of its bytes that were taken, and whether more follow.
struct UnsentPart {
    part: Object,
    taken: usize,
    more: bool,
}

/// An event of the application's `send()`, after it was read from Python.
pub enum HttpSendEvent {
    Start {
        status: u16,
        headers: Headers,
        trailers: bool,
    },
    Body {
        part: Object,
        more: bool,
    },
    /// The file is taken out when it is passed on.
    File {
        file: Option<std::fs::File>,
        offset: i64,
        length: u64,
        more: bool,
    },
    Trailers {
        headers: Headers,
        more: bool,
    },
    EarlyHints {
        links: Vec<Object>,
    },
    Informational {
        status: u16,
        headers: Headers,
    },
}

impl HttpSendEvent {
    /// The application answers that the request's body is too large.
    pub fn refuses_body(&self) -> bool {
        matches!(self, HttpSendEvent::Start { status: 413, .. })
    }
}

/// Reads a message. `None`: an exception is set.
pub fn read(asgi: &'static Asgi, message: &Message<'_>) -> Option<HttpSendEvent> {
    let names = &asgi.names;
    match message.kind() {
        b"http.response.start" => read_start(asgi, message),
        b"http.response.body" => read_body(asgi, message),
        b"http.response.pathsend" => Some(match path_file(message)? {
            NamedFile::Small(part) => HttpSendEvent::Body { part, more: false },
            NamedFile::Large(_, 0) => HttpSendEvent::Body { part: asgi.empty.clone(), more: false },
            NamedFile::Large(file, length) => HttpSendEvent::File { file: Some(file), offset: 0, length, more: false },
        }),
        b"http.response.zerocopysend" => {
            let (file, offset, length) = file_part(message)?;
            let more = message.flag(&names.more_body)?;
            // An empty part has no frame.
            let is_empty = length == 0;
            Some(if is_empty {
                HttpSendEvent::Body { part: asgi.empty.clone(), more }
            } else {
                HttpSendEvent::File { file: Some(file), offset, length, more }
            })
        }
        b"http.response.trailers" => {
            // A flag may run code of the application, which must not change a list that was checked before.
            let more = message.flag(&names.more_trailers)?;
            Some(HttpSendEvent::Trailers { headers: Headers::read(asgi, message.get(&names.headers))?, more })
        }
        b"http.response.early_hint" => Some(HttpSendEvent::EarlyHints { links: message.links()? }),
        b"http.response.informational" if !asgi.offers_informational => {
            raise(runtime_error(), "'http.response.informational' is not offered; 'asgi-extensions = informational' offers it")
        }
        b"http.response.informational" => {
            let status = message.number(&names.status, "status")?;
            Some(HttpSendEvent::Informational { status, headers: Headers::read(asgi, message.get(&names.headers))? })
        }
        _ => message.unknown("of an HTTP request"),
    }
}

/// `http.response.start`, and `websocket.http.response.start` for a refused WebSocket.
pub fn read_start(asgi: &'static Asgi, message: &Message<'_>) -> Option<HttpSendEvent> {
    let names = &asgi.names;
    // Before the headers, because it may run code of the application.
    let trailers = message.flag(&names.trailers)?;
    let status = message.number(&names.status, "status")?;
    Some(HttpSendEvent::Start { status, headers: Headers::read(asgi, message.get(&names.headers))?, trailers })
}

/// `http.response.body`, and `websocket.http.response.body` for a refused WebSocket.
pub fn read_body(asgi: &'static Asgi, message: &Message<'_>) -> Option<HttpSendEvent> {
    let names = &asgi.names;
    Some(HttpSendEvent::Body { part: message.bytes(&names.body, "body")?, more: message.flag(&names.more_body)? })
}

impl HttpState {
    pub fn new() -> HttpState {
        HttpState { stage: ResponseStage::Fresh, unsent: VecDeque::new(), is_disconnected: false, silent_since: None }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.stage, ResponseStage::Complete | ResponseStage::Silent) && self.unsent.is_empty()
    }

    /// The response does not have a body, so it is complete: [`HttpState::swallow`] handles later messages, wherever the
    /// connection is.
    pub fn is_silent(&self) -> bool {
        self.stage == ResponseStage::Silent
    }

    /// Drops a part of a body that the answer does not have. The application continues to its end, with its work after the
    /// answer.
    pub fn swallow(&mut self, event: &HttpSendEvent) -> Result<SendResult, SendError> {
        let more = match event {
            HttpSendEvent::Body { more, .. } | HttpSendEvent::File { more, .. } | HttpSendEvent::Trailers { more, .. } => *more,
            HttpSendEvent::Start { .. } | HttpSendEvent::EarlyHints { .. } | HttpSendEvent::Informational { .. } => false,
        };
        if !more {
            self.stage = ResponseStage::Complete;
            return Ok(SendResult::Done);
        }
        if self.silent_since.is_some_and(|since| since.elapsed() >= ENDLESS_BODY_TIME) {
            self.disconnect();
            return Err(SendError::Gone);
        }
        Ok(SendResult::Pause)
    }

    pub fn has_begun(&self) -> bool {
        self.stage != ResponseStage::Fresh
    }

    pub fn is_disconnected(&self) -> bool {
        self.is_disconnected
    }

    pub fn disconnect(&mut self) {
        self.is_disconnected = true;
        self.unsent.clear();
    }

    /// Returns `http.request` or `http.disconnect`, if there is one.
    pub fn receive(&mut self, answer: &mut Answer<'_>, request_stream: &mut RequestStream) -> ReceiveEvent {
        let Some(flow) = request_stream.body() else { return ReceiveEvent::Nothing };
        if self.is_complete() || self.is_disconnected {
            return ReceiveEvent::Disconnect;
        }
        flow.is_wanted = false;
        if let Some(part) = flow.take() {
            return ReceiveEvent::Part(part);
        }
        if flow.is_gone {
            return ReceiveEvent::Disconnect;
        }
        flow.is_wanted = true;
        if flow.owes_continue && answer.stage() < Stage::Body {
            // The application wants the body now.
            flow.owes_continue = false;
            let _always_may = answer.inform(Interim::Continue);
        }
        ReceiveEvent::Nothing
    }

    /// Whether `receive` would return a message.
    pub fn has_message(&self, request_stream: &mut RequestStream) -> bool {
        let is_over = self.is_complete() || self.is_disconnected;
        is_over || request_stream.body().is_none_or(|flow| flow.has_part() || flow.is_gone)
    }

    /// The client may have taken some bytes. True: a waiting `send()` may continue.
    pub fn go_on(&mut self, answer: &mut Answer<'_>) -> bool {
        while !answer.sends_file()
            && let Some(UnsentPart { part, taken, more }) = self.unsent.pop_front()
        {
            // SAFETY: a bytes object that lives as long as `part`.
            let rest = unsafe { &bytes_of(part.as_ptr())[taken..] };
            match answer.push(rest, When::Now) {
                Pushed::All if more => {}
                Pushed::All => self.end_body(answer),
                Pushed::Part(further) => {
                    self.unsent.push_front(UnsentPart { part, taken: taken + further, more });
                    return false;
                }
                // The engine notices it too, and gives the exchange up.
                Pushed::Gone => return false,
            }
        }
        self.unsent.is_empty() && (self.stage == ResponseStage::Complete || answer.has_room())
    }

    /// Returns an error message if the event is not allowed in this stage.
    fn mistake(&self, event: &HttpSendEvent) -> Option<&'static str> {
        match (self.stage, event) {
            (
                ResponseStage::Fresh,
                HttpSendEvent::Start { .. } | HttpSendEvent::EarlyHints { .. } | HttpSendEvent::Informational { .. },
            ) => None,
            (ResponseStage::Fresh, _) => Some("'http.response.start' was not sent yet"),
            (ResponseStage::Started, HttpSendEvent::Body { .. } | HttpSendEvent::File { .. }) => None,
            (ResponseStage::Started, HttpSendEvent::Start { .. }) => {
                Some("'http.response.start' was already sent, and may be sent only once")
            }
            (ResponseStage::Started, HttpSendEvent::Trailers { .. }) => {
                Some("'http.response.trailers' must follow the body, and only if 'http.response.start' announced it")
            }
            (ResponseStage::Trailers, HttpSendEvent::Trailers { .. }) => None,
            (ResponseStage::Trailers, _) => Some("the body is complete; only 'http.response.trailers' may follow"),
            (ResponseStage::Started, HttpSendEvent::EarlyHints { .. }) => Some("early hints must precede 'http.response.start'"),
            (ResponseStage::Started, HttpSendEvent::Informational { .. }) => {
                Some("'http.response.informational' must precede 'http.response.start'")
            }
            (ResponseStage::Silent, HttpSendEvent::Body { .. } | HttpSendEvent::File { .. } | HttpSendEvent::Trailers { .. }) => {
                None
            }
            (ResponseStage::Silent | ResponseStage::Complete, _) => Some("the response is already complete"),
        }
    }

    /// Refuses an event that is not allowed in this stage, or that follows the client's disconnect, before anything is sent.
    pub fn may_send(&self, event: &HttpSendEvent) -> Result<(), SendError> {
        match self.mistake(event) {
            Some(mistake) => SendError::mistake(mistake),
            None if self.is_disconnected => Err(SendError::Gone),
            None => Ok(()),
        }
    }

    /// Applies an event that is allowed in this stage.
    pub fn apply(&mut self, event: &mut HttpSendEvent, answer: &mut Answer<'_>) -> Result<SendResult, SendError> {
        match event {
            HttpSendEvent::Start { status, headers, trailers } => {
                start(*status, headers, *trailers, answer)?;
                self.stage = ResponseStage::Started;
                Ok(SendResult::Done)
            }
            HttpSendEvent::Body { part, more } => self.body(part, *more, answer),
            HttpSendEvent::File { file, offset, length, more } => self.file(file, *offset, *length, *more, answer),
            HttpSendEvent::Trailers { headers, more } => {
                if answer.sends_file() {
                    return SendError::mistake("trailers can't be sent while the send() of a file still waits for a slow client");
                }
                headers
                    .each(|name, value| answer.trailer(name, value))
                    .map_err(|refusal| SendError::Value(format!("the trailer {refusal}")))?;
                if !*more {
                    answer.finish(Then::RequestEnds);
                    self.stage = ResponseStage::Complete;
                }
                Ok(SendResult::Done)
            }
            HttpSendEvent::EarlyHints { links } => {
                // SAFETY: `links` are bytes objects, which live as long as the vector.
                let links: Vec<&[u8]> = links.iter().map(|link| unsafe { bytes_of(link.as_ptr()) }).collect();
                match answer.inform(Interim::EarlyHints(&links)) {
                    Ok(()) => Ok(SendResult::Done),
                    Err(refusal) => Err(SendError::Value(format!("the early hint is refused: {refusal}"))),
                }
            }
            HttpSendEvent::Informational { status, headers } => inform(*status, headers, answer),
        }
    }

    /// Sends a file, in turns of the engine.
    fn file(
        &mut self,
        file: &mut Option<std::fs::File>,
        offset: i64,
        length: u64,
        more: bool,
        answer: &mut Answer<'_>,
    ) -> Result<SendResult, SendError> {
        if !self.unsent.is_empty() || answer.sends_file() {
            return SendError::mistake("a file can't be sent while another send() still waits for a slow client");
        }
        let Some(file) = file.take() else { return Ok(SendResult::Done) };
        let is = if more || answer.body().has_trailers { FileIs::APart } else { FileIs::TheBody };
        answer.push_file(file, offset, length, is);
        if more {
            answer.flush();
        } else {
            self.end_body(answer);
        }
        self.after_part(more, answer)
    }

    /// Nothing has been sent yet: the client can still get an error status.
    fn check_length(&self, length: usize, more: bool, answer: &Answer<'_>) -> Result<(), SendError> {
        match answer.body().announced.filter(|_| answer.stage() < Stage::Body) {
            Some(announced) if length as u64 > announced || !more && (length as u64) < announced => {
                SendError::mistake(format!("the body has {length} bytes, and its Content-Length is {announced}"))
            }
            _ => Ok(()),
        }
    }

    fn body(&mut self, part: &Object, more: bool, answer: &mut Answer<'_>) -> Result<SendResult, SendError> {
        // SAFETY: a bytes object that lives as long as `part`.
        let bytes = unsafe { bytes_of(part.as_ptr()) };
        self.check_length(bytes.len(), more, answer)?;
        if !more && answer.stage() < Stage::Body && !answer.body().has_trailers {
            answer.set_length(bytes.len() as u64);
        }
        if more && answer.body().is_dropped && !answer.body().has_trailers {
            return self.head_alone(bytes, answer);
        }
        if !self.unsent.is_empty() || answer.sends_file() {
            // Another task of the application is sending too: parts are sent in their order.
            self.unsent.push_back(UnsentPart { part: part.clone(), taken: 0, more });
            if !more {
                self.stage = ResponseStage::Complete;
            }
            return Ok(SendResult::Wait);
        }
        if more && bytes.is_empty() {
            // The client of a stream gets its head immediately.
            answer.flush();
        }
        match answer.push(bytes, if more { When::Now } else { When::WithTheNext }) {
            Pushed::Gone => {
                self.disconnect();
                return Err(SendError::Gone);
            }
            Pushed::Part(taken) => {
                self.unsent.push_back(UnsentPart { part: part.clone(), taken, more });
                if !more {
                    self.stage = ResponseStage::Complete;
                }
                return Ok(SendResult::Wait);
            }
            Pushed::All => {}
        }
        if !more {
            self.end_body(answer);
        }
        self.after_part(more, answer)
    }

    /// The first part of a dropped body: the answer is complete with its head, and the client may disconnect.
    fn head_alone(&mut self, bytes: &[u8], answer: &mut Answer<'_>) -> Result<SendResult, SendError> {
        if bytes.is_empty() {
            answer.flush();
        } else if let Pushed::Gone = answer.push(bytes, When::WithTheNext) {
            self.disconnect();
            return Err(SendError::Gone);
        }
        self.silent_since = (!answer.body().has_length).then(Instant::now);
        answer.finish(Then::RequestEnds);
        self.stage = ResponseStage::Silent;
        Ok(SendResult::Pause)
    }

    fn after_part(&mut self, more: bool, answer: &mut Answer<'_>) -> Result<SendResult, SendError> {
        if let Some(fault) = answer.length_fault() {
            if answer.stage() < Stage::Done {
                answer.fail(Failure::CutOff);
            }
            self.stage = ResponseStage::Complete;
            return SendError::mistake(format!("the application's answer {fault}"));
        }
        // Trailers that follow a file must not overtake it.
        let goes_on = more || self.stage == ResponseStage::Trailers;
        Ok(if goes_on && !answer.has_room() { SendResult::Wait } else { SendResult::Done })
    }

    /// The application may continue with other work, and its answer must not wait for that.
    fn end_body(&mut self, answer: &mut Answer<'_>) {
        if answer.body().has_trailers {
            self.stage = ResponseStage::Trailers;
            if answer.stage() == Stage::Body {
                answer.flush();
            }
        } else {
            answer.finish(Then::RequestEnds);
            self.stage = ResponseStage::Complete;
        }
    }
}

/// `http.response.informational`. Its fields are copied, because there are few of them, and the answer takes them together.
#[cold]
fn inform(status: u16, headers: &Headers, answer: &mut Answer<'_>) -> Result<SendResult, SendError> {
    let mut fields = Vec::new();
    headers
        .each(|name, value| {
            fields.push((name.to_vec(), value.to_vec()));
            Ok(())
        })
        .map_err(|refusal| SendError::Value(format!("the header {refusal}")))?;
    let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    match answer.inform(Interim::Status(status, &fields)) {
        Ok(()) => Ok(SendResult::Done),
        Err(refusal) => Err(SendError::Value(format!("the informational response is refused: {refusal}"))),
    }
}

/// `http.response.start`. If it is refused, nothing was begun.
fn start(status: u16, headers: &Headers, trailers: bool, answer: &mut Answer<'_>) -> Result<(), SendError> {
    if let Err(refusal) = answer.begin(Status::Code(status)) {
        return Err(SendError::Value(format!("the status {status} is refused: {refusal}")));
    }
    if trailers {
        answer.announce_trailers();
    }
    // ASGI, "http.response.start": the server does the framing. An application that is a proxy passes such fields on.
    let server_fields = ServerFields::Dropped { frames_chunks: false };
    let set = headers.each(|name, value| answer.field(name, value, server_fields).map(|_| ()));
    set.map_err(|refusal| {
        answer.retract();
        SendError::Value(format!("the header {refusal}"))
    })
}
