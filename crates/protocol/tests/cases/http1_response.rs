//! Answers of HTTP/1.1: RFC 9112 sections 4, 6 and 7.
//!
//! An expected answer is written out: the status text of each head (an interim one behind `~`) with its fields in brackets, the
//! bytes of the body, trailer fields in braces, and how it ends: `.` complete, `>` the end of the stream ends it, `!` other bytes
//! follow a switch of protocols, `?` more is needed.

use bolide_protocol::http1::response::AnswerTo;

use super::Refusal;

pub struct ResponseCase {
    pub to: AnswerTo,
    pub bytes: &'static [u8],
    pub outcome: Result<&'static str, Refusal>,
}

const fn read(bytes: &'static [u8], answer: &'static str) -> ResponseCase {
    ResponseCase { to: AnswerTo::Request, bytes, outcome: Ok(answer) }
}

const fn to_head(bytes: &'static [u8], answer: &'static str) -> ResponseCase {
    ResponseCase { to: AnswerTo::Head, bytes, outcome: Ok(answer) }
}

const fn refused(bytes: &'static [u8]) -> ResponseCase {
    ResponseCase { to: AnswerTo::Request, bytes, outcome: Err((502, "do not form an answer of HTTP/1.1")) }
}

pub const CASES: &[ResponseCase] = &[
    read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "200 OK[Content-Length=2]ab."),
    read(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "200 OK[content-length=0]."),
    // Two equal lengths are one (RFC 9110 section 8.6).
    read(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", "200 OK[Content-Length=1|Content-Length=1]a."),
    // The phrase may be empty, any text, or of another charset.
    read(b"HTTP/1.0 404 \r\nContent-Length: 0\r\n\r\n", "404 [Content-Length=0]."),
    read(b"HTTP/1.1 599 a\tb\r\nContent-Length: 0\r\n\r\n", "599 a\tb[Content-Length=0]."),
    // Without a length, the end of the stream ends a body, and an empty one too.
    read(b"HTTP/1.1 200 OK\r\nA:  b \r\n\r\nabc", "200 OK[A=b]abc>"),
    read(b"HTTP/1.1 200 OK\r\n\r\n", "200 OK[]>"),
    // Names with an underscore are an application's as any.
    read(b"HTTP/1.1 200 OK\r\nA_b: \r\nContent-Length: 0\r\n\r\n", "200 OK[A_b=|Content-Length=0]."),
    // Chunks, which override a length (RFC 9112 section 6.3).
    read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "200 OK[Transfer-Encoding=chunked]."),
    read(
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        "200 OK[Content-Length=9|Transfer-Encoding=Chunked]abc.",
    ),
    read(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: u\r\nV: w\r\n\r\n",
        "200 OK[Transfer-Encoding=chunked]a{T=u|V=w}.",
    ),
    // Statuses and requests without a body (RFC 9110 sections 9.3.2, 15.3.5 and 15.4.5).
    read(b"HTTP/1.1 204 No Content\r\n\r\n", "204 No Content[]."),
    read(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "304 Not Modified[Content-Length=5]."),
    to_head(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200 OK[Content-Length=5]."),
    to_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 OK[Transfer-Encoding=chunked]."),
    to_head(b"HTTP/1.1 200 OK\r\n\r\n", "200 OK[]."),
    // Interim answers.
    read(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        "~100 Continue[]~103 Early Hints[Link=a]200 OK[Content-Length=1]x.",
    ),
    read(b"HTTP/1.1 103 \r\n\r\n", "~103 []?"),
    // Behind a switch of protocols are bytes of the other one.
    read(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", "101 Switching Protocols[Upgrade=websocket]!"),
    read(b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x01a", "101 Switching Protocols[]!\u{fffd}\x01a"),
    // Incomplete.
    read(b"", "?"),
    read(b"HTTP/1.1 200", "?"),
    read(b"HTTP/1.1 200 OK\r", "?"),
    read(b"HTTP/1.1 200 OK\r\nA: b\r\n\r", "?"),
    read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "200 OK[Content-Length=3]ab?"),
    read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n", "200 OK[Transfer-Encoding=chunked]ab?"),
    read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: u\r\n", "200 OK[Transfer-Encoding=chunked]?"),
    // Malformed.
    refused(b"HTTP/2.0 200 OK\r\n\r\n"),
    refused(b"http/1.1 200 OK\r\n\r\n"),
    refused(b"HTTP/1.1  200 OK\r\n\r\n"),
    refused(b"HTTP/1.1 20 OK\r\n\r\n"),
    refused(b"HTTP/1.1 200\r\n\r\n"),
    refused(b"HTTP/1.1 099 OK\r\n\r\n"),
    refused(b"HTTP/1.1 2000 OK\r\n\r\n"),
    refused(b"HTTP/1.1 200 O\0K\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\n\n"),
    refused(b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nA b\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"),
    refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT\r\n\r\n"),
];

/// Bytes that may follow a complete answer, none of which it uses.
pub const BEHIND: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
