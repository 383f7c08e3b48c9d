//! An answer: its head, the length of its body, and its progress. [`ResponseWriter`] combines it with its transport.
//!
//! The head waits for the first part of the body (PEP 3333, "The start_response() Callable"), so that both are sent in one write:
//! until then it is stored as fields, which the session's encoder writes. Up to [`OUTPUT_BYTES`] of a body are buffered for a
//! slow client; beyond that the application's iterator is suspended. It does not know about languages, sockets, or the log.
//! Worker threads run it.

mod body;
pub mod buffers;
pub mod compression;
pub mod fields;
mod files;
pub mod filters;
mod informational;
pub mod named_file;
pub mod notes;
mod own_chunks;
mod own_fields;
pub mod storing;
mod writer;

use bolide_contract::answering::CancelOnDisconnect;
use bolide_files::SendfileHeader;
use bolide_protocol::http1::framing::decimal;
use bolide_protocol::http1::is_token;
use bolide_protocol::response::{ResponseEncoder, ResponseHead, Wire};
use bolide_routes::Store;
use bolide_scoreboard::Cancelled;

use crate::response::body::{BodyLeft, ResponseBody};
use crate::response::fields::{Known, is_field_value, known_field};
use crate::response::filters::ResponseFilter;
use crate::response::named_file::XSendfile;
use crate::response::notes::Notes;
use crate::response::storing::AnswerStore;
use crate::scheduling::phases::Moment;
use crate::services::SharedCaches;
pub use writer::ResponseWriter;

/// Bytes that are buffered for a slow client before the application's iterator is suspended.
pub const OUTPUT_BYTES: usize = 64 * 1024;

/// Maximum size of a status line, and of a field that an application sets.
const FIELD_BYTES: usize = 64 * 1024;

/// The status in the log of a request whose work has ended because its client left. It is nginx's, and never sent.
const CLIENT_HAS_LEFT: u16 = 499;

/// Requirements of the connection and the request on an answer.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub wire: Wire,
    pub head_only: bool,
    pub keep_alive: bool,
    /// The client keeps the connection open, regardless of the answer: its next request may already be on the wire.
    pub client_keeps: bool,
    /// Other requests wait to be served: a small answer may be sent together with theirs.
    pub may_cork: bool,
    pub date_line: [u8; 37],
}

/// The stages of an answer, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// No status has been set.
    Fresh,
    /// The head may still be changed.
    Head,
    /// The head has been sent.
    Body,
    /// The answer is complete, sent or not.
    Done,
}

/// The result of pushing a part of the body.
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed {
    All,
    /// The client is slow, or its turn is over; only this many bytes were taken. Push the rest after a resume.
    Part(usize),
    /// The client has disconnected.
    Gone,
}

/// When a part of the body must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before the application continues (PEP 3333: no block may be delayed).
    Now,
    /// Together with the next part, which follows before the application runs again.
    WithTheNext,
}

/// The result of sending buffered data.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    Blocked,
    Broken,
}

/// Why a header field or status of an application is refused: one sentence for its log.
pub type HeadRefusal = &'static str;

/// The refusal of a field that only the server may set.
pub const BELONGS_TO_SERVER: HeadRefusal = "it is hop-by-hop, and only the server may set it (PEP 3333)";

pub struct Response {
    stage: Stage,
    head: ResponseHead,
    encoder: ResponseEncoder,
    terms: Terms,
    pub(crate) body: ResponseBody,
    /// If the application may name a file instead of a body: the data needed to send it.
    x_sendfile: Option<Box<XSendfile>>,
    /// The filter that changes this answer; `None` for none.
    filter: Option<Box<ResponseFilter>>,
    /// Names and values of fields of the request's identity.
    own_fields: Vec<(&'static str, String)>,
    /// The items that this answer becomes; `None` for none.
    store: Option<Box<AnswerStore>>,
    pub(crate) notes: Notes,
    /// For the log: bytes of the head.
    pub head_bytes: u64,
}

/// What rules change in an answer that has not begun: it survives until the answer begins again.
#[derive(Default)]
pub(crate) struct RoutedChanges {
    x_sendfile: Option<Box<XSendfile>>,
    filter: Option<Box<ResponseFilter>>,
    store: Option<Box<AnswerStore>>,
    is_unlogged: bool,
    log_variables: Option<Box<notes::LogVariables>>,
    harakiri_ms: Option<u32>,
    cancel_on_disconnect: CancelOnDisconnect,
}

impl Response {
    pub(crate) fn new() -> Response {
        let wire = Wire::Http11;
        Response {
            stage: Stage::Fresh,
            head: ResponseHead::default(),
            encoder: ResponseEncoder::new(wire),
            terms: Terms {
                wire,
                head_only: false,
                keep_alive: false,
                client_keeps: false,
                may_cork: false,
                date_line: [b' '; 37],
            },
            body: ResponseBody::new(),
            x_sendfile: None,
            filter: None,
            own_fields: Vec::new(),
            store: None,
            notes: Notes::default(),
            head_bytes: 0,
        }
    }

