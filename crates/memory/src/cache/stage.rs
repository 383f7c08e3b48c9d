//! The stages of a write, at which tests stop a process to kill it there. Without tests it is nothing.

/// A point between two changes of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    ShardLocked = 1,
    PoolLocked,
    SlotTaken,
    BlocksMarked,
    SlotFilled,
    SlotLinked,
    OldUnlinked,
    SpareExchanged,
    SlotReturned,
    Repairing,
}

/// A write has reached this stage.
#[cfg(not(test))]
#[inline(always)]
pub fn reached(_: Stage) {}

#[cfg(test)]
pub use stops::{reached, stop_at};

#[cfg(test)]
mod stops {
    use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

    use super::Stage;

    impl Stage {
        pub const ALL: [Stage; 10] = [
            Stage::ShardLocked,
            Stage::PoolLocked,
            Stage::SlotTaken,
            Stage::BlocksMarked,
            Stage::SlotFilled,
            Stage::SlotLinked,
            Stage::OldUnlinked,
            Stage::SpareExchanged,
            Stage::SlotReturned,
            Stage::Repairing,
        ];
    }

    /// The stage at which this process stops; 0 is none. A forked child sets its own.
    static STOPS_AT: AtomicU32 = AtomicU32::new(0);
    /// Where it says that it has stopped.
    static SAYS_TO: AtomicI32 = AtomicI32::new(-1);

    /// From now on this process stops at a stage, for ever, and writes a byte when it does.
    pub fn stop_at(stage: Stage, says_to: OwnedFd) {
        SAYS_TO.store(says_to.as_raw_fd(), SeqCst);
        std::mem::forget(says_to);
        STOPS_AT.store(stage as u32, SeqCst);
    }

    pub fn reached(stage: Stage) {
        if STOPS_AT.load(SeqCst) != stage as u32 {
            return;
        }
        // SAFETY: `stop_at` has kept the descriptor open for this.
        let says_to = unsafe { BorrowedFd::borrow_raw(SAYS_TO.load(SeqCst)) };
        let _ = nix::unistd::write(says_to, b"x");
        loop {
            nix::unistd::pause();
        }
    }
}
