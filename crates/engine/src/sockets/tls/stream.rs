//! TLS between a socket and a session: records in, plaintext out, and the other way round.
//!
//! rustls does not hold buffers here. Records are decrypted in buffers of the thread. A connection owns only an incomplete
//! record, and records that its client was slow to read; an idle connection owns neither. It does not know about protocols.
//! Workers run it.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bolide_tls::rustls::server::UnbufferedServerConnection;
use bolide_tls::rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus};
use bolide_tls::rustls::{ContentType, Error};
use bolide_tls::{ALPN_HTTP2, ListenerTls, TlsFacts, take_named_host};

use super::faults::TlsFault;
use crate::sockets::socket::{self, Read, Written};

/// Maximum number of plaintext bytes in a record (RFC 8446 section 5.1).
pub const RECORD_BYTES: usize = 16 * 1024;

/// Plaintext bytes that are encrypted before they are written: four records, one write.
pub const SEALED_BYTES: usize = 4 * RECORD_BYTES;

/// The overhead of encrypting [`SEALED_BYTES`], and a message or two of the library itself.
const SEALED_EXTRA_BYTES: usize = 2 * 1024;

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// Bytes of records that are read before their plaintext is passed on, however little it is.
const READ_TURN_BYTES: usize = 2 * READ_BYTES;

/// Maximum size of incomplete handshake messages, in bytes: certificate chains can be long.
const HANDSHAKE_BYTES: usize = 64 * 1024;

/// Maximum number of messages that the library produces before it continues: it produces a few at each step of a handshake.
const MAX_STEPS: usize = 64;

/// A protocol that ALPN has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alpn {
    Http1,
    Http2,
}

/// Buffers of a thread, for the connection that it attends to.
pub struct TlsWorkbench {
    incoming: Vec<u8>,
    /// Records, and their number of bytes.
    sealed: Vec<u8>,
    sealed_bytes: usize,
    /// A piece of a file.
    pub file: Vec<u8>,
}

thread_local! {
    static WORKBENCH: RefCell<TlsWorkbench> =
        const { RefCell::new(TlsWorkbench { incoming: Vec::new(), sealed: Vec::new(), sealed_bytes: 0, file: Vec::new() }) };
}

pub struct TlsStream {
    listener: Arc<ListenerTls>,
    stage: TlsStage,
    /// An incomplete record, or bytes that were not processed at all.
    incoming: Vec<u8>,
    has_unprocessed: bool,
    /// Records that wait for the client, and how many bytes of them were sent.
    outgoing: Vec<u8>,
    sent: usize,
    server_name: Option<Box<str>>,
    facts: Option<Arc<TlsFacts>>,
    alpn: Option<Alpn>,
    fault: Option<TlsFault>,
    /// The peer has sent close_notify (RFC 8446 section 6.1).
    peer_has_closed: bool,
    has_sent_close_notify: bool,
    has_more: bool,
    came_bytes: usize,
}

/// The library's state of a connection is large: a connection that has received nothing has none.
enum TlsStage {
    /// Nothing was received.
    Waiting,
    Handshake(Box<UnbufferedServerConnection>),
    Open(Box<UnbufferedServerConnection>),
    /// It has failed. Later input is discarded.
    Over,
}

/// Encrypting failed: the keys have sealed as much as they may, or the connection is over.
#[derive(Debug)]
pub struct SealingFault;

/// Lends the thread's buffers. The closure must not borrow them again.
pub fn with_workbench<R>(act: impl FnOnce(&mut TlsWorkbench) -> R) -> R {
    WORKBENCH.with_borrow_mut(act)
}

impl TlsWorkbench {
    /// Starts with no records.
    pub fn begin(&mut self) {
        if self.sealed.is_empty() {
            self.sealed.resize(SEALED_BYTES + SEALED_EXTRA_BYTES, 0);
        }
        self.sealed_bytes = 0;
    }

    pub fn sealed(&self) -> &[u8] {
        &self.sealed[..self.sealed_bytes]
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.sealed[self.sealed_bytes..]
    }

    fn make_room(&mut self, bytes: usize) {
        self.sealed.resize(self.sealed_bytes + bytes, 0);
    }
}

