//! The network that an address of a client stands for: of IPv6 the /64, which is the least that a client has for itself, and any
//! client can have as many addresses of it as it likes (RFC 6177). Workers run it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Deref;

/// The bytes of an IPv6 network that belong to one customer.
const NETWORK_BYTES: usize = 8;

/// The network of a client, as the bytes by which it is counted.
#[derive(Debug)]
pub enum Network<'t> {
    Six([u8; NETWORK_BYTES]),
    /// Of IPv4, the address as a text. Another text stands for itself. Empty: the client has none.
    Text(Cow<'t, [u8]>),
}

impl<'t> Network<'t> {
    pub fn of_text(text: Cow<'t, [u8]>) -> Network<'t> {
        if !text.contains(&b':') {
            return Network::Text(text);
        }
        let address = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<IpAddr>().ok());
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Network::Text(address.to_string().into_bytes().into()),
            Some(IpAddr::V6(address)) => address.into(),
            None => Network::Text(text),
        }
    }

    pub fn into_bytes(self) -> Cow<'t, [u8]> {
        match self {
            Network::Six(network) => network.to_vec().into(),
            Network::Text(text) => text,
        }
    }
}

impl Deref for Network<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Network::Six(network) => network,
            Network::Text(text) => text,
        }
    }
}

impl From<Ipv6Addr> for Network<'_> {
    fn from(address: Ipv6Addr) -> Self {
        Network::Six(address.octets().first_chunk().copied().unwrap_or_default())
    }
}

/// The network of an address. An IPv4 address stands for itself, also if it is written as one of IPv6 (RFC 4291 section 2.5.5.2).
pub fn network_of(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => Network::from(address).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_customer_are_one_network() {
        let of = |text: &str| Network::of_text(text.as_bytes().to_vec().into()).to_vec();
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.7"), b"192.0.2.7");
        assert_eq!((of("192.0.2.7"), of("unix:"), of("")), (b"192.0.2.7".to_vec(), b"unix:".to_vec(), Vec::new()));
        let six = network_of("2001:db8:1:2::1".parse().expect("an address"));
        assert_eq!((six, network_of("192.0.2.7".parse().expect("an address"))), (of("2001:db8:1:2::1"), vec![192, 0, 2, 7]));
    }
}
