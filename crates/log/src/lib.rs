//! The one writer of logs, for master, prototype and workers: their own lines, request lines, and what applications write to
//! standard error. It writes whole lines and never waits for a reader.
//!
//! The log is a descriptor of our own above 2, so that an application that closes descriptor 2 does not lead our lines into a
//! client's socket, and where the kernel allows it an open file description of our own, which is non-blocking while the
//! application's standard error stays as it was. Lines that nobody takes wait in memory, up to [`WAITING_MOST_BYTES`];
//! further ones are dropped and counted, and the log says how many when it is read again.
//!
//! The log itself has number 0; loggers of the settings have those behind it, and `flow` says which line goes to which.
//!
//! Who writes calls [`write`]; who has a loop looks at [`is_waiting`] and calls [`flush`] after [`RETRY_MS`]. It knows no format:
//! what a line says, and that no client can forge one, is the caller's business. Every process runs it.

pub mod dates;
mod destination;
mod flow;
mod form;
pub mod json;
mod packing;
mod sink;
mod writer;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use bolide_contract::logging::{LOGS_MOST, Logging};
use destination::Destination;
use flow::Flows;
use sink::Sink;
pub use writer::WAITING_MOST_BYTES;

/// After how long lines that wait are tried again by a process that has nothing else to write, in milliseconds.
pub const RETRY_MS: u64 = 50;

/// Time that the end of a process may wait for a reader of its last lines, in milliseconds.
const FINISH_MOST_MS: u64 = 500;

/// All logs, the log itself first.
static LOGS: [Sink; LOGS_MOST] = [const { Sink::new() }; LOGS_MOST];
/// The ways of lines; null where all go to the log.
static FLOWS: AtomicPtr<Flows> = AtomicPtr::new(null_mut());
/// A copy of standard error, where the master takes what is printed.
static RAW: OnceLock<OwnedFd> = OnceLock::new();
/// Lines wait for a reader, or were dropped and not told yet.
static WAITING: AtomicBool = AtomicBool::new(false);

/// Takes what descriptor 2 is now as the log. The master's call, before it starts anything and after each change of that descriptor.
///
/// # Errors
/// Descriptor 2 is not open, or no descriptor is left.
pub fn take_standard_error() -> io::Result<()> {
    LOGS[0].install(Destination::of_standard_error()?);
    Ok(())
}

/// Takes a log that the parent has opened: the prototype's call, whose user may not be allowed to open it. Workers inherit it by fork.
///
/// # Errors
/// The descriptor is not open.
pub fn inherit(descriptor: OwnedFd) -> io::Result<()> {
    LOGS[0].install(Destination::of(descriptor)?);
    Ok(())
}

/// Takes what is open as the log of a number behind 0: the call of the master, and of a prototype that has inherited it.
///
/// # Errors
/// The descriptor is not open, or there are [`LOGS_MOST`] logs already.
pub fn take_target(number: usize, descriptor: OwnedFd) -> io::Result<()> {
    let sink = LOGS.get(number).ok_or_else(|| io::Error::other(format!("there are {LOGS_MOST} logs at the most")))?;
    sink.install(Destination::of(descriptor)?);
    Ok(())
}

/// Has the log of a number go on in another file, in this process.
///
/// # Errors
/// There is no such log, or it is no file.
pub fn replace(number: usize, file: &OwnedFd) -> io::Result<()> {
    LOGS.get(number).ok_or_else(|| io::Error::other("there is no such log"))?.replace(file)
}

/// The log's descriptor, to hand it on. `None`: descriptor 2 can't be had.
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    Some(destination()?.descriptor())
}

/// The descriptor for lines that are written past this room, by a signal handler in C: the log, or the way to the master where it takes what
/// is printed. It is above 2.
pub fn raw_descriptor() -> Option<BorrowedFd<'static>> {
    RAW.get().map(AsFd::as_fd).or_else(descriptor)
}

/// The descriptors of the logs behind the first, to hand them on.
pub fn targets() -> Vec<RawFd> {
    LOGS[1..].iter().map_while(|sink| Some(sink.destination()?.descriptor().as_raw_fd())).collect()
}

/// The log is a terminal.
pub fn is_terminal() -> bool {
    descriptor().is_some_and(|descriptor| std::io::IsTerminal::is_terminal(&descriptor))
}

