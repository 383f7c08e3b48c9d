//! uWSGI's signals in one process: it raises and registers them, and finds those that it must handle. These come from the master,
//! as orders for this process, or from pipes that several processes read (pools): whichever is free takes one.
//!
//! It knows neither the handlers nor the event loop. Workers and helpers use it, on every thread.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bolide_contract::clock::now_ms;
use bolide_contract::message::{self, Order, Received, Report};
use bolide_contract::uwsgi_signals::{MAX_PENDING, REGISTRATIONS_BYTES};
use bolide_scoreboard::{Recorder, Row};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// How long a registration waits for the master to read earlier reports, in milliseconds.
const REPORT_MS: u16 = 5_000;
/// A thread that waits for a signal looks this often whether the process must end, in milliseconds.
const LOOK_MS: u16 = 100;
/// Orders that are kept for the event loop while no event loop runs.
const MAX_KEPT: usize = 64;

/// The process' end of its signals.
pub struct SignalPort {
    control: OwnedFd,
    row: &'static Row,
    inbox: Mutex<Inbox>,
    /// Rings when another thread has put a signal into the inbox, for threads that wait.
    bell: OnceLock<EventFd>,
    /// What reads the orders, as soon as an event loop runs or a helper works.
    reader: OnceLock<Box<dyn OrderReader>>,
    /// The process takes signals from its pools.
    is_taking: AtomicBool,
}

/// Reads orders for a thread that is inside a call.
pub trait OrderReader: Send + Sync {
    /// Reads the pending orders. Returns whether the process must end.
    fn read_orders(&self) -> bool;
}

#[derive(Default)]
struct Inbox {
    own: VecDeque<u8>,
    pools: Vec<Arc<OwnedFd>>,
    /// Orders that were read before the event loop ran.
    kept: VecDeque<(Order, Option<OwnedFd>)>,
    is_told_to_end: bool,
}

/// The result of a wait for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    Signal(u8),
    /// The process must end.
    End,
    /// The time is over.
    Nothing,
}

impl SignalPort {
    /// `control` is a copy of the process' control socket.
    pub fn new(control: OwnedFd, row: &'static Row) -> SignalPort {
        SignalPort {
            control,
            row,
            inbox: Mutex::default(),
            bell: OnceLock::new(),
            reader: OnceLock::new(),
            is_taking: AtomicBool::new(true),
        }
    }

    /// Raises a signal. It is dropped, and counted, if the master has not heard of [`MAX_PENDING`] before it.
    pub fn raise(&self, number: u8) {
        let waiting = self.row.signals_raised.load(Relaxed).wrapping_sub(self.row.signals_heard.load(Relaxed));
        let is_sent = waiting < MAX_PENDING && message::send(self.control.as_fd(), &Report::Signaled { number }, None).is_ok();
        let counter = if is_sent { &self.row.signals_raised } else { &self.row.signals_dropped };
        counter.fetch_add(1, Relaxed);
    }

    /// Reports registrations to the master: `Registrations` as JSON.
    ///
    /// # Errors
    /// The master is gone or does not read, or no memory is left.
    pub fn register(&self, registrations: &[u8]) -> io::Result<()> {
        report_registrations(self.control.as_fd(), registrations)
    }

    /// Puts a signal into the inbox, as ordered.
    pub fn put(&self, number: u8) {
        self.lock().own.push_back(number);
        if let Some(bell) = self.bell.get() {
            // A full counter has rung already.
            let _ = bell.write(1);
        }
    }

    /// Takes signals from this pipe from now on.
    pub fn join_pool(&self, pipe: OwnedFd) {
        self.lock().pools.push(Arc::new(pipe));
    }

