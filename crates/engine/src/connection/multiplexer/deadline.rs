//! The time limits of an HTTP/2 connection: for its next request, for the rest of a frame, or for reading waiting bytes.
//!
//! It does not know about sockets and does not read the clock: the caller passes times in monotonic milliseconds. The threads
//! that attend to connections run it, at the end of each turn, and when the last stream has ended without a turn of its
//! connection.

use crate::scheduling::deadlines::NEVER_MS;

/// The state of a connection at the end of a turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    pub has_streams: bool,
    /// Bytes wait for the client, and whether the client has read some since the last look.
    pub has_unsent: bool,
    pub has_sent: bool,
    /// A header block has begun and not ended.
    pub has_part_of_head: bool,
    /// A part of a frame is here, and whether bytes before it were processed since the last look.
    pub has_part: bool,
    pub has_understood: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The client reads the waiting bytes.
    Room,
    Head,
    Frame,
    /// Nothing: streams have their own limits.
    Streams,
    Request,
}

/// The time limit of one connection.
#[derive(Debug)]
pub struct Deadline {
    awaited: Awaited,
    until_ms: u64,
    /// Until when a connection without streams is kept. It is set once, when the last answer was sent: frames that belong to no
    /// request don't extend it. `None` while there are streams, or while their output waits for the client.
    idle_until_ms: Option<u64>,
}

impl Deadline {
    /// For a connection without a request yet, which must come by `until_ms`.
    pub fn new(until_ms: u64) -> Deadline {
        Deadline { awaited: Awaited::Request, until_ms, idle_until_ms: Some(until_ms) }
    }

    /// Returns the current limit. `timeout_ms` is for incomplete input or output, `keepalive_ms` for the next request.
    pub fn look(&mut self, facts: Facts, now_ms: u64, timeout_ms: u64, keepalive_ms: u64) -> u64 {
        if facts.has_streams {
            self.idle_until_ms = None;
        } else if self.idle_until_ms.is_none() && !facts.has_unsent {
            self.idle_until_ms = Some(now_ms.saturating_add(keepalive_ms));
        }
        let awaited = facts.awaited();
        let is_new = awaited != self.awaited
            || match awaited {
                Awaited::Room => facts.has_sent,
                Awaited::Frame => facts.has_understood,
                // A head has one time limit as a whole, as in HTTP/1.
                Awaited::Head | Awaited::Streams | Awaited::Request => false,
            };
        self.awaited = awaited;
        self.until_ms = match awaited {
            // Each stream has its own limit.
            Awaited::Streams => NEVER_MS,
            Awaited::Request => self.idle_until_ms.unwrap_or(now_ms),
            // Input that begins when the time of an idle connection is over anyway ends with the limit of one frame.
            _ if is_new => self.idle_until_ms.unwrap_or(now_ms).min(now_ms).saturating_add(timeout_ms),
            _ => self.until_ms,
        };
        self.until_ms
    }
}

