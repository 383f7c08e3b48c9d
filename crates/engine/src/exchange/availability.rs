//! Whether a worker takes requests: it serves, is paused, or leaves. This is one state, and two marks that any thread may set.
//!
//! The thread that leads changes the state, and all threads read it. It does not know about connections, listeners or orders.
//! Workers run it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::scheduling::deadlines::NEVER_MS;

/// Defines the states, and the list that turns the number of one back into it.
macro_rules! states {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$says:meta])* $state:ident,)* }) => {
        $(#[$about])*
        pub enum $name { $($(#[$says])* $state,)* }

        const STATES: &[$name] = &[$($name::$state,)*];
    };
}

states! {
    /// The state of a worker, in the order in which it may change. Only a pause ends again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Service {
        Serves,
        /// It does not begin requests. A draining worker is never paused.
        Paused,
        /// The instance will be stopped, and load balancers may not know it yet: it accepts and serves, and answers say
        /// `Connection: close`.
        LeavesBalancer,
        /// It has an order to drain, and answers say `Connection: close`. Connections that can move continue at other workers.
        HandsOver,
        /// It drains, and no other worker follows.
        Drains,
        /// The instance stops: streams end too.
        Stops,
    }
}

pub struct Availability {
    service: AtomicU8,
    /// The application serves as many requests as it may, so no connection is accepted.
    is_full: AtomicBool,
    /// The application, or a failure, asks for the end of the process. The thread that leads begins to drain.
    is_asked_to_leave: AtomicBool,
    mercy_ends_ms: AtomicU64,
    streams_end_ms: AtomicU64,
}

impl Default for Availability {
    fn default() -> Availability {
        Availability {
            service: AtomicU8::new(Service::Serves as u8),
            is_full: AtomicBool::new(false),
            is_asked_to_leave: AtomicBool::new(false),
            mercy_ends_ms: AtomicU64::new(NEVER_MS),
            streams_end_ms: AtomicU64::new(NEVER_MS),
        }
    }
}

impl Availability {
    pub fn service(&self) -> Service {
        STATES[usize::from(self.service.load(Relaxed)).min(STATES.len() - 1)]
    }

    /// Pauses a worker that serves. Returns false in any other state.
    pub fn pause(&self) -> bool {
        self.change(Service::Serves, Service::Paused)
    }

    /// Ends a pause. Returns false if there was none.
    pub fn resume(&self) -> bool {
        self.change(Service::Paused, Service::Serves)
    }

    /// Begins to leave the load balancer, if the worker serves. Returns false in any other state.
    pub fn leave_balancer(&self) -> bool {
        self.change(Service::Serves, Service::LeavesBalancer)
    }

    /// Begins to leave, or leaves in another way. Once a worker stops, later calls change nothing. Returns the state before.
    pub fn leave(&self, how: Service) -> Service {
        debug_assert!(how >= Service::HandsOver, "a worker that leaves does not come back");
        let before = self.service();
        if before != Service::Stops {
            self.service.store(how as u8, Relaxed);
        }
        before
    }

    /// When a draining worker aborts exchanges that applications still keep, in monotonic milliseconds; [`NEVER_MS`] before that.
    pub fn mercy_ends_ms(&self) -> u64 {
        self.mercy_ends_ms.load(Relaxed)
    }

    pub fn set_mercy_end(&self, when_ms: u64) {
        self.mercy_ends_ms.store(when_ms, Relaxed);
    }

    /// When a stopping worker aborts streams, in the same unit.
    pub fn streams_end_ms(&self) -> u64 {
        self.streams_end_ms.load(Relaxed)
    }

    pub fn set_streams_end(&self, when_ms: u64) {
        self.streams_end_ms.store(when_ms, Relaxed);
    }

    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Returns what it was before.
    pub fn set_full(&self, is_full: bool) -> bool {
        self.is_full.swap(is_full, Relaxed)
    }

    pub fn is_asked_to_leave(&self) -> bool {
        self.is_asked_to_leave.load(Relaxed)
    }

    pub fn ask_to_leave(&self) {
        self.is_asked_to_leave.store(true, Relaxed);
    }

    fn change(&self, from: Service, to: Service) -> bool {
        self.service.compare_exchange(from as u8, to as u8, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_with_a_drain_and_a_stop_is_final() {
        let availability = Availability::default();
        assert!(availability.pause() && !availability.pause());
        assert!(availability.resume() && !availability.resume());
        assert!(availability.leave_balancer() && !availability.leave_balancer());
        assert!(!availability.pause() && !availability.resume());
        for (how, found) in [
            (Service::HandsOver, Service::HandsOver),
            (Service::Drains, Service::Drains),
            (Service::HandsOver, Service::HandsOver),
            (Service::Stops, Service::Stops),
            (Service::HandsOver, Service::Stops),
        ] {
            availability.leave(how);
            assert_eq!(availability.service(), found);
            assert!(!availability.pause() && !availability.resume());
        }
    }
}
