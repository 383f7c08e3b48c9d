//! Static files: which path names one, how it is opened safely, its HTTP metadata, and the cache. [`Files::find`] is the entry
//! point. It returns a head and where the bytes are.
//!
//! It must not know sockets, applications or configuration files. Workers run it, on the thread that read the request.

pub mod answer;
mod cache;
mod codings;
pub mod conditions;
mod dates;
mod entry;
mod lookup;
mod mime_types;
pub mod named;
mod paths;
mod ranges;
pub mod roots;
mod routed;
mod rules;
mod sources;
mod x_sendfile;

pub use answer::Answer;
pub use codings::AcceptedCodings;
pub use conditions::Conditions;
pub use lookup::{FileRequest, Files};
pub use routed::{Page, Routed};
pub use sources::SendfileHeader;
