//! Where a socket listens: how it is called, and the file that goes with it. It opens nothing. The master runs it.

use std::net::SocketAddr;

use bolide_contract::settings::{Address, Protocol};

use crate::files::guarded_files::KnownFile;

/// Where a socket listens; it outlives the socket, for the log and for `vacuum`.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The protocol that is spoken there.
    pub protocol: Protocol,
    /// It is spoken within TLS.
    pub is_tls: bool,
    /// As bound: `127.0.0.1:8080`, `/run/app.sock`, `@name`.
    pub bound: String,
    /// As the configuration has it: by this it is found again at a reload.
    pub asked: Address,
    /// The kind of its address.
    pub address: Bound,
    /// The file of a UNIX socket that was bound by us.
    pub file: Option<KnownFile>,
    /// Bound by us, not handed down.
    pub is_ours: bool,
}

/// The address of a listening socket, as far as it is one of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// An address of IPv4 or IPv6, with the port that was bound.
    Tcp(SocketAddr),
    /// A UNIX socket, by path or by name.
    Local,
}

impl Endpoint {
    /// The place as something to open: `https://127.0.0.1:8443`, `uwsgi://127.0.0.1:3031`. That of a UNIX socket is no URL: `uwsgi unix:/run/app.sock`.
    pub fn to_open(&self) -> String {
        let scheme = self.protocol_word();
        match self.address {
            // Every address is no address to open: the loopback one is among them.
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

    /// uWSGI's word for what is spoken there.
    pub fn protocol_word(&self) -> &'static str {
        match (self.protocol, self.is_tls) {
            (Protocol::Http, true) => "https",
            // As nginx calls it.
            (Protocol::Uwsgi, true) => "suwsgi",
            (protocol, _) => protocol.word(),
        }
    }

    /// Removes the file of a UNIX socket, where it is still the one that was bound.
    pub fn remove_file(&self) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.remove() {
            crate::logs::log_sink::line(&format!("the socket {} can't be removed: {error}", file.path.display()));
        }
    }

    /// A browser can open it.
    pub fn is_web(&self) -> bool {
        self.protocol == Protocol::Http && self.address != Bound::Local
    }

    /// It takes connections at every address of this machine.
    pub fn is_everywhere(&self) -> bool {
        matches!(self.address, Bound::Tcp(address) if address.ip().is_unspecified())
    }
}
