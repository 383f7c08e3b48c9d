//! Header blocks of trusted peers, and the expected results. Addresses of 10.0.0.0/8 and fd00::/8 belong to trusted reverse
//! proxies.

/// The fields of a block, in their order.
pub type Block = &'static [(&'static str, &'static str)];

/// Client and its port, scheme, host, port, prefix.
pub type ForwardedFacts = (&'static str, Option<u16>, &'static str, &'static str, Option<u16>, Option<&'static str>);

const FOR: &str = "X-Forwarded-For";
const PROTO: &str = "X-Forwarded-Proto";
const HOST: &str = "X-Forwarded-Host";
const PORT: &str = "X-Forwarded-Port";
const PREFIX: &str = "X-Forwarded-Prefix";
const RFC: &str = "Forwarded";

const NOTHING: ForwardedFacts = ("", None, "", "", None, None);

const fn client(address: &'static str) -> ForwardedFacts {
    (address, None, "", "", None, None)
}

const fn scheme(scheme: &'static str) -> ForwardedFacts {
    ("", None, scheme, "", None, None)
}

const fn host(host: &'static str) -> ForwardedFacts {
    ("", None, "", host, None, None)
}

const fn prefix(prefix: &'static str) -> ForwardedFacts {
    ("", None, "", "", None, Some(prefix))
}

