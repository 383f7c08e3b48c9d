//! Settings of request and response processing outside of the application: routes, header fields, error pages, compression. Plain
//! data, the same in every process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One line of internal routing, as written. The crate `routes` interprets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRule {
    /// The option: `route`, `response-route-if`, `error-route-label`.
    pub option: String,
    pub text: String,
    /// Where it was configured: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}

/// Settings that apply to every answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Answering {
    /// `add-header`: names and values of fields that are added to every answer, in this order.
    pub added: Vec<(String, String)>,
    /// `del-header`: fields that are removed from every answer, regardless of their origin.
    pub removed: Vec<String>,
    /// `collect-header` and `pull-header`: fields whose values become variables for response routes.
    pub collected: Vec<Collected>,
    /// `error-page-404` and the related options: a status and its page. If a status has several, the first readable one is used.
    pub error_pages: Vec<(u16, PathBuf)>,
    pub compression: Compression,
    /// `check-cache`: a cache whose items are answers, by the request's URI. The empty name is the first cache.
    pub checked_cache: Option<String>,
    /// `health-path`: the path at which the server itself says whether it serves.
    pub health_path: Option<String>,
    /// `sticky`: where a request says which session it is of, in the order in which they are asked. Empty: any worker serves it.
    pub sticky: Vec<SessionKey>,
    /// `bulkhead`: a request belongs to the first one whose route matches.
    pub bulkheads: Vec<BulkheadSettings>,
    /// `cancel-on-disconnect`: whether the work for a request ends when its client has left, and what shows that.
    pub cancel_on_disconnect: CancelOnDisconnect,
    /// A route sets that for some requests.
    pub cancels_by_route: bool,
    /// `admission`: how long a request may wait before it begins; `None`: for any time.
    pub admission: Option<Admission>,
}

/// Settings of adaptive admission (`admission = auto`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// `admission-patience`, in milliseconds.
    pub patience_ms: u64,
}

impl Admission {
    /// Clients give up after some seconds, and impatient ones after one. A request that begins within half a second still reaches
    /// them.
    pub const PATIENCE_MS: u64 = 500;
    /// Below this many milliseconds, a wait is not overload: the kernel counts in ticks, and the garbage collector takes some.
    pub const MIN_PATIENCE_MS: u64 = 50;
    /// Above, no client waits.
    pub const MAX_PATIENCE_MS: u64 = 600_000;
}

/// Whether the work for a request ends when its client has left, and what shows that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CancelOnDisconnect {
    #[default]
    Off,
    /// A client has left if it has reset its connection, its stream of HTTP/2 or its request of FastCGI. One that has only ended
    /// its sending side may still read.
    Reset,
    /// The end of the sending side counts too.
    Fin,
}

/// The most bulkheads of an instance.
pub const MAX_BULKHEADS: usize = 32;

/// A limit of how many requests of some routes are in progress, in all workers together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkheadSettings {
    pub name: String,
    /// A regular expression for PATH_INFO after the rules.
    pub route: String,
    /// How many may be in progress.
    pub most: u32,
    /// How many more may wait.
    pub queue: u32,
    /// How long each of them may wait.
    pub wait_ms: u64,
    /// Where it was configured: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}

/// A place in a request that identifies its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionKey {
    /// A header field, by its name in lower case. The application may also set it in a response.
    Header(String),
    /// A parameter of the query.
    Query(String),
    /// A cookie of the server's own.
    Cookie,
    /// The client's address.
    Address,
}

impl Answering {
    /// Whether workers need the keys that seal the cookie of sessions.
    pub fn seals_cookies(&self) -> bool {
        self.sticky.contains(&SessionKey::Cookie)
    }

    /// Whether the work for some requests ends when their clients have left.
    pub fn may_cancel(&self) -> bool {
        self.cancel_on_disconnect != CancelOnDisconnect::Off || self.cancels_by_route
    }
}

/// A response field whose value becomes a variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Collected {
    pub field: String,
    pub variable: String,
    /// `pull-header`: the field is removed from the answer.
    pub pulled: bool,
}

crate::with_defaults! {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Compression {
        /// `compress`: the codings that the server offers, in the order of preference; empty for none.
        pub codings: Vec<Coding>,
        /// `http-auto-gzip`: an answer with the field `uWSGI-Encoding: gzip` is compressed, regardless of its type and size.
        pub on_demand: bool,
        /// `compress-types`: media types in lower case, each `text/html`, `text/*` or `*+json`.
        pub types: Vec<String> = Compression::TYPES.iter().map(|&text| text.to_owned()).collect(),
        /// `compress-min-size`: minimum size in bytes; answers that are known to be shorter are not compressed.
        pub least_bytes: u64 = Compression::MIN_BYTES,
        /// `compress-level`: 1 is fast, 9 is small; mapped to the levels of each coding.
        pub level: u32 = Compression::LEVEL,
    }
}

crate::with_words! {
    /// Content codings (RFC 9110 section 8.4.1, RFC 7932, RFC 8878).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Coding {
        Gzip = "gzip",
        Brotli = "br",
        Zstd = "zstd",
    }
    /// The coding's name in Content-Encoding and Accept-Encoding.
    pub fn name() -> &'static str;
}

impl Compression {
    /// Below this many bytes compression saves nothing: the answer fits in one packet either way.
    pub const MIN_BYTES: u64 = 1024;
    /// A compromise of size and speed for answers that are generated for each request.
    pub const LEVEL: u32 = 5;
    /// Text formats. `text/event-stream` is excluded: see the crate `engine`.
    pub const TYPES: &'static [&'static str] = &[
        "text/*",
        "application/json",
        "application/javascript",
        "application/xml",
        "application/wasm",
        "application/manifest+json",
        "application/x-javascript",
        "application/vnd.ms-fontobject",
        "*+json",
        "*+xml",
        "font/ttf",
        "font/otf",
        "image/bmp",
    ];
}
