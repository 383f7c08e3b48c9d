//! What the next system call would find, as the last ones tell: whether a poll that does not wait finds an event, and how many
//! connections wait to be accepted. A call that finds nothing costs as much as one that does, and a client that opens a
//! connection for each request would cost one of each. It does not know about sockets. Workers run it.

/// After this many polls in a row that would have found nothing, the next ones wait immediately.
const EMPTY_POLLS: u32 = 8;

/// Of polls that are expected to find nothing, and of accepts that are not expected to find a second connection, one in this many
/// looks whether that is still so.
const LOOK_EVERY: u32 = 8;

/// Whether polls that do not wait are currently empty. Such a poll keeps the language, which one that waits must release.
#[derive(Debug, Default)]
pub struct PollForecast {
    empty: u32,
}

impl PollForecast {
    /// Whether to look for events before the wait for them.
    pub fn should_look(&self) -> bool {
        self.empty < EMPTY_POLLS || self.empty.is_multiple_of(LOOK_EVERY)
    }

    /// A poll that did not wait has found this many events.
    pub fn note_look(&mut self, events: usize) {
        self.empty = if events > 0 { 0 } else { self.empty.wrapping_add(1).max(1) };
    }

    /// A poll that could wait has found this many events. More than one were there already, or came while the thread waited for
    /// the language: a look would have found them.
    pub fn note_wait(&mut self, events: usize, has_looked: bool) {
        if events > 1 {
            self.empty = 0;
        } else if !has_looked {
            self.empty = self.empty.wrapping_add(1).max(1);
        }
    }
}

/// Whether several connections wait at a time in the accept queue of a worker that has nothing else to do. The poll reports those
/// that the worker leaves.
#[derive(Debug, Default)]
pub struct AcceptForecast {
    /// Turns in a row that have found no second connection.
    alone: u32,
}

impl AcceptForecast {
    /// The number of connections to accept in this turn, up to `most`.
    pub fn count(&self, most: usize) -> usize {
        match self.alone {
            0 => most,
            turns if turns.is_multiple_of(LOOK_EVERY) => most.min(2),
            _ => 1,
        }
    }

    /// A turn has accepted this many connections.
    pub fn note(&mut self, accepted: usize) {
        self.alone = if accepted > 1 { 0 } else { self.alone.wrapping_add(1).max(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_wait_at_once_after_some_that_found_nothing() {
        let mut forecast = PollForecast::default();
        let mut looks = 0;
        for _ in 0..EMPTY_POLLS + LOOK_EVERY * 4 {
            let should_look = forecast.should_look();
            if should_look {
                looks += 1;
                forecast.note_look(0);
            }
            forecast.note_wait(1, should_look);
        }
        assert_eq!(looks, EMPTY_POLLS + 4);
    }

    #[test]
    fn a_look_that_finds_something_is_followed_by_looks() {
        let mut forecast = PollForecast { empty: EMPTY_POLLS };
        assert!(forecast.should_look());
        forecast.note_look(1);
        for _ in 0..EMPTY_POLLS {
            assert!(forecast.should_look());
            forecast.note_look(0);
        }
        forecast.note_wait(1, false);
        assert!(!forecast.should_look());
    }

    #[test]
    fn several_events_of_a_wait_were_there_to_be_found() {
        let mut forecast = PollForecast { empty: EMPTY_POLLS + 1 };
        assert!(!forecast.should_look());
        forecast.note_wait(2, false);
        assert!(forecast.should_look());
    }

    #[test]
    fn a_count_that_runs_over_goes_on() {
        let mut forecast = PollForecast { empty: u32::MAX };
        forecast.note_wait(1, false);
        assert_eq!(forecast.empty, 1);
    }

    #[test]
    fn a_second_connection_is_looked_for_now_and_then() {
        let mut forecast = AcceptForecast::default();
        forecast.note(1);
        let mut looks = 0;
        for _ in 0..LOOK_EVERY * 3 {
            looks += u32::from(forecast.count(64) == 2);
            forecast.note(1);
        }
        assert_eq!(looks, 3);
    }

    #[test]
    fn while_several_wait_all_are_accepted() {
        let mut forecast = AcceptForecast::default();
        assert_eq!(forecast.count(64), 64, "startup may be followed by a burst");
        forecast.note(64);
        assert_eq!(forecast.count(64), 64);
        forecast.note(2);
        assert_eq!(forecast.count(64), 64);
        forecast.note(0);
        assert_eq!(forecast.count(64), 1);
        forecast.note(1);
        assert_eq!(forecast.count(1), 1);
        let mut forecast = AcceptForecast { alone: u32::MAX };
        forecast.note(1);
        assert_eq!(forecast.count(64), 1, "a count that runs over goes on");
    }
}
