//! The times of an ordered stop: when what it waits for is said, and from when on a further signal is a wish of its own. It waits for nothing
//! itself. The master runs it.

use bolide_supervision::text::duration;

/// A further signal so soon is the same wish: a supervisor may send it to the process and to its group. In milliseconds.
const SAME_WISH_MS: u64 = 100;
/// When what is waited for is said first, and how often from then on, in milliseconds.
const FIRST_MS: u64 = 1000;
const AGAIN_MS: u64 = 5000;

/// A stop that goes on.
#[derive(Debug, Clone, Copy)]
pub struct StopProgress {
    began_ms: u64,
    tell_ms: u64,
}

impl StopProgress {
    pub fn new(now_ms: u64) -> StopProgress {
        StopProgress { began_ms: now_ms, tell_ms: now_ms + FIRST_MS }
    }

    pub fn began_ms(&self) -> u64 {
        self.began_ms
    }

    /// What was asked a second time is a wish of its own by now.
    pub fn is_older_than_one_wish(&self, now_ms: u64) -> bool {
        now_ms >= self.began_ms + SAME_WISH_MS
    }

    /// It is time to say what is waited for.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.tell_ms;
        if is_due {
            self.tell_ms = now_ms + AGAIN_MS;
        }
        is_due
    }

    pub fn wake_ms(&self) -> u64 {
        self.tell_ms
    }

    /// `stopped after 3.2 s`.
    pub fn end_in_words(&self, now_ms: u64) -> String {
        format!("stopped after {}", duration(now_ms.saturating_sub(self.began_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_twice_at_once_is_one_wish() {
        let progress = StopProgress::new(1000);
        assert!(!progress.is_older_than_one_wish(1000 + SAME_WISH_MS - 1));
        assert!(progress.is_older_than_one_wish(1000 + SAME_WISH_MS));
        assert_eq!(progress.end_in_words(4200), "stopped after 3.2 s");
    }
}
