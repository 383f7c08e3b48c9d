//! The algorithms, turn by turn, compared with uWSGI's manual and source.

use bolide_contract::scaling::{Algorithm, Busyness, Cheaper};

use super::*;

/// `count` workers, of which `busy` are busy.
fn workers(count: u32, busy: u32) -> Vec<WorkerLoad> {
    (1..=count).map(|number| WorkerLoad { number, is_busy: number <= busy, busy_ms: 0 }).collect()
}

fn regulator(algorithm: Algorithm, most: u32, cheaper: Cheaper) -> Regulator {
    Regulator::new(&Cheaper { algorithm, ..cheaper }, most)
}

/// The change of each turn, given as (workers, busy, waiting).
fn changes(regulator: &mut Regulator, turns: &[(u32, u32, u32)]) -> Vec<i32> {
    let turn = |(second, &(count, busy, waiting)): (usize, &(u32, u32, u32))| {
        let workers = workers(count, busy);
        let seen = Seen { workers: &workers, waiting, resident: 0, now_ms: second as u64 * 1000 };
        regulator.turn(&seen).change
    };
    turns.iter().enumerate().map(turn).collect()
}

#[test]
fn spare_adds_after_cheaper_overload_turns_in_which_all_were_busy() {
    let cheaper = Cheaper { least: 2, step: 3, overload: 3, ..Cheaper::default() };
    let mut spare = regulator(Algorithm::Spare, 10, cheaper.clone());
    assert_eq!(changes(&mut spare, &[(2, 2, 0); 5]), [0, 0, 0, 3, 0]);
    // Never more than the maximum.
    let mut spare = regulator(Algorithm::Spare, 3, cheaper);
    assert_eq!(changes(&mut spare, &[(2, 2, 0); 4]), [0, 0, 0, 1]);
}

#[test]
fn spare_takes_one_away_each_cheaper_overload_turns_while_several_are_free() {
    let cheaper = Cheaper { least: 2, overload: 3, ..Cheaper::default() };
    let mut spare = regulator(Algorithm::Spare, 10, cheaper.clone());
    assert_eq!(changes(&mut spare, &[(7, 1, 0); 7]), [0, 0, -1, 0, 0, -1, 0]);
    // A single free worker is the spare one.
    let mut spare = regulator(Algorithm::Spare, 10, cheaper.clone());
    assert_eq!(changes(&mut spare, &[(7, 6, 0); 6]), [0; 6]);
    // Not below the minimum.
    let mut spare = regulator(Algorithm::Spare, 10, cheaper.clone());
    assert_eq!(changes(&mut spare, &[(2, 0, 0); 9]), [0; 9]);
    // A spike in between restarts the count.
    let mut spare = regulator(Algorithm::Spare, 10, cheaper);
    assert_eq!(changes(&mut spare, &[(7, 1, 0), (7, 1, 0), (7, 7, 0), (7, 1, 0), (7, 1, 0), (7, 1, 0)]), [0, 0, 0, 0, 0, -1]);
}

#[test]
fn spare2_keeps_as_many_free_as_cheaper_says() {
    let cheaper = Cheaper { least: 3, step: 2, idle_s: 3, ..Cheaper::default() };
    let mut spare2 = regulator(Algorithm::Spare2, 10, cheaper);
    assert_eq!(changes(&mut spare2, &[(3, 3, 0), (5, 3, 0), (6, 3, 0), (10, 9, 0)]), [2, 1, 0, 0]);
    assert_eq!(changes(&mut spare2, &[(8, 2, 0), (8, 2, 0), (8, 2, 0), (7, 2, 0), (7, 4, 0), (7, 2, 0)]), [0, 0, -1, 0, 0, 0]);
}

#[test]
fn backlog_follows_the_connections_that_wait() {
    let cheaper = Cheaper { least: 2, step: 2, overload: 5, ..Cheaper::default() };
    let mut backlog = regulator(Algorithm::Backlog, 5, cheaper);
    assert_eq!(changes(&mut backlog, &[(2, 2, 5), (2, 2, 6), (4, 4, 9), (5, 5, 9), (5, 5, 4), (2, 0, 0)]), [0, 2, 1, 0, -1, 0]);
}

#[test]
fn manual_decides_nothing() {
    let mut manual = regulator(Algorithm::Manual, 10, Cheaper::default());
    assert_eq!(changes(&mut manual, &[(1, 1, 50), (10, 0, 0)]), [0, 0]);
    let workers = workers(1, 1);
    let seen = Seen { workers: &workers, waiting: 9, resident: 0, now_ms: 0 };
    assert!((0..9).all(|_| manual.look_for_burst(true, &seen).change == 0));
}

#[test]
fn memory_forbids_more_workers_and_takes_some_away() {
    let cheaper = Cheaper { overload: 1, resident_soft: Some(100), resident_hard: Some(200), ..Cheaper::default() };
    let mut spare = regulator(Algorithm::Spare, 10, cheaper);
    let mut change = |count: u32, busy: u32, resident: u64| {
        let workers = workers(count, busy);
        spare.turn(&Seen { workers: &workers, waiting: 0, resident, now_ms: 0 }).change
    };
    assert_eq!([change(2, 2, 100), change(2, 2, 100), change(2, 2, 100), change(2, 2, 99)], [0, 0, 0, 1]);
    assert_eq!([change(2, 2, 200), change(1, 1, 200)], [-1, 0]);
}

