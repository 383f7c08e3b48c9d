//! Chunked bodies: RFC 9112 section 7.1. The limits of the decoder are [`LIMITS`].

use bolide_protocol::http1::chunked::ChunkedLimits;

use super::Refusal;

pub struct ChunkedCase {
    pub bytes: &'static [u8],
    pub outcome: Result<&'static [u8], Refusal>,
}

/// Small enough for the cases to reach them.
pub const LIMITS: ChunkedLimits = ChunkedLimits { size_line_bytes: 20, extension_bytes: 24, trailer_bytes: 40, trailer_count: 3 };

const fn read(bytes: &'static [u8], body: &'static [u8]) -> ChunkedCase {
    ChunkedCase { bytes, outcome: Ok(body) }
}

const fn refused(bytes: &'static [u8], status: u16, words: &'static str) -> ChunkedCase {
    ChunkedCase { bytes, outcome: Err((status, words)) }
}

const SIZE: &str = "not a hexadecimal number";
const EXTENSION: &str = "chunk extension is malformed";
const LINE_END: &str = "not followed by LF";
const DATA_END: &str = "not followed by CRLF";
const TRAILER_NAME: &str = "trailer field's name";
const TRAILER_VALUE: &str = "trailer field's value";

pub const CASES: &[ChunkedCase] = &[
    read(b"0\r\n\r\n", b""),
    read(b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    read(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world"),
    read(b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    read(b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    read(b"0000000000000002\r\nab\r\n000\r\n\r\n", b"ab"),
    read(b"00000000000000000002\r\nab\r\n0\r\n\r\n", b"ab"),
    // Data may look like anything.
    read(b"9\r\n\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n0\r\n\r\n\r\n"),
    read(b"1\r\n\0\r\n1\r\n\xff\r\n0\r\n\r\n", b"\0\xff"),
    // Extensions.
    read(b"1;a\r\nx\r\n0;b=c\r\n\r\n", b"x"),
    read(b"1;a=\"b;c\"\r\nx\r\n0\r\n\r\n", b"x"),
    read(b"1 ; a\r\nx\r\n0\t;b\r\n\r\n", b"x"),
    read(b"1;a=\"\xe9\\\"\t\"\r\nx\r\n0\r\n\r\n", b"x"),
    read(b"1;a;b=c;d=\"\";e\r\nx\r\n0\r\n\r\n", b"x"),
    read(b"1 ;\ta = b ; c\r\nx\r\n0\r\n\r\n", b"x"),
    // Trailers are read and dropped.
    read(b"1\r\nx\r\n0\r\nA: b\r\n\r\n", b"x"),
    read(b"0\r\nA:\r\nContent-Length: 5\r\nB:\tc \xe9\r\n\r\n", b""),
    read(b"0\r\nA: 3456789 123456789 123456789 12345678\r\n\r\n", b""),
    refused(b"\r\n", 400, SIZE),
    refused(b"g\r\n", 400, SIZE),
    refused(b" 5\r\nhello\r\n", 400, SIZE),
    refused(b"\t5\r\nhello\r\n", 400, SIZE),
    refused(b"5 \r\nhello\r\n", 400, EXTENSION),
    refused(b"5 6\r\nhello\r\n", 400, EXTENSION),
    refused(b"5x\r\nhello\r\n", 400, SIZE),
    refused(b"0x5\r\nhello\r\n", 400, SIZE),
    refused(b"+5\r\nhello\r\n", 400, SIZE),
    refused(b"-5\r\nhello\r\n", 400, SIZE),
    refused(b"5_0\r\nhello\r\n", 400, SIZE),
    refused(b"5,5\r\nhello\r\n", 400, SIZE),
    refused(b";a\r\n", 400, SIZE),
    refused(b"5\0\r\nhello\r\n", 400, SIZE),
    refused(b"5\nhello\n0\n\n", 400, SIZE),
    refused(b"5\rhello", 400, LINE_END),
    refused(b"5\r\r\nhello", 400, LINE_END),
    refused(b"1;a\nx\r\n0\r\n\r\n", 400, EXTENSION),
    refused(b"1;a\0\r\nx\r\n0\r\n\r\n", 400, EXTENSION),
    refused(b"1;a\x7f\r\nx\r\n0\r\n\r\n", 400, EXTENSION),
    refused(b"1;\r\nx\r\n", 400, EXTENSION),
    refused(b"1; \r\nx\r\n", 400, EXTENSION),
    refused(b"1;;\r\nx\r\n", 400, EXTENSION),
    refused(b"1;;;===\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a;\r\nx\r\n", 400, EXTENSION),
    refused(b"1;=a\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a=\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a=;b\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a=b=c\r\nx\r\n", 400, EXTENSION),
    refused(b"1;bad[=x\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a b\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a \r\nx\r\n", 400, EXTENSION),
    refused(b"1;a=b \r\nx\r\n", 400, EXTENSION),
    refused(b"1;\xff\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a=\xff\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a=\"b\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a=\"b\"c\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a=\"b\\\r\nx\r\n", 400, EXTENSION),
    refused(b"1;\"a\"\r\nx\r\n", 400, EXTENSION),
    refused(b"1;a\rb\r\nx\r\n0\r\n\r\n", 400, LINE_END),
    refused(b"10000000000000000\r\n", 400, "does not fit into 64 bits"),
    refused(b"fffffffffffffffff\r\n", 400, "does not fit into 64 bits"),
    refused(b"000000000000000000002\r\nab\r\n", 400, "line is longer than the limit"),
    refused(b"1;234567890123456789x\r\n", 400, "line is longer than the limit"),
    refused(b"1;a567890123\r\nx\r\n1;a567890123\r\nx\r\n1;a5\r\nx\r\n", 400, "extensions are longer than the limit"),
    // More or less data than the size says.
    refused(b"5\r\nhello!\r\n0\r\n\r\n", 400, DATA_END),
    refused(b"5\r\nhell\r\n0\r\n\r\n", 400, DATA_END),
    refused(b"5\r\nhello\n0\r\n\r\n", 400, DATA_END),
    refused(b"5\r\nhello0\r\n\r\n", 400, DATA_END),
    refused(b"5\r\nhello\rx", 400, LINE_END),
    refused(b"0\r\n\n", 400, TRAILER_NAME),
    refused(b"0\r\n\rx", 400, LINE_END),
    refused(b"0\r\nGET / HTTP/1.1\r\n\r\n", 400, TRAILER_NAME),
    refused(b"0\r\n: a\r\n\r\n", 400, TRAILER_NAME),
    refused(b"0\r\nA : b\r\n\r\n", 400, TRAILER_NAME),
    refused(b"0\r\nA\r\n\r\n", 400, TRAILER_NAME),
    refused(b"0\r\nA: b\r\n c\r\n\r\n", 400, TRAILER_NAME),
    refused(b"0\r\nA: b\nC: d\r\n\r\n", 400, TRAILER_VALUE),
    refused(b"0\r\nA: \0\r\n\r\n", 400, TRAILER_VALUE),
    refused(b"0\r\nA: b\rC: d\r\n\r\n", 400, LINE_END),
    refused(b"0\r\nA:1\r\nB:2\r\nC:3\r\nD:4\r\n\r\n", 431, "more trailer fields"),
    refused(b"0\r\nA: 3456789 123456789 123456789 123456789\r\n\r\n", 431, "trailer fields are longer"),
];
