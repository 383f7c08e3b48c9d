//! A helper's end of its control socket: it reports that the helper is ready, and receives the order to end. It does not know the
//! helper's work, which is the language's. A process that was forked as a helper runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bolide_contract::clock::now_ms;
use bolide_contract::message::{self, Order, Received, Report};
use bolide_engine::uwsgi_signals::SignalPort;
use bolide_engine::{MemoryTrim, own_bytes, trim_memory};
use bolide_scoreboard::{Scoreboard, Slot};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::assignment::ForkedAs;
use crate::handover::{close_on_exec, set_non_blocking};

/// A helper's view of its instance.
pub struct Helper {
    number: u32,
    name: String,
    control: OwnedFd,
    scoreboard: Scoreboard,
    row: u32,
    signals: Arc<SignalPort>,
    memory_trim: MemoryTrim,
    end: Option<End>,
}

/// Why a helper must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A successor takes its place: a reload, or its own replacement.
    Reload,
    /// The instance stops, or the master is gone.
    Stop,
}

impl Helper {
    /// Reports to the master that the helper is ready.
    pub(crate) fn begin(control: OwnedFd, scoreboard: Scoreboard, child: &ForkedAs, name: String) -> io::Result<Helper> {
        set_non_blocking(&control)?;
        close_on_exec(control.as_raw_fd())?;
        let pid = std::process::id();
        if let Some(row) = scoreboard.row(child.row) {
            row.worker.store(child.number, Relaxed);
            row.started_ms.store(now_ms(), Relaxed);
            row.pid.store(pid, Relaxed);
        }
        let end = match message::send(control.as_fd(), &Report::Serving { row: child.row, pid }, None) {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Some(End::Stop),
            result => result.map(|()| None)?,
        };
        let row = scoreboard.row(child.row).ok_or(io::ErrorKind::NotFound)?;
        let signals = Arc::new(SignalPort::new(control.try_clone()?, row));
        let mut memory_trim = MemoryTrim::default();
        memory_trim.note_baseline(own_bytes());
        Ok(Helper { number: child.number, name, control, scoreboard, row: child.row, signals, memory_trim, end })
    }

    /// Its number, from 1: its position in the settings' `helpers`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The numbers of the instance, and this helper's row in them.
    pub fn scoreboard(&self) -> (Scoreboard, u32) {
        (self.scoreboard, self.row)
    }

    /// Its end of uWSGI's signals.
    pub fn signals(&self) -> &Arc<SignalPort> {
        &self.signals
    }

    /// Its name in logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Readable when there is an order, for a helper that also waits for other events. [`Helper::is_to_end`] reads the order.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// A piece of work begins, for statistics and for its time limit. `text` says what it is.
    pub fn begin_work(&self, text: &str) {
        if let Some(slot) = self.scoreboard.recorder(self.row, 0) {
            // The master asks this thread for its stack if the work takes too long.
            slot.take(nix::unistd::gettid().as_raw().cast_unsigned());
            slot.begin(now_ms(), &[text.as_bytes()]);
        }
    }

    /// Limits the piece of work in progress to this time from now, in milliseconds; 0 leaves it the limit of the settings. False:
    /// there is none.
    pub fn limit_work(&self, milliseconds: u64) -> bool {
        let Some(slot) = self.scoreboard.slots(self.row).first() else { return false };
        let began_ms = slot.began_ms.load(Relaxed);
        let until_ms = now_ms().saturating_sub(began_ms).saturating_add(milliseconds);
        let limit_ms = u32::try_from(until_ms).unwrap_or(u32::MAX).min(Slot::UNLIMITED_MS - 1);
        if began_ms > 0 {
            slot.limit_ms.store(if milliseconds > 0 { limit_ms } else { 0 }, Relaxed);
        }
        began_ms > 0
    }

    /// The piece of work that was begun has ended. If it was long, memory that it has freed goes back to the system.
    pub fn end_work(&mut self) {
        if let Some(slot) = self.scoreboard.recorder(self.row, 0) {
            let began_ms = slot.began_ms.load(Relaxed);
            slot.end();
            slot.limit_ms.store(0, Relaxed);
            if began_ms > 0 {
                self.memory_trim.look_after_work(now_ms().saturating_sub(began_ms), own_bytes, trim_memory);
            }
        }
        if let Some(row) = self.scoreboard.row(self.row) {
            row.count_request(true);
        }
    }

    /// Whether it must end: it was ordered to, or the master is gone. Reads the pending orders.
    ///
    /// # Errors
    /// The error of `recvmsg`.
    pub fn is_to_end(&mut self) -> io::Result<bool> {
        Ok(self.end()?.is_some())
    }

    /// Whether it must end, as far as the orders that were read say. Does not make a system call: the signal of the master
    /// ([`message::helper_signal`]) has the language read new ones.
    pub fn has_to_end(&self) -> bool {
        self.end.is_some()
    }

    /// Whether and why it must end. Reads the pending orders.
    ///
    /// # Errors
    /// The error of `recvmsg`.
    pub fn end(&mut self) -> io::Result<Option<End>> {
        while self.end.is_none() {
            match message::receive::<Order>(self.control.as_fd())? {
                Received::Message(Order::Stop, _) | Received::End => self.end = Some(End::Stop),
                Received::Message(Order::Drain { .. }, _) => self.end = Some(End::Reload),
                Received::Message(Order::Signal { number }, _) => self.signals.put(number),
                Received::Message(Order::JoinPool { .. }, Some(pipe)) => self.signals.join_pool(pipe),
                Received::Message(Order::TakeLog { log }, Some(file)) => {
                    if let Err(error) = bolide_log::replace(log as usize, &file) {
                        bolide_log::line(&format!("{} can't take the new file of log {log}: {error}", self.name));
                    }
                }
                Received::Message(order, _) => {
                    bolide_log::line(&format!("{} received the order {order:?}, which is not for helpers", self.name));
                }
                Received::Nothing => break,
            }
        }
        Ok(self.end)
    }

    /// Waits until it must end, up to `most`. Returns whether it must end.
    ///
    /// # Errors
    /// The error of `poll` or `recvmsg`.
    pub fn wait_for_end(&mut self, most: Option<Duration>) -> io::Result<bool> {
        let until = most.map(|most| Instant::now() + most);
        while !self.is_to_end()? {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            // At least a whole millisecond, the unit of poll(2).
            let rounded = left.map(|left| left + Duration::from_millis(1));
            let timeout = rounded.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
            match poll(&mut [PollFd::new(self.control.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }
}
