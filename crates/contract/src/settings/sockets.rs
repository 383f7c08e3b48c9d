//! What the kernel is told about a listening socket beside its address. Plain data.

use serde::{Deserialize, Serialize};

/// Options of a socket. On Linux a connection that is accepted has those of its listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SocketTuning {
    /// `so-keepalive`: the kernel asks a silent peer of TCP whether it is still there.
    pub keepalive: bool,
    /// `reuse-port`: other processes of the same user may bind the same address (SO_REUSEPORT).
    pub reuse_port: bool,
    /// `freebind`: the address need not be one of this machine's yet (IP_FREEBIND).
    pub free_bind: bool,
    /// `socket-sndbuf`, in bytes (SO_SNDBUF).
    pub send_buffer_bytes: Option<u32>,
    /// `socket-rcvbuf`, in bytes (SO_RCVBUF).
    pub receive_buffer_bytes: Option<u32>,
    /// `tcp-fast-open`: connections that may bring data with their first packet and are not accepted yet (TCP_FASTOPEN).
    pub fast_open_queue: Option<u32>,
}
