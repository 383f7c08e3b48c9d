//! Reads what threads of this process do in Python, for `slow-request`: without the GIL, from its own memory, as `bolide trace`
//! reads another process. It also names the peers of sockets.
//!
//! It does not know about requests. The worker's thread that watches slow requests runs it.

use std::os::fd::RawFd;
use std::path::Path;

use bolide_engine::sampling::{CodePlace, Doing, Look, Sampler, Subject};
use bolide_inspection::frames::{Frame, Stack};
use bolide_inspection::greenlets::Greenlet;
use bolide_inspection::memory::Unreadable;
use bolide_inspection::own::{Holder, OwnThread};
use bolide_inspection::python::NoPython;
use bolide_inspection::trace::Reader;
use bolide_inspection::waits::Wait;
use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage, getpeername};

/// Directories of the interpreter's own library, and of installed packages.
const OF_PYTHON: &[&str] = &["/lib/python3", "/lib64/python3"];
const OF_PACKAGES: &[&str] = &["/site-packages/", "/dist-packages/"];
/// This package, wherever it is installed.
const OWN: &str = "/bolide/";

/// Files of asyncio with functions that wait for a socket.
const ASYNCIO_SOCKETS: &[&str] = &["/asyncio/streams.py", "/asyncio/selector_events.py"];
/// Attempts to read a task that changes in the meantime.
const MAX_ATTEMPTS: u32 = 4;

/// What runs the requests that an application keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Nothing,
    Task,
    Greenlet,
}

/// The interpreter of this process, found at the first look.
pub struct PythonSampler {
    kept: Kept,
    reader: Option<Result<Reader, String>>,
}

impl PythonSampler {
    pub fn new(kept: Kept) -> PythonSampler {
        PythonSampler { kept, reader: None }
    }
}

impl Sampler for PythonSampler {
    fn look(&mut self, subject: Subject) -> Result<Look, String> {
        let reader = self.reader.get_or_insert_with(|| Reader::own().map_err(|error| why_not(&error)));
        let reader = reader.as_ref().map_err(Clone::clone)?;
        let thread = || {
            let found = reader.own_thread(subject.thread).map_err(|error| why_not(&error))?;
            found.map(|thread| of_thread(&thread)).ok_or_else(|| "the thread has not run any Python code yet".to_owned())
        };
        match (self.kept, subject.task) {
            (Kept::Task, Some(task)) => of_task(reader, task, thread),
            (Kept::Greenlet, Some(greenlet)) => match (0..MAX_ATTEMPTS).find_map(|_| reader.own_greenlet(greenlet)) {
                Some(greenlet) => Ok(of_greenlet(&greenlet)),
                // It runs, or something else does before it has begun.
                None => thread(),
            },
            _ => thread(),
        }
    }
}

/// Looks at a task; `thread` looks at the thread of its loop.
fn of_task(reader: &Reader, task: u64, thread: impl Fn() -> Result<Look, String>) -> Result<Look, String> {
    let mut is_partial = false;
    for _ in 0..MAX_ATTEMPTS {
        let Some(found) = reader.own_task(task) else { continue };
        if found.is_running {
            return thread();
        }
        if found.stack.is_partial {
            is_partial = true;
            continue;
        }
        let (place, inner) = places(&found.stack);
        let doing = match found.awaits {
            what if what.is_empty() => Doing::WaitsForLoop { busy: thread().ok().filter(is_busy).and_then(|look| look.place) },
            what => match reads_socket(&found.stack).then(|| peer_of_stack(&found.stack)).flatten() {
                Some(peer) => Doing::WaitsForPeer { peer, call: "await".to_owned() },
                None => Doing::Awaits { what },
            },
        };
        return Ok(Look { place, inner, doing });
    }
    // Before 3.11 the frames of a task that runs are not told from others.
    let running = if is_partial { thread().ok().filter(is_busy) } else { None };
    let why = "the task changed while it was read, or this version of Python keeps tasks in an unknown place";
    running.ok_or_else(|| why.to_owned())
}

/// The loop's thread does something else than waiting for events.
fn is_busy(look: &Look) -> bool {
    !matches!(&look.doing, Doing::WaitsForPeer { call, .. } | Doing::Waits { call } if call == "epoll_wait")
}

fn of_greenlet(greenlet: &Greenlet) -> Look {
    let (place, inner) = places(&greenlet.stack);
    let call = greenlet.waits_for.strip_prefix("a socket (").and_then(|rest| rest.strip_suffix(')'));
    let doing = match (call, call.and_then(|_| peer_of_stack(&greenlet.stack))) {
        (Some(call), Some(peer)) => Doing::WaitsForPeer { peer, call: call.to_owned() },
        _ if greenlet.waits_for.is_empty() => Doing::Awaits { what: "another greenlet".to_owned() },
        _ => Doing::Awaits { what: greenlet.waits_for.clone() },
    };
    Look { place, inner, doing }
}

/// The innermost function of a task is one of asyncio's that wait for a socket.
fn reads_socket(stack: &Stack) -> bool {
    stack.frames.first().is_some_and(|frame| ASYNCIO_SOCKETS.iter().any(|file| frame.file.ends_with(file)))
}

/// The other end of the socket that a task or greenlet has at hand, if it is connected.
fn peer_of_stack(stack: &Stack) -> Option<String> {
    getpeername::<SockaddrStorage>(stack.descriptor?).ok().map(|address| peer_name(&address))
}

