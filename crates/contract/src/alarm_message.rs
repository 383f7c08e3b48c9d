//! A raised alarm on its way to the master: one packet over a socket that all processes of an instance share. A packet has the
//! number of messages that its sender had to drop before (u32, little-endian), the length of the name (u8), the name, and the
//! text. It has no other logic.

use crate::settings::alarms::{MAX_MESSAGE_BYTES, NAME_BYTES};

/// Bytes before the name.
const HEAD_BYTES: usize = 5;
/// Bytes of a packet at most.
pub const ALARM_PACKET_BYTES: usize = HEAD_BYTES + NAME_BYTES + MAX_MESSAGE_BYTES as usize;

/// A raised alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlarmMessage<'a> {
    /// Messages that the sender could not send before this one.
    pub lost: u32,
    pub name: &'a str,
    pub text: &'a [u8],
}

impl<'a> AlarmMessage<'a> {
    /// Returns `None` if the name is longer than a name may be. A text that is too long is cut.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let length = u8::try_from(self.name.len()).ok().filter(|length| usize::from(*length) <= NAME_BYTES)?;
        let text = &self.text[..self.text.len().min(MAX_MESSAGE_BYTES as usize)];
        let mut packet = Vec::with_capacity(HEAD_BYTES + self.name.len() + text.len());
        packet.extend_from_slice(&self.lost.to_le_bytes());
        packet.push(length);
        packet.extend_from_slice(self.name.as_bytes());
        packet.extend_from_slice(text);
        Some(packet)
    }

    /// Returns `None` for a packet that no process of the instance sends.
    pub fn decode(packet: &'a [u8]) -> Option<AlarmMessage<'a>> {
        let (lost, rest) = packet.split_first_chunk()?;
        let (length, rest) = rest.split_first()?;
        let (name, text) = rest.split_at_checked(usize::from(*length))?;
        Some(AlarmMessage { lost: u32::from_le_bytes(*lost), name: std::str::from_utf8(name).ok()?, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_what_was_sent_and_never_too_long() {
        let long = vec![b'x'; MAX_MESSAGE_BYTES as usize + 1];
        for (name, text) in [("mail", &b"disk full\n"[..]), ("", b""), ("\u{e9}", b"\xff"), (&"n".repeat(NAME_BYTES), &long)] {
            let packet = AlarmMessage { lost: 7, name, text }.encode().expect("encoded");
            assert!(packet.len() <= ALARM_PACKET_BYTES);
            let text = &text[..text.len().min(MAX_MESSAGE_BYTES as usize)];
            assert_eq!(AlarmMessage::decode(&packet), Some(AlarmMessage { lost: 7, name, text }));
        }
        assert_eq!(AlarmMessage { lost: 0, name: &"n".repeat(NAME_BYTES + 1), text: b"" }.encode(), None);
    }

    #[test]
    fn nonsense_is_no_alarm() {
        for packet in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x02a", b"\0\0\0\0\x01\xff"] {
            assert_eq!(AlarmMessage::decode(packet), None);
        }
    }
}
