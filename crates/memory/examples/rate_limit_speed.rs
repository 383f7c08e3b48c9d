//! Measures what it costs to count a request: `cargo run --release --example rate_limit_speed -p bolide-memory`. The same run
//! prints the cost of its parts, the clock and the hash of the key. Run it by hand.

use std::hint::black_box;
use std::time::Instant;

use bolide_contract::clock::{now_ms, precise_us};
use bolide_contract::rate::Rate;
use bolide_memory::mapping::Mapping;
use bolide_memory::rate_limits::{RateLimit, begin, identity};
use bolide_scoreboard::keyed_hash::keyed_hash;

const ROUNDS: u32 = 50;
const CALLS: u32 = 100_000;

/// All requests of the measurement pass.
const RATE: Rate = Rate { interval_us: 1, burst: 1_000_000_000 };

fn main() {
    let identity = identity();
    let Ok((mapping, _file)) = Mapping::create("speed", &identity) else { return };
    begin(&mapping, [1, 2]);
    let limit = RateLimit::of(&mapping);
    let key = b"203.0.113.27";
    println!("the coarse clock  {:>5.1} ns", cheapest(|| _ = black_box(now_ms())));
    println!("the precise clock {:>5.1} ns", cheapest(|| _ = black_box(precise_us())));
    println!("the hash of a key {:>5.1} ns", cheapest(|| _ = black_box(keyed_hash(black_box([1, 2]), black_box(key)))));
    let now_us = precise_us();
    println!(
        "a count           {:>5.1} ns, without the clock",
        cheapest(|| _ = black_box(limit.count(black_box(key), RATE, now_us)))
    );
    println!("a count           {:>5.1} ns", cheapest(|| _ = black_box(limit.count(black_box(key), RATE, precise_us()))));
}

fn cheapest(mut body: impl FnMut()) -> f64 {
    let mut round = || {
        let began = Instant::now();
        (0..CALLS).for_each(|_| body());
        began.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}
