//! Sockets: listening sockets, the transport of a connection, TLS within it, and the client at the other end.
//!
//! It does not know about requests. Workers run it.

pub mod body_file;
pub mod client;
pub mod listener;
pub mod server_names;
pub mod socket;
pub mod taken_connections;
pub mod tls;
pub mod tls_bridge;
pub mod transport;
