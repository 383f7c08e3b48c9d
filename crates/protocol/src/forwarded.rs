//! Client, scheme and host of a request as reverse proxies report them in header fields: `X-Forwarded-*`, and `Forwarded` (RFC
//! 7239).
//!
//! Each reverse proxy appends to the list that it received. Such a list is therefore trusted from its end up to the first entry
//! that is not one of our reverse proxies: that entry is the client, and the entries before it are the client's own claims. Must
//! not know sockets, nor which addresses are trusted. Workers run it, on the header fields of trusted peers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::http1::head::Field;
use crate::http1::target::{is_authority, names_a_host};

/// Maximum number of entries of a list that are evaluated, from its end. More than any real chain of reverse proxies.
const MAX_HOPS: usize = 64;

/// The fields that are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardedFields {
    pub x_forwarded_for: bool,
    pub x_forwarded_proto: bool,
    pub x_forwarded_host: bool,
    pub x_forwarded_port: bool,
    pub x_forwarded_prefix: bool,
    /// Only if a request has none of the other fields.
    pub forwarded: bool,
}

/// The result. `None`: not given, or not trustworthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardedRequest<'a> {
    pub client: Option<ForwardedNode>,
    pub is_https: Option<bool>,
    /// A host with an optional port.
    pub host: Option<&'a [u8]>,
    /// The port that the client connected to.
    pub port: Option<u16>,
    /// The part of the path that a reverse proxy has stripped: empty, or a slash and what follows it, without a trailing slash.
    pub prefix: Option<&'a [u8]>,
}

/// An address in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardedNode {
    pub address: IpAddr,
    pub port: Option<u16>,
}

impl ForwardedRequest<'_> {
    pub fn is_empty(&self) -> bool {
        *self == ForwardedRequest::default()
    }
}

/// Evaluates the fields of a request whose peer is trusted. In the lists whose entries do not identify the sender (all but
/// `X-Forwarded-For` and `Forwarded`) the last entry counts, which the peer itself has written.
pub fn forwarded_request<'a>(
    fields: &[Field],
    header_bytes: &'a [u8],
    counting: ForwardedFields,
    is_trusted: &dyn Fn(IpAddr) -> bool,
) -> ForwardedRequest<'a> {
    let mut conventional = Conventional::default();
    let mut chain = ProxyChain::new(is_trusted);
    let mut standard = Standard { found: ForwardedRequest::default(), chain: ProxyChain::new(is_trusted) };
    for field in fields.iter().rev() {
        let name = field.name.of(header_bytes);
        // Most fields cost this one comparison.
        if !matches!(name.first(), Some(b'x' | b'X' | b'f' | b'F')) {
            continue;
        }
        let value = field.value.of(header_bytes);
        match name.len() {
            15 if counting.x_forwarded_for && name.eq_ignore_ascii_case(b"x-forwarded-for") => {
                conventional.has_chain = true;
                value.rsplit(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty()).for_each(|entry| {
                    chain.pass(node(entry));
                });
            }
            17 if counting.x_forwarded_proto && name.eq_ignore_ascii_case(b"x-forwarded-proto") => {
                conventional.proto.get_or_insert(last_entry(value));
            }
            16 if counting.x_forwarded_host && name.eq_ignore_ascii_case(b"x-forwarded-host") => {
                conventional.host.get_or_insert(last_entry(value));
            }
            16 if counting.x_forwarded_port && name.eq_ignore_ascii_case(b"x-forwarded-port") => {
                conventional.port.get_or_insert(last_entry(value));
            }
            18 if counting.x_forwarded_prefix && name.eq_ignore_ascii_case(b"x-forwarded-prefix") => {
                conventional.prefix.get_or_insert(last_entry(value));
            }
            9 if counting.forwarded && name.eq_ignore_ascii_case(b"forwarded") => standard.read(value),
            _ => {}
        }
    }
    if conventional.is_there() {
        ForwardedRequest {
            client: chain.client,
            is_https: conventional.proto.and_then(is_https),
            host: conventional.host.filter(|host| is_host(host)),
            port: conventional.port.and_then(port),
            prefix: conventional.prefix.and_then(prefix),
        }
    } else {
        ForwardedRequest { client: standard.chain.client, ..standard.found }
    }
}

/// The chain from us back to the client, from one reverse proxy to the one before it.
struct ProxyChain<'f> {
    client: Option<ForwardedNode>,
    is_over: bool,
    hops: usize,
    is_trusted: &'f dyn Fn(IpAddr) -> bool,
}

impl<'f> ProxyChain<'f> {
    fn new(is_trusted: &'f dyn Fn(IpAddr) -> bool) -> ProxyChain<'f> {
        ProxyChain { client: None, is_over: false, hops: 0, is_trusted }
    }

    /// Advances to the next entry. `None`: the entry has no address, so the entries before it are not trusted, and the one after
    /// it counts.
    fn pass(&mut self, node: Option<ForwardedNode>) {
        if self.is_over {
            return;
        }
        self.hops += 1;
        match node {
            Some(node) => {
                self.client = Some(node);
                self.is_over = !(self.is_trusted)(node.address) || self.hops == MAX_HOPS;
            }
            None => self.is_over = true,
        }
    }
}

/// The last entries of the fields whose entries do not identify the sender. Fields are read from the last one, so the first that
/// is seen counts, whether it can be parsed or not.
#[derive(Default)]
struct Conventional<'a> {
    /// There is an `X-Forwarded-For`.
    has_chain: bool,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    port: Option<&'a [u8]>,
    prefix: Option<&'a [u8]>,
}

impl Conventional<'_> {
    fn is_there(&self) -> bool {
        self.has_chain || [self.proto, self.host, self.port, self.prefix].iter().any(Option::is_some)
    }
}

