//! What a thread measures of the requests that it serves, beside the counters of its slot: how long they take, and what each
//! group of routes has of them. It is apart from the slot because it is large: the pages of a thread that measures nothing are
//! never touched, and cost no memory.
//!
//! One thread writes, without locks; others read and add up. It knows neither row nor memory.

use std::ops::AddAssign;

use crate::atomics::{AtomicU64, Ordering::Relaxed};
use crate::histogram::{Distribution, Histogram};
use crate::slot::add;
pub use crate::slot::{CLASSES, class_of};

/// Groups of routes in the configuration (`route-group`). All other requests are in one more, the last.
pub const GROUPS_MOST: usize = 32;
/// The group of requests that no group of the configuration takes.
pub const OTHER_GROUP: u32 = GROUPS_MOST as u32;

/// The measurements of a thread since its worker's start.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Meters {
    /// From the head of a request to the end of its answer, except those of WebSockets. Counted if the time is measured anyway.
    pub latency: Histogram,
    /// From the front server's receipt of a request (`X-Request-Start`) to its head here. Counted with `metrics`.
    pub waiting: Histogram,
    /// Counted with `route-group`; the last one has all other requests.
    pub groups: [GroupMeter; GROUPS_MOST + 1],
}

/// The requests of a group of routes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct GroupMeter {
    /// By class of status, see [`class_of`].
    classes: [AtomicU64; CLASSES],
    busy_us: AtomicU64,
}

/// A copy of a thread's measurements, or the sum of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    pub latency: Distribution,
    pub waiting: Distribution,
    pub groups: [GroupWork; GROUPS_MOST + 1],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupWork {
    pub classes: [u64; CLASSES],
    pub busy_us: u64,
}

impl Default for Meters {
    fn default() -> Meters {
        let groups = std::array::from_fn(|_| GroupMeter::default());
        Meters { latency: Histogram::default(), waiting: Histogram::default(), groups }
    }
}

impl Default for Measured {
    fn default() -> Measured {
        let groups = [GroupWork::default(); GROUPS_MOST + 1];
        Measured { latency: Distribution::default(), waiting: Distribution::default(), groups }
    }
}

impl Meters {
    /// Returns the group with this number.
    pub fn group(&self, number: u32) -> &GroupMeter {
        &self.groups[(number as usize).min(GROUPS_MOST)]
    }

    /// Sets everything to zero, after its writer has ended.
    pub fn clear(&self) {
        self.latency.clear();
        self.waiting.clear();
        for counter in self.groups.iter().flat_map(|group| group.classes.iter().chain([&group.busy_us])) {
            if counter.load(Relaxed) != 0 {
                counter.store(0, Relaxed);
            }
        }
    }
}

impl GroupMeter {
    /// Counts a request. Only one thread may do so.
    pub fn note(&self, status: u16, microseconds: u64) {
        add(&self.classes[class_of(status)], 1);
        add(&self.busy_us, microseconds);
    }
}

impl Measured {
    /// Reads the measurements of a thread.
    pub fn of(meters: &Meters) -> Measured {
        let group = |group: &GroupMeter| GroupWork {
            classes: group.classes.each_ref().map(|count| count.load(Relaxed)),
            busy_us: group.busy_us.load(Relaxed),
        };
        Measured {
            latency: Distribution::of(&meters.latency),
            waiting: Distribution::of(&meters.waiting),
            groups: meters.groups.each_ref().map(group),
        }
    }
}

impl AddAssign<&Measured> for Measured {
    fn add_assign(&mut self, other: &Measured) {
        self.latency += &other.latency;
        self.waiting += &other.waiting;
        for (sum, more) in self.groups.iter_mut().zip(&other.groups) {
            sum.busy_us = sum.busy_us.wrapping_add(more.busy_us);
            for (count, more) in sum.classes.iter_mut().zip(more.classes) {
                *count = count.wrapping_add(more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_of_threads_add_up_and_are_cleared() {
        let meters = [Meters::default(), Meters::default()];
        for (thread, status) in meters.iter().zip([204, 503]) {
            thread.latency.note(1000);
            thread.waiting.note(20);
            thread.group(2).note(status, 7);
            thread.group(99).note(0, 3);
        }
        let mut sum = Measured::of(&meters[0]);
        sum += &Measured::of(&meters[1]);
        assert_eq!((sum.latency.count(), sum.waiting.sum_us), (2, 40));
        assert_eq!(sum.groups[2], GroupWork { classes: [0, 1, 0, 0, 1, 0], busy_us: 14 });
        assert_eq!(sum.groups[GROUPS_MOST].classes[CLASSES - 1], 2);
        meters[0].clear();
        assert_eq!(Measured::of(&meters[0]), Measured::default());
    }
}
