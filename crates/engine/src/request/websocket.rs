//! WebSocket (RFC 6455) on a connection that the application keeps: the handshake, messages in both directions, pings, and the
//! closing handshake.
//!
//! Frames are encoded and decoded by the protocol room. It does not know about languages or the event loop. Worker threads run
//! it.

use std::cell::RefCell;
use std::collections::VecDeque;

use bolide_contract::clock::now_ms;
use bolide_contract::settings::WebSocket as Settings;
use bolide_protocol::Fault;
use bolide_protocol::http1::head::Field;
use bolide_protocol::http1::is_token;
pub use bolide_protocol::websocket::MessageKind;
pub use bolide_protocol::websocket::close::may_be_sent;
use bolide_protocol::websocket::close::{ABNORMAL, GOING_AWAY, NO_STATUS, SERVICE_RESTART};
use bolide_protocol::websocket::{Deflate, Deflation, Event, Inflation, Limits, Receiver, Violation, handshake, send};

use crate::answer::Answer;
use crate::response::{HeadRefusal, Pushed, ResponseWriter, When};
use crate::scheduling::turn::TurnBudget;

/// Maximum number of messages, and of their bytes, that wait for the application. At the limit the client is not read from.
const WAITING_MESSAGES: usize = 1024;
const WAITING_BYTES: usize = 64 * 1024;

/// The reason in the close frame of a worker that is replaced.
const RESTARTING: &str = "the server is restarting";

/// Milliseconds that the application has to answer the complete messages before a client's protocol violation.
const ANSWER_MS: u64 = 5_000;

/// Milliseconds that a client has to answer a close frame.
const CLOSE_MS: u64 = 5_000;

/// The same at shutdown: the whole instance waits for this client. Then its connection is closed without its answer, as a server
/// may do at any time (RFC 6455 section 7.1.1: "an endpoint MAY close the connection via any means available when required").
const STOP_CLOSE_MS: u64 = 1_000;

/// A frame buffer beyond this size is freed after its message.
const KEPT_BYTES: usize = 64 * 1024;

/// Never, in monotonic milliseconds.
const NEVER_MS: u64 = u64::MAX;

/// Buffers of a thread: connections have none (with no context takeover, RFC 7692 section 7.1.1).
#[derive(Default)]
struct Workbench {
    inflation: Inflation,
    deflation: Deflation,
    frame: Vec<u8>,
}

thread_local! {
    static WORKBENCH: RefCell<Workbench> = RefCell::default();
}

/// A valid request to switch to WebSocket.
#[derive(Debug, Clone)]
pub struct Handshake {
    /// `None` on an HTTP/2 stream, where the answer can't be mistaken for another request's (RFC 8441 section 5).
    accept: Option<[u8; handshake::ACCEPT_BYTES]>,
    deflate: Option<Deflate>,
    settings: Settings,
}

/// A message from the client. A text is valid UTF-8.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: MessageKind,
    pub payload: Vec<u8>,
}

/// The close code and reason that the application receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseStatus {
    pub code: u16,
    pub reason: String,
}

/// The stages of a WebSocket's end (RFC 6455 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketStage {
    Open,
    /// A close frame has been sent; the client's has to arrive until then, in monotonic milliseconds.
    Closing {
        until_ms: u64,
    },
    /// The WebSocket has ended; pending data is sent before the connection is closed.
    Closed,
}

