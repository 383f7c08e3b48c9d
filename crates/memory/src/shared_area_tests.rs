//! Tests of `shared_area`: bounds, locks of several holders, the death of a holder, and sleepers.

use std::sync::mpsc;
use std::time::Duration;

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use super::*;
use crate::region::tests::region;

/// Nothing in these tests takes as long.
const LONG: Duration = Duration::from_secs(20);

fn area(bytes: usize) -> SharedArea {
    // SAFETY: zeroed memory is a valid control without locks, which `begin` makes.
    let control: &'static AreaControl = Box::leak(unsafe { Box::<AreaControl>::new_zeroed().assume_init() });
    control.begin().expect("robust mutexes");
    SharedArea::new(control, region(bytes))
}

#[test]
fn numbers_and_texts_stay_within_the_area_and_changes_are_counted() {
    let area = area(16);
    assert!(area.set(8, -2i64).is_ok() && area.add(8, 5i64).is_ok());
    assert!(matches!(area.get::<i64>(8), Ok(3)));
    assert!(matches!(area.get::<i64>(9), Err(AreaError::Outside)));
    assert!(matches!(area.add(16, 1i8), Err(AreaError::Outside)));
    assert!(matches!(area.write(12, b"12345"), Err(AreaError::Outside)));
    assert!(area.write(11, b"12345").is_ok() && area.set(0, 127i8).is_ok() && area.add(0, 1i8).is_ok());
    let mut bytes = [0; 16];
    assert!(area.read(0, &mut bytes).is_ok());
    assert_eq!(&bytes, b"\x80\0\0\0\0\0\0\0\x03\0\x0012345");
    assert_eq!((area.updates(), area.hits()), (5, 3));
}

#[test]
fn a_thread_that_has_locked_an_area_uses_it_and_takes_no_second_lock() {
    let area = area(16);
    assert!(matches!(area.unlock(), Err(AreaError::NotLocked)));
    area.lock_for_writing().expect("free");
    assert!(area.set(0, 1i64).is_ok() && area.get::<i64>(0).is_ok());
    assert!(matches!(area.lock_for_writing(), Err(AreaError::OwnLock)));
    assert!(matches!(area.lock_for_reading(), Err(AreaError::OwnLock)));
    area.unlock().expect("locked");
    area.lock_for_reading().expect("free");
    area.lock_for_reading().expect("again");
    assert!(matches!(area.set(0, 1i64), Err(AreaError::OwnLock)), "it would wait for itself");
    assert!(area.get::<i64>(0).is_ok());
    area.unlock().expect("locked");
    area.unlock().expect("locked once more");
    assert!(matches!(area.unlock(), Err(AreaError::NotLocked)));
    assert!(area.set(0, 1i64).is_ok());
}

#[test]
fn readers_share_an_area_and_a_writer_waits_for_all_of_them() {
    let area = area(16);
    let (told, hears) = mpsc::channel();
    let (lets_go, waits) = mpsc::channel::<()>();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let told = told.clone();
            let (ends, end) = mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                area.lock_for_reading().expect("shared");
                told.send("reads").expect("heard");
                end.recv().expect("told");
                area.unlock().expect("locked");
            });
            (thread, ends)
        })
        .collect();
    assert_eq!([(); 2].map(|()| hears.recv_timeout(LONG)), [Ok("reads"); 2], "both at a time");
    assert!(area.get::<i64>(0).is_ok(), "another thread reads in the meantime");
    assert!(matches!(area.without_waiting().set(0, 1i64), Err(AreaError::Busy)));
    assert!(matches!(area.without_waiting().lock_for_writing(), Err(AreaError::Busy)));
    let writer = std::thread::spawn(move || {
        area.lock_for_writing().expect("free in the end");
        told.send("writes").expect("heard");
        waits.recv().expect("told");
        area.unlock().expect("locked");
    });
    for (thread, ends) in readers {
        assert!(hears.try_recv().is_err(), "a reader is there still");
        ends.send(()).expect("alive");
        thread.join().expect("ended");
    }
    assert_eq!(hears.recv_timeout(LONG), Ok("writes"));
    assert!(matches!(area.without_waiting().get::<i64>(0), Err(AreaError::Busy)));
    lets_go.send(()).expect("alive");
    writer.join().expect("ended");
    assert!(area.set(0, 1i64).is_ok());
}

#[test]
fn a_process_that_dies_with_a_lock_holds_nobody_up() {
    for lock in [SharedArea::lock_for_reading, SharedArea::lock_for_writing] {
        let area = area(16);
        // SAFETY: the child uses locks and atomics only, and ends without running anything else.
        match unsafe { fork() }.expect("a process") {
            ForkResult::Child => {
                let held = lock(&area).is_ok();
                // SAFETY: ends the process immediately, as a kill does.
                unsafe { libc::_exit(i32::from(!held)) }
            }
            ForkResult::Parent { child } => {
                waitpid(child, None).expect("reaped");
            }
        }
        area.set(0, 1i64).expect("free");
        area.lock_for_writing().expect("free");
        area.unlock().expect("locked");
    }
}

#[test]
fn a_child_of_a_fork_has_no_lock_of_its_parent() {
    let area = area(16);
    area.lock_for_writing().expect("free");
    // SAFETY: as above.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            let has_none = matches!(area.unlock(), Err(AreaError::NotLocked));
            let waits = matches!(area.without_waiting().get::<i64>(0), Err(AreaError::Busy));
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!(has_none && waits))) }
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None).expect("reaped");
            assert!(matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)), "{ended:?}");
        }
    }
    area.unlock().expect("locked still");
}

#[test]
fn a_sleeper_sees_the_change_after_the_count_that_it_knows() {
    let area = area(16);
    let seen = area.updates();
    assert_eq!(area.wait(seen, Duration::from_millis(1)), Waited::StillWaiting);
    let sleeper = std::thread::spawn(move || wait_until(&area, seen, LONG));
    area.set(0, 1i64).expect("free");
    assert!(sleeper.join().expect("ended"));
    assert_eq!(area.wait(seen, LONG), Waited::Changed, "a change that has happened is not waited for");
    area.note_change();
    assert_eq!(area.updates(), 2);
}
