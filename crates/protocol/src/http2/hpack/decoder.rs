//! Header blocks become fields (RFC 7541 section 6). Workers run it.
//!
//! What a block does to the table must be done whatever becomes of its request: a field that is too much is decoded, and dropped.

use super::super::error::{ErrorCode, Http2Error};
use super::super::text::HeadText;
use super::field_kind::FieldKind;
use super::huffman;
use super::static_table::{self, STATIC_TABLE};
use super::table::{DynamicTable, Known};

/// Bytes of an integer behind its first: four have 28 bits, which no length or index here needs.
const INTEGER_BYTES_MOST: u32 = 4;

/// Changes of the table's size in front of a block (RFC 7541 section 4.2): to the least that it was in between, and to what it is.
const RESIZES_MOST: u32 = 2;

#[derive(Debug)]
pub struct HpackDecoder {
    table: DynamicTable,
}

impl HpackDecoder {
    pub fn new() -> HpackDecoder {
        HpackDecoder { table: DynamicTable::new() }
    }

    /// Hands each field of a block to `head`. `literal` is room for a field's text.
    ///
    /// # Errors
    /// The block is malformed, or far beyond what a head may have.
    pub fn decode(&mut self, block: &[u8], head: &mut HeadText<'_>, literal: &mut Vec<u8>) -> Result<(), Http2Error> {
        let mut reader = Reader { rest: block };
        let mut resizes = 0;
        while let Some(&first) = reader.rest.first() {
            match first {
                0x80.. => self.indexed(reader.integer(7)?, head)?,
                0x40.. => self.literal(&mut reader, 6, head, literal)?,
                0x20.. => {
                    resizes += 1;
                    if resizes > RESIZES_MOST || head.has_fields() || !self.table.resize(reader.integer(5)?) {
                        return Err(compression("A header block changes the table's size where or as it may not."));
                    }
                }
                _ => self.literal(&mut reader, 4, head, literal)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn indexed(&self, index: usize, head: &mut HeadText<'_>) -> Result<(), Http2Error> {
        match index.checked_sub(STATIC_TABLE.len() + 1) {
            Some(number) => {
                let known = self.table.get(number).ok_or(NO_ENTRY)?;
                if known.kind == FieldKind::Regular {
                    return head.line(known.line, known.name_bytes);
                }
                head.field(known.kind, known.name(), known.value())
            }
            None => {
                let (name, value) = static_table::entry(index).ok_or(NO_ENTRY)?;
                head.field(FieldKind::of(name.as_bytes()), name.as_bytes(), value.as_bytes())
            }
        }
    }

    /// A field whose value, and perhaps whose name, stands in the block. With a prefix of six bits it becomes an entry of the table.
    fn literal(
        &mut self,
        reader: &mut Reader<'_>,
        prefix: u32,
        head: &mut HeadText<'_>,
        literal: &mut Vec<u8>,
    ) -> Result<(), Http2Error> {
        literal.clear();
        let index = reader.integer(prefix)?;
        let kind = match index.checked_sub(STATIC_TABLE.len() + 1) {
            Some(number) => {
                let known: Known<'_> = self.table.get(number).ok_or(NO_ENTRY)?;
                literal.extend_from_slice(known.name());
                known.kind
            }
            None if index == 0 => {
                reader.string(literal)?;
                FieldKind::of(literal)
            }
            None => {
                let (name, _) = static_table::entry(index).ok_or(NO_ENTRY)?;
                literal.extend_from_slice(name.as_bytes());
                FieldKind::of(literal)
            }
        };
        let name_bytes = literal.len();
        reader.string(literal)?;
        let (name, value) = literal.split_at(name_bytes);
        if prefix == 6 {
            self.table.insert(kind, name, value);
        }
        head.field(kind, name, value)
    }
}

/// What is left of a block.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    /// RFC 7541 section 5.1. There is a first byte.
    #[inline]
    fn integer(&mut self, prefix: u32) -> Result<usize, Http2Error> {
        let (&first, rest) = self.rest.split_first().ok_or(CUT_OFF)?;
        self.rest = rest;
        let most = (1u32 << prefix) - 1;
        let number = u32::from(first) & most;
        if number < most { Ok(number as usize) } else { self.long_integer(number) }
    }

    fn long_integer(&mut self, mut number: u32) -> Result<usize, Http2Error> {
        for place in 0..INTEGER_BYTES_MOST {
            let (&byte, rest) = self.rest.split_first().ok_or(CUT_OFF)?;
            self.rest = rest;
            number += u32::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number as usize);
            }
        }
        Err(compression("A number in a header block is larger than any that has a meaning."))
    }

    /// RFC 7541 section 5.2.
    #[inline]
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Http2Error> {
        let is_huffman = self.rest.first().ok_or(CUT_OFF)? & 0x80 != 0;
        let length = self.integer(7)?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(CUT_OFF)?;
        self.rest = rest;
        if is_huffman {
            huffman::decode(text, out).map_err(|_| compression("A string in a header block is no Huffman code."))?;
        } else {
            out.extend_from_slice(text);
        }
        Ok(())
    }
}

const CUT_OFF: Http2Error = compression("A header block ends within a field.");
const NO_ENTRY: Http2Error = compression("A header block names a field that the table has not.");

const fn compression(reason: &'static str) -> Http2Error {
    Http2Error::new(ErrorCode::COMPRESSION_ERROR, reason)
}
