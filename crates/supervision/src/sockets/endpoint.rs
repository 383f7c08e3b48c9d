//! The endpoint of a listening socket: its name in the log, and its file. It opens nothing. The master runs it.

use std::net::SocketAddr;

use bolide_contract::settings::{Address, Protocol};

use crate::files::guarded_files::KnownFile;

/// The endpoint of a listening socket. It outlives the socket, for the log and for `vacuum`.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The protocol that is spoken there.
    pub protocol: Protocol,
    /// Within TLS.
    pub is_tls: bool,
    /// As bound: `127.0.0.1:8080`, `/run/app.sock`, `@name`.
    pub bound: String,
    /// As in the configuration, by which a reload finds it again.
    pub asked: Address,
    /// The kind of its address.
    pub address: Bound,
    /// The file of a UNIX socket that we have bound.
    pub file: Option<KnownFile>,
    /// Bound by us, not inherited.
    pub is_ours: bool,
}

/// The bound address of a listening socket, if it is an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// An IPv4 or IPv6 address, with the bound port.
    Tcp(SocketAddr),
    /// A UNIX socket, by path or by name.
    Local,
}

impl Endpoint {
    /// The address for a client: `https://127.0.0.1:8443`, `uwsgi://127.0.0.1:3031`. For a UNIX socket it is not a URL: `uwsgi
    /// unix:/run/app.sock`.
    pub fn to_open(&self) -> String {
        let scheme = self.protocol_word();
        match self.address {
            // A client can't connect to the wildcard address; the loopback address is one that it includes.
            Bound::Tcp(SocketAddr::V4(address)) if address.ip().is_unspecified() => {
                format!("{scheme}://127.0.0.1:{}", address.port())
            }
            Bound::Tcp(SocketAddr::V6(address)) if address.ip().is_unspecified() => {
                format!("{scheme}://[::1]:{}", address.port())
            }
            Bound::Tcp(address) => format!("{scheme}://{address}"),
            Bound::Local => format!("{scheme} unix:{}", self.bound),
        }
    }

    /// uWSGI's word for the protocol.
    pub fn protocol_word(&self) -> &'static str {
        match (self.protocol, self.is_tls) {
            (Protocol::Http, true) => "https",
            // As nginx calls it.
            (Protocol::Uwsgi, true) => "suwsgi",
            (protocol, _) => protocol.word(),
        }
    }

    /// Removes the file of a UNIX socket, if it is still the one that was bound.
    pub fn remove_file(&self) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.remove() {
            crate::log_sink::line(&format!("the socket {} can't be removed: {error}", file.path.display()));
        }
    }

    /// Whether a browser can open it.
    pub fn is_web(&self) -> bool {
        self.protocol == Protocol::Http && self.address != Bound::Local
    }

    /// Whether it listens on all addresses of this machine.
    pub fn is_everywhere(&self) -> bool {
        matches!(self.address, Bound::Tcp(address) if address.ip().is_unspecified())
    }
}
