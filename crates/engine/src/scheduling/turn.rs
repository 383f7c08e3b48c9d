//! What one connection may take in, or its streams together, before it is the others' turn: a client that sends without an end would have
//! the thread for itself. What it may be sent in a turn is the send buffer's to count.
//!
//! It knows no sockets: the connection counts here what it does, and asks whether it may go on.

use crate::scheduling::clock::precise_us;

/// Requests of one connection that are served in a turn.
const REQUESTS_TURN_MOST: u32 = 32;

/// When requests that follow one another have taken this many microseconds in sum, the turn is over.
const REQUESTS_TURN_US: u64 = 1_000;

/// The clock is looked at once in this many requests, after the first two.
const REQUESTS_A_LOOK: u32 = 4;

/// Bytes that are read of one connection in a turn, over all rounds: heads, bodies and frames.
const READ_TURN_BYTES: usize = 256 * 1024;

/// Pings of a WebSocket that are answered in a turn.
const PINGS_TURN_MOST: u32 = 64;

/// A connection's use of its turn.
#[derive(Debug, Default)]
pub struct TurnBudget {
    requests: u32,
    read_bytes: usize,
    pings: u32,
    /// When the first request had been served, in microseconds; only where a second one was there already.
    began_us: u64,
}

impl TurnBudget {
    /// Whether a request that is here already may be served now. Costs a look at the clock where requests follow one another.
    pub fn may_serve(&mut self) -> bool {
        match self.requests {
            0 => true,
            REQUESTS_TURN_MOST.. => false,
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

    /// Whether more may be read, or made of what was read.
    pub fn may_read(&self) -> bool {
        self.read_bytes < READ_TURN_BYTES && self.pings < PINGS_TURN_MOST
    }
}

/// The use that the streams of a connection make of their turn. Each is a request, and any of them may be slow: so the clock is looked at before
/// each further one.
#[derive(Debug, Default)]
pub struct StreamsTurn {
    begun: u32,
    began_us: u64,
}

impl StreamsTurn {
    /// Whether one more may have its turn now.
    pub fn may_begin(&self) -> bool {
        self.begun == 0 || self.begun < REQUESTS_TURN_MOST && precise_us().saturating_sub(self.began_us) < REQUESTS_TURN_US
    }

    /// One has its turn, and others wait.
    pub fn note_begun(&mut self) {
        if self.begun == 0 {
            self.began_us = precise_us();
        }
        self.begun += 1;
    }

    /// What has begun in this turn has taken its time.
    #[cfg(test)]
    pub fn pretend_slow(&mut self) {
        self.began_us -= REQUESTS_TURN_US;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_so_many_requests_and_bytes_and_pings() {
        let mut turn = TurnBudget::default();
        turn.note_read(READ_TURN_BYTES - 1);
        assert!(turn.may_read());
        turn.note_read(1);
        assert!(!turn.may_read());

        let mut turn = TurnBudget { pings: PINGS_TURN_MOST - 1, ..TurnBudget::default() };
        assert!(turn.may_read());
        turn.note_ping();
        assert!(!turn.may_read());

        let mut turn = TurnBudget { requests: REQUESTS_TURN_MOST, ..TurnBudget::default() };
        assert!(!turn.may_serve());
    }

    #[test]
    fn slow_requests_end_a_turn_after_two() {
        let mut turn = TurnBudget::default();
        assert!(turn.may_serve());
        turn.note_request();
        assert!(turn.may_serve(), "the first may have been slow; who knows");
        turn.began_us -= REQUESTS_TURN_US;
        turn.note_request();
        assert!(!turn.may_serve());
    }
}