/// Turns of `busyness`, one a second, in which each worker is busy for some milliseconds.
struct Busy {
    regulator: Regulator,
    now_ms: u64,
    /// Of each worker, since its start.
    busy_ms: Vec<u64>,
}

impl Busy {
    fn new(cheaper: Cheaper) -> Busy {
        let mut busy = Busy { regulator: regulator(Algorithm::Busyness, 10, cheaper), now_ms: 0, busy_ms: Vec::new() };
        busy.second(2, 0, 0);
        busy
    }

    fn second(&mut self, count: u32, busy_ms: u64, waiting: u32) -> i32 {
        self.busy_ms.resize(count as usize, 0);
        self.busy_ms.iter_mut().for_each(|sum| *sum += busy_ms);
        let sums = (1u32..).zip(&self.busy_ms);
        let workers: Vec<WorkerLoad> =
            sums.map(|(number, busy_ms)| WorkerLoad { number, is_busy: false, busy_ms: *busy_ms }).collect();
        let decision = self.regulator.turn(&Seen { workers: &workers, waiting, resident: 0, now_ms: self.now_ms });
        self.now_ms += 1000;
        decision.change
    }

    fn seconds(&mut self, seconds: u32, count: u32, busy_ms: u64) -> Vec<i32> {
        (0..seconds).map(|_| self.second(count, busy_ms, 0)).collect()
    }
}

fn busy_settings() -> Cheaper {
    let busyness = Busyness { multiplier: 2, penalty: 3, ..Busyness::default() };
    Cheaper { least: 1, step: 2, overload: 2, busyness, ..Cheaper::default() }
}

#[test]
fn busyness_adds_above_its_upper_limit_at_the_end_of_a_turn() {
    let mut busy = Busy::new(busy_settings());
    assert_eq!(busy.seconds(4, 2, 510), [0, 2, 0, 2]);
    // Between the limits nothing changes.
    assert_eq!(busy.seconds(8, 4, 400), [0; 8]);
}

#[test]
fn busyness_takes_one_away_below_its_lower_limit_after_the_multiplier() {
    let mut busy = Busy::new(busy_settings());
    // No worker is removed in the first 2 × 2 s, or within 2 × 2 s of a removal.
    assert_eq!(busy.seconds(8, 4, 100), [0, 0, 0, -1, 0, 0, 0, -1]);
}

#[test]
fn busyness_waits_longer_after_a_removal_that_was_too_early() {
    let mut busy = Busy::new(busy_settings());
    assert_eq!(busy.seconds(4, 3, 0), [0, 0, 0, -1]);
    assert_eq!(busy.seconds(2, 2, 900), [0, 2]);
    // The multiplier is 2 + 3 now.
    assert_eq!(busy.seconds(10, 4, 0), [0, 0, 0, 0, 0, 0, 0, 0, 0, -1]);
}

#[test]
fn busyness_takes_a_worker_whose_request_has_not_ended_for_busy() {
    let mut regulator = regulator(Algorithm::Busyness, 10, busy_settings());
    assert_eq!(changes(&mut regulator, &[(2, 2, 0), (2, 2, 0), (2, 2, 0)]), [0, 0, 2]);
}

#[test]
fn busyness_adds_at_once_when_too_many_wait_or_some_wait_too_long() {
    let busyness = Busyness { backlog_alert: 10, backlog_step: 3, backlog_nonzero_s: 4, ..Busyness::default() };
    let mut busy = Busy::new(Cheaper { overload: 100, busyness, ..Cheaper::default() });
    assert_eq!([busy.second(2, 0, 10), busy.second(2, 0, 11), busy.second(5, 0, 0)], [0, 3, 0]);
    assert_eq!((0..6).map(|_| busy.second(5, 0, 1)).collect::<Vec<i32>>(), [0, 0, 0, 0, 3, 0]);
}

#[test]
fn a_burst_is_three_looks_with_all_workers_busy_and_a_connection_waiting() {
    let mut spare = regulator(Algorithm::Spare, 10, Cheaper { step: 4, ..Cheaper::default() });
    let few = workers(2, 2);
    let seen = |waiting| Seen { workers: &few, waiting, resident: 0, now_ms: 0 };
    let mut look = |at_work, waiting| spare.look_for_burst(at_work, &seen(waiting)).change;
    assert_eq!([look(true, 1), look(true, 1), look(true, 1), look(true, 1)], [0, 0, 4, 0]);
    assert_eq!([look(true, 1), look(false, 1), look(true, 1), look(true, 0), look(true, 1)], [0; 5]);
}

#[test]
fn every_algorithm_is_in_the_table_once() {
    let all = [Algorithm::Spare, Algorithm::Spare2, Algorithm::Backlog, Algorithm::Busyness, Algorithm::Manual];
    for algorithm in all {
        assert_eq!(ALGORITHMS.iter().filter(|(known, _)| *known == algorithm).count(), 1, "{algorithm:?}");
    }
}
