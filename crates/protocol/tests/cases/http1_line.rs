//! Request lines: RFC 9112 section 3.

use bolide_protocol::http1::head::Version::{self, Http10, Http11};

use super::Refusal;

/// The bytes, and method, target and version, or the error.
pub struct LineCase {
    pub bytes: &'static [u8],
    pub outcome: Result<(&'static [u8], &'static [u8], Version), Refusal>,
}

const fn read(bytes: &'static [u8], method: &'static [u8], target: &'static [u8], version: Version) -> LineCase {
    LineCase { bytes, outcome: Ok((method, target, version)) }
}

const fn refused(bytes: &'static [u8], status: u16, words: &'static str) -> LineCase {
    LineCase { bytes, outcome: Err((status, words)) }
}

const STRANGE_TARGET: &str = "non-ASCII byte or a backslash";

pub const CASES: &[LineCase] = &[
    read(b"GET / HTTP/1.1\r\n", b"GET", b"/", Http11),
    read(b"GET / HTTP/1.0\r\n", b"GET", b"/", Http10),
    // RFC 9110 section 2.5: a higher minor version is treated as the highest supported one.
    read(b"GET / HTTP/1.2\r\n", b"GET", b"/", Http11),
    read(b"GET / HTTP/1.9\r\n", b"GET", b"/", Http11),
    read(b"POST /a/b?c=d&e=%20f HTTP/1.1\r\n", b"POST", b"/a/b?c=d&e=%20f", Http11),
    read(b"OPTIONS * HTTP/1.1\r\n", b"OPTIONS", b"*", Http11),
    read(b"GET http://example.org/ HTTP/1.1\r\n", b"GET", b"http://example.org/", Http11),
    read(b"CONNECT example.org:443 HTTP/1.1\r\n", b"CONNECT", b"example.org:443", Http11),
    // Methods are case-sensitive tokens of any kind; whether one is known is not checked here.
    read(b"get / HTTP/1.1\r\n", b"get", b"/", Http11),
    read(b"X-!#$%&'*+.^_`|~ / HTTP/1.1\r\n", b"X-!#$%&'*+.^_`|~", b"/", Http11),
    read(b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1\r\n", b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF", b"/", Http11),
    read(b"GET /\"<>[]^`{|}~ HTTP/1.1\r\n", b"GET", b"/\"<>[]^`{|}~", Http11),
    refused(b"GET /caf\xc3\xa9 HTTP/1.1\r\n", 400, STRANGE_TARGET),
    refused(b"GET /?\xff HTTP/1.1\r\n", 400, STRANGE_TARGET),
    refused(b"GET /?\x80 HTTP/2.0\r\n", 400, STRANGE_TARGET),
    refused(b"GET /a\\b HTTP/1.1\r\n", 400, STRANGE_TARGET),
    refused(b"GET \\ HTTP/1.1\r\n", 400, STRANGE_TARGET),
    refused(b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n", 400, "longer than any known"),
    refused(b"GET / HTTP/2.0\r\n", 505, "is not supported"),
    refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "speaks HTTP/2 without TLS"),
    refused(b"GET / HTTP/0.9\r\n", 505, "is not supported"),
    refused(b"GET / HTTP/3.1\r\n", 505, "is not supported"),
    refused(b" GET / HTTP/1.1\r\n", 400, "begins with a space"),
    refused(b"\tGET / HTTP/1.1\r\n", 400, "method has an invalid character"),
    refused(b"G ET / HTTP/1.1\r\n", 400, "version is malformed"),
    refused(b"G\0T / HTTP/1.1\r\n", 400, "method has an invalid character"),
    refused(b"GET: / HTTP/1.1\r\n", 400, "method has an invalid character"),
    refused(b"G\xc3\x89T / HTTP/1.1\r\n", 400, "method has an invalid character"),
    // A TLS handshake, sent to a port that speaks plain HTTP.
    refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "speaks TLS"),
    refused(b"\0\x20\x01\0\x0e\0REQUEST_METHOD\x03\0GET", 400, "received the uwsgi protocol"),
    refused(b"\x01\x01\0\x01\0\x08\0\0", 400, "An HTTP socket received FastCGI"),
    refused(b"70:CONTENT_LENGTH\x000\0", 400, "An HTTP socket received SCGI"),
    refused(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\n", 400, "A socket received a PROXY header"),
    refused(b"PROXY UNKNOWN\r\nGET / HTTP/1.1\r\n", 400, "A socket received a PROXY header"),
    refused(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", 400, "version 2 PROXY header"),
    refused(b"\r\nGET / HTTP/1.1\r\n", 400, "empty line"),
    refused(b"\nGET / HTTP/1.1\r\n", 400, "empty line"),
    refused(b"\rGET / HTTP/1.1\r\n", 400, "empty line"),
    refused(b"GET\r\n", 400, "target is missing"),
    refused(b"GET\n", 400, "target is missing"),
    refused(b"GET \r\n", 400, "target is missing"),
    refused(b"GET  / HTTP/1.1\r\n", 400, "More than one space follows the request's method"),
    refused(b"GET\t/ HTTP/1.1\r\n", 400, "method has an invalid character"),
    refused(b"GET /  HTTP/1.1\r\n", 400, "More than one space follows the request's target"),
    refused(b"GET /\tHTTP/1.1\r\n", 400, "target has a control character"),
    refused(b"GET /a b HTTP/1.1\r\n", 400, "version is malformed"),
    refused(b"GET /a\0b HTTP/1.1\r\n", 400, "target has a control character"),
    refused(b"GET /a\x7fb HTTP/1.1\r\n", 400, "target has a control character"),
    refused(b"GET /a\rb HTTP/1.1\r\n", 400, "HTTP version is missing"),
    refused(b"GET /a\nHost: b\r\n", 400, "HTTP version is missing"),
    // HTTP/0.9
    refused(b"GET /\r\n", 400, "HTTP version is missing"),
    refused(b"GET / \r\n", 400, "version is malformed"),
    refused(b"GET / http/1.1\r\n", 400, "version is malformed"),
    refused(b"GET / HTTP/1\r\n", 400, "version is malformed"),
    refused(b"GET / HTTP/11\r\n", 400, "version is malformed"),
    refused(b"GET / HTTP/1,1\r\n", 400, "version is malformed"),
    refused(b"GET / HTTP/+1.1\r\n", 400, "version is malformed"),
    refused(b"GET / HTTP/01.1\r\n", 400, "version is malformed"),
    refused(b"GET / HTTQ/1.1\r\n", 400, "version is malformed"),
    refused(b"GET / HTTP/1.10\r\n", 400, "Text follows the HTTP version"),
    refused(b"GET / HTTP/1.1 \r\n", 400, "Text follows the HTTP version"),
    refused(b"GET / HTTP/1.1\n", 400, "does not end with CRLF"),
    refused(b"GET / HTTP/1.1\r\r\n", 400, "does not end with CRLF"),
    refused(b"GET / HTTP/1.1\rX", 400, "Text follows the HTTP version"),
];
