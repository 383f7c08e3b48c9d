//! The end of an instance: whether it has begun, with which status, and the times of an ordered stop: when what it waits for is said, and from
//! when on a further signal is a wish of its own. It ends no child and waits for nothing itself. The master runs it.

use bolide_contract::settings::Settings;
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::daemonize::ParentPipe;
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

    /// `stopped after 3.2 s`.
    pub fn end_in_words(&self, now_ms: u64) -> String {
        format!("stopped after {}", duration(now_ms.saturating_sub(self.began_ms)))
    }
}

/// Whether the instance ends, and how.
#[derive(Debug, Default)]
pub struct Ending {
    /// The exit status of an instance that is being stopped.
    status: Option<i32>,
    /// An ordered stop that goes on.
    pub(super) progress: Option<StopProgress>,
    /// The log's last line.
    pub(super) exit_message: Option<String>,
    /// Workers have served: what fails from here on is no failed start.
    pub(super) has_served: bool,
    /// Who waits in the foreground for the start of an instance in the background; none once its workers serve.
    pub(super) starter: Option<ParentPipe>,
}

impl Ending {
    /// The exit status of an instance that is being stopped.
    pub fn status(&self) -> Option<i32> {
        self.status
    }

    pub fn is_stopping(&self) -> bool {
        self.status.is_some()
    }

    pub fn wake_ms(&self) -> Option<u64> {
        self.progress.map(|progress| progress.tell_ms)
    }

    /// A stop is ordered.
    pub fn order(&mut self, now_ms: u64) {
        self.progress = Some(StopProgress { began_ms: now_ms, tell_ms: now_ms + FIRST_MS });
    }

    /// The instance ends with this status, unless it ends already: the first reason is the one that the status tells. Gives whether it is that.
    pub fn begin(&mut self, status: i32) -> bool {
        let is_first = self.status.is_none();
        self.status.get_or_insert(status);
        is_first
    }

    /// Who waits for the start is told that workers serve.
    pub fn tell_starter(&mut self) {
        if let Some(starter) = self.starter.take() {
            starter.ready();
        }
    }

    /// The instance has left nothing behind that the next one needs: `vacuum`, and a start that has failed.
    pub fn removes_files(&self, settings: &Settings) -> bool {
        settings.lifecycle.vacuum || self.status.is_some_and(|status| status != 0) && !self.has_served
    }

    /// It is time to say what is waited for.
    pub fn is_news_due(&mut self, now_ms: u64) -> bool {
        self.progress.as_mut().is_some_and(|progress| progress.is_due(now_ms))
    }

    /// The last line of a stop that was ordered.
    pub fn tell_end(&self, now_ms: u64) {
        if let Some(progress) = self.progress.filter(|_| self.exit_message.is_none()) {
            log_sink::line(&progress.end_in_words(now_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_twice_at_once_is_one_wish() {
        let mut ending = Ending::default();
        ending.order(1000);
        let progress = ending.progress.expect("a stop is ordered");
        assert!(!progress.is_older_than_one_wish(1000 + SAME_WISH_MS - 1));
        assert!(progress.is_older_than_one_wish(1000 + SAME_WISH_MS));
        assert_eq!(progress.end_in_words(4200), "stopped after 3.2 s");
    }
}
