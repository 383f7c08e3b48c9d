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
    /// Until when the peer's errors of this kind are not logged again, in monotonic milliseconds.
    until_ms: HashMap<(&'static str, String), u64>,
    /// Errors of peers that did not fit in the table.
    suppressed: u64,
}

impl PeerWarnings {
    /// Whether to log an error of this kind and peer now. Returns the number of errors of other peers that were suppressed since
    /// the last logged one.
    pub fn note(&self, kind: &'static str, peer: &str, now_ms: u64) -> Option<u64> {
        let key = (kind, peer.to_owned());
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.until_ms.get(&key).is_some_and(|until_ms| *until_ms > now_ms) {
            return None;
        }
        if recent.until_ms.len() >= WARNINGS_MOST {
            recent.until_ms.retain(|_, until_ms| *until_ms > now_ms);
        }
        if recent.until_ms.len() >= WARNINGS_MOST {
            recent.suppressed += 1;
            return None;
        }
        recent.until_ms.insert(key, now_ms + QUIET_MS);
        Some(std::mem::take(&mut recent.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_logged_once_a_minute_for_each_kind() {
        let peer_warnings = PeerWarnings::default();
        assert_eq!(peer_warnings.note("TLS", "192.0.2.1", 1), Some(0));
        assert_eq!(peer_warnings.note("TLS", "192.0.2.1", QUIET_MS), None);
        assert_eq!(peer_warnings.note("TLS", "192.0.2.2", 2), Some(0));
        assert_eq!(peer_warnings.note("SCGI", "192.0.2.1", 2), Some(0));
        assert_eq!(peer_warnings.note("TLS", "192.0.2.1", QUIET_MS + 1), Some(0));
    }

    #[test]
    fn more_peers_than_are_remembered_are_counted() {
        let peer_warnings = PeerWarnings::default();
        for number in 0..WARNINGS_MOST {
            assert_eq!(peer_warnings.note("TLS", &number.to_string(), 0), Some(0));
        }
        assert_eq!(peer_warnings.note("TLS", "one more", 0), None);
        assert_eq!(peer_warnings.note("TLS", "and one", 0), None);
        assert_eq!(peer_warnings.note("TLS", "the next minute", QUIET_MS), Some(2));
    }
}
