//! Adaptive admission (`admission = auto`): how many requests may wait for a free thread, by the times that the last ones took,
//! and whether one has waited too long.
//!
//! The limit follows the capacity, as in the gradient limit of Netflix' concurrency-limits. It shrinks more while requests
//! take longer than they usually do, because the average is behind a slowdown. Workers measure the times and act on the result.
//! The master shows it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::Row;

/// Requests over which the short average of service times goes, and the long one.
const SHORT_SAMPLES: f32 = 16.0;
const LONG_SAMPLES: f32 = 512.0;

/// An average of fewer requests is not used: the first ones fill caches.
const MIN_SAMPLES: u32 = 16;

/// After this many milliseconds without a new service time, an average is not used: the next requests may be others.
const FRESH_MS: u64 = 10_000;

/// A long average that is at least this many times the short one is of a slowdown that has ended. It falls by this factor with
/// each request, so that the next slowdown is noticed.
const RECOVERY_RATIO: f32 = 2.0;
const RECOVERY_FACTOR: f32 = 0.95;

/// Bounds of the ratio of both averages, by which the limit shrinks during a slowdown.
const MIN_GRADIENT: f32 = 0.5;
const MAX_GRADIENT: f32 = 1.0;

/// Maximum number of requests that may wait in an instance: no accept queue is longer.
pub const MAX_WAITING: u32 = 65_535;

/// How long the requests of a worker take, as moving averages in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ServiceTimes {
    pub short_us: f32,
    pub long_us: f32,
    /// Requests that are in them; it stops at [`LONG_SAMPLES`].
    pub samples: u32,
}

impl ServiceTimes {
    /// Those of the worker in a row.
    pub fn of(row: &Row) -> ServiceTimes {
        ServiceTimes {
            short_us: f32::from_bits(row.service_us.load(Relaxed)),
            long_us: f32::from_bits(row.service_long_us.load(Relaxed)),
            samples: row.service_samples.load(Relaxed),
        }
    }

    /// Writes them into the row of their worker. If threads do it at the same moment, one of their values may be lost, which does
    /// not matter for an average.
    pub fn store(self, row: &Row, now_ms: u64) {
        row.service_us.store(self.short_us.to_bits(), Relaxed);
        row.service_long_us.store(self.long_us.to_bits(), Relaxed);
        row.service_samples.store(self.samples, Relaxed);
        row.serviced_ms.store(now_ms, Relaxed);
    }

    /// With another request, whose thread was busy for this many microseconds.
    #[must_use]
    pub fn with(self, microseconds: u64) -> ServiceTimes {
        // A time of 0 would be an endless capacity.
        let time = microseconds.max(1) as f32;
        let samples = self.samples.saturating_add(1).min(LONG_SAMPLES as u32);
        // The first ones are averaged evenly.
        let part = |most: f32| (samples as f32).min(most).recip();
        let short_us = self.short_us + (time - self.short_us) * part(SHORT_SAMPLES);
        let mut long_us = self.long_us + (time - self.long_us) * part(LONG_SAMPLES);
        if long_us > RECOVERY_RATIO * short_us {
            long_us *= RECOVERY_FACTOR;
        }
        ServiceTimes { short_us, long_us, samples }
    }

    /// The factor by which a slowdown shrinks the limit.
    fn gradient(self) -> f32 {
        (self.long_us / self.short_us).clamp(MIN_GRADIENT, MAX_GRADIENT)
    }
}

/// A worker that serves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServingWorker {
    /// Requests that it serves at the same time: its threads, or its greenlets.
    pub places: u32,
    pub times: ServiceTimes,
    /// Milliseconds since the last service time.
    pub age_ms: u64,
}

impl ServingWorker {
    /// The worker in a row. `places` are its threads, unless it serves in greenlets.
    pub fn of(row: &Row, threads: u32, now_ms: u64) -> ServingWorker {
        let places = match row.service_places.load(Relaxed) {
            0 => threads,
            places => places,
        };
        let age_ms = now_ms.saturating_sub(row.serviced_ms.load(Relaxed));
        ServingWorker { places, times: ServiceTimes::of(row), age_ms }
    }

    /// How many requests may wait for this worker, so that the last one begins within `patience_ms`. One more for each place may
    /// wait, because a burst that is shorter than a service time is not overload. `None`: its averages say nothing.
    fn limit(self, patience_ms: u64) -> Option<f32> {
        let is_known = self.times.samples >= MIN_SAMPLES && self.age_ms <= FRESH_MS && self.times.short_us > 0.0;
        let places = self.places as f32;
        is_known.then(|| places * (patience_ms as f32 * 1000.0 / self.times.short_us) * self.times.gradient() + places)
    }
}

/// How many requests may wait for these workers together. `None`: the capacity of one is not known, because it is new, or because
/// it has had no request for a while. Then all may wait until they have waited too long.
pub fn limit(workers: impl IntoIterator<Item = ServingWorker>, patience_ms: u64) -> Option<u32> {
    let mut sum = None;
    for worker in workers {
        *sum.get_or_insert(0.0) += worker.limit(patience_ms)?;
    }
    // A float beyond the bounds of an integer becomes the nearest one.
    sum.map(|sum: f32| (sum as u32).min(MAX_WAITING))
}

