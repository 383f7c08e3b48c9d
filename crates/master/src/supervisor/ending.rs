//! The end of an instance: whether it has begun, its exit status, how long it waits for load balancers first, and the times of an
//! ordered stop (when its progress is logged, and from when on another signal is a new request). It does not end children or wait
//! for anything itself. The master runs it.

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
/// When to look again whether a connection still waits for a worker, in milliseconds.
const WAITING_LOOK_MS: u64 = 50;

/// A shutdown in progress.
#[derive(Debug, Clone, Copy)]
pub struct StopProgress {
    began_ms: u64,
    /// When the last signal that counts came.
    requested_ms: u64,
    log_ms: u64,
}

/// The time between the order to stop and the drain, for load balancers to notice it (`drain-delay`).
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    began_ms: u64,
    ends_ms: u64,
    /// `drain-quiet`; `None`: only its end counts.
    quiet_ms: Option<u64>,
    /// When to look for new arrivals.
    look_ms: u64,
}

/// Why a departure is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepartureEnd {
    /// No connection has arrived for this long, in milliseconds.
    Quiet(u64),
    /// Connections still arrive at the end of the delay.
    Late,
    /// The delay is over, and only that counts.
    Over,
}

impl Departure {
    pub fn new(now_ms: u64, delay_ms: u64, quiet_ms: Option<u64>) -> Departure {
        let ends_ms = now_ms.saturating_add(delay_ms);
        let look_ms = quiet_ms.map_or(ends_ms, |quiet_ms| ends_ms.min(now_ms.saturating_add(quiet_ms)));
        Departure { began_ms: now_ms, ends_ms, quiet_ms, look_ms }
    }

    /// Returns whether it is time to look for new arrivals, or the end.
    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.look_ms
    }

    /// Returns why it is over, or chooses when to look again. `arrived_ms` is the last arrival, 0 if there was none. While
    /// connections wait that no worker has accepted yet, it is not known whether they are arrivals or only checks.
    pub fn end(&mut self, arrived_ms: u64, are_waiting: bool, now_ms: u64) -> Option<DepartureEnd> {
        if let Some(quiet_ms) = self.quiet_ms {
            let quiet_at_ms = arrived_ms.max(self.began_ms).saturating_add(quiet_ms);
            if now_ms >= quiet_at_ms && !are_waiting {
                return Some(DepartureEnd::Quiet(quiet_ms));
            }
            self.look_ms = quiet_at_ms.max(now_ms + WAITING_LOOK_MS).min(self.ends_ms);
        }
        (now_ms >= self.ends_ms).then_some(if self.quiet_ms.is_some() { DepartureEnd::Late } else { DepartureEnd::Over })
    }
}

impl StopProgress {
    pub fn began_ms(&self) -> u64 {
        self.began_ms
    }

    /// Returns whether another signal is a new request by now.
    pub fn is_new_request(&self, now_ms: u64) -> bool {
        now_ms >= self.requested_ms + SAME_REQUEST_MS
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
    /// The instance will be stopped, and serves until then.
    pub(super) departure: Option<Departure>,
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

    /// Returns whether the instance serves until load balancers have noticed that it will be stopped.
    pub fn is_leaving(&self) -> bool {
        self.departure.is_some()
    }

    /// Returns whether a shutdown was ordered: no other command changes anything now.
    pub fn is_ordered(&self) -> bool {
        self.is_stopping() || self.is_leaving()
    }

    /// Records that a shutdown was ordered, or ordered again.
    pub fn order(&mut self, now_ms: u64) {
        let began_ms = self.progress.map_or(now_ms, |progress| progress.began_ms);
        self.progress = Some(StopProgress { began_ms, requested_ms: now_ms, log_ms: now_ms + FIRST_MS });
    }

    /// Begins the end of the instance with this status. The status of the first reason counts. Returns whether this is the first.
    pub fn begin(&mut self, status: i32) -> bool {
        let is_first = self.status.is_none();
        self.departure = None;
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
        let is_leaving = self.is_leaving();
        self.progress.as_mut().is_some_and(|progress| !is_leaving && progress.is_due(now_ms))
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
        let look_ms = self.departure.map(|departure| departure.look_ms);
        Waits::until(look_ms.or(self.progress.map(|progress| progress.log_ms)))
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
        ending.order(3000);
        let progress = ending.progress.expect("a shutdown is ordered");
        assert!(!progress.is_new_request(3000 + SAME_REQUEST_MS - 1), "the last signal counts");
        assert_eq!(progress.end_in_words(4200), "stopped after 3.2 s", "and so does the first order");
    }

    #[test]
    fn a_departure_ends_when_it_is_quiet_or_late() {
        let mut departure = Departure::new(1000, 10_000, Some(2000));
        assert!(!departure.is_due(2999) && departure.is_due(3000));
        assert_eq!(departure.end(2500, false, 3000), None, "a connection has arrived in the meantime");
        assert!(!departure.is_due(4499) && departure.is_due(4500));
        assert_eq!(departure.end(2500, true, 4500), None, "a connection waits, which may be one");
        assert!(!departure.is_due(4549) && departure.is_due(4550));
        assert_eq!(departure.end(2500, false, 4550), Some(DepartureEnd::Quiet(2000)));
        assert_eq!(departure.end(10_999, false, 10_999), None);
        assert!(departure.is_due(11_000));
        assert_eq!(departure.end(10_999, true, 11_000), Some(DepartureEnd::Late));
        assert_eq!(Departure::new(1000, 10_000, Some(2000)).end(0, false, 3000), Some(DepartureEnd::Quiet(2000)));
        let mut whole = Departure::new(1000, 10_000, None);
        assert!(!whole.is_due(10_999));
        assert_eq!((whole.end(0, false, 10_999), whole.end(0, false, 11_000)), (None, Some(DepartureEnd::Over)));
        let shorter = Departure::new(1000, 1000, Some(2000));
        assert!(shorter.is_due(2000), "drain-delay is the most");
    }
}
