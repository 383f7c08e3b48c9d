//! The wait of a thread that has more to send on a stream than there is room for, in the middle of a call.
//!
//! Whoever has the connection's lock may read for it: the thread that leads, or one that waits here, since there may be nobody else (a worker
//! of one thread, or one whose threads are all in calls). So a waiting thread watches the socket, and beside it a bell, which others ring when
//! they have read or sent what may be waited for. They do so under the connection's lock, and under it the bell is hung up, and everything
//! looked at again before each sleep: no news is lost between. It knows no application and no lead. Worker threads run it, without the interpreter.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bolide_contract::scoreboard::now_ms;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Multiplexer, Pumped, SharedMultiplexer};
use crate::sockets::socket::watch;
use crate::sockets::transport::StreamWait;

/// Bytes that are read at once where a thread waits for room.
const CATCH_UP_BYTES: usize = 32 * 1024;

/// How often a thread looks by itself that has no bell, as there was no descriptor for one.
const BLIND: Duration = Duration::from_millis(20);

/// A stream that waits for room.
pub struct WaitingStream {
    pub shared: Arc<SharedMultiplexer>,
    pub number: u32,
}

impl StreamWait for WaitingStream {
    fn wait(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut multiplexer = self.shared.lock();
        let waits_for_window = multiplexer.starved.contains(&self.number);
        if !waits_for_window && !multiplexer.blocked.contains(&self.number) {
            return true;
        }
        let socket = multiplexer.transport.own_socket();
        let bell = multiplexer.hang_up_bell();
        let mut buffer = vec![0; CATCH_UP_BYTES];
        let has_room = loop {
            multiplexer.catch_up(&mut buffer);
            if multiplexer.may_go_on(self.number, waits_for_window) {
                break true;
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else { break false };
            // Behind so much that the client has not taken, nothing is read.
            let (for_word, for_room) = (!multiplexer.is_behind(), multiplexer.transport.unsent() > 0);
            let left = if bell.is_none() && multiplexer.has_threads { left.min(BLIND) } else { left };
            drop(multiplexer);
            watch(socket.as_fd(), (for_word, for_room), bell.as_deref(), left);
            multiplexer = self.shared.lock();
        };
        if let Some(bell) = &bell {
            multiplexer.bells.retain(|other| !Arc::ptr_eq(other, bell));
        }
        has_room
    }
}

impl Multiplexer {
    /// A bell that is rung from now on, where there are threads to ring it.
    fn hang_up_bell(&mut self) -> Option<Arc<EventFd>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = self.has_threads.then(|| EventFd::from_flags(flags).ok()).flatten().map(Arc::new)?;
        self.bells.push(bell.clone());
        Some(bell)
    }

    /// Threads that wait for room look again.
    pub(super) fn ring(&self) {
        for bell in &self.bells {
            // A counter that is full has rung.
            let _ = bell.write(1);
        }
    }

    /// Sends and reads what there is for the connection, as its own turn does.
    fn catch_up(&mut self, buffer: &mut [u8]) {
        self.session.note_time(now_ms());
        self.transport.begin_turn();
        self.transport.is_full = false;
        self.flush();
        // What is waited for may stand behind the heads of requests.
        let batch = std::mem::replace(&mut self.batch, usize::MAX);
        self.has_rest = false;
        let pumped = self.pump(buffer, |_| true);
        self.batch = batch;
        match pumped {
            // The client may wait for what the session has to say to it (an answer to its PING, say), and no other turn may come meanwhile.
            Pumped::All | Pumped::Rest | Pumped::Later => self.flush(),
            Pumped::End | Pumped::Broken => {
                self.transport.is_broken = true;
                self.break_all();
            }
            // The connection's own turn finds it again, and says what is to be said.
            Pumped::Fault(_) => self.break_all(),
        }
        self.is_dirty = true;
    }

    /// Whether a stream that waits, for its window or for what is before it, may go on, if only to find that its client has gone.
    fn may_go_on(&mut self, number: u32, waits_for_window: bool) -> bool {
        if self.is_gone(number) {
            return true;
        }
        if !waits_for_window {
            return !self.blocked.contains(&number);
        }
        let may_go_on = self.session.room(number) > 0;
        if !may_go_on {
            // The connection's window may have opened, and the stream's not.
            self.note_waiting(number);
        }
        may_go_on
    }
}
