//! The companion's thread as seen by the worker's own threads: its handle, its alarm, and whether calls are quick enough to
//! postpone its next look. It knows neither the worker's state nor the companion's work ([`crate::event_loop::companion`]).
//! Workers run it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Calls are quick if more connections than this are attended to in a tick of the coarse clock.
const QUICK_CALLS: u32 = 8;

/// The longest time that a fork waits for its end. It ends between two looks.
const MAX_END: Duration = Duration::from_millis(50);

/// The pause between two checks whether it has ended.
const END_TICK: Duration = Duration::from_micros(100);

/// The companion's thread as seen by the worker's own.
pub(crate) struct CompanionThread {
    handle: Mutex<Option<JoinHandle<()>>>,
    is_called_off: AtomicBool,
    /// The kernel's number of the thread; 0: there was none.
    thread: AtomicI32,
    /// The time of its next look. The worker's threads set it with the state locked.
    alarm: TimerFd,
}

/// Whether calls are currently quick, by the number of connections that are attended to in a tick of the coarse clock.
#[derive(Debug, Default)]
pub(crate) struct QuickCalls {
    tick_ms: u64,
    count: u32,
}

impl QuickCalls {
    /// A connection is about to be attended to. Returns `true` if a tick has ended in which calls were quick.
    #[inline]
    pub fn note(&mut self, now_ms: u64) -> bool {
        self.count += 1;
        if now_ms == self.tick_ms {
            return false;
        }
        let were_quick = self.count > QUICK_CALLS;
        (self.tick_ms, self.count) = (now_ms, 0);
        were_quick
    }
}

impl CompanionThread {
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<CompanionThread> {
        let alarm = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        Ok(CompanionThread { handle: Mutex::default(), is_called_off: AtomicBool::new(false), thread: AtomicI32::new(0), alarm })
    }

    /// Sets its next look to this time from now, whatever was set before.
    pub fn look_after(&self, time: Duration) {
        // timerfd_settime(2) refuses other descriptors and negative times: neither occurs.
        let _ = self.alarm.set(Expiration::OneShot(TimeSpec::from_duration(time)), TimerSetTimeFlags::empty());
    }

    /// It looks only when it is woken.
    pub fn forget_look(&self) {
        // As above.
        let _ = self.alarm.unset();
    }

    /// The descriptor that is readable when the time of the next look has come.
    pub fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// The time of the look has come, or the wait has ended for another reason.
    pub fn note_alarm(&self) {
        // The read does not block, and an alarm that has not gone off is not an error.
        let _ = self.alarm.wait();
    }

    /// Asks it to end, for a fork.
    pub fn call_off(&self) {
        self.is_called_off.store(true, SeqCst);
    }

    pub fn is_called_off(&self) -> bool {
        self.is_called_off.load(SeqCst)
    }

    /// The fork is over. Returns whether the companion was called off.
    pub fn allow(&self) -> bool {
        self.is_called_off.swap(false, SeqCst)
    }

    pub fn put(&self, thread: JoinHandle<()>) {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }

    /// Waits for its end, for at most [`MAX_END`].
    pub fn join(&self) {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = handle.take() else { return };
        let began = Instant::now();
        while !thread.is_finished() {
            if began.elapsed() > MAX_END {
                *handle = Some(thread);
                return;
            }
            thread::sleep(END_TICK);
        }
        // A panic ends the worker.
        let _ = thread.join();
        // The kernel lists the thread for a moment after it has ended: CPython would warn of it at the fork, which copies the
        // list's length alone.
        while self.is_listed() && began.elapsed() <= MAX_END {
            thread::sleep(END_TICK);
        }
    }

    /// The companion's own thread calls this first.
    pub fn note_thread(&self) {
        self.thread.store(nix::unistd::gettid().as_raw(), SeqCst);
    }

    fn is_listed(&self) -> bool {
        Path::new(&format!("/proc/self/task/{}", self.thread.load(SeqCst))).exists()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn calls_are_quick_when_many_fit_into_a_tick_of_the_clock() {
        let mut quick = QuickCalls { tick_ms: 4, count: 0 };
        for (calls, are_quick) in [(1, false), (QUICK_CALLS - 1, false), (QUICK_CALLS, true), (100, true), (1, false)] {
            let tick_ms = quick.tick_ms;
            assert!(!(0..calls).any(|_| quick.note(tick_ms)), "the tick has not ended");
            assert_eq!(quick.note(tick_ms + 4), are_quick, "{calls} calls");
        }
    }

    #[test]
    fn an_alarm_goes_off_after_its_last_time() {
        let thread = CompanionThread::new().expect("a timer");
        let is_over = || matches!(thread.alarm.wait(), Ok(()));
        thread.look_after(Duration::from_secs(3600));
        assert!(!is_over());
        thread.look_after(Duration::from_nanos(1));
        let mut waits = [PollFd::new(thread.alarm(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waits, PollTimeout::from(10_000_u16)), Ok(1));
        assert!(is_over());
        assert!(!is_over(), "it goes off once");
    }
}