/// A WebSocket.
pub struct WebSocket {
    receiver: Receiver,
    deflate: Option<Deflate>,
    stage: SocketStage,
    close_status: Option<CloseStatus>,
    waiting: VecDeque<Message>,
    waiting_bytes: usize,
    /// The application has received all messages and waits for another one.
    is_wanted: bool,
    /// A client's protocol violation after messages that the application has not answered yet, and the time, in monotonic
    /// milliseconds, at which it ends the connection in any case.
    violation: Option<(Violation, u64)>,
    /// Frames that the client was too slow to read, and the number of bytes of them that have been sent.
    outgoing: Vec<u8>,
    sent: usize,
    /// The payload of the latest ping that came while the client was behind: at most 125 bytes (RFC 6455 section 5.5). Its pong
    /// is sent when the client has caught up.
    unanswered_ping: Option<Vec<u8>>,
    ping_interval_ms: Option<u64>,
    ping_timeout_ms: u64,
    /// When the client last sent data, and when an unanswered ping was sent, in monotonic milliseconds.
    heard_ms: u64,
    pinged_ms: Option<u64>,
    /// Since when the client has read none of the pending data, in monotonic milliseconds, and the number of bytes it had read by
    /// then.
    stuck_ms: Option<u64>,
    taken_bytes: u64,
    /// When the draining worker closes the WebSocket, and with which code.
    leave_ms: u64,
    leave_code: u16,
}

/// Checks whether an HTTP/1.1 request with an Upgrade field asks for WebSocket.
///
/// # Errors
/// 426 for another version than 13, 400 for a malformed key or list of extensions (RFC 6455 section 4.2).
pub fn asked_by_fields(fields: &[Field], bytes: &[u8], settings: &Settings) -> Result<Option<Handshake>, Fault> {
    let all = |wanted| joined(fields, bytes, wanted);
    if !names_websocket(&all(b"upgrade")) {
        return Ok(None);
    }
    let asked = Asked {
        version: &all(b"sec-websocket-version"),
        key: Some(&all(b"sec-websocket-key")),
        extensions: &all(b"sec-websocket-extensions"),
    };
    asked.judge(settings).map(Some)
}

/// Like [`asked_by_fields`], for an HTTP/2 request that asks for WebSocket by its method (RFC 8441 section 4).
///
/// # Errors
/// As [`asked_by_fields`].
pub fn asked_by_connect(fields: &[Field], bytes: &[u8], settings: &Settings) -> Result<Handshake, Fault> {
    let version = joined(fields, bytes, b"sec-websocket-version");
    let extensions = joined(fields, bytes, b"sec-websocket-extensions");
    Asked { version: &version, key: None, extensions: &extensions }.judge(settings)
}

/// Joins the values of all fields with this name as a list.
fn joined(fields: &[Field], bytes: &[u8], wanted: &[u8]) -> Vec<u8> {
    let mut joined: Vec<u8> = Vec::new();
    for field in fields.iter().filter(|field| field.name.of(bytes).eq_ignore_ascii_case(wanted)) {
        if !joined.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(field.value.of(bytes));
    }
    joined
}

/// Like [`asked_by_fields`], for the variables of a reverse proxy.
///
/// # Errors
/// As [`asked_by_fields`].
pub fn asked_by_variables<'a>(find: &dyn Fn(&[u8]) -> &'a [u8], settings: &Settings) -> Result<Option<Handshake>, Fault> {
    if find(b"REQUEST_METHOD") != b"GET" || !names_websocket(find(b"HTTP_UPGRADE")) {
        return Ok(None);
    }
    let asked = Asked {
        version: find(b"HTTP_SEC_WEBSOCKET_VERSION"),
        key: Some(find(b"HTTP_SEC_WEBSOCKET_KEY")),
        extensions: find(b"HTTP_SEC_WEBSOCKET_EXTENSIONS"),
    };
    asked.judge(settings).map(Some)
}

fn names_websocket(upgrade: &[u8]) -> bool {
    upgrade.split(|byte| *byte == b',').any(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}

/// The fields of a request to switch.
struct Asked<'a> {
    version: &'a [u8],
    /// Only in HTTP/1.
    key: Option<&'a [u8]>,
    extensions: &'a [u8],
}

impl Asked<'_> {
    fn judge(&self, settings: &Settings) -> Result<Handshake, Fault> {
        if self.version != b"13" {
            return Err(Fault::new(426, "WebSocket version 13 is required."));
        }
        let accept = self.key.map(handshake::accept_key).transpose()?;
        let deflate =
            if settings.compression && !self.extensions.is_empty() { handshake::negotiate(self.extensions)? } else { None };
        Ok(Handshake { accept, deflate, settings: settings.clone() })
    }
}