fn why_not(error: &NoPython) -> String {
    match error {
        NoPython::Unreadable(Unreadable::Forbidden) => {
            "the worker may not read its own memory; allow `process_vm_readv` in the seccomp filter".to_owned()
        }
        NoPython::Unreadable(_) => "the stack changed while it was read".to_owned(),
        NoPython::NotFound => "the interpreter was not found in the worker's memory".to_owned(),
        NoPython::Unsupported(why) => format!("stacks of this Python can't be read: {why}"),
    }
}

fn of_thread(thread: &OwnThread) -> Look {
    let (place, inner) = places(&thread.stack);
    Look { place, inner, doing: doing(thread) }
}

fn doing(thread: &OwnThread) -> Doing {
    if thread.waits_for_gil {
        return match &thread.holder {
            Some(Holder { stack, wait }) => Doing::WaitsForLanguage {
                holder: stack.frames.first().map(place_of),
                call: wait.as_ref().map(|wait| wait.call.clone()),
            },
            None => Doing::WaitsForLanguage { holder: None, call: None },
        };
    }
    match &thread.wait {
        Some(wait) if !thread.is_running => match peer(wait) {
            Some(peer) => Doing::WaitsForPeer { peer, call: wait.call.clone() },
            None if thread.holds_gil => Doing::WaitsAndHolds { call: wait.call.clone() },
            None => Doing::Waits { call: wait.call.clone() },
        },
        _ => Doing::Runs,
    }
}

/// The innermost line of the application, and the innermost one of all if that is another one. Without its own code, installed
/// packages count as the application: it may be installed itself.
pub fn places(stack: &Stack) -> (Option<CodePlace>, Option<CodePlace>) {
    let frames = &stack.frames;
    let is_python =
        |frame: &&Frame| OF_PYTHON.iter().any(|directory| frame.file.contains(directory)) || frame.file.starts_with('<');
    let is_package = |frame: &&Frame| OF_PACKAGES.iter().any(|directory| frame.file.contains(directory));
    let own = frames.iter().find(|frame| !is_python(frame) && !is_package(frame));
    let packaged = || frames.iter().find(|frame| is_package(frame) && !frame.file.contains(OWN));
    let place = own.or_else(packaged).or(frames.first());
    let inner = frames.first().filter(|first| place.is_some_and(|place| !std::ptr::eq(*first, place)));
    (place.map(place_of), inner.map(place_of))
}

pub fn place_of(frame: &Frame) -> CodePlace {
    CodePlace { file: frame.file.clone(), line: frame.line, function: frame.function.clone() }
}

/// The other end of the descriptor that a call waits for: `127.0.0.1:5432`, the path of a UNIX socket; or what else it is, such
/// as `a pipe`. `None`: there is no such descriptor.
fn peer(wait: &Wait) -> Option<String> {
    let descriptor = wait.descriptor?;
    match getpeername::<SockaddrStorage>(descriptor) {
        Ok(address) => Some(peer_name(&address)),
        Err(_) => Some(kind_of(descriptor)),
    }
}

fn peer_name(address: &SockaddrStorage) -> String {
    if address.family() != Some(AddressFamily::Unix) {
        return address.to_string();
    }
    let unix = address.as_unix_addr();
    let path = unix.and_then(nix::sys::socket::UnixAddr::path).map(Path::to_string_lossy);
    match (path, unix.and_then(nix::sys::socket::UnixAddr::as_abstract)) {
        (Some(path), _) => path.into_owned(),
        (None, Some(name)) => format!("@{}", String::from_utf8_lossy(name)),
        (None, None) => "a UNIX socket without a name".to_owned(),
    }
}

/// What a descriptor without a peer is.
fn kind_of(descriptor: RawFd) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_default();
    let link = link.to_string_lossy();
    match link.split_once(':') {
        Some(("socket", _)) => "a socket that is not connected".to_owned(),
        Some(("pipe", _)) => "a pipe".to_owned(),
        Some(("anon_inode", kind)) => kind.trim_matches(['[', ']']).to_owned(),
        _ if link.is_empty() => format!("descriptor {descriptor}"),
        _ => link.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(files: &[&str]) -> Stack {
        let frame =
            |(line, file): (i64, &&str)| Frame { file: (*file).to_owned(), line, function: "f".to_owned(), locals: Vec::new() };
        Stack { frames: (1..).zip(files).map(frame).collect(), ..Stack::default() }
    }

    #[test]
    fn the_innermost_line_of_the_application_counts() {
        let python = "/usr/lib/python3.11/socket.py";
        let package = "/srv/venv/lib/python3.11/site-packages/psycopg/wait.py";
        let own = "/srv/venv/lib/python3.11/site-packages/bolide/threads.py";
        for (files, place, inner) in [
            (&[python, package, "/srv/app.py", own][..], Some(3), Some(1)),
            (&["/srv/app.py"], Some(1), None),
            (&[python, package, own], Some(2), Some(1)),
            (&[own], Some(1), None),
            (&["<frozen importlib>", python], Some(1), None),
            (&[], None, None),
        ] {
            let (found, further) = places(&stack(files));
            assert_eq!((found.map(|place| place.line), further.map(|place| place.line)), (place, inner), "{files:?}");
        }
    }
}
