//! Header blocks: RFC 9112 sections 3.2, 5, 6, 7, 9.3; RFC 9110 sections 5, 7.2, 7.6.1, 7.8, 10.1.1.

use bolide_protocol::http1::head::Framing::{self, Chunked, Length};
use bolide_protocol::http1::head::Version::{self, Http10, Http11};

use super::Refusal;

pub struct BlockCase {
    pub version: Version,
    pub bytes: &'static [u8],
    pub outcome: Result<Expected, Refusal>,
}

/// The expected result.
#[derive(Clone, Copy)]
pub struct Expected {
    pub framing: Framing,
    pub keep_alive: bool,
    pub expect_continue: bool,
    pub upgrade: bool,
    pub host: Option<&'static [u8]>,
    /// Names and values, if they are not as simple as in most cases.
    pub fields: Option<&'static [(&'static [u8], &'static [u8])]>,
}

/// A request to host `a` with no other facts, in HTTP/1.1 and in HTTP/1.0.
const PLAIN: Expected =
    Expected { framing: Framing::None, keep_alive: true, expect_continue: false, upgrade: false, host: Some(b"a"), fields: None };
const PLAIN_10: Expected = Expected { keep_alive: false, host: None, ..PLAIN };

const fn host(text: &'static [u8]) -> Expected {
    Expected { host: Some(text), ..PLAIN }
}

const fn fields(list: &'static [(&'static [u8], &'static [u8])]) -> Expected {
    Expected { fields: Some(list), ..PLAIN }
}

const fn read(bytes: &'static [u8], expected: Expected) -> BlockCase {
    BlockCase { version: Http11, bytes, outcome: Ok(expected) }
}

const fn read_10(bytes: &'static [u8], expected: Expected) -> BlockCase {
    BlockCase { version: Http10, bytes, outcome: Ok(expected) }
}

const fn refused(bytes: &'static [u8], status: u16, words: &'static str) -> BlockCase {
    BlockCase { version: Http11, bytes, outcome: Err((status, words)) }
}

const fn refused_10(bytes: &'static [u8], status: u16, words: &'static str) -> BlockCase {
    BlockCase { version: Http10, bytes, outcome: Err((status, words)) }
}

const ONE_NUMBER: &str = "is not a single number";
const ONE_WORD: &str = "is not the single word chunked";
const BAD_HOST: &str = "not a host with an optional port";
const NAME_CHARACTER: &str = "name has an invalid character";

