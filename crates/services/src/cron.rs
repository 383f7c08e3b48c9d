//! When a job of `cron` is due: uWSGI's five numbers compared with a minute of local time. It does not know the clock. The
//! caller passes the time.
//!
//! Local time is the time of a wall clock. A time that is skipped in spring does not occur, and a job for it is not due on that
//! day. A time that occurs twice in autumn makes the job due twice.

use bolide_contract::attendant::Schedule;

/// A minute of a wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalMinute {
    pub minute: i32,
    pub hour: i32,
    /// Of the month, from 1.
    pub day: i32,
    /// From 1.
    pub month: i32,
    /// From Sunday, 0.
    pub weekday: i32,
}

/// Whether a job with this schedule is due in this minute. If both a day of the month and one of the week are given, either
/// matches, as in crontab(5).
pub fn is_due(schedule: Schedule, now: LocalMinute) -> bool {
    let weekday = if schedule.weekday == 7 { 0 } else { schedule.weekday };
    let (on_day, on_weekday) = (matches(schedule.day, now.day), matches(weekday, now.weekday));
    let both_given = schedule.day >= 0 && schedule.weekday >= 0;
    let is_day = if both_given { on_day || on_weekday } else { on_day && on_weekday };
    is_day && matches(schedule.minute, now.minute) && matches(schedule.hour, now.hour) && matches(schedule.month, now.month)
}

/// A number matches itself; -N matches every multiple of N.
fn matches(asked: i32, value: i32) -> bool {
    if asked < 0 { value % asked == 0 } else { value == asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minute, hour, day, month and weekday of the schedule; the same of the time; whether the job is due.
    type Case = ([i32; 5], [i32; 5], bool);

    #[rustfmt::skip]
    const CASES: &[Case] = &[
        ([-1, -1, -1, -1, -1],  [0, 0, 1, 1, 0],     true),
        ([-1, -1, -1, -1, -1],  [59, 23, 31, 12, 6], true),
        ([59, 2, -1, -1, -1],   [59, 2, 14, 7, 3],   true),
        ([59, 2, -1, -1, -1],   [59, 3, 14, 7, 3],   false),
        ([59, 2, -1, -1, -1],   [58, 2, 14, 7, 3],   false),
        ([0, 0, -1, -1, -1],    [0, 0, 14, 7, 3],    true),
        ([-5, -1, -1, -1, -1],  [0, 9, 1, 1, 1],     true),
        ([-5, -1, -1, -1, -1],  [55, 9, 1, 1, 1],    true),
        ([-5, -1, -1, -1, -1],  [56, 9, 1, 1, 1],    false),
        ([0, -6, -1, -1, -1],   [0, 18, 1, 1, 1],    true),
        ([0, -6, -1, -1, -1],   [0, 19, 1, 1, 1],    false),
        // Days and months are counted from 1, so -2 matches the even ones.
        ([0, 0, -2, -1, -1],    [0, 0, 2, 1, 1],     true),
        ([0, 0, -2, -1, -1],    [0, 0, 1, 1, 1],     false),
        ([0, 0, 1, -3, -1],     [0, 0, 1, 6, 1],     true),
        ([0, 0, 1, -3, -1],     [0, 0, 1, 7, 1],     false),
        // Sunday by both of its numbers, and an interval on a Sunday, which is 0.
        ([0, 0, -1, -1, 0],     [0, 0, 9, 1, 0],     true),
        ([0, 0, -1, -1, 7],     [0, 0, 9, 1, 0],     true),
        ([0, 0, -1, -1, 7],     [0, 0, 9, 1, 6],     false),
        ([0, 0, -1, -1, -2],    [0, 0, 9, 1, 0],     true),
        ([0, 0, -1, -1, -2],    [0, 0, 9, 1, 3],     false),
        // A day of the month and one of the week: either matches.
        ([0, 0, 13, -1, 5],     [0, 0, 13, 1, 1],    true),
        ([0, 0, 13, -1, 5],     [0, 0, 14, 1, 5],    true),
        ([0, 0, 13, -1, 5],     [0, 0, 14, 1, 1],    false),
        // One of them as an interval: both must match.
        ([0, 0, 13, -1, -1],    [0, 0, 14, 1, 1],    false),
        ([0, 0, -7, -1, 5],     [0, 0, 14, 1, 5],    true),
        ([0, 0, -7, -1, 5],     [0, 0, 13, 1, 5],    false),
        // A date that does not exist is never due.
        ([0, 0, 0, -1, -1],     [0, 0, 1, 1, 1],     false),
        ([60, -1, -1, -1, -1],  [59, 1, 1, 1, 1],    false),
    ];

    #[test]
    fn a_job_is_due_in_the_minutes_that_its_numbers_name() {
        for (asked, time, due) in CASES {
            let [minute, hour, day, month, weekday] = *asked;
            let schedule = Schedule { minute, hour, day, month, weekday };
            let [minute, hour, day, month, weekday] = *time;
            assert_eq!(is_due(schedule, LocalMinute { minute, hour, day, month, weekday }), *due, "{asked:?} at {time:?}");
        }
        assert!(is_due(Schedule::ALWAYS, LocalMinute { minute: 7, hour: 7, day: 7, month: 7, weekday: 0 }));
    }
}
