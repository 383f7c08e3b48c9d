//! Cases of PROXY headers: those of the specification, those that balancers send, and invalid ones.

pub struct ProxyHeaderCase {
    pub bytes: Vec<u8>,
    pub outcome: Outcome,
}

pub enum Outcome {
    /// The client's address, `sender` or `unix`; and for TLS: version, cipher, CN, certificate, verified.
    Read(&'static str, Option<(&'static str, &'static str, &'static str, bool, bool)>),
    Partial,
    Refused(&'static str),
}

const NO_HEADER: &str = "does not begin with a PROXY header";
const ADDRESSES: &str = "addresses or ports are malformed";
const FAMILY: &str = "is not TCP4, TCP6 or UNKNOWN";
const BEYOND: &str = "extends beyond its end";

pub const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header of version 2.
pub fn binary(command: u8, family: u8, rest: &[&[u8]]) -> Vec<u8> {
    let rest = rest.concat();
    [SIGNATURE, &[command, family], &(rest.len() as u16).to_be_bytes(), &rest].concat()
}

/// A nested part: its type, its length and its value.
pub fn part(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind], &(value.len() as u16).to_be_bytes()[..], value].concat()
}

const IPV4: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 0x01, 0xbb];

fn ipv6(source: [u8; 16]) -> Vec<u8> {
    [&source[..], &[0; 15], &[1], &[0xdc, 0x04], &[0x01, 0xbb]].concat()
}

fn ssl(client: u8, verify: u32, parts: &[Vec<u8>]) -> Vec<u8> {
    part(0x20, &[&[client][..], &verify.to_be_bytes(), &parts.concat()].concat())
}

fn line(text: &str, outcome: Outcome) -> ProxyHeaderCase {
    ProxyHeaderCase { bytes: text.as_bytes().to_vec(), outcome }
}

fn lines() -> Vec<ProxyHeaderCase> {
    use Outcome::{Partial, Read, Refused};
    let longest = "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    vec![
        line("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", Read("192.0.2.1:56324", None)),
        line("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", Read("255.255.255.255:65535", None)),
        line("PROXY TCP4 192.0.2.1 198.51.100.1 0 0\r\n", Read("192.0.2.1:0", None)),
        line("PROXY TCP6 2001:db8::1 ::1 4711 80\r\n", Read("[2001:db8::1]:4711", None)),
        line("PROXY UNKNOWN\r\n", Read("sender", None)),
        line("PROXY UNKNOWN whatever this says\r\n", Read("sender", None)),
        line(longest, Read("sender", None)),
        line("", Partial),
        line("PROXY TCP4 192.0.2.1", Partial),
        line("GET / HTTP/1.1\r\n", Refused(NO_HEADER)),
        line("PROXIES", Refused(NO_HEADER)),
        line("proxy TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", Refused(NO_HEADER)),
        line("\x16\x03\x01\x02", Refused(NO_HEADER)),
        line("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n", Refused("does not end with CRLF")),
        line("PROXY TCP5 192.0.2.1 198.51.100.1 56324 443\r\n", Refused(FAMILY)),
        line("PROXY \r\n", Refused(FAMILY)),
        line("PROXY UNKNOWNS\r\n", Refused(FAMILY)),
        line("PROXY TCP4\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 \r\n", Refused(ADDRESSES)),
        line("PROXY TCP4  192.0.2.1 198.51.100.1 56324 443\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 192.0.2.256 198.51.100.1 56324 443\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 192.0.2.1 nowhere 56324 443\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 2001:db8::1 ::1 56324 443\r\n", Refused(ADDRESSES)),
        line("PROXY TCP6 192.0.2.1 198.51.100.1 56324 443\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 192.0.2.1 198.51.100.1 056324 443\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 192.0.2.1 198.51.100.1 +56324 443\r\n", Refused(ADDRESSES)),
        line("PROXY TCP4 192.0.2.1 198.51.100.1 56324 -1\r\n", Refused(ADDRESSES)),
        line(&["PROXY UNKNOWN ", &"x".repeat(93)].concat(), Refused("longer than 107 bytes")),
    ]
}

