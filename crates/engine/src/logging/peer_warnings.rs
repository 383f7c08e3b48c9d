//! Rate limiting of log lines about clients' errors, so that scanners can't flood the log. An error that was not logged is
//! counted, and the count is logged when its minute ends, or with the worker. It does not know about protocols. Workers run it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::logging::access_log::complain;
use crate::scheduling::deadlines::NEVER_MS;

/// The maximum number of peers that are remembered, each with a kind of error. While it is reached, warnings about other peers
/// are only counted.
const MAX_WARNINGS: usize = 1024;

/// Milliseconds for which more errors of the same peer and kind are not logged.
const QUIET_MS: u64 = 60_000;

/// The recent warnings.
#[derive(Debug)]
pub struct PeerWarnings {
    /// When the next count is due, in monotonic milliseconds. It is read in each turn of the loop, and changes under the lock.
    due_ms: AtomicU64,
    recent: Mutex<RecentWarnings>,
}

#[derive(Debug, Default)]
struct RecentWarnings {
    /// By kind and peer.
    quiet: HashMap<(&'static str, String), Quiet>,
    /// Errors of peers that did not fit in the table.
    others: Count,
}

/// A peer's errors of a kind after one that was logged.
#[derive(Debug)]
struct Quiet {
    line: String,
    count: Count,
}

/// Errors that were not logged.
#[derive(Debug, Default)]
struct Count {
    /// Until when they are only counted, in monotonic milliseconds.
    until_ms: u64,
    untold: u64,
}

impl Count {
    /// Takes the number of errors, if it is time to log it. The next ones are counted for another minute.
    fn take_due(&mut self, now_ms: u64) -> Option<u64> {
        (self.untold > 0 && self.until_ms <= now_ms).then(|| {
            self.until_ms = now_ms + QUIET_MS;
            std::mem::take(&mut self.untold)
        })
    }

    fn due_ms(&self) -> u64 {
        if self.untold > 0 { self.until_ms } else { NEVER_MS }
    }
}

impl RecentWarnings {
    fn due_ms(&self) -> u64 {
        self.quiet.values().map(|quiet| quiet.count.due_ms()).min().unwrap_or(NEVER_MS).min(self.others.due_ms())
    }

    /// Returns the lines that are due, with the numbers of errors that had none.
    fn take_due(&mut self, now_ms: u64) -> Vec<String> {
        let of_peers = self.quiet.values_mut().filter_map(|Quiet { line, count }| count.take_due(now_ms).map(|n| with(line, n)));
        let mut lines: Vec<String> = of_peers.collect();
        lines
            .extend(self.others.take_due(now_ms).map(|untold| format!("failures of other peers that were not logged: {untold}")));
        lines
    }
}

fn with(line: &str, untold: u64) -> String {
    format!("{line} ({untold} more like it since the last line)")
}

impl Default for PeerWarnings {
    fn default() -> PeerWarnings {
        PeerWarnings { due_ms: AtomicU64::new(NEVER_MS), recent: Mutex::default() }
    }
}

impl PeerWarnings {
    fn recent(&self) -> MutexGuard<'_, RecentWarnings> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the line about an error of this kind and peer if it is to be logged now; otherwise the error is counted.
    pub fn note(&self, kind: &'static str, peer: &str, now_ms: u64, line: impl FnOnce() -> String) -> Option<String> {
        let mut recent = self.recent();
        let key = (kind, peer.to_owned());
        let before = match recent.quiet.get_mut(&key) {
            Some(quiet) if quiet.count.until_ms > now_ms => {
                quiet.count.untold += 1;
                self.due_ms.fetch_min(quiet.count.until_ms, Relaxed);
                return None;
            }
            Some(quiet) => Some(std::mem::take(&mut quiet.count.untold)),
            None => None,
        };
        if before.is_none() && recent.quiet.len() >= MAX_WARNINGS {
            recent.quiet.retain(|_, quiet| quiet.count.until_ms > now_ms || quiet.count.untold > 0);
        }
        if before.is_none() && recent.quiet.len() >= MAX_WARNINGS {
            let others = &mut recent.others;
            if others.untold == 0 {
                others.until_ms = others.until_ms.max(now_ms + QUIET_MS);
            }
            others.untold += 1;
            self.due_ms.fetch_min(others.until_ms, Relaxed);
            return None;
        }
        let line = line();
        let said = before.filter(|untold| *untold > 0).map_or_else(|| line.clone(), |untold| with(&line, untold));
        recent.quiet.insert(key, Quiet { line, count: Count { until_ms: now_ms + QUIET_MS, untold: 0 } });
        Some(said)
    }

