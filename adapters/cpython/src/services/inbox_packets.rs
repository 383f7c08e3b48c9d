//! Packets of messages between the processes of an instance: how one is put into an inbox, and taken out. It does not know who
//! listens, or Python. Every process that loads the application may run it.
//!
//! A packet is the head (version, flags, length of the channel's name, zero), the name, and the data. Data longer than
//! [`MAX_INLINE_BYTES`] is in a sealed memory file whose descriptor travels with the packet. Neither end ever waits.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use bolide_contract::message::first_descriptor;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, recvmsg, sendmsg};

/// Bytes of the name of a channel.
pub const MAX_CHANNEL_BYTES: usize = 255;
/// Bytes of data in a packet itself.
pub const MAX_INLINE_BYTES: usize = 65_536;
/// Bytes of a message.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Bytes of a packet.
pub const MAX_PACKET_BYTES: usize = HEAD_BYTES + MAX_CHANNEL_BYTES + MAX_INLINE_BYTES;

const HEAD_BYTES: usize = 4;
/// The first byte of a packet. Builds with another layout have another version.
const VERSION: u8 = 1;
const IS_TEXT: u8 = 1;
const IS_IN_FILE: u8 = 2;
/// It is not a message, and has its reader look at the counters.
const IS_WAKE_UP: u8 = 4;

/// The outcome of putting a packet into an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Done,
    /// The inbox is full, or the user has too many descriptors in flight (ETOOMANYREFS).
    Full,
}

/// A message on its way to any number of inboxes.
pub struct Outgoing<'a> {
    head: [u8; HEAD_BYTES],
    channel: &'a [u8],
    /// Empty if it is in the file.
    data: &'a [u8],
    file: Option<File>,
}

/// The outcome of taking a packet out of an inbox. Ranges are those of the caller's buffer.
pub enum Taken {
    Message {
        is_text: bool,
        channel: Range<usize>,
        data: Range<usize>,
    },
    InFile {
        is_text: bool,
        channel: Range<usize>,
        file: File,
    },
    /// The memory file of a message did not arrive, because this process is out of descriptors.
    Lost {
        channel: Range<usize>,
    },
    /// A wake-up, or a packet of another build.
    Other,
    Nothing,
}

impl<'a> Outgoing<'a> {
    /// `channel` and `data` are within the bounds above.
    ///
    /// # Errors
    /// The memory file can't be created: out of memory or descriptors.
    pub fn new(channel: &'a [u8], data: &'a [u8], is_text: bool) -> io::Result<Outgoing<'a>> {
        let file = if data.len() > MAX_INLINE_BYTES { Some(sealed(data)?) } else { None };
        let flags = if is_text { IS_TEXT } else { 0 } | if file.is_some() { IS_IN_FILE } else { 0 };
        let data = if file.is_some() { &[] } else { data };
        Ok(Outgoing { head: [VERSION, flags, channel.len() as u8, 0], channel, data, file })
    }

    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// # Errors
    /// Errors of `sendmsg`.
    pub fn put(&self, inbox: RawFd) -> io::Result<Put> {
        let parts = [IoSlice::new(&self.head), IoSlice::new(self.channel), IoSlice::new(self.data)];
        let descriptor = self.file.as_ref().map(|file| [file.as_raw_fd()]);
        let rights = descriptor.as_ref().map(|descriptor| ControlMessage::ScmRights(descriptor));
        send(inbox, &parts, rights.as_slice())
    }
}

/// Wakes the reader of an inbox. An inbox without room has a packet that wakes it.
pub fn wake(inbox: RawFd) {
    // A process whose inbox is gone has nothing to look at.
    let _ = send(inbox, &[IoSlice::new(&[VERSION, IS_WAKE_UP, 0, 0])], &[]);
}

