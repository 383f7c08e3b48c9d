//! Processes that are killed while they write: at each stage of a write, and at any moment. Whatever was written is whole, no
//! process waits for the dead one, and nothing of the room is lost.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use bolide_contract::services::{SharedCache, WhenFull};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use super::stage::{Stage, stop_at};
use super::testing::{cache, settings};
use super::{Cache, Calculation, Change, Outcome, Waiting, Written, recover};

/// Kills at random moments.
const KILLS: u64 = 500;
const LETTERS: [u8; 4] = *b"abcd";

/// Each value is one letter, repeated.
fn value(letter: u8, bytes: usize) -> Vec<u8> {
    vec![letter; bytes]
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// One write of the sort that this number stands for.
fn write(cache: &Cache, number: u64) -> Written {
    let key = key(number / 8 % 12);
    let value = value(LETTERS[number as usize % 4], 1 + number as usize % 90);
    match number % 8 {
        0 | 1 => cache.put(&key, Change::Add(&value), 0, Waiting::Bounded),
        2 | 3 => cache.put(&key, Change::Update(&value), 0, Waiting::Bounded),
        4 => cache.put(&key, Change::Update(&value), 3600, Waiting::Bounded),
        5 => cache.put(b"number", Change::Calculate(Calculation::Add, 0), 0, Waiting::Bounded),
        6 if number.is_multiple_of(1000) => cache.clear(Waiting::Bounded),
        _ => cache.delete(&key, Waiting::Bounded),
    }
}

/// Reads everything. Returns how many items there are.
fn check_values(cache: &Cache) -> usize {
    let mut found = 0;
    for number in 0..12 {
        let mut value = Vec::new();
        if let Outcome::Hit { .. } = cache.get(&key(number), &mut value) {
            assert!(LETTERS.contains(&value[0]) && value.iter().all(|byte| *byte == value[0]), "torn: {value:?}");
            found += 1;
        }
    }
    let mut number = Vec::new();
    if let Outcome::Hit { .. } = cache.get(b"number", &mut number) {
        assert_eq!(number, [0; 8]);
        found += 1;
    }
    found
}

/// No process waits (a write that waits in vain is not done), and the cache has all of its room.
fn check_room(cache: &Cache) {
    // The first writer that comes to the shard of the dead process repairs everything.
    for number in 0..200 {
        assert_eq!(cache.delete(format!("absent {number}").as_bytes(), Waiting::Bounded), Written::Unchanged);
    }
    let found = check_values(cache);
    assert_eq!((cache.keys().len(), cache.counts().items), (found, found as u64));
    assert_eq!(cache.clear(Waiting::Bounded), Written::Done);
    for item in 0..cache.settings().items {
        let written = cache.put(format!("fill {item}").as_bytes(), Change::Add(b"x"), 0, Waiting::Bounded);
        assert_eq!(written, Written::Done, "{item} of {}", cache.settings().items);
    }
    assert_eq!(cache.counts().items, cache.settings().items);
    if cache.settings().when_full == WhenFull::Refuse {
        assert!(matches!(cache.put(b"more", Change::Add(b"x"), 0, Waiting::Bounded), Written::Full { .. }));
    }
    assert_eq!(cache.clear(Waiting::Bounded), Written::Done);
}

/// A process that writes until it is killed.
fn writer(cache: &Cache, mut number: u64) -> Pid {
    // SAFETY: the child only writes to the cache, and is killed.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => loop {
            write(cache, number);
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 1;
        },
    }
}

fn end(pid: Pid) {
    kill(pid, Signal::SIGKILL).expect("killed");
    waitpid(pid, None).expect("reaped");
}

/// Caches of each sort: small, with several shards, with purging, with blocks.
fn sorts() -> [SharedCache; 4] {
    let bitmap = SharedCache { is_bitmap: true, blocks: 40, block_bytes: 40, ..settings(20) };
    [settings(20), settings(1500), SharedCache { when_full: WhenFull::Purge, ..settings(14) }, bitmap]
}