    /// Calls `act` for the pipe of each pool.
    pub fn for_each_pool(&self, mut act: impl FnMut(BorrowedFd<'_>)) {
        self.lock().pools.iter().for_each(|pool| act(pool.as_fd()));
    }

    /// The pipes of its pools, to wait on.
    pub fn pools(&self) -> Vec<Arc<OwnedFd>> {
        self.lock().pools.clone()
    }

    /// Sets whether the process takes signals from its pools; those for it alone it takes in any case.
    pub fn take_from_pools(&self, takes: bool) {
        self.is_taking.store(takes, Relaxed);
    }

    /// Whether a signal for this process alone waits.
    pub fn has_own(&self) -> bool {
        !self.lock().own.is_empty()
    }

    /// Returns the next signal, if one waits.
    pub fn take(&self) -> Option<u8> {
        let mut inbox = self.lock();
        if let Some(number) = inbox.own.pop_front() {
            self.row.signals_taken.fetch_add(1, Relaxed);
            return Some(number);
        }
        if !self.is_taking.load(Relaxed) {
            return None;
        }
        let mut byte = [0];
        inbox.pools.iter().find_map(|pool| (nix::unistd::read(pool, &mut byte) == Ok(1)).then_some(byte[0]))
    }

    /// Counts a signal whose handler is called.
    pub fn note_call(&self) {
        self.row.signals.fetch_add(1, Relaxed);
    }

    /// Runs a handler, and shows it in the thread's slot in the meantime: `harakiri` counts its time. Returns its result.
    pub fn run<R>(&self, number: u8, slot: &Recorder<'_>, handler: impl FnOnce() -> R) -> R {
        self.note_call();
        let mut digits = [0; 3];
        slot.begin(now_ms(), &[b"signal ", in_digits(number, &mut digits)]);
        let result = handler();
        slot.end();
        result
    }

    /// Waits for a signal, up to `most_ms`; `None` is without a limit. The language must not be held.
    ///
    /// # Errors
    /// The error of `poll`, `eventfd` or `recvmsg`.
    pub fn wait(&self, most_ms: Option<u64>) -> io::Result<Waited> {
        let until_ms = most_ms.map(|most_ms| now_ms().saturating_add(most_ms));
        let bell = self.bell()?;
        loop {
            let is_told_to_end = self.read_orders()?;
            if let Some(number) = self.take() {
                return Ok(Waited::Signal(number));
            }
            if is_told_to_end {
                return Ok(Waited::End);
            }
            let left_ms = until_ms.map_or(u64::MAX, |until_ms| until_ms.saturating_sub(now_ms()));
            if left_ms == 0 {
                return Ok(Waited::Nothing);
            }
            self.sleep(bell, left_ms.min(u64::from(LOOK_MS)) as u16)?;
        }
    }

    /// An event loop, or the helper's own code, reads the orders from now on.
    pub fn set_reader(&self, reader: Box<dyn OrderReader>) {
        // A process is one worker, so this is called once.
        let _ = self.reader.set(reader);
    }

    /// Whether orders or signals came before the event loop ran.
    pub(crate) fn has_news(&self) -> bool {
        let inbox = self.lock();
        !inbox.kept.is_empty() || !inbox.own.is_empty()
    }

    /// Returns the next order that was read before the event loop ran.
    pub(crate) fn next_kept(&self) -> Option<(Order, Option<OwnedFd>)> {
        self.lock().kept.pop_front()
    }

    fn bell(&self) -> io::Result<&EventFd> {
        if self.bell.get().is_none() {
            let _set_by_another_thread = self.bell.set(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        }
        self.bell.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sleep(&self, bell: &EventFd, most_ms: u16) -> io::Result<()> {
        let pools = if self.is_taking.load(Relaxed) { self.pools() } else { Vec::new() };
        let mut waits = vec![PollFd::new(self.control.as_fd(), PollFlags::POLLIN), PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        waits.extend(pools.iter().map(|pool| PollFd::new(pool.as_fd(), PollFlags::POLLIN)));
        match poll(&mut waits, PollTimeout::from(most_ms)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let _may_be_empty = bell.read();
        Ok(())
    }

    /// Reads the pending orders, or has the event loop read them. Returns whether the process must end.
    fn read_orders(&self) -> io::Result<bool> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader.read_orders());
        }
        loop {
            if self.lock().is_told_to_end {
                return Ok(true);
            }
            let mut inbox = self.lock();
            if inbox.kept.len() >= MAX_KEPT {
                return Ok(false);
            }
            match message::receive::<Order>(self.control.as_fd())? {
                Received::Message(Order::Signal { number }, _) => inbox.own.push_back(number),
                Received::Message(Order::JoinPool { .. }, Some(pipe)) => inbox.pools.push(Arc::new(pipe)),
                Received::Message(order, descriptor) => {
                    inbox.is_told_to_end = matches!(order, Order::Stop | Order::Drain { .. } | Order::Succeed);
                    inbox.kept.push_back((order, descriptor));
                }
                Received::Nothing => return Ok(false),
                // The event loop finds the end too.
                Received::End => inbox.is_told_to_end = true,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends registrations over a control socket.
///
/// # Errors
/// The master is gone or does not read, or no memory is left.
pub fn report_registrations(control: BorrowedFd<'_>, registrations: &[u8]) -> io::Result<()> {
    if registrations.len() > REGISTRATIONS_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many registrations of signals"));
    }
    let mut memory = File::from(memfd_create(c"bolide-signals", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    memory.write_all(registrations)?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(memory.as_fd(), FcntlArg::F_ADD_SEALS(seals))?;
    match message::send(control, &Report::Registered, Some(memory.as_raw_fd())) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        result => return result,
    }
    // The master reads quickly; only a flood of reports fills the socket.
    poll(&mut [PollFd::new(control, PollFlags::POLLOUT)], PollTimeout::from(REPORT_MS))?;
    message::send(control, &Report::Registered, Some(memory.as_raw_fd()))
}

fn in_digits(number: u8, digits: &mut [u8; 3]) -> &[u8] {
    *digits = [b'0' + number / 100, b'0' + number / 10 % 10, b'0' + number % 10];
    let leading = digits.iter().take(2).take_while(|digit| **digit == b'0').count();
    &digits[leading..]
}
