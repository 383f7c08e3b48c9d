//! The bound on one turn of a connection, or of all its streams together: without it, a client that keeps sending would
//! monopolize the thread. The send buffer bounds the bytes that are sent in a turn.
//!
//! It does not know about sockets: the connection counts its work here, and asks whether it may continue. Workers run it.

use crate::scheduling::clock::precise_us;

/// Maximum number of requests of one connection that are served in a turn.
const MAX_REQUESTS_TURN: u32 = 32;

/// The turn is over when consecutive requests have taken this many microseconds in sum.
const REQUESTS_TURN_US: u64 = 1_000;

/// The clock is read once in this many requests, after the first two.
const REQUESTS_A_LOOK: u32 = 4;

/// Bytes that are read from one connection in a turn, over all reads: heads, bodies and frames.
const READ_TURN_BYTES: usize = 256 * 1024;

/// Maximum number of pings of a WebSocket that are answered in a turn.
const MAX_PINGS_TURN: u32 = 64;

/// A connection's use of its turn.
#[derive(Debug, Default)]
pub struct TurnBudget {
    requests: u32,
    read_bytes: usize,
    pings: u32,
    /// When the first request was served, in microseconds; set only if a second one was there already.
    began_us: u64,
}

impl TurnBudget {
    /// Whether a request that is here already may be served now. Reads the clock if requests follow one another.
    pub fn may_serve(&mut self) -> bool {
        match self.requests {
            0 => true,
            MAX_REQUESTS_TURN.. => false,
            1 => {
                self.began_us = precise_us();
                true
            }
            more if more % REQUESTS_A_LOOK == 2 => precise_us().saturating_sub(self.began_us) < REQUESTS_TURN_US,
            _ => true,
        }
    }

    pub fn note_request(&mut self) {
        self.requests += 1;
    }

    pub fn note_read(&mut self, bytes: usize) {
        self.read_bytes += bytes;
    }

    pub fn note_ping(&mut self) {
        self.pings += 1;
    }

    /// Whether more may be read, or parsed of the bytes that were read.
    pub fn may_read(&self) -> bool {
        self.read_bytes < READ_TURN_BYTES && self.pings < MAX_PINGS_TURN
    }
}

/// The use that the streams of a connection make of their turn. Each is a request, and any of them may be slow, so the clock is
/// read before each of them except the first.
#[derive(Debug, Default)]
pub struct StreamsTurn {
    begun: u32,
    began_us: u64,
}

impl StreamsTurn {
    /// Whether another stream may have its turn now.
    pub fn may_begin(&self) -> bool {
        self.begun == 0 || self.begun < MAX_REQUESTS_TURN && precise_us().saturating_sub(self.began_us) < REQUESTS_TURN_US
    }

    /// A stream has its turn, and others wait.
    pub fn note_begun(&mut self) {
        if self.begun == 0 {
            self.began_us = precise_us();
        }
        self.begun += 1;
    }

    /// Makes the streams of this turn appear slow.
    #[cfg(test)]
    pub fn pretend_slow(&mut self) {
        self.began_us -= REQUESTS_TURN_US;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_bounded_in_requests_bytes_and_pings() {
        let mut turn = TurnBudget::default();
        turn.note_read(READ_TURN_BYTES - 1);
        assert!(turn.may_read());
        turn.note_read(1);
        assert!(!turn.may_read());

        let mut turn = TurnBudget { pings: MAX_PINGS_TURN - 1, ..TurnBudget::default() };
        assert!(turn.may_read());
        turn.note_ping();
        assert!(!turn.may_read());

        let mut turn = TurnBudget { requests: MAX_REQUESTS_TURN, ..TurnBudget::default() };
        assert!(!turn.may_serve());
    }

    #[test]
    fn slow_requests_end_a_turn_after_two() {
        let mut turn = TurnBudget::default();
        assert!(turn.may_serve());
        turn.note_request();
        assert!(turn.may_serve(), "the first may have been slow, which can't be known");
        turn.began_us -= REQUESTS_TURN_US;
        turn.note_request();
        assert!(!turn.may_serve());
    }
}
