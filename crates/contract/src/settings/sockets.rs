//! Socket options of a listening socket, beside its address. Plain data; the master sets them.

use serde::{Deserialize, Serialize};

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
