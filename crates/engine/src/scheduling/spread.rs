//! When a leaving worker closes connections that do not end by themselves: evenly over a time, so that their clients do not all
//! connect elsewhere in the same moment. Pure numbers: it does not know about connections. Workers run it.
//!
//! Workers do not count each other's connections. Each one spreads its own over the whole time, and begins at another part of its
//! first step, so that the sum is even too.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::Row;

/// 2^64 divided by the golden ratio. The fractional parts of its multiples are spread evenly, however many of them are taken.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The places of a known number of connections.
#[derive(Debug)]
pub struct Spread {
    from_ms: u64,
    over_ms: u64,
    count: u64,
    next: u64,
    /// Where in a step the places are, in units of 2^-32.
    phase: u64,
}

impl Spread {
    /// Places for `count` connections of this worker within a time, in monotonic milliseconds.
    pub fn new(time: Range<u64>, count: u64, worker: u32) -> Spread {
        let over_ms = time.end.saturating_sub(time.start);
        Spread { from_ms: time.start, over_ms, count: count.max(1), next: 0, phase: fraction(worker.into()) }
    }

    /// Returns the time of the next connection, in monotonic milliseconds. Those beyond the expected number are at the end.
    pub fn next_ms(&mut self) -> u64 {
        let steps = u128::from(self.next) << 32 | u128::from(self.phase);
        self.next = (self.next + 1).min(self.count);
        let after_ms = (u128::from(self.over_ms) * steps / u128::from(self.count)) >> 32;
        self.from_ms + u64::try_from(after_ms).unwrap_or(u64::MAX).min(self.over_ms)
    }
}

/// When a thread closes a connection of its own, in milliseconds from the moment when its worker begins to close all of them. The
/// thread does not know the other connections, but each of them has another socket.
pub fn place_of(row: &Row, socket: BorrowedFd<'_>) -> u64 {
    let number = u64::from(socket.as_raw_fd().unsigned_abs());
    place_ms(row.spread_ms.load(Relaxed), number, row.worker.load(Relaxed))
}

/// A place in `over_ms` for a connection that does not know how many others there are. `number` distinguishes it from them.
pub fn place_ms(over_ms: u64, number: u64, worker: u32) -> u64 {
    let part = (fraction(number) + fraction(worker.into())) & u64::from(u32::MAX);
    ((u128::from(over_ms) * u128::from(part)) >> 32) as u64
}

/// The fractional part of a multiple of the golden ratio, in units of 2^-32.
fn fraction(number: u64) -> u64 {
    number.wrapping_mul(GOLDEN) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most places of any `window_ms` of these times.
    fn most_within(times: &mut [u64], window_ms: u64) -> usize {
        times.sort_unstable();
        (0..times.len()).map(|first| times[first..].partition_point(|time| *time < times[first] + window_ms)).max().unwrap_or(0)
    }

    #[test]
    fn connections_of_all_workers_are_spread_evenly_over_the_whole_time() {
        for (workers, each) in [(1, 5000), (4, 1250), (100, 50), (1000, 5), (1000, 1), (7, 3)] {
            let mut times = Vec::new();
            for worker in 1..=workers {
                let mut spread = Spread::new(50_000..60_000, each, worker);
                times.extend((0..each).map(|_| spread.next_ms()));
            }
            let all = times.len();
            assert!(times.iter().all(|time| (50_000..=60_000).contains(time)));
            // A tenth of a second is a hundredth of the time.
            let most = most_within(&mut times, 100);
            assert!(most <= 2 * all / 100 + 2, "{most} of {all} connections of {workers} workers in 100 ms");
            if all >= 1000 {
                assert!(times[all - 1] - times[0] >= 9_900, "{workers} workers: {:?}", (times[0], times[all - 1]));
            }
        }
    }

    #[test]
    fn connections_that_do_not_know_each_other_are_spread_too() {
        // Sockets of a process have numbers that follow each other, mostly.
        for worker in [1, 2, 17] {
            let mut times: Vec<u64> = (20..1020).map(|number| place_ms(10_000, number, worker)).collect();
            assert!(times.iter().all(|time| *time < 10_000));
            assert!(most_within(&mut times, 100) <= 20);
            assert!(times[999] - times[0] >= 9_900);
        }
    }

    #[test]
    fn without_a_time_all_are_closed_now_and_one_too_many_at_the_end() {
        let mut now = Spread::new(7..7, 3, 2);
        assert_eq!([now.next_ms(), now.next_ms(), now.next_ms()], [7, 7, 7]);
        let mut none = Spread::new(7..107, 0, 2);
        assert!((0..3).all(|_| (7..=107).contains(&none.next_ms())));
        assert_eq!(place_ms(0, 12, 1), 0);
        let mut longest = Spread::new(0..u64::MAX, u64::MAX, u32::MAX);
        assert!(longest.next_ms() <= longest.next_ms());
    }
}
