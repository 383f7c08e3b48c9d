//! Rate limiting of log lines about clients' errors, so that scanners can't flood the log. It knows no protocol. Workers run it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The maximum number of peers that are remembered, each with a kind of error. While it is reached, warnings about other peers
/// are only counted.
const WARNINGS_MOST: usize = 1024;

/// Milliseconds for which further errors of the same peer and kind are not logged.
const QUIET_MS: u64 = 60_000;

/// The recent warnings.
#[derive(Debug, Default)]
pub struct PeerWarnings {
    recent: Mutex<RecentWarnings>,
}

#[derive(Debug, Default)]
struct RecentWarnings {
    /// By kind and peer.
    quiet: HashMap<(&'static str, String), Quiet>,
    /// Errors of peers that did not fit in the table.
    suppressed: u64,
}

/// A peer's errors of a kind after one that was logged.
#[derive(Debug)]
struct Quiet {
    /// Until when they are not logged, in monotonic milliseconds.
    until_ms: u64,
    /// Errors since the one that was logged.
    untold: u64,
}

/// Errors that were not logged before one that is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Untold {
    /// Of the same peer and kind, since its last line.
    pub of_peer: u64,
    /// Of peers that did not fit in the table.
    pub of_others: u64,
}

impl PeerWarnings {
    /// Whether to log an error of this kind and peer now. Returns the errors that were not logged before it.
    pub fn note(&self, kind: &'static str, peer: &str, now_ms: u64) -> Option<Untold> {
        let key = (kind, peer.to_owned());
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = match recent.quiet.get_mut(&key) {
            Some(quiet) if quiet.until_ms > now_ms => {
                quiet.untold += 1;
                return None;
            }
            Some(quiet) => quiet.untold,
            None => 0,
        };
        if of_peer == 0 && recent.quiet.len() >= WARNINGS_MOST {
            recent.quiet.retain(|_, quiet| quiet.until_ms > now_ms);
        }
        if of_peer == 0 && recent.quiet.len() >= WARNINGS_MOST {
            recent.suppressed += 1;
            return None;
        }
        recent.quiet.insert(key, Quiet { until_ms: now_ms + QUIET_MS, untold: 0 });
        Some(Untold { of_peer, of_others: std::mem::take(&mut recent.suppressed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_logged_once_a_minute_for_each_kind() {
        let peer_warnings = PeerWarnings::default();
        let untold = |of_peer| Some(Untold { of_peer, of_others: 0 });
        assert_eq!(peer_warnings.note("TLS", "192.0.2.1", 1), untold(0));
        assert_eq!(peer_warnings.note("TLS", "192.0.2.1", 2), None);
        assert_eq!(peer_warnings.note("TLS", "192.0.2.1", QUIET_MS), None);
        assert_eq!(peer_warnings.note("TLS", "192.0.2.2", 2), untold(0));
        assert_eq!(peer_warnings.note("SCGI", "192.0.2.1", 2), untold(0));
        assert_eq!(peer_warnings.note("TLS", "192.0.2.1", QUIET_MS + 1), untold(2));
        assert_eq!(peer_warnings.note("TLS", "192.0.2.1", QUIET_MS * 3), untold(0));
    }

    #[test]
    fn more_peers_than_are_remembered_are_counted() {
        let peer_warnings = PeerWarnings::default();
        for number in 0..WARNINGS_MOST {
            assert_eq!(peer_warnings.note("TLS", &number.to_string(), 0), Some(Untold::default()));
        }
        assert_eq!(peer_warnings.note("TLS", "one more", 0), None);
        assert_eq!(peer_warnings.note("TLS", "and one", 0), None);
        assert_eq!(peer_warnings.note("TLS", "the next minute", QUIET_MS), Some(Untold { of_peer: 0, of_others: 2 }));
    }
}
