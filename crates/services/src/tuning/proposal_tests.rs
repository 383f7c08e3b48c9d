//! Tests of `proposal`: what queues do, and what the settings must be for it.

use super::*;

const MACHINE: Machine = Machine { cpus: 2.0, memory_bytes: 4 << 30, listen_most: 4096 };

fn recorded(rate: f64, duration_us: u64, cpu_share: f64, workers: u32, threads: u32) -> Recorded {
    let requests = 10_000;
    Recorded {
        seconds: requests as f64 / rate,
        durations: vec![(duration_us * 9 / 10, 0), (duration_us * 11 / 10, requests)],
        cpu_seconds: requests as f64 * duration_us as f64 * cpu_share / 1e6,
        delayed_seconds: Some(0.0),
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
        (with(100.0, 10_000, 0.6), 0, "of CPU, and needed"),
        (Recorded { durations: vec![(1000, 10)], ..with(100.0, 10_000, 0.5) }, 0, "only 10 requests"),
    ];
    for (after, errors, words) in cases {
        let why = judge(&before, 0, &after, errors).expect_err(words);
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn a_record_of_busy_cpus_is_refused_instead_of_taken_for_waits() {
    // 10 ms of computing, which other programs on the CPUs make 167 ms.
    let busy = Recorded { delayed_seconds: Some(10_000.0 * 0.155), ..recorded(25.0, 167_000, 10.0 / 167.0, 2, 4) };
    let why = propose(&busy, MACHINE, &present(true)).expect_err("refused");
    assert!(why.starts_with("the CPUs were busy with other programs"), "{why}");
    assert!(why.contains("took 167 ms and had no CPU for up to 155 ms of that"), "{why}");
    // The same durations without that are waits.
    let waits = propose(&recorded(25.0, 167_000, 10.0 / 167.0, 2, 4), MACHINE, &present(true)).expect("a proposal");
    assert!(waits.shape.threads > 4 && waits.notes.iter().all(|note| !note.contains("other programs")), "{waits:?}");
}

#[test]
fn some_time_without_a_cpu_is_taken_out_and_noted() {
    let delayed = Recorded { delayed_seconds: Some(10_000.0 * 0.004), ..recorded(50.0, 14_000, 2.0 / 14.0, 4, 2) };
    let mix = Mix::of(&delayed, MACHINE.cpus);
    assert!(mix.alone_us(&delayed) <= 10_200.0, "{}", mix.alone_us(&delayed));
    let proposal = propose(&delayed, MACHINE, &present(true)).expect("a proposal");
    assert!(
        proposal.notes.iter().any(|note| note.contains("up to 4.0 ms of that, which is not counted as a wait")),
        "{proposal:?}"
    );
}

#[test]
fn an_instance_that_is_busy_itself_is_not_told_of_other_programs() {
    let busy = Recorded { delayed_seconds: Some(10_000.0 * 0.01), ..recorded(180.0, 21_000, 10.0 / 21.0, 2, 4) };
    let proposal = propose(&busy, MACHINE, &present(true)).expect("a proposal");
    assert!(proposal.notes.iter().all(|note| !note.contains("other programs")), "{:?}", proposal.notes);
}

#[test]
fn a_kernel_that_does_not_count_the_time_without_a_cpu_is_a_note() {
    let unknown = Recorded { delayed_seconds: None, ..recorded(150.0, 12_000, 1.0 / 6.0, 4, 2) };
    let proposal = propose(&unknown, MACHINE, &present(true)).expect("a proposal");
    assert!(proposal.notes.iter().any(|note| note.contains("schedstat")), "{:?}", proposal.notes);
}

#[test]
fn fewer_threads_have_a_reason_of_their_own() {
    let proposal = propose(&recorded(25.0, 10_000, 0.99, 2, 4), MACHINE, &present(true)).expect("a proposal");
    let line = proposal.lines.iter().find(|line| line.option == "threads").expect("a line");
    assert_eq!(line.value, "1");
    assert!(line.reason.contains("more threads would only take turns"), "{}", line.reason);
    assert!(!line.reason.contains("other threads can use the CPU"), "{}", line.reason);
}
