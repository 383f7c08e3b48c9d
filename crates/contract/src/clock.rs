//! The clocks of every process of an instance: monotonic milliseconds for time limits, wall-clock seconds for dates, and precise
//! microseconds for durations.
//!
//! It does not know what is timed. Tests can advance the clock of their own thread ([`advance_thread_clock`]), so hours pass in
//! milliseconds.

use std::cell::Cell;

use nix::time::{ClockId, clock_gettime};

thread_local! {
    /// Milliseconds by which a test has advanced the clock of this thread; 0 in a server. A constant without a destructor, so
    /// that a read is one instruction.
    static ADVANCED_MS: Cell<u64> = const { Cell::new(0) };
}

/// Returns monotonic time in milliseconds: the clock of all times in the scoreboard. A call costs a few nanoseconds; the
/// resolution is about 4 ms.
#[inline]
pub fn now_ms() -> u64 {
    match clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE) {
        Ok(time) => time.tv_sec() as u64 * 1000 + time.tv_nsec() as u64 / 1_000_000 + ADVANCED_MS.get(),
        // The kernel has had this clock since 2.6.32. Without it every deadline is in the future, and no worker is killed.
        Err(_) => 0,
    }
}

/// Returns seconds since 1970, with the cost and resolution of [`now_ms`].
#[inline]
pub fn wall_second() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME_COARSE).map_or(0, |time| time.tv_sec()) + (ADVANCED_MS.get() / 1000) as i64
}

/// Returns milliseconds since 1970, with the cost and resolution of [`now_ms`].
#[inline]
pub fn wall_ms() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_REALTIME_COARSE);
    time.map_or(0, |time| time.tv_sec() as u64 * 1000 + time.tv_nsec() as u64 / 1_000_000) + ADVANCED_MS.get()
}

/// Returns precise monotonic time in microseconds. A call costs about 25 ns.
pub fn precise_us() -> u64 {
    let advanced_us = ADVANCED_MS.get() * 1000;
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1000 + advanced_us)
}

/// Advances the clocks of the calling thread only. Only tests call it.
pub fn advance_thread_clock(milliseconds: u64) {
    ADVANCED_MS.set(ADVANCED_MS.get() + milliseconds);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advancing_the_clock_affects_only_its_own_thread() {
        let (before_ms, before_us, before_s) = (now_ms(), precise_us(), wall_second());
        std::thread::spawn(|| advance_thread_clock(7_200_000)).join().expect("no panic");
        assert!(now_ms() < before_ms + 7_200_000);
        advance_thread_clock(7_200_000);
        assert!(now_ms() >= before_ms + 7_200_000);
        assert!(precise_us() >= before_us + 7_200_000_000);
        assert!(wall_second() >= before_s + 7_200);
    }
}
