//! The transport of a TLS connection: it encrypts waiting bytes as far as the client reads them, a head and the first part of its
//! body in one record and one write.
//!
//! It does not know about protocols. Encrypted bytes must be sent, in their order. So no more than [`SEALED_BYTES`] are encrypted
//! at a time, and none before those have been sent. Workers run it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use bolide_scoreboard::Recorder;

use super::{CORKED_BYTES, Carrier, Transport};
use crate::sockets::body_file::BodyFile;
use crate::sockets::socket::{Read, Written};
use crate::sockets::taken_connections::{Held, TakenConnections};
use crate::sockets::tls::{RECORD_BYTES, SEALED_BYTES, TlsWorkbench, with_workbench};

impl Transport {
    /// [`Transport::read`] within TLS. It also sends waiting records, as a handshake has two sides.
    pub(super) fn read_encrypted(&mut self, buffer: &mut [u8]) -> Read {
        let Carrier::Tls(tls) = &mut self.carrier else { return Read::Broken };
        let read = tls.read(self.socket.as_fd(), buffer);
        // With TLS, `is_full` is only ever set for records.
        if self.is_full && tls.unsent() == 0 {
            self.is_full = false;
            self.count_waiting();
        }
        read
    }

    /// [`Transport::send`] within TLS. Bytes before a file are kept, to share its first record.
    pub(super) fn send_encrypted(&mut self, more_follows: bool) {
        if more_follows && self.may_leave_with_file() {
            self.flush_encrypted();
        } else {
            self.send_encrypted_through(&[]);
        }
    }

    /// Whether few enough bytes are waiting to be copied before a piece of a file.
    pub(super) fn may_leave_with_file(&self) -> bool {
        self.waiting() <= RECORD_BYTES
    }

    /// [`Transport::send_through`] within TLS. Encrypted bytes count as taken.
    pub(super) fn send_encrypted_through(&mut self, part: &[u8]) -> usize {
        let mut taken = 0;
        while self.flush_encrypted() && self.may_send() && (self.waiting() > 0 || taken < part.len()) {
            let most = SEALED_BYTES.min(self.turn_left);
            with_workbench(|bench| {
                bench.begin();
                let (used, is_sealed) = self.seal_through(&part[taken..], most, bench);
                taken += used;
                if is_sealed { self.write_sealed(bench, false) } else { self.is_broken = true }
            });
        }
        taken
    }

    /// [`Transport::cork`] within TLS.
    pub(super) fn cork_encrypted(&mut self) {
        if (1..=CORKED_BYTES).contains(&self.waiting()) && !self.is_broken && self.flush_encrypted() {
            with_workbench(|bench| {
                bench.begin();
                let (_, is_sealed) = self.seal_through(&[], CORKED_BYTES, bench);
                if is_sealed { self.write_sealed(bench, true) } else { self.is_broken = true }
            });
            self.is_corked = !self.is_broken;
        }
        self.send_encrypted(false);
    }

    /// [`Transport::send_file`] within TLS: one copy, from the file into the record.
    pub(super) fn send_encrypted_file(&mut self, part: &mut BodyFile, most: usize) -> u64 {
        with_workbench(|bench| {
            let mut piece = std::mem::take(&mut bench.file);
            piece.clear();
            piece.extend_from_slice(&self.outgoing.bytes[self.sent..]);
            let start = piece.len();
            let wanted = most.min(SEALED_BYTES - start);
            piece.resize(start + wanted, 0);
            let read = part.file.read_at(&mut piece[start..], part.offset.cast_unsigned());
            let count = read.unwrap_or(0);
            // The file is shorter than when its length was announced: this answer can't be completed.
            self.is_broken |= count == 0;
            if count > 0 {
                bench.begin();
                self.clear();
                part.offset += count.cast_signed() as i64;
                part.left -= count as u64;
                match self.seal(&piece[..start + count], bench) {
                    true => self.write_sealed(bench, false),
                    false => self.is_broken = true,
                }
            }
            bench.file = piece;
            count as u64
        })
    }