pub const CASES: &[(Block, ForwardedFacts)] = &[
    (&[], NOTHING),
    (&[("Host", "a"), ("X-Forwarded", "b"), ("X-Real-IP", "192.0.2.1")], NOTHING),
    // X-Forwarded-For: trusted from its end up to the first address that is not trusted.
    (&[(FOR, "192.0.2.1")], client("192.0.2.1")),
    (&[("x-forwarded-for", "192.0.2.1")], client("192.0.2.1")),
    (&[(FOR, "203.0.113.9, 192.0.2.1")], client("192.0.2.1")),
    (&[(FOR, "203.0.113.9, 192.0.2.1, 10.0.0.1")], client("192.0.2.1")),
    (&[(FOR, "203.0.113.9, 10.0.0.9, 192.0.2.1, 10.0.0.2,10.0.0.1")], client("192.0.2.1")),
    (&[(FOR, "10.0.0.3, 10.0.0.2")], client("10.0.0.3")),
    (&[(FOR, "203.0.113.9"), (FOR, "192.0.2.1"), (FOR, "10.0.0.1")], client("192.0.2.1")),
    (&[(FOR, " , 192.0.2.1 ,, ")], client("192.0.2.1")),
    (&[(FOR, "192.0.2.1:4711")], ("192.0.2.1", Some(4711), "", "", None, None)),
    (&[(FOR, "2001:db8::1")], client("2001:db8::1")),
    (&[(FOR, "[2001:db8::1]")], client("2001:db8::1")),
    (&[(FOR, "[2001:db8::1]:4711")], ("2001:db8::1", Some(4711), "", "", None, None)),
    (&[(FOR, "::ffff:192.0.2.1")], client("192.0.2.1")),
    (&[(FOR, "192.0.2.1, fd00::7")], client("192.0.2.1")),
    // The entries before one without an address are not trusted.
    (&[(FOR, "unknown")], NOTHING),
    (&[(FOR, "192.0.2.1, unknown")], NOTHING),
    (&[(FOR, "192.0.2.1, unknown, 10.0.0.1")], client("10.0.0.1")),
    (&[(FOR, "192.0.2.1, <script>, 10.0.0.1")], client("10.0.0.1")),
    (&[(FOR, "192.0.2.1, 10.0.0.1.2")], NOTHING),
    (&[(FOR, "localhost")], NOTHING),
    (&[(FOR, "192.0.2.1:x")], NOTHING),
    (&[(FOR, "fe80::1%eth0")], NOTHING),
    (&[(FOR, "caf\u{e9}")], NOTHING),
    // The scheme.
    (&[(PROTO, "https")], scheme("https")),
    (&[(PROTO, "HTTPS")], scheme("https")),
    (&[(PROTO, "wss")], scheme("https")),
    (&[(PROTO, "http")], scheme("http")),
    (&[(PROTO, "ws")], scheme("http")),
    (&[(PROTO, "https, http")], scheme("http")),
    (&[(PROTO, "https"), (PROTO, "http")], scheme("http")),
    (&[(PROTO, "https"), (PROTO, "gopher")], NOTHING),
    (&[(PROTO, "")], NOTHING),
    (&[(PROTO, "javascript")], NOTHING),
    // Host and port.
    (&[(HOST, "shop.example")], host("shop.example")),
    (&[(HOST, "evil.example, shop.example:8443")], host("shop.example:8443")),
    (&[(HOST, "[::1]:80")], host("[::1]:80")),
    (&[(HOST, ":80")], NOTHING),
    (&[(HOST, "a b")], NOTHING),
    (&[(HOST, "a@b")], NOTHING),
    (&[(HOST, "shop.example, <b>")], NOTHING),
    (&[(PORT, "8443")], ("", None, "", "", Some(8443), None)),
    (&[(PORT, "80, 8443")], ("", None, "", "", Some(8443), None)),
    (&[(PORT, "0")], NOTHING),
    (&[(PORT, "65536")], NOTHING),
    (&[(PORT, "+80")], NOTHING),
    (&[(PORT, "https")], NOTHING),
    // The path prefix.
    (&[(PREFIX, "/shop")], prefix("/shop")),
    (&[(PREFIX, "/shop/eu/")], prefix("/shop/eu")),
    (&[(PREFIX, "/evil, /shop")], prefix("/shop")),
    (&[(PREFIX, "/")], prefix("")),
    (&[(PREFIX, "shop")], NOTHING),
    (&[(PREFIX, "//evil.example")], NOTHING),
    (&[(PREFIX, "/a//b")], NOTHING),
    (&[(PREFIX, "/a/../b")], NOTHING),
    (&[(PREFIX, "/a?b")], NOTHING),
    (&[(PREFIX, "/\\evil")], NOTHING),
    (&[(PREFIX, "/%2f")], NOTHING),
    // All fields together.
    (
        &[(FOR, "192.0.2.1"), (PROTO, "https"), (HOST, "shop.example"), (PORT, "443"), (PREFIX, "/shop")],
        ("192.0.2.1", None, "https", "shop.example", Some(443), Some("/shop")),
    ),
    // RFC 7239.
    (&[(RFC, "for=192.0.2.60;proto=http;by=203.0.113.43")], ("192.0.2.60", None, "http", "", None, None)),
    (&[(RFC, "For=\"[2001:db8:cafe::17]:4711\"")], ("2001:db8:cafe::17", Some(4711), "", "", None, None)),
    (&[(RFC, "for=192.0.2.43, for=10.0.0.17")], client("192.0.2.43")),
    (&[(RFC, "for=192.0.2.43, for=\"[fd00::17]\";proto=https")], ("192.0.2.43", None, "https", "", None, None)),
    (
        &[(RFC, "for=203.0.113.9;proto=http;host=evil.example, for=192.0.2.43;proto=https;host=shop.example, for=10.0.0.17")],
        ("192.0.2.43", None, "https", "shop.example", None, None),
    ),
    (&[(RFC, "for=192.0.2.43"), (RFC, "for=10.0.0.17;proto=https")], ("192.0.2.43", None, "https", "", None, None)),
    (&[(RFC, "for=_hidden;proto=https")], scheme("https")),
    (&[(RFC, "for=192.0.2.43, for=unknown;proto=https")], scheme("https")),
    (&[(RFC, "for=192.0.2.43;host=evil.example, proto=https")], scheme("https")),
    (&[(RFC, "for=\"192.0.2.43:4711\"")], ("192.0.2.43", Some(4711), "", "", None, None)),
    (&[(RFC, "for=192.0.2.43:4711")], ("192.0.2.43", Some(4711), "", "", None, None)),
    (&[(RFC, "for=\"2001:db8::1\"")], NOTHING),
    (&[(RFC, " , for=192.0.2.43 ; proto=https , ")], ("192.0.2.43", None, "https", "", None, None)),
    (&[(RFC, "secret=\"a, \\\" for=1.2.3.4\";for=192.0.2.43")], client("192.0.2.43")),
    (&[(RFC, "host=\"shop.example:8443\"")], host("shop.example:8443")),
    (&[(RFC, "host=\"shop\\.example\"")], NOTHING),
    (&[(RFC, "for")], NOTHING),
    (&[(RFC, "for=")], NOTHING),
    (&[(RFC, "for=\"192.0.2.43")], NOTHING),
    (&[(RFC, "for=192.0.2.43 10.0.0.1")], NOTHING),
    (&[(RFC, "for=192.0.2.43;for=192.0.2.44")], NOTHING),
    (&[(RFC, "for=192.0.2.43, for=10.0.0.17"), (RFC, "junk junk")], NOTHING),
    // If a request has both, the X-Forwarded fields take precedence.
    (&[(FOR, "192.0.2.1"), (RFC, "for=192.0.2.43;proto=https")], client("192.0.2.1")),
    (&[(RFC, "for=192.0.2.43;proto=https"), (PROTO, "http")], scheme("http")),
];
