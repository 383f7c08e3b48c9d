//! Messages for mules: sends them into the queues that the master has made, and takes them out. It knows neither mules nor the
//! content of a message. Every process that loads the application may send; mules receive.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bolide_contract::boot::{Boot, MessageQueueFiles};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, getsockopt, recvmsg, send, sendmsg,
    socketpair, sockopt,
};
use pyo3::exceptions::{PyIndexError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The outcome of sending, for Python.
const SENT: u32 = 0;
/// The queue has no room for it now.
const FULL: u32 = 1;
/// No queue of this size has room for it.
const TOO_LONG: u32 = 2;

/// The ends of a queue. The master keeps copies of both, so that neither ever reaches its end.
struct Queue {
    name: String,
    /// Its messages are calls: each carries the connection to its caller.
    has_calls: bool,
    put: RawFd,
    take: RawFd,
}

static QUEUES: OnceLock<Vec<Queue>> = OnceLock::new();

/// The result of a wait for a message.
pub enum Arrival {
    Message(Py<PyBytes>),
    /// A call to the queue of this number, with the connection to its caller.
    Call(usize, OwnedFd),
    /// The time is over.
    Nothing,
    /// There are orders to read, or signals to handle.
    Orders,
}

/// Keeps the queues of this instance. The prototype calls it once, and its children inherit them.
pub fn attach(boot: &Boot) {
    let queue = |files: &MessageQueueFiles| {
        let has_calls = files.name.starts_with("app ");
        Queue { name: files.name.clone(), has_calls, put: files.put, take: files.take }
    };
    QUEUES.get_or_init(|| boot.message_queues.iter().map(queue).collect());
}

/// Waits for a message in one of these queues, or for orders, or for signals of these pools. `bytes` is the most that is taken of
/// a message, whose rest is lost, as in uWSGI; `None` takes it whole.
pub fn receive(
    py: Python<'_>,
    queues: &[usize],
    orders: BorrowedFd<'_>,
    pools: &[Arc<OwnedFd>],
    bytes: Option<usize>,
    until: Option<Instant>,
) -> PyResult<Arrival> {
    let queues = queues.iter().map(|place| Ok((*place, queue(*place)?))).collect::<PyResult<Vec<(usize, &Queue)>>>()?;
    let mut waits = vec![PollFd::new(orders, PollFlags::POLLIN)];
    waits.extend(pools.iter().map(|pool| PollFd::new(pool.as_fd(), PollFlags::POLLIN)));
    let others = waits.len();
    // SAFETY: the prototype has taken over the descriptors, and no code of ours closes them.
    waits.extend(queues.iter().map(|(_, queue)| PollFd::new(unsafe { BorrowedFd::borrow_raw(queue.take) }, PollFlags::POLLIN)));
    loop {
        // Messages that wait already do not cost another system call.
        for (place, queue) in &queues {
            let arrival = match queue.has_calls {
                true => take_call(queue)?.map(|caller| Arrival::Call(*place, caller)),
                false => take(py, queue, bytes)?.map(Arrival::Message),
            };
            if let Some(arrival) = arrival {
                return Ok(arrival);
            }
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match py.detach(|| poll(&mut waits, in_poll_time(left))) {
            Ok(0) if left.is_some_and(|left| left.is_zero()) => return Ok(Arrival::Nothing),
            Ok(_) => {}
            // The handlers of Python run now: one of them may have read an order.
            Err(Errno::EINTR) => {
                py.check_signals()?;
                return Ok(Arrival::Orders);
            }
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        if waits[..others].iter().any(|wait| wait.any() == Some(true)) {
            return Ok(Arrival::Orders);
        }
    }
}

/// A time for poll(2), whose unit is a millisecond: no time left is none, and any other time is at least one.
pub fn in_poll_time(left: Option<Duration>) -> PollTimeout {
    left.map_or(PollTimeout::NONE, |left| {
        let milliseconds = i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)
    })
}

/// Takes a message. `None`: another mule was faster.
fn take(py: Python<'_>, queue: &Queue, bytes: Option<usize>) -> PyResult<Option<Py<PyBytes>>> {
    // SAFETY: as in `receive`.
    let put = unsafe { BorrowedFd::borrow_raw(queue.put) };
    // No message is longer than the buffer of its sender.
    let room = match bytes {
        Some(bytes) => bytes,
        None => getsockopt(&put, sockopt::SndBuf).map_err(io::Error::from)?,
    };
    let mut message = Vec::<u8>::new();
    message.try_reserve_exact(room).map_err(|_| PyMemoryError::new_err(format!("no {room} bytes for a message")))?;
    let received = loop {
        // SAFETY: the room for this many bytes is ours. The kernel writes to it, and only the bytes that it has written are read.
        match unsafe { libc::recv(queue.take, message.as_mut_ptr().cast(), room, libc::MSG_DONTWAIT) } {
            ..0 if Errno::last() == Errno::EINTR => {}
            ..0 if Errno::last() == Errno::EAGAIN => return Ok(None),
            ..0 => return Err(io::Error::last_os_error().into()),
            received => break received.cast_unsigned(),
        }
    };
    // SAFETY: the kernel has written this many bytes, at most the room that it was told.
    unsafe { message.set_len(received.min(room)) };
    Ok(Some(PyBytes::new(py, &message).unbind()))
}

/// Takes a call. `None`: there is none.
fn take_call(queue: &Queue) -> io::Result<Option<OwnedFd>> {
    loop {
        let mut byte = [0];
        let mut slices = [IoSliceMut::new(&mut byte)];
        let mut space = cmsg_space!([RawFd; 1]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(queue.take, &mut slices, Some(&mut space), flags) {
            // A call whose connection could not be taken (no descriptor is free) is lost, and its caller sees the end of it.
            Ok(received) => match received.cmsgs()?.next() {
                Some(ControlMessageOwned::ScmRights(descriptors)) if descriptors.len() == 1 => {
                    // SAFETY: the kernel has made the descriptor for this process, and no other code knows its number.
                    let caller = unsafe { OwnedFd::from_raw_fd(descriptors[0]) };
                    return Ok(Some(caller));
                }
                _ => {}
            },
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn queue(place: usize) -> PyResult<&'static Queue> {
    let found = QUEUES.get().and_then(|queues| queues.get(place));
    found.ok_or_else(|| PyIndexError::new_err(format!("there is no queue of messages {place}")))
}

/// The names of the queues, in the order of their numbers.
#[pyfunction]
fn message_queues() -> Vec<String> {
    QUEUES.get().map(|queues| queues.iter().map(|queue| queue.name.clone()).collect()).unwrap_or_default()
}

/// Puts a message into the queue of this number, without waiting. Returns the outcome.
#[pyfunction]
fn send_message(place: usize, message: &[u8]) -> PyResult<u32> {
    let queue = queue(place)?;
    loop {
        match send(queue.put, message, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => return Ok(SENT),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => return Ok(FULL),
            Err(Errno::EMSGSIZE) => return Ok(TOO_LONG),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
}

/// Puts a call into the queue of this number, without waiting. Returns the descriptor of the caller's end of its connection, or
/// None if the queue is full.
#[pyfunction]
fn send_call(place: usize) -> PyResult<Option<RawFd>> {
    let queue = queue(place)?;
    let pair = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).map_err(io::Error::from)?;
    let (near, far) = pair;
    let handed = [far.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&handed)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    loop {
        match sendmsg::<()>(queue.put, &[IoSlice::new(&[0])], &control, flags, None) {
            Ok(_) => return Ok(Some(near.into_raw_fd())),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MESSAGE_SENT", SENT)?;
    module.add("MESSAGE_FULL", FULL)?;
    module.add("MESSAGE_TOO_LONG", TOO_LONG)?;
    module.add_function(wrap_pyfunction!(message_queues, module)?)?;
    module.add_function(wrap_pyfunction!(send_message, module)?)?;
    module.add_function(wrap_pyfunction!(send_call, module)?)?;
    Ok(())
}
