//! Messages in Protocol Buffers' format, written field by field: metrics for Prometheus and spans for OpenTelemetry need a dozen
//! fields, and no code generator. It does not know messages. Any process may use it.

/// Fields that are read of a message.
const MAX_FIELDS: usize = 64;

/// A message under construction.
#[derive(Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    /// A `uint32`, `uint64` or an enumeration.
    pub fn number(&mut self, field: u32, number: u64) {
        self.key(field, 0);
        varint(&mut self.0, number);
    }

    /// A `sint32` or `sint64`.
    pub fn signed(&mut self, field: u32, number: i64) {
        self.number(field, ((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    pub fn double(&mut self, field: u32, number: f64) {
        self.key(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// A `fixed64`.
    pub fn fixed(&mut self, field: u32, number: u64) {
        self.key(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        varint(&mut self.0, u64::from(field << 3 | wire_type));
    }
}

pub fn varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Reads a message: each field with its number, and its value as a number or as bytes. It ends where the text is not a message.
pub fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut found = Vec::new();
    while found.len() < MAX_FIELDS
        && let Some(key) = read_varint(&mut message)
    {
        let (field, mut number, mut bytes) = (key >> 3, 0, &message[..0]);
        let taken = match key & 7 {
            0 => read_varint(&mut message).map(|value| number = value),
            1 => message.split_at_checked(8).map(|(_, rest)| message = rest),
            2 => read_varint(&mut message)
                .and_then(|length| message.split_at_checked(usize::try_from(length).ok()?))
                .map(|(value, rest)| (bytes, message) = (value, rest)),
            5 => message.split_at_checked(4).map(|(_, rest)| message = rest),
            _ => None,
        };
        if taken.is_none() {
            break;
        }
        found.push((field, number, bytes));
    }
    found
}

fn read_varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_encoded_as_the_format_says() {
        let mut message = Message::default();
        message.number(1, 300);
        message.signed(13, -2);
        message.double(2, 1.0);
        message.bytes(2, b"ab");
        let expected = [8, 0xac, 2, 104, 3, 17, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 18, 2, b'a', b'b'];
        assert_eq!(message.0, expected);
    }
}