impl Handshake {
    /// Answers 101 (in HTTP/2, 200) with the application's subprotocol and fields, and opens the WebSocket.
    ///
    /// # Errors
    /// An invalid field or subprotocol; nothing has been sent in this case.
    pub fn accept(
        &self,
        answer: &mut Answer<'_>,
        subprotocol: Option<&[u8]>,
        further: &[(&[u8], &[u8])],
    ) -> Result<WebSocket, HeadRefusal> {
        let mut fields: Vec<(&[u8], &[u8])> = Vec::new();
        if let Some(chosen) = subprotocol {
            // RFC 6455 section 11.3.4: the response contains a single subprotocol, which must be a token.
            if !is_token(chosen) {
                return Err("the subprotocol is not a token (letters, digits and !#$%&'*+-.^_`|~)");
            }
            fields.push((b"Sec-WebSocket-Protocol", chosen));
        }
        fields.extend_from_slice(further);
        let extensions = self.deflate.map(|deflate| {
            let mut value = Vec::new();
            deflate.write_response(&mut value);
            value
        });
        answer.writer_mut().switch_to_websocket(
            self.accept.as_ref().map(|accept| &accept[..]),
            extensions.as_deref(),
            &fields,
        )?;
        let limits = Limits { message_bytes: self.settings.message_bytes };
        Ok(WebSocket {
            receiver: Receiver::new(limits, self.deflate),
            deflate: self.deflate,
            stage: SocketStage::Open,
            close_status: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_wanted: false,
            violation: None,
            outgoing: Vec::new(),
            sent: 0,
            unanswered_ping: None,
            ping_interval_ms: self.settings.ping_interval_ms,
            ping_timeout_ms: self.settings.ping_timeout_ms,
            heard_ms: now_ms(),
            pinged_ms: None,
            stuck_ms: None,
            taken_bytes: 0,
            leave_ms: NEVER_MS,
            leave_code: SERVICE_RESTART,
        })
    }
}

impl WebSocket {
    /// Returns the next message for the application.
    pub fn take(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front();
        self.is_wanted = message.is_none();
        let message = message?;
        self.waiting_bytes -= message.payload.len();
        Some(message)
    }

    /// How the WebSocket ended. Earlier messages may still wait.
    pub fn close_status(&self) -> Option<&CloseStatus> {
        self.close_status.as_ref()
    }

    pub fn has_event(&self) -> bool {
        !self.waiting.is_empty() || self.close_status.is_some()
    }

    /// Whether the application may still send.
    pub fn is_open(&self) -> bool {
        self.stage == SocketStage::Open
    }

    /// The client is slow to read: no more data should be sent.
    pub fn is_behind(&self, answer: &Answer<'_>) -> bool {
        self.has_no_room(answer.writer())
    }

    fn has_no_room(&self, response: &ResponseWriter<'_>) -> bool {
        !self.outgoing.is_empty() || response.is_behind()
    }

    /// Sends a message. The payload of a text must be UTF-8. Data that the client does not read immediately is buffered.
    pub fn say(&mut self, kind: MessageKind, payload: &[u8], answer: &mut Answer<'_>) {
        let response = answer.writer_mut();
        WORKBENCH.with_borrow_mut(|bench| {
            let Workbench { deflation, frame, .. } = bench;
            frame.clear();
            send::encode_message(kind, payload, self.deflate.as_ref().map(|deflate| (deflate, deflation)), frame);
            self.write(frame, response);
            if frame.capacity() > KEPT_BYTES {
                *frame = Vec::new();
            }
        });
        self.answer_ping(response);
    }

    /// Sends a close frame with this code and reason, which the application also receives.
    pub fn close(&mut self, code: u16, reason: &str, answer: &mut Answer<'_>) {
        self.begin_close(code, reason, answer.writer_mut());
    }

