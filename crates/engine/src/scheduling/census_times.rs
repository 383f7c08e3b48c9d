//! When a worker counts its connections: at most once a second, and once more when it has become calm. It does not know about
//! connections. The thread that leads uses it.

use nix::sys::epoll::EpollTimeout;

/// The shortest time between two counts, in milliseconds.
const EVERY_MS: u64 = 1_000;

#[derive(Default)]
pub struct CensusTimes {
    taken_ms: u64,
    /// Something may have changed since.
    is_stale: bool,
}

impl CensusTimes {
    /// The leader has had something to do. Returns whether to count now.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        self.is_stale = now_ms < self.taken_ms + EVERY_MS;
        if !self.is_stale {
            self.taken_ms = now_ms;
        }
        !self.is_stale
    }

    /// A thread that does not lead has changed a connection. Returns whether a leader that sleeps must be woken, to set its time
    /// for the next count: at most once between two counts.
    pub fn note_change(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stale, true)
    }

    /// Milliseconds until the next count is due; `None`: nothing has changed since the last one.
    pub fn within_ms(&self, now_ms: u64) -> Option<u64> {
        self.is_stale.then(|| (self.taken_ms + EVERY_MS).saturating_sub(now_ms).max(1))
    }

    /// The leader's sleep, at most until the next count. A standby does not count: it would take the lead for it.
    pub fn limit(&self, sleep: EpollTimeout, now_ms: u64) -> EpollTimeout {
        let Some(within_ms) = self.within_ms(now_ms) else { return sleep };
        let limit = EpollTimeout::try_from(within_ms).unwrap_or(EpollTimeout::MAX);
        if sleep.is_none() { limit } else { sleep.min(limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_counts_once_a_second_and_once_more_when_it_is_calm() {
        let mut times = CensusTimes::default();
        assert!(times.is_due(5_000));
        assert_eq!((times.within_ms(5_000), times.limit(EpollTimeout::NONE, 5_000)), (None, EpollTimeout::NONE));
        assert!(!times.is_due(5_400));
        assert_eq!(times.within_ms(5_400), Some(600));
        assert_eq!(times.limit(EpollTimeout::NONE, 5_400).as_millis(), Some(600));
        assert_eq!(times.limit(EpollTimeout::from(20u8), 5_400).as_millis(), Some(20));
        assert!(times.is_due(6_000) && times.within_ms(6_000).is_none());
        assert!(times.note_change() && !times.note_change());
        assert_eq!(times.within_ms(6_100), Some(900));
        assert!(times.is_due(7_000) && times.note_change());
    }
}
