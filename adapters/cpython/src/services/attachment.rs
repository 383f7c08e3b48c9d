//! The memories of the instance in this process. It does not know about functions of the module `uwsgi`. Every process that loads
//! the application runs it.

use std::io;
use std::sync::OnceLock;

use bolide_contract::boot::Boot;
use bolide_memory::Attached;

use crate::services::engines;

/// Empty before `prepare`, and in a process that got no memory from the master.
static ATTACHED: OnceLock<Attached> = OnceLock::new();

/// Maps the memories of the instance, once in the prototype: forked processes inherit them.
pub fn attach(boot: &Boot) -> io::Result<()> {
    let attached = Attached::attach(boot)?;
    engines::attach(&boot.settings.services.distributed, attached.engine_rows).map_err(io::Error::other)?;
    ATTACHED.set(attached).map_err(|_| io::Error::other("the memories are attached once only"))
}

/// Recovers what a process of this prototype held that has ended. Returns lines for the log.
pub fn recover(pid: u32) -> Vec<String> {
    attached().map(|attached| attached.recover(pid)).unwrap_or_default()
}

/// The memories. `None`: this process has none.
pub fn attached() -> Option<&'static Attached> {
    ATTACHED.get()
}
