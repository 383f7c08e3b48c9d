//! Signals that were dropped because too many wait: a line of the log a minute, however many they are. The master runs it.

use std::collections::BTreeMap;

use bolide_contract::uwsgi_signals::MAX_PENDING;
use bolide_supervision::text::counted;

/// Time between two lines, in milliseconds.
const LINE_MS: u64 = 60_000;
/// A line comes this long after the first loss, in milliseconds: losses come in crowds.
const CROWD_MS: u64 = 500;

/// The signals that were dropped since the last line, and altogether.
#[derive(Debug, Default)]
pub struct Losses {
    /// By signal; `None` are those that their process could not raise.
    since_line: BTreeMap<Option<u8>, u64>,
    /// When the next line is due, if there are losses.
    line_ms: Option<u64>,
    next_line_ms: u64,
    pub total: u64,
}

impl Losses {
    pub fn note(&mut self, number: Option<u8>, count: u64) {
        if count > 0 {
            *self.since_line.entry(number).or_default() += count;
            self.total += count;
        }
    }

    /// Returns the line, if one is due.
    pub fn line(&mut self, now_ms: u64) -> Option<String> {
        if self.since_line.is_empty() {
            return None;
        }
        let line_ms = *self.line_ms.get_or_insert((now_ms + CROWD_MS).max(self.next_line_ms));
        if now_ms < line_ms {
            return None;
        }
        self.line_ms = None;
        self.next_line_ms = now_ms + LINE_MS;
        let what = |(number, count): (Option<u8>, u64)| match number {
            Some(number) => format!("signal {number} ({})", counted(count, "time")),
            None => format!("signals that were raised too quickly ({})", counted(count, "time")),
        };
        let list: Vec<String> = std::mem::take(&mut self.since_line).into_iter().map(what).collect();
        Some(format!("signals are dropped, because {MAX_PENDING} are already waiting for their target: {}", list.join(", ")))
    }

    pub fn wake_ms(&self) -> Option<u64> {
        self.line_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_at_once_and_one_a_minute() {
        let mut losses = Losses::default();
        assert_eq!(losses.line(0), None);
        losses.note(Some(5), 1);
        assert_eq!((losses.line(10), losses.wake_ms()), (None, Some(10 + CROWD_MS)));
        losses.note(Some(5), 9);
        assert!(losses.line(10 + CROWD_MS).expect("a line").ends_with("signal 5 (10 times)"));
        losses.note(Some(5), 990);
        losses.note(None, 3);
        let next_ms = 10 + CROWD_MS + LINE_MS;
        assert_eq!((losses.line(2000), losses.wake_ms()), (None, Some(next_ms)));
        assert!(losses.line(next_ms).expect("a line").contains("signal 5 (990 times)"));
        assert_eq!((losses.total, losses.wake_ms()), (1003, None));
    }
}
