//! Cases of SCGI request heads.

use super::Refusal;

pub struct ScgiCase {
    pub bytes: &'static [u8],
    pub outcome: Outcome,
}

pub enum Outcome {
    Read { variables: &'static [(&'static [u8], &'static [u8])], content_length: u64 },
    Partial,
    Refused(Refusal),
}

/// Maximum size of variables in the cases, in bytes.
pub const MAX_BLOCK_BYTES: usize = 200;

const fn read(bytes: &'static [u8], content_length: u64, variables: &'static [(&'static [u8], &'static [u8])]) -> ScgiCase {
    ScgiCase { bytes, outcome: Outcome::Read { variables, content_length } }
}

const fn partial(bytes: &'static [u8]) -> ScgiCase {
    ScgiCase { bytes, outcome: Outcome::Partial }
}

const fn refused(bytes: &'static [u8], status: u16, words: &'static str) -> ScgiCase {
    ScgiCase { bytes, outcome: Outcome::Refused((status, words)) }
}

const NO_NETSTRING: &str = "does not begin with the length of a netstring";
const NOT_ENDED: &str = "does not end with a NUL";
const NOT_FIRST: &str = "first variable is not CONTENT_LENGTH";
const NO_VERSION: &str = "no variable SCGI with the value 1";
const ONE_NUMBER: &str = "is not a single number";
const DIGITS: &str = "too many digits";

pub const CASES: &[ScgiCase] = &[
    // The example of the specification.
    read(
        b"70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,",
        27,
        &[(b"CONTENT_LENGTH", b"27"), (b"SCGI", b"1"), (b"REQUEST_METHOD", b"POST"), (b"REQUEST_URI", b"/deepthought")],
    ),
    read(b"24:CONTENT_LENGTH\x000\0SCGI\x001\0,", 0, &[(b"CONTENT_LENGTH", b"0"), (b"SCGI", b"1")]),
    read(
        b"47:CONTENT_LENGTH\x000\0SCGI\x001\0REQUEST_METHOD\0HEAD\0A\0\0,",
        0,
        &[(b"CONTENT_LENGTH", b"0"), (b"SCGI", b"1"), (b"REQUEST_METHOD", b"HEAD"), (b"A", b"")],
    ),
    // A reverse proxy passes on a header that its client has sent twice, and any byte but NUL.
    read(
        b"37:CONTENT_LENGTH\x000\0A\0,:\0A\0\r\n\0SCGI\x001\0B\0\0,",
        0,
        &[(b"CONTENT_LENGTH", b"0"), (b"A", b",:"), (b"A", b"\r\n"), (b"SCGI", b"1"), (b"B", b"")],
    ),
    read(
        b"66:CONTENT_LENGTH\x000\0SERVER_PROTOCOL\0HTTP/1.1\0SCGI\x001\0REQUEST_URI\0/\0A\0\0,",
        0,
        &[(b"CONTENT_LENGTH", b"0"), (b"SERVER_PROTOCOL", b"HTTP/1.1"), (b"SCGI", b"1"), (b"REQUEST_URI", b"/"), (b"A", b"")],
    ),
    read(
        b"43:CONTENT_LENGTH\x0018446744073709551615\0SCGI\x001\0,",
        u64::MAX,
        &[(b"CONTENT_LENGTH", b"18446744073709551615"), (b"SCGI", b"1")],
    ),
    partial(b""),
    partial(b"7"),
    partial(b"24:"),
    partial(b"24:CONTENT_LENGTH\x000\0SCGI\x001\0"),
    refused(b":CONTENT_LENGTH\x000\0SCGI\x001\0,", 400, NO_NETSTRING),
    refused(b"-1:", 400, NO_NETSTRING),
    refused(b"+24:", 400, NO_NETSTRING),
    refused(b" 24:", 400, NO_NETSTRING),
    refused(b"24 :", 400, NO_NETSTRING),
    refused(b"2x", 400, NO_NETSTRING),
    refused(b"\0\x10\0\0\x0e\0REQUEST_METHOD", 400, NO_NETSTRING),
    refused(b"\x16\x03\x01", 400, "TLS"),
    refused(b"GET / HTTP/1.1\r\n", 400, "An SCGI socket received HTTP"),
    refused(b"024:CONTENT_LENGTH\x000\0SCGI\x001\0,", 400, "has a leading zero"),
    refused(b"00:,", 400, "has a leading zero"),
    refused(b"0000000000", 431, DIGITS),
    refused(b"9999999999", 431, DIGITS),
    refused(b"18446744073709551640:", 431, DIGITS),
    refused(b"999999999:", 431, "larger than buffer-size"),
    refused(b"201:", 431, "larger than buffer-size"),
    refused(b"0:,", 400, "no variables"),
    refused(b"24:CONTENT_LENGTH\x000\0SCGI\x001\0;", 400, "comma"),
    refused(b"23:CONTENT_LENGTH\x000\0SCGI\x001\0,", 400, "comma"),
    refused(b"1:A,", 400, NOT_ENDED),
    refused(b"14:CONTENT_LENGTH,", 400, NOT_ENDED),
    refused(b"15:CONTENT_LENGTH\0,", 400, NOT_ENDED),
    refused(b"16:CONTENT_LENGTH\x000,", 400, NOT_ENDED),
    refused(b"19:CONTENT_LENGTH\x000\0A\0,", 400, NOT_ENDED),
    refused(b"24:SCGI\x001\0CONTENT_LENGTH\x000\0,", 400, NOT_FIRST),
    refused(b"7:SCGI\x001\0,", 400, NOT_FIRST),
    refused(b"4:\0\0A\0,", 400, NOT_FIRST),
    refused(b"24:content_length\x000\0SCGI\x001\0,", 400, NOT_FIRST),
    refused(b"26:CONTENT_LENGTH\x000\0SCGI\x001\0\0\0,", 400, "has no name"),
    refused(b"17:CONTENT_LENGTH\x000\0,", 400, NO_VERSION),
    refused(b"24:CONTENT_LENGTH\x000\0SCGI\x002\0,", 400, NO_VERSION),
    refused(b"23:CONTENT_LENGTH\x000\0SCGI\0\0,", 400, NO_VERSION),
    refused(b"24:CONTENT_LENGTH\x000\0scgi\x001\0,", 400, NO_VERSION),
    refused(b"31:CONTENT_LENGTH\x000\0SCGI\x001\0SCGI\x002\0,", 400, NO_VERSION),
    refused(b"23:CONTENT_LENGTH\0\0SCGI\x001\0,", 400, ONE_NUMBER),
    refused(b"25:CONTENT_LENGTH\0+5\0SCGI\x001\0,", 400, ONE_NUMBER),
    refused(b"25:CONTENT_LENGTH\0 5\0SCGI\x001\0,", 400, ONE_NUMBER),
    refused(b"26:CONTENT_LENGTH\x005,5\0SCGI\x001\0,", 400, ONE_NUMBER),
    refused(b"43:CONTENT_LENGTH\x0018446744073709551616\0SCGI\x001\0,", 400, ONE_NUMBER),
    refused(b"41:CONTENT_LENGTH\x000\0CONTENT_LENGTH\x000\0SCGI\x001\0,", 400, "more than one CONTENT_LENGTH"),
];
