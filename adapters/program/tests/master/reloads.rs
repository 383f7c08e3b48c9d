//! Generations of a real master with a fake prototype: reloads that work and reloads that fail, prototypes that die, and the
//! workers that they leave behind. Other promises are in `supervisor.rs`. The test process runs it.

use crate::support::{Instance, lives, parse, read_line};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SERVE: &str = r#"{"all": {}}"#;

#[test]
fn test_reload_lets_the_new_generation_serve_before_the_old_one_finishes() {
    let instance = Instance::start(SERVE, &["--processes", "2"]);
    instance.wait_log("ready: 2 workers");
    let held = instance.request("hold GET /long").expect("connected");
    let old = parse(&read_line(&held).expect("an answer")).expect("numbers");
    instance.signal(Signal::SIGHUP);
    // Every request in between is answered, by one generation or the other.
    instance.wait("the second generation", || {
        let answer = instance.ask("who").expect("no request is lost");
        (answer.generation == 2).then_some(())
    });
    // Each of the old workers: until it gets the order, it still serves clients.
    for number in [1, 2] {
        instance.wait_event(&format!("told {number} 1 3"));
    }
    let events = instance.events();
    let told = events.iter().position(|event| event.starts_with("told ")).expect("told");
    for number in [1, 2] {
        let serves = events.iter().position(|event| *event == format!("serving {number} 2")).expect("it serves");
        assert!(serves < told, "{events:?}");
    }
    // Worker numbers stay, pids don't; the old worker still finishes its request.
    assert_eq!([instance.ask_worker(1).generation, instance.ask_worker(2).generation], [2, 2]);
    assert!(lives(old.pid) && lives(old.parent));
    drop(held);
    instance.wait("the end of the first generation", || (!lives(old.pid) && !lives(old.parent)).then_some(()));
    instance.wait_log("ready: 2 workers of generation 2");
    assert!(!instance.log().contains("killing"), "{}", instance.log());
}

