//! The primitives of the lead of threads: atomics, locks, the doorbell, and the times that a standby compares. `models`, which
//! runs `leadership` under each possible interleaving of threads, replaces this file. It does not know about workers. Workers run
//! it.

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard};
pub use std::time::Instant;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use bolide_contract::clock::now_ms;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::time::{ClockId, clock_gettime};

/// Ticks without a call after which the standby goes to sleep; the next call wakes it.
pub const IDLE_TICKS: u32 = 50;

/// The standby's pause between two looks.
pub fn pause(microseconds: u64) {
    std::thread::sleep(Duration::from_micros(microseconds));
}

/// Wakes a thread that waits in poll(2). A ring is kept until it is heard.
pub struct Doorbell(EventFd);

impl Doorbell {
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Doorbell> {
        Ok(Doorbell(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    pub fn ring(&self) {
        // A full counter has rung already.
        let _ = self.0.write(1);
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Clears the ring.
    pub fn clear(&self) {
        // An empty counter: it did not ring.
        let _ = self.0.read();
    }
}

/// The kernel's id of the calling thread.
pub fn own_thread() -> u32 {
    nix::unistd::gettid().as_raw() as u32
}

/// CPU time of a thread of this process in microseconds; 0 if it is gone.
pub fn thread_cpu_us(thread: u32) -> u64 {
    /// Linux' encoding of a thread's scheduler clock (`CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`), as in glibc.
    const THREAD_SCHEDULER_CLOCK: i32 = 6;
    let clock = ClockId::from_raw(!(thread as i32) << 3 | THREAD_SCHEDULER_CLOCK);
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1000)
}