impl TlsStream {
    /// `received` holds bytes of the connection that were read already.
    pub fn new(listener: &Arc<ListenerTls>, received: &[u8]) -> TlsStream {
        TlsStream {
            listener: Arc::clone(listener),
            stage: TlsStage::Waiting,
            incoming: received.to_vec(),
            has_unprocessed: !received.is_empty(),
            outgoing: Vec::new(),
            sent: 0,
            server_name: None,
            facts: None,
            alpn: None,
            fault: None,
            peer_has_closed: false,
            has_sent_close_notify: false,
            has_more: false,
            came_bytes: 0,
        }
    }

    /// The handshake is not done.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.stage, TlsStage::Waiting | TlsStage::Handshake(_))
    }

    /// A handshake has begun, and is not complete.
    pub fn is_within_handshake(&self) -> bool {
        matches!(self.stage, TlsStage::Handshake(_))
    }

    /// The facts of the TLS connection, once its handshake is done.
    pub fn facts(&self) -> Option<&Arc<TlsFacts>> {
        self.facts.as_ref()
    }

    /// The protocol that ALPN has chosen in the handshake.
    pub fn alpn(&self) -> Option<Alpn> {
        self.alpn
    }

    /// Returns the reason why the handshake has failed, and clears it.
    pub fn take_fault(&mut self) -> Option<TlsFault> {
        self.fault.take()
    }

    pub fn peer_has_closed(&self) -> bool {
        self.peer_has_closed
    }

    /// The last read has left bytes that no poll will report.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Bytes were read that are not processed yet.
    pub fn has_unprocessed(&self) -> bool {
        self.has_unprocessed
    }

    /// Bytes of records that the last read has received.
    pub fn came_bytes(&self) -> usize {
        self.came_bytes
    }

    /// Bytes of records that wait for the client.
    pub fn unsent(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Reads records, and writes their plaintext to `buffer`.
    pub fn read(&mut self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Read {
        self.has_more = false;
        self.came_bytes = 0;
        if matches!(self.stage, TlsStage::Over) {
            return socket::read(socket, buffer);
        }
        if self.flush(socket, false) == Written::Broken {
            return Read::Broken;
        }
        with_workbench(|bench| self.read_records(socket, bench, buffer))
    }

    fn read_records(&mut self, socket: BorrowedFd<'_>, bench: &mut TlsWorkbench, buffer: &mut [u8]) -> Read {
        let mut filled = 0;
        let mut last = Read::Nothing;
        while !self.peer_has_closed {
            let held = self.incoming.len();
            // Plaintext is never longer than its records, so all of it fits: no complete record is left that no poll would
            // report.
            let wanted = (buffer.len() - filled).saturating_sub(held).min(READ_BYTES);
            if wanted == 0 || self.came_bytes >= READ_TURN_BYTES {
                self.has_more = true;
                break;
            }
            if bench.incoming.len() < held + wanted {
                bench.incoming.resize(held + wanted, 0);
            }
            bench.incoming[..held].copy_from_slice(&self.incoming);
            last = socket::read(socket, &mut bench.incoming[held..held + wanted]);
            let count = match last {
                Read::Bytes(count) => count,
                Read::Nothing if self.has_unprocessed => 0,
                Read::Nothing | Read::End | Read::Broken => break,
            };
            self.came_bytes += count;
            self.has_unprocessed = false;
            match self.take(&mut bench.incoming[..held + count], &mut buffer[filled..]) {
                Ok(more) => filled += more,
                Err(fault) => {
                    self.give_up(fault, socket);
                    return Read::Broken;
                }
            }
            // The socket is empty, and the poll reports more bytes. But an end of stream that it has reported already must be
            // found now.
            if count < wanted && filled > 0 {
                break;
            }
        }
        match last {
            _ if self.flush(socket, false) == Written::Broken => Read::Broken,
            _ if filled > 0 => Read::Bytes(filled),
            _ if self.peer_has_closed => Read::End,
            // RFC 8446 section 6.1: without close_notify, an attacker may have cut the connection off.
            Read::End | Read::Broken => {
                self.fault = self.is_within_handshake().then_some(TlsFault::Left);
                Read::Broken
            }
            Read::Bytes(_) | Read::Nothing => Read::Nothing,
        }
    }

    /// Processes records, and writes their plaintext to `plain`, which has room for it. An incomplete record stays for later.
    fn take(&mut self, records: &mut [u8], plain: &mut [u8]) -> Result<usize, TlsFault> {
        self.begin_handshake(records)?;
        let (TlsStage::Handshake(connection) | TlsStage::Open(connection)) = &mut self.stage else { return Ok(0) };
        let (mut start, mut filled, mut failure) = (0, 0, None);
        // After a failure the library is only asked for its alert: it must not process more records.
        while failure.is_none() || connection.wants_write() {
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut records[start..]);
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let payload = record.map_err(TlsFault::Failed)?.payload;
                        let place = plain.get_mut(filled..filled + payload.len());
                        place.ok_or(TlsFault::TooLong)?.copy_from_slice(payload);
                        filled += payload.len();
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    encode(&mut self.outgoing, |room| message.encode(room)).map_err(TlsFault::Failed)?;
                }
                // It is sent together with the other messages, when all received bytes are processed.
                Ok(ConnectionState::TransmitTlsData(sending)) => sending.done(),
                Ok(ConnectionState::PeerClosed) => self.peer_has_closed = true,
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) | ConnectionState::Closed) => {
                    start += discard;
                    break;
                }
                // Early data is not offered, and there are no other states.
                Ok(_) => return Err(TlsFault::Failed(Error::HandshakeNotComplete)),
                Err(error) if failure.is_none() => failure = Some(error),
                Err(_) => break,
            }
            start += discard;
        }
        if let Some(error) = failure {
            return Err(TlsFault::Failed(error));
        }
        self.incoming = records[start..].to_vec();
        self.note_progress()?;
        Ok(filled)
    }

    /// The first bytes show whether it is a handshake at all.
    fn begin_handshake(&mut self, records: &[u8]) -> Result<(), TlsFault> {
        if !matches!(self.stage, TlsStage::Waiting) {
            return Ok(());
        }
        match records.first() {
            None => return Ok(()),
            Some(first) if *first == u8::from(ContentType::Handshake) => {}
            // RFC 9112 section 2.2: HTTP begins with a method, or an empty line before it.
            Some(first) if first.is_ascii_alphabetic() || matches!(first, b'\r' | b'\n') => return Err(TlsFault::PlainHttp),
            Some(_) => return Err(TlsFault::NotTls),
        }
        let connection = UnbufferedServerConnection::new(Arc::clone(&self.listener.config)).map_err(TlsFault::Failed)?;
        self.stage = TlsStage::Handshake(Box::new(connection));
        Ok(())
    }

    fn note_progress(&mut self) -> Result<(), TlsFault> {
        let TlsStage::Handshake(connection) = &self.stage else { return Ok(()) };
        if let Some(name) = take_named_host() {
            self.server_name = Some(name);
        }
        if connection.is_handshaking() {
            return if self.incoming.len() > HANDSHAKE_BYTES { Err(TlsFault::TooLong) } else { Ok(()) };
        }
        self.facts = Some(Arc::new(self.listener.facts(connection, self.server_name.take().as_deref())));
        self.alpn = connection.alpn_protocol().map(|name| if name == ALPN_HTTP2 { Alpn::Http2 } else { Alpn::Http1 });
        if let TlsStage::Handshake(connection) = std::mem::replace(&mut self.stage, TlsStage::Over) {
            self.stage = TlsStage::Open(connection);
        }
        Ok(())
    }

    /// Sends the peer an alert, if it has begun with TLS. A fault after the handshake is only a broken connection.
    fn give_up(&mut self, fault: TlsFault, socket: BorrowedFd<'_>) {
        let was_open = matches!(self.stage, TlsStage::Open(_));
        let _ = self.flush(socket, false);
        self.incoming = Vec::new();
        self.outgoing = Vec::new();
        self.sent = 0;
        self.stage = TlsStage::Over;
        self.fault = (!was_open).then_some(fault);
    }

    /// Adds the records of these bytes to those of the workbench.
    ///
    /// # Errors
    /// Nothing can be sent on this connection any more.
    pub fn seal(&mut self, plain: &[u8], bench: &mut TlsWorkbench) -> Result<(), SealingFault> {
        self.with_traffic(bench, |traffic, room| traffic.encrypt(plain, room))
    }

    /// Adds the record of close_notify; nothing may follow it.
    ///
    /// # Errors
    /// As [`TlsStream::seal`].
    pub fn seal_close_notify(&mut self, bench: &mut TlsWorkbench) -> Result<(), SealingFault> {
        if self.has_sent_close_notify {
            return Err(SealingFault);
        }
        self.has_sent_close_notify = true;
        self.with_traffic(bench, |traffic, room| traffic.queue_close_notify(room))
    }

    fn with_traffic(
        &mut self,
        bench: &mut TlsWorkbench,
        mut act: impl FnMut(&mut WriteTraffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), SealingFault> {
        let TlsStage::Open(connection) = &mut self.stage else { return Err(SealingFault) };
        for _ in 0..MAX_STEPS {
            // It does not hold a complete record, as reading has processed all of them.
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut self.incoming);
            let done = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => match act(&mut traffic, bench.room()) {
                    Ok(count) => {
                        bench.sealed_bytes += count;
                        true
                    }
                    Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                        bench.make_room(required_size);
                        false
                    }
                    Err(EncryptError::EncryptExhausted) => return Err(SealingFault),
                },
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    let mut own = Vec::new();
                    encode(&mut own, |room| message.encode(room)).map_err(|_| SealingFault)?;
                    bench.make_room(own.len() + SEALED_BYTES + SEALED_EXTRA_BYTES);
                    bench.room()[..own.len()].copy_from_slice(&own);
                    bench.sealed_bytes += own.len();
                    false
                }
                Ok(ConnectionState::TransmitTlsData(sending)) => {
                    sending.done();
                    false
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.peer_has_closed = true;
                    false
                }
                Ok(_) | Err(_) => return Err(SealingFault),
            };
            self.incoming.drain(..discard);
            if done {
                return Ok(());
            }
        }
        Err(SealingFault)
    }

    /// Writes waiting records. `Full`: some still wait.
    pub fn flush(&mut self, socket: BorrowedFd<'_>, more_follows: bool) -> Written {
        let mut count = 0;
        while self.unsent() > 0 {
            let rest = &self.outgoing[self.sent..];
            match if more_follows { socket::write_corked(socket, rest) } else { socket::write(socket, rest, &[]) } {
                Written::Bytes(written) => {
                    self.sent += written;
                    count += written;
                }
                failed => return failed,
            }
        }
        // A connection that has nothing to send does not own a buffer for it.
        self.outgoing = Vec::new();
        self.sent = 0;
        Written::Bytes(count)
    }

    /// Writes the workbench's records; bytes that the client does not accept wait here. None may be waiting before.
    pub fn write_sealed(&mut self, bench: &TlsWorkbench, socket: BorrowedFd<'_>, more_follows: bool) -> Written {
        let sealed = bench.sealed();
        let written = if more_follows { socket::write_corked(socket, sealed) } else { socket::write(socket, sealed, &[]) };
        let count = match written {
            Written::Bytes(count) => count,
            Written::Full => 0,
            Written::Broken => return Written::Broken,
        };
        if count == sealed.len() {
            return Written::Bytes(count);
        }
        self.outgoing.extend_from_slice(&sealed[count..]);
        // A partial write does not make the poll report room; only a write that failed does.
        self.flush(socket, false)
    }
}

type WriteTraffic<'a> = bolide_tls::rustls::unbuffered::WriteTraffic<'a, bolide_tls::rustls::server::ServerConnectionData>;

/// Appends a message that the library has ready.
fn encode(outgoing: &mut Vec<u8>, mut message: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) -> Result<(), Error> {
    let start = outgoing.len();
    let mut room = 0;
    // The first call returns its length, the second one writes it.
    for _ in 0..2 {
        outgoing.resize(start + room, 0);
        match message(&mut outgoing[start..]) {
            Ok(count) => {
                outgoing.truncate(start + count);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => room = required_size,
            Err(EncodeError::AlreadyEncoded) => break,
        }
    }
    outgoing.truncate(start);
    Err(Error::EncryptError)
}
