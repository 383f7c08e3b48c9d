//! A request as the adapter of the application's language sees it: spans of the read buffer, the body, and its origin. It does
//! not know about languages. Worker threads build it.

pub mod blocking_websocket;
pub mod body;
pub mod description;
pub mod mounts;
pub mod request_stream;
pub mod variables;
pub mod websocket;

pub use bolide_protocol::Span;
use bolide_protocol::http1::head::Field;
pub use bolide_protocol::http1::head::Version;
use bolide_protocol::variables::Variable;
use bolide_scoreboard::Recorder;

pub use crate::logging::identity::{Identity, SharedIdentity};
pub use crate::logging::waiting::RequestStart;
pub use crate::request::body::Body;
pub use crate::sockets::client::Forwarded;
pub use bolide_tls::{ClientFacts, TlsFacts};

use crate::request::request_stream::RequestStream;
use crate::request::websocket::Handshake;
use crate::scheduling::connections::ExchangeId;
pub use crate::sockets::listener::{FrontTls, Peer};

/// A request with a complete head, and with a complete body unless the application [streams it](crate::app::App::STREAMS_BODY).
pub struct Request<'a, Memo> {
    /// Number of the listener, in the order of the settings.
    pub listener: usize,
    /// The client.
    pub peer: &'a Peer,
    /// The client as described by a trusted reverse proxy. Equal for all requests of a connection that repeats its header block.
    pub forwarded: Option<&'a Forwarded>,
    /// The path prefix that a reverse proxy has stripped: the start of SCRIPT_NAME, unless the request contains it.
    pub script_name: &'a [u8],
    pub parts: RequestParts<'a, Memo>,
    pub body: Body,
    /// The body as it arrives, if the application streams it.
    pub request_stream: Option<&'a mut RequestStream>,
    /// The client asks to switch to WebSocket. Only checked if the application streams the body.
    pub handshake: Option<Handshake>,
    /// Identifies the exchange for [`crate::EmbeddedWorker::visit`].
    pub id: ExchangeId,
    /// The scoreboard slot that shows the request.
    pub slot: Recorder<'static>,
    /// Its identifier and its place in a trace; `None` if the settings ask for neither.
    pub identity: SharedIdentity,
    /// When it arrived, with `request-start`; `None` also if a trusted reverse proxy has said it.
    pub start: Option<RequestStart>,
    /// Data for the log that only the adapter knows, and fills in.
    pub log_facts: LogFacts,
}

/// The protocol's part of a request. A language asks for what it needs, whichever protocol that is.
pub struct RequestParts<'a, Memo>(pub(crate) Parts<'a, Memo>);

pub(crate) enum Parts<'a, Memo> {
    Http(HttpRequest<'a, Memo>),
    /// From a reverse proxy: the uwsgi protocol, SCGI or FastCGI.
    Variables(VariablesRequest<'a>),
}

impl<'a, Memo> RequestParts<'a, Memo> {
    pub fn method(&self) -> &'a [u8] {
        match &self.0 {
            Parts::Http(http) => http.method,
            Parts::Variables(request) => request.text(request.method),
        }
    }

    /// The target as the client sent it: REQUEST_URI.
    pub fn uri(&self) -> &'a [u8] {
        match &self.0 {
            Parts::Http(http) => http.uri,
            Parts::Variables(request) => request.text(request.uri),
        }
    }

    /// The path, percent-decoded: PATH_INFO.
    pub fn path(&self) -> &'a [u8] {
        match &self.0 {
            Parts::Http(http) => http.path,
            Parts::Variables(request) => request.variable(b"PATH_INFO").unwrap_or_default(),
        }
    }

    /// A variable set by a route or a reverse proxy. If a name occurs several times, the last value counts.
    pub fn variable(&self, name: &[u8]) -> Option<&'a [u8]> {
        match &self.0 {
            Parts::Http(http) => http.variables.iter().rfind(|(own, _)| own == name).map(|(_, value)| value.as_slice()),
            Parts::Variables(request) => request.variable(name),
        }
    }

    /// The adapter's cache of the header block. Requests of a reverse proxy have none.
    pub fn memory(&mut self) -> Option<&mut HeaderMemory<'a, Memo>> {
        match &mut self.0 {
            Parts::Http(http) => Some(&mut http.memo),
            Parts::Variables(_) => None,
        }
    }

    /// It came by HTTP, not as the variables of a reverse proxy.
    pub fn is_http(&self) -> bool {
        matches!(&self.0, Parts::Http(_))
    }

    /// The number of variables of a header block, and their size in a uwsgi packet. Variables of a reverse proxy count as a
    /// whole.
    pub fn block_facts(&self) -> LogFacts {
        match &self.0 {
            Parts::Http(http) => {
                let size = |(name, value): (&[u8], &[u8])| (4 + "HTTP_".len() + name.len() + value.len()) as u32;
                let (variables, variable_bytes) = (http.fields.len() as u32, http.fields().map(size).sum());
                LogFacts { variables, variable_bytes, application: 0 }
            }
            Parts::Variables(given) => {
                let (variables, variable_bytes) = (given.variables.len() as u32, given.bytes.len() as u32);
                LogFacts { variables, variable_bytes, application: 0 }
            }
        }
    }

    /// The size of the variables of the request line, beside those of the block.
    pub fn line_bytes(&self) -> u32 {
        match &self.0 {
            Parts::Http(http) => (http.method.len() + http.uri.len() + http.path.len() + http.query.len()) as u32,
            Parts::Variables(_) => 0,
        }
    }

    /// The client asks for another protocol, see [`HttpRequest::upgrade`].
    pub fn asks_for_upgrade(&self) -> bool {
        matches!(&self.0, Parts::Http(http) if http.upgrade)
    }

    /// The body was chunked, see [`HttpRequest::chunked`].
    pub fn is_chunked(&self) -> bool {
        matches!(&self.0, Parts::Http(http) if http.chunked)
    }

    /// Method and target, which identify the request in the log.
    pub fn line(&self) -> Vec<u8> {
        [self.method(), b" ", self.uri()].concat()
    }
}

