//! Leases at a real server that is killed, loses its data, and is cut off.

use std::time::Duration;

use bolide_distributed::Leases;

use crate::support::{Proxy, Server, engine, wait_until};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_lease_has_one_holder_until_it_is_released_or_ends() {
    let server = Server::start();
    let (here, there) = (Leases::new(engine(&server.url())), Leases::new(engine(&server.url())));
    assert_eq!(here.is_held("l"), Ok(false));
    let mine = here.take("l", LONG).expect("an engine").expect("a lease");
    assert!(there.take("l", LONG).expect("an engine").is_none());
    assert!(there.take("other", LONG).expect("an engine").is_some(), "another name is another lease");
    assert_eq!((there.is_held("l"), mine.remaining() > Duration::from_secs(1)), (Ok(true), true));
    assert_eq!(here.release(&mine), Ok(true));
    let theirs = there.take("l", SHORT).expect("an engine").expect("a lease");
    assert_eq!(here.release(&mine), Ok(false), "a holder of before does not end the lease of the next one");
    wait_until("the end of a lease", || theirs.remaining().is_zero());
    wait_until("the next holder", || here.take("l", LONG).expect("an engine").is_some());
}

#[test]
fn a_lease_is_renewed_by_its_holder_alone() {
    let server = Server::start();
    let leases = Leases::new(engine(&server.url()));
    let mut lease = leases.take("l", SHORT).expect("an engine").expect("a lease");
    assert_eq!(leases.renew(&mut lease, LONG), Ok(true));
    assert!(lease.remaining() > SHORT);
    let mut late = leases.take("late", SHORT).expect("an engine").expect("a lease");
    wait_until("the end of a lease", || !leases.is_held("late").expect("an engine"));
    assert_eq!(leases.renew(&mut late, LONG), Ok(false));
    assert!(late.remaining().is_zero());
}

#[test]
fn tokens_grow_with_each_holder_also_over_a_server_that_has_lost_everything() {
    let mut server = Server::with(&["--appendonly", "no"]);
    let engine = engine(&server.url());
    let leases = Leases::new(engine);
    let mut last = 0;
    for round in 0..6 {
        if round == 3 {
            server.restart();
            assert_eq!(server.ask("DBSIZE"), ":0");
        }
        let mut taken = None;
        wait_until("a lease", || {
            taken = leases.take("l", LONG).ok().flatten();
            taken.is_some()
        });
        let taken = taken.expect("a lease");
        assert!(taken.token() > last, "{} after {last}", taken.token());
        last = taken.token();
        assert_eq!(leases.release(&taken), Ok(true));
    }
}

#[test]
fn a_holder_that_is_cut_off_knows_the_end_of_its_lease_and_the_next_holder_has_a_larger_token() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let far = Leases::new(engine(&format!("{}?connect-ms=2000&answer-ms=200", proxy.url())));
    let near = Leases::new(engine(&server.url()));
    let mut old = far.take("l", Duration::from_millis(500)).expect("an engine").expect("a lease");
    proxy.cut();
    assert!(far.renew(&mut old, LONG).is_err());
    let mut new = None;
    wait_until("the next holder", || {
        new = near.take("l", LONG).expect("an engine");
        new.is_some()
    });
    assert!(old.remaining().is_zero(), "the holder's clock began before the server's");
    assert!(new.expect("a lease").token() > old.token());
    proxy.heal();
    wait_until("the engine's return", || far.renew(&mut old, LONG).is_ok());
    assert_eq!(far.release(&old), Ok(false));
}