/// Lines of the log are coloured: it is a terminal that can show it, and nobody has asked for none (no-color.org), or somebody asks for
/// colours wherever they go (force-color.org).
pub fn is_coloured() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !is_set("NO_COLOR") && (is_set("FORCE_COLOR") || is_terminal() && !is_dumb)
}

/// The same, where lines are short ones for eyes.
pub fn colours_lines() -> bool {
    form::is_coloured()
}

/// Takes the form and the ways that the settings give to lines. The call of the master when it begins, and of a prototype; workers
/// inherit it.
pub fn configure(logging: &Logging) {
    form::set(logging, is_terminal(), is_coloured());
    if logging.takes_output() && RAW.get().is_none() {
        // Without it such lines go to the log as they are.
        let _ = io::stderr().as_fd().try_clone_to_owned().map(|copy| RAW.set(copy));
    }
    for (sink, target) in LOGS[1..].iter().zip(&logging.targets) {
        if let Some(packing) = &target.packing {
            sink.pack(packing);
        }
    }
    let flows = logging.flows.as_ref().map(|flows| Box::into_raw(Box::new(Flows::compile(flows, &logging.targets))));
    // They are never freed: a thread may be writing, and there is one for each reading of the configuration.
    FLOWS.store(flows.unwrap_or(null_mut()), Release);
}

/// Writes whole lines of messages, each with its line end. Never waits for the reader.
pub fn write(lines: &[u8]) {
    let formed = form::of_lines(lines);
    write_messages(formed.as_deref().unwrap_or(lines));
}

/// Writes whole lines of requests, which have their form already.
pub fn write_requests(lines: &[u8]) {
    match flows() {
        None => write_to(0, lines),
        Some(flows) => flows.deliver(flows.requests.as_ref().unwrap_or(&flows.messages), lines, write_to),
    }
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
    write_messages(&framed(text));
}

/// The line that [`line`] writes, for [`write_last`].
pub fn framed(text: &str) -> Vec<u8> {
    form::message(text)
}

/// Lines wait for a reader: they are written with the next ones, or by [`flush`].
pub fn is_waiting() -> bool {
    WAITING.load(Relaxed)
}

/// Writes what waits, as far as it is taken. Costs a load where nothing waits.
pub fn flush() {
    if is_waiting() {
        let mut waiting = false;
        for mut writer in LOGS.iter().filter_map(Sink::writer_in_use) {
            writer.flush();
            waiting |= writer.is_waiting();
        }
        WAITING.store(waiting, Relaxed);
    }
}

/// Writes what waits at the end of a process, and waits a moment for a reader: [`FINISH_MOST_MS`].
pub fn finish() {
    let end = Instant::now() + Duration::from_millis(FINISH_MOST_MS);
    while is_waiting() {
        flush();
        let left = end.saturating_duration_since(Instant::now());
        let waiting = |sink: &&Sink| sink.writer_in_use().is_some_and(|writer| writer.is_waiting());
        let destination = LOGS.iter().find(waiting).and_then(Sink::destination);
        let Some(destination) = destination.filter(|_| !left.is_zero()) else { return };
        destination.wait_for_room(left);
    }
}

fn write_messages(lines: &[u8]) {
    match flows() {
        None => write_to(0, lines),
        Some(flows) => flows.deliver(&flows.messages, lines, write_to),
    }
}

fn write_to(number: usize, lines: &[u8]) {
    watch_forks();
    if number == 0 && destination().is_none() {
        return;
    }
    let Some(mut writer) = LOGS.get(number).and_then(Sink::writer) else { return };
    writer.write(lines);
    // Another log may have lines that wait: `flush` looks at all of them.
    if writer.is_waiting() || number == 0 && flows().is_none() {
        WAITING.store(writer.is_waiting(), Relaxed);
    }
}

fn flows() -> Option<&'static Flows> {
    // SAFETY: null, or flows that `configure` has stored and nobody frees.
    unsafe { FLOWS.load(Acquire).as_ref() }
}

fn destination() -> Option<&'static Destination> {
    if LOGS[0].destination().is_none() {
        take_standard_error().ok()?;
    }
    LOGS[0].destination()
}

/// A child begins with writers of its own: see [`Sink::forget_writer`].
fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function stores atomics, which is safe in the child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(forget_writers)) };
    });
}

extern "C" fn forget_writers() {
    LOGS.iter().for_each(Sink::forget_writer);
    WAITING.store(false, Relaxed);
}
