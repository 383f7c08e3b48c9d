//! Clients as front servers make them known, and the hosts that they may ask for. The options room fills it in, workers act on it. Plain data;
//! nobody changes it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Whose word about clients counts, and which hosts are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Clients {
    pub trusted_proxies: TrustedProxies,
    /// `trusted-proxies` is set: PROXY headers are taken from those alone.
    pub has_chosen_proxies: bool,
    /// The fields of theirs that count; empty: none.
    pub trusted_headers: Vec<TrustedHeader>,
    /// `server-names`: hosts in lower case, without a dot at the end, or `*.` and a domain; an IPv6 address has its brackets. Empty: every host
    /// is served.
    pub server_names: Vec<String>,
}

/// Peers that are front servers of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedProxies {
    pub everyone: bool,
    /// Peers at UNIX sockets.
    pub unix: bool,
    pub networks: Vec<Network>,
}

/// Addresses that have their first bits in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub address: IpAddr,
    pub prefix_bits: u8,
}

/// The peers on this machine, whom nobody from elsewhere can pass for.
impl Default for TrustedProxies {
    fn default() -> TrustedProxies {
        let networks = vec![
            Network { address: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix_bits: 32 },
            Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix_bits: 128 },
        ];
        TrustedProxies { everyone: false, unix: true, networks }
    }
}

/// A field by which front servers say something of a request.
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
    /// The fields that every front server sets itself. The others are often a client's, which the front server hands on as they are.
    pub const USUAL: [TrustedHeader; 2] = [TrustedHeader::XForwardedFor, TrustedHeader::XForwardedProto];
}