    fn begin_close(&mut self, code: u16, reason: &str, response: &mut ResponseWriter<'_>) {
        if self.stage != SocketStage::Open {
            return;
        }
        self.close_status.get_or_insert_with(|| CloseStatus { code, reason: reason.to_owned() });
        self.write_close(may_be_sent(code).then_some(code), reason, response);
        let most_ms = if self.leaves_for_good() { STOP_CLOSE_MS } else { CLOSE_MS };
        self.stage = SocketStage::Closing { until_ms: now_ms() + most_ms };
    }

    /// The number of bytes that may be read now; callers only compare it with 0.
    pub fn room(&self) -> usize {
        let is_full = match self.violation {
            // Input from the violation on is parsed again, with the same result, when its time has come.
            Some(_) => !self.is_wanted,
            None => self.waiting.len() >= WAITING_MESSAGES || self.waiting_bytes >= WAITING_BYTES,
        };
        if self.stage == SocketStage::Closed || is_full && self.stage == SocketStage::Open { 0 } else { WAITING_BYTES }
    }

    /// The client has disconnected without a close frame.
    pub fn hang_up(&mut self) {
        self.close_status.get_or_insert_with(|| CloseStatus { code: ABNORMAL, reason: String::new() });
        self.stage = SocketStage::Closed;
    }

    /// The worker leaves that has the client's connection and relays for it. The client is told, and can't answer any more.
    pub(crate) fn part(&mut self, response: &mut ResponseWriter<'_>) {
        if self.stage == SocketStage::Open {
            self.begin_close(SERVICE_RESTART, RESTARTING, response);
        }
        self.hang_up();
    }

    /// The worker drains: the WebSocket is closed at this time, in monotonic milliseconds. `for_good`: the instance stops, and
    /// there is no successor to reconnect to.
    pub(crate) fn leave_at(&mut self, when_ms: u64, for_good: bool) {
        self.leave_ms = self.leave_ms.min(when_ms);
        self.leave_code = if for_good { GOING_AWAY } else { SERVICE_RESTART };
        // It may be closing already.
        if let SocketStage::Closing { until_ms } = &mut self.stage
            && for_good
        {
            *until_ms = (*until_ms).min(when_ms + STOP_CLOSE_MS);
        }
    }

    /// The instance stops.
    fn leaves_for_good(&self) -> bool {
        self.leave_code == GOING_AWAY
    }

    /// The same immediately, for one that was not open yet when the worker began to drain.
    pub(crate) fn leave_late(&mut self, now_ms: u64, for_good: bool) {
        if self.leave_ms == NEVER_MS {
            self.leave_at(now_ms, for_good);
        }
    }

    /// Processes earlier input as far as there is room; the rest stays in `input`.
    pub(crate) fn take_in(&mut self, response: &mut ResponseWriter<'_>, input: &mut Vec<u8>, turn: &mut TurnBudget) {
        if !input.is_empty() && self.room() > 0 {
            let mut before = std::mem::take(input);
            let used = self.feed(&mut before, response, turn);
            input.extend_from_slice(&before[used..]);
        }
    }

    /// The client has sent data.
    pub(crate) fn hear(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.pinged_ms = None;
    }

    /// Sends pending data and enforces time limits: pings, the end of a client that sends nothing or reads nothing for
    /// `timeout_ms`, and the wait for its close frame.
    pub(crate) fn tend(&mut self, response: &mut ResponseWriter<'_>, now_ms: u64, timeout_ms: u64) {
        self.send_outgoing(response);
        self.answer_ping(response);
        self.look_after_slowness(response, now_ms, timeout_ms);
        if let Some((violation, until_ms)) = self.violation
            && until_ms <= now_ms
        {
            self.fail(violation, response);
        }
        if self.stage == SocketStage::Open && self.leave_ms <= now_ms {
            let reason = if self.leaves_for_good() { "the server is stopping" } else { RESTARTING };
            self.begin_close(self.leave_code, reason, response);
        }
        if self.stage == SocketStage::Open {
            self.look_after_silence(response, now_ms);
        }
        match self.stage {
            // Otherwise the unread data would delay the end even more, by the time limit of slow clients; and at shutdown, the
            // connection would linger for a client that has had its time.
            SocketStage::Closing { until_ms } if until_ms <= now_ms && (self.has_unsent(response) || self.leaves_for_good()) => {
                response.give_client_up();
            }
            SocketStage::Closing { until_ms } if until_ms <= now_ms => response.cut_off(),
            SocketStage::Closed if self.outgoing.is_empty() || response.client_is_gone() => response.finish(),
            _ => {}
        }
    }

