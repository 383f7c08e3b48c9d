//! The master's promises, tested with a real master and a fake prototype: start, deaths, pauses, recycling, harakiri, stop.
//! Reloads and orphans are in `reloads.rs`. The test process runs it.

use std::os::unix::process::ExitStatusExt;

use crate::support::{Answer, Instance, listening_inode, listening_inodes, lives, parse, read_line};
use nix::sys::signal::Signal;

const SERVE: &str = r#"{"all": {}}"#;

#[test]
fn test_start_says_first_what_to_open_and_then_when_it_is_ready() {
    let instance = Instance::start(SERVE, &["--processes", "2"]);
    instance.wait_log("ready: 2 workers in ");
    let log = instance.log();
    assert!(log.contains("\nbolide: listening on http://127.0.0.1:"), "{log}");
    assert!(log.contains(&format!("master pid {}", instance.pid())), "{log}");
    assert!(log.contains("2 workers × 1 thread\n"), "{log}");
    let answers = [instance.ask_worker(1), instance.ask_worker(2)];
    assert_ne!(answers[0].pid, answers[1].pid);
}

#[test]
fn test_worker_that_dies_is_replaced_and_the_log_says_pid_cause_and_request() {
    let instance = Instance::start(SERVE, &[]);
    instance.wait_log("ready: 1 worker");
    let first = instance.ask("begin GET /x?a=1").expect("an answer");
    assert_eq!(instance.ask("signal 11"), None);
    let second = instance.ask_worker(1);
    assert_ne!(first.pid, second.pid);
    let log = instance.log();
    assert!(log.contains(&format!("worker 1 (pid {}) was killed by SIGSEGV", first.pid)), "{log}");
    assert!(log.contains(" while it served GET /x?a=… (for "), "{log}");
    // The row was cleared: the next worker's death does not report the previous worker's request.
    assert_eq!(instance.ask("exit 3"), None);
    instance.wait_log(&format!("worker 1 (pid {}) exited with status 3", second.pid));
    let line = instance.log().lines().find(|line| line.contains("status 3")).map(str::to_owned);
    assert!(line.is_some_and(|line| !line.contains("GET /x")));
}

