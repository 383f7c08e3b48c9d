//! A histogram of durations in shared memory: one thread counts, without locks, and others read and add up. Its buckets are those
//! of Prometheus' native histograms of schema 3, eight for each doubling, so a reader passes them on as they are, and a quantile
//! is at most 4.5 % from the truth.
//!
//! It knows neither slot nor memory, and what the durations are of. Any process may use it.

use crate::atomics::AtomicU64;
use crate::counters::{Shared, Summed, add, counters};

/// Prometheus' name of this resolution: each bucket's bound is that of the one before times the 2^3th root of 2.
pub const SCHEMA: i32 = 3;
/// Buckets of a doubling.
const PARTS: i32 = 1 << SCHEMA;
/// Durations up to 2^-16 seconds, 15 µs, are in one bucket, which Prometheus calls the zero bucket.
pub const ZERO_POWER: i32 = -16;
/// Durations above 2^7 seconds, 128 s, are counted in the last bucket.
const LAST_POWER: i32 = 7;
/// The index, in Prometheus' numbering, of the first bucket after the zero bucket.
pub const FIRST_INDEX: i32 = ZERO_POWER * PARTS + 1;
/// The zero bucket, the buckets of 23 doublings, and one for what is longer.
pub const BUCKETS: usize = ((LAST_POWER - ZERO_POWER) * PARTS) as usize + 2;

/// 2^44 / 10^6: makes of microseconds units of 2^-44 s.
const UNITS_OF_MICROSECOND: u64 = (1 << UNIT_POWER) / 1_000_000;
const UNIT_POWER: i32 = 44;
/// A duration that is certainly in the last bucket, in microseconds; its product with the factor above fits.
const LONG_US: u64 = 1 << 32;
/// 2^(63 + j/8) for j of 1 to 7: the bounds within a doubling, for a number whose highest bit is bit 63.
const BOUNDS: [u64; 8] = [
    10_058_158_527_438_640_870,
    10_968_499_650_544_839_023,
    11_961_233_684_655_323_370,
    13_043_817_825_332_782_212,
    14_224_384_202_002_324_189,
    15_511_800_964_685_064_948,
    16_915_738_899_553_466_670,
    u64::MAX,
];
/// How many of the bounds are below each sixteenth of a doubling. No sixteenth has more than one bound in it.
const BOUNDS_BELOW: [u8; 16] = [0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7];

counters! {
    /// The histogram in shared memory.
    #[repr(C)]
    pub struct Histogram {
        /// The sum of all durations, in microseconds.
        sum_us: AtomicU64,
        counts: [AtomicU64; BUCKETS],
    }
    /// A copy of a histogram, or the sum of several.
    pub struct Distribution { .. }
}

impl Histogram {
    /// Counts a duration. Only one thread may do so.
    #[inline]
    pub fn note(&self, microseconds: u64) {
        add(&self.sum_us, microseconds);
        add(&self.counts[bucket_of(microseconds)], 1);
    }
}

/// Returns the place of a duration: a multiplication, the number of leading zeros, and two loads from tables of one cache line
/// each. No logarithm, no loop.
#[inline]
pub fn bucket_of(microseconds: u64) -> usize {
    if microseconds >= LONG_US {
        return BUCKETS - 1;
    }
    let units = (microseconds * UNITS_OF_MICROSECOND) | 1;
    let zeros = units.leading_zeros();
    let scaled = units << zeros;
    let below = usize::from(BOUNDS_BELOW[(scaled >> 59) as usize & 15]);
    let part = below as i32 + i32::from(scaled > BOUNDS[below]);
    // The doubling above 2^power seconds.
    let power = 63 - zeros as i32 - UNIT_POWER;
    let place = (power - ZERO_POWER) * PARTS + part + 1;
    place.clamp(0, BUCKETS as i32 - 1) as usize
}

/// Returns the upper bound of the bucket at this place, in seconds; `None`: the last one has none.
pub fn upper_bound_s(place: usize) -> Option<f64> {
    let bound = || (f64::from(ZERO_POWER) + place as f64 / f64::from(PARTS)).exp2();
    (place + 1 < BUCKETS).then(bound)
}

impl Distribution {
    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Returns the duration, in seconds, that this share (0 to 1) of all durations do not exceed: the geometric middle of its
    /// bucket, because an interpolation between the bounds would be up to 9 % from the truth where all durations are at one end.
    /// `None` if there are none.
    pub fn quantile_s(&self, share: f64) -> Option<f64> {
        let rank = share.clamp(0.0, 1.0) * self.count() as f64;
        let mut below = 0u64;
        for (place, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            below = below.wrapping_add(*count);
            if below as f64 >= rank {
                let lower = place.checked_sub(1).and_then(upper_bound_s);
                let upper = upper_bound_s(place).or(lower)?;
                return Some(lower.map_or(upper / 2.0, |lower| (lower * upper).sqrt()));
            }
        }
        None
    }