/// How long a request has waited for a worker to be free, in milliseconds. `waited_ms` is the time since it came, `busy_ms` the
/// time for which the worker has had no free thread. Before that a request has waited for other reasons: a pause, a reload, or a
/// clock that is wrong.
pub fn waited_for_worker(waited_ms: u64, busy_ms: u64) -> u64 {
    waited_ms.min(busy_ms)
}

/// Seconds after which a client may try again, for `Retry-After`. The requests that wait have begun or left by then.
pub fn retry_after_s(patience_ms: u64) -> u64 {
    patience_ms.div_ceil(1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: impl IntoIterator<Item = u64>) -> ServiceTimes {
        times.into_iter().fold(ServiceTimes::default(), ServiceTimes::with)
    }

    fn steady(microseconds: u64) -> ServiceTimes {
        after(std::iter::repeat_n(microseconds, 600))
    }

    fn worker(places: u32, times: ServiceTimes) -> ServingWorker {
        ServingWorker { places, times, age_ms: 0 }
    }

    #[test]
    fn as_many_may_wait_as_begin_within_the_patience_and_one_more_for_each_thread() {
        for (places, microseconds, patience_ms, most) in [
            (1, 20_000, 500, 26),
            (4, 20_000, 500, 104),
            (4, 20_000, 1_000, 204),
            (2, 5_000, 500, 202),
            // Slower than the patience: as many as there are threads, and a part.
            (4, 2_000_000, 500, 5),
            (1, 60_000_000, 500, 1),
            (64, 1, 60_000, MAX_WAITING),
        ] {
            let limit = limit([worker(places, steady(microseconds))], patience_ms);
            assert_eq!(limit, Some(most), "{places} × {microseconds} us, {patience_ms} ms");
        }
    }

    #[test]
    fn workers_add_up_and_one_that_is_not_known_leaves_the_limit_open() {
        let known = worker(2, steady(10_000));
        assert_eq!(limit([known, known], 500), Some(204));
        assert_eq!(limit([known, worker(2, after([10_000; 15]))], 500), None, "a new worker");
        assert_eq!(limit([known, worker(2, after([10_000; 16]))], 500), Some(204));
        assert_eq!(limit([known, ServingWorker { age_ms: FRESH_MS + 1, ..known }], 500), None, "stale averages");
        assert_eq!(limit([ServingWorker { age_ms: FRESH_MS, ..known }], 500), Some(102));
        assert_eq!(limit([], 500), None);
    }

    #[test]
    fn a_slowdown_shrinks_the_limit_more_than_the_capacity_and_its_end_restores_it() {
        let quick = steady(10_000);
        let slow = (0..32).fold(quick, |times, _| times.with(40_000));
        assert!(slow.short_us > 35_000.0 && slow.long_us < 15_000.0, "{slow:?}");
        // A quarter of the capacity, and half of that for the gradient.
        let shrunk = limit([worker(4, slow)], 500).expect("a limit");
        assert!((26..=34).contains(&shrunk), "{shrunk}");
        let restored = (0..64).fold(slow, |times, _| times.with(10_000));
        assert!(limit([worker(4, restored)], 500).expect("a limit") >= 190, "{restored:?}");
        // What lasts becomes usual.
        let usual = (0..2_000).fold(slow, |times, _| times.with(40_000));
        assert_eq!(limit([worker(4, usual)], 500), Some(53), "{usual:?}");
    }

    #[test]
    fn the_end_of_a_long_slowdown_is_noticed_soon() {
        let recovered = (0..64).fold(steady(100_000), |times, _| times.with(10_000));
        assert!(recovered.long_us < 2.2 * recovered.short_us, "{recovered:?}");
    }

    #[test]
    fn strange_times_make_no_strange_limits() {
        for microseconds in [0, 1, u64::MAX] {
            let times = steady(microseconds);
            assert!(times.short_us.is_finite() && times.short_us > 0.0, "{times:?}");
            let limit = limit([worker(1, times)], 60_000).expect("a limit");
            assert!((1..=MAX_WAITING).contains(&limit), "{limit}");
        }
    }

    #[test]
    fn a_wait_counts_from_when_the_worker_had_no_free_thread() {
        for (waited_ms, busy_ms, counted_ms) in [(700, 2_000, 700), (700, 3, 3), (0, 2_000, 0), (5_000_000, 100, 100)] {
            assert_eq!(waited_for_worker(waited_ms, busy_ms), counted_ms);
        }
    }

    #[test]
    fn clients_come_back_after_whole_seconds() {
        for (patience_ms, seconds) in [(50, 1), (500, 1), (1_000, 1), (1_001, 2), (60_000, 60)] {
            assert_eq!(retry_after_s(patience_ms), seconds);
        }
    }
}
