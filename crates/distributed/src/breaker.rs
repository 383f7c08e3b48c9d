//! When an engine that is away may be tried again, and which lines the log gets in the meantime.
//!
//! The numbers are atomics in a row of their own, which may be in memory that the processes of an instance share: then one call
//! that has waited in vain spares the other processes their wait, and the log contains one line a minute for all of them. No
//! process ever holds the row, so the death of one leaves it whole. It does not know sockets.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::engine_row::EngineRow;

/// Milliseconds without a try after a first fault; each later fault doubles them.
const MIN_REST_MS: u64 = 100;
const MAX_REST_MS: u64 = 5_000;
/// Milliseconds between two lines about the same state of an engine.
const LINE_MS: u64 = 60_000;

/// Returns whether a call may be sent. While the engine rests, none may; afterwards one call tries it, and the others fail
/// immediately until that call has ended or `longest_ms` have passed.
pub(crate) fn admit(row: &EngineRow, now_ms: u64, longest_ms: u64) -> bool {
    row.calls.fetch_add(1, Relaxed);
    if row.away_since_ms.load(Relaxed) == 0 {
        return true;
    }
    let until = row.resting_until_ms.load(Relaxed);
    now_ms >= until && row.resting_until_ms.compare_exchange(until, now_ms + longest_ms, Relaxed, Relaxed).is_ok()
}

/// Milliseconds until a call may try the engine. `None`: it may now.
pub(crate) fn rest_ms(row: &EngineRow, now_ms: u64) -> Option<u64> {
    let left = row.resting_until_ms.load(Relaxed).saturating_sub(now_ms);
    (row.away_since_ms.load(Relaxed) != 0 && left > 0).then_some(left)
}

/// A call was not sent.
pub(crate) fn note_miss(row: &EngineRow, now_ms: u64, name: &str, reason: &str) -> Option<String> {
    row.failed.fetch_add(1, Relaxed);
    row.missed.fetch_add(1, Relaxed);
    row.unreported.fetch_add(1, Relaxed);
    let since = row.away_since_ms.load(Relaxed);
    let is_due = since != 0 && take_turn(&row.line_at_ms, now_ms);
    is_due.then(|| {
        row.is_told.store(1, Relaxed);
        let (calls, seconds) = (row.unreported.swap(0, Relaxed), now_ms.saturating_sub(since) / 1000);
        format!("engine {name} has been away for {seconds} s; {calls} calls failed since the last line: {reason}")
    })
}

/// A call has found that the engine is away.
pub(crate) fn note_away(row: &EngineRow, now_ms: u64, name: &str, reason: &str) -> Option<String> {
    let streak = row.streak.fetch_add(1, Relaxed).min(16);
    let rest = (MIN_REST_MS << streak).min(MAX_REST_MS);
    row.resting_until_ms.store(now_ms + rest, Relaxed);
    if row.away_since_ms.compare_exchange(0, now_ms.max(1), Relaxed, Relaxed).is_err() {
        return note_miss(row, now_ms, name, reason);
    }
    row.failed.fetch_add(1, Relaxed);
    row.missed.store(1, Relaxed);
    // An engine that comes and goes has one line a minute too.
    if !take_turn(&row.line_at_ms, now_ms) {
        row.unreported.fetch_add(1, Relaxed);
        return None;
    }
    row.unreported.store(0, Relaxed);
    row.is_told.store(1, Relaxed);
    Some(format!("engine {name} is away: {reason}; calls fail immediately until it is back"))
}

/// The engine has answered.
pub(crate) fn note_answer(row: &EngineRow, now_ms: u64, name: &str) -> Option<String> {
    // One store a second at most, so that the row's cache line stays with its readers.
    if now_ms.saturating_sub(row.answered_at_ms.load(Relaxed)) > 1000 || row.answered_at_ms.load(Relaxed) == 0 {
        row.answered_at_ms.store(now_ms.max(1), Relaxed);
    }
    if row.away_since_ms.load(Relaxed) == 0 {
        return None;
    }
    let since = row.away_since_ms.swap(0, Relaxed);
    row.streak.store(0, Relaxed);
    let is_told = row.is_told.swap(0, Relaxed) == 1;
    (since != 0 && is_told).then(|| {
        let (missed, seconds) = (row.missed.swap(0, Relaxed), now_ms.saturating_sub(since) / 1000);
        row.unreported.store(0, Relaxed);
        format!("engine {name} is back after {seconds} s; {missed} calls failed in the meantime")
    })
}

