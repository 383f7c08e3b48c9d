//! One connection to an engine: the handshake, and a command with its answer, within TLS if the address asks for it.
//!
//! A call has one time limit for all of its parts, and an answer is bounded in bytes. A connection that listens waits without a
//! command, and its caller can end the wait.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bolide_tls::{read_authorities, system_authorities};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::address::{Address, Place};
use crate::channel::{Channel, Waited};
use crate::fault::Fault;
use crate::wire::{Command, Reader, Unread, Value};

/// Bytes that are read at a time while nothing is expected.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes of an answer to the handshake.
const MAX_HANDSHAKE_BYTES: u64 = 64 << 10;

type SecureChannel = StreamOwned<ClientConnection, Channel>;

enum Stream {
    Plain(Channel),
    Secure(Box<SecureChannel>),
}

pub struct Connection {
    stream: Stream,
    reader: Reader,
    /// The pid of the process that has made it. A fork has the descriptor too, and must not use it.
    made_by: u32,
}

impl Connection {
    /// `addresses` are those of the host, if the place is a host.
    pub fn open(address: &Address, addresses: &[SocketAddr], deadline: Instant) -> Result<Connection, Fault> {
        let failed = |error: io::Error| Fault::of_io("connection", &error);
        let stream = match &address.place {
            Place::Unix(path) => Stream::Plain(Channel::unix(path, deadline).map_err(failed)?),
            Place::Tcp { .. } => Stream::Plain(Channel::tcp(addresses, deadline).map_err(failed)?),
            Place::Tls { host, authority, .. } => {
                let channel = Channel::tcp(addresses, deadline).map_err(failed)?;
                let secured = secure(channel, host, authority.as_deref());
                Stream::Secure(Box::new(secured.map_err(|error| Fault::of_io("TLS", &error))?))
            }
        };
        let mut connection = Connection { stream, reader: Reader::default(), made_by: std::process::id() };
        connection.greet(address, deadline)?;
        Ok(connection)
    }

    fn greet(&mut self, address: &Address, deadline: Instant) -> Result<(), Fault> {
        if let Some(password) = &address.password {
            let mut command = Command::new("AUTH");
            if let Some(user) = &address.user {
                command.arg(user);
            }
            command.arg(password);
            self.expect_ok(&command, "the password", deadline)?;
        }
        if address.database != 0 {
            self.expect_ok(Command::new("SELECT").number(address.database.into()), "the database", deadline)?;
        }
        Ok(())
    }

    fn expect_ok(&mut self, command: &Command, what: &str, deadline: Instant) -> Result<(), Fault> {
        match self.exchange(command, deadline, MAX_HANDSHAKE_BYTES)? {
            answer if answer.is_ok() => Ok(()),
            Value::Error(error) => Err(Fault::Away(format!("the server refuses {what}: {error}"))),
            _ => Err(Fault::unexpected(what)),
        }
    }

    /// Returns whether another command can be sent: this process has made the connection, and the server has not closed it.
    pub fn is_usable(&self) -> bool {
        self.made_by == std::process::id() && self.stream.channel().is_quiet()
    }

    /// Sends a command and waits for its answer. After a fault the connection must not be used again.
    pub fn exchange(&mut self, command: &Command, deadline: Instant, answer_bytes_most: u64) -> Result<Value, Fault> {
        self.send(&command.packed(), deadline)?;
        self.receive(deadline, answer_bytes_most)
    }

    /// Sends commands that are packed already.
    pub fn send(&mut self, packed: &[u8], deadline: Instant) -> Result<(), Fault> {
        self.stream.channel_mut().set_deadline(deadline);
        let sent = self.stream.write_all(packed).and_then(|()| self.stream.flush());
        sent.map_err(|error| Fault::of_io("room for the command", &error))
    }

    /// Reads the next answer or message.
    pub fn receive(&mut self, deadline: Instant, bytes_most: u64) -> Result<Value, Fault> {
        self.stream.channel_mut().set_deadline(deadline);
        self.reader.read(&mut self.stream, bytes_most).map_err(|unread| match unread {
            Unread::Source(error) => Fault::of_io("answer", &error),
            Unread::TooLarge => Fault::TooLarge,
            Unread::Malformed => Fault::Away("the answer is not of Redis' protocol".to_owned()),
        })
    }

    /// Waits until something comes that no command has asked for, until `bell` is readable, or until this moment. The bytes of a
    /// TLS record need not contain any of the protocol, so each wait reads first.
    pub fn wait(&mut self, bell: BorrowedFd<'_>, until: Instant) -> Result<Waited, Fault> {
        let mut piece = [0; PIECE_BYTES];
        while !self.reader.has_bytes() {
            // A read that would wait fails immediately.
            self.stream.channel_mut().set_deadline(Instant::now());
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(Fault::of_io("message", &io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.reader.give(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let waited = self.stream.channel().wait_for_one(bell, until);
                    if let Some(waited) = waited.map_err(|error| Fault::of_io("message", &error))? {
                        return Ok(waited);
                    }
                }
                Err(error) => return Err(Fault::of_io("message", &error)),
            }
        }
        Ok(Waited::Bytes)
    }

    /// Ends the connection, also for a fork of this process that has inherited the descriptor.
    pub fn end(self) {
        self.stream.channel().shut_down();
    }
}

impl Stream {
    fn channel(&self) -> &Channel {
        match self {
            Stream::Plain(channel) => channel,
            Stream::Secure(secured) => secured.get_ref(),
        }
    }

    fn channel_mut(&mut self) -> &mut Channel {
        match self {
            Stream::Plain(channel) => channel,
            Stream::Secure(secured) => secured.get_mut(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(channel) => channel.read(buffer),
            Stream::Secure(secured) => secured.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(channel) => channel.write(bytes),
            Stream::Secure(secured) => secured.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(channel) => channel.flush(),
            Stream::Secure(secured) => secured.flush(),
        }
    }
}

/// Begins TLS: the counterpart of what the crate `tls` has for clients, with the same cryptography. The handshake runs with the
/// first bytes that are written.
fn secure(channel: Channel, host: &str, authority: Option<&Path>) -> io::Result<SecureChannel> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(authorities(authority)?)
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(session, channel))
}

fn authorities(authority: Option<&Path>) -> io::Result<RootCertStore> {
    let path = authority.map(Path::to_owned).or_else(system_authorities);
    read_authorities(&path.ok_or_else(|| io::Error::other("no file of trusted certificates; write ?ca=FILE"))?)
}
