//! A helper's end of its control socket: it reports that the helper is ready, and receives the order to end. It does not know the
//! helper's work, which is the language's. A process that was forked as a helper runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bolide_contract::message::{self, Order, Received, Report};
use bolide_contract::scoreboard::{Scoreboard, now_ms};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::assignment::ForkedAs;
use crate::handover::{close_on_exec, set_non_blocking};

/// A helper's view of its instance.
pub struct Helper {
    number: u32,
    control: OwnedFd,
    is_to_end: bool,
}

impl Helper {
    /// Reports to the master that the helper is ready.
    pub(crate) fn begin(control: OwnedFd, scoreboard: &Scoreboard, child: &ForkedAs) -> io::Result<Helper> {
        set_non_blocking(&control)?;
        close_on_exec(control.as_raw_fd())?;
        let pid = std::process::id();
        if let Some(row) = scoreboard.row(child.row) {
            row.worker.store(child.number, Relaxed);
            row.started_ms.store(now_ms(), Relaxed);
            row.pid.store(pid, Relaxed);
        }
        let is_to_end = match message::send(control.as_fd(), &Report::Serving { row: child.row, pid }, None) {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => true,
            result => result.map(|()| false)?,
        };
        Ok(Helper { number: child.number, control, is_to_end })
    }

    /// Its number, from 1: its position in the settings' `helpers`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Readable when there is an order, for a helper that also waits for other events. [`Helper::is_to_end`] reads the order.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Whether it must end: it was ordered to, or the master is gone. Reads the pending orders.
    ///
    /// # Errors
    /// The error of `recvmsg`.
    pub fn is_to_end(&mut self) -> io::Result<bool> {
        while !self.is_to_end {
            match message::receive::<Order>(self.control.as_fd())? {
                Received::Message(Order::Stop | Order::Drain { .. }, _) | Received::End => self.is_to_end = true,
                Received::Message(Order::TakeLog { log }, Some(file)) => {
                    if let Err(error) = bolide_log::replace(log as usize, &file) {
                        bolide_log::line(&format!("helper {} can't take the new file of log {log}: {error}", self.number));
                    }
                }
                Received::Message(order, _) => {
                    bolide_log::line(&format!("helper {} received the order {order:?}, which is not for helpers", self.number));
                }
                Received::Nothing => break,
            }
        }
        Ok(self.is_to_end)
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
