//! The socket over which workers give spans to the exporter: a pair whose both ends the master keeps. The master reads none of
//! it, and writes the spans of workers that can't write them any more. The master runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use bolide_contract::settings::Settings;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, setsockopt, socketpair, sockopt};

/// Bytes for spans that wait for the exporter, with the kernel's own for each; a limit of the system may leave less.
const BUFFER_BYTES: usize = 1024 * 1024;

/// The pair; there is none until settings have spans.
#[derive(Debug, Default)]
pub struct SpanSocket(Option<[OwnedFd; 2]>);

impl SpanSocket {
    /// Makes the pair if these settings are the first with spans.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn prepare(&mut self, settings: &Settings) -> io::Result<()> {
        if self.0.is_none() && settings.tracing.spans.is_on() {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let (put, take) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
            // Only root may exceed the system's limit, and a smaller buffer only means that fewer spans wait.
            let _ = setsockopt(&put, sockopt::SndBufForce, &BUFFER_BYTES)
                .or_else(|_| setsockopt(&put, sockopt::SndBuf, &BUFFER_BYTES));
            self.0 = Some([put, take]);
        }
        Ok(())
    }

    /// The workers' end, for settings with spans.
    pub fn put(&self, settings: &Settings) -> Option<RawFd> {
        self.0.as_ref().filter(|_| settings.tracing.spans.is_on()).map(|[put, _]| put.as_raw_fd())
    }

    /// Writes a span, if the socket has room for it. Returns whether it had.
    pub fn send(&self, packet: &[u8]) -> bool {
        let Some([put, _]) = &self.0 else { return false };
        send(put.as_raw_fd(), packet, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).is_ok()
    }

    /// The exporter's end.
    pub fn take(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|[_, take]| take.as_fd())
    }
}
