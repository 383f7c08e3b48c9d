//! Helpers under the real master. Each one notes when it was born, when it works, and when it ends normally.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bolide_testing::helper_tasks::NOTES;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::instance::{Instance, children};

/// A line of the notes.
#[derive(Debug, Clone, PartialEq)]
struct Note {
    generation: u32,
    number: u32,
    pid: Pid,
    what: String,
}

fn notes(instance: &Instance) -> Vec<Note> {
    let text = std::fs::read_to_string(instance.directory.join(NOTES)).unwrap_or_default();
    let note = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| words[place].parse().expect("a number");
        Note { generation: number(0), number: number(1), pid: Pid::from_raw(number(2) as i32), what: words[3].to_owned() }
    };
    text.lines().map(note).collect()
}

/// Waits until this many helpers of a generation have noted this. Returns their pids in the order of their numbers.
fn wait_for(instance: &Instance, what: &str, generation: u32, count: usize) -> Vec<Pid> {
    instance.wait(&format!("{count} helpers of generation {generation}: {what}"), || {
        let mut found = notes(instance);
        found.retain(|note| note.generation == generation && note.what == what);
        found.sort_by_key(|note| note.number);
        (found.len() >= count).then(|| found.into_iter().map(|note| note.pid).collect())
    })
}

/// Asserts that at any time only helpers of one generation were alive, and no two with the same number. Helpers that were killed
/// have noted no end: they are in `killed`.
fn assert_never_two(instance: &Instance, killed: &[Pid]) {
    let mut alive: Vec<Note> = Vec::new();
    for note in notes(instance) {
        alive.retain(|other| !killed.contains(&other.pid));
        match note.what.as_str() {
            "born" => {
                let is_apart = |other: &Note| other.generation == note.generation && other.number != note.number;
                assert!(alive.iter().all(is_apart), "{note:?} beside {alive:?}\n{}", instance.log());
                alive.push(note);
            }
            "ends" => alive.retain(|other| other.pid != note.pid),
            _ => {}
        }
    }
}

fn is_alive(pid: Pid) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

fn options(helpers: &str) -> String {
    format!("module = testing\nprocesses = 2\nenv = TEST_HELPERS={helpers}")
}

#[test]
fn helpers_work_beside_the_workers_and_end_with_the_instance() {
    for more in ["", "\nlazy-apps = true"] {
        let mut instance = Instance::of_file(&(options("idle,slow") + more));
        let helpers = wait_for(&instance, "works", 1, 2);
        assert_eq!(instance.get("/echo"), "GET /echo\n");
        let all = children(instance.prototype());
        assert!(all.len() == 4 && helpers.iter().all(|helper| all.contains(helper)), "{all:?} {helpers:?}");
        assert_eq!(instance.end().code(), Some(0));
        assert_eq!(notes(&instance).iter().filter(|note| note.what == "ends").count(), 2);
    }
}