#[test]
fn test_pauses_after_early_failures_grow_and_end_when_a_worker_lives() {
    // With a master, the application is loaded before: a worker's end is then not a reason to abandon startup.
    let instance = Instance::start(r#"{"all": {"worker": "die"}}"#, &["--master"]);
    for pause in ["100 ms", "200 ms", "400 ms", "800 ms"] {
        instance.wait_log(&format!("exited with status 3 before its first request; next attempt in {pause}"));
    }
    instance.order(SERVE);
    instance.wait_log("ready: 1 worker");
}

#[test]
fn test_application_that_can_not_be_loaded_ends_the_start_with_status_22_and_says_so_last() {
    for load in ["fail", "exit", "crash"] {
        let mut instance = Instance::start(&format!(r#"{{"all": {{"load": "{load}"}}}}"#), &[]);
        assert_eq!(instance.end().code(), Some(22), "{load}");
        let last = instance.last_line();
        assert!(last.starts_with("bolide: the application could not be loaded: "), "{load}: {last}");
        assert!(last.contains("nothing is served"), "{load}: {last}");
    }
}

#[test]
fn test_last_line_of_a_start_that_fails_has_the_reason_of_the_failed_load() {
    let mut instance = Instance::start(r#"{"all": {"load": "explain"}}"#, &[]);
    assert_eq!(instance.end().code(), Some(22));
    let last = instance.last_line();
    assert_eq!(last, "bolide: the application could not be loaded: ImportError: no module named fake; nothing is served");
}

#[test]
fn test_worker_that_can_not_load_its_application_ends_the_start_with_status_22() {
    let mut instance = Instance::start(r#"{"all": {"worker": "unloadable"}}"#, &["--lazy-apps", "--processes", "2"]);
    assert_eq!(instance.end().code(), Some(22));
    assert!(instance.last_line().contains("could not be loaded"), "{}", instance.log());
}

#[test]
fn test_worn_workers_are_replaced_one_at_a_time_and_only_after_the_replacement_serves() {
    let instance = Instance::start(SERVE, &["--processes", "2"]);
    instance.wait_log("ready: 2 workers");
    let held = instance.request("hold GET /long").expect("connected");
    let first = parse(&read_line(&held).expect("an answer")).expect("numbers");
    let other = 3 - first.number;
    let second = instance.ask_worker(other);
    // Once, because its replacement has the same number. The first one is busy until the test releases it.
    let wear = |worker: Answer| {
        let order = format!("worn {}", worker.number);
        instance.wait("it has heard that it is worn", || instance.ask(&order).filter(|answer| answer.pid == worker.pid));
    };
    wear(first);
    instance.wait_event(&format!("told {} 1 3", first.number));
    wear(second);
    instance.wait("the other one is worn", || {
        instance.signal(Signal::SIGUSR1);
        instance.log().contains(&format!("status: worker {other} (pid {}): Worn", second.pid)).then_some(())
    });
    let events = instance.events();
    let replaced = events.iter().rposition(|event| *event == format!("serving {} 1", first.number)).expect("a replacement");
    let told = events.iter().position(|event| *event == format!("told {} 1 3", first.number)).expect("told");
    assert!(replaced < told, "{events:?}");
    // While the first one finishes its request, the second one waits for its turn.
    assert!(lives(first.pid) && lives(second.pid));
    assert_eq!(instance.count_events(&format!("serving {other} 1")), 1, "{events:?}");
    drop(held);
    instance.wait("the second one's turn", || (!lives(second.pid)).then_some(()));
    assert!(!lives(first.pid));
    assert!(!instance.log().contains("exited with"), "an ordered end is not news: {}", instance.log());
}

#[test]
fn test_workers_past_their_lifetime_are_replaced() {
    let instance = Instance::start(SERVE, &["--max-worker-lifetime", "1"]);
    instance.wait("three lives", || (instance.count_events("serving 1 1") >= 3).then_some(()));
    instance.wait("two ends", || (instance.count_events("drained 1 1") >= 2).then_some(()));
}

#[test]
fn test_request_over_harakiri_is_logged_with_its_stack_and_killed_with_its_worker() {
    let instance = Instance::start(SERVE, &["--harakiri", "1"]);
    instance.wait_log("ready: 1 worker");
    let victim = instance.ask("who").expect("an answer");
    let _held = instance.request("hold GET /slow").expect("connected");
    instance.wait("another worker", || instance.ask("who").filter(|answer| answer.pid != victim.pid));
    let log = instance.log();
    assert!(log.contains(&format!("harakiri: worker 1 (pid {}) serves GET /slow (for ", victim.pid)), "{log}");
    assert!(log.contains("the limit is 1 s; its Python stack:"), "{log}");
    assert!(log.contains(&format!("harakiri: killing worker 1 (pid {}) while it serves GET /slow", victim.pid)), "{log}");
    assert!(!log.contains("next attempt"), "a harakiri is not a death at birth: {log}");
}

#[test]
fn test_worker_with_a_request_over_harakiri_is_asked_for_its_stack_once() {
    // A signal without an effect precedes the kill, so that the worker has the time to respond.
    let graceful = ["--harakiri", "1", "--harakiri-graceful-timeout", "600", "--harakiri-graceful-signal", "28"];
    let instance = Instance::start(SERVE, &graceful);
    instance.wait_log("ready: 1 worker");
    let held = instance.request("hold GET /slow").expect("connected");
    assert!(read_line(&held).is_some());
    instance.wait_event("stack 1");
    instance.wait_log("SIGWINCH");
    drop(held);
    let worker = instance.ask("who").expect("an answer");
    assert_eq!(instance.count_events("stack 1"), 1);
    assert!(lives(worker.pid) && !instance.log().contains("killing worker"), "{}", instance.log());
}

#[test]
fn test_graceful_stop_finishes_requests_in_flight_and_removes_files() {
    let options = ["--uwsgi-socket", "{directory}/app.sock", "--pidfile", "{directory}/app.pid", "--processes", "2"];
    let mut instance = Instance::start(SERVE, &options);
    instance.wait_log("ready: 2 workers");
    let pidfile = instance.directory().join("app.pid");
    assert_eq!(std::fs::read_to_string(&pidfile).expect("a pidfile").trim(), instance.pid().to_string());
    let held = instance.request("hold GET /last").expect("connected");
    let busy = parse(&read_line(&held).expect("an answer")).expect("numbers");
    instance.signal(Signal::SIGTERM);
    // Order 4 is `Stop`: workers close idle connections.
    instance.wait_event(&format!("told {} 1 4", busy.number));
    instance.wait_event("retired 1");
    instance.wait_event(&format!("drained {} 1", 3 - busy.number));
    assert!(lives(busy.pid) && lives(instance.pid().as_raw()));
    drop(held);
    assert_eq!(instance.end().code(), Some(0));
    assert!(!lives(busy.pid));
    assert!(!pidfile.exists() && !instance.directory().join("app.sock").exists());
}

#[test]
fn test_second_signal_and_sigquit_stop_at_once() {
    for signals in [&[Signal::SIGTERM, Signal::SIGINT][..], &[Signal::SIGQUIT]] {
        let mut instance = Instance::start(SERVE, &[]);
        instance.wait_log("ready: 1 worker");
        let held = instance.request("hold GET /last").expect("connected");
        let busy = parse(&read_line(&held).expect("an answer")).expect("numbers");
        for signal in signals {
            // Two signals within a moment are one request: the second is sent until it counts.
            instance.wait("the signal to count", || {
                instance.signal(*signal);
                let counts = if *signal == Signal::SIGTERM { "bolide: stop: " } else { "stopping immediately" };
                instance.log().contains(counts).then_some(())
            });
        }
        assert_eq!(instance.end().code(), Some(0));
        assert!(!lives(busy.pid));
        let log = instance.log();
        assert!(log.contains(&format!("killing worker 1 (pid {}) while it serves GET /last", busy.pid)), "{log}");
    }
}

#[test]
fn test_stop_kills_workers_that_do_not_finish_within_the_mercy_and_names_them() {
    let mut instance = Instance::start(r#"{"all": {"worker": "deaf"}}"#, &["--reload-mercy", "1"]);
    instance.wait_log("ready: 1 worker");
    let worker = instance.ask("begin GET /endless").expect("an answer");
    instance.signal(Signal::SIGINT);
    assert_eq!(instance.end().code(), Some(0));
    let log = instance.log();
    let expected = format!(
        "worker 1 (pid {}) did not finish within 1 s (reload-mercy): killing it while it serves GET /endless",
        worker.pid
    );
    assert!(log.contains(&expected), "{log}");
}

#[test]
fn test_stop_while_the_application_loads_ends_soon_with_status_0() {
    let mut instance = Instance::start(r#"{"all": {"load": "hang"}}"#, &[]);
    instance.wait_event("load 1 hang");
    instance.signal(Signal::SIGTERM);
    assert_eq!(instance.end().code(), Some(0));
    assert!(!instance.log().contains("could not be loaded"), "{}", instance.log());
}

#[test]
fn test_killed_master_leaves_no_process_and_no_port() {
    let identities: &[&[&str]] = if nix::unistd::geteuid().is_root() { &[&[], &["--uid", "nobody"]] } else { &[&[]] };
    for identity in identities {
        let mut instance = Instance::start(SERVE, &[&["--processes", "2"], *identity].concat());
        instance.wait_log("ready: 2 workers");
        let workers = [instance.ask_worker(1), instance.ask_worker(2)];
        let inode = listening_inode(&instance.address()).expect("it listens");
        instance.signal(Signal::SIGKILL);
        assert_eq!(instance.end().signal(), Some(9));
        instance.wait("every process is gone", || {
            (!lives(workers[0].parent) && workers.iter().all(|worker| !lives(worker.pid))).then_some(())
        });
        // By the socket's inode, because another process may have the port by now.
        instance.wait("no process listens", || (!listening_inodes().contains(&inode)).then_some(()));
    }
}

#[test]
fn test_children_have_their_own_group_and_identity_and_environment_and_inherit_nothing_else() {
    let root = nix::unistd::geteuid().is_root();
    let options = ["--chdir", "{directory}", "--env", "FAKE_VALUE=set", "--uid", "nobody"];
    let instance = Instance::start(SERVE, if root { &options } else { &options[..4] });
    let uid = match root {
        true => nix::unistd::User::from_name("nobody").expect("looked up").expect("nobody").uid,
        false => nix::unistd::geteuid(),
    };
    instance.wait_log("ready: 1 worker");
    let prototype = instance.ask("who").expect("an answer").parent;
    let expected = format!("{} {prototype} {uid} set", instance.directory().display());
    assert_eq!(instance.text("environment"), Some(expected));
    // The listener, the order socket, both ends of the connection queue, the connection and the wake-up pair of the fake
    // prototype; boot file, scoreboard, the memory of lock 0, the count of lost lines, and the file for the reason of
    // a failure.
    let descriptors = instance.text("descriptors");
    assert_eq!(descriptors.as_deref(), Some("socket: 7 /memfd: 5"));
    // Nothing of the first generation leaks into the second.
    instance.signal(Signal::SIGHUP);
    instance.wait("the next generation", || instance.ask("who").filter(|answer| answer.generation == 2));
    assert_eq!(instance.text("descriptors"), descriptors);
    assert!(!instance.log().contains("runs as root"));
}

#[test]
fn test_worker_that_closes_its_order_socket_is_killed_and_replaced() {
    let instance = Instance::start(SERVE, &[]);
    instance.wait_log("ready: 1 worker");
    let worker = instance.ask("who").expect("an answer");
    // The fake worker exits by itself when its order socket closes, unless a request is in flight.
    let held = instance.request("hold GET /held").expect("connected");
    assert!(read_line(&held).is_some());
    instance.ask("close");
    instance.wait_log(&format!("worker 1 (pid {}) can no longer be reached: killing it while it serves GET /held", worker.pid));
    instance.wait("another worker", || instance.ask("who").filter(|answer| answer.pid != worker.pid));
}

#[test]
fn test_worker_can_not_choose_which_process_the_master_kills() {
    let mut instance = Instance::start(r#"{"all": {"worker": "liar"}}"#, &["--reload-mercy", "1"]);
    // Its prototype also reports the true pid, in an order that the test does not control: the false one is rejected either way.
    instance.wait_event("serving 1 1");
    instance.wait_log("the report is ignored");
    assert!(!instance.log().contains("ready:"));
    instance.signal(Signal::SIGTERM);
    assert_eq!(instance.end().code(), Some(0));
}

#[test]
fn test_failed_start_says_why_in_its_last_line_and_leaves_nothing() {
    let cases: [(&str, &[&str]); 4] = [
        ("/nonexistent/app.pid can't be written", &["--pidfile", "/nonexistent/app.pid"]),
        ("/nonexistent/app.log (logto) can't be written", &["--logto", "/nonexistent/app.log"]),
        ("no user is called `no-such-user`", &["--uid", "no-such-user"]),
        (
            "192.0.2.1 is not an address of this machine",
            &["--uwsgi-socket", "{directory}/app.sock", "--http-socket", "192.0.2.1:0"],
        ),
    ];
    for (expected, options) in cases {
        let mut instance = Instance::start(SERVE, options);
        assert_eq!(instance.end().code(), Some(1), "{expected}");
        let last = instance.last_line();
        assert!(last.starts_with("bolide: not started: ") && last.contains(expected), "{last}");
        assert!(!instance.directory().join("app.sock").exists());
        assert!(instance.events().is_empty());
    }
}

#[test]
fn test_logto_gets_all_lines_and_a_failed_start_still_reports_to_the_terminal() {
    let mut instance = Instance::start(r#"{"all": {"load": "fail"}}"#, &["--logto", "{directory}/app.log"]);
    assert_eq!(instance.end().code(), Some(22));
    let file = std::fs::read_to_string(instance.directory().join("app.log")).expect("a log file");
    assert!(
        crate::support::without_time(&file).starts_with("bolide: version ") && file.contains("Traceback: no such application"),
        "{file}"
    );
    assert!(file.trim_end().ends_with("nothing is served"), "{file}");
    assert!(
        instance.log().contains("could not be loaded") && !instance.log().contains("listening on http"),
        "{}",
        instance.log()
    );
}

#[test]
fn test_wrong_option_is_an_error_and_nothing_is_started() {
    let mut refused = Instance::start(SERVE, &["--processes", "many"]);
    assert_eq!(refused.end().code(), Some(1));
    assert!(refused.last_line().contains("processes"), "{}", refused.log());
}

#[test]
fn test_auto_procname_names_the_master() {
    let instance = Instance::start(SERVE, &["--auto-procname", "--procname-prefix", "a "]);
    instance.wait_log("ready: 1 worker");
    let name = std::fs::read_to_string(format!("/proc/{}/comm", instance.pid())).expect("a name");
    // The kernel keeps 15 bytes.
    assert_eq!(name, "a bolide master\n");
}

#[test]
fn test_many_workers_are_forked_and_ended_without_a_loss() {
    let mut instance = Instance::start(SERVE, &["--processes", "30"]);
    instance.wait_log("ready: 30 workers");
    assert_eq!(instance.count_events("serving "), 30);
    instance.signal(Signal::SIGTERM);
    assert_eq!(instance.end().code(), Some(0));
    assert_eq!(instance.count_events("drained "), 30);
    assert!(!instance.log().contains("killing"), "{}", instance.log());
}

#[test]
fn test_status_is_written_on_sigusr1() {
    let instance = Instance::start(SERVE, &[]);
    instance.wait_log("ready: 1 worker");
    let worker = instance.ask("begin GET /status").expect("an answer");
    instance.signal(Signal::SIGUSR1);
    instance.wait_log(&format!("status: the prototype of generation 1 (pid {}): Serving", worker.parent));
    instance.wait_log(&format!("status: worker 1 (pid {}): Serving, generation 1, 0 requests, GET /status (for ", worker.pid));
}
