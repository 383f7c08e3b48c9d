//! The case lists of all codecs: the expected results, and the expected messages of refusals. One list for each codec. The tests
//! run it whole, byte by byte and with trailing data, and the fuzz targets use it as a seed corpus.

// Each user of this module uses only some of the lists.
#![allow(dead_code)]

pub mod fastcgi;
pub mod forwarded;
pub mod http1_block;
pub mod http1_chunked;
pub mod http1_line;
pub mod http1_response;
pub mod http2;
pub mod proxy_header;
pub mod scgi;
pub mod target;
pub mod uwsgi;
pub mod websocket;
pub mod websocket_offer;

/// Status and a part of the expected reason.
pub type Refusal = (u16, &'static str);
