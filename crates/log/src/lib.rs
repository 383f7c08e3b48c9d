//! The log writer of master, prototype and workers: for their own lines, request lines, and what applications write to standard
//! error. It writes whole lines and never blocks.
//!
//! The log is a descriptor of our own above 2, so that an application that closes descriptor 2 does not send our lines into a
//! client's socket. If the kernel allows it, it has an open file description of its own, which is non-blocking while the
//! application's standard error stays as it was. Lines that are not accepted wait in memory, up to [`MAX_WAITING_BYTES`].
//! Others are dropped and counted, and the log reports their number when it accepts lines again. The same is true of a
//! destination out of reach that the master opens again.
//!
//! The log itself has number 0; the loggers of the settings have the numbers after it, and `flow` decides which line goes to
//! which.
//!
//! A caller writes with [`write`]. A process with an event loop calls [`flush`] after [`retry_ms`]. The
//! crate does not know formats. The caller decides what a line says, and that no client can forge one. Every process runs it.

pub mod alarms;
pub mod dates;
mod destination;
mod flow;
mod form;
pub mod identity;
pub mod json;
mod level;
pub mod losses;
mod packing;
mod pattern;
mod sink;
mod writer;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{MutexGuard, Once, OnceLock};
use std::time::{Duration, Instant};

use bolide_contract::logging::{LogPlace, Logging, MAX_LOGS};
use destination::Destination;
pub use level::Level;
use sink::Sink;
pub use writer::MAX_WAITING_BYTES;
use writer::Writer;

/// Time after which waiting lines are tried again by a process that has nothing else to write, in milliseconds.
const RETRY_MS: u64 = 50;
/// The same if all of them wait for a destination that is out of reach.
const AWAY_RETRY_MS: u64 = 1000;

/// Time for which the end of a process waits until its last lines are accepted, in milliseconds.
const MAX_FINISH_MS: u64 = 500;

/// All logs, the log itself first.
static LOGS: [Sink; MAX_LOGS] = [const { Sink::new() }; MAX_LOGS];
/// A copy of standard error, if the master captures the output.
static RAW: OnceLock<OwnedFd> = OnceLock::new();
/// The milliseconds after which waiting lines are tried again; 0 if none are waiting.
static WAITING: AtomicU64 = AtomicU64::new(0);

/// Makes the present descriptor 2 the log. The master calls it, before it starts anything and after each change of that
/// descriptor.
///
/// # Errors
/// Descriptor 2 is not open, or no descriptor is left.
pub fn take_standard_error() -> io::Result<()> {
    LOGS[0].install(Destination::of_standard_error()?);
    Ok(())
}

/// Uses a log that the parent has opened. The prototype calls it, whose user may not be allowed to open it. Workers inherit the
/// log by fork.
///
/// # Errors
/// The descriptor is not open.
pub fn inherit(descriptor: OwnedFd) -> io::Result<()> {
    LOGS[0].install(Destination::of(descriptor)?);
    Ok(())
}

/// Uses an open descriptor as the log with a number above 0. The master calls it, and a prototype that has inherited the
/// descriptor.
///
/// # Errors
/// The descriptor is not open, or there are [`MAX_LOGS`] logs already.
pub fn take_target(number: usize, descriptor: OwnedFd) -> io::Result<()> {
    let sink = LOGS.get(number).ok_or_else(|| io::Error::other(format!("the maximum is {MAX_LOGS} logs")))?;
    sink.install(Destination::of(descriptor)?);
    Ok(())
}

/// Replaces the file, pipe or datagram socket of the log with this number, in this process. Lines that waited are written there.
///
/// # Errors
/// There is no such log, or its file is of another kind.
pub fn replace(number: usize, file: &OwnedFd) -> io::Result<()> {
    replace_and_say(number, file, None)
}

/// [`replace`], with a message as the first line that goes there.
///
/// # Errors
/// As [`replace`].
pub fn replace_and_say(number: usize, file: &OwnedFd, text: Option<&str>) -> io::Result<()> {
    let sink = LOGS.get(number).ok_or_else(|| io::Error::other("there is no such log"))?;
    sink.replace(number, file)?;
    if let Some(mut writer) = text.and_then(|_| sink.writer(number)) {
        writer.put_first(&flow::framed(number, text.unwrap_or_default()));
        note_waiting(number, &writer);
    }
    flush();
    Ok(())
}

/// The descriptor of the log with this number.
pub fn descriptor_of(number: usize) -> Option<BorrowedFd<'static>> {
    Some(LOGS.get(number)?.destination()?.descriptor())
}

/// The log's descriptor, to pass it on. `None` if descriptor 2 is not open.
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    Some(destination()?.descriptor())
}

/// The descriptor for lines that a signal handler in C writes past this crate: the log, or the pipe to the master if that
/// captures the output. If the only log of messages is another file, it is that one. It is above 2.
pub fn raw_descriptor() -> Option<BorrowedFd<'static>> {
    let only = || LOGS[flow::current()?.messages.plain_log()?].destination().map(Destination::descriptor);
    RAW.get().map(AsFd::as_fd).or_else(only).or_else(descriptor)
}

