//! The room against a real redis-server: killed, stopped, restarted and cut off.
//!
//! Each test has a server of its own on a UNIX socket in a directory of its own. Tests about the network reach it by a proxy that
//! can stop forwarding.

mod absence;
mod cache;
mod channels;
mod jobs;
mod leases;
mod support;
mod timers;
mod tls;
