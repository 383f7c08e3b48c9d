//! HPACK (RFC 7541): the compression of heads, but for the decoder, which knows what a head of HTTP/2 may be. Workers run it.

pub mod encoder;
pub mod field_kind;
pub mod huffman;
pub mod static_table;
pub mod table;
