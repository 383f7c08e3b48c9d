//! The client of a connection: the peer of its socket, or the client that a trusted reverse proxy speaks for. And the hosts that
//! clients may ask for.
//!
//! It does not know about connections or the application. Workers run it once for a connection, and for each header block of a
//! trusted peer that differs from the block before.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bolide_contract::clients::{Clients, Network, TrustedHeader, TrustedProxies};
use bolide_contract::settings::Settings;
use bolide_protocol::fault::Span;
use bolide_protocol::forwarded::{ForwardedFields, ForwardedNode, forwarded_request};
use bolide_protocol::http1::head::Field;
use bolide_tls::TlsFacts;

use crate::sockets::listener::{Peer, PeerOrigin};
use crate::sockets::server_names::ServerNames;

/// The port of a client whose reverse proxy sends only its address: no client has this port.
const UNKNOWN_PORT: &str = "0";

/// A worker's rules about its clients, resolved at its start.
pub struct ClientRules {
    trusted: TrustedProxies,
    has_chosen_proxies: bool,
    fields: ForwardedFields,
    /// The field SCRIPT_NAME of trusted peers counts.
    pub takes_script_name: bool,
    logs_x_forwarded_for: bool,
    /// Requests have identities or starts, which trusted peers may give them.
    has_identities: bool,
    /// `None`: every host is served.
    pub server_names: Option<ServerNames>,
}

/// A connection's peer, and its statements about the current request.
pub struct Client {
    peer: Arc<Peer>,
    /// The peer is a trusted reverse proxy.
    is_trusted: bool,
    /// The peer may give requests their identifiers, traces and starts.
    may_identify: bool,
    /// From the last header block; `None` if it has no such fields.
    forwarded: Option<Box<Forwarded>>,
}

/// A request as a trusted reverse proxy describes it. Missing texts are empty.
#[derive(Debug, Default)]
pub struct Forwarded {
    /// The client that it speaks for.
    pub peer: Option<Peer>,
    pub is_https: Option<bool>,
    /// Host and port of the client's request.
    pub host: Vec<u8>,
    pub server_port: String,
    /// The start of the path, which the reverse proxy has removed. An explicit empty prefix overrides `root-path` as well.
    pub prefix: Option<Vec<u8>>,
    /// The start of the path that the reverse proxy has left in it (`SCRIPT_NAME`, as under gunicorn); empty: none.
    pub kept_prefix: Vec<u8>,
    /// `log-x-forwarded-for`: the address in the log line.
    log_address: Vec<u8>,
}

impl ClientRules {
    pub fn new(settings: &Settings, has_identities: bool) -> ClientRules {
        let Clients { trusted_proxies, has_chosen_proxies, trusted_headers, takes_script_name, server_names } = &settings.clients;
        let counts = |header: TrustedHeader| trusted_headers.contains(&header);
        ClientRules {
            trusted: trusted_proxies.clone(),
            has_chosen_proxies: *has_chosen_proxies,
            fields: ForwardedFields {
                x_forwarded_for: counts(TrustedHeader::XForwardedFor),
                x_forwarded_proto: counts(TrustedHeader::XForwardedProto),
                x_forwarded_host: counts(TrustedHeader::XForwardedHost),
                x_forwarded_port: counts(TrustedHeader::XForwardedPort),
                x_forwarded_prefix: counts(TrustedHeader::XForwardedPrefix),
                forwarded: counts(TrustedHeader::Forwarded),
            },
            takes_script_name: *takes_script_name,
            logs_x_forwarded_for: settings.logging.x_forwarded_for,
            has_identities,
            server_names: (!server_names.is_empty()).then(|| ServerNames::new(server_names)),
        }
    }

    fn trusts(&self, peer: &Peer) -> bool {
        self.trusted.everyone
            || match peer.origin {
                PeerOrigin::Address(address) => self.trusts_address(address),
                PeerOrigin::Unix => self.trusted.unix,
                PeerOrigin::Unknown => false,
            }
    }

    fn trusts_address(&self, address: IpAddr) -> bool {
        self.trusted.everyone || self.trusted.networks.iter().any(|network| contains(network, address))
    }

    /// Trusted peers have fields that are used or logged.
    fn has_fields(&self) -> bool {
        self.fields != ForwardedFields::default() || self.logs_x_forwarded_for || self.takes_script_name
    }
}

fn contains(network: &Network, address: IpAddr) -> bool {
    match (network.address, address) {
        (IpAddr::V4(network_address), IpAddr::V4(address)) => {
            let differs = network_address.to_bits() ^ address.to_bits();
            differs.checked_shr(32u32.saturating_sub(network.prefix_bits.into())).unwrap_or(0) == 0
        }
        (IpAddr::V6(network_address), IpAddr::V6(address)) => {
            let differs = network_address.to_bits() ^ address.to_bits();
            differs.checked_shr(128u32.saturating_sub(network.prefix_bits.into())).unwrap_or(0) == 0
        }
        _ => false,
    }
}

