//! Telling the log of clients' mistakes without letting whoever scans the internet write it full. It knows no protocol. Workers run it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Peers, each with a kind of mistake, that are remembered for having been told of. While there are as many, others are only counted.
const WARNINGS_MOST: usize = 1024;

/// Milliseconds within which one peer's mistakes of one kind are one line.
const QUIET_MS: u64 = 60_000;

/// Who was told of lately, and for what.
#[derive(Debug, Default)]
pub struct PeerWarnings {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Monotonic milliseconds until which a peer is not told of again for the same.
    until_ms: HashMap<(&'static str, String), u64>,
    /// Faults of peers for whom there was no room.
    untold: u64,
}

impl PeerWarnings {
    /// Whether a fault of this kind and peer is to be told now, and how many of other peers were not, since the last one that was.
    pub fn note(&self, kind: &'static str, peer: &str, now_ms: u64) -> Option<u64> {
        let key = (kind, peer.to_owned());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.until_ms.get(&key).is_some_and(|until_ms| *until_ms > now_ms) {
            return None;
        }
        if told.until_ms.len() >= WARNINGS_MOST {
            told.until_ms.retain(|_, until_ms| *until_ms > now_ms);
        }
        if told.until_ms.len() >= WARNINGS_MOST {
            told.untold += 1;
            return None;
        }
        told.until_ms.insert(key, now_ms + QUIET_MS);
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_told_of_once_a_minute_for_each_kind() {
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
