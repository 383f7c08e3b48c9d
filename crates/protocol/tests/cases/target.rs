//! Targets and their parts (RFC 9112 section 3.2), and percent escapes (RFC 3986 section 2.1).

use bolide_protocol::http1::target::TargetForm::{self, Absolute, Asterisk, Origin};

use super::Refusal;

pub struct TargetCase {
    pub method: &'static [u8],
    pub target: &'static [u8],
    pub outcome: Result<Expected, Refusal>,
}

#[derive(Clone, Copy)]
pub struct Expected {
    pub form: TargetForm,
    pub path: &'static [u8],
    /// `None` without a question mark.
    pub query: Option<&'static [u8]>,
    pub authority: &'static [u8],
}

const fn origin(target: &'static [u8], path: &'static [u8], query: Option<&'static [u8]>) -> TargetCase {
    TargetCase { method: b"GET", target, outcome: Ok(Expected { form: Origin, path, query, authority: b"" }) }
}

const fn absolute(
    target: &'static [u8],
    authority: &'static [u8],
    path: &'static [u8],
    query: Option<&'static [u8]>,
) -> TargetCase {
    TargetCase { method: b"GET", target, outcome: Ok(Expected { form: Absolute, path, query, authority }) }
}

const fn refused(method: &'static [u8], target: &'static [u8], status: u16, words: &'static str) -> TargetCase {
    TargetCase { method, target, outcome: Err((status, words)) }
}

const NO_FORM: &str = "neither a path nor an http URI";
const BAD_HOST: &str = "host in the request's target";

pub const CASES: &[TargetCase] = &[
    origin(b"/", b"/", None),
    origin(b"/a/b", b"/a/b", None),
    origin(b"/a?b=c", b"/a", Some(b"b=c")),
    origin(b"/a?", b"/a", Some(b"")),
    origin(b"/?a?b/c", b"/", Some(b"a?b/c")),
    origin(b"/a%3Fb?c", b"/a%3Fb", Some(b"c")),
    origin(b"//a/b", b"//a/b", None),
    origin(b"/http://a/", b"/http://a/", None),
    origin(b"/../a", b"/../a", None),
    origin(b"/\xc3\xa9?\xff", b"/\xc3\xa9", Some(b"\xff")),
    absolute(b"http://a/b?c", b"a", b"/b", Some(b"c")),
    absolute(b"HTTPS://a.example:8443/", b"a.example:8443", b"/", None),
    absolute(b"http://a", b"a", b"/", None),
    absolute(b"https://a?b", b"a", b"/", Some(b"b")),
    absolute(b"http://[::1]:80/b", b"[::1]:80", b"/b", None),
    TargetCase {
        method: b"OPTIONS",
        target: b"*",
        outcome: Ok(Expected { form: Asterisk, path: b"*", query: None, authority: b"" }),
    },
    TargetCase {
        method: b"OPTIONS",
        target: b"/a",
        outcome: Ok(Expected { form: Origin, path: b"/a", query: None, authority: b"" }),
    },
    refused(b"GET", b"*", 400, "for OPTIONS only"),
    refused(b"options", b"*", 400, "for OPTIONS only"),
    refused(b"OPTIONS", b"**", 400, NO_FORM),
    refused(b"OPTIONS", b"*?a", 400, NO_FORM),
    refused(b"GET", b"", 400, NO_FORM),
    refused(b"GET", b"a", 400, NO_FORM),
    refused(b"GET", b"?a", 400, NO_FORM),
    refused(b"GET", b"a/b", 400, NO_FORM),
    refused(b"GET", b"\\a", 400, NO_FORM),
    refused(b"GET", b"%2fa", 400, NO_FORM),
    refused(b"GET", b"example.org:80", 400, NO_FORM),
    refused(b"GET", b"ftp://a/b", 400, NO_FORM),
    refused(b"GET", b"http:/a", 400, NO_FORM),
    refused(b"GET", b"http:a", 400, NO_FORM),
    refused(b"GET", b"http://", 400, BAD_HOST),
    refused(b"GET", b"http:///a", 400, BAD_HOST),
    refused(b"GET", b"http://:80/a", 400, BAD_HOST),
    refused(b"GET", b"http://b@a/", 400, BAD_HOST),
    refused(b"GET", b"http://a:b/", 400, BAD_HOST),
    refused(b"GET", b"http://a\\b/", 400, BAD_HOST),
    refused(b"GET", b"http://[::1/", 400, BAD_HOST),
    refused(b"GET", b"/a#b", 400, "fragment"),
    refused(b"GET", b"/a?b#c", 400, "fragment"),
    refused(b"GET", b"/#", 400, "fragment"),
    refused(b"GET", b"http://a#b", 400, "fragment"),
    refused(b"CONNECT", b"example.org:443", 501, "CONNECT"),
    refused(b"CONNECT", b"/", 501, "CONNECT"),
];