    /// Returns how many durations are not above that bound of a bucket, for the bucket's place.
    pub fn count_up_to(&self, place: usize) -> u64 {
        self.counts.iter().take(place + 1).fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Returns the buckets that have counted anything, as upper bound in microseconds (`u64::MAX` for the last) and count.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let bound_us = |place| upper_bound_s(place).map_or(u64::MAX, |seconds| (seconds * 1e6).round() as u64);
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(place, count)| (bound_us(place), *count))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn fresh() -> Histogram {
        Histogram { sum_us: AtomicU64::new(0), counts: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    #[test]
    fn every_duration_is_in_the_bucket_between_whose_bounds_it_is() {
        for place in 0..BUCKETS - 1 {
            let bound_us = upper_bound_s(place).expect("a bound") * 1e6;
            // The greatest whole number of microseconds in the bucket, and the next one.
            let last = bound_us.floor() as u64;
            let above = upper_bound_s(place + 1).map_or(f64::INFINITY, |bound| bound * 1e6);
            assert_eq!(bucket_of(last), place, "{last} us");
            // The factor from microseconds has this error: the next whole number may be too close above the bound.
            let is_close = (last + 1) as f64 / bound_us - 1.0 < 5e-9;
            assert!(is_close || (last + 1) as f64 > above || bucket_of(last + 1) == place + 1, "{} us", last + 1);
        }
        for (long, place) in [(0, 0), (1, 0), (15, 0), (16, 1), (128_000_000, BUCKETS - 2), (128_000_001, BUCKETS - 1)] {
            assert_eq!(bucket_of(long), place, "{long} us");
        }
        assert_eq!((bucket_of(LONG_US - 1), bucket_of(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn the_bounds_are_those_of_prometheus() {
        assert_eq!((FIRST_INDEX, BUCKETS), (-127, 186));
        let index_of = |place: usize| FIRST_INDEX + place as i32 - 1;
        assert_eq!(upper_bound_s(0), Some(1.0 / 65536.0));
        assert_eq!(upper_bound_s(1).map(|bound| (bound * 1e9).round()), Some((2f64.powf(-127.0 / 8.0) * 1e9).round()));
        let one_second = (0..BUCKETS).find(|place| upper_bound_s(*place) == Some(1.0)).expect("a bound of 1 s");
        assert_eq!((index_of(one_second), bucket_of(1_000_000)), (0, one_second));
        assert_eq!(upper_bound_s(BUCKETS - 2), Some(128.0));
        assert_eq!(upper_bound_s(BUCKETS - 1), None);
    }

    #[test]
    fn a_quantile_is_within_five_per_cent_of_the_truth() {
        let histogram = fresh();
        // Durations of 100 µs to 2 s, most of them short, from a fixed sequence.
        let mut state = 1u64;
        let mut durations: Vec<u64> = (0..20_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let share = (state >> 11) as f64 / (1u64 << 53) as f64;
                (100.0 * 20_000f64.powf(share * share)) as u64
            })
            .collect();
        for duration in &durations {
            histogram.note(*duration);
        }
        durations.sort_unstable();
        let distribution = histogram.read();
        assert_eq!((distribution.count(), distribution.sum_us), (20_000, durations.iter().sum()));
        for share in [0.1, 0.5, 0.9, 0.99, 0.999] {
            let truth = durations[(share * 20_000.0) as usize - 1] as f64 / 1e6;
            let told = distribution.quantile_s(share).expect("durations");
            assert!((told / truth - 1.0).abs() < 0.05, "{share}: {told} and not {truth}");
        }
        histogram.clear();
        // Durations that are all at one end of their bucket.
        for truth in [1_000_001, 1_090_000, 40_810, 43_000] {
            let histogram = fresh();
            (0..60).for_each(|_| histogram.note(truth));
            let told = histogram.read().quantile_s(0.99).expect("durations") * 1e6;
            assert!((told / truth as f64 - 1.0).abs() < 0.05, "{told} and not {truth}");
        }
        histogram.clear();
        assert_eq!(histogram.read(), Distribution::default());
        assert_eq!(Distribution::default().quantile_s(0.5), None);
    }

    #[test]
    fn distributions_add_up_and_tell_their_filled_buckets() {
        let mut sum = Distribution::default();
        for durations in [[10, 1_000_000], [1_000_000, 300_000_000]] {
            let histogram = fresh();
            durations.iter().for_each(|duration| histogram.note(*duration));
            sum += &histogram.read();
        }
        assert_eq!(sum.filled().collect::<Vec<_>>(), [(15, 1), (1_000_000, 2), (u64::MAX, 1)]);
        assert_eq!((sum.count_up_to(0), sum.count_up_to(BUCKETS - 2), sum.count()), (1, 3, 4));
    }
}