/// The descriptors of the logs after the first, to pass them on.
pub fn targets() -> Vec<RawFd> {
    LOGS[1..].iter().map_while(|sink| Some(sink.destination()?.descriptor().as_raw_fd())).collect()
}

/// Whether the log is a terminal, and messages go there.
pub fn is_terminal() -> bool {
    flow::current().is_none_or(|flows| flows.messages.reaches(0))
        && descriptor().is_some_and(|descriptor| std::io::IsTerminal::is_terminal(&descriptor))
}

/// Whether lines of the log are colored: it is a terminal that can show colors and they are not turned off (no-color.org), or
/// colors are forced (force-color.org).
pub fn is_colored() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !is_set("NO_COLOR") && (is_set("FORCE_COLOR") || is_terminal() && !is_dumb)
}

/// Whether the configured form has colored lines.
pub fn colors_lines() -> bool {
    form::is_colored()
}

/// Sets the form and the flows of the settings. The master calls it at its start, and a prototype; workers inherit them.
pub fn configure(logging: &Logging) {
    if logging.takes_output() && RAW.get().is_none() {
        // Without the copy such lines go to the log as they are.
        let _ = io::stderr().as_fd().try_clone_to_owned().map(|copy| RAW.set(copy));
    }
    for (sink, target) in LOGS[1..].iter().zip(&logging.targets) {
        if let Some(packing) = &target.packing {
            sink.pack(packing);
        }
        // A descriptor that was inherited can't be opened again.
        sink.set_reopened(!matches!(target.place, LogPlace::Descriptor(_)));
    }
    LOGS[0].set_reopened(logging.file.is_some());
    flow::set(logging);
    // The form depends on whether messages reach the terminal.
    form::set(logging, is_terminal(), is_colored());
}

/// Writes whole lines of messages, each with its newline. Never blocks.
pub fn write(lines: &[u8]) {
    let formed = form::of_lines(lines, "message");
    write_messages(formed.as_deref().unwrap_or(lines));
}

/// Writes whole lines of the application or of another program: in JSON, one object of the type `output` a line.
pub fn write_output(lines: &[u8]) {
    let formed = form::of_lines(lines, form::OUTPUT);
    write_messages(formed.as_deref().unwrap_or(lines));
}

/// Writes the lines of one event of this process, such as a message and a stack: the first one gets the time, and in JSON they
/// are one object.
pub fn report(lines: &[u8]) {
    write_messages(&form::report(lines));
}

/// Writes an event of the form JSON, with more members of its object, each with a comma before it.
pub fn event(level: Level, kind: &str, message: &[u8], members: &[u8]) {
    let mut line = Vec::with_capacity(message.len() + members.len() + 128);
    form::event(&mut line, level, kind, message, members);
    write_messages(&line);
}

/// Writes an object that the caller has made with [`json`], with its newline.
pub fn write_object(object: &[u8]) {
    write_messages(object);
}

/// Whether each line is a JSON object.
pub fn is_json() -> bool {
    form::is_json()
}

/// Announces a stack that a signal handler in C writes next to [`raw_descriptor`]. In JSON the master puts the announcement,
/// which it reads from there, and the stack into one object; otherwise it is a line like any other. `worker` and `pid` are those
/// of the process that writes the stack.
pub fn announce_stack(worker: u32, pid: u32, text: &str, otherwise: impl FnOnce(&str)) {
    let announced = form::is_json()
        && RAW.get().is_some_and(|raw| {
            let line = format!("{}{pid} {worker} {}\n", char::from(STACK_FOLLOWS), text.replace('\n', " "));
            can_take(raw, line.len()) && nix::unistd::write(raw, line.as_bytes()).is_ok()
        });
    if !announced {
        otherwise(text);
    }
}

/// Begins the line of the captured output that announces a stack.
pub const STACK_FOLLOWS: u8 = 0x1e;

/// Whether a pipe accepts this number of bytes without waiting. The master must not wait for a pipe that it reads itself.
fn can_take(pipe: &OwnedFd, bytes: usize) -> bool {
    let mut poll_fds = [nix::poll::PollFd::new(pipe.as_fd(), nix::poll::PollFlags::POLLOUT)];
    let is_ready = matches!(nix::poll::poll(&mut poll_fds, nix::poll::PollTimeout::ZERO), Ok(1));
    is_ready && bytes <= destination::ATOMIC_BYTES
}

/// Writes whole lines of requests, which are formatted already.
pub fn write_requests(lines: &[u8]) {
    match flow::current() {
        None => write_to(0, lines),
        Some(flows) => {
            if flows.requests.is_none() {
                flows.alarms.look_at(NO_TAG, lines);
            }
            flows.deliver(flows.requests.as_ref().unwrap_or(&flows.messages), NO_TAG, lines, write_to);
        }
    }
}

/// Writes the last line of a process that is about to abort, without its writer, which the calling thread may have locked. The
/// part that would have to wait is lost.
pub fn write_last(line: &[u8]) {
    if let Some(destination) = destination() {
        let _ = destination.write(line);
    }
}

/// Writes `bolide: text` as one line, with the time before it.
pub fn line(text: &str) {
    write_messages(&framed(text));
}

