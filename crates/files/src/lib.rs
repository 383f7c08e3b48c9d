//! Static files: which path names one, how it is opened so that nothing else can be, what HTTP says of it, and what is
//! remembered of it. [`Files::find`] is the one question; its answer is a head and the place of the bytes.
//!
//! It knows no socket, no application and no configuration file. Workers run it, on the thread that read the request.

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