impl Forwarded {
    /// Splits a path at the prefix that the reverse proxy has left in it.
    pub fn below<'a>(&'a self, path: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let prefix = self.kept_prefix.as_slice();
        let rest = path.strip_prefix(prefix).filter(|rest| !prefix.is_empty() && matches!(rest.first(), None | Some(b'/')));
        rest.map(|rest| (prefix, rest))
    }
}

impl Client {
    /// The client of a connection that has just been accepted. With `has_fields` its requests have HTTP header fields, which are
    /// used immediately.
    pub fn new(peer: Peer, has_fields: bool, rules: &ClientRules) -> Client {
        let is_trusted = has_fields && rules.has_fields() && rules.trusts(&peer);
        // The other protocols are spoken by reverse proxies alone.
        let may_identify = rules.has_identities && (!has_fields || rules.trusts(&peer));
        Client { peer: Arc::new(peer), is_trusted, may_identify, forwarded: None }
    }

    /// The client of one stream of the connection, whose requests have their own header fields.
    pub fn of_stream(&self) -> Client {
        Client { peer: self.peer.clone(), forwarded: None, ..*self }
    }

    /// Whether a PROXY header of the peer is accepted.
    pub fn may_speak_for_others(&self, rules: &ClientRules) -> bool {
        !rules.has_chosen_proxies || rules.trusts(&self.peer)
    }

    /// Replaces the client by the one that a PROXY header names: if that is trusted itself, its fields are used.
    pub fn replace(&mut self, peer: Peer, rules: &ClientRules) {
        *self = Client::new(peer, true, rules);
    }

    /// Whether the fields of a request's header block are used. They must be passed to [`Client::note_fields`] unless they are
    /// those of the block before.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Whether a request's own identity and `X-Request-Start` count.
    pub fn may_identify(&self) -> bool {
        self.may_identify
    }

    /// The handshake of the connection is done.
    pub fn note_tls(&mut self, facts: Arc<TlsFacts>) {
        Arc::make_mut(&mut self.peer).tls = Some(facts);
    }

    /// `script_name` is the value of the field SCRIPT_NAME.
    pub fn note_fields(&mut self, fields: &[Field], header_bytes: &[u8], script_name: Option<Span>, rules: &ClientRules) {
        let kept_prefix = script_name.filter(|_| rules.takes_script_name).map_or(&b""[..], |value| value.of(header_bytes));
        let kept_prefix = kept_prefix.strip_suffix(b"/").unwrap_or(kept_prefix);
        let found = forwarded_request(fields, header_bytes, rules.fields, &|address| rules.trusts_address(address));
        let log_address = if rules.logs_x_forwarded_for { x_forwarded_for(fields, header_bytes) } else { Vec::new() };
        if found.is_empty() && log_address.is_empty() && kept_prefix.is_empty() {
            self.forwarded = None;
            return;
        }
        let is_https = found.is_https;
        let forwarded = Forwarded {
            peer: found.client.map(|node| Peer {
                tls: self.peer.tls.clone(),
                front_tls: self.peer.front_tls.clone(),
                ..peer_of_node(node)
            }),
            is_https,
            host: found.host.map_or_else(Vec::new, |host| with_port(host, found.port, is_https)),
            server_port: found.port.map(|port| port.to_string()).unwrap_or_default(),
            prefix: found.prefix.map(<[u8]>::to_vec),
            kept_prefix: kept_prefix.to_vec(),
            log_address,
        };
        match &mut self.forwarded {
            Some(place) => **place = forwarded,
            None => self.forwarded = Some(Box::new(forwarded)),
        }
    }

    /// The client that the connection comes from.
    pub fn own_peer(&self) -> &Peer {
        &self.peer
    }

    /// The peer of the connection, without regard to forwarded fields.
    pub fn connection_peer(&self) -> &Peer {
        &self.peer
    }

    /// The client that has made the request.
    pub fn peer(&self) -> &Peer {
        self.forwarded().and_then(|forwarded| forwarded.peer.as_ref()).unwrap_or(&self.peer)
    }

    /// Whether this is the name of the other end of its connection.
    pub fn has_name(&self, name: &str) -> bool {
        is_name_of(&self.peer, name)
    }

    #[inline]
    pub fn forwarded(&self) -> Option<&Forwarded> {
        self.forwarded.as_deref()
    }

    /// Whether the client speaks TLS, with this server or, as a reverse proxy reports, with that.
    pub fn is_https(&self) -> bool {
        let said = self.forwarded().and_then(|forwarded| forwarded.is_https);
        said.unwrap_or(self.peer.tls.is_some() || self.peer.front_tls.is_some())
    }

