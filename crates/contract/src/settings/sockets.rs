//! Settings of a listening socket: its address, its protocol, and the options that the master sets. It does not do I/O. Plain
//! data, the same in every process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::tls::{Http2, Tls};

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listener {
    pub address: Address,
    pub protocol: Protocol,
    /// Length of the listen queue; 0 is the kernel's own limit.
    pub backlog: u32,
    /// Mode of a UNIX socket's file (`chmod-socket`), as in 0o666.
    pub mode: Option<u32>,
    /// Owner of a UNIX socket's file (`chown-socket`), as written: `user` or `user:group`.
    pub owner: Option<String>,
    /// Maximum time to wait for the next byte of a head or a body, or for room to send, in milliseconds.
    pub timeout_ms: u64,
    /// `None`: connections are not encrypted.
    pub tls: Option<Tls>,
    /// Applies to listeners of HTTP.
    pub http2: Http2,
    /// `http-to-https`: each request is redirected to the same path with HTTPS, at this port.
    pub redirects_to_https: Option<u16>,
    /// `enable-proxy-protocol`: each connection begins with a PROXY header with its client's address.
    pub has_proxy_header: bool,
    /// Peers of `trusted-proxies` may connect without that header.
    pub may_lack_proxy_header: bool,
    pub tuning: SocketTuning,
    /// Where the listener was configured: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}

impl Listener {
    /// A listener whose connections no worker reads: that of the statistics, or of a vassal's first connection.
    pub fn unread(address: Address, protocol: Protocol, backlog: u32, mode: Option<u32>, origin: String) -> Listener {
        Listener {
            address,
            protocol,
            backlog,
            mode,
            owner: None,
            timeout_ms: 0,
            tls: None,
            http2: Http2::default(),
            redirects_to_https: None,
            has_proxy_header: false,
            may_lack_proxy_header: false,
            tuning: SocketTuning::default(),
            origin,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Address {
    /// `host:port`; an empty host means all IPv4 addresses. Port 0 is any free port.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    /// A name in Linux' abstract space, without its `@`.
    Abstract(String),
    /// `fd://N`: a listening socket opened by another program.
    Descriptor(i32),
    /// A listening socket opened by the process that started the instance, and announced by `LISTEN_FDS`.
    Passed(i32),
}

crate::with_words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Protocol {
        Http = "http",
        Uwsgi = "uwsgi",
        /// Like `Uwsgi`, but a connection carries more packets if the answer had a known length.
        PersistentUwsgi = "puwsgi",
        FastCgi = "fastcgi",
        /// Answers have HTTP heads instead of CGI's ("non-parsed headers").
        FastCgiNph = "fastcgi-nph",
        Scgi = "scgi",
        ScgiNph = "scgi-nph",
    }
    /// uWSGI's name of the protocol.
    pub fn word() -> &'static str;
}

/// Socket options. On Linux, accepted connections inherit those of their listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SocketTuning {
    /// `so-keepalive`: TCP keepalive probes.
    pub keepalive: bool,
    /// `reuse-port`: other processes of the same user may bind the same address (SO_REUSEPORT).
    pub reuse_port: bool,
    /// `freebind`: the address need not exist on this machine yet (IP_FREEBIND).
    pub free_bind: bool,
    /// `socket-sndbuf`, in bytes (SO_SNDBUF).
    pub send_buffer_bytes: Option<u32>,
    /// `socket-rcvbuf`, in bytes (SO_RCVBUF).
    pub receive_buffer_bytes: Option<u32>,
    /// `tcp-fast-open`: maximum number of pending connections that sent data with their first packet (TCP_FASTOPEN).
    pub fast_open_queue: Option<u32>,
}