    /// The next deadline in monotonic milliseconds; `timeout_ms` is the maximum time for which a client may read nothing.
    pub(crate) fn next_ms(&self, response_is_unsent: bool, timeout_ms: u64) -> u64 {
        let own = match self.stage {
            SocketStage::Open => {
                self.silence_ms().min(self.leave_ms).min(self.violation.map_or(NEVER_MS, |(_, until_ms)| until_ms))
            }
            SocketStage::Closing { until_ms } => until_ms,
            SocketStage::Closed => NEVER_MS,
        };
        if self.outgoing.is_empty() && !response_is_unsent {
            return own;
        }
        own.min(self.stuck_ms.unwrap_or_else(now_ms) + timeout_ms)
    }

    /// Whether sent data waits for the client.
    pub(crate) fn has_outgoing(&self, response: &ResponseWriter<'_>) -> bool {
        self.has_unsent(response)
    }

    fn has_unsent(&self, response: &ResponseWriter<'_>) -> bool {
        !self.outgoing.is_empty() || response.has_unsent()
    }

    /// When the client counts as silent. Without room its data is not read, so its silence is not counted.
    fn silence_ms(&self) -> u64 {
        if self.room() == 0 {
            return NEVER_MS;
        }
        match (self.pinged_ms, self.ping_interval_ms) {
            (Some(pinged_ms), _) => pinged_ms + self.ping_timeout_ms,
            (None, Some(interval_ms)) => self.heard_ms + interval_ms,
            (None, None) => NEVER_MS,
        }
    }

    fn look_after_silence(&mut self, response: &mut ResponseWriter<'_>, now_ms: u64) {
        if self.silence_ms() > now_ms {
            return;
        }
        if self.pinged_ms.is_some() {
            return self.vanish("the client did not answer a ping", response);
        }
        self.pinged_ms = Some(now_ms);
        self.write_control(|out| send::encode_ping(b"", out), response);
    }

    /// Data from the client does not count here: otherwise unread data could stay in memory without limit.
    fn look_after_slowness(&mut self, response: &mut ResponseWriter<'_>, now_ms: u64, timeout_ms: u64) {
        if !self.has_unsent(response) {
            self.stuck_ms = None;
            return;
        }
        let taken_bytes = response.taken_bytes();
        match self.stuck_ms {
            Some(stuck_ms) if taken_bytes == self.taken_bytes => {
                if stuck_ms + timeout_ms <= now_ms {
                    self.vanish("the client did not read", response);
                }
            }
            _ => {
                self.stuck_ms = Some(now_ms);
                self.taken_bytes = taken_bytes;
            }
        }
    }

    /// The client no longer responds, so a close frame would be useless.
    fn vanish(&mut self, reason: &str, response: &mut ResponseWriter<'_>) {
        self.close_status.get_or_insert_with(|| CloseStatus { code: ABNORMAL, reason: reason.to_owned() });
        self.stage = SocketStage::Closed;
        response.give_client_up();
    }

    /// Parses input into events; returns the number of bytes consumed. The rest waits for room.
    pub(crate) fn feed(&mut self, bytes: &mut [u8], response: &mut ResponseWriter<'_>, turn: &mut TurnBudget) -> usize {
        WORKBENCH.with_borrow_mut(|bench| {
            let mut used = 0;
            while used < bytes.len() && self.room() > 0 && turn.may_read() {
                match self.receiver.feed(&mut bytes[used..], &mut bench.inflation) {
                    Ok((count, event)) => {
                        used += count;
                        self.note(event, response, turn);
                    }
                    // Complete messages before the violation are delivered, and their answers are sent before the close.
                    Err(violation) if self.stage == SocketStage::Open && !self.waiting.is_empty() => {
                        self.is_wanted = false;
                        self.violation = Some((violation, now_ms() + ANSWER_MS));
                        return used;
                    }
                    Err(violation) => {
                        self.fail(violation, response);
                        return bytes.len();
                    }
                }
            }
            used
        })
    }

