//! Tests of `proposal`: what queues do, and what the settings must be for it.

use super::*;

const MACHINE: Machine = Machine { cpus: 2.0, memory_bytes: 4 << 30, listen_most: 4096 };

fn recorded(rate: f64, duration_us: u64, cpu_share: f64, workers: u32, threads: u32) -> Recorded {
    let requests = 10_000;
    Recorded {
        seconds: requests as f64 / rate,
        durations: vec![(duration_us * 9 / 10, 0), (duration_us * 11 / 10, requests)],
        cpu_seconds: requests as f64 * duration_us as f64 * cpu_share / 1e6,
        shape: Shape { workers, threads, kind: Kind::Threads },
        worker_bytes: 60 * MEBIBYTE,
    }
}

fn present(may_use_threads: bool) -> Present {
    Present { may_use_threads, listen: 100, harakiri: None, cheaper: None, reload_on_rss: None }
}

fn value<'a>(proposal: &'a Proposal, option: &str) -> Option<&'a str> {
    proposal.lines.iter().find(|line| line.option == option).map(|line| line.value.as_str())
}

#[test]
fn views_that_wait_get_threads_and_as_many_workers_as_there_are_cpus() {
    // 12 ms, of which 10 are a wait for the database; the usual hand tuning.
    let proposal = propose(&recorded(150.0, 12_000, 1.0 / 6.0, 4, 2), MACHINE, &present(true)).expect("a proposal");
    assert_eq!(proposal.shape.workers, 2);
    assert!(proposal.shape.threads >= 6, "{proposal:?}");
    assert!(proposal.capacities[1] > 1.3 * proposal.capacities[0], "{:?}", proposal.capacities);
    assert_eq!(value(&proposal, "processes"), Some("2"));
    assert!(value(&proposal, "threads").is_some());
    let [today, twice] = proposal.comparisons;
    assert!(twice.proposed.p99_us <= twice.present.p99_us * 1.02 && today.proposed.p50_us <= today.present.p50_us * 1.02);
}

#[test]
fn views_that_compute_get_no_more_workers_than_cpus() {
    let proposal = propose(&recorded(100.0, 5_000, 1.0, 8, 1), MACHINE, &present(true)).expect("a proposal");
    assert_eq!((proposal.shape.workers, value(&proposal, "processes")), (2, Some("2")));
    assert!(proposal.shape.threads <= 4);
    assert!(proposal.lines[0].reason.contains("2 CPUs"), "{:?}", proposal.lines);
}

#[test]
fn code_for_one_thread_at_a_time_gets_workers_and_never_threads() {
    let proposal = propose(&recorded(60.0, 50_000, 0.05, 4, 1), MACHINE, &present(false)).expect("a proposal");
    assert_eq!((proposal.shape.threads, value(&proposal, "threads")), (1, None));
    assert!(proposal.shape.workers > 8);
    assert!(proposal.notes.iter().any(|note| note.contains("--threads")), "{:?}", proposal.notes);
    // The recorded load needs few of them.
    assert!(value(&proposal, "cheaper").is_some(), "{:?}", proposal.lines);
}

#[test]
fn workers_fit_the_memory_of_the_machine() {
    let small = Machine { memory_bytes: 400 * MEBIBYTE, ..MACHINE };
    let proposal = propose(&recorded(60.0, 50_000, 0.05, 4, 1), small, &present(false)).expect("a proposal");
    assert!(proposal.shape.workers <= 4, "{proposal:?}");
}

#[test]
fn limits_are_proposed_where_none_are_set_and_left_alone_where_they_are() {
    let proposal = propose(&recorded(400.0, 2_000, 0.5, 2, 4), MACHINE, &present(true)).expect("a proposal");
    assert_eq!((value(&proposal, "harakiri"), value(&proposal, "reload-on-rss")), (Some("30"), Some("128")));
    assert_eq!(value(&proposal, "listen"), Some("1024"));
    let set = Present { listen: 1024, harakiri: Some(20), reload_on_rss: Some(300), ..present(true) };
    let proposal = propose(&recorded(400.0, 2_000, 0.5, 2, 4), MACHINE, &set).expect("a proposal");
    assert!(["harakiri", "reload-on-rss", "listen"].iter().all(|option| value(&proposal, option).is_none()));
}

#[test]
fn a_limit_near_the_longest_requests_is_told() {
    let set = Present { harakiri: Some(10), ..present(true) };
    let proposal = propose(&recorded(5.0, 8_000_000, 0.01, 4, 8), MACHINE, &set).expect("a proposal");
    assert!(
        proposal.notes.iter().any(|note| note.contains("`harakiri = 10` is close to the longest requests (8.8 s)")),
        "{:?}",
        proposal.notes
    );
}

#[test]
fn a_short_record_is_no_ground_for_a_proposal() {
    let short = Recorded { durations: vec![(1000, 499)], ..recorded(1.0, 1000, 0.5, 1, 1) };
    assert!(propose(&short, MACHINE, &present(true)).expect_err("too short").contains("499 requests were recorded"));
}

#[test]
fn a_trial_is_kept_unless_something_has_become_worse() {
    let before = recorded(100.0, 10_000, 0.5, 4, 2);
    let with = |rate, duration_us, cpu_share| recorded(rate, duration_us, cpu_share, 2, 8);
    assert!(judge(&before, 0, &with(100.0, 8_000, 0.6), 0).expect("better").starts_with("p99 8.8 ms (before 11 ms)"));
    let cases = [
        (with(100.0, 12_000, 0.4), 0, "the 99th percentile"),
        (with(80.0, 10_000, 0.5), 0, "requests a second were served"),
        (with(100.0, 10_000, 0.5), 100, "1.0 % of the requests failed"),
        (with(100.0, 10_000, 0.6), 0, "of CPU, before"),
        (Recorded { durations: vec![(1000, 10)], ..with(100.0, 10_000, 0.5) }, 0, "only 10 requests"),
    ];
    for (after, errors, words) in cases {
        let why = judge(&before, 0, &after, errors).expect_err(words);
        assert!(why.contains(words), "{why}");
    }
}