    /// The head was handed over, to be sent.
    #[inline(always)]
    fn begin_body(&mut self, left: BodyLeft, head_bytes: u64) {
        if let Some(times) = &mut self.notes.times {
            times.note(Moment::FirstByte);
            let content_type = self.head.value(b"content-type");
            times.is_event_stream = content_type.is_some_and(|value| value.starts_with(b"text/event-stream"));
        }
        self.body.left = left;
        self.head_bytes = head_bytes;
        self.stage = Stage::Body;
    }

    /// Begins the next answer, with a buffer for its head.
    pub(crate) fn begin(&mut self, terms: Terms, buffer: Vec<u8>) {
        self.head.lend(buffer);
        self.encoder = ResponseEncoder::new(terms.wire);
        self.terms = terms;
        self.body.begin();
        self.x_sendfile = None;
        self.filter = None;
        self.own_fields.clear();
        self.store = None;
        self.notes.begin();
        self.forget_head();
    }

    /// Takes out what rules have changed: the answer begins again later.
    pub(crate) fn take_changes(&mut self) -> RoutedChanges {
        RoutedChanges {
            x_sendfile: self.x_sendfile.take(),
            filter: self.filter.take(),
            store: self.store.take(),
            is_unlogged: self.notes.is_unlogged,
            log_variables: self.notes.log_variables.take(),
            harakiri_ms: self.notes.harakiri_ms,
            cancel_on_disconnect: self.notes.cancel_on_disconnect,
        }
    }

    /// Makes the changes again. Must be called after the answer's beginning.
    pub(crate) fn make_changes(&mut self, changes: RoutedChanges) {
        let RoutedChanges { x_sendfile, filter, store, is_unlogged, log_variables, harakiri_ms, cancel_on_disconnect } = changes;
        (self.x_sendfile, self.filter, self.store) = (x_sendfile, filter, store);
        self.notes.is_unlogged = is_unlogged;
        self.notes.log_variables = log_variables;
        self.notes.harakiri_ms = harakiri_ms;
        self.notes.cancel_on_disconnect = cancel_on_disconnect;
    }

    /// Takes the head's buffer back, so that idle connections have none.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.head.take_buffer()
    }

    /// Starts the head, or restarts it: an application may change its answer until something has been sent.
    ///
    /// # Errors
    /// The status is not three digits, a space and a reason without control characters.
    pub fn status(&mut self, status: &[u8]) -> Result<(), HeadRefusal> {
        let Some((code, _)) = status.split_at_checked(3).filter(|(code, _)| code.iter().all(u8::is_ascii_digit)) else {
            return Err("the status does not begin with three digits");
        };
        if status.get(3).is_some_and(|byte| *byte != b' ') {
            return Err("the status has no space after its three digits");
        }
        if !is_field_value(status) || status.len() > FIELD_BYTES {
            return Err("the status contains control characters or is too long");
        }
        let code = code.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        if code < 200 {
            return Err("the status is not a final one (200 or above)");
        }
        self.forget_head();
        self.stage = Stage::Head;
        match status.len() {
            3 => self.head.begin_with(code, ""),
            _ => self.head.begin(code, status),
        }
        Ok(())
    }