    /// The client's name in the log.
    pub fn log_address(&self) -> &[u8] {
        match self.forwarded() {
            Some(forwarded) if !forwarded.log_address.is_empty() => &forwarded.log_address,
            _ => self.peer().address.as_bytes(),
        }
    }
}

fn peer_of_node(node: ForwardedNode) -> Peer {
    let port = node.port.map_or_else(|| UNKNOWN_PORT.to_owned(), |port| port.to_string());
    Peer { port, ..Peer::of(SocketAddr::new(node.address, 0)) }
}

/// Returns the host with the port of the client's request, unless the host has one or it is the default port of the scheme.
fn with_port(host: &[u8], port: Option<u16>, is_https: Option<bool>) -> Vec<u8> {
    let usual = if is_https == Some(true) { 443 } else { 80 };
    let has_port = !host.ends_with(b"]") && host.contains(&b':');
    match port.filter(|&port| !has_port && port != usual) {
        Some(port) => [host, format!(":{port}").as_bytes()].concat(),
        None => host.to_vec(),
    }
}

/// Returns the field's value as it came; several field lines form one list (RFC 9110 section 5.3).
fn x_forwarded_for(fields: &[Field], header_bytes: &[u8]) -> Vec<u8> {
    let is_ours = |field: &&Field| field.name.of(header_bytes).eq_ignore_ascii_case(b"x-forwarded-for");
    let values: Vec<&[u8]> = fields.iter().filter(is_ours).map(|field| field.value.of(header_bytes)).collect();
    values.join(&b", "[..])
}

/// `127.0.0.1:5000`; clients of a UNIX socket have no name, so anything is theirs that has neither a port nor a path.
fn is_name_of(peer: &Peer, name: &str) -> bool {
    if peer.origin == PeerOrigin::Unix {
        return !name.contains([':', '/', '@']);
    }
    let (address, port) = name.rsplit_once(':').unwrap_or_default();
    let address = address.trim_matches(['[', ']']);
    port == peer.port && address.strip_prefix("::ffff:").unwrap_or(address) == peer.address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str, prefix_bits: u8) -> Network {
        Network { address: address.parse().expect("an address"), prefix_bits }
    }

    #[test]
    fn a_peer_is_known_by_its_name() {
        let peer = Peer::of("192.0.2.1:5000".parse().expect("an address"));
        let is_name = |name| is_name_of(&peer, name);
        assert_eq!(["192.0.2.1:5000", "[::ffff:192.0.2.1]:5000"].map(is_name), [true, true]);
        assert_eq!(["192.0.2.1:500", "192.0.2.10:5000", "/run/a.sock", "", "5000"].map(is_name), [false; 5]);
        let six = Peer::of("[2001:db8::1]:80".parse().expect("an address"));
        assert!(is_name_of(&six, "[2001:db8::1]:80"));
        let local = Peer { origin: PeerOrigin::Unix, ..Peer::default() };
        let names = ["a UNIX socket without a name", "/run/a.sock", "@a", "192.0.2.1:5000"];
        assert_eq!(names.map(|name| is_name_of(&local, name)), [true, false, false, false]);
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        for (address, prefix_bits, inside, outside) in [
            ("10.0.0.0", 8, "10.255.255.255", "11.0.0.0"),
            ("10.1.2.3", 8, "10.0.0.0", "9.255.255.255"),
            ("192.0.2.1", 32, "192.0.2.1", "192.0.2.0"),
            ("192.0.2.0", 31, "192.0.2.1", "192.0.2.2"),
            ("0.0.0.0", 0, "255.255.255.255", "::1"),
            ("::", 0, "2001:db8::1", "10.0.0.1"),
            ("fd00::", 8, "fdff::1", "fc00::1"),
            ("::1", 128, "::1", "::2"),
            ("2001:db8:8000::", 33, "2001:db8:ffff::", "2001:db8:7fff::"),
        ] {
            let network = network(address, prefix_bits);
            assert!(contains(&network, inside.parse().expect("an address")), "{network:?} has not {inside}");
            assert!(!contains(&network, outside.parse().expect("an address")), "{network:?} has {outside}");
        }
    }

    #[test]
    fn a_port_is_added_where_the_scheme_does_not_mean_it_anyhow() {
        for (host, port, is_https, expected) in [
            ("a.example", Some(8443), Some(true), "a.example:8443"),
            ("a.example", Some(443), Some(true), "a.example"),
            ("a.example", Some(443), Some(false), "a.example:443"),
            ("a.example", Some(80), None, "a.example"),
            ("a.example:1", Some(8443), None, "a.example:1"),
            ("[::1]", Some(81), None, "[::1]:81"),
            ("[::1]:2", Some(81), None, "[::1]:2"),
            ("a.example", None, None, "a.example"),
        ] {
            assert_eq!(String::from_utf8_lossy(&with_port(host.as_bytes(), port, is_https)), expected);
        }
    }
}
