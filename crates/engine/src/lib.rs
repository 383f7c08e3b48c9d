//! The worker: it accepts connections, parses requests, calls the application and answers, all on the thread that read the
//! request.
//!
//! It knows nothing of any language (the only interface is [`app`]), of the master (orders arrive as messages of the contract) or
//! of configuration files. It runs in workers only.

mod allocator;
pub mod answer;
pub mod app;
mod app_thread;
mod connection;
mod event_loop;
mod exchange;
pub mod forks;
mod logging;
mod preloading;
mod rate_limits;
pub mod request;
mod response;
pub mod sampling;
mod scheduling;
mod services;
mod sessions;
mod slow;
mod sockets;
mod succession;
pub mod uwsgi_signals;

pub use allocator::{own_bytes, trim as trim_memory};
pub use event_loop::draining::cut_off_late_stream;
pub use event_loop::embedded::{EmbeddedWorker, Heartbeat, Turned, Visited};
pub use event_loop::panics::end_worker_at_a_panic;
pub use event_loop::serve;
pub use event_loop::worker_state::Assignment;
pub use exchange::bulkheads::BulkheadLink;
pub use exchange::internal_requests::{InternalRequest, ask};
pub use exchange::spans::{note_exception, wants_exceptions};
pub use preloading::preload;
pub use request::{blocking_websocket, mounts, request_stream, websocket};
pub use scheduling::connections::ExchangeId;
pub use scheduling::handover::ConnectionQueue;
pub use scheduling::memory_trim::MemoryTrim;
pub use sessions::affinity::SessionLinks;
pub use sockets::listener::ListeningSocket;
pub use sockets::taken_connections;
pub use succession::{Succession, opened_for_worker};