/// All cases.
pub fn cases() -> Vec<ProxyHeaderCase> {
    use Outcome::{Partial, Read, Refused};
    let case = |bytes: Vec<u8>, outcome| ProxyHeaderCase { bytes, outcome };
    let texts = [part(0x21, b"TLSv1.3"), part(0x22, b"alice"), part(0x23, b"TLS_AES_128_GCM_SHA256"), part(0x25, b"RSA2048")];
    let more =
        [part(0x01, b"h2"), part(0x02, b"shop.example"), part(0x05, b"abc"), part(0x04, b""), part(0xea, b"\x01vpce")].concat();
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9];
    let documented = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut cases = lines();
    cases.extend([
        case(binary(0x21, 0x11, &[IPV4]), Read("192.0.2.1:56324", None)),
        case(binary(0x21, 0x12, &[IPV4]), Read("192.0.2.1:56324", None)),
        case(binary(0x21, 0x21, &[&ipv6(documented)]), Read("[2001:db8::1]:56324", None)),
        case(binary(0x21, 0x21, &[&ipv6(mapped)]), Read("192.0.2.9:56324", None)),
        case(binary(0x21, 0x31, &[&[b'/'; 216]]), Read("unix", None)),
        case(binary(0x21, 0x11, &[IPV4, &more]), Read("192.0.2.1:56324", None)),
        // A health check, which may have addresses, or bytes that could not be an address.
        case(binary(0x20, 0x00, &[]), Read("sender", None)),
        case(binary(0x20, 0x11, &[IPV4]), Read("sender", None)),
        case(binary(0x20, 0x11, &[b"junk"]), Read("sender", None)),
        case(binary(0x21, 0x00, &[]), Read("sender", None)),
        case(binary(0x21, 0x00, &[b"anything"]), Read("sender", None)),
        // TLS.
        case(binary(0x21, 0x11, &[IPV4, &more, &ssl(1, 1, &[])]), Read("192.0.2.1:56324", Some(("", "", "", false, false)))),
        case(
            binary(0x21, 0x11, &[IPV4, &ssl(1, 0, &texts[..1])]),
            Read("192.0.2.1:56324", Some(("TLSv1.3", "", "", false, false))),
        ),
        case(
            binary(0x21, 0x11, &[IPV4, &ssl(7, 0, &texts), &more]),
            Read("192.0.2.1:56324", Some(("TLSv1.3", "TLS_AES_128_GCM_SHA256", "alice", true, true))),
        ),
        case(
            binary(0x21, 0x11, &[IPV4, &ssl(5, 18, &texts)]),
            Read("192.0.2.1:56324", Some(("TLSv1.3", "TLS_AES_128_GCM_SHA256", "alice", true, false))),
        ),
        case(binary(0x21, 0x11, &[IPV4, &ssl(0, 0, &texts)]), Read("192.0.2.1:56324", None)),
        // Not a header.
        case(SIGNATURE.to_vec(), Partial),
        case(binary(0x21, 0x11, &[IPV4])[..20].to_vec(), Partial),
        case(b"\r\n\r\nGET".to_vec(), Refused(NO_HEADER)),
        case(binary(0x11, 0x11, &[IPV4])[..13].to_vec(), Refused("version is unknown")),
        case(binary(0x22, 0x11, &[IPV4])[..13].to_vec(), Refused("neither LOCAL nor PROXY")),
        case(binary(0x21, 0x41, &[IPV4])[..14].to_vec(), Refused("family or transport is unknown")),
        case(binary(0x21, 0x13, &[IPV4])[..14].to_vec(), Refused("family or transport is unknown")),
        case(binary(0x21, 0x11, &[&IPV4[..11]]), Refused("too short for its addresses")),
        case(binary(0x21, 0x21, &[IPV4]), Refused("too short for its addresses")),
        case(binary(0x21, 0x31, &[IPV4]), Refused("too short for its addresses")),
        case(binary(0x21, 0x11, &[IPV4, b"\x01"]), Refused(BEYOND)),
        case(binary(0x21, 0x11, &[IPV4, b"\x01\x00\x03ab"]), Refused(BEYOND)),
        case(binary(0x21, 0x11, &[IPV4, &part(0x20, b"\x01\0\0\0")]), Refused(BEYOND)),
        case(binary(0x21, 0x11, &[IPV4, &ssl(1, 0, &[b"\x21\x00\x09TLSv1.3".to_vec()]), &more]), Refused(BEYOND)),
        case([SIGNATURE, &[0x21, 0x11, 0x0f, 0xf1]].concat(), Refused("longer than 4096 bytes")),
        case([SIGNATURE, &[0x21, 0x11, 0x0f, 0xf0]].concat(), Partial),
    ]);
    cases
}
