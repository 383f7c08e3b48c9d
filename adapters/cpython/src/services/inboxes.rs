//! The native half of `bolide.publish` and `bolide.subscribe` (`bolide/publishing`): puts messages into the inboxes of processes
//! that listen, and takes them out of this process' own. It does not know about subscriptions. Every process that loads the
//! application may publish; workers and helpers listen.
//!
//! A process takes an inbox with its first subscription, and gives it back with its last.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bolide_contract::boot::Boot;
use bolide_memory::inboxes::{ChannelBit, InboxTable};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use super::inbox_packets::{
    MAX_CHANNEL_BYTES, MAX_INLINE_BYTES, MAX_MESSAGE_BYTES, MAX_PACKET_BYTES, Outgoing, Put, Taken, take, wake,
};
pub use super::inbox_places::note_end;
use super::inbox_places::{is_gone, miss, own, put, set_own, sockets, table};
use super::remote_channels::RemoteListener;
use super::{inbox_places, remote_channels};
use crate::messages::in_poll_time;

/// This worker drains or stops.
static IS_LEAVING: AtomicBool = AtomicBool::new(false);

/// Keeps what this process needs for messages. The prototype calls it once, after the services.
pub fn attach(boot: &Boot) {
    inbox_places::attach(boot);
    remote_channels::attach(boot.settings.services.distributed.publish_engine);
}

/// The worker drains or stops: threads that wait for messages look up. Any thread may call it.
pub fn note_leaving() {
    IS_LEAVING.store(true, Relaxed);
    if let Some([put, _]) = own().and_then(|number| sockets()?.get(number)) {
        wake(*put);
    }
}

fn inboxes(function: &str) -> PyResult<(&'static InboxTable<'static>, &'static [[RawFd; 2]])> {
    let Some((table, sockets)) = table().zip(sockets()) else {
        return Err(PyRuntimeError::new_err(format!(
            "bolide.{function}() needs a server with the option `publish`: write `publish = true` into its configuration"
        )));
    };
    if sockets.len() != table.count() {
        return Err(PyRuntimeError::new_err(format!(
            "bolide.{function}() can't reach the inboxes of `publish`. The server has logged the reason at its startup"
        )));
    }
    Ok((table, sockets))
}

fn checked(channel: &str) -> PyResult<ChannelBit> {
    if channel.is_empty() || channel.len() > MAX_CHANNEL_BYTES {
        let bytes = channel.len();
        return Err(PyValueError::new_err(format!("the name of a channel has 1 to {MAX_CHANNEL_BYTES} bytes, not {bytes}")));
    }
    Ok(ChannelBit::of(channel.as_bytes()))
}

/// Puts a message into the inbox of each process that listens to this channel, without waiting. Returns the number of inboxes
/// that have it, and whether this process' own had no room: the caller empties it, and calls again with `only_own`.
#[pyfunction]
fn publish_message(py: Python<'_>, channel: &str, data: &Bound<'_, PyAny>, only_own: bool) -> PyResult<(u32, bool)> {
    let (table, sockets) = inboxes("publish")?;
    let bit = checked(channel)?;
    if let Ok(text) = data.cast::<PyString>() {
        return publish(
            py,
            table,
            sockets,
            &Publication { channel, bit, data: text.to_str()?.as_bytes(), is_text: true, only_own },
        );
    }
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return publish(py, table, sockets, &Publication { channel, bit, data: bytes.as_bytes(), is_text: false, only_own });
    }
    if let Ok(bytes) = data.cast::<PyByteArray>() {
        return publish(py, table, sockets, &Publication { channel, bit, data: &bytes.to_vec(), is_text: false, only_own });
    }
    let kind = data.get_type().name()?;
    Err(PyTypeError::new_err(format!("a message is bytes or str, not {kind}")))
}

struct Publication<'a> {
    channel: &'a str,
    bit: ChannelBit,
    data: &'a [u8],
    is_text: bool,
    only_own: bool,
}