    /// Starts the head like [`Response::status`], with the standard reason phrase of RFC 9110 section 15.
    ///
    /// # Errors
    /// The status is not a final one of three digits.
    pub fn status_code_only(&mut self, code: u16) -> Result<(), HeadRefusal> {
        if !(200..=999).contains(&code) {
            return Err("the status is not a final one (200 to 999)");
        }
        self.forget_head();
        self.stage = Stage::Head;
        match code {
            200 => self.head.begin(200, b"200 OK"),
            _ => self.head.begin_with(code, reason_phrase(code)),
        }
        Ok(())
    }

    /// Adds a field to the head.
    ///
    /// # Errors
    /// One sentence: the name is not a token, the value has control characters, or only the server may set the field (PEP 3333
    /// forbids hop-by-hop fields to applications).
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadRefusal> {
        if !is_token(name) {
            return Err("its name is not a token (letters, digits and !#$%&'*+-.^_`|~)");
        }
        if !is_field_value(value) {
            return Err("its value contains a control character, such as a line break");
        }
        if name.len() + value.len() > FIELD_BYTES {
            return Err("it is longer than 64 KiB");
        }
        match known_field(name) {
            Some(Known::ContentLength) => {
                let length = decimal(value).ok_or("its value is not a number")?;
                if self.head.status() == 204 {
                    // RFC 9110 section 8.6 forbids the field in a 204, and frameworks set it.
                    return Ok(());
                }
                if self.head.content_length.is_some_and(|before| before != length) {
                    return Err("it occurs twice, with different values");
                }
                if self.body.own_chunks.is_some() || self.head.content_length.replace(length).is_some() {
                    return Ok(());
                }
            }
            Some(Known::Date) => self.head.has_date = true,
            Some(Known::Server) => self.head.has_server = true,
            Some(Known::NamesFile(by)) if self.note_file(by, value) => return Ok(()),
            Some(Known::Trailer) if self.wants_trailers() => {}
            Some(Known::HopByHop | Known::Trailer) => return Err(BELONGS_TO_SERVER),
            Some(Known::NamesFile(_)) | None => {}
        }
        self.head.add(name, value);
        Ok(())
    }

    /// Discards an invalid head, if nothing has been sent.
    pub fn drop_head(&mut self) {
        if self.stage == Stage::Head {
            self.forget_head();
        }
    }

    #[inline]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// True after a status has been set.
    pub fn has_head(&self) -> bool {
        self.stage != Stage::Fresh
    }

    /// True when the head can no longer be changed.
    pub fn head_has_left(&self) -> bool {
        matches!(self.stage, Stage::Body | Stage::Done)
    }

    /// Whether the answer is complete, sent or not.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The head has been sent, the length of the body is unknown, and the body has not ended.
    pub fn is_endless(&self) -> bool {
        self.stage == Stage::Body && self.body.left == BodyLeft::Unknown
    }

    /// Sets the length of the body, if the application has not set it and the adapter knows it.
    pub fn declare_length(&mut self, length: u64) {
        // RFC 9110 section 8.6: an empty answer to HEAD does not show the length of the answer to GET.
        if self.terms.head_only && length == 0 {
            return;
        }
        let is_unknown = self.head.content_length.is_none() && self.body.own_chunks.is_none();
        if self.stage == Stage::Head && is_unknown && !self.is_bodiless_status() {
            self.head.set_length(length);
        }
    }

    /// The application's own Content-Length, if the body must have this length.
    pub fn announced_length(&self) -> Option<u64> {
        self.head.content_length.filter(|_| !self.terms.head_only && !self.is_bodiless_status() && !self.names_file())
    }

    /// The answer consists of a head without a body (RFC 9110 sections 9.3.2, 15.3.5 and 15.4.5): it is complete after the head.
    pub fn has_no_body(&self) -> bool {
        self.terms.head_only || self.is_bodiless_status()
    }

    /// The application has set the length that the body has, or would have.
    pub fn has_length(&self) -> bool {
        self.head.content_length.is_some()
    }

    /// Whether a part of a file waits to be sent.
    pub fn has_file(&self) -> bool {
        self.body.file.is_some()
    }

    /// Whether the client may send another request on the connection, because it has not announced the end.
    pub fn client_keeps(&self) -> bool {
        self.terms.client_keeps
    }

