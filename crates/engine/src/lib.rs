//! The worker: it accepts, parses, calls the application and answers, all on the thread that read the request.
//!
//! It knows nothing of any language (the one seam is [`app`]), nothing of the master (orders come through
//! the contract's messages) and nothing of configuration files. It runs in workers only.

mod accepting;
mod access_log;
mod allocator;
mod amends;
pub mod app;
mod body;
mod clock;
mod compression;
mod connection;
mod dispatch;
mod draining;
mod errand;
mod event_loop;
mod exchange;
mod fairness;
mod fields;
pub mod forks;
mod hall;
mod holding;
mod hosted;
mod house;
pub mod inflow;
mod leadership;
mod listener;
mod outbox;
mod panics;
mod patience;
pub mod reply;
pub mod request;
mod routing;
pub mod signals;
mod socket;
mod threads;
mod turn;
pub mod websocket;

pub use draining::cut_off_late_stream;
pub use event_loop::{Assignment, serve};
pub use hall::Key;
pub use hosted::{Hosted, Pulse, Turned, Visited};
pub use listener::ListeningSocket;
