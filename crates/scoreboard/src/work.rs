//! A thread's counters as plain numbers that can be added up: a copy of those in its slot. It knows no row. Any process may use
//! it.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::slot::{CLASSES, MAX_APPLICATIONS, Tally};

/// The counters of a thread, or the sum of those of several. See [`Tally`] for what each counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    pub requests: u64,
    pub sent_bytes: u64,
    pub busy_us: u64,
    pub static_requests: u64,
    pub routed_requests: u64,
    pub write_errors: u64,
    pub read_errors: u64,
    pub errors: u64,
    /// Requests by class of status (`slot::class_of`), except 2xx; see [`Work::by_class`].
    pub other_classes: [u64; CLASSES],
    pub applications: [WorkOfApplication; MAX_APPLICATIONS],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkOfApplication {
    pub requests: u64,
    pub exceptions: u64,
}

impl Work {
    /// Reads the counters. Each is read separately: a request that ends meanwhile may be in one and not in another.
    pub fn of(tally: &Tally) -> Work {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Work {
            requests: read(&tally.requests),
            sent_bytes: read(&tally.sent_bytes),
            busy_us: read(&tally.busy_us),
            static_requests: read(&tally.static_requests),
            routed_requests: read(&tally.routed_requests),
            write_errors: read(&tally.write_errors),
            read_errors: read(&tally.read_errors),
            errors: read(&tally.errors),
            other_classes: tally.classes.each_ref().map(read),
            applications: tally.applications.each_ref().map(|application| WorkOfApplication {
                requests: read(&application.requests),
                exceptions: read(&application.exceptions),
            }),
        }
    }

    /// Exceptions of all applications.
    pub fn exceptions(&self) -> u64 {
        self.applications.iter().map(|application| application.exceptions).sum()
    }

    /// Requests by class of status: 1xx to 5xx, and those without a status.
    pub fn by_class(&self) -> [u64; CLASSES] {
        let mut classes = self.other_classes;
        classes[1] = self.requests.saturating_sub(self.other_classes.iter().sum());
        classes
    }

    /// Sets the counters to zero, after their writer has ended.
    pub fn clear(tally: &Tally) {
        let Tally {
            requests,
            sent_bytes,
            busy_us,
            applications,
            static_requests,
            routed_requests,
            write_errors,
            read_errors,
            ongoing,
            errors,
            classes,
        } = tally;
        let of_thread = [requests, sent_bytes, busy_us, static_requests, routed_requests];
        let of_faults = [write_errors, read_errors, ongoing, errors];
        let of_applications = applications.iter().flat_map(|application| [&application.requests, &application.exceptions]);
        for counter in of_thread.into_iter().chain(of_faults).chain(of_applications).chain(classes) {
            counter.store(0, Relaxed);
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        let Work {
            requests,
            sent_bytes,
            busy_us,
            static_requests,
            routed_requests,
            write_errors,
            read_errors,
            errors,
            other_classes,
            applications,
        } = other;
        self.requests += requests;
        self.sent_bytes += sent_bytes;
        self.busy_us += busy_us;
        self.static_requests += static_requests;
        self.routed_requests += routed_requests;
        self.write_errors += write_errors;
        self.read_errors += read_errors;
        self.errors += errors;
        for (sum, more) in self.other_classes.iter_mut().zip(other_classes) {
            *sum += more;
        }
        for (sum, more) in self.applications.iter_mut().zip(applications) {
            sum.requests += more.requests;
            sum.exceptions += more.exceptions;
        }
    }
}