pub struct EscapeCase {
    pub path: &'static [u8],
    /// `None` if there is nothing to decode.
    pub outcome: Result<Option<&'static [u8]>, Refusal>,
}

const fn decoded(path: &'static [u8], text: &'static [u8]) -> EscapeCase {
    EscapeCase { path, outcome: Ok(Some(text)) }
}

const fn as_it_is(path: &'static [u8]) -> EscapeCase {
    EscapeCase { path, outcome: Ok(None) }
}

const fn bad(path: &'static [u8], words: &'static str) -> EscapeCase {
    EscapeCase { path, outcome: Err((400, words)) }
}

const DIGITS: &str = "without two hexadecimal digits";

pub const ESCAPES: &[EscapeCase] = &[
    as_it_is(b""),
    as_it_is(b"/"),
    as_it_is(b"/a+b"),
    as_it_is(b"/\xc3\xa9"),
    decoded(b"/a%20b", b"/a b"),
    decoded(b"/%41", b"/A"),
    decoded(b"%c3%A9", b"\xc3\xa9"),
    decoded(b"/a+%2B", b"/a++"),
    // A decoded slash equals a slash for the application, as in every WSGI server; REQUEST_URI distinguishes the two.
    decoded(b"/a%2Fb%2e%2e", b"/a/b.."),
    // Decoded once, not twice.
    decoded(b"/%2541", b"/%41"),
    decoded(b"/%0d%0A%01%7f%ff", b"/\r\n\x01\x7f\xff"),
    bad(b"/%", DIGITS),
    bad(b"/%4", DIGITS),
    bad(b"/%4g", DIGITS),
    bad(b"/%g4", DIGITS),
    bad(b"/%%41", DIGITS),
    bad(b"/%u0041", DIGITS),
    bad(b"/%+1", DIGITS),
    bad(b"/%41%", DIGITS),
    bad(b"/a%00b", "encoded NUL"),
    bad(b"/%41%00", "encoded NUL"),
];

/// Paths with dot segments, and near misses, as in uWSGI's `http_url_decode`. One difference: a path whose last segment climbs to
/// the root is `/` here, as in RFC 3986 section 5.2.4, and empty in uWSGI.
pub const DOT_SEGMENTS: &[EscapeCase] = &[
    decoded(b"/.", b"/"),
    decoded(b"/./", b"/"),
    decoded(b"/..", b"/"),
    decoded(b"/../", b"/"),
    decoded(b"/../../a", b"/a"),
    decoded(b"/a/.", b"/a/"),
    decoded(b"/a/./b", b"/a/b"),
    decoded(b"/a/..", b"/"),
    decoded(b"/a/../", b"/"),
    decoded(b"/a/../b", b"/b"),
    decoded(b"/a/../..", b"/"),
    decoded(b"/a/b/..", b"/a/"),
    decoded(b"/a/b/../../c/./d", b"/c/d"),
    decoded(b"/x/../admin/x", b"/admin/x"),
    decoded(b"/a/../b//c/.", b"/b//c/"),
    decoded(b"//../a", b"/a"),
    decoded(b"/a//..", b"/a/"),
    decoded(b"/a//../b", b"/a/b"),
    decoded(b"/.a/..b/.../a./b../../c", b"/.a/..b/.../a./c"),
    decoded(b"/a%20b/./%41", b"/a b/A"),
    // The decoded path is not decoded again, but a decoded slash ends a segment that `..` removes.
    decoded(b"/a/%2e%2e/./b", b"/a/../b"),
    decoded(b"/a/.%2e/./b", b"/a/../b"),
    decoded(b"/a%2fb/../c", b"/a/c"),
    as_it_is(b"*"),
    as_it_is(b"/.well-known/a"),
    as_it_is(b"/a.b/..c/...?"),
    as_it_is(b"/a./b../"),
    decoded(b"/a/%2e%2e/b", b"/a/../b"),
    decoded(b"/a/.%2e/b", b"/a/../b"),
    bad(b"/a/../%", DIGITS),
    bad(b"/a%2/../b", DIGITS),
    bad(b"/%00/..", "encoded NUL"),
];
