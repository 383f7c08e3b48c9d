//! The bells of a connection's threads that wait for room: other threads ring them when they have read or sent.
//!
//! It does not know what is waited for. Worker threads run it, under the connection's lock.

use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The bells of the threads that wait for room.
#[derive(Default)]
pub struct Bells {
    /// Other threads may read and send for the connection while one waits.
    pub has_threads: bool,
    bells: Vec<Arc<EventFd>>,
}

impl Bells {
    pub fn new(has_threads: bool) -> Bells {
        Bells { has_threads, bells: Vec::new() }
    }

    /// Registers a bell, if there are threads to ring it.
    pub fn register(&mut self) -> Option<Arc<EventFd>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = self.has_threads.then(|| EventFd::from_flags(flags).ok()).flatten().map(Arc::new)?;
        self.bells.push(bell.clone());
        Some(bell)
    }

    pub fn remove(&mut self, bell: &Arc<EventFd>) {
        self.bells.retain(|other| !Arc::ptr_eq(other, bell));
    }

    /// Makes threads that wait for room check again.
    pub fn ring(&self) {
        for bell in &self.bells {
            // A full counter has rung already.
            let _ = bell.write(1);
        }
    }
}
