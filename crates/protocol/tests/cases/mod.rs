//! The case lists of all codecs: what is read how, and what is refused with which words. One list a codec, run by
//! the tests whole, byte by byte and with trailing data, and used by the fuzz targets as their first inputs.

// Each user of this module looks at its own lists only.
#![allow(dead_code)]

pub mod fastcgi;
pub mod forwarded;
pub mod http1_block;
pub mod http1_chunked;
pub mod http1_line;
pub mod http2;
pub mod proxy_header;
pub mod scgi;
pub mod target;
pub mod uwsgi;
pub mod websocket;
pub mod websocket_offer;

/// Status and a part of the reason that must be given.
pub type Refusal = (u16, &'static str);