fn last_entry(value: &[u8]) -> &[u8] {
    value.rsplit(|&byte| byte == b',').next().unwrap_or_default().trim_ascii()
}

/// RFC 7239: an entry has the address, the scheme and the host that one reverse proxy has seen.
struct Standard<'a, 'f> {
    found: ForwardedRequest<'a>,
    chain: ProxyChain<'f>,
}

impl<'a> Standard<'a, '_> {
    /// A malformed line is ignored, and so are the entries before it, which no trusted server vouches for.
    fn read(&mut self, value: &'a [u8]) {
        if self.chain.is_over {
            return;
        }
        let mut elements = [Element::default(); MAX_HOPS];
        let Some(count) = read_elements(value, &mut elements) else {
            self.chain.is_over = true;
            return;
        };
        for element in elements[..count].iter().rev() {
            if self.chain.is_over {
                return;
            }
            // The writer of this entry is trusted, whatever address the entry has.
            self.found.is_https = element.proto.and_then(is_https).or(self.found.is_https);
            self.found.host = element.host.filter(|host| is_host(host)).or(self.found.host);
            self.chain.pass(element.client.and_then(standard_node));
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Element<'a> {
    client: Option<&'a [u8]>,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

/// `for=192.0.2.60;proto=http, for="[2001:db8::1]:4711"` (section 4). Returns the number of elements; `None` if it is malformed,
/// or has more than `elements` can hold.
fn read_elements<'a>(value: &'a [u8], elements: &mut [Element<'a>]) -> Option<usize> {
    let (mut rest, mut count) = (value, 0);
    loop {
        let element = elements.get_mut(count)?;
        let mut is_empty = true;
        loop {
            rest = rest.trim_ascii_start();
            if !matches!(rest, [] | [b',' | b';', ..]) {
                let (name, value, after) = read_pair(rest)?;
                let place = match name {
                    name if name.eq_ignore_ascii_case(b"for") => Some(&mut element.client),
                    name if name.eq_ignore_ascii_case(b"proto") => Some(&mut element.proto),
                    name if name.eq_ignore_ascii_case(b"host") => Some(&mut element.host),
                    _ => None,
                };
                // "Each parameter MUST NOT occur more than once per field-value": parsers would differ in which one they use.
                if place.is_some_and(|place| place.replace(value).is_some()) {
                    return None;
                }
                (rest, is_empty) = (after.trim_ascii_start(), false);
            }
            match rest {
                [b';', after @ ..] => rest = after,
                [] | [b',', ..] => break,
                _ => return None,
            }
        }
        // RFC 9110 section 5.6.1.2: empty elements of a list are ignored.
        count += usize::from(!is_empty);
        match rest {
            [_comma, after @ ..] => rest = after,
            [] => return Some(count),
        }
    }
}

/// Parses `name=value` at the beginning. Returns both and the rest. A quoted value is returned without its quotes; one that
/// contains a backslash cannot be an address, a scheme or a host.
fn read_pair(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    use crate::http1::scan::is_token_byte;
    let token = |text: &[u8]| text.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(text.len());
    let (name, rest) = text.split_at(token(text));
    let rest = rest.strip_prefix(b"=").filter(|_| !name.is_empty())?;
    if let Some(quoted) = rest.strip_prefix(b"\"") {
        let mut end = 0;
        loop {
            match quoted.get(end)? {
                b'"' => return Some((name, &quoted[..end], &quoted[end + 1..])),
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
    }
    // Section 4 requires quotes around colons and brackets; some servers send them without, with the same meaning.
    let end = rest.iter().position(|&byte| !is_token_byte(byte) && !matches!(byte, b':' | b'[' | b']')).unwrap_or(rest.len());
    (end > 0).then(|| (name, &rest[..end], &rest[end..]))
}

/// Section 6: an IPv6 address has brackets; `unknown` and names that begin with `_` are not addresses.
fn standard_node(text: &[u8]) -> Option<ForwardedNode> {
    let node = node(text)?;
    (node.address.is_ipv4() || text.starts_with(b"[")).then_some(node)
}

/// Parses an address, with or without a port, in the forms of reverse proxies: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`,
/// `[2001:db8::1]:4711`.
fn node(text: &[u8]) -> Option<ForwardedNode> {
    let text = std::str::from_utf8(text).ok()?;
    let node = |address: IpAddr, port| Some(ForwardedNode { address: address.to_canonical(), port });
    if let Ok(address) = text.parse::<IpAddr>() {
        return node(address, None);
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return node(inner.parse::<Ipv6Addr>().ok()?.into(), None);
    }
    let socket = text.parse::<SocketAddr>().ok()?;
    node(socket.ip(), Some(socket.port()))
}

fn is_https(scheme: &[u8]) -> Option<bool> {
    let is = |word: &[u8]| scheme.eq_ignore_ascii_case(word);
    if is(b"https") || is(b"wss") {
        Some(true)
    } else if is(b"http") || is(b"ws") {
        Some(false)
    } else {
        None
    }
}

fn is_host(text: &[u8]) -> bool {
    is_authority(text) && names_a_host(text)
}

fn port(text: &[u8]) -> Option<u16> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|&port| port > 0)
}

/// A path that applications prepend to their links. It must not begin with two slashes, which would lead to another host.
fn prefix(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_suffix(b"/").unwrap_or(text);
    let is_good = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
    match text {
        [] => Some(text),
        [b'/', rest @ ..] => {
            let mut segments = rest.split(|&byte| byte == b'/');
            let are_good = segments.all(|segment| !matches!(segment, b"" | b"." | b"..") && segment.iter().all(is_good));
            are_good.then_some(text)
        }
        _ => None,
    }
}
