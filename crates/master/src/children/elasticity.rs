//! The times at which the number of workers is looked at: once a second, and when a connection waits. What is decided then is
//! `bolide_services::cheaper`'s, and what follows is in `scaling`. The master runs it.
//!
//! A burst is seen without a look at anything while there is none: the master waits on the listening sockets like a worker does, and
//! after each connection that it hears of it hears of no other for a moment.

use bolide_contract::settings::Settings;
use bolide_services::cheaper::{Decision, Regulator, Seen};

/// Time between two turns, in milliseconds: that of uWSGI.
const TURN_MS: u64 = 1000;
/// Time after a connection in which the sockets are left alone, in milliseconds.
const PAUSE_MS: u64 = 30;
/// The same, when all workers were at work while it waited.
const SUSPECT_PAUSE_MS: u64 = 15;
/// A look that is older than this, in milliseconds, says nothing of a burst any more.
const FORGET_MS: u64 = 200;

/// When to look, and what was seen so far.
#[derive(Debug)]
pub struct Elasticity {
    regulator: Option<Regulator>,
    /// Memory of workers counts too.
    pub weighs_memory: bool,
    idle: Option<IdleWatch>,
    turn_ms: u64,
    /// The sockets are left alone before this.
    look_ms: u64,
    looked_ms: u64,
}

/// `idle`.
#[derive(Debug)]
struct IdleWatch {
    limit_ms: u64,
    since_ms: u64,
    requests: u64,
}

impl Elasticity {
    pub fn new(settings: &Settings, now_ms: u64) -> Elasticity {
        let elastic = &settings.elastic;
        let cheaper = elastic.cheaper.as_ref();
        Elasticity {
            regulator: cheaper.map(|cheaper| Regulator::new(cheaper, settings.workers.processes)),
            weighs_memory: cheaper.is_some_and(|cheaper| cheaper.resident_soft.or(cheaper.resident_hard).is_some()),
            idle: elastic.idle_ms.map(|limit_ms| IdleWatch { limit_ms, since_ms: now_ms, requests: 0 }),
            turn_ms: now_ms + TURN_MS,
            look_ms: 0,
            looked_ms: 0,
        }
    }

    /// When to look, though nothing happens.
    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        let turn = (self.regulator.is_some() || self.idle.is_some()).then_some(self.turn_ms);
        let look = (self.look_ms > now_ms).then_some(self.look_ms);
        turn.into_iter().chain(look).min()
    }

    /// Connections that wait are to be told of: where more workers may come.
    pub fn listens(&self, now_ms: u64) -> bool {
        self.regulator.is_some() && now_ms >= self.look_ms
    }

    /// The turn of a second is due.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = (self.regulator.is_some() || self.idle.is_some()) && now_ms >= self.turn_ms;
        if is_due {
            self.turn_ms = now_ms + TURN_MS;
        }
        is_due
    }

    pub fn turn(&mut self, seen: &Seen<'_>) -> Decision {
        self.regulator.as_mut().map_or_else(Decision::default, |regulator| regulator.turn(seen))
    }

    /// A connection waits.
    pub fn look(&mut self, is_everybody_at_work: bool, seen: &Seen<'_>) -> Decision {
        let Some(regulator) = &mut self.regulator else { return Decision::default() };
        if seen.now_ms.saturating_sub(self.looked_ms) > FORGET_MS {
            regulator.forget_burst();
        }
        let decision = regulator.look_for_burst(is_everybody_at_work, seen);
        self.looked_ms = seen.now_ms;
        self.look_ms = seen.now_ms + if regulator.suspects_burst() { SUSPECT_PAUSE_MS } else { PAUSE_MS };
        decision
    }

    /// Nothing has been asked for so long that all workers may end. `requests` counts those of all workers; a number that has changed
    /// tells of requests.
    pub fn is_idle(&mut self, requests: u64, is_busy: bool, now_ms: u64) -> bool {
        let Some(idle) = &mut self.idle else { return false };
        if is_busy || idle.requests != requests {
            (idle.requests, idle.since_ms) = (requests, now_ms);
        }
        now_ms.saturating_sub(idle.since_ms) >= idle.limit_ms
    }

    /// Workers start after a time without any.
    pub fn wake_up(&mut self, now_ms: u64) {
        if let Some(idle) = &mut self.idle {
            idle.since_ms = now_ms;
        }
    }
}

/// The workers that a generation begins with, by their numbers from 1; `before` is how many there are, `None` at the start.
pub fn first_workers(settings: &Settings, before: Option<u32>) -> Vec<bool> {
    let most = settings.workers.processes;
    let count = match (&settings.elastic.cheaper, before) {
        (_, Some(0)) => 0,
        (_, None) if settings.elastic.starts_empty => 0,
        (Some(cheaper), None) => cheaper.first,
        (Some(cheaper), Some(before)) => before.clamp(cheaper.least, most),
        (None, _) => most,
    };
    (1..=most).map(|number| number <= count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::elastic::Cheaper;

    #[test]
    fn a_generation_begins_with_as_many_workers_as_there_are() {
        let mut settings = bolide_supervision::testing::settings();
        settings.workers.processes = 4;
        let count = |settings: &Settings, before| first_workers(settings, before).iter().filter(|wanted| **wanted).count();
        assert_eq!([None, Some(2), Some(0)].map(|before| count(&settings, before)), [4, 4, 0]);
        settings.elastic.cheaper = Some(Cheaper { least: 2, first: 3, ..Cheaper::default() });
        assert_eq!([None, Some(1), Some(4), Some(9), Some(0)].map(|before| count(&settings, before)), [3, 2, 4, 4, 0]);
        settings.elastic.starts_empty = true;
        assert_eq!(count(&settings, None), 0);
    }

    #[test]
    fn an_instance_is_idle_when_nothing_was_asked_for_so_long() {
        let mut settings = bolide_supervision::testing::settings();
        settings.elastic.idle_ms = Some(5000);
        let mut elasticity = Elasticity::new(&settings, 0);
        assert!(!elasticity.is_idle(0, false, 4999));
        assert!(!elasticity.is_idle(1, false, 5000), "a request");
        assert!(!elasticity.is_idle(1, true, 9000), "one is in flight");
        assert!(!elasticity.is_idle(1, false, 13_999) && elasticity.is_idle(1, false, 14_000));
        elasticity.wake_up(20_000);
        assert!(!elasticity.is_idle(1, false, 24_000));
    }

    #[test]
    fn where_the_number_is_fixed_nobody_is_woken() {
        let elasticity = Elasticity::new(&bolide_supervision::testing::settings(), 0);
        assert!(elasticity.wake_ms(1).is_none() && !elasticity.listens(1));
    }
}