pub const CASES: &[BlockCase] = &[
    // Names and values.
    read(b"Host: a\r\n\r\n", fields(&[(b"Host", b"a")])),
    read(b"host:a\r\n\r\n", fields(&[(b"host", b"a")])),
    read(b"HOST: \t a\t \r\nX:\r\nY: \t \r\n\r\n", fields(&[(b"HOST", b"a"), (b"X", b""), (b"Y", b"")])),
    read(b"Host: a\r\nX: b\tc  d\t\te\r\n\r\n", fields(&[(b"Host", b"a"), (b"X", b"b\tc  d\t\te")])),
    read(b"Host: a\r\nX: :b: c\r\n\r\n", fields(&[(b"Host", b"a"), (b"X", b":b: c")])),
    read(b"Host: a\r\nX: caf\xc3\xa9 \x80\xff\r\n\r\n", fields(&[(b"Host", b"a"), (b"X", b"caf\xc3\xa9 \x80\xff")])),
    read(b"Host: a\r\n!#$%&'*+-.^`|~0Az: b\r\n\r\n", fields(&[(b"Host", b"a"), (b"!#$%&'*+-.^`|~0Az", b"b")])),
    read(b"X: 1\r\nx: 2\r\nHost: a\r\nX: 1\r\n\r\n", fields(&[(b"X", b"1"), (b"x", b"2"), (b"Host", b"a"), (b"X", b"1")])),
    // A name with an underscore would equal the one with a dash in `environ`: dropped.
    read(b"X_Real_IP: b\r\nHost: a\r\n_: c\r\nX-B: d\r\n\r\n", fields(&[(b"Host", b"a"), (b"X-B", b"d")])),
    read(b"Host: a\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\n\r\n", fields(&[(b"Host", b"a")])),
    refused(b"Host : a\r\n\r\n", 400, "between a header's name and its colon"),
    refused(b"Host\t: a\r\n\r\n", 400, "between a header's name and its colon"),
    refused(b"Host: a\r\nTransfer-Encoding : chunked\r\n\r\n", 400, "between a header's name and its colon"),
    refused(b" Host: a\r\n\r\n", 400, "begins with a space or a tab"),
    refused(b"Host: a\r\n b\r\n\r\n", 400, "begins with a space or a tab"),
    refused(b"Host: a\r\n\tb\r\n\r\n", 400, "begins with a space or a tab"),
    refused(b"Host: a\r\n \r\n\r\n", 400, "begins with a space or a tab"),
    refused(b": a\r\n\r\n", 400, "does not have a name before its colon"),
    refused(b"Host: a\r\n:\r\n\r\n", 400, "does not have a name before its colon"),
    refused(b"Host\r\n\r\n", 400, "does not have a colon"),
    refused(b"Host\n\r\n", 400, "does not have a colon"),
    refused(b"Ho\0st: a\r\n\r\n", 400, NAME_CHARACTER),
    refused(b"Host: a\r\nX(y): b\r\n\r\n", 400, NAME_CHARACTER),
    refused(b"Host: a\r\n\"X\": b\r\n\r\n", 400, NAME_CHARACTER),
    refused(b"Host: a\r\nX/y: b\r\n\r\n", 400, NAME_CHARACTER),
    refused(b"Host: a\r\nX\xe9: b\r\n\r\n", 400, NAME_CHARACTER),
    refused(b"Host: a\r\n\x0bContent-Length: 5\r\n\r\n", 400, NAME_CHARACTER),
    refused(b"Host: a\r\nX: b\0c\r\n\r\n", 400, "has a NUL"),
    refused(b"Host: a\r\nX: b\x01c\r\n\r\n", 400, "control character"),
    refused(b"Host: a\r\nX: b\x0cc\r\n\r\n", 400, "control character"),
    refused(b"Host: a\r\nX: b\x1fc\r\n\r\n", 400, "control character"),
    refused(b"Host: a\r\nX: b\x7fc\r\n\r\n", 400, "control character"),
    // Bare CR and bare LF, wherever a parser could read one as the end of a line.
    refused(b"Host: a\n\n", 400, "LF without a CR"),
    refused(b"Host: a\n\r\n", 400, "LF without a CR"),
    refused(b"Host: a\r\nX: b\nContent-Length: 5\r\n\r\n", 400, "LF without a CR"),
    refused(b"Host: a\r\nX: b\rContent-Length: 5\r\n\r\n", 400, "CR without an LF"),
    refused(b"Host: a\r\r\n\r\n", 400, "CR without an LF"),
    refused(b"Host: a\r\nX:\r\r\n\r\n", 400, "CR without an LF"),
    refused(b"Host: a\r\n\n", 400, "begins with an LF"),
    refused(b"Host: a\r\n\r\r\n", 400, "begins with a CR"),
    refused(b"Host: a\r\n\rX: b\r\n\r\n", 400, "begins with a CR"),
    // Host.
    read(b"Host:\r\n\r\n", host(b"")),
    read(b"Host: \t \r\n\r\n", host(b"")),
    refused(b"Host:\r\nHost:\r\n\r\n", 400, "more than one Host"),
    refused(b"Host:\r\nHost: a\r\n\r\n", 400, "more than one Host"),
    refused(b"Host: :80\r\n\r\n", 400, "does not contain a host"),
    refused(b"Host: :\r\n\r\n", 400, "does not contain a host"),
    refused_10(b"Host: :80\r\n\r\n", 400, "does not contain a host"),
    read(b"Host: example.org\r\n\r\n", host(b"example.org")),
    read(b"Host: example.org:8080\r\n\r\n", host(b"example.org:8080")),
    read(b"Host: example.org:\r\n\r\n", host(b"example.org:")),
    read(b"Host: example.org.:65535\r\n\r\n", host(b"example.org.:65535")),
    refused(b"Host: example.org:65536\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: example.org:18446744073709551696\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: [::1]:65536\r\n\r\n", 400, BAD_HOST),
    read(b"Host: 127.0.0.1:80\r\n\r\n", host(b"127.0.0.1:80")),
    read(b"Host: [::1]\r\n\r\n", host(b"[::1]")),
    read(b"Host: [2001:db8::7]:443\r\n\r\n", host(b"[2001:db8::7]:443")),
    read(b"Host: a_b-c.d~e!$&'()*+,;=%7Ef\r\n\r\n", host(b"a_b-c.d~e!$&'()*+,;=%7Ef")),
    refused(b"\r\n", 400, "no Host header"),
    refused(b"X: b\r\n\r\n", 400, "no Host header"),
    refused(b"Host: a\r\nHost: a\r\n\r\n", 400, "more than one Host"),
    refused(b"Host: a\r\nX: b\r\nhOST: c\r\n\r\n", 400, "more than one Host"),
    refused(b"Host: a b\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a/b\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a?b\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a#b\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a@b\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a\\b\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: <a>\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: caf\xc3\xa9\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a:b\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a:80:81\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: ::1\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: [::1\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: [a]\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: []\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: [::1]a\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a%zz\r\n\r\n", 400, BAD_HOST),
    refused(b"Host: a%2\r\n\r\n", 400, BAD_HOST),
    read_10(b"\r\n", PLAIN_10),
    read_10(b"Host: a\r\n\r\n", Expected { keep_alive: false, ..PLAIN }),
    refused_10(b"Host: a\r\nHost: a\r\n\r\n", 400, "more than one Host"),
    refused_10(b"Host: a/b\r\n\r\n", 400, BAD_HOST),
    // Content-Length.
    read(b"Host: a\r\nContent-Length: 0\r\n\r\n", Expected { framing: Length(0), ..PLAIN }),
    read(b"Host: a\r\ncontent-length:\t42 \r\n\r\n", Expected { framing: Length(42), ..PLAIN }),
    refused(b"Host: a\r\nContent-Length: 0042\r\n\r\n", 400, "has a leading zero"),
    refused(b"Host: a\r\nContent-Length: 00\r\n\r\n", 400, "has a leading zero"),
    read(b"Host: a\r\nContent-Length: 18446744073709551615\r\n\r\n", Expected { framing: Length(u64::MAX), ..PLAIN }),
    read_10(b"Content-Length: 7\r\n\r\n", Expected { framing: Length(7), ..PLAIN_10 }),
    refused(b"Host: a\r\nContent-Length: 18446744073709551616\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length:\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: +5\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: -5\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: 5 5\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: 5, 5\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: 5,\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: 0x5\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: 5.0\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: 1_0\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: \xd9\xa5\r\n\r\n", 400, ONE_NUMBER),
    refused(b"Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", 400, "more than one Content-Length"),
    refused(b"Host: a\r\nContent-Length: 5\r\ncontent-lengtH: 6\r\n\r\n", 400, "more than one Content-Length"),
    // Transfer-Encoding.
    read(b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n", Expected { framing: Chunked, ..PLAIN }),
    read(b"Host: a\r\ntransfer-encoding:\t CHUNKed\t\r\n\r\n", Expected { framing: Chunked, ..PLAIN }),
    refused(b"Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400, "both"),
    refused(b"Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "both"),
    refused(b"Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: gzip\r\n\r\n", 400, "both"),
    refused(b"Host: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n", 400, "both"),
    refused(
        b"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "more than one Transfer-Encoding",
    ),
    refused(b"Host: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "more than one Transfer-Encoding"),
    refused(b"Host: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "transfer coding is not supported"),
    refused(b"Host: a\r\nTransfer-Encoding: identity\r\n\r\n", 501, "transfer coding is not supported"),
    refused(b"Host: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501, "transfer coding is not supported"),
    refused(b"Host: a\r\nTransfer-Encoding:\r\n\r\n", 400, ONE_WORD),
    refused(b"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400, ONE_WORD),
    refused(b"Host: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 400, ONE_WORD),
    refused(b"Host: a\r\nTransfer-Encoding: chunked,\r\n\r\n", 400, ONE_WORD),
    refused(b"Host: a\r\nTransfer-Encoding: ,chunked\r\n\r\n", 400, ONE_WORD),
    refused(b"Host: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n", 400, ONE_WORD),
    refused(b"Host: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", 400, ONE_WORD),
    refused(b"Host: a\r\nTransfer-Encoding: chunked x\r\n\r\n", 400, ONE_WORD),
    refused(b"Host: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", 400, "control character"),
    refused(b"Host: a\r\nTransfer-Encoding: chun\xe9ed\r\n\r\n", 400, ONE_WORD),
    refused_10(b"Transfer-Encoding: chunked\r\n\r\n", 400, "An HTTP/1.0 request has"),
    refused_10(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "An HTTP/1.0 request has"),
    // Connection.
    read(b"Host: a\r\nConnection: close\r\n\r\n", Expected { keep_alive: false, ..PLAIN }),
    read(b"Host: a\r\nConnection: CLOSE\r\n\r\n", Expected { keep_alive: false, ..PLAIN }),
    read(b"Host: a\r\nConnection: keep-alive, close\r\n\r\n", Expected { keep_alive: false, ..PLAIN }),
    read(b"Host: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", Expected { keep_alive: false, ..PLAIN }),
    read(b"Host: a\r\nConnection: ,, x-hop ,\tClose,\r\n\r\n", Expected { keep_alive: false, ..PLAIN }),
    read(b"Host: a\r\nConnection: closed, not-close\r\n\r\n", PLAIN),
    read(b"Host: a\r\nConnection:\r\n\r\n", PLAIN),
    read(b"Host: a\r\nConnection: keep-alive\r\n\r\n", PLAIN),
    read_10(b"Connection: keep-alive\r\n\r\n", Expected { keep_alive: true, ..PLAIN_10 }),
    read_10(b"Connection: x, Keep-Alive\r\n\r\n", Expected { keep_alive: true, ..PLAIN_10 }),
    read_10(b"Connection: keep-alive\r\nConnection: close\r\n\r\n", PLAIN_10),
    read_10(b"Keep-Alive: timeout=5\r\n\r\n", PLAIN_10),
    // Upgrade.
    read(b"Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", Expected { upgrade: true, ..PLAIN }),
    read(b"Host: a\r\nUpgrade: h2c\r\nConnection: keep-alive, upgrade\r\n\r\n", Expected { upgrade: true, ..PLAIN }),
    read(b"Host: a\r\nUpgrade: websocket\r\n\r\n", PLAIN),
    read(b"Host: a\r\nConnection: upgrade\r\n\r\n", PLAIN),
    // RFC 9110 section 7.8: to be ignored in HTTP/1.0.
    read_10(b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", PLAIN_10),
    // Expect.
    read(
        b"Host: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        Expected { framing: Length(5), expect_continue: true, ..PLAIN },
    ),
    read(
        b"Host: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-Continue\r\n\r\n",
        Expected { framing: Chunked, expect_continue: true, ..PLAIN },
    ),
    read(b"Host: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n", Expected { framing: Length(0), ..PLAIN }),
    read(b"Host: a\r\nExpect: 100-continue\r\n\r\n", PLAIN),
    read(b"Host: a\r\nExpect:\r\n\r\n", PLAIN),
    read_10(b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", Expected { framing: Length(5), ..PLAIN_10 }),
    refused(b"Host: a\r\nExpect: 200-ok\r\n\r\n", 417, "other than 100-continue"),
    refused(b"Host: a\r\nExpect: 100-continue, x\r\nContent-Length: 5\r\n\r\n", 417, "other than 100-continue"),
    refused(b"Host: a\r\nExpect: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", 417, "other than 100-continue"),
];
