//! The queue of jobs at a real server that is killed and comes again.

use std::time::{Duration, SystemTime};

use bolide_distributed::{Counts, JobQueue, NewJob};

use crate::support::{Server, engine, wait_until};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(30);

fn job(name: &str) -> NewJob<'_> {
    NewJob { name: name.as_bytes(), body: b"\x11body\0", priority: None, at: None }
}

/// Of the precise clock, which the server has too.
fn second() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_secs()
}

fn next(queue: &JobQueue) -> String {
    let job = queue.reserve().expect("an engine").expect("a job");
    assert_eq!(job.body, b"\x11body\0");
    String::from_utf8(job.name).expect("a text")
}

#[test]
fn jobs_leave_by_priority_and_then_in_the_order_in_which_they_came() {
    let server = Server::start();
    let queue = JobQueue::new(engine(&server.url()), "q", LONG, 3);
    for name in ["a", "b"] {
        assert_eq!(queue.add(&job(name)), Ok(true));
    }
    assert_eq!(queue.add(&NewJob { priority: Some(10), ..job("ten") }), Ok(true));
    assert_eq!(queue.add(&NewJob { priority: Some(2), ..job("two") }), Ok(true));
    assert_eq!(queue.add(&job("c")), Ok(true));
    assert_eq!(queue.add(&job("a")), Ok(false), "a job of this name is there");
    let there = JobQueue::new(engine(&server.url()), "q", LONG, 3);
    assert_eq!([next(&queue), next(&there), next(&queue), next(&there), next(&queue)], ["two", "ten", "a", "b", "c"]);
    assert_eq!(queue.reserve(), Ok(None));
    assert_eq!(queue.counts(), Ok(Counts { reserved: 5, ..Counts::default() }));
}

#[test]
fn a_job_that_is_done_is_gone_and_its_name_is_free() {
    let server = Server::start();
    let queue = JobQueue::new(engine(&server.url()), "q", LONG, 3);
    assert_eq!(queue.add(&NewJob { priority: Some(1), ..job("a") }), Ok(true));
    let reserved = queue.reserve().expect("an engine").expect("a job");
    assert_eq!(queue.done(&reserved), Ok(true));
    assert_eq!(queue.done(&reserved), Ok(false));
    assert_eq!(queue.counts(), Ok(Counts::default()));
    assert_eq!(queue.add(&job("a")), Ok(true));
    assert_eq!(server.ask("KEYS *priorities"), "*0");
}

#[test]
fn a_job_for_later_waits_for_its_time() {
    let server = Server::start();
    let queue = JobQueue::new(engine(&server.url()), "q", LONG, 3);
    let now = second();
    assert_eq!(queue.add(&NewJob { at: Some(now + 1), ..job("soon") }), Ok(true));
    assert_eq!(queue.add(&NewJob { at: Some(now + 1000), ..job("late") }), Ok(true));
    wait_until("the time of the job", || queue.reserve().expect("an engine").is_some_and(|job| job.name == b"soon"));
    assert!(second() > now);
    assert_eq!(queue.reserve(), Ok(None));
    assert_eq!(queue.counts().expect("an engine").waiting, 1);
}

#[test]
fn a_job_whose_worker_is_lost_is_given_to_another_and_the_lost_one_can_not_settle_it() {
    let server = Server::start();
    let (lost, other) = (JobQueue::new(engine(&server.url()), "q", SHORT, 9), JobQueue::new(engine(&server.url()), "q", LONG, 9));
    assert_eq!(lost.add(&job("a")), Ok(true));
    let old = lost.reserve().expect("an engine").expect("a job");
    let mut new = None;
    wait_until("the end of the reservation", || {
        new = other.reserve().expect("an engine");
        new.is_some()
    });
    let new = new.expect("a job");
    assert_eq!((new.name.as_slice(), new.lost), (b"a".as_slice(), 1));
    assert_eq!((lost.done(&old), lost.extend(&old), lost.retry(&old, SHORT)), (Ok(false), Ok(false), Ok(false)));
    assert_eq!(other.done(&new), Ok(true));
}

#[test]
fn a_reservation_that_is_extended_does_not_end() {
    let server = Server::start();
    let (short, long) = (JobQueue::new(engine(&server.url()), "q", SHORT, 9), JobQueue::new(engine(&server.url()), "q", LONG, 9));
    assert_eq!(short.add(&job("a")), Ok(true));
    let job = short.reserve().expect("an engine").expect("a job");
    assert_eq!(long.extend(&job), Ok(true));
    let later: i64 = server.ask("ZCOUNT {bolide:jobs:q}:reserved (0 +inf")[1..].parse().expect("a count");
    assert_eq!(later, 1);
    assert_eq!(long.reserve(), Ok(None));
    assert_eq!(long.done(&job), Ok(true));
}

#[test]
fn a_job_that_wishes_it_is_tried_again() {
    let server = Server::start();
    let queue = JobQueue::new(engine(&server.url()), "q", LONG, 3);
    assert_eq!(queue.add(&NewJob { priority: Some(5), ..job("a") }), Ok(true));
    for tries in 0..5 {
        let mut reserved = None;
        wait_until("the job", || {
            reserved = queue.reserve().expect("an engine");
            reserved.is_some()
        });
        let reserved = reserved.expect("a job");
        assert_eq!((reserved.tries, reserved.lost), (tries, 0));
        assert_eq!(queue.retry(&reserved, Duration::from_millis(1)), Ok(true));
    }
}

#[test]
fn a_job_that_kills_its_workers_goes_to_the_failed_ones_with_the_reason_and_may_return() {
    let server = Server::start();
    let queue = JobQueue::new(engine(&server.url()), "q", SHORT, 3);
    assert_eq!(queue.add(&job("bad")), Ok(true));
    wait_until("the failure", || {
        let _ = queue.reserve().expect("an engine");
        queue.counts().expect("an engine").failed == 1
    });
    let failed = queue.failed().expect("an engine");
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].name, b"bad");
    assert!(failed[0].reason.contains("died or did not answer 3 times"), "{failed:?}");
    assert!(failed[0].at > 1_600_000_000);
    assert_eq!(queue.retry_failed(b"none"), Ok(false));
    assert_eq!(queue.retry_failed(b"bad"), Ok(true));
    let again = queue.reserve().expect("an engine").expect("a job");
    assert_eq!(queue.fail(&again, "it can't be read"), Ok(true));
    assert_eq!(queue.failed().expect("an engine")[0].reason, "it can't be read");
    assert_eq!(queue.drop_failed(b"bad"), Ok(true));
    assert_eq!(queue.counts(), Ok(Counts::default()));
    assert_eq!(queue.add(&job("bad")), Ok(true), "its name is free");
}

#[test]
fn no_job_is_lost_and_none_is_given_twice_while_a_server_that_writes_its_log_is_killed() {
    let mut server = Server::start();
    let queue = JobQueue::new(engine(&server.url()), "q", LONG, 3);
    let mut added = Vec::new();
    for number in 0..60 {
        let name = format!("job {number:02}");
        if number % 20 == 10 {
            server.kill();
            assert!(queue.add(&job(&name)).is_err(), "the caller keeps the job");
            server.restart_after_kill();
        }
        wait_until("the engine", || queue.add(&job(&name)).is_ok());
        added.push(name);
    }
    let mut done = Vec::new();
    for _ in 0..60 {
        let reserved = queue.reserve().expect("an engine").expect("a job");
        assert_eq!(queue.done(&reserved), Ok(true));
        done.push(String::from_utf8(reserved.name).expect("a text"));
    }
    assert_eq!(done, added);
}
