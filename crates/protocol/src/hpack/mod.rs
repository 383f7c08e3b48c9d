//! HPACK (RFC 7541): the compression of header fields. The decoder is in `http2`, because it knows which fields a head of HTTP/2
//! may have. Workers run it.

pub mod encoder;
pub mod huffman;
pub mod static_table;
pub mod table;
