//! Languages whose adapter is a library: it has the interface of `bolide_app.h` (`crates/abi`), and this crate is the other side
//! of it. Prototypes and workers of plugins run it.
//!
//! * [`library`]: loads the library and checks its version.
//! * [`prototype`]: loads the applications and forks workers.
//! * [`language`]: calls the adapter for each request.
//! * [`event_loop`]: the same inside the loop of an adapter.
//! * [`host`]: what the adapter may call, with what is [lent](lending) to it.
//! * [`internal_requests`]: `warmup` and `reload-probe`.
//! * [`variables`]: the table of a request's variables.
//! * [`watched`]: the files of an application, whose changes reload it.

mod event_loop;
mod host;
mod internal_requests;
mod language;
mod lending;
mod lent;
mod library;
mod prototype;
mod reasons;
mod variables;
mod watched;

use std::os::fd::RawFd;
use std::path::Path;

/// Loads the library of an adapter, and returns its language. The process should end afterwards.
///
/// # Errors
/// As for a prototype: it can't be loaded, is not an adapter, or is one for another version.
pub fn language_of(library: &Path) -> Result<String, String> {
    library::Adapter::load(library, &host::TABLE).map(|adapter| adapter.language())
}

/// Runs a prototype of the adapter in this library, and in each forked child a worker. Returns the exit status.
///
/// # Errors
/// The boot file can't be read, or a system call fails.
pub fn run(library: &Path, boot: RawFd) -> std::io::Result<i32> {
    bolide_prototype::run(boot, &mut prototype::PluginApplication::new(library.to_owned()))
}
