//! Settings of what is done to requests before an application sees them and to answers before they leave:
//! routes, header fields, error pages, compression. Plain data; every process sees the same.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One line of internal routing, as written. The room `routes` knows what it means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRule {
    /// The option: `route`, `response-route-if`, `error-route-label`.
    pub option: String,
    pub text: String,
    /// Where it stands: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}

/// Settings that concern every answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Answering {
    /// `add-header`: names and values that are added to every answer, in this order.
    pub added: Vec<(String, String)>,
    /// `del-header`: fields that no answer has, whoever set them.
    pub removed: Vec<String>,
    /// `collect-header` and `pull-header`: fields whose values become variables for response routes.
    pub collected: Vec<Collected>,
    /// `error-page-404` and its kin: a status and the page for it. Of several for one status the first that can be read counts.
    pub error_pages: Vec<(u16, PathBuf)>,
    pub compression: Compression,
}

/// A field of an answer whose value becomes a variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Collected {
    pub field: String,
    pub variable: String,
    /// `pull-header`: the field is taken out of the answer.
    pub pulled: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compression {
    /// `compress`: what the server offers, the most wanted first; empty for none.
    pub codings: Vec<Coding>,
    /// `http-auto-gzip`: an answer with the field `uWSGI-Encoding: gzip` is compressed, whatever its type and size.
    pub on_demand: bool,
    /// `compress-types`: media types, each `text/html`, `text/*` or `*+json`, in small letters.
    pub types: Vec<String>,
    /// `compress-min-size`: bytes; answers that are known to be shorter stay as they are.
    pub least_bytes: u64,
    /// `compress-level`: 1 is quick, 9 is small; each coding makes its own of it.
    pub level: u32,
}

/// Content codings (RFC 9110 section 8.4.1, RFC 7932, RFC 8878).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coding {
    Gzip,
    Brotli,
    Zstd,
}

impl Coding {
    /// Its name in Content-Encoding and Accept-Encoding.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }
}

impl Compression {
    /// Below this many bytes compression saves nothing: the answer fits one packet either way.
    pub const LEAST_BYTES: u64 = 1024;
    /// Small enough, and quick enough to be worth it for an answer that is made anew each time.
    pub const LEVEL: u32 = 5;
    /// Text and what is text within. `text/event-stream` is left out: see the room `engine`.
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

impl Default for Compression {
    fn default() -> Compression {
        Compression {
            codings: Vec::new(),
            on_demand: false,
            types: Compression::TYPES.iter().map(|&text| text.to_owned()).collect(),
            least_bytes: Compression::LEAST_BYTES,
            level: Compression::LEVEL,
        }
    }
}
