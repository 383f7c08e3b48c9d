//! Scheduling: which connection is attended to next, by which thread and until when, and how workers share connections.
//!
//! It does not know about sockets, requests, or the application. Workers run it.

pub mod body_timeout;
pub mod census_times;
pub mod clock;
pub mod companion_thread;
pub mod concurrency;
pub mod connections;
pub mod corking;
pub mod deadlines;
pub mod descriptors;
pub mod fairness;
pub mod forecast;
pub mod handover;
pub mod held_answers;
pub mod leadership;
pub mod memory_trim;
pub mod phases;
pub mod spread;
pub mod turn;
pub mod waiting_requests;
