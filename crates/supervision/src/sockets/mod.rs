//! Sockets of a supervising process: for listening, for control and statistics, and for upgrades.

pub mod accepted;
pub mod bulkheads;
pub mod control_socket;
pub mod emperor_link;
pub mod endpoint;
pub mod listen_queue;
pub mod listeners;
pub mod port_owner;
pub mod service_manager;
pub mod sessions;
pub mod socket_activation;
pub mod stats_pushers;
pub mod stats_server;
pub mod ticket_keys;
pub mod upgrade_pair;