/// The same for a line that uWSGI begins with a tag, such as `[uwsgi-cron]`: rules about lines see it with the tag in front, and
/// it is written without.
pub fn tagged_line(tag: &str, text: &str) {
    let line = framed(text);
    if let Some(flows) = flow::current() {
        flows.alarms.look_at(tag.as_bytes(), &line);
    }
    deliver_messages(tag.as_bytes(), &line);
}

/// The line that [`line`] writes, for [`write_last`].
pub fn framed(text: &str) -> Vec<u8> {
    form::message(text)
}

/// The milliseconds after which lines that are waiting are tried again by [`flush`], if no line is written in the meantime.
/// `None`: none are waiting.
pub fn retry_ms() -> Option<u64> {
    Some(WAITING.load(Relaxed)).filter(|milliseconds| *milliseconds > 0)
}

/// Writes waiting lines, as many as are accepted. It costs one load if none are waiting.
pub fn flush() {
    if retry_ms().is_none() {
        return;
    }
    let mut soonest_ms = 0;
    for (number, mut writer) in writers_in_use() {
        writer.flush();
        losses::count(number, writer.take_uncounted());
        soonest_ms = sooner(soonest_ms, retry_of(&writer));
    }
    WAITING.store(soonest_ms, Relaxed);
}

/// Writes waiting lines at the end of a process, and waits up to [`MAX_FINISH_MS`] until they are accepted. Those of a
/// destination that is out of reach, and those that are not accepted in time, are lost and counted.
pub fn finish() {
    let end = Instant::now() + Duration::from_millis(MAX_FINISH_MS);
    while retry_ms().is_some() {
        flush();
        let left = end.saturating_duration_since(Instant::now());
        let waiting = writers_in_use().find(|(_, writer)| writer.is_waiting() && !writer.is_away()).map(|(number, _)| number);
        let destination = waiting.and_then(|number| LOGS[number].destination());
        let Some(destination) = destination.filter(|_| !left.is_zero()) else { break };
        destination.wait_for_room(left);
    }
    for (number, mut writer) in writers_in_use().filter(|_| retry_ms().is_some()) {
        writer.give_up();
        losses::count(number, writer.take_uncounted());
    }
    WAITING.store(0, Relaxed);
}

fn writers_in_use() -> impl Iterator<Item = (usize, MutexGuard<'static, Writer>)> {
    LOGS.iter().enumerate().filter_map(|(number, sink)| Some((number, sink.writer_in_use(number)?)))
}

/// The milliseconds after which the lines of this log are tried again; 0 if none are waiting.
fn retry_of(writer: &Writer) -> u64 {
    match (writer.is_waiting(), writer.is_away()) {
        (false, _) => 0,
        (true, false) => RETRY_MS,
        (true, true) => AWAY_RETRY_MS,
    }
}

/// The sooner of two times, of which 0 is none.
fn sooner(one_ms: u64, other_ms: u64) -> u64 {
    if one_ms == 0 || other_ms == 0 { one_ms.max(other_ms) } else { one_ms.min(other_ms) }
}

/// Writes `bolide: text` as one line that does not raise alarms: a line about an alarm.
pub fn quiet_line(text: &str) {
    deliver_messages(NO_TAG, &framed(text));
}

fn write_messages(lines: &[u8]) {
    if lines.is_empty() {
        return;
    }
    if let Some(flows) = flow::current() {
        flows.alarms.look_at(NO_TAG, lines);
    }
    deliver_messages(NO_TAG, lines);
}

/// Lines of other kinds have no tag.
const NO_TAG: &[u8] = b"";

fn deliver_messages(tag: &[u8], lines: &[u8]) {
    match flow::current() {
        None => write_to(0, lines),
        Some(flows) => flows.deliver(&flows.messages, tag, lines, write_to),
    }
}

fn write_to(number: usize, lines: &[u8]) {
    watch_forks();
    if number == 0 && destination().is_none() {
        return;
    }
    let Some(mut writer) = LOGS.get(number).and_then(|sink| sink.writer(number)) else { return };
    writer.write(lines);
    note_waiting(number, &writer);
    losses::count(number, writer.take_uncounted());
}

/// Notes whether lines of this log are waiting. Those of another log may be: [`flush`] checks all logs.
fn note_waiting(number: usize, writer: &Writer) {
    let is_only = number == 0 && flow::current().is_none();
    if writer.is_waiting() || is_only {
        let others_ms = if is_only { 0 } else { WAITING.load(Relaxed) };
        WAITING.store(sooner(others_ms, retry_of(writer)), Relaxed);
    }
}

fn destination() -> Option<&'static Destination> {
    if LOGS[0].destination().is_none() {
        take_standard_error().ok()?;
    }
    LOGS[0].destination()
}

/// Gives a forked child writers of its own: see [`Sink::forget_writer`].
fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function stores atomics, which is safe in the child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(forget_writers)) };
    });
}

extern "C" fn forget_writers() {
    LOGS.iter().for_each(Sink::forget_writer);
    alarms::forget_lost();
    WAITING.store(0, Relaxed);
}
