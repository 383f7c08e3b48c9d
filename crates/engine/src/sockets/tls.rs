//! TLS of a connection: the records in the bytes of its socket. The crate `tls` has certificates, keys and tickets.
//!
//! It does not know about protocols or the application. Worker threads run it.

mod faults;
mod stream;

pub use faults::TlsFault;
pub use stream::{Alpn, RECORD_BYTES, SEALED_BYTES, TlsStream, TlsWorkbench, with_workbench};
