//! A cache, leases, a queue of jobs, timers and messages that the instances of several machines share, on a Redis or Valkey
//! server.
//!
//! The network hears plain Redis commands and scripts for the server (`EVAL`) alone. Each call has a time limit, and while the
//! server is away, calls fail immediately. This crate must not know Python, the files of a spooler, or who logs: it hands its
//! lines to the caller. Workers and helpers run it; the master and the command `check` only parse addresses.

mod address;
mod breaker;
mod cache;
mod channel;
mod connection;
mod engine;
mod fault;
mod jobs;
mod lease;
mod publication;
mod subscriber;
mod timer;
pub mod wire;

pub use address::{Address, Place, Purpose};
pub use cache::{CacheBounds, RemoteCache, Write};
pub use engine::Engine;
pub use fault::Fault;
pub use jobs::{Counts, FailedJob, JobQueue, NewJob, ReservedJob};
pub use lease::{Lease, Leases};
pub use publication::{PublishedMessage, Publisher, new_origin};
pub use subscriber::{Received, Subscriber, WantedChannels};
pub use timer::{Claim, Firing, UniqueTimer};