impl<'a, Memo> HttpRequest<'a, Memo> {
    /// Names and values of the header fields, in order. Empty if `memo` says that they are the same as last time.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a, Memo> {
        let header_bytes = self.header_bytes;
        self.fields.iter().map(move |field| (field.name.of(header_bytes), field.value.of(header_bytes)))
    }
}

impl<'a> VariablesRequest<'a> {
    /// Names and values of the variables, in order.
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

/// The separator that joins the values of header fields with this name, which form a list (RFC 9110 section 5.3). For cookies,
/// section 4.2.1 of RFC 6265 applies.
pub fn joint(name: &[u8]) -> &'static [u8] {
    if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " }
}

pub(crate) struct HttpRequest<'a, Memo> {
    pub method: &'a [u8],
    /// The target as the client sent it, without scheme and authority: REQUEST_URI.
    pub uri: &'a [u8],
    /// The target exactly as the client sent it: RAW_URI of gunicorn and Werkzeug. No route and no mount changes it.
    pub raw_uri: &'a [u8],
    /// The path, percent-decoded.
    pub path: &'a [u8],
    pub query: &'a [u8],
    /// Host and port that override the Host header: from a trusted reverse proxy, or from an absolute-form target (RFC 9112
    /// section 3.2.2); else empty.
    pub authority: &'a [u8],
    pub version: Version,
    /// The header fields' bytes, including the empty line; spans of `fields` are relative to it.
    pub header_bytes: &'a [u8],
    /// Variables that routes have set; the last of a name counts. Method, uri, path and query already contain their changes.
    pub variables: &'a [(Vec<u8>, Vec<u8>)],
    /// The parsed fields. Empty if `memo` says that they are the same as last time.
    pub fields: &'a [Field],
    pub memo: HeaderMemory<'a, Memo>,
    /// The client asks for another protocol, and has sent nothing after its head. An application that is called with the complete
    /// body may take over the connection ([`crate::answer::Answer::take_over`]).
    pub upgrade: bool,
    /// The body was chunked: its length is `body.length()`, and no header contains it.
    pub chunked: bool,
}

/// The cache of a connection's header block: whether to cache it, and the cached value.
pub enum HeaderMemory<'a, Memo> {
    /// Nothing is cached for this request, and nothing should be.
    Off,
    /// The same bytes have arrived before: the adapter's cached conversion of them, with empty `fields`.
    Same(&'a Memo),
    /// The adapter may store its conversion of `fields` here.
    Fill(&'a mut Option<Memo>),
}

pub(crate) struct VariablesRequest<'a> {
    /// The variables' bytes; spans are relative to it.
    pub bytes: &'a [u8],
    pub variables: &'a [Variable],
    pub method: Option<Span>,
    pub uri: Option<Span>,
    /// The value of REQUEST_URI that the reverse proxy sent; `uri` is the one that routes may have set.
    pub raw_uri: &'a [u8],
}

/// Parts of uWSGI's request line that the engine does not know.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogFacts {
    /// The number of variables of the request, and their size in a uwsgi packet.
    pub variables: u32,
    pub variable_bytes: u32,
    /// Number of the application that answered, in the order of the settings.
    pub application: u32,
}