fn publish(py: Python<'_>, table: &InboxTable<'_>, sockets: &[[RawFd; 2]], message: &Publication<'_>) -> PyResult<(u32, bool)> {
    let bytes = message.data.len();
    if bytes > MAX_MESSAGE_BYTES {
        return Err(PyValueError::new_err(format!("{bytes} bytes are too many for a message: the most are {MAX_MESSAGE_BYTES}")));
    }
    if !message.only_own {
        table.note_published();
    }
    let mut outgoing = None;
    let (mut reached, mut own_is_full) = (0, false);
    let own = own();
    for number in table.listeners(message.bit).filter(|number| !message.only_own || Some(*number) == own) {
        let Some([inbox, _]) = sockets.get(number) else { continue };
        let outgoing = match &mut outgoing {
            Some(outgoing) => outgoing,
            // A memory file is made only if a process listens. Other threads run while a long message is copied.
            None if bytes > MAX_INLINE_BYTES => {
                outgoing.insert(py.detach(|| Outgoing::new(message.channel.as_bytes(), message.data, message.is_text))?)
            }
            None => outgoing.insert(Outgoing::new(message.channel.as_bytes(), message.data, message.is_text)?),
        };
        if put(table, number, *inbox, outgoing)? == Put::Done {
            reached += 1;
        } else if Some(number) == own && !message.only_own {
            own_is_full = true;
        } else {
            miss(table, number, *inbox, message.bit);
        }
    }
    if remote_channels::is_used() && !message.only_own {
        publish_to_others(py, message)?;
    }
    Ok((reached, own_is_full))
}

/// Sends a message to the instances of other machines.
fn publish_to_others(py: Python<'_>, message: &Publication<'_>) -> PyResult<()> {
    let pack = || remote_channels::packed(message.channel, message.data, message.is_text);
    // Other threads run while a long message is copied.
    let packed = if message.data.len() > MAX_INLINE_BYTES { py.detach(pack) } else { pack() };
    if let Some(packed) = packed.map_err(PyRuntimeError::new_err)? {
        remote_channels::send(packed);
    }
    Ok(())
}

/// Waits until the messages of this process have got to the server of `publish`, for at most the time limits of its engine.
#[pyfunction]
fn finish_publishing(py: Python<'_>) {
    if let Some(sender) = remote_channels::own_sender() {
        py.detach(|| sender.finish());
    }
}

/// This process' own inbox.
#[pyclass(frozen, module = "bolide._native")]
pub struct Inbox {
    number: usize,
    pid: u32,
    sockets: [RawFd; 2],
    buffer: Mutex<Vec<u8>>,
    /// Listens to other machines, from the first channel on.
    remote: Mutex<Option<RemoteListener>>,
}

#[pymethods]
impl Inbox {
    /// Takes a place among the processes that listen.
    #[new]
    fn new() -> PyResult<Inbox> {
        let (table, sockets) = inboxes("subscribe")?;
        let pid = std::process::id();
        let number = table.claim(pid, is_gone).ok_or_else(|| {
            PyRuntimeError::new_err(format!("all {} inboxes are taken: other processes of this instance listen", table.count()))
        })?;
        let sockets = *sockets.get(number).ok_or_else(|| PyRuntimeError::new_err("the socket of the inbox is missing"))?;
        let inbox = Inbox { number, pid, sockets, buffer: Mutex::new(vec![0; MAX_PACKET_BYTES]), remote: Mutex::new(None) };
        // What publishers have sent to the last holder.
        while !matches!(take(sockets[1], &mut inbox.buffer())?, Taken::Nothing) {}
        set_own(Some(number));
        Ok(inbox)
    }

    /// The descriptor that is readable when there are messages.
    fn fileno(&self) -> RawFd {
        self.sockets[1]
    }

    /// Gives the place back.
    fn close(&self) {
        if let Some(table) = self.own_table() {
            if let Some(remote) = self.remote().take() {
                remote.end();
            }
            set_own(None);
            table.release(self.pid);
        }
    }

    /// Listens to this channel from now on. Returns the number of its bit.
    fn listen(&self, channel: &str) -> PyResult<u16> {
        let bit = checked(channel)?;
        if let Some(table) = self.own_table() {
            if remote_channels::is_used() {
                self.listen_to_others(channel)?;
            }
            table.listen(self.number, bit, true);
        }
        Ok(bit.number())
    }

    /// No longer listens to this channel. With `frees_bit`, no other channel of its bit is listened to.
    fn ignore(&self, channel: &str, frees_bit: bool) -> PyResult<()> {
        let bit = checked(channel)?;
        if let Some(table) = self.own_table() {
            if let Some(remote) = &*self.remote() {
                remote.ignore(channel);
            }
            if frees_bit {
                table.listen(self.number, bit, false);
            }
        }
        Ok(())
    }

