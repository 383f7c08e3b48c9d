//! Measures the cost of counting a request in a rate limit: `cargo run --release --example rate_limit_speed -p bolide-memory`. It
//! prints the whole, with the precise clock that a worker reads for it, and the parts: the clock, the hash of the key, and the
//! cells. The walk of the rules and the text of the key are not in it. Run it by hand.

use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use bolide_contract::clock::precise_us;
use bolide_contract::rate::Rate;
use bolide_memory::rate_limits::cells::{Cell, Cells};
use bolide_memory::rate_limits::{CELLS, RateLimit, begin, identity};
use bolide_memory::{Identity, Mapping};
use bolide_scoreboard::keyed_hash::keyed_hash;

const REQUESTS: u32 = 5_000_000;
/// The cheapest round counts.
const ROUNDS: usize = 5;

/// A rate at which every request passes, because the time in its cell stays in the past, and one at which nearly all are refused.
const PASSING: Rate = Rate { interval_us: 0, burst: 1_000_000 };
const REFUSING: Rate = Rate { interval_us: 1_000_000, burst: 10 };

const SECRET: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
/// A client's address, and a longer key.
const KEYS: [&[u8]; 2] = [b"192.0.2.100", b"tenant-4711/6ba7b810-9dad-11d1-80b4-00c04fd430c8"];
/// Clients that ask in turn. Their cells do not fit into the caches of a core.
const CLIENTS: usize = CELLS / 2;

fn main() -> io::Result<()> {
    let identity = identity();
    for key in KEYS {
        let passing = cheapest(|| count_ns(&identity, PASSING, |_| key))?;
        let refusing = cheapest(|| count_ns(&identity, REFUSING, |_| key))?;
        println!(
            "a key of {} bytes: {passing:.1} ns for a request that passes, {refusing:.1} ns for one that is refused",
            key.len()
        );
    }
    let clients: Vec<String> = (0..CLIENTS).map(|number| format!("192.0.{}.{}", number / 256, number % 256)).collect();
    let many = cheapest(|| count_ns(&identity, PASSING, |request| clients[request as usize % CLIENTS].as_bytes()))?;
    println!("{CLIENTS} clients in turn: {many:.1} ns");
    let workers = thread::available_parallelism()?.get();
    println!("{workers} workers with the same key at the same time: {:.1} ns", cheapest(|| contended_ns(&identity, workers))?);

    let clock = cheapest(|| Ok(timed(|_| _ = black_box(precise_us()))))?;
    let hash = cheapest(|| Ok(timed(|_| _ = black_box(keyed_hash(black_box(SECRET), black_box(KEYS[0]))))))?;
    let cells: Vec<Cell> = (0..CELLS).map(|_| Cell::default()).collect();
    let now_us = precise_us();
    let table = cheapest(|| Ok(timed(|_| _ = black_box(Cells(black_box(&cells)).count(black_box(7), PASSING, now_us)))))?;
    println!("of these, the clock {clock:.1} ns, the hash of an address {hash:.1} ns, the cells {table:.1} ns");
    Ok(())
}

/// Returns the nanoseconds of a request in a table of its own.
fn count_ns<'k>(identity: &Identity, rate: Rate, key: impl Fn(u32) -> &'k [u8]) -> io::Result<f64> {
    let (mapping, _file) = Mapping::create("speed", identity)?;
    begin(&mapping, SECRET);
    let limit = RateLimit::of(&mapping);
    Ok(timed(|request| _ = black_box(limit.count(black_box(key(request)), rate, precise_us()))))
}

/// Returns the nanoseconds of a request in the slowest of several workers, each of which has a CPU.
fn contended_ns(identity: &Identity, workers: usize) -> io::Result<f64> {
    let (mapping, _file) = Mapping::create("speed", identity)?;
    begin(&mapping, SECRET);
    let limit = RateLimit::of(&mapping);
    let all_are_there = Barrier::new(workers);
    let work = || {
        all_are_there.wait();
        timed(|_| _ = black_box(limit.count(black_box(KEYS[0]), PASSING, precise_us())))
    };
    Ok(thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).fold(0.0, f64::max)
    }))
}

fn cheapest(measure: impl Fn() -> io::Result<f64>) -> io::Result<f64> {
    (0..ROUNDS).try_fold(f64::INFINITY, |least, _| Ok(least.min(measure()?)))
}

fn timed(mut body: impl FnMut(u32)) -> f64 {
    let began = Instant::now();
    for request in 0..REQUESTS {
        body(request);
    }
    began.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
}