#[test]
fn writers_killed_500_times_at_any_moment_tear_no_value_and_block_no_writer() {
    let mut left = 0;
    for (settings, kills) in sorts().iter().zip([KILLS / 4; 4]) {
        let cache = cache(settings);
        for kill in 0..kills {
            let pid = writer(&cache, kill * 7919);
            let until = Instant::now() + Duration::from_micros(200 + kill * 37 % 700);
            while Instant::now() < until {
                check_values(&cache);
            }
            end(pid);
            check_values(&cache);
            if kill % 2 == 0 {
                left += u32::from(recover(settings, &cache.parts, pid.as_raw().unsigned_abs()).is_some());
            }
            if kill % 10 == 0 {
                check_room(&cache);
            }
        }
        check_room(&cache);
        left += cache.parts.shards.iter().map(|shard| shard.lock.deaths()).sum::<u32>();
    }
    assert!(left > 0, "no process died inside a lock");
}

/// Runs writes in another process until it stops at the stage. Returns its pid, or `None` if no write reaches the stage.
fn process_at(stage: Stage, cache: &Cache, numbers: impl Iterator<Item = u64>) -> Option<Pid> {
    let (ours, theirs): (OwnedFd, OwnedFd) = nix::unistd::pipe().expect("a pipe");
    // SAFETY: the child only writes to the cache, and is killed or exits.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            drop(ours);
            stop_at(stage, theirs);
            for number in numbers {
                write(cache, number);
            }
            // SAFETY: exits without the handlers of the test's process.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(theirs);
            let has_stopped = nix::unistd::read(ours.as_fd(), &mut [0]).expect("read") == 1;
            if !has_stopped {
                waitpid(child, None).expect("reaped");
            }
            has_stopped.then_some(child)
        }
    }
}

#[test]
fn a_writer_killed_at_each_stage_leaves_whole_values_and_all_of_the_room() {
    for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::Repairing) {
        let mut reached = 0;
        for settings in &sorts() {
            for is_recovered_by_master in [false, true] {
                // Each sort of write comes first once.
                for first in 0..8 {
                    let cache = cache(settings);
                    for number in 0..60 {
                        write(&cache, number * 3);
                    }
                    let Some(pid) = process_at(stage, &cache, (0..400).map(|number| first + number)) else { continue };
                    reached += 1;
                    check_values(&cache);
                    end(pid);
                    check_values(&cache);
                    if is_recovered_by_master {
                        recover(settings, &cache.parts, pid.as_raw().unsigned_abs());
                    }
                    check_room(&cache);
                }
            }
        }
        assert!(reached > 0, "{stage:?} was never reached");
    }
}

#[test]
fn the_master_names_what_a_dead_process_held_once_and_repairs_it() {
    let settings = settings(20);
    let cache = cache(&settings);
    let pid = process_at(Stage::SlotFilled, &cache, 0..100).expect("stopped");
    let number = pid.as_raw().unsigned_abs();
    assert_eq!(recover(&settings, &cache.parts, number), None, "it lives");
    end(pid);
    let recovery = recover(&settings, &cache.parts, number).expect("recovered");
    assert_eq!(recovery.what, "the cache \"test\"");
    assert_eq!(cache.parts.facts.needs_repair.load(std::sync::atomic::Ordering::Relaxed), 0);
    check_room(&cache);
}

#[test]
fn a_process_killed_in_the_repair_leaves_it_to_the_next_one() {
    let settings = settings(1500);
    let cache = cache(&settings);
    for _ in 0..3 {
        end(process_at(Stage::SlotLinked, &cache, 0..100).expect("stopped"));
        end(process_at(Stage::Repairing, &cache, 0..2000).expect("stopped"));
        check_values(&cache);
    }
    check_room(&cache);
}

#[test]
fn a_reader_waits_for_no_writer_that_was_stopped_inside_the_lock() {
    let cache = cache(&settings(20));
    assert_eq!(cache.put(&key(1), Change::Add(&value(b'a', 50)), 0, Waiting::Bounded), Written::Done);
    let pid = process_at(Stage::SlotLinked, &cache, 0..100).expect("stopped");
    for _ in 0..1000 {
        check_values(&cache);
    }
    assert!(cache.exists(&key(1)));
    end(pid);
}