    /// When [`PeerWarnings::log_due`] has something to log, in monotonic milliseconds; [`NEVER_MS`] if all was logged.
    pub fn due_ms(&self) -> u64 {
        self.due_ms.load(Relaxed)
    }

    /// Logs the numbers of errors that had no line in a minute that has ended.
    pub fn log_due(&self, worker: u32, now_ms: u64) {
        if self.due_ms() > now_ms {
            return;
        }
        let mut recent = self.recent();
        let lines = recent.take_due(now_ms);
        self.due_ms.store(recent.due_ms(), Relaxed);
        drop(recent);
        lines.iter().for_each(|line| complain(worker, line));
    }

    /// Logs the rest, because the worker exits.
    pub fn log_rest(&self, worker: u32) {
        self.log_due(worker, NEVER_MS - QUIET_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(warnings: &PeerWarnings, kind: &'static str, peer: &str, now_ms: u64) -> Option<String> {
        warnings.note(kind, peer, now_ms, || format!("refused {peer}"))
    }

    fn due(warnings: &PeerWarnings, now_ms: u64) -> Vec<String> {
        warnings.recent().take_due(now_ms)
    }

    #[test]
    fn a_peer_is_logged_once_a_minute_for_each_kind() {
        let warnings = PeerWarnings::default();
        let plain = |peer: &str| Some(format!("refused {peer}"));
        assert_eq!(note(&warnings, "TLS", "192.0.2.1", 1), plain("192.0.2.1"));
        assert_eq!(warnings.due_ms(), NEVER_MS);
        assert_eq!(note(&warnings, "TLS", "192.0.2.1", 2), None);
        assert_eq!(note(&warnings, "TLS", "192.0.2.1", QUIET_MS), None);
        assert_eq!(note(&warnings, "TLS", "192.0.2.2", 2), plain("192.0.2.2"));
        assert_eq!(note(&warnings, "SCGI", "192.0.2.1", 2), plain("192.0.2.1"));
        assert_eq!(warnings.due_ms(), QUIET_MS + 1);
        let counted = "refused 192.0.2.1 (2 more like it since the last line)";
        assert_eq!(note(&warnings, "TLS", "192.0.2.1", QUIET_MS + 1), Some(counted.to_owned()));
        assert_eq!(note(&warnings, "TLS", "192.0.2.1", QUIET_MS * 3), plain("192.0.2.1"));
    }

    #[test]
    fn a_count_is_logged_when_its_minute_ends_and_again_after_each_further_one() {
        let warnings = PeerWarnings::default();
        let counted = |times| vec![format!("refused 192.0.2.1 ({times} more like it since the last line)")];
        (0..4).for_each(|now_ms| drop(note(&warnings, "TLS", "192.0.2.1", now_ms)));
        assert_eq!(due(&warnings, QUIET_MS - 1), [""; 0]);
        assert_eq!(due(&warnings, QUIET_MS), counted(3));
        assert_eq!(note(&warnings, "TLS", "192.0.2.1", QUIET_MS + 1), None);
        assert_eq!(due(&warnings, QUIET_MS * 2 - 1), [""; 0]);
        assert_eq!(due(&warnings, QUIET_MS * 2), counted(1));
        assert_eq!(due(&warnings, QUIET_MS * 3), [""; 0]);
        assert!(note(&warnings, "TLS", "192.0.2.1", QUIET_MS * 3).is_some(), "the minute after the last count has ended");
    }

    #[test]
    fn more_peers_than_are_remembered_are_counted() {
        let warnings = PeerWarnings::default();
        for number in 0..MAX_WARNINGS {
            assert!(note(&warnings, "TLS", &number.to_string(), 0).is_some());
        }
        assert_eq!(note(&warnings, "TLS", "one more", 0), None);
        assert_eq!(note(&warnings, "TLS", "and one", 5), None);
        assert_eq!(warnings.due_ms(), QUIET_MS);
        assert!(note(&warnings, "TLS", "the next minute", QUIET_MS).is_some());
        assert_eq!(due(&warnings, QUIET_MS), ["failures of other peers that were not logged: 2"]);
    }
}
