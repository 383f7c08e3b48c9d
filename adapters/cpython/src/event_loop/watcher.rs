//! Checks from a thread of its own whether the event loop still runs, and logs what blocks it if it does not.
//!
//! `faulthandler` writes the stack of the loop's thread, in the signal's handler: that needs no interpreter, so it works while C
//! code holds it. The waiting tasks are listed afterwards, when the interpreter is available. It must not know tasks or requests.

use std::sync::Arc;
use std::time::Duration;

use bolide_contract::clock::now_ms;
use bolide_contract::message::stack_signal;
use bolide_engine::Heartbeat;
use pyo3::prelude::*;

use crate::uwsgi_module::is_halted;

/// The loop is checked this many times within the time after which it counts as blocked.
const LOOKS: u64 = 4;

/// The shortest pause between two checks, in milliseconds.
const MIN_PAUSE_MS: u64 = 5;

/// Maximum time that the handler has to write the stack, and the pause between two looks, in milliseconds.
const MAX_STACK_MS: u64 = 50;
const STACK_LOOK_MS: u64 = 1;

/// Looks without a sign of the signal after which its handler has ended.
const LOOKS_AFTER_STACK: u32 = 3;

/// A loop that stays blocked is reported again after this many milliseconds.
const AGAIN_MS: u64 = 30_000;

/// Starts to watch. A loop that has not run for `stall_ms` milliseconds is blocked.
///
/// # Errors
/// The system can't start another thread.
pub fn watch(heartbeat: Arc<Heartbeat>, stall_ms: u64, worker: u32, report: Py<PyAny>) -> std::io::Result<()> {
    // The kernel keeps 15 bytes of a thread's name.
    let name = "loop watcher".to_owned();
    std::thread::Builder::new().name(name).spawn(move || look(&heartbeat, stall_ms, worker, &report))?;
    Ok(())
}

/// Watches until the loop stops serving.
fn look(heartbeat: &Heartbeat, stall_ms: u64, worker: u32, report: &Py<PyAny>) {
    let pause = Duration::from_millis((stall_ms / LOOKS).max(MIN_PAUSE_MS));
    loop {
        let asked_ms = now_ms();
        heartbeat.ask();
        let mut since_ms = asked_ms;
        let mut told_ms = None;
        loop {
            std::thread::sleep(pause);
            if heartbeat.has_ended() {
                return;
            }
            if heartbeat.beaten_ms() >= asked_ms {
                break;
            }
            if is_halted() {
                // Time in a debugger is not the application's: the loop has its whole time again when the debugger continues.
                since_ms = now_ms();
                continue;
            }
            let stuck_ms = now_ms().saturating_sub(since_ms);
            let due_ms = told_ms.map_or(stall_ms, |told: u64| told + AGAIN_MS);
            if stuck_ms >= due_ms {
                tell(heartbeat, since_ms, stuck_ms, worker, report);
                told_ms = Some(now_ms().saturating_sub(since_ms));
            }
        }
        if told_ms.is_some() {
            let seconds = heartbeat.beaten_ms().saturating_sub(since_ms) as f64 / 1000.0;
            bolide_log::report(format!("worker {worker}: the event loop runs again, after {seconds:.1} s\n").as_bytes());
        }
    }
}

fn tell(heartbeat: &Heartbeat, since_ms: u64, stuck_ms: u64, worker: u32, report: &Py<PyAny>) {
    heartbeat.tell_stuck(since_ms);
    let seconds = stuck_ms as f64 / 1000.0;
    let text = format!("the event loop has been blocked for {seconds:.1} s, here:");
    bolide_log::announce_stack(worker, std::process::id(), &text, |text| {
        bolide_log::report(format!("worker {worker}: {text}\n").as_bytes());
    });
    // SAFETY: the call takes numbers; the signal's handler was registered before the loop began.
    unsafe {
        nix::libc::syscall(nix::libc::SYS_tgkill, nix::libc::getpid(), heartbeat.thread(), stack_signal());
    }
    wait_for_stack(heartbeat.thread());
    // An interpreter that has ended has no tasks either.
    let told = Python::try_attach(|py| {
        if let Err(error) = report.call1(py, (seconds,)) {
            error.write_unraisable(py, None);
        }
    });
    let _has_ended = told.is_none();
}

/// Waits until the signal's handler has written the stack, so that it stands behind the line that announces it. A signal that was
/// sent is pending until its handler begins, and blocked until the handler ends.
fn wait_for_stack(thread: u32) {
    let until_ms = now_ms() + MAX_STACK_MS;
    let bit = 1u64 << (stack_signal() - 1);
    let is_under_way = || {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
        let of_field = |name: &str| {
            let text = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(text.trim(), 16).ok()
        };
        ["SigPnd:", "SigBlk:"].into_iter().any(|name| of_field(name).is_some_and(|signals| signals & bit != 0))
    };
    // Between the two the kernel shows neither for a moment, in which a busy machine may run other threads.
    let mut looks_after = 0;
    while looks_after < LOOKS_AFTER_STACK && now_ms() < until_ms {
        looks_after = if is_under_way() { 0 } else { looks_after + 1 };
        std::thread::sleep(Duration::from_millis(STACK_LOOK_MS));
    }
}
