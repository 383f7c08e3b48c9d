//! Messages that an instance publishes to those of other machines: their form on the network, and sending them.
//!
//! A message is published on the channel `PREFIX:publish:DATABASE:NAME`: the channels of Redis belong to no database, and
//! applications that share a server by the database must not hear each other. Its bytes are the head (a version, flags, and the
//! instance that has sent it) and the data. A server does not keep messages, so one that can't be sent now is lost.

use crate::engine::Engine;
use crate::fault::Fault;
use crate::wire::Command;

/// Bytes of the head: the version, the flags, and the number of the instance.
const HEAD_BYTES: usize = 10;
/// The first byte of a message. Builds with another layout have another version.
const VERSION: u8 = 1;
const IS_TEXT: u8 = 1;
/// Bytes of the name of a channel, and of the data of a message.
pub(crate) const MAX_CHANNEL_BYTES: usize = 255;
pub(crate) const MAX_DATA_BYTES: usize = 16 << 20;

/// A message of a channel.
#[derive(Debug, PartialEq, Eq)]
pub struct PublishedMessage {
    pub channel: String,
    packed: Vec<u8>,
}

impl PublishedMessage {
    /// `origin` is the number of the instance that sends it.
    pub fn new(channel: &str, data: &[u8], is_text: bool, origin: u64) -> PublishedMessage {
        let mut packed = Vec::with_capacity(HEAD_BYTES + data.len());
        packed.extend_from_slice(&[VERSION, if is_text { IS_TEXT } else { 0 }]);
        packed.extend_from_slice(&origin.to_be_bytes());
        packed.extend_from_slice(data);
        PublishedMessage { channel: channel.to_owned(), packed }
    }

    /// `None`: the bytes are not those of a message.
    pub(crate) fn read(channel: String, packed: Vec<u8>) -> Option<PublishedMessage> {
        let is_channel = (1..=MAX_CHANNEL_BYTES).contains(&channel.len());
        let is_size = (HEAD_BYTES..=HEAD_BYTES + MAX_DATA_BYTES).contains(&packed.len());
        let message = PublishedMessage { channel, packed };
        let is_head = is_channel && is_size && matches!(message.packed[..2], [VERSION, 0 | IS_TEXT]);
        let is_whole = is_head && (!message.is_text() || std::str::from_utf8(message.data()).is_ok());
        is_whole.then_some(message)
    }

    /// The number of the instance that has sent it.
    pub fn origin(&self) -> u64 {
        let number = self.packed.get(2..HEAD_BYTES).and_then(|bytes| bytes.try_into().ok());
        number.map_or(0, u64::from_be_bytes)
    }

    pub fn is_text(&self) -> bool {
        self.packed.get(1) == Some(&IS_TEXT)
    }

    pub fn data(&self) -> &[u8] {
        self.packed.get(HEAD_BYTES..).unwrap_or_default()
    }

    /// The bytes that it takes while it waits.
    pub fn bytes(&self) -> usize {
        self.channel.len() + self.packed.len()
    }
}

/// Sends the messages of this process.
#[derive(Clone, Copy)]
pub struct Publisher {
    engine: &'static Engine,
}

impl Publisher {
    pub fn new(engine: &'static Engine) -> Publisher {
        Publisher { engine }
    }

    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// Sends messages in their order, which takes at most the engine's time limits. Returns how many of them the server has
    /// taken.
    pub fn send(&self, messages: &[PublishedMessage]) -> Result<usize, Fault> {
        let prefix = channel_prefix(self.engine);
        let command = |message: &PublishedMessage| {
            let mut command = Command::new("PUBLISH");
            command.arg([&prefix, message.channel.as_bytes()].concat()).arg(&message.packed);
            command
        };
        self.engine.call_all(&messages.iter().map(command).collect::<Vec<Command>>())
    }
}

/// A number for an instance, by which it knows its own messages. It is not 0.
///
/// # Errors
/// The system can't provide random bytes.
pub fn new_origin() -> Result<u64, Fault> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| Fault::Refused(format!("no random bytes for a number: {error}")))?;
    Ok(u64::from_be_bytes(random).max(1))
}

/// The prefix of all channel names on the server.
pub(crate) fn channel_prefix(engine: &Engine) -> Vec<u8> {
    engine.key("publish", &engine.address().database.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(channel: &str, packed: &[u8]) -> Option<PublishedMessage> {
        PublishedMessage::read(channel.to_owned(), packed.to_vec())
    }

    #[test]
    fn a_message_is_read_as_it_was_made() {
        for (data, is_text) in [(&b""[..], true), (b"\0\xff", false), ("grün".as_bytes(), true)] {
            let made = PublishedMessage::new("news", data, is_text, u64::MAX - 1);
            let read = read("news", &made.packed).expect("a message");
            assert_eq!((read.data(), read.is_text(), read.origin()), (data, is_text, u64::MAX - 1));
            assert_eq!(read, made);
        }
    }

    #[test]
    fn bytes_of_other_programs_are_no_messages() {
        let head = |version: u8, flags: u8| [&[version, flags][..], &[0; 8]].concat();
        let long = "x".repeat(256);
        for (channel, packed) in [
            ("news", b"hello".to_vec()),
            ("news", vec![]),
            ("news", head(VERSION + 1, 0)),
            ("news", head(VERSION, 2)),
            ("news", [head(VERSION, IS_TEXT), vec![0xff]].concat()),
            ("news", [head(VERSION, 0), vec![0; MAX_DATA_BYTES + 1]].concat()),
            ("", head(VERSION, 0)),
            (&long, head(VERSION, 0)),
        ] {
            assert_eq!(read(channel, &packed), None, "{channel} {}", packed.len());
        }
        assert!(read("news", &head(VERSION, 0)).is_some());
    }
}
