//! When the requests of a transport arrived, for `request-start`: when their first bytes were read. What comes first on a
//! connection has waited in the kernel, for a worker that accepts it and for a thread that reads it. The kernel tells for how
//! long, which costs one system call for each connection.
//!
//! It does not know about requests. Worker threads run it; without the option a transport has none.

use std::os::fd::BorrowedFd;

use crate::logging::waiting::{RequestStart, now_us};
use crate::sockets::socket;

/// When bytes were read, in microseconds since 1970.
pub struct ReadTimes {
    wait: FirstWait,
    /// The first byte of the request that was not taken yet.
    begun_us: u64,
    /// The bytes that were read last.
    latest_us: u64,
}

/// The wait of the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstWait {
    Unmeasured,
    /// In microseconds. The bytes of the first request are still to come: they are behind a TLS handshake, which has waited.
    Measured(u64),
    Over,
}

impl ReadTimes {
    /// Those of a connection. `may_have_waited`: it is one of TCP, and no request of it was served.
    pub fn of_connection(may_have_waited: bool) -> ReadTimes {
        let wait = if may_have_waited { FirstWait::Unmeasured } else { FirstWait::Over };
        ReadTimes { wait, begun_us: 0, latest_us: 0 }
    }

    /// Those of a stream of HTTP/2, whose one request arrived then.
    pub fn of_stream(RequestStart { arrived_us }: RequestStart) -> ReadTimes {
        ReadTimes { wait: FirstWait::Over, begun_us: arrived_us, latest_us: arrived_us }
    }

    /// Bytes of a TLS connection are about to be read. While the server answers the first ones, the client may send more, so the
    /// wait is measured before.
    pub fn note_encrypted(&mut self, socket: BorrowedFd<'_>) {
        if self.wait == FirstWait::Unmeasured {
            self.wait = FirstWait::Measured(waited_us(socket));
        }
    }

    /// Bytes for the session were read.
    pub fn note_read(&mut self, socket: BorrowedFd<'_>) {
        let waited_us = match self.wait {
            FirstWait::Unmeasured => {
                self.wait = FirstWait::Over;
                waited_us(socket)
            }
            FirstWait::Measured(waited_us) => waited_us,
            FirstWait::Over => 0,
        };
        self.latest_us = now_us().saturating_sub(waited_us);
    }

    /// A request begins in the bytes that were read last.
    pub fn begin_request(&mut self) {
        self.begun_us = self.latest_us;
    }

    /// When the request that has begun to arrive did so.
    pub fn begun_us(&self) -> u64 {
        self.begun_us
    }

    /// Takes the arrival of the request whose head is complete. The request behind it, if it is here already, was read with the
    /// latest bytes.
    pub fn take(&mut self) -> RequestStart {
        self.wait = FirstWait::Over;
        RequestStart { arrived_us: std::mem::replace(&mut self.begun_us, self.latest_us) }
    }
}

/// Microseconds since the last data of the connection came, or since it began.
fn waited_us(socket: BorrowedFd<'_>) -> u64 {
    u64::from(socket::waited_ms(socket).unwrap_or_default()) * 1000
}