/// The engine has refused a command.
pub(crate) fn note_refusal(row: &EngineRow, now_ms: u64, name: &str, reason: &str) -> Option<String> {
    row.refused.fetch_add(1, Relaxed);
    row.refusals_unreported.fetch_add(1, Relaxed);
    take_turn(&row.refusal_line_at_ms, now_ms).then(|| {
        let calls = row.refusals_unreported.swap(0, Relaxed);
        format!("engine {name} refused a command ({calls} since the last line): {reason}")
    })
}

/// Returns whether a line is due, and takes its turn, so that one process alone writes it.
fn take_turn(line_at_ms: &AtomicU64, now_ms: u64) -> bool {
    let last = line_at_ms.load(Relaxed);
    (last == 0 || now_ms.saturating_sub(last) >= LINE_MS)
        && line_at_ms.compare_exchange(last, now_ms.max(1), Relaxed, Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use bolide_contract::engine_row::EngineState as State;

    use super::*;

    #[test]
    fn calls_fail_at_once_while_the_engine_rests_and_one_call_tries_it_afterwards() {
        let row = EngineRow::default();
        assert!(admit(&row, 1_000, 600) && admit(&row, 1_000, 600));
        assert!(note_away(&row, 1_000, "e", "refused").expect("a line").contains("is away: refused"));
        assert!(!admit(&row, 1_050, 600));
        assert!(admit(&row, 1_100, 600), "its rest is over");
        assert!(!admit(&row, 1_100, 600), "another call tries it already");
        assert!(admit(&row, 1_700, 600), "the process that tried it has died");
    }

    #[test]
    fn the_rest_grows_to_its_bound() {
        let row = EngineRow::default();
        for _ in 0..100 {
            note_away(&row, 1_000, "e", "refused");
        }
        assert!(!admit(&row, 1_000 + MAX_REST_MS - 1, 600));
        assert!(admit(&row, 1_000 + MAX_REST_MS, 600));
    }

    #[test]
    fn the_log_has_one_line_a_minute_and_one_when_it_is_back() {
        let row = EngineRow::default();
        let mut lines: Vec<String> = note_away(&row, 1_000, "e", "refused").into_iter().collect();
        for second in 1..=120 {
            lines.extend(note_miss(&row, 1_000 + second * 1_000, "e", "refused"));
        }
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[1].contains("away for 60 s; 60 calls failed"), "{lines:?}");
        assert_eq!(row.state(121_000), State::Away { for_ms: 120_000 });
        assert_eq!(
            note_answer(&row, 121_000, "e").as_deref(),
            Some("engine e is back after 120 s; 121 calls failed in the meantime")
        );
        assert_eq!((note_answer(&row, 121_000, "e"), row.state(121_000)), (None, State::Connected));
    }

    #[test]
    fn an_engine_that_comes_and_goes_has_one_line_a_minute_too() {
        let row = EngineRow::default();
        let mut lines = Vec::new();
        for moment in 0..100 {
            lines.extend(note_away(&row, 1_000 + moment * 100, "e", "refused"));
            lines.extend(note_answer(&row, 1_050 + moment * 100, "e"));
        }
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(note_away(&row, 61_000, "e", "refused").is_some());
        assert!(note_answer(&row, 61_001, "e").is_some());
    }

    #[test]
    fn refusals_have_one_line_a_minute() {
        let row = EngineRow::default();
        assert!(note_refusal(&row, 1_000, "e", "OOM").is_some());
        assert!((0..9).all(|_| note_refusal(&row, 2_000, "e", "OOM").is_none()));
        assert!(note_refusal(&row, 61_000, "e", "OOM").expect("a line").contains("(10 since the last line)"));
        assert_eq!(row.refused.load(Relaxed), 11);
    }
}