#[test]
fn an_instance_without_helpers_has_workers_alone() {
    let instance = Instance::of_file(&options(""));
    assert_eq!(children(instance.prototype()).len(), 2);
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_helper_that_dies_comes_again_and_one_that_is_told_to_end_by_a_signal_too() {
    let instance = Instance::of_file(&options("slow"));
    let first = wait_for(&instance, "works", 1, 1)[0];
    kill(first, Signal::SIGKILL).expect("it lives");
    let second = wait_for(&instance, "works", 1, 2)[1];
    instance.wait_for_log(&format!("helper 1 (pid {first}) was killed by SIGKILL"));
    kill(second, Signal::SIGTERM).expect("it lives");
    let third = wait_for(&instance, "works", 1, 3)[2];
    assert_eq!(wait_for(&instance, "ends", 1, 1), [second]);
    instance.wait_for_log(&format!("helper 1 (pid {second}) got SIGTERM"));
    assert!(is_alive(third) && !instance.log().contains(&format!("helper 1 (pid {second}) was")), "{}", instance.log());
    assert_never_two(&instance, &[first]);
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_helper_that_fails_early_is_forked_again_after_a_pause_and_workers_serve_meanwhile() {
    let instance = Instance::of_file(&options("broken"));
    wait_for(&instance, "born", 1, 3);
    for pause in ["100 ms", "200 ms"] {
        instance.wait_for_log(&format!("exited with status 1 soon after startup; next attempt in {pause}"));
    }
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    instance.signal(Signal::SIGHUP);
    instance.wait_for_log("ready: 2 workers of generation 2");
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn two_generations_of_a_helper_never_run_at_once_and_reloads_under_load_lose_nothing() {
    let instance = Instance::of_file(&options("slow,idle"));
    let ends = AtomicBool::new(false);
    wait_for(&instance, "works", 1, 2);
    std::thread::scope(|scope| {
        let clients = [0; 3].map(|_| {
            scope.spawn(|| {
                let mut count = 0;
                while !ends.load(Relaxed) {
                    assert_eq!(instance.get("/echo"), "GET /echo\n");
                    count += 1;
                }
                count
            })
        });
        for generation in 2..=4 {
            instance.signal(Signal::SIGHUP);
            instance.wait_for_log(&format!("ready: 2 workers of generation {generation}"));
            wait_for(&instance, "works", generation, 2);
        }
        ends.store(true, Relaxed);
        assert!(clients.into_iter().all(|client| client.join().expect("every request is answered") > 0));
    });
    assert_eq!(notes(&instance).iter().filter(|note| note.what == "ends").count(), 6);
    assert_never_two(&instance, &[]);
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_reload_brings_other_helpers() {
    let instance = Instance::of_file(&options("idle"));
    wait_for(&instance, "works", 1, 1);
    for (generation, helpers) in [(2, "idle,slow,idle"), (3, "slow"), (4, "")] {
        instance.rewrite_file(&options(helpers));
        instance.signal(Signal::SIGHUP);
        instance.wait_for_log(&format!("ready: 2 workers of generation {generation}"));
        wait_for(&instance, "works", generation, helpers.split(',').filter(|helper| !helper.is_empty()).count());
    }
    wait_for(&instance, "ends", 3, 1);
    assert_never_two(&instance, &[]);
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_reload_that_fails_leaves_the_helpers_as_they_are() {
    let instance = Instance::of_file(&options("idle"));
    let helper = wait_for(&instance, "works", 1, 1)[0];
    instance.rewrite_file(&options("idle").replace("testing", "absent"));
    instance.signal(Signal::SIGHUP);
    instance.wait_for_log("generation 1 keeps serving");
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    assert!(is_alive(helper));
    instance.rewrite_file(&options("idle"));
    instance.signal(Signal::SIGHUP);
    wait_for(&instance, "works", 3, 1);
    assert_eq!(wait_for(&instance, "ends", 1, 1), [helper]);
    let born: Vec<u32> = notes(&instance).iter().filter(|note| note.what == "born").map(|note| note.generation).collect();
    assert_eq!(born, [1, 3]);
    assert_never_two(&instance, &[]);
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_helper_that_does_not_end_is_killed_when_its_mercy_is_over() {
    let mut instance = Instance::of_file(&(options("stubborn") + "\nreload-mercy = 1"));
    let first = wait_for(&instance, "works", 1, 1)[0];
    instance.signal(Signal::SIGHUP);
    instance.wait_for_log("ready: 2 workers of generation 2");
    let second = wait_for(&instance, "works", 2, 1)[0];
    let killed = |pid: Pid| format!("helper 1 (pid {pid}) did not finish within 1 s (reload-mercy): killing it");
    assert!(instance.log().contains(&killed(first)) && !is_alive(first), "{}", instance.log());
    instance.signal(Signal::SIGTERM);
    assert_eq!(instance.wait_for_end().code(), Some(0));
    assert!(instance.log().contains(&killed(second)), "{}", instance.log());
}

#[test]
fn a_helper_that_never_gets_ready_holds_no_reload_back() {
    let instance = Instance::of_file(&options("unready,idle"));
    let first = wait_for(&instance, "born", 1, 2)[0];
    wait_for(&instance, "works", 1, 1);
    instance.signal(Signal::SIGHUP);
    instance.wait_for_log("ready: 2 workers of generation 2");
    wait_for(&instance, "born", 2, 2);
    assert!(!is_alive(first));
    assert_never_two(&instance, &[first]);
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn helpers_outlive_their_prototype_until_the_next_generation_serves() {
    let instance = Instance::of_file(&options("slow"));
    wait_for(&instance, "works", 1, 1);
    kill(instance.prototype(), Signal::SIGKILL).expect("it lives");
    wait_for(&instance, "works", 2, 1);
    assert_eq!(wait_for(&instance, "ends", 1, 1).len(), 1);
    assert_never_two(&instance, &[]);
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_pause_and_a_status_leave_helpers_alone_and_statistics_do_not_count_them() {
    let directory = "stats = stats.sock\n";
    let instance = Instance::of_file(&(directory.to_owned() + &options("idle")));
    let first = wait_for(&instance, "works", 1, 1)[0];
    instance.signal(Signal::SIGTSTP);
    instance.wait_for_log("paused (SIGTSTP)");
    kill(first, Signal::SIGKILL).expect("it lives");
    let second = wait_for(&instance, "works", 1, 2)[1];
    instance.signal(Signal::SIGTSTP);
    instance.wait_for_log("resumed (SIGTSTP)");
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    instance.signal(Signal::SIGUSR1);
    instance.wait_for_log(&format!("status: helper 1 (pid {second}): Serving"));
    let mut numbers = String::new();
    let mut stats = std::os::unix::net::UnixStream::connect(instance.directory.join("stats.sock")).expect("connected");
    std::io::Read::read_to_string(&mut stats, &mut numbers).expect("read");
    assert!(!numbers.contains(&format!("\"pid\":{second}")), "{numbers}");
    assert_eq!(numbers.matches("\"id\":1,").count(), 1, "{numbers}");
    assert!(!instance.log().contains("helper 1 received the order"), "{}", instance.log());
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn with_stop_first_the_helpers_end_with_their_generation() {
    let instance = Instance::of_file(&(options("slow") + "\nreload-order = stop-first"));
    wait_for(&instance, "works", 1, 1);
    instance.signal(Signal::SIGHUP);
    wait_for(&instance, "works", 2, 1);
    wait_for(&instance, "ends", 1, 1);
    assert_never_two(&instance, &[]);
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn at_an_upgrade_the_new_masters_helpers_wait_for_the_end_of_the_old_ones() {
    let mut instance = Instance::of_file(&options("slow"));
    let first = wait_for(&instance, "works", 1, 1)[0];
    assert!(instance.command("upgrade"), "{}", instance.log());
    assert_eq!(instance.wait_for_end().code(), Some(0));
    // The new master counts its generations from 1 as well.
    let second = wait_for(&instance, "works", 1, 2)[1];
    let all = notes(&instance);
    let place = |pid: Pid, what: &str| all.iter().position(|note| note.pid == pid && note.what == what);
    assert!(place(first, "ends").expect("in order") < place(second, "born").expect("noted"), "{all:?}\n{}", instance.log());
    let text = instance.log();
    let master = text.split("master pid ").last().and_then(|rest| rest.split_whitespace().next()).expect("told");
    kill(Pid::from_raw(master.parse().expect("a pid")), Signal::SIGTERM).expect("it lives");
    wait_for(&instance, "ends", 1, 2);
    instance.wait_for_log("stopped after");
}

#[test]
fn a_canary_has_no_helpers_beside_it_but_those_of_the_generation_in_service() {
    let instance = Instance::of_file(&(options("slow") + "\nreload-canary = 1"));
    wait_for(&instance, "works", 1, 1);
    instance.signal(Signal::SIGHUP);
    instance.wait_for_log("(reload-canary)");
    // Workers take turns with requests, whatever turn a helper's row contains.
    (0..20).for_each(|_| assert_eq!(instance.get("/echo"), "GET /echo\n"));
    assert!(notes(&instance).iter().all(|note| note.generation == 1));
    instance.wait_for_log("ready: 2 workers of generation 2");
    wait_for(&instance, "works", 2, 1);
    assert_never_two(&instance, &[]);
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn no_helper_outlives_a_master_that_is_killed() {
    let mut instance = Instance::of_file(&options("idle,stubborn,unready"));
    wait_for(&instance, "works", 1, 2);
    let helpers = wait_for(&instance, "born", 1, 3);
    instance.master.kill().expect("it lives");
    instance.master.wait().expect("ours");
    instance.wait("the end of all", || (!helpers.iter().any(|helper| is_alive(*helper))).then_some(()));
}
