//! The wait of a thread that has more to send on a stream than there is room for, in the middle of a call.
//!
//! Any thread with the connection's lock may read for it: the thread that leads, or one that waits here, since there may be no
//! other one (a worker of one thread, or one whose threads are all in calls). So a waiting thread watches the socket and a bell,
//! which other threads ring when they have read or sent. They ring it under the connection's lock. The bell is registered and all
//! conditions are checked under the same lock before each sleep, so no event is lost in between. It does not know about the
//! application or the lead. Worker threads run it, without the interpreter.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bolide_contract::clock::now_ms;

use super::{Multiplexer, Pumped, SharedMultiplexer};
use crate::sockets::socket::watch;
use crate::sockets::transport::StreamWait;

/// Bytes per read while a thread waits for room.
const CATCH_UP_BYTES: usize = 32 * 1024;

/// The interval of a thread without a bell, as no descriptor was left for one.
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
        let waits_for_window = multiplexer.streams.waits_for_window(self.number);
        if !waits_for_window && !multiplexer.streams.waits_for_bytes(self.number) {
            return true;
        }
        let socket = multiplexer.transport.own_socket();
        let bell = multiplexer.streams.bells.register();
        let mut buffer = vec![0; CATCH_UP_BYTES];
        let has_room = loop {
            multiplexer.catch_up(&mut buffer, |_| true);
            if multiplexer.may_go_on(self.number, waits_for_window) {
                break true;
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else { break false };
            // Nothing is read while the client leaves too many bytes unread.
            let (for_word, for_room) = (!multiplexer.is_behind(), multiplexer.transport.unsent() > 0);
            let left = if bell.is_none() && multiplexer.streams.bells.has_threads { left.min(BLIND) } else { left };
            drop(multiplexer);
            watch(socket.as_fd(), (for_word, for_room), bell.as_deref(), left);
            multiplexer = self.shared.lock();
        };
        if let Some(bell) = &bell {
            multiplexer.streams.bells.remove(bell);
        }
        has_room
    }
}

impl Multiplexer {
    /// Reads what the client has sent behind a request that is about to begin: it may have cancelled it. What is left of it, and
    /// requests that begin in it, have their turn with the connection's next one.
    pub(super) fn look_ahead(&mut self) {
        if !self.has_part() && !self.transport.has_input() {
            return;
        }
        let mut buffer = vec![0; CATCH_UP_BYTES];
        let mut left = CATCH_UP_BYTES;
        self.catch_up(&mut buffer, |count| {
            left = left.saturating_sub(count);
            left > 0
        });
    }

    /// Sends and reads for the connection, like its own turn. `may_read` is asked before each read.
    fn catch_up(&mut self, buffer: &mut [u8], may_read: impl FnMut(usize) -> bool) {
        self.session.note_time(now_ms());
        self.transport.begin_turn();
        self.transport.is_full = false;
        self.flush();
        // A window update may stand behind the heads of requests.
        let batch = self.turns.lift_batch();
        let pumped = self.pump(buffer, may_read);
        self.turns.limit_batch(batch);
        match pumped {
            // The client may wait for the session's own frames (such as an answer to its PING), and no other turn may come in the
            // meantime.
            Pumped::All | Pumped::Rest | Pumped::Later => self.flush(),
            Pumped::End | Pumped::Broken => {
                self.transport.is_broken = true;
                self.break_all();
            }
            // The connection's own turn finds the fault again, and answers it.
            Pumped::Fault(_) => self.break_all(),
        }
        self.is_dirty = true;
    }

    /// Whether a stream that waits for its window or for earlier bytes may continue, including when its client has gone.
    fn may_go_on(&mut self, number: u32, waits_for_window: bool) -> bool {
        if self.is_gone(number) {
            return true;
        }
        if !waits_for_window {
            return !self.streams.waits_for_bytes(number);
        }
        let may_go_on = self.session.room(number) > 0;
        if !may_go_on {
            // The connection's window may have opened, but not the stream's.
            self.note_waiting(number);
        }
        may_go_on
    }
}
