//! Processes that are killed in the middle of their work on shared structures: nothing is torn, and no process waits for the
//! dead.

use std::time::{Duration, Instant};

use bolide_contract::sharing::{Area, AreaSource, Queue as QueueSettings};
use bolide_memory::queue::{self, Queue};
use bolide_memory::shared_area::{self, SharedArea};
use bolide_memory::{Identity, Mapping, user_locks};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

/// Kills of each structure.
const KILLS: u32 = 500;
/// A victim is killed after up to this many microseconds of work.
const WORK_US: u32 = 400;

fn memory(identity: &Identity) -> &'static Mapping {
    let (mapping, _) = Mapping::create("test", identity).expect("made");
    Box::leak(Box::new(mapping))
}

/// Lets a process work for ever, and kills it after a while, which is different each time.
fn kill_in(round: u32, has_begun: impl Fn() -> bool, mut work: impl FnMut()) -> Pid {
    // SAFETY: the child uses locks, atomics and the allocator, which a fork leaves usable, and never returns.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => loop {
            work();
        },
        ForkResult::Parent { child } => {
            while !has_begun() {
                std::thread::yield_now();
            }
            let end = Instant::now() + Duration::from_micros(u64::from(round.wrapping_mul(2_654_435_761) % WORK_US));
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            kill(child, Signal::SIGKILL).expect("it lived");
            waitpid(child, None).expect("reaped");
            child
        }
    }
}

#[test]
fn a_queue_has_whole_items_in_order_after_each_kill() {
    let settings = QueueSettings { slots: 16, block_bytes: 4096, store: None, origin: String::new() };
    let mapping = memory(&queue::identity(&settings));
    queue::begin(mapping).expect("robust mutexes");
    let queue = Queue::attach(&settings, mapping, None).expect("it fits");
    let (mut recovered, mut died_inside) = (0, 0);
    for round in 0..KILLS {
        let before = queue.push_position();
        let mut number = 0u32;
        let victim = kill_in(
            round,
            || queue.push_position() != before || queue.count() > 0,
            || {
                number = number.wrapping_add(1);
                let item = number.to_le_bytes().repeat(900);
                let Ok(guard) = queue.lock().lock() else { return };
                let items = queue.items(&guard);
                items.push(&item, 1);
                match number % 5 {
                    0 => drop(items.pop()),
                    1 => _ = items.set(u64::from(number % 16), &item, 1),
                    2..4 => drop(items.pull()),
                    _ => {}
                }
            },
        );
        died_inside += queue::recover(mapping, victim.as_raw().unsigned_abs()).len();
        let guard = queue.lock().lock().expect("the lock is free");
        assert_eq!(guard.left_by, None, "the master has recovered it");
        let items = queue.items(&guard);
        for item in items.last(16).into_iter().flatten() {
            assert_eq!(item.len(), 3600);
            assert!(item.chunks(4).all(|part| part == &item[..4]), "an item of two");
        }
        assert!(queue.is_sound());
        // What is pushed now comes out last.
        while items.pull().is_some() {}
        recovered = queue.recovered();
    }
    assert!(died_inside > 0 && recovered > 0, "{died_inside} died inside of the lock, {recovered} within a change");
}

#[test]
fn an_area_has_whole_numbers_and_no_dead_holder_after_each_kill() {
    let settings = Area { bytes: 4096, source: AreaSource::Memory, origin: String::new() };
    let mapping = memory(&shared_area::identity(&settings));
    shared_area::begin(mapping).expect("robust mutexes");
    let area = SharedArea::attach(&settings, mapping, None).expect("it fits");
    let mut died_inside = 0;
    for round in 0..KILLS {
        let before = area.updates();
        let victim = kill_in(
            round,
            || area.updates() != before,
            || {
                // Each half of the number goes up by one, at an address that is not aligned.
                let _ = area.add(61, 0x1_0000_0001i64);
                let lock =
                    if area.updates().is_multiple_of(2) { SharedArea::lock_for_reading } else { SharedArea::lock_for_writing };
                if lock(&area).is_ok() {
                    let _ = area.get::<i64>(61);
                    let _ = area.unlock();
                }
            },
        );
        died_inside += shared_area::recover("0", mapping, victim.as_raw().unsigned_abs()).len();
        let number = area.get::<i64>(61).expect("the lock is free");
        assert_eq!(number >> 32, number & 0xffff_ffff, "a half of an addition");
        area.lock_for_writing().expect("the lock is free");
        area.unlock().expect("it is ours");
    }
    assert!(died_inside > 0, "no process died inside a lock");
}

#[test]
fn the_locks_of_the_application_are_free_after_each_kill() {
    let mapping = memory(&user_locks::identity(1));
    user_locks::begin(mapping).expect("robust mutexes");
    let locks = user_locks::all(mapping);
    let mut died_inside = 0;
    for round in 0..KILLS {
        drop(locks[1].lock().expect("free"));
        let victim = kill_in(
            round,
            || locks[1].owner() != 0,
            || {
                if let Ok(guard) = locks[1].lock() {
                    guard.keep();
                    let _ = locks[1].release();
                }
            },
        );
        died_inside += user_locks::recover(mapping, victim.as_raw().unsigned_abs()).len();
        assert!(locks[1].try_lock().expect("a lock").is_some_and(|guard| guard.left_by.is_none()));
    }
    assert!(died_inside > 0, "no process died inside the lock");
}
