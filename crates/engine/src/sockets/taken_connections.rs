//! Connections that applications have taken over in the middle of a call, to speak another protocol on them: which calls hold
//! them, and how they end when the worker exits.
//!
//! A thread in such a call does not read orders, and neither does the library of the application in which it waits. So a thread
//! without the interpreter, the attendant, looks after these connections, and exists only while there are some. Some seconds
//! after the order to end, it ends the input of their clients, which libraries take for a client that has left. If a connection
//! speaks TLS, it carries the bytes ([`TlsBridge`]). Python 3.12 and later warn an application that forks (`os.fork()`) about any
//! other thread, so about this one too. It does not hold a lock that a child could need, as a child never runs this code.
//!
//! It does not know about protocols or languages. Workers run it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bolide_contract::clock::now_ms;
use bolide_scoreboard::{Recorder, Row};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::logging::access_log::complain;
use crate::sockets::socket;
use crate::sockets::tls::TlsStream;
use crate::sockets::tls_bridge::TlsBridge;

/// How often the attendant reads the orders to the worker, in milliseconds: no bell rings for them.
const LOOK_MS: u16 = 100;

/// Milliseconds for which a call may still read from its client after the order to stop or to drain: the same as for a stream at
/// shutdown. Such a connection might never end by itself, so a reload can't wait for it either.
const INPUT_MS: u64 = 3_000;

/// Size of the thread's stack in bytes: it calls the TLS library, and no application.
const STACK_BYTES: usize = 512 * 1024;

/// How long a worker that exits waits for the last bytes of bridges whose application has closed, in milliseconds.
const LAST_BYTES_MS: u64 = 1_000;

/// A worker's record of them. It lives as long as the process.
pub struct TakenConnections {
    row: &'static Row,
    worker: u32,
    /// How many threads serve.
    threads: usize,
    state: Mutex<State>,
    /// Rings when a bridge is new, or the worker exits.
    bell: EventFd,
    /// It was logged that no thread is left.
    has_warned: AtomicBool,
    /// Notified when bridges have ended.
    settled: Condvar,
}

#[derive(Default)]
struct State {
    /// Calls that hold a connection.
    calls: Vec<HeldCall>,
    /// Bridges that the attendant has not seen yet.
    arrivals: Vec<TlsBridge>,
    last_id: u64,
    attendance: Attendance,
}

/// Whether the thread exists.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Attendance {
    #[default]
    Absent,
    Present,
    /// As present, and the worker waits for the last bytes of bridges that applications have closed.
    Finishing,
}

struct HeldCall {
    id: u64,
    began_ms: u64,
    /// The client's input ends when the worker exits. The reference does not keep the connection open.
    socket: Weak<OwnedFd>,
    end: InputEnd,
}

/// How the library in the call learns that there is no more input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputEnd {
    /// Its own protocol tells it, in the code that speaks that protocol.
    Told,
    Socket,
    Bridge,
    /// It was told.
    Done,
}

/// A call of the application that holds a connection, until it is dropped.
pub struct Held {
    of: &'static TakenConnections,
    id: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.lock().calls.retain(|call| call.id != self.id);
    }
}

impl TakenConnections {
    /// For a worker of this number, with this many threads.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new(row: &'static Row, worker: u32, threads: u32) -> std::io::Result<TakenConnections> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(TakenConnections {
            row,
            worker,
            threads: threads as usize,
            state: Mutex::default(),
            bell,
            has_warned: AtomicBool::new(false),
            settled: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call waits for its client in a protocol of this server, which ends in its own way.
    pub fn hold_call(&'static self, slot: Option<Recorder<'static>>) -> Held {
        let (held, _) = self.enter(Weak::new(), InputEnd::Told);
        self.warn_of_threads(slot);
        held
    }

    /// A call has the connection's own socket.
    ///
    /// # Errors
    /// Another thread can't be started.
    pub(crate) fn hold_socket(&'static self, socket: &Arc<OwnedFd>, slot: Option<Recorder<'static>>) -> std::io::Result<Held> {
        let (held, attendance) = self.enter(Arc::downgrade(socket), InputEnd::Socket);
        self.start_attendant(attendance)?;
        self.warn_of_threads(slot);
        Ok(held)
    }

    /// A call has the other end of a pair, whose `inner` end is the bridge's; bytes from either end go to the other.
    ///
    /// # Errors
    /// Another thread can't be started.
    pub(crate) fn hold_bridge(
        &'static self,
        (socket, tls): (Arc<OwnedFd>, Box<TlsStream>),
        inner: OwnedFd,
        slot: Option<Recorder<'static>>,
    ) -> std::io::Result<Held> {
        let (held, attendance) = self.enter(Weak::new(), InputEnd::Bridge);
        self.lock().arrivals.push(TlsBridge::new(held.id, socket, tls, inner));
        self.start_attendant(attendance)?;
        self.ring();
        self.warn_of_threads(slot);
        Ok(held)
    }

    fn enter(&'static self, socket: Weak<OwnedFd>, end: InputEnd) -> (Held, Attendance) {
        let mut state = self.lock();
        state.last_id += 1;
        let id = state.last_id;
        state.calls.push(HeldCall { id, began_ms: now_ms(), socket, end });
        let before = state.attendance;
        if end != InputEnd::Told && before == Attendance::Absent {
            state.attendance = Attendance::Present;
        }
        (Held { of: self, id }, before)
    }