    /// Takes up to this many messages out, as `(channel, data)`. An empty list: there are none.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let mut buffer = self.buffer();
        let mut list = Vec::new();
        while list.len() < most && own() == Some(self.number) {
            let (name, data) = match take(self.sockets[1], &mut buffer)? {
                Taken::Nothing => break,
                Taken::Other => continue,
                Taken::Lost { channel } => {
                    self.note_lost(&buffer[channel]);
                    continue;
                }
                Taken::Message { is_text, channel, data } => {
                    (buffer.get(channel), buffer.get(data).and_then(|data| object(py, data, is_text)))
                }
                Taken::InFile { is_text, channel, file } => {
                    if let Some(table) = table() {
                        table.note_file_taken(self.number);
                    }
                    (buffer.get(channel), content(py, &file, is_text)?)
                }
            };
            // Another build of the package would have another version, so this is what a stranger in the instance has written.
            let Some((Ok(name), data)) = name.map(std::str::from_utf8).zip(data) else { continue };
            list.push((name.to_owned(), data));
        }
        Ok(list)
    }

    /// How often messages of other machines may be missing, because the connection to the engine was interrupted.
    fn gaps(&self) -> u64 {
        remote_channels::gaps()
    }

    /// How many messages the inbox had no room for, of all channels.
    fn missed_of_all(&self) -> u64 {
        table().map_or(0, |table| table.missed_of_all(self.number))
    }

    /// How many messages of this channel the inbox had no room for, since the memory was made. Others of its group count too.
    fn missed(&self, channel: &str) -> PyResult<u64> {
        let bit = checked(channel)?;
        Ok(table().map_or(0, |table| table.missed(self.number, bit)))
    }

    /// Waits until the inbox or the descriptor `bell` is readable, at most this many seconds. Other threads run in the meantime.
    fn wait(&self, py: Python<'_>, bell: RawFd, seconds: Option<f64>) -> PyResult<()> {
        let most = seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let until = most.and_then(|most| Instant::now().checked_add(most));
        // SAFETY: no code closes the inbox, and the caller keeps the bell open.
        let descriptors = unsafe { [BorrowedFd::borrow_raw(self.sockets[1]), BorrowedFd::borrow_raw(bell)] };
        let mut waits = descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match py.detach(|| poll(&mut waits, in_poll_time(left))) {
                Ok(_) => return Ok(()),
                // Handlers of Python run now: one of them may end the process.
                Err(Errno::EINTR) => py.check_signals()?,
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }

    /// Whether this worker drains or stops.
    #[getter]
    fn is_leaving(&self) -> bool {
        IS_LEAVING.load(Relaxed)
    }
}

impl Inbox {
    /// The table, while the place is this object's: a child that the application has forked has a copy of its parent's object.
    fn own_table(&self) -> Option<&'static InboxTable<'static>> {
        table().filter(|_| own() == Some(self.number))
    }

    fn listen_to_others(&self, channel: &str) -> PyResult<()> {
        let mut remote = self.remote();
        if remote.is_none() {
            *remote = RemoteListener::start(self.number, self.sockets[0]).map_err(PyRuntimeError::new_err)?;
        }
        if let Some(remote) = &*remote {
            remote.listen(channel);
        }
        Ok(())
    }

    fn remote(&self) -> std::sync::MutexGuard<'_, Option<RemoteListener>> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory file of a message was lost.
    fn note_lost(&self, channel: &[u8]) {
        if let Some(table) = table() {
            table.note_file_taken(self.number);
            table.note_missed(self.number, ChannelBit::of(channel));
        }
    }
}

/// `None`: it is not the text that it claims to be.
fn object<'py>(py: Python<'py>, data: &[u8], is_text: bool) -> Option<Bound<'py, PyAny>> {
    if is_text {
        return Some(PyString::new(py, std::str::from_utf8(data).ok()?).into_any());
    }
    Some(PyBytes::new(py, data).into_any())
}

/// Reads a message out of its memory file.
fn content<'py>(py: Python<'py>, file: &File, is_text: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if bytes > MAX_MESSAGE_BYTES {
        return Ok(None);
    }
    if is_text {
        let mut text = vec![0; bytes];
        file.read_exact_at(&mut text, 0)?;
        return Ok(object(py, &text, true));
    }
    let bytes = PyBytes::new_with(py, bytes, |into| Ok(file.read_exact_at(into, 0)?))?;
    Ok(Some(bytes.into_any()))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Inbox>()?;
    module.add_function(wrap_pyfunction!(finish_publishing, module)?)?;
    module.add_function(wrap_pyfunction!(publish_message, module)?)
}
