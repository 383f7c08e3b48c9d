//! The test language under the real master: prototype, workers, their ends and their replacements, without any interpreter.

mod helpers;
mod instance;

use std::io::{BufRead, BufReader, Write};

use bolide_contract::message::EXIT_LOAD_FAILED;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkfifo};

use crate::instance::{Instance, children, only};

#[test]
fn a_prototype_without_an_interpreter_loads_once_and_its_workers_serve() {
    for options in [
        &["--module", "testing", "--processes", "2"][..],
        &["--module", "testing"],
        &["--module", "testing", "--processes", "2", "--lazy-apps"],
    ] {
        let instance = Instance::ready(options);
        for _ in 0..5 {
            assert_eq!(instance.get("/echo"), "GET /echo\n");
        }
        assert!(instance.get("/stream/3/40000").len() >= 120_000);
        assert_eq!(children(instance.prototype()).len(), if options.len() > 2 { 2 } else { 1 });
        assert_eq!(instance.stop().code(), Some(0));
    }
}

#[test]
fn an_application_that_can_not_be_loaded_ends_the_start_and_says_why() {
    for options in [&["--module", "absent", "--master"][..], &["--module", "absent"]] {
        let mut instance = Instance::start(options);
        assert_eq!(instance.wait_for_end().code(), Some(EXIT_LOAD_FAILED), "{}", instance.log());
        assert!(instance.log().contains("the test language has no application"), "{}", instance.log());
    }
}

#[test]
fn a_worker_that_dies_is_replaced_from_the_prototype_and_its_status_is_told() {
    let instance = Instance::ready(&["--module", "testing", "--processes", "2"]);
    let prototype = instance.prototype();
    let before = children(prototype);
    kill(before[0], Signal::SIGKILL).expect("it lives");
    instance.wait("its replacement", || {
        let after = children(prototype);
        (after.len() == 2 && !after.contains(&before[0])).then_some(())
    });
    instance.wait_for_log("SIGKILL");
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_prototype_that_dies_is_replaced_and_no_request_is_lost() {
    let instance = Instance::ready(&["--module", "testing", "--processes", "2"]);
    let before = instance.prototype();
    kill(before, Signal::SIGKILL).expect("it lives");
    let new = || children(instance.pid()).into_iter().find(|child| *child != before && children(*child).len() == 2);
    instance.wait("a new prototype with its workers", || {
        assert_eq!(instance.get("/echo"), "GET /echo\n");
        new()
    });
    assert_eq!(instance.stop().code(), Some(0));
}

/// Workers are to be forked from one that has answered a request.
const REFORK: [&str; 8] = ["--module", "testing", "--processes", "2", "--refork-after", "1", "--reload-mercy", "10"];

#[test]
fn a_worker_that_has_served_becomes_the_prototype_and_the_former_one_exits() {
    let instance = Instance::ready(&REFORK);
    let former = instance.prototype();
    let workers = children(former);
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    let prototype = instance.wait("another prototype alone", || only(&children(instance.pid())).filter(|found| *found != former));
    assert!(!workers.contains(&prototype));
    let after = children(prototype);
    assert!(after.len() == 2 && !after.iter().any(|worker| workers.contains(worker)), "{after:?}\n{}", instance.log());
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_worker_that_refuses_is_replaced_and_says_why() {
    let instance = Instance::ready(&REFORK);
    std::fs::write(instance.directory.join("held"), "1 thread (ticker)").expect("written");
    let former = instance.prototype();
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    instance.wait_for_log("refork-after: the other workers can't be forked from this one: 1 thread (ticker)");
    instance.wait("the replacement", || (children(former).len() == 2).then_some(()));
    assert_eq!(instance.prototype(), former);
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_reload_answers_what_is_in_a_call_of_the_old_generation() {
    let instance = Instance::ready(&["--module", "testing", "--processes", "2", "--threads", "2"]);
    let gate = instance.directory.join("gate");
    mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let mut slow = instance.connect();
    slow.write_all(b"GET /slow/gate HTTP/1.0\r\n\r\n").expect("sent");
    let before = instance.prototype();
    // Opening the pipe waits until the application opens it: it is in the call then.
    let opened = std::thread::spawn(move || std::fs::File::options().write(true).open(gate));
    let opened = opened.join().expect("no panic").expect("opened");
    kill(instance.pid(), Signal::SIGHUP).expect("it lives");
    instance.wait("the new generation", || children(instance.pid()).into_iter().find(|child| *child != before));
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    drop(opened);
    let answer = BufReader::new(slow).lines().last().expect("an answer").expect("text");
    assert_eq!(answer, "GET /slow/gate");
    instance.wait("the end of the old generation", || only(&children(instance.pid())).filter(|left| *left != before));
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn nothing_outlives_a_master_that_is_killed() {
    let mut instance = Instance::ready(&["--module", "testing", "--processes", "2"]);
    let prototype = instance.prototype();
    let all = [vec![prototype], children(prototype)].concat();
    instance.master.kill().expect("it lives");
    instance.master.wait().expect("ours");
    instance.wait("the end of all", || {
        // They have no parent now, or another process has to reap them: an ended process has no program.
        let lives = |pid: &Pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        (!all.iter().any(lives)).then_some(())
    });
}
