//! Measures the cost of a bulkhead's permit for a request that need not wait: `cargo run --release --example permit_speed -p
//! bolide-scoreboard`. The steps are those of a worker (`exchange/bulkheads`): look for requests that wait, take a permit, count,
//! and give it back. The match of the route and what the exchange keeps are not in it. Run it by hand.

use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use bolide_scoreboard::bulkheads::{BulkheadMemory, Holder, MAX_PERMITS};

const REQUESTS: u32 = 5_000_000;
/// The cheapest round counts.
const ROUNDS: usize = 5;

fn main() -> io::Result<()> {
    for most in [2, 64, MAX_PERMITS] {
        // All but one of the permits are taken, so a worker may look at all of them.
        for taken in [0, most - 1] {
            let memory = BulkheadMemory::attach(&BulkheadMemory::create()?)?;
            for _ in 0..taken {
                memory.permits().take(most, holder(0));
            }
            let nanoseconds = (0..ROUNDS).map(|_| request_ns(memory, most, holder(0))).fold(f64::INFINITY, f64::min);
            println!("max={most}, {taken} taken: {nanoseconds:.1} ns a request");
        }
    }
    let workers = thread::available_parallelism()?.get();
    let memory = BulkheadMemory::attach(&BulkheadMemory::create()?)?;
    let shared = (0..ROUNDS).map(|_| contended_ns(memory, workers)).fold(f64::INFINITY, f64::min);
    println!("max={MAX_PERMITS}, {workers} workers at the same time: {shared:.1} ns a request");
    Ok(())
}

fn holder(row: u16) -> Holder {
    Holder { row, pid: 1 + u32::from(row) }
}

/// Returns the nanoseconds of a request of this worker.
fn request_ns(memory: BulkheadMemory, most: usize, holder: Holder) -> f64 {
    let began = Instant::now();
    for _ in 0..REQUESTS {
        let permits = black_box(memory).permits();
        if permits.has_waiting() {
            continue;
        }
        if let Some(number) = permits.take(black_box(most), holder) {
            memory.note_passed();
            black_box(permits.release(black_box(number)));
        }
    }
    began.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
}

/// Returns the nanoseconds of a request in the slowest of several workers, each of which has a CPU.
fn contended_ns(memory: BulkheadMemory, workers: usize) -> f64 {
    let begin = Barrier::new(workers);
    let work = |row: usize| {
        begin.wait();
        request_ns(memory, MAX_PERMITS, holder(u16::try_from(row).unwrap_or(u16::MAX)))
    };
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|row| scope.spawn(move || work(row))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).fold(0.0, f64::max)
    })
}
