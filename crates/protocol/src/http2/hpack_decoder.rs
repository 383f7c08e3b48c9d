//! Decodes header blocks into fields (RFC 7541 section 6). Workers run it.
//!
//! The table must be updated whatever happens to the request: a field beyond a limit is decoded and dropped.

use super::error::{ErrorCode, Http2Error};
use super::text::HeadText;
use crate::hpack::huffman;
use crate::hpack::static_table::{self, STATIC_TABLE};
use crate::hpack::table::{DynamicTable, EntryView, FieldKind};

/// Maximum number of bytes of an integer after its first one: four have 28 bits, more than any length or index needs.
const MAX_INTEGER_BYTES: u32 = 4;

/// Maximum number of table size updates in front of a block (RFC 7541 section 4.2): to the smallest size in between, and to the
/// final one.
const MAX_RESIZES: u32 = 2;

#[derive(Debug)]
pub struct HpackDecoder {
    table: DynamicTable,
}

impl HpackDecoder {
    pub fn new() -> HpackDecoder {
        HpackDecoder { table: DynamicTable::new() }
    }

    /// Passes each field of a block to `head`. `literal` is scratch space for a field's text.
    ///
    /// # Errors
    /// The block is malformed, or far beyond the limits of a head.
    pub fn decode(&mut self, block: &[u8], head: &mut HeadText<'_>, literal: &mut Vec<u8>) -> Result<(), Http2Error> {
        let mut reader = Reader { rest: block };
        let mut resizes = 0;
        while let Some(&first) = reader.rest.first() {
            match first {
                0x80.. => self.indexed(reader.integer(7)?, head)?,
                0x40.. => self.literal(&mut reader, 6, head, literal)?,
                0x20.. => {
                    resizes += 1;
                    if resizes > MAX_RESIZES || head.has_fields() || !self.table.resize(reader.integer(5)?) {
                        return Err(compression(
                            "A header block changes the table size at an invalid place or to an invalid \
                            value.",
                        ));
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

    /// Decodes a field whose value, and perhaps whose name, is in the block. With a prefix of six bits it is added to the table.
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
                let known: EntryView<'_> = self.table.get(number).ok_or(NO_ENTRY)?;
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

/// The rest of a block.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    /// RFC 7541 section 5.1. The block must not be empty.
    #[inline]
    fn integer(&mut self, prefix: u32) -> Result<usize, Http2Error> {
        let (&first, rest) = self.rest.split_first().ok_or(CUT_OFF)?;
        self.rest = rest;
        let most = (1u32 << prefix) - 1;
        let number = u32::from(first) & most;
        if number < most { Ok(number as usize) } else { self.long_integer(number) }
    }

    fn long_integer(&mut self, mut number: u32) -> Result<usize, Http2Error> {
        for place in 0..MAX_INTEGER_BYTES {
            let (&byte, rest) = self.rest.split_first().ok_or(CUT_OFF)?;
            self.rest = rest;
            number += u32::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number as usize);
            }
        }
        Err(compression("A number in a header block is too large."))
    }

    /// RFC 7541 section 5.2.
    #[inline]
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Http2Error> {
        let is_huffman = self.rest.first().ok_or(CUT_OFF)? & 0x80 != 0;
        let length = self.integer(7)?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(CUT_OFF)?;
        self.rest = rest;
        if is_huffman {
            huffman::decode(text, out).map_err(|_| compression("A string in a header block is not valid Huffman code."))?;
        } else {
            out.extend_from_slice(text);
        }
        Ok(())
    }
}

const CUT_OFF: Http2Error = compression("A header block ends within a field.");
const NO_ENTRY: Http2Error = compression("A header block refers to a field that is not in the table.");

const fn compression(reason: &'static str) -> Http2Error {
    Http2Error::new(ErrorCode::COMPRESSION_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::head::HeadLimits;
    use crate::session::HeadParts;

    const LIMITS: HeadLimits = HeadLimits::of(8192, 65536, 100);

    fn bytes_of(digits: &str) -> Vec<u8> {
        let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
    }

    /// Decodes a block. Returns the head, or for an answer its fields.
    fn decoded(decoder: &mut HpackDecoder, digits: &str) -> String {
        let mut parts = HeadParts::default();
        let (mut head, literal) = HeadText::new(&mut parts, &LIMITS);
        decoder.decode(&bytes_of(digits), &mut head, literal).expect("a good block");
        head.finish();
        String::from_utf8(parts.bytes).expect("text").replace("\r\n", "|")
    }

    fn table(decoder: &HpackDecoder) -> Vec<String> {
        let entries = (0..).map_while(|number| decoder.table.get(number));
        entries.map(|entry| String::from_utf8_lossy(entry.line).trim_end().to_owned()).collect()
    }

    /// RFC 7541 Appendix C.3 and C.4.
    #[test]
    fn the_standards_requests_are_read() {
        let plain = [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ];
        let coded = [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = HpackDecoder::new();
            assert_eq!(decoded(&mut decoder, blocks[0]), "GET / HTTP/2.0|host: www.example.com||");
            assert_eq!(decoded(&mut decoder, blocks[1]), "GET / HTTP/2.0|host: www.example.com|cache-control: no-cache||");
            let third = "GET /index.html HTTP/2.0|host: www.example.com|custom-key: custom-value||";
            assert_eq!(decoded(&mut decoder, blocks[2]), third);
            let entries = ["custom-key: custom-value", "cache-control: no-cache", ":authority: www.example.com"];
            assert_eq!(table(&decoder), entries);
        }
    }

    /// RFC 7541 Appendix C.5 and C.6, with a table of 256 bytes.
    #[test]
    fn the_standards_answers_leave_its_tables() {
        let (plain, coded) = (
            [
                "3fe101 4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54\
                 6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
                "4803333037c1c0bf",
                "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48\
                 514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
            ],
            [
                "3fe101 488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae\
                 82ae43d3",
                "4883640effc1c0bf",
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27\
                 087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ],
        );
        for blocks in [plain, coded] {
            let mut decoder = HpackDecoder::new();
            let fields = "cache-control: private|date: Mon, 21 Oct 2013 20:13:21 GMT|location: https://www.example.com||";
            assert!(decoded(&mut decoder, blocks[0]).ends_with(fields));
            let first = ["location: https://www.example.com", "date: Mon, 21 Oct 2013 20:13:21 GMT", "cache-control: private"];
            assert_eq!(table(&decoder), [&first[..], &[":status: 302"]].concat());
            assert!(decoded(&mut decoder, blocks[1]).ends_with(fields));
            assert_eq!(table(&decoder), [&[":status: 307"], &first[..]].concat());
            decoded(&mut decoder, blocks[2]);
            let last = [
                "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "content-encoding: gzip",
                "date: Mon, 21 Oct 2013 20:13:22 GMT",
            ];
            assert_eq!(table(&decoder), last);
        }
    }
}
