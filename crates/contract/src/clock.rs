//! The clocks of every process of an instance: monotonic milliseconds for time limits, wall-clock seconds for dates, exact microseconds for
//! how long something took.
//!
//! It knows nothing of what is timed. A test turns the clock of its own thread by hand ([`turn_by_hand`]): hours pass in milliseconds there.

use std::cell::Cell;

use nix::time::{ClockId, clock_gettime};

thread_local! {
    /// Milliseconds by which a test has turned the clock of this thread; 0 in a server. A constant without a destructor: reading it is one
    /// instruction.
    static TURNED_MS: Cell<u64> = const { Cell::new(0) };
}

/// Monotonic time in milliseconds, the clock of every time in the scoreboard. It costs a few nanoseconds
/// and is good to about 4 ms.
#[inline]
pub fn now_ms() -> u64 {
    match clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE) {
        Ok(time) => time.tv_sec() as u64 * 1000 + time.tv_nsec() as u64 / 1_000_000 + TURNED_MS.get(),
        // The kernel has had this clock since 2.6.32; without it every deadline lies in the future, and nothing is killed.
        Err(_) => 0,
    }
}

/// Seconds since 1970, as cheap and as good as [`now_ms`].
#[inline]
pub fn wall_second() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME_COARSE).map_or(0, |time| time.tv_sec()) + (TURNED_MS.get() / 1000) as i64
}

/// Monotonic time in microseconds, exact: about 25 ns a look.
pub fn precise_us() -> u64 {
    let turned_us = TURNED_MS.get() * 1000;
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1000 + turned_us)
}

/// Lets time pass for the calling thread, and for no other: tests alone call it.
pub fn turn_by_hand(milliseconds: u64) {
    TURNED_MS.set(TURNED_MS.get() + milliseconds);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_turned_by_hand_is_that_of_its_thread_alone() {
        let (before_ms, before_us, before_s) = (now_ms(), precise_us(), wall_second());
        std::thread::spawn(|| turn_by_hand(7_200_000)).join().expect("no panic");
        assert!(now_ms() < before_ms + 7_200_000);
        turn_by_hand(7_200_000);
        assert!(now_ms() >= before_ms + 7_200_000);
        assert!(precise_us() >= before_us + 7_200_000_000);
        assert!(wall_second() >= before_s + 7_200);
    }
}