fn send(inbox: RawFd, parts: &[IoSlice<'_>], rights: &[ControlMessage<'_>]) -> io::Result<Put> {
    loop {
        return match sendmsg::<()>(inbox, parts, rights, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL, None) {
            Ok(_) => Ok(Put::Done),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM | Errno::ETOOMANYREFS) => Ok(Put::Full),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// A memory file with these bytes, which no process can change.
fn sealed(data: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"bolide-message", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    file.write_all(data)?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

/// Takes the oldest packet out. `buffer` has [`MAX_PACKET_BYTES`].
///
/// # Errors
/// Errors of `recvmsg`.
pub fn take(inbox: RawFd, buffer: &mut [u8]) -> io::Result<Taken> {
    let mut space = cmsg_space!([RawFd; 1]);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let (bytes, descriptor) = loop {
        match recvmsg::<()>(inbox, &mut slices, Some(&mut space), flags) {
            // Without room for the descriptor the list can't be read.
            Ok(received) => break (received.bytes, first_descriptor(&received).unwrap_or(None)),
            Err(Errno::EAGAIN) => return Ok(Taken::Nothing),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    let Some(&[VERSION, flags, channel_bytes, 0]) = buffer.first_chunk::<HEAD_BYTES>() else { return Ok(Taken::Other) };
    let channel = HEAD_BYTES..HEAD_BYTES + usize::from(channel_bytes);
    if bytes < channel.end || flags & IS_WAKE_UP != 0 {
        return Ok(Taken::Other);
    }
    let is_text = flags & IS_TEXT != 0;
    Ok(match (flags & IS_IN_FILE != 0, descriptor) {
        (false, _) => Taken::Message { is_text, data: channel.end..bytes, channel },
        (true, Some(file)) => Taken::InFile { is_text, channel, file: File::from(file) },
        (true, None) => Taken::Lost { channel },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::os::unix::fs::FileExt;

    #[test]
    fn short_and_long_messages_arrive_in_order() {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (put, inbox) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a socket pair");
        let edge = vec![b'a'; MAX_INLINE_BYTES];
        let long = vec![b'b'; MAX_INLINE_BYTES + 1];
        for (data, is_text) in [(&b""[..], true), (&edge, false), (&long, true)] {
            let outgoing = Outgoing::new(b"news", data, is_text).expect("made");
            assert_eq!(outgoing.put(put.as_raw_fd()).expect("sent"), Put::Done);
        }
        wake(put.as_raw_fd());
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        for expected in [(&b""[..], true), (&edge, false)] {
            let Ok(Taken::Message { is_text, channel, data }) = take(inbox.as_raw_fd(), &mut buffer) else { panic!() };
            assert_eq!((&buffer[channel], &buffer[data], is_text), (&b"news"[..], expected.0, expected.1));
        }
        let Ok(Taken::InFile { is_text: true, file, .. }) = take(inbox.as_raw_fd(), &mut buffer) else { panic!() };
        let mut read = vec![0; long.len()];
        file.read_exact_at(&mut read, 0).expect("read");
        assert!(read == long && file.write_at(b"c", 0).is_err(), "it is sealed");
        assert!(matches!(take(inbox.as_raw_fd(), &mut buffer), Ok(Taken::Other)));
        assert!(matches!(take(inbox.as_raw_fd(), &mut buffer), Ok(Taken::Nothing)));
    }

    #[test]
    fn a_full_inbox_is_said_and_packets_of_other_builds_are_no_messages() {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (put, inbox) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a socket pair");
        for packet in [&[][..], &[VERSION], &[VERSION + 1, 0, 0, 0], &[VERSION, 0, 200, 0], &[VERSION, IS_TEXT, 0, 7]] {
            nix::unistd::write(&put, packet).expect("sent");
            let taken = take(inbox.as_raw_fd(), &mut vec![0; MAX_PACKET_BYTES]);
            assert!(matches!(taken, Ok(Taken::Other)), "{packet:?}");
        }
        let outgoing = Outgoing::new(b"news", b"hello", false).expect("made");
        let outcomes = std::iter::repeat_with(|| outgoing.put(put.as_raw_fd()).expect("no error"));
        assert!(outcomes.take(1 << 20).any(|outcome| outcome == Put::Full));
    }
}