    /// Closes the connection after this answer. Changes the head only until it is closed.
    pub fn close_after(&mut self) {
        self.terms.keep_alive = false;
    }

    /// The number of fields of the head, for the log.
    pub(crate) fn header_count(&self) -> u32 {
        self.head.count
    }

    /// How the application violated its own Content-Length or chunks, as the rest of a sentence.
    pub(crate) fn broken_promise(&self) -> Option<&'static str> {
        if self.terms.head_only { None } else { self.body.broken_promise() }
    }

    fn forget_head(&mut self) {
        self.stage = Stage::Fresh;
        self.head.clear();
        self.body.own_chunks = None;
        if let Some(x_sendfile) = &mut self.x_sendfile {
            x_sendfile.named = None;
        }
        self.head_bytes = 0;
    }

    fn is_bodiless_status(&self) -> bool {
        matches!(self.head.status(), 204 | 304)
    }

    /// Sets the filter of this answer. Must be called between its beginning and its first part.
    pub(crate) fn set_filter(&mut self, filter: Box<ResponseFilter>) {
        self.filter = Some(filter);
    }

    /// Has this answer stored. Must be called before its body begins.
    pub(crate) fn store(&mut self, stores: Vec<Store>, caches: SharedCaches) {
        let Some(made) = AnswerStore::new(stores, caches) else { return };
        match &mut self.store {
            Some(before) => before.add(*made),
            None => self.store = Some(made),
        }
    }

    /// The rest of this answer may be changed: its body may be compressed.
    pub fn is_filtered(&self) -> bool {
        self.filter.is_some()
    }

    /// Describes the content that a 304 refers to.
    pub(crate) fn note_unmodified(&mut self, content_type: &str, bytes: u64, is_compressed: bool) {
        if let Some(filter) = &mut self.filter {
            filter.note_unmodified(content_type.as_bytes(), bytes, is_compressed);
        }
    }

    /// Allows the application to name a file. Must be called between the beginning of an answer and its head.
    pub(crate) fn allow_x_sendfile(&mut self, x_sendfile: XSendfile) {
        self.x_sendfile = Some(Box::new(x_sendfile));
    }

    /// Whether a named file replaces the application's body.
    fn names_file(&self) -> bool {
        self.x_sendfile.as_ref().is_some_and(|x_sendfile| x_sendfile.named.is_some())
    }

    /// Notes a field that may name a file. Returns false if it is an ordinary field.
    fn note_file(&mut self, by: SendfileHeader, name: &[u8]) -> bool {
        self.x_sendfile.as_mut().is_some_and(|x_sendfile| x_sendfile.note(by, name))
    }
}

/// Returns the standard reason phrase of a status; for unknown ones it is empty, which RFC 9112 section 4 allows.
pub fn reason_phrase(code: u16) -> &'static str {
    bolide_routes::reason(code).unwrap_or_default()
}

/// Ends a request that the application has given up because its client left. If no part of the response was sent, none is: the
/// request has no status in the log and the counters, because neither the application nor the server has failed.
pub fn end_without_client(writer: &mut ResponseWriter<'_>) {
    if !writer.head_has_left() {
        writer.response.forget_head();
    }
    writer.cut_off();
    writer.give_client_up();
}

/// The same, unless the work for the request would have ended in any case, because its client is gone.
pub fn end_given_up(writer: &mut ResponseWriter<'_>) {
    match writer.client_is_gone() && writer.notes.cancel_on_disconnect != CancelOnDisconnect::Off {
        true => end_cancelled(writer, Cancelled::Running),
        false => end_without_client(writer),
    }
}

/// Ends a request whose work has ended because its client left (`cancel-on-disconnect`). The log shows it as
/// [`CLIENT_HAS_LEFT`], whatever was sent before.
pub fn end_cancelled(writer: &mut ResponseWriter<'_>, cancelled: Cancelled) {
    end_without_client(writer);
    writer.response.head.note_status(CLIENT_HAS_LEFT);
    writer.response.notes.cancelled = Some(cancelled);
}

#[cfg(test)]
#[path = "response/response_tests.rs"]
mod tests;
