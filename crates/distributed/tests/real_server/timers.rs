//! Timers of several machines at a real server.

use std::collections::BTreeMap;
use std::time::Duration;

use bolide_distributed::{Claim, UniqueTimer};

use crate::support::{Server, engine, wait_until};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(30);

#[test]
fn each_period_is_fired_by_one_of_many_processes() {
    let server = Server::start();
    let url = server.url();
    let period = Duration::from_millis(50);
    let fired: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let run = || {
            let timer = UniqueTimer::new(engine(&url), "t", LONG);
            let mut fired = Vec::new();
            let mut first = None;
            wait_until("ten periods", || {
                if let Claim::Fire(firing) = timer.claim(period).expect("an engine") {
                    assert_eq!(timer.finish(&firing), Ok(true));
                    fired.push(firing.period);
                }
                first.get_or_insert_with(std::time::Instant::now).elapsed() > period * 10
            });
            fired
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut times = BTreeMap::new();
    for period in fired.into_iter().flatten() {
        *times.entry(period).or_insert(0) += 1;
    }
    assert!(times.len() >= 2, "{times:?}");
    assert!(times.values().all(|times| *times == 1), "{times:?}");
}

#[test]
fn a_period_whose_process_dies_is_fired_by_another() {
    let server = Server::start();
    let (dying, other) =
        (UniqueTimer::new(engine(&server.url()), "t", SHORT), UniqueTimer::new(engine(&server.url()), "t", LONG));
    let Claim::Fire(late) = dying.claim_named(7).expect("an engine") else { panic!("it is the first one") };
    assert_eq!(late.period, 7);
    let mut claim = Claim::Busy;
    wait_until("the end of the firing", || {
        claim = other.claim_named(7).expect("an engine");
        claim != Claim::Busy
    });
    let Claim::Fire(firing) = claim else { panic!("the timer has not fired yet") };
    assert_eq!(dying.claim_named(7), Ok(Claim::Busy));
    assert_eq!(other.finish(&firing), Ok(true));
    assert_eq!(dying.finish(&late), Ok(false), "it was too late");
    assert_eq!((dying.claim_named(7), other.claim_named(6)), (Ok(Claim::Done), Ok(Claim::Done)));
    assert!(matches!(other.claim_named(8), Ok(Claim::Fire(_))));
}

#[test]
fn a_server_that_has_lost_everything_learns_the_last_period_from_those_who_know_it() {
    let mut server = Server::with(&["--appendonly", "no"]);
    let timer = UniqueTimer::new(engine(&server.url()), "t", LONG);
    let Ok(Claim::Fire(firing)) = timer.claim_named(7) else { panic!("it is the first one") };
    assert_eq!(timer.finish(&firing), Ok(true));
    server.restart();
    let mut claim = Err(bolide_distributed::Fault::Resting);
    wait_until("the engine", || {
        claim = timer.claim_named(7);
        claim.is_ok()
    });
    assert_eq!(claim, Ok(Claim::Done));
}
