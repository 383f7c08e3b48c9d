//! The wait of a thread that has more to send than the send buffer accepts: it can't be suspended, as it is in the middle of a
//! call.
//!
//! It owns its descriptors, so that the answer may be elsewhere in the meantime. Worker threads run it, without the interpreter.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::{Carrier, Transport};
use crate::sockets::socket;

/// The same on a stream of a connection that other streams use too.
pub trait StreamWait: Send + Sync {
    /// Returns `false` if there was no room within the time.
    fn wait(&self, most: Duration) -> bool;
}

pub struct RoomWait {
    socket: Arc<OwnedFd>,
    stream: Option<Box<dyn StreamWait>>,
}

impl RoomWait {
    /// Returns when there may be room, or when the client has gone. Returns `false` if neither happened within the time.
    pub fn wait(&self, most: Duration) -> bool {
        match &self.stream {
            None => socket::wait_for_room(self.socket.as_fd(), most),
            Some(stream) => stream.wait(most),
        }
    }
}

impl Transport {
    /// For a thread that has something to send for which there is no room.
    pub fn room_wait(&self) -> RoomWait {
        let stream = if let Carrier::Stream(stream) = &self.carrier { Some(stream.room_wait()) } else { None };
        RoomWait { socket: self.socket.clone(), stream }
    }

    /// The socket for an owner that may outlive the connection.
    pub fn own_socket(&self) -> Arc<OwnedFd> {
        self.socket.clone()
    }
}
