//! HPACK (RFC 7541): the compression of heads. Workers run it.

pub mod decoder;
pub mod encoder;
pub mod field_kind;
pub mod huffman;
pub mod static_table;
pub mod table;