#[test]
fn test_reload_that_can_not_load_leaves_the_old_generation_serving() {
    for (orders, why) in [
        (r#"{"1": {}, "2": {"load": "fail"}, "3": {}}"#, "see the traceback above"),
        (r#"{"1": {}, "2": {"load": "crash"}, "3": {}}"#, "its prototype was killed by SIGSEGV"),
        (r#"{"1": {}, "2": {"worker": "unloadable"}, "3": {}}"#, "a worker could not, see above"),
        (r#"{"1": {}, "2": {"load": "explain"}, "3": {}}"#, "ImportError: no module named fake"),
        (r#"{"1": {}, "2": {"worker": "die"}, "3": {}}"#, "its workers exit before they are ready"),
    ] {
        let instance = Instance::start(orders, &[]);
        instance.wait_log("ready: 1 worker");
        let old = instance.ask("who").expect("an answer");
        instance.signal(Signal::SIGHUP);
        instance.wait_log(&format!("generation 2 could not be loaded ({why}"));
        assert!(instance.log().contains("): generation 1 keeps serving\n"), "{}", instance.log());
        assert_eq!(instance.ask("who"), Some(old));
        // Its processes are gone, and the next reload works.
        instance.signal(Signal::SIGHUP);
        instance.wait("the third generation", || instance.ask("who").filter(|answer| answer.generation == 3));
        instance.wait("the first one's end", || (!lives(old.pid) && !lives(old.parent)).then_some(()));
    }
}

#[test]
fn test_reload_lets_a_worker_finish_whose_report_that_it_serves_is_still_on_its_way() {
    let instance = Instance::start(SERVE, &[]);
    instance.wait_log("ready: 1 worker");
    instance.order(r#"{"1": {"worker": "silent"}, "all": {}}"#);
    assert_eq!(instance.text("exit 0"), None);
    instance.wait("its replacement", || (instance.count_events("serving 1 1") == 2).then_some(()));
    let held = instance.request("hold GET /long").expect("connected");
    let old = parse(&read_line(&held).expect("an answer")).expect("numbers");
    instance.signal(Signal::SIGHUP);
    instance.wait_log("ready: 1 worker of generation 2");
    instance.wait_event("told 1 1 3");
    assert!(lives(old.pid), "{}", instance.log());
    drop(held);
    instance.wait_event("drained 1 1");
    assert!(!instance.log().contains("killing"), "{}", instance.log());
}

#[test]
fn test_reload_during_a_reload_starts_it_again() {
    let instance = Instance::start(r#"{"2": {"load": "hang"}, "3": {"load": "hang"}, "all": {}}"#, &[]);
    instance.wait_log("ready: 1 worker");
    for number in 2..=4 {
        instance.signal(Signal::SIGHUP);
        instance.wait_event(&format!("load {number}"));
    }
    instance.wait_log("of generation 4 in");
    for number in 2..=3 {
        instance.wait_log(&format!("generation {number}, which is still starting, is abandoned for a new one"));
    }
    instance.signal(Signal::SIGUSR1);
    instance.wait_log("status: generation in service: 4");
    assert_eq!(instance.count_events("load 5"), 0);
}

#[test]
fn test_reload_kills_workers_that_do_not_finish_within_the_mercy() {
    let instance = Instance::start(r#"{"1": {"worker": "deaf"}, "all": {}}"#, &["--reload-mercy", "1"]);
    instance.wait_log("ready: 1 worker");
    let old = instance.ask("begin GET /endless").expect("an answer");
    instance.signal(Signal::SIGHUP);
    let line =
        format!("worker 1 (pid {}) did not finish within 1 s (reload-mercy): killing it while it serves GET /endless", old.pid);
    instance.wait_log(&line);
    instance.wait("the old prototype's end", || (!lives(old.pid) && !lives(old.parent)).then_some(()));
    assert_eq!(instance.ask("who").expect("an answer").generation, 2);
}

#[test]
fn test_killed_prototype_is_replaced_and_its_workers_serve_until_then() {
    let instance = Instance::start(r#"{"2": {"load": "hang"}, "all": {}}"#, &["--processes", "2"]);
    instance.wait_log("ready: 2 workers");
    let orphans = [instance.ask_worker(1), instance.ask_worker(2)];
    kill(Pid::from_raw(orphans[0].parent), Signal::SIGKILL).expect("it lives");
    instance.wait_log(&format!("the prototype of generation 1 (pid {}) was killed by SIGKILL", orphans[0].parent));
    instance.wait_event("load 2 hang");
    // The master is their parent now, and they serve.
    let answer = instance.ask_worker(1);
    assert_eq!((answer.pid, answer.parent), (orphans[0].pid, instance.pid().as_raw()));
    // An orphan's end is reported like any other, though no prototype can fork its replacement yet.
    kill(Pid::from_raw(orphans[1].pid), Signal::SIGABRT).expect("it lives");
    instance.wait_log(&format!("worker 2 (pid {}) was killed by SIGABRT", orphans[1].pid));
    assert_eq!(instance.ask("who").map(|answer| answer.pid), Some(orphans[0].pid));
    instance.touch("go");
    instance.wait_log("ready: 2 workers of generation 2");
    instance.wait("the last orphan's end", || (!lives(orphans[0].pid)).then_some(()));
    assert_eq!([instance.ask_worker(1).generation, instance.ask_worker(2).generation], [2, 2]);
}

#[test]
fn test_prototype_that_can_not_be_replaced_is_tried_again_with_growing_pauses() {
    let instance = Instance::start(r#"{"1": {}, "all": {"load": "fail"}}"#, &[]);
    instance.wait_log("ready: 1 worker");
    let orphan = instance.ask("who").expect("an answer");
    kill(Pid::from_raw(orphan.parent), Signal::SIGKILL).expect("it lives");
    for pause in ["200 ms", "400 ms", "800 ms"] {
        instance.wait_log(&format!("generation 1 keeps serving; next attempt in {pause}"));
    }
    assert_eq!(instance.ask("who").map(|answer| answer.pid), Some(orphan.pid));
    instance.order(SERVE);
    instance.wait("a new generation", || instance.ask("who").filter(|answer| answer.generation > 1));
}

#[test]
fn test_prototype_that_dies_during_a_reload_costs_no_request() {
    let instance = Instance::start(r#"{"2": {"load": "hang"}, "all": {}}"#, &[]);
    instance.wait_log("ready: 1 worker");
    let old = instance.ask("who").expect("an answer");
    instance.signal(Signal::SIGHUP);
    instance.wait_event("load 2 hang");
    // The old prototype dies during the reload: the reload continues, and nothing else is started.
    kill(Pid::from_raw(old.parent), Signal::SIGKILL).expect("it lives");
    instance.wait_log("the prototype of generation 1");
    assert_eq!(instance.ask("who").map(|answer| answer.pid), Some(old.pid));
    instance.touch("go");
    instance.wait("the second generation", || instance.ask("who").filter(|answer| answer.generation == 2));
    instance.wait("the orphan's end", || (!lives(old.pid)).then_some(()));
    assert_eq!(instance.count_events("load 3"), 0);
}

#[test]
fn test_stop_with_orphans_and_a_loading_prototype_ends_them_all() {
    let mut instance = Instance::start(r#"{"2": {"load": "hang"}, "all": {}}"#, &["--processes", "2"]);
    instance.wait_log("ready: 2 workers");
    let orphans = [instance.ask_worker(1), instance.ask_worker(2)];
    kill(Pid::from_raw(orphans[0].parent), Signal::SIGKILL).expect("it lives");
    instance.wait_event("load 2 hang");
    instance.signal(Signal::SIGTERM);
    assert_eq!(instance.end().code(), Some(0));
    assert!(orphans.iter().all(|orphan| !lives(orphan.pid)));
    assert_eq!(instance.count_events("drained "), 2);
}
