//! Durations in each group of routes, in shared memory: histograms with a quarter of the buckets of [`crate::histogram`], two for
//! each doubling, so that 33 of them for each thread stay small. Quantiles are at most 19 % from the truth. Their memory is there
//! only where groups are configured.
//!
//! One thread counts, without locks; others read and add up. It knows neither slot nor memory, and what the groups are.

pub use bolide_contract::statistics::MAX_GROUPS;

use crate::atomics::AtomicU64;
use crate::counters::{Shared, add};
use crate::histogram::{BUCKETS, Distribution, SCHEMA, bucket_of};

/// Prometheus' name of this resolution.
pub const COARSE_SCHEMA: i32 = 1;
/// Fine buckets in a coarse one.
const FINE: usize = 1 << (SCHEMA - COARSE_SCHEMA);
/// The zero bucket, those between, and the one for what is longer.
pub const COARSE_BUCKETS: usize = (BUCKETS - 2) / FINE + 2;

/// Counts of a group by bucket.
pub type CoarseCounts = [u64; COARSE_BUCKETS];

/// The durations of a thread's requests, by group.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct GroupDurations {
    groups: [[AtomicU64; COARSE_BUCKETS]; MAX_GROUPS + 1],
}

impl GroupDurations {
    /// Counts a duration. Only one thread may do so.
    pub fn note(&self, group: u32, microseconds: u64) {
        add(&self.groups[(group as usize).min(MAX_GROUPS)][coarse(bucket_of(microseconds))], 1);
    }

    /// Sets it to zero, after its writer has ended.
    pub fn clear(&self) {
        self.groups.clear();
    }

    /// Reads the counts of all groups.
    pub fn counts(&self) -> Vec<CoarseCounts> {
        self.groups.iter().map(Shared::read).collect()
    }
}

/// Returns the coarse bucket of a fine one.
fn coarse(place: usize) -> usize {
    if place == 0 { 0 } else { (place - 1) / FINE + 1 }
}

/// Returns counts as those of the fine buckets that end where the coarse ones do: what is counted up to a bound of both is the
/// same.
pub fn spread(counts: &CoarseCounts, sum_us: u64) -> Distribution {
    let mut distribution = Distribution { sum_us, ..Distribution::default() };
    for (place, count) in counts.iter().enumerate() {
        distribution.counts[(place * FINE).min(BUCKETS - 1)] = *count;
    }
    distribution
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> GroupDurations {
        GroupDurations { groups: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))) }
    }

    #[test]
    fn counts_up_to_a_common_bound_are_those_of_the_fine_buckets() {
        let (durations, fine) = (fresh(), crate::histogram::tests::fresh());
        let mut sum = 0;
        for microseconds in (0..40).map(|power| 3u64.pow(power / 2) * (7 + u64::from(power))) {
            durations.note(2, microseconds);
            fine.note(microseconds);
            sum += microseconds;
        }
        let (counts, fine) = (durations.counts(), fine.read());
        let spread = spread(&counts[2], sum);
        assert_eq!((COARSE_BUCKETS, spread.count(), spread.sum_us), (48, 40, fine.sum_us));
        for bound in (0..BUCKETS - 1).step_by(FINE) {
            assert_eq!(spread.count_up_to(bound), fine.count_up_to(bound), "{bound}");
        }
        durations.note(99, 1);
        assert_eq!((durations.counts()[MAX_GROUPS][0], counts[1]), (1, [0; COARSE_BUCKETS]));
        durations.clear();
        assert!(durations.counts().iter().flatten().all(|count| *count == 0));
    }
}
