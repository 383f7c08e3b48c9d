//! The worker: it accepts, parses, calls the application and answers, all on the thread that read the request.
//!
//! It knows nothing of any language (the one seam is [`app`]), nothing of the master (orders come through
//! the contract's messages) and nothing of configuration files. It runs in workers only.

mod accepting;
mod access_log;
mod allocator;
pub mod app;
mod app_thread;
pub mod blocking_websocket;
mod body;
mod body_file;
mod buffers;
mod client;
mod clock;
mod complaints;
mod compression;
mod concurrency;
mod connection;
mod connections;
mod context;
mod corking;
mod counting;
mod dispatch;
mod draining;
mod embedded;
mod event_loop;
mod exchange;
mod fairness;
mod fields;
pub mod forks;
mod https_redirect;
mod leadership;
mod listener;
mod log_format;
mod log_line;
mod log_styles;
mod multiplexer;
mod multiplexing;
mod panics;
mod patience;
mod pausing;
pub mod request;
pub mod request_stream;
pub mod response;
mod response_filters;
mod routing;
mod server_names;
mod socket;
mod thread_context;
mod threads;
mod tls;
mod transport;
mod turn;
pub mod websocket;
mod worker;
mod worker_state;
mod x_sendfile;

pub use connections::ExchangeId;
pub use draining::cut_off_late_stream;
pub use embedded::{EmbeddedWorker, Heartbeat, Turned, Visited};
pub use event_loop::serve;
pub use listener::ListeningSocket;
pub use panics::end_worker_at_a_panic;
pub use worker_state::Assignment;
