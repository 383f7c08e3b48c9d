//! The one writer of the log, for master, prototype and workers: their own lines, request lines, and what applications write to
//! standard error. It writes whole lines and never waits for a reader.
//!
//! The log is a descriptor of our own above 2, so that an application that closes descriptor 2 does not lead our lines into a
//! client's socket, and where the kernel allows it an open file description of our own, which is non-blocking while the
//! application's standard error stays as it was. Lines that nobody takes wait in memory, up to [`WAITING_MOST_BYTES`];
//! further ones are dropped and counted, and the log says how many when it is read again.
//!
//! Who writes calls [`write`]; who has a loop looks at [`is_waiting`] and calls [`flush`] after [`RETRY_MS`]. It knows no format:
//! what a line says, and that no client can forge one, is the caller's business. Every process runs it.

pub mod dates;
mod destination;
mod form;
pub mod json;
mod writer;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use bolide_contract::logging::Logging;
use destination::Destination;
pub use writer::WAITING_MOST_BYTES;
use writer::Writer;

/// After how long lines that wait are tried again by a process that has nothing else to write, in milliseconds.
pub const RETRY_MS: u64 = 50;

/// Time that the end of a process may wait for a reader of its last lines, in milliseconds.
const FINISH_MOST_MS: u64 = 500;

/// Where the log goes; null before it was first needed.
static DESTINATION: AtomicPtr<Destination> = AtomicPtr::new(null_mut());
/// The writer of this process; null before the first line, and in a process that was just forked.
static WRITER: AtomicPtr<Mutex<Writer>> = AtomicPtr::new(null_mut());
/// Lines wait for a reader, or were dropped and not told yet.
static WAITING: AtomicBool = AtomicBool::new(false);

/// Takes what descriptor 2 is now as the log. The master's call, before it starts anything and after each change of that descriptor.
///
/// # Errors
/// Descriptor 2 is not open, or no descriptor is left.
pub fn take_standard_error() -> io::Result<()> {
    install(Destination::of_standard_error()?);
    Ok(())
}

/// Takes a log that the parent has opened: the prototype's call, whose user may not be allowed to open it. Workers inherit it by fork.
///
/// # Errors
/// The descriptor is not open.
pub fn inherit(descriptor: OwnedFd) -> io::Result<()> {
    install(Destination::of(descriptor)?);
    Ok(())
}

/// The log's descriptor, to hand it on. `None`: descriptor 2 can't be had.
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    Some(destination()?.descriptor())
}

/// The log is a terminal.
pub fn is_terminal() -> bool {
    descriptor().is_some_and(|descriptor| std::io::IsTerminal::is_terminal(&descriptor))
}

/// Writes whole lines of messages, each with its line end. Never waits for the reader.
pub fn write(lines: &[u8]) {
    let formed = form::of_lines(lines);
    write_requests(formed.as_deref().unwrap_or(lines));
}

/// Writes whole lines of requests, which have their form already.
pub fn write_requests(lines: &[u8]) {
    let Some(mut writer) = writer() else { return };
    writer.write(lines);
    WAITING.store(writer.is_waiting(), Relaxed);
}

/// Writes the last line of a process that is about to abort, past its writer, which the calling thread may have locked. What is not
/// taken at once is lost.
pub fn write_last(line: &[u8]) {
    if let Some(destination) = destination() {
        let _ = destination.write(line);
    }
}

/// Writes `bolide: text` as one line, with the time before it.
pub fn line(text: &str) {
    if let Some(mut writer) = writer() {
        writer.write(&framed(text));
        WAITING.store(writer.is_waiting(), Relaxed);
    }
}

/// The line that [`line`] writes, for [`write_last`].
pub fn framed(text: &str) -> Vec<u8> {
    form::message(text)
}

/// Takes the form that the settings give to lines. The call of the master when it begins, and of a prototype; workers inherit it.
pub fn configure(logging: &Logging) {
    form::set(logging);
}

/// Lines wait for a reader: they are written with the next ones, or by [`flush`].
pub fn is_waiting() -> bool {
    WAITING.load(Relaxed)
}

/// Writes what waits, as far as it is taken. Costs a load where nothing waits.
pub fn flush() {
    if is_waiting()
        && let Some(mut writer) = writer()
    {
        writer.flush();
        WAITING.store(writer.is_waiting(), Relaxed);
    }
}

/// Writes what waits at the end of a process, and waits a moment for a reader: [`FINISH_MOST_MS`].
pub fn finish() {
    let end = Instant::now() + Duration::from_millis(FINISH_MOST_MS);
    while is_waiting() {
        flush();
        let left = end.saturating_duration_since(Instant::now());
        let Some(destination) = destination().filter(|_| is_waiting() && !left.is_zero()) else { return };
        destination.wait_for_room(left);
    }
}

fn install(destination: Destination) {
    // Neither is ever freed: a thread may be writing, and there is one for each change of the log.
    let destination: &'static Destination = Box::leak(Box::new(destination));
    DESTINATION.store(std::ptr::from_ref(destination).cast_mut(), Release);
    WRITER.store(null_mut(), Release);
    WAITING.store(false, Relaxed);
}

fn destination() -> Option<&'static Destination> {
    if DESTINATION.load(Acquire).is_null() {
        take_standard_error().ok()?;
    }
    // SAFETY: not null after the call above, which stores a destination that is never freed.
    Some(unsafe { &*DESTINATION.load(Acquire) })
}

fn writer() -> Option<MutexGuard<'static, Writer>> {
    let mut found = WRITER.load(Acquire);
    if found.is_null() {
        watch_forks();
        let made = Box::into_raw(Box::new(Mutex::new(Writer::new(destination()?))));
        found = match WRITER.compare_exchange(null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: it comes from `Box::into_raw` above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
    }
    // SAFETY: not null, and a writer is never freed once it is installed.
    Some(unsafe { &*found }.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A child begins with a writer of its own: its parent's may be locked by a thread that the child has not, and what waits there
/// is the parent's to write.
fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function stores two atomics, which is safe in the child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(forget_writer)) };
    });
}

extern "C" fn forget_writer() {
    WRITER.store(null_mut(), Release);
    WAITING.store(false, Relaxed);
}
