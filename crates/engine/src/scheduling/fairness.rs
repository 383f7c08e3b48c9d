//! How workers share new connections without messages: each one writes to the scoreboard how much of its time it works and how
//! many connections it holds. A worker that works more than another one leaves the next connection to it. If they work alike, the
//! number of connections decides. It does not know about sockets. Workers run it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::Row;

/// The number of connections by which a worker may be ahead of one that works as much, and of one that is idle at the moment.
const AHEAD: u32 = 2;
const AHEAD_OF_IDLE: u32 = 1;

/// Differences in work, in thousandths of a worker's time. A worker leaves a connection to another one if it works more by
/// `MORE_WORK`, and takes one although it holds more if it works less by as much. The busier one must work at least `MUCH_WORK`,
/// since a worker with time to spare does not make clients wait.
const MORE_WORK: u32 = 250;
const MUCH_WORK: u32 = 500;

/// The part of another worker's turns by which a worker may be ahead of it. It is none if there are few turns, so that the first
/// ones go round. If there are many, it is enough not to delay a rush of connections for the sake of evenness.
const TURNS_PART: u32 = 4;

/// A worker whose loop has not turned for this many milliseconds is busy, and the others do not wait for it.
const RESPONSIVE_MS: u64 = 20;

/// The time over which work is measured, in milliseconds.
const MEASURED_MS: u64 = 1_000;

/// Measures how much of its time a worker works, which is the time that it does not sleep in the poll.
#[derive(Debug, Default)]
pub struct WorkMeter {
    since_ms: u64,
    slept_ms: u64,
}

impl WorkMeter {
    /// The worker has slept for this long, until now. Publishes the measurement when its time is over.
    pub fn note_sleep(&mut self, slept_ms: u64, now_ms: u64, row: &Row) {
        if self.since_ms == 0 {
            // The first look of a worker begins the measurement.
            self.since_ms = now_ms;
            return;
        }
        self.slept_ms += slept_ms;
        let measured_ms = now_ms.saturating_sub(self.since_ms);
        if measured_ms >= MEASURED_MS {
            let worked_ms = measured_ms.saturating_sub(self.slept_ms);
            row.work.store((worked_ms * 1000 / measured_ms) as u32, Relaxed);
            *self = WorkMeter { since_ms: now_ms, slept_ms: 0 };
        }
    }
}

/// Whether this worker should leave the next connection to another one.
pub fn is_ahead(own: &Row, rows: &[Row], now_ms: u64) -> bool {
    let (mine, work) = (own.connections.load(Relaxed), own.work.load(Relaxed));
    let leaves_it_to = |row: &Row| {
        let other = row.work.load(Relaxed);
        if work.abs_diff(other) >= MORE_WORK && work.max(other) >= MUCH_WORK {
            return work > other && could_take_over(row, now_ms);
        }
        let ahead = if row.waiting.load(Relaxed) == 1 { AHEAD_OF_IDLE } else { AHEAD };
        row.connections.load(Relaxed) + ahead <= mine && could_take_over(row, now_ms)
    };
    (mine > 0 || work >= MUCH_WORK) && rows.iter().any(|row| !std::ptr::eq(row, own) && leaves_it_to(row))
}

/// Whether it is another worker's turn, if workers that are all woken for a connection take turns.
pub fn has_had_its_turn(own: &Row, rows: &[Row], now_ms: u64) -> bool {
    let mine = own.turns.load(Relaxed);
    let has_had_fewer = |turns: u32| turns.saturating_add(turns / TURNS_PART) < mine;
    rows.iter()
        .any(|row| row.takes_turns.load(Relaxed) == 1 && has_had_fewer(row.turns.load(Relaxed)) && could_take_over(row, now_ms))
}