impl Facts {
    fn awaited(self) -> Awaited {
        match self {
            Facts { has_unsent: true, .. } => Awaited::Room,
            Facts { has_part_of_head: true, .. } => Awaited::Head,
            Facts { has_part: true, .. } => Awaited::Frame,
            Facts { has_streams: true, .. } => Awaited::Streams,
            _ => Awaited::Request,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMEOUT_MS: u64 = 4_000;
    const KEEPALIVE_MS: u64 = 65_000;

    const IDLE: Facts = Facts {
        has_streams: false,
        has_unsent: false,
        has_sent: false,
        has_part_of_head: false,
        has_part: false,
        has_understood: false,
    };
    const BUSY: Facts = Facts { has_streams: true, ..IDLE };

    fn looks(deadline: &mut Deadline, looks: &[(u64, Facts)]) -> Vec<u64> {
        looks.iter().map(|(now_ms, facts)| deadline.look(*facts, *now_ms, TIMEOUT_MS, KEEPALIVE_MS)).collect()
    }

    #[test]
    fn the_end_of_the_last_stream_begins_the_time_of_an_idle_connection() {
        let mut deadline = Deadline::new(TIMEOUT_MS);
        let until = looks(&mut deadline, &[(10, BUSY), (100_000, IDLE), (110_000, IDLE), (120_000, BUSY), (130_000, IDLE)]);
        assert_eq!(until, [NEVER_MS, 165_000, 165_000, NEVER_MS, 195_000]);
    }

    #[test]
    fn a_client_that_asks_nothing_has_the_time_of_its_first_request() {
        let part = Facts { has_part: true, ..IDLE };
        let until = looks(&mut Deadline::new(TIMEOUT_MS), &[(10, IDLE), (1_000, IDLE), (3_000, part), (3_500, IDLE)]);
        assert_eq!(until, [4_000, 4_000, 7_000, 4_000]);
    }

    #[test]
    fn a_part_of_a_head_has_its_time_as_a_whole_and_frames_that_follow_one_another_have_one_each() {
        let head = Facts { has_part_of_head: true, has_understood: true, ..BUSY };
        let frame = Facts { has_part: true, ..BUSY };
        let next = Facts { has_understood: true, ..frame };
        let until =
            looks(&mut Deadline::new(TIMEOUT_MS), &[(10, head), (20, head), (30, BUSY), (40, frame), (50, frame), (60, next)]);
        assert_eq!(until, [4_010, 4_010, NEVER_MS, 4_040, 4_040, 4_060]);
    }

    #[test]
    fn a_client_that_reads_waiting_bytes_has_time_for_the_rest() {
        let full = Facts { has_unsent: true, ..BUSY };
        let moves = Facts { has_sent: true, ..full };
        let left = Facts { has_streams: false, ..full };
        let until = looks(&mut Deadline::new(TIMEOUT_MS), &[(10, full), (20, full), (30, moves), (40, left), (50, IDLE)]);
        assert_eq!(until, [4_010, 4_010, 4_030, 4_030, 65_050]);
    }

    fn facts() -> impl Strategy<Value = Facts> {
        let flag = || proptest::bool::weighted(0.3);
        (any::<bool>(), flag(), flag(), flag(), flag(), flag()).prop_map(
            |(has_streams, has_unsent, has_sent, has_part_of_head, has_part, has_understood)| Facts {
                has_streams,
                has_unsent,
                has_sent,
                has_part_of_head,
                has_part,
                has_understood,
            },
        )
    }

    proptest! {
        #[test]
        fn a_connection_without_streams_ends_in_its_time_whatever_else_comes(
            steps in proptest::collection::vec((0..10_000u64, facts()), 1..60),
        ) {
            let mut deadline = Deadline::new(TIMEOUT_MS);
            let mut now_ms = 0;
            // When the last answer was sent; at first, as if the time of an idle connection had begun that long ago.
            let mut idle_since_ms: Option<i64> = Some(TIMEOUT_MS as i64 - KEEPALIVE_MS as i64);
            for (passes_ms, facts) in steps {
                now_ms += passes_ms;
                let until_ms = deadline.look(facts, now_ms, TIMEOUT_MS, KEEPALIVE_MS);
                idle_since_ms = match facts {
                    Facts { has_streams: true, .. } => None,
                    Facts { has_unsent: false, .. } => idle_since_ms.or(Some(now_ms as i64)),
                    Facts { .. } => idle_since_ms,
                };
                let is_in_the_middle = facts.has_unsent || facts.has_part || facts.has_part_of_head;
                match idle_since_ms {
                    Some(since_ms) if is_in_the_middle => {
                        prop_assert!(until_ms as i64 <= since_ms + (KEEPALIVE_MS + TIMEOUT_MS) as i64);
                    }
                    Some(since_ms) => prop_assert_eq!(until_ms as i64, since_ms + KEEPALIVE_MS as i64),
                    None if is_in_the_middle => prop_assert!(until_ms <= now_ms + TIMEOUT_MS),
                    None => prop_assert_eq!(until_ms, NEVER_MS),
                }
            }
        }
    }
}
