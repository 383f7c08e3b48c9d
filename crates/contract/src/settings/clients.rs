//! Settings of trusted reverse proxies and of the hosts that are served. Plain data: the options room fills it in, workers act on
//! it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Which proxies are trusted, and which hosts are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Clients {
    pub trusted_proxies: TrustedProxies,
    /// `trusted-proxies` is set: PROXY headers are accepted from these peers only.
    pub has_chosen_proxies: bool,
    /// The fields of trusted proxies that are used; empty: none.
    pub trusted_headers: Vec<TrustedHeader>,
    /// Trusted proxies may set the header `SCRIPT_NAME`, as under gunicorn. The path that they send still begins with it.
    pub takes_script_name: bool,
    /// `server-names`: hosts in lower case, without a trailing dot, or `*.` and a domain; an IPv6 address has its brackets.
    /// Empty: every host is served.
    pub server_names: Vec<String>,
}

/// Peers that are trusted reverse proxies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedProxies {
    pub everyone: bool,
    /// Peers of UNIX sockets.
    pub unix: bool,
    pub networks: Vec<Network>,
}

/// Addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub address: IpAddr,
    pub prefix_bits: u8,
}

/// The peers on this machine, whose addresses can't be spoofed from elsewhere.
impl Default for TrustedProxies {
    fn default() -> TrustedProxies {
        let networks = vec![
            Network { address: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix_bits: 32 },
            Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix_bits: 128 },
        ];
        TrustedProxies { everyone: false, unix: true, networks }
    }
}

/// A field in which reverse proxies describe the original request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrustedHeader {
    XForwardedFor,
    XForwardedProto,
    XForwardedHost,
    XForwardedPort,
    XForwardedPrefix,
    Forwarded,
}

impl TrustedHeader {
    /// The fields that every reverse proxy sets itself. Other fields often come from the client and are passed on unchanged.
    pub const USUAL: [TrustedHeader; 2] = [TrustedHeader::XForwardedFor, TrustedHeader::XForwardedProto];
}