    /// Starts the thread if there was none.
    fn start_attendant(&'static self, before: Attendance) -> std::io::Result<()> {
        if before != Attendance::Absent {
            return Ok(());
        }
        // The kernel keeps 15 bytes of a thread's name.
        let name = "taken sockets".to_owned();
        let started = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(|| self.attend());
        if let Err(error) = started {
            let mut state = self.lock();
            state.attendance = Attendance::Absent;
            state.arrivals.clear();
            return Err(error);
        }
        Ok(())
    }

    fn ring(&self) {
        // A full counter has rung already.
        let _ = self.bell.write(1);
    }

    /// Logs once that calls which last as long as their clients hold all threads.
    fn warn_of_threads(&self, slot: Option<Recorder<'static>>) {
        if self.lock().calls.len() < self.threads || self.has_warned.swap(true, Relaxed) {
            return;
        }
        let what = slot.and_then(|slot| slot.look()).map_or_else(|| "a request".to_owned(), |seen| seen.text);
        let threads =
            if self.threads == 1 { "the only thread".to_owned() } else { format!("the last of {} threads", self.threads) };
        let more = self.threads + 1;
        let text = format!(
            "{what} has taken over its connection and holds {threads}: this worker can't serve other requests until one of these \
                connections closes; each of them needs a thread, so use more threads (`threads = {more}` or more)"
        );
        complain(self.worker, &text);
    }

    /// Looks after the connections, until there are none.
    fn attend(&'static self) {
        let mut bridges: Vec<TlsBridge> = Vec::new();
        let mut buffer = Vec::new();
        loop {
            let attendance = self.take_arrivals(&mut bridges);
            if attendance == Attendance::Absent {
                return;
            }
            self.end_late_input(&mut bridges);
            wait(&self.bell, &mut bridges);
            for bridge in &mut bridges {
                bridge.carry(now_ms(), &mut buffer);
            }
            bridges.retain(|bridge| !bridge.is_over());
            // This round has seen every bridge that was closed before the worker began to wait for the last bytes.
            if attendance == Attendance::Finishing && !bridges.iter().any(TlsBridge::is_behind) {
                self.lock().attendance = Attendance::Present;
                self.settled.notify_all();
            }
        }
    }

    /// Returns `Absent` if there is nothing to look after any more.
    fn take_arrivals(&self, bridges: &mut Vec<TlsBridge>) -> Attendance {
        let mut state = self.lock();
        bridges.append(&mut state.arrivals);
        if bridges.is_empty() && !state.calls.iter().any(|call| call.end != InputEnd::Told) {
            state.attendance = Attendance::Absent;
            self.settled.notify_all();
        }
        state.attendance
    }

    /// Ends the input of calls that continue too long after the order to end. Bytes that have arrived already are still read.
    fn end_late_input(&self, bridges: &mut [TlsBridge]) {
        let orders = [&self.row.stopped_ms, &self.row.drained_ms];
        let told_ms = orders.into_iter().map(|told| told.load(Relaxed)).filter(|told| *told != 0).min();
        let Some(told_ms) = told_ms else { return };
        let (now, mut count) = (now_ms(), 0);
        for call in &mut self.lock().calls {
            if now < told_ms.max(call.began_ms) + INPUT_MS {
                continue;
            }
            match call.end {
                InputEnd::Told | InputEnd::Done => continue,
                // A connection that is gone was closed in the meantime.
                InputEnd::Socket => call.socket.upgrade().into_iter().for_each(|socket| socket::end_reading(socket.as_fd())),
                InputEnd::Bridge => {
                    bridges.iter_mut().filter(|bridge| bridge.id() == call.id).for_each(TlsBridge::end_input);
                }
            }
            call.end = InputEnd::Done;
            count += 1;
        }
        if count > 0 {
            let seconds = INPUT_MS / 1000;
            let text = format!(
                "connections that applications have taken over, still open {seconds} s after the order to end, are no longer \
                    read: {count}"
            );
            complain(self.worker, &text);
        }
    }

    /// The worker exits: bytes that applications have written before they closed are sent first, within a bound.
    pub fn finish(&self) {
        let mut state = self.lock();
        if state.attendance == Attendance::Absent {
            return;
        }
        state.attendance = Attendance::Finishing;
        self.ring();
        let most = Duration::from_millis(LAST_BYTES_MS);
        let waits = |state: &mut State| state.attendance == Attendance::Finishing;
        drop(self.settled.wait_timeout_while(state, most, waits));
    }
}

/// Waits until one of them has events, or it is time to read the orders.
fn wait(bell: &EventFd, bridges: &mut [TlsBridge]) {
    let mut watched = vec![PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
    for bridge in bridges.iter() {
        for (descriptor, wanted) in bridge.interest().into_iter().flatten() {
            watched.push(PollFd::new(descriptor, wanted));
        }
    }
    let timeout = if bridges.iter().any(TlsBridge::has_more) { PollTimeout::ZERO } else { PollTimeout::from(LOOK_MS) };
    // All of them are checked next, whatever ended the wait.
    let _ = poll(&mut watched, timeout);
    // A bell that has not rung has nothing to read.
    let _ = bell.read();
}
