//! A request as the application's adapter sees it: spans of the read buffer, the body, and where it came from.

pub mod blocking_websocket;
pub mod body;
pub mod mounts;
pub mod request_stream;
pub mod websocket;

use bolide_contract::scoreboard::Slot;
pub use bolide_protocol::Span;
use bolide_protocol::http1::head::Field;
pub use bolide_protocol::http1::head::Version;
use bolide_protocol::variables::Variable;

pub use crate::request::body::Body;
pub use crate::sockets::client::Forwarded;
pub use bolide_tls::{ClientFacts, TlsFacts};

use crate::request::request_stream::RequestStream;
use crate::request::websocket::Handshake;
use crate::scheduling::connections::ExchangeId;
pub use crate::sockets::listener::{FrontTls, Peer};

/// A request whose head is complete, and its body too unless the application [streams it](crate::app::App::STREAMS_BODY).
pub struct Request<'a, Memo> {
    /// Number of the listener, in the order of the settings.
    pub listener: usize,
    /// Whoever has made it.
    pub peer: &'a Peer,
    /// What a trusted front server says of it. The same for each request of a connection that repeats its header block.
    pub forwarded: Option<&'a Forwarded>,
    /// The start of the path that a front server has taken away: what SCRIPT_NAME begins with, where the request itself does not say it.
    pub script_name: &'a [u8],
    pub parts: RequestParts<'a, Memo>,
    pub body: Body,
    /// Where the application streams the body: the body as it comes.
    pub request_stream: Option<&'a mut RequestStream>,
    /// The client asks to switch to WebSocket. Only looked for where the application streams the body.
    pub handshake: Option<Handshake>,
    /// Names the exchange for [`crate::EmbeddedWorker::visit`].
    pub id: ExchangeId,
    /// Where the scoreboard shows the request.
    pub slot: &'static Slot,
    /// What the log needs and only the adapter knows; it fills this in.
    pub log_facts: LogFacts,
}

/// What the protocol said.
pub enum RequestParts<'a, Memo> {
    Http(HttpRequest<'a, Memo>),
    /// A front server's: the uwsgi protocol, SCGI or FastCGI.
    Variables(VariablesRequest<'a>),
}

impl<'a, Memo> RequestParts<'a, Memo> {
    pub fn method(&self) -> &'a [u8] {
        match self {
            RequestParts::Http(http) => http.method,
            RequestParts::Variables(request) => request.text(request.method),
        }
    }

    /// The target as the client wrote it: REQUEST_URI.
    pub fn uri(&self) -> &'a [u8] {
        match self {
            RequestParts::Http(http) => http.uri,
            RequestParts::Variables(request) => request.text(request.uri),
        }
    }

    /// The path, percent-decoded: PATH_INFO.
    pub fn path(&self) -> &'a [u8] {
        match self {
            RequestParts::Http(http) => http.path,
            RequestParts::Variables(request) => request.variable(b"PATH_INFO").unwrap_or_default(),
        }
    }

    /// A variable that a route or a front server has set. The last of a name counts.
    pub fn variable(&self, name: &[u8]) -> Option<&'a [u8]> {
        match self {
            RequestParts::Http(http) => http.variables.iter().rfind(|(own, _)| own == name).map(|(_, value)| value.as_slice()),
            RequestParts::Variables(request) => request.variable(name),
        }
    }

    /// The client asks for another protocol, see [`HttpRequest::upgrade`].
    pub fn asks_for_upgrade(&self) -> bool {
        matches!(self, RequestParts::Http(http) if http.upgrade)
    }

    /// The body came in chunks, see [`HttpRequest::chunked`].
    pub fn is_chunked(&self) -> bool {
        matches!(self, RequestParts::Http(http) if http.chunked)
    }

    /// Method and target: the name of a request in the log.
    pub fn line(&self) -> Vec<u8> {
        [self.method(), b" ", self.uri()].concat()
    }
}

impl<'a, Memo> HttpRequest<'a, Memo> {
    /// Names and values of the header fields, in their order. None where `memo` says that they are the same as last time.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a, Memo> {
        let header_bytes = self.header_bytes;
        self.fields.iter().map(move |field| (field.name.of(header_bytes), field.value.of(header_bytes)))
    }
}

impl<'a> VariablesRequest<'a> {
    /// Names and values of the variables, in their order.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.variables.iter().map(move |variable| (variable.name.of(bytes), variable.value.of(bytes)))
    }

    fn text(&self, span: Option<Span>) -> &'a [u8] {
        span.map_or(b"", |span| span.of(self.bytes))
    }

    fn variable(&self, name: &[u8]) -> Option<&'a [u8]> {
        let found = self.variables.iter().rfind(|variable| variable.name.of(self.bytes) == name);
        found.map(|variable| variable.value.of(self.bytes))
    }
}

/// Stands between the values of two header fields of this name, which are one list (RFC 9110 section 5.3). Section 4.2.1 of RFC 6265 says how
/// cookies join.
pub fn joint(name: &[u8]) -> &'static [u8] {
    if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " }
}

pub struct HttpRequest<'a, Memo> {
    pub method: &'a [u8],
    /// The target as the client wrote it, without scheme and authority: REQUEST_URI.
    pub uri: &'a [u8],
    /// The path, percent-decoded.
    pub path: &'a [u8],
    pub query: &'a [u8],
    /// Host and port that take the place of the Host header: those that a trusted front server says, or those of an absolute-form target (RFC 9112
    /// section 3.2.2); else empty.
    pub authority: &'a [u8],
    pub version: Version,
    /// The header fields' bytes, up to and with the empty line; spans of `fields` are relative to it.
    pub header_bytes: &'a [u8],
    /// Variables that routes have set, the last of a name counts; method, uri, path and query are what these say already.
    pub variables: &'a [(Vec<u8>, Vec<u8>)],
    /// The parsed fields. Empty when `memo` says that they are the same as last time.
    pub fields: &'a [Field],
    pub memo: HeaderMemory<'a, Memo>,
    /// The client asks for another protocol, and has sent nothing behind its head. An application that is called with the whole body may take
    /// the connection for it ([`crate::response::ResponseWriter::give_away`]).
    pub upgrade: bool,
    /// The body came in chunks: its length is `body.length()`, and no header tells it.
    pub chunked: bool,
}

/// Whether this connection's header block is worth remembering, and what was remembered.
pub enum HeaderMemory<'a, Memo> {
    /// Nothing is remembered for this request, and nothing should be.
    Off,
    /// The same bytes came before: the adapter's own memory of them is here, and `fields` is empty.
    Same(&'a Memo),
    /// The adapter may leave here what it made of `fields`.
    Fill(&'a mut Option<Memo>),
}

pub struct VariablesRequest<'a> {
    /// The variables' bytes; spans are relative to it.
    pub bytes: &'a [u8],
    pub variables: &'a [Variable],
    pub method: Option<Span>,
    pub uri: Option<Span>,
    pub protocol: Option<Span>,
}

/// What uWSGI's request line says of a request and the engine can't know.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogFacts {
    /// Variables of the request, and the bytes that they take in a uwsgi packet.
    pub variables: u32,
    pub variable_bytes: u32,
    /// Number of the application that answered, in the order of the settings.
    pub application: u32,
}