    fn note(&mut self, event: Event<'_>, response: &mut ResponseWriter<'_>, turn: &mut TurnBudget) {
        match event {
            Event::More | Event::Pong(_) => {}
            Event::Message { kind, payload } if self.stage == SocketStage::Open => {
                self.waiting_bytes += payload.len();
                self.waiting.push_back(Message { kind, payload: payload.into_owned() });
            }
            // Messages after the server's close frame are discarded (section 5.5.1).
            Event::Message { .. } => {}
            // Section 5.5.3: a pong for the latest ping is enough. A client that does not read makes the server keep a single
            // one.
            Event::Ping(payload) => {
                turn.note_ping();
                if self.stage == SocketStage::Open && self.has_no_room(response) {
                    self.unanswered_ping = Some(payload.into_owned());
                } else if self.stage == SocketStage::Open {
                    self.unanswered_ping = None;
                    self.write_control(|out| send::encode_pong(&payload, out), response);
                }
            }
            Event::Close { code, reason } => {
                if self.stage == SocketStage::Open {
                    self.close_status
                        .get_or_insert_with(|| CloseStatus { code: code.unwrap_or(NO_STATUS), reason: reason.into_owned() });
                    self.write_close(code, "", response);
                }
                self.stage = SocketStage::Closed;
            }
        }
    }

    /// Sends the pong of the latest ping, unless data still waits for the client.
    fn answer_ping(&mut self, response: &mut ResponseWriter<'_>) {
        if self.unanswered_ping.is_none() || self.stage != SocketStage::Open || self.has_no_room(response) {
            return;
        }
        if let Some(payload) = self.unanswered_ping.take() {
            self.write_control(|out| send::encode_pong(&payload, out), response);
        }
    }

    /// RFC 6455 section 7.1.7: a protocol violation of the client fails the connection.
    fn fail(&mut self, violation: Violation, response: &mut ResponseWriter<'_>) {
        if self.stage == SocketStage::Open {
            self.close_status = Some(CloseStatus { code: violation.code, reason: violation.reason.to_owned() });
            self.write_close(Some(violation.code), violation.reason, response);
        }
        self.stage = SocketStage::Closed;
        self.violation = None;
    }

    fn write_close(&mut self, code: Option<u16>, reason: &str, response: &mut ResponseWriter<'_>) {
        self.write_control(|out| send::encode_close(code, reason, out), response);
    }

    fn write_control(&mut self, encode: impl FnOnce(&mut Vec<u8>), response: &mut ResponseWriter<'_>) {
        let mut frame = Vec::new();
        encode(&mut frame);
        self.write(&frame, response);
    }

    /// Writes whole frames after pending ones. If the client is gone, it may have sent data before: the engine notices the
    /// disconnect too, reads this data first, and then ends the WebSocket.
    fn write(&mut self, frame: &[u8], response: &mut ResponseWriter<'_>) {
        if !self.outgoing.is_empty() {
            self.outgoing.extend_from_slice(frame);
            return;
        }
        match response.push(frame, When::Now) {
            Pushed::All => {}
            Pushed::Part(taken) => self.outgoing.extend_from_slice(&frame[taken..]),
            Pushed::Gone => {}
        }
    }

    fn send_outgoing(&mut self, response: &mut ResponseWriter<'_>) {
        if self.outgoing.is_empty() {
            return;
        }
        match response.push(&self.outgoing[self.sent..], When::Now) {
            Pushed::All => {
                self.outgoing = Vec::new();
                self.sent = 0;
            }
            Pushed::Part(taken) => self.sent += taken,
            Pushed::Gone => {}
        }
    }
}
