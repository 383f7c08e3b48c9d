//! Tests of `simulation`: what queues do, and what the settings must be for it.

use super::*;

/// Requests of one duration, of which this share is CPU time, recorded in an instance with one thread that had nothing to do.
fn constant(duration_us: u64, cpu_share: f64) -> Recorded {
    let durations = vec![(duration_us - 1, 0), (duration_us, 1000)];
    let cpu_seconds = 1000.0 * duration_us as f64 * cpu_share / 1e6;
    Recorded { seconds: 1e6, durations, cpu_seconds, delayed_seconds: Some(0.0), shape: threads(1, 1), worker_bytes: 0 }
}

fn threads(workers: u32, threads: u32) -> Shape {
    Shape { workers, threads, kind: Kind::Threads }
}

fn near(found: f64, expected: f64, percent: f64) {
    assert!((found - expected).abs() <= expected * percent / 100.0, "{found} is not {expected} within {percent} %");
}

#[test]
fn a_single_server_has_the_queue_that_the_formula_of_pollaczek_and_khinchine_gives() {
    let recorded = constant(1000, 1.0);
    let mix = Mix::of(&recorded, 1.0);
    for load in [0.3, 0.5, 0.7] {
        // M/D/1: W = S + S * load / (2 * (1 - load)).
        let expected = 1000.0 + 1000.0 * load / (2.0 * (1.0 - load));
        near(mix.play(threads(1, 1), 1.0, load * 1000.0).mean_us, expected, 6.0);
    }
}

#[test]
fn waiting_threads_serve_as_many_requests_as_there_are_threads() {
    let recorded = constant(100_000, 0.01);
    let mix = Mix::of(&recorded, 2.0);
    // One thread serves 10 a second, 20 threads 200; the CPUs could do 2,000.
    assert!(mix.play(threads(1, 1), 2.0, 15.0).is_overloaded);
    let many = mix.play(threads(2, 10), 2.0, 100.0);
    assert!(!many.is_overloaded);
    near(many.p50_us, 100_000.0, 5.0);
    assert!(mix.play(threads(2, 10), 2.0, 250.0).is_overloaded);
}

#[test]
fn threads_of_one_worker_use_one_cpu() {
    let mix = Mix::of(&constant(10_000, 1.0), 2.0);
    assert!(mix.play(threads(1, 8), 2.0, 120.0).is_overloaded);
    assert!(!mix.play(threads(2, 8), 2.0, 120.0).is_overloaded);
    // More workers than CPUs do not serve more.
    assert!(mix.play(threads(8, 1), 2.0, 230.0).is_overloaded);
}

#[test]
fn a_loop_lets_short_requests_wait_behind_long_ones_and_threads_do_not() {
    let durations = vec![(999, 0), (1000, 990), (199_999, 0), (200_000, 10)];
    let recorded = Recorded {
        seconds: 1e6,
        durations,
        cpu_seconds: 2.99,
        delayed_seconds: Some(0.0),
        shape: threads(1, 1),
        worker_bytes: 0,
    };
    let mix = Mix::of(&recorded, 4.0);
    let asked = |kind| mix.play(Shape { workers: 1, threads: 64, kind }, 4.0, 100.0).mean_us;
    assert!(asked(Kind::Loop) > 1.3 * asked(Kind::Threads));
}

#[test]
fn waits_for_each_other_are_taken_out_of_the_record() {
    // 20 threads in one worker at 80 % of a CPU: the recorded durations are those of the simulation itself.
    let alone = Mix::of(&constant(10_000, 0.8), 1.0);
    let busy = threads(1, 20);
    let seen = alone.expect(busy, 1.0, 100.0).served_mean_us;
    let recorded = Recorded {
        seconds: 10.0,
        durations: vec![((seen * 0.999) as u64, 0), ((seen * 1.001) as u64, 1000)],
        cpu_seconds: 8.0,
        delayed_seconds: Some(0.0),
        shape: busy,
        worker_bytes: 0,
    };
    assert!(seen > 15_000.0);
    near(Mix::of(&recorded, 1.0).alone_us(&recorded), 10_000.0, 12.0);
}

#[test]
fn the_same_record_always_gives_the_same_answer() {
    let mix = Mix::of(&constant(1000, 0.5), 2.0);
    assert_eq!(mix.play(threads(2, 2), 2.0, 900.0), mix.play(threads(2, 2), 2.0, 900.0));
    assert_eq!(mix.play(threads(1, 1), 1.0, 0.0).p99_us, 0.0);
}