fn could_take_over(row: &Row, now_ms: u64) -> bool {
    row.has_room() && (row.waiting.load(Relaxed) == 1 || now_ms.saturating_sub(row.turned_ms.load(Relaxed)) <= RESPONSIVE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(connections: u32, accepting: u32, waiting: u32, turned_ms: u64) -> Row {
        let row = Row::default();
        row.connections.store(connections, Relaxed);
        row.accepting.store(accepting, Relaxed);
        row.waiting.store(waiting, Relaxed);
        row.turned_ms.store(turned_ms, Relaxed);
        row
    }

    #[test]
    fn only_a_worker_that_could_take_over_is_waited_for() {
        let now_ms = 10_000;
        for (other, ahead) in [
            (row(1, 1, 1, 0), true),
            (row(1, 1, 0, now_ms - 5), true),
            (row(5, 1, 1, 0), false),
            (row(4, 1, 1, 0), true),
            (row(4, 1, 0, now_ms - 5), false),
            (row(1, 0, 1, 0), false),
            (row(1, 1, 0, now_ms - 500), false),
        ] {
            let rows = [row(5, 1, 0, now_ms), other];
            assert_eq!(is_ahead(&rows[0], &rows, now_ms), ahead);
        }
    }

    #[test]
    fn work_counts_before_connections_that_are_held() {
        let now_ms = 10_000;
        for (mine, work, other, other_work, ahead) in [
            // A worker with many idle connections accepts one that a busy worker would have to serve beside others.
            (1_000, 0, 2, 900, false),
            (2, 900, 1_000, 0, true),
            // Below half of its time no client waits for it.
            (0, 400, 0, 0, false),
            (3, 400, 3, 0, false),
            (3, 900, 2, 800, true),
            (3, 900, 3, 800, false),
        ] {
            let rows = [row(mine, 1, 0, now_ms), row(other, 1, 1, 0)];
            rows[0].work.store(work, Relaxed);
            rows[1].work.store(other_work, Relaxed);
            assert_eq!(is_ahead(&rows[0], &rows, now_ms), ahead, "{mine} {work} {other} {other_work}");
        }
    }

    #[test]
    fn work_is_the_time_that_is_not_slept() {
        let own = row(0, 1, 0, 0);
        let mut meter = WorkMeter { since_ms: 10_000, slept_ms: 0 };
        meter.note_sleep(300, 10_500, &own);
        assert_eq!(own.work.load(Relaxed), 0);
        meter.note_sleep(500, 11_000, &own);
        assert_eq!(own.work.load(Relaxed), 200);
        meter.note_sleep(0, 12_000, &own);
        assert_eq!(own.work.load(Relaxed), 1000);
    }

    #[test]
    fn a_worker_that_has_just_begun_has_not_worked() {
        let own = row(0, 1, 0, 0);
        let mut meter = WorkMeter::default();
        meter.note_sleep(0, 3_600_000, &own);
        assert_eq!(own.work.load(Relaxed), 0);
        meter.note_sleep(900, 3_601_000, &own);
        assert_eq!(own.work.load(Relaxed), 100);
    }

    #[test]
    fn a_turn_is_anothers_that_has_had_fewer_and_could_take_it() {
        let now_ms = 10_000;
        for (other, takes_turns, turns, mine, wanted) in [
            (row(0, 1, 1, 0), 1, 0, 1, true),
            (row(0, 1, 1, 0), 1, 3, 4, true),
            (row(9, 1, 0, now_ms - 5), 1, 3, 4, true),
            (row(0, 1, 1, 0), 1, 4, 4, false),
            (row(0, 1, 1, 0), 1, 5, 4, false),
            // If there are many turns, a worker may have had some more.
            (row(0, 1, 1, 0), 1, 400, 500, false),
            (row(0, 1, 1, 0), 1, 400, 501, true),
            (row(0, 1, 1, 0), 1, u32::MAX, u32::MAX, false),
            // A worker that does not take turns, accepts nothing, or is busy.
            (row(0, 1, 1, 0), 0, 0, 4, false),
            (row(0, 0, 1, 0), 1, 3, 4, false),
            (row(0, 1, 0, now_ms - 500), 1, 3, 4, false),
        ] {
            other.takes_turns.store(takes_turns, Relaxed);
            other.turns.store(turns, Relaxed);
            let rows = [row(0, 1, 0, now_ms), other];
            rows[0].turns.store(mine, Relaxed);
            assert_eq!(has_had_its_turn(&rows[0], &rows, now_ms), wanted, "{mine} and {turns}, {takes_turns}");
        }
    }

    #[test]
    fn a_worker_alone_is_never_ahead() {
        let rows = [row(500, 1, 0, 0)];
        assert!(!is_ahead(&rows[0], &rows, 0));
    }
}
