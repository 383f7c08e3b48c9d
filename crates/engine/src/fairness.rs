//! How workers share new connections without talking: each tells in the scoreboard how many it holds, and one that
//! holds more than its share leaves the next ones to the others for a moment.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::Row;

/// Connections by which a worker may be ahead of the one that holds the fewest.
const AHEAD: u32 = 2;

/// The part of another's turns by which a worker may be ahead of it: of a few none, so that the first ones go round, and of many enough
/// that a rush of connections is not held up for evenness.
const TURNS_PART: u32 = 4;

/// A worker whose loop has not turned for this many milliseconds is busy, and nobody waits for it.
const RESPONSIVE_MS: u64 = 20;

/// Whether this worker should leave the next connection to another.
pub fn is_ahead(own: &Row, rows: &[Row], now_ms: u64) -> bool {
    let mine = own.connections.load(Relaxed);
    mine >= AHEAD
        && rows
            .iter()
            .any(|row| !std::ptr::eq(row, own) && row.connections.load(Relaxed) + AHEAD <= mine && could_take_over(row, now_ms))
}

/// Whether it is another's turn, where workers that are all woken for a connection take them in turn.
pub fn has_had_its_turn(own: &Row, rows: &[Row], now_ms: u64) -> bool {
    let mine = own.turns.load(Relaxed);
    let has_had_fewer = |turns: u32| turns.saturating_add(turns / TURNS_PART) < mine;
    rows.iter()
        .any(|row| row.takes_turns.load(Relaxed) == 1 && has_had_fewer(row.turns.load(Relaxed)) && could_take_over(row, now_ms))
}

fn could_take_over(row: &Row, now_ms: u64) -> bool {
    row.accepting.load(Relaxed) == 1
        && (row.waiting.load(Relaxed) == 1 || now_ms.saturating_sub(row.turned_ms.load(Relaxed)) <= RESPONSIVE_MS)
}

/// Whether another worker sleeps and would take a connection at once.
pub fn another_waits(own: &Row, rows: &[Row]) -> bool {
    rows.iter().any(|row| !std::ptr::eq(row, own) && row.accepting.load(Relaxed) == 1 && row.waiting.load(Relaxed) == 1)
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
            (row(4, 1, 1, 0), false),
            (row(1, 0, 1, 0), false),
            (row(1, 1, 0, now_ms - 500), false),
        ] {
            let rows = [row(5, 1, 0, now_ms), other];
            assert_eq!(is_ahead(&rows[0], &rows, now_ms), ahead);
        }
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
            // Of many turns one may have had some more.
            (row(0, 1, 1, 0), 1, 400, 500, false),
            (row(0, 1, 1, 0), 1, 400, 501, true),
            (row(0, 1, 1, 0), 1, u32::MAX, u32::MAX, false),
            // One that takes none in turn, accepts nothing, or is busy.
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
    fn a_worker_that_sleeps_and_one_that_accepts_nothing_are_told_apart() {
        for (other, waits) in [(row(7, 1, 1, 0), true), (row(0, 1, 0, 0), false), (row(0, 0, 1, 0), false)] {
            let rows = [row(0, 1, 1, 0), other];
            assert_eq!(another_waits(&rows[0], &rows), waits);
        }
    }

    #[test]
    fn a_worker_alone_is_never_ahead() {
        let rows = [row(500, 1, 0, 0)];
        assert!(!is_ahead(&rows[0], &rows, 0));
    }
}