    /// [`Transport::send_aside`] within TLS. A finished record must be sent, so it waits if there is no room.
    pub(super) fn send_encrypted_aside(&mut self, bytes: &[u8]) {
        with_workbench(|bench| {
            bench.begin();
            match self.seal(bytes, bench) {
                true => self.write_sealed(bench, false),
                false => self.is_broken = true,
            }
        });
    }

    /// [`Transport::give_away`] within TLS: a bridge encrypts and decrypts.
    pub(super) fn bridge(
        &mut self,
        taken: &'static TakenConnections,
        slot: Option<Recorder<'static>>,
    ) -> std::io::Result<(OwnedFd, Held)> {
        let (own, inner) = UnixStream::pair()?;
        inner.set_nonblocking(true)?;
        let Carrier::Tls(tls) = std::mem::replace(&mut self.carrier, Carrier::Socket) else {
            return Err(std::io::ErrorKind::InvalidInput.into());
        };
        // Without the keys, nothing can be sent on it.
        self.is_broken = true;
        let held = taken.hold_bridge((self.socket.clone(), tls), inner.into(), slot)?;
        Ok((own.into(), held))
    }

    /// Sends close_notify, once.
    pub(super) fn send_close_notify(&mut self) {
        let Carrier::Tls(tls) = &mut self.carrier else { return };
        with_workbench(|bench| {
            bench.begin();
            if tls.seal_close_notify(bench).is_ok() {
                // A client that is gone already needs none.
                let _ = tls.write_sealed(bench, self.socket.as_fd(), false);
            }
        });
    }

    /// Encrypts waiting bytes and then `part`, `most` bytes in all. Returns how many bytes of `part` were used, and whether it
    /// succeeded.
    fn seal_through(&mut self, part: &[u8], most: usize, bench: &mut TlsWorkbench) -> (usize, bool) {
        let waiting = self.waiting().min(most);
        // Mostly a head is waiting: the start of the part fills up its record.
        let gap = if waiting > 0 { (RECORD_BYTES - waiting % RECORD_BYTES) % RECORD_BYTES } else { 0 };
        let joined = if waiting == self.waiting() { gap.min(part.len()).min(most - waiting) } else { 0 };
        self.outgoing.bytes.extend_from_slice(&part[..joined]);
        let direct = if waiting + joined == self.waiting() { (part.len() - joined).min(most - waiting - joined) } else { 0 };
        let Carrier::Tls(tls) = &mut self.carrier else { return (0, false) };
        let of_buffer = &self.outgoing.bytes[self.sent..self.sent + waiting + joined];
        let is_sealed = tls.seal(of_buffer, bench).is_ok() && tls.seal(&part[joined..joined + direct], bench).is_ok();
        self.sent += waiting + joined;
        self.note_sent(waiting + joined + direct);
        self.recycle();
        (joined + direct, is_sealed)
    }

    fn seal(&mut self, plain: &[u8], bench: &mut TlsWorkbench) -> bool {
        self.tls_mut().is_some_and(|tls| tls.seal(plain, bench).is_ok())
    }

    fn write_sealed(&mut self, bench: &TlsWorkbench, more_follows: bool) {
        let Carrier::Tls(tls) = &mut self.carrier else { return };
        let written = tls.write_sealed(bench, self.socket.as_fd(), more_follows);
        self.note_written(written);
    }

    /// Sends encrypted bytes. Returns `true` if all of them were sent.
    fn flush_encrypted(&mut self) -> bool {
        let Carrier::Tls(tls) = &mut self.carrier else { return false };
        if tls.unsent() > 0 && !self.is_full && !self.is_broken {
            let written = tls.flush(self.socket.as_fd(), false);
            self.note_written(written);
        }
        self.tls().is_some_and(|tls| tls.unsent() == 0)
    }

    fn note_written(&mut self, written: Written) {
        match written {
            Written::Bytes(_) => {}
            Written::Full => {
                self.is_full = true;
                self.count_waiting();
            }
            Written::Broken => self.is_broken = true,
        }
    }
}
