//! The places in a request that may say which session it is of (`sticky`): a header field, a parameter of the query, a cookie,
//! the client's address. The same for HTTP and for the variables of reverse proxies' protocols.
//!
//! It does not know sessions or their owners. Worker threads run it.

use bolide_protocol::http1::head::{Field, HeadLimits, header_block};
use bolide_protocol::session::{HeadParts, RequestHead};
use bolide_routes::network_of;
use std::borrow::Cow;

use crate::sockets::client::Client;
use crate::sockets::listener::PeerOrigin;

/// The longest value that is a key, in bytes. A longer one counts as absent.
pub const MAX_KEY_BYTES: usize = 255;

/// A request before it is served, as far as its head goes.
pub struct KeyedRequest<'a> {
    head: &'a RequestHead,
    /// The bytes of the head.
    bytes: &'a [u8],
    parts: &'a HeadParts,
    client: &'a Client,
    /// The fields of a header block that the connection has read before, which are not in `parts`.
    repeated: Vec<Field>,
}

impl<'a> KeyedRequest<'a> {
    pub fn new(
        head: &'a RequestHead,
        bytes: &'a [u8],
        parts: &'a HeadParts,
        client: &'a Client,
        limits: &HeadLimits,
    ) -> KeyedRequest<'a> {
        let mut repeated = Vec::new();
        if let RequestHead::Http { line, .. } = head
            && parts.fields.is_empty()
        {
            // The block was valid before.
            let _ = header_block(bytes.get(line.length as usize..).unwrap_or_default(), line.version, limits, &mut repeated);
        }
        KeyedRequest { head, bytes, parts, client, repeated }
    }

    /// The value of a header field, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers(name, true).find(|value| is_key(value))
    }

    /// The value of a parameter of the query, decoded.
    pub fn query(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let query = match self.head {
            RequestHead::Http { .. } => {
                let [_, target] = self.head.first_line(self.bytes);
                target.splitn(2, |byte| *byte == b'?').nth(1).unwrap_or_default()
            }
            RequestHead::Variables { .. } => self.variable(b"QUERY_STRING").unwrap_or_default(),
        };
        let query = query.split(|byte| *byte == b'#').next().unwrap_or_default();
        let pairs = query.split(|byte| *byte == b'&').map(|pair| {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            (halves.next().unwrap_or_default(), halves.next().unwrap_or_default())
        });
        let mut values = pairs.filter(|(key, _)| *decoded(key) == *name.as_bytes()).map(|(_, value)| decoded(value));
        values.next().filter(|value| is_key(value))
    }

    /// The values of the cookies with this name.
    pub fn cookies(&self, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
        let pairs = self.headers("cookie", false).flat_map(|line| line.split(|byte| *byte == b';'));
        pairs.filter_map(move |pair| {
            let (key, value) = pair.trim_ascii().split_at_checked(name.len())?;
            if key == name { value.strip_prefix(b"=") } else { None }
        })
    }

    /// The client's address, which trusted reverse proxies may have named. Of IPv6 it is the network.
    pub fn address(&self) -> Option<Vec<u8>> {
        let address = match self.head {
            RequestHead::Http { .. } => match self.client.peer().origin {
                PeerOrigin::Address(address) => Some(address),
                PeerOrigin::Unix | PeerOrigin::Unknown => None,
            },
            RequestHead::Variables { .. } => {
                self.variable(b"REMOTE_ADDR").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
            }
        };
        address.map(network_of)
    }

    /// The client speaks TLS, with this server or with a reverse proxy.
    pub fn is_https(&self) -> bool {
        match self.head {
            RequestHead::Http { .. } => self.client.is_https(),
            RequestHead::Variables { .. } => {
                let is_on = |value: &[u8]| !value.is_empty() && !value.eq_ignore_ascii_case(b"off");
                let of_scheme = [&b"REQUEST_SCHEME"[..], b"UWSGI_SCHEME"].map(|name| self.variable(name) == Some(b"https"));
                self.variable(b"HTTPS").is_some_and(is_on) || of_scheme.contains(&true)
            }
        }
    }

    /// The values of the fields with this name.
    fn headers(&self, name: &str, is_first_alone: bool) -> impl Iterator<Item = &'a [u8]> {
        let mut found: Vec<&'a [u8]> = Vec::new();
        match self.head {
            RequestHead::Http { line, .. } => {
                let block = self.bytes.get(line.length as usize..).unwrap_or_default();
                let fields = if self.parts.fields.is_empty() { &self.repeated } else { &self.parts.fields };
                let is_ours = |field: &&Field| field.name.of(block).eq_ignore_ascii_case(name.as_bytes());
                found.extend(fields.iter().filter(is_ours).map(|field| field.value.of(block)));
            }
            RequestHead::Variables { .. } => {
                let upper = name.bytes().map(|byte| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() });
                let name: Vec<u8> = b"HTTP_".iter().copied().chain(upper).collect();
                found.extend(self.variable(&name));
            }
        }
        if is_first_alone {
            found.truncate(1);
        }
        found.into_iter()
    }

    fn variable(&self, name: &[u8]) -> Option<&'a [u8]> {
        let found = self.parts.variables.iter().rfind(|variable| variable.name.of(self.bytes) == name);
        found.map(|variable| variable.value.of(self.bytes))
    }
}

fn is_key(value: &[u8]) -> bool {
    (1..=MAX_KEY_BYTES).contains(&value.len())
}

/// Decodes percent-encoding (RFC 3986 section 2.1). A `%` without two digits stands for itself, and so does a plus sign.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut made = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        match (*byte, digit(after.first()), digit(after.get(1))) {
            (b'%', Some(high), Some(low)) => {
                made.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                made.push(*byte);
                rest = after;
            }
        }
    }
    Cow::Owned(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_decoded_and_broken_encoding_stays() {
        for (text, wanted) in [
            ("abc", "abc"),
            ("a%2Fb", "a/b"),
            ("%41%42", "AB"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz%41", "%zzA"),
            ("a+b", "a+b"),
        ] {
            assert_eq!(*decoded(text.as_bytes()), *wanted.as_bytes(), "{text}");
        }
    }

    #[test]
    fn an_ipv6_client_is_its_network_and_a_mapped_address_is_ipv4() {
        let of = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:3:4:5:6"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
