//! TLS of a connection: records within the bytes that its socket moves. Certificates, keys and tickets are the room `tls`'s.
//!
//! It knows no protocol and no application. Worker threads run it.

mod faults;
mod stream;

pub use faults::TlsFault;
pub use stream::{Alpn, RECORD_BYTES, SEALED_BYTES, TlsStream, TlsWorkbench, with_workbench};
