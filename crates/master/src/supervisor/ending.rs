//! The end of an instance: whether it has begun, its exit status, and the times of an ordered stop (when its progress is logged,
//! and from when on another signal is a new request). It does not end children or wait for anything itself. The master runs it.

use bolide_contract::settings::Settings;
use bolide_supervision::daemonize::ParentPipe;
use bolide_supervision::log_sink;
use bolide_supervision::text::duration;

use crate::owner::{Owner, Turn, Waits};

/// Another signal within this time belongs to the same request, because a supervisor may send it to the process and to its group.
/// In milliseconds.
const SAME_REQUEST_MS: u64 = 100;
/// When the progress of shutdown is logged first, and the interval after that, in milliseconds.
const FIRST_MS: u64 = 1000;
const AGAIN_MS: u64 = 5000;

/// A shutdown in progress.
#[derive(Debug, Clone, Copy)]
pub struct StopProgress {
    began_ms: u64,
    log_ms: u64,
}

impl StopProgress {
    pub fn began_ms(&self) -> u64 {
        self.began_ms
    }

    /// Returns whether another signal is a new request by now.
    pub fn is_new_request(&self, now_ms: u64) -> bool {
        now_ms >= self.began_ms + SAME_REQUEST_MS
    }

    /// Returns whether the progress is to be logged now.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.log_ms;
        if is_due {
            self.log_ms = now_ms + AGAIN_MS;
        }
        is_due
    }

    /// Returns for example `stopped after 3.2 s`.
    pub fn end_in_words(&self, now_ms: u64) -> String {
        format!("stopped after {}", duration(now_ms.saturating_sub(self.began_ms)))
    }
}

/// Whether the instance is ending, and how.
#[derive(Debug, Default)]
pub struct Ending {
    /// The exit status of an instance that is being stopped.
    status: Option<i32>,
    /// An ordered stop in progress.
    pub(super) progress: Option<StopProgress>,
    /// The last line of the log.
    pub(super) exit_message: Option<String>,
    /// Workers have served: a later failure is not a failed start.
    pub(super) has_served: bool,
    /// The `daemonize` parent that waits for startup; `None` once workers serve.
    pub(super) parent_pipe: Option<ParentPipe>,
}

impl Ending {
    /// Returns the exit status of an instance that is being stopped.
    pub fn status(&self) -> Option<i32> {
        self.status
    }

    pub fn is_stopping(&self) -> bool {
        self.status.is_some()
    }

    /// Records that a shutdown was ordered.
    pub fn order(&mut self, now_ms: u64) {
        self.progress = Some(StopProgress { began_ms: now_ms, log_ms: now_ms + FIRST_MS });
    }

    /// Begins the end of the instance with this status. The status of the first reason counts. Returns whether this is the first.
    pub fn begin(&mut self, status: i32) -> bool {
        let is_first = self.status.is_none();
        self.status.get_or_insert(status);
        is_first
    }

    /// Notifies the `daemonize` parent that workers serve.
    pub fn notify_parent(&mut self) {
        if let Some(parent_pipe) = self.parent_pipe.take() {
            parent_pipe.ready();
        }
    }

    /// Returns whether the instance removes its files when it ends: with `vacuum`, and after a failed start.
    pub fn removes_files(&self, settings: &Settings) -> bool {
        settings.lifecycle.vacuum || self.status.is_some_and(|status| status != 0) && !self.has_served
    }

    /// Returns whether the progress of shutdown is to be logged now.
    pub fn is_progress_due(&mut self, now_ms: u64) -> bool {
        self.progress.as_mut().is_some_and(|progress| progress.is_due(now_ms))
    }

    /// Logs the last line of an ordered stop.
    pub fn log_end(&self, now_ms: u64) {
        if let Some(progress) = self.progress.filter(|_| self.exit_message.is_none()) {
            log_sink::line(&progress.end_in_words(now_ms));
        }
    }
}

impl Owner for Ending {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::until(self.progress.map(|progress| progress.log_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_signals_within_a_moment_are_one_request() {
        let mut ending = Ending::default();
        ending.order(1000);
        let progress = ending.progress.expect("a shutdown is ordered");
        assert!(!progress.is_new_request(1000 + SAME_REQUEST_MS - 1));
        assert!(progress.is_new_request(1000 + SAME_REQUEST_MS));
        assert_eq!(progress.end_in_words(4200), "stopped after 3.2 s");
    }
}
