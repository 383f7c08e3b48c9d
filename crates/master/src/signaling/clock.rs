//! The clock of the timers and cron times of the generation in service. It does not read the clock itself. The caller passes the
//! time. The master runs it.

use bolide_contract::attendant::Schedule;
use bolide_services::cron::{LocalMinute, is_due};
use bolide_services::uwsgi_signals::next_ms;

use crate::signaling::table::Timer;

const MINUTE_MS: u64 = 60_000;

/// The running timers.
#[derive(Debug, Default)]
pub struct Clock {
    running: Vec<RunningTimer>,
    crons: Vec<(u8, Schedule)>,
    /// The last minute, counted from 1970, whose cron times have fired.
    minute: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
pub struct RunningTimer {
    pub timer: Timer,
    pub due_ms: u64,
}

impl Clock {
    /// Runs the timers of another generation. A timer that is the same as one of before keeps its rhythm.
    pub fn renew(&mut self, timers: &[Timer], crons: &[(u8, Schedule)], now_ms: u64) {
        let mut before = std::mem::take(&mut self.running);
        let key = |timer: &Timer| (timer.number, timer.seconds, timer.every, timer.keeps_time);
        for timer in timers {
            let same = before.iter().position(|running| key(&running.timer) == key(timer) && timer.left.is_none());
            let due_ms = same.map(|place| before.swap_remove(place).due_ms);
            self.running.push(RunningTimer { timer: *timer, due_ms: due_ms.unwrap_or(now_ms + every_ms(timer)) });
        }
        self.crons = crons.to_vec();
    }

    /// Runs a timer in addition.
    pub fn add(&mut self, timer: Timer, now_ms: u64) {
        self.running.push(RunningTimer { timer, due_ms: now_ms + every_ms(&timer) });
    }

    pub fn add_cron(&mut self, number: u8, schedule: Schedule) {
        self.crons.push((number, schedule));
    }

    pub fn running(&self) -> &[RunningTimer] {
        &self.running
    }

    pub fn crons(&self) -> &[(u8, Schedule)] {
        &self.crons
    }

    /// The cron times of this minute have fired, in another master.
    pub fn note_minute(&mut self, minute: i64) {
        self.minute = Some(minute);
    }

    /// Returns the signals that are due.
    pub fn due(&mut self, now_ms: u64, minute: i64, local: impl FnOnce() -> Option<LocalMinute>) -> Vec<u8> {
        let mut due = Vec::new();
        self.running.retain_mut(|running| {
            if now_ms < running.due_ms {
                return true;
            }
            let timer = &mut running.timer;
            due.push(timer.number);
            running.due_ms = next_ms(running.due_ms, every_ms(timer), timer.keeps_time, now_ms);
            timer.left = timer.left.map(|left| left.saturating_sub(1));
            timer.left != Some(0)
        });
        if !self.crons.is_empty() && self.minute != Some(minute) {
            self.minute = Some(minute);
            let local = local();
            let is_now = |(_, schedule): &&(u8, Schedule)| local.is_some_and(|local| is_due(*schedule, local));
            due.extend(self.crons.iter().filter(is_now).map(|(number, _)| *number));
        }
        due
    }

    /// When something is due next. `into_minute_ms`: milliseconds since the beginning of the minute.
    pub fn wake_ms(&self, now_ms: u64, minute: i64, into_minute_ms: u64) -> Option<u64> {
        let timer = self.running.iter().map(|running| running.due_ms).min();
        let next_minute_ms = if self.minute == Some(minute) { MINUTE_MS.saturating_sub(into_minute_ms) } else { 0 };
        let cron = (!self.crons.is_empty()).then(|| now_ms + next_minute_ms);
        [timer, cron].into_iter().flatten().min()
    }
}

fn every_ms(timer: &Timer) -> u64 {
    u64::from(timer.every) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(number: u8, seconds: u32, left: Option<u32>) -> Timer {
        Timer { left, ..Timer::new(number, seconds, left.is_none()) }
    }

    const NOON: LocalMinute = LocalMinute { minute: 0, hour: 12, day: 1, month: 6, weekday: 1 };

    #[test]
    fn a_timer_of_the_next_generation_keeps_its_rhythm_and_another_begins() {
        let mut clock = Clock::default();
        clock.renew(&[timer(1, 2, None), timer(2, 2, None)], &[], 0);
        assert_eq!(clock.due(1999, 0, || None), Vec::<u8>::new());
        clock.renew(&[timer(1, 2, None), timer(2, 3, None)], &[], 1999);
        assert_eq!(clock.due(2000, 0, || None), [1]);
        assert_eq!(clock.wake_ms(2000, 0, 0), Some(4000));
        assert_eq!(clock.due(5000, 0, || None), [1, 2]);
    }

    #[test]
    fn a_timer_with_iterations_ends_and_gives_its_place_back() {
        let mut clock = Clock::default();
        clock.add(timer(7, 1, Some(2)), 0);
        assert_eq!([1000, 2000, 3000].map(|now| clock.due(now, 0, || None).len()), [1, 1, 0]);
        assert!(clock.running().is_empty() && clock.wake_ms(0, 0, 0).is_none());
    }

    #[test]
    fn a_cron_time_fires_once_a_minute() {
        let mut clock = Clock::default();
        clock.add_cron(3, Schedule::ALWAYS);
        clock.add_cron(4, Schedule { hour: 13, ..Schedule::ALWAYS });
        assert_eq!(clock.wake_ms(500, 8, 59_000), Some(500));
        assert_eq!(clock.due(500, 8, || Some(NOON)), [3]);
        assert_eq!(clock.due(501, 8, || Some(NOON)), Vec::<u8>::new());
        assert_eq!(clock.wake_ms(500, 8, 59_000), Some(1500));
        assert_eq!(clock.due(1500, 9, || Some(NOON)), [3]);
        clock.note_minute(10);
        assert_eq!(clock.due(1600, 10, || Some(NOON)), Vec::<u8>::new());
    }
}
