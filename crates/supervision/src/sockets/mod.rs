//! Sockets of a supervising process: those that it listens at, and those by which it is asked, tells its numbers, or is replaced.

pub mod control_socket;
pub mod endpoint;
pub mod listen_queue;
pub mod listeners;
pub mod service_manager;
pub mod socket_activation;
pub mod stats_pushers;
pub mod stats_server;
pub mod ticket_keys;
pub mod upgrade_pair;
