//! W3C Trace Context: the field `traceparent`, read and written. It does not draw random numbers or know about requests. Workers
//! run it.

/// Bytes of a `traceparent` of version 00.
pub const TRACEPARENT_BYTES: usize = 55;
/// Maximum size in bytes of a `tracestate` that is passed on (section 3.3.1.5 asks for at least 512).
pub const MAX_TRACESTATE_BYTES: usize = 512;
/// The flag "sampled".
pub const SAMPLED: u8 = 1;

/// A position in a trace: the trace and one of its spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub flags: u8,
}

impl TraceContext {
    /// Reads the value of a field `traceparent`. `None`: it is invalid, and section 3.2.2 asks for a new trace.
    pub fn parse(value: &[u8]) -> Option<TraceContext> {
        let (version, rest) = value.split_at_checked(2)?;
        // A later version may have more parts behind these (section 4).
        let is_longer = version != b"00" && value.get(TRACEPARENT_BYTES) == Some(&b'-');
        if version == b"ff" || hexadecimal::<1>(version).is_none() || value.len() != TRACEPARENT_BYTES && !is_longer {
            return None;
        }
        let parts = (rest.first()?, rest.get(33)?, rest.get(50)?);
        if parts != (&b'-', &b'-', &b'-') {
            return None;
        }
        let context = TraceContext {
            trace: hexadecimal(rest.get(1..33)?)?,
            span: hexadecimal(rest.get(34..50)?)?,
            flags: hexadecimal::<1>(rest.get(51..53)?)?[0],
        };
        (context.trace != [0; 16] && context.span != [0; 8]).then_some(context)
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The value of a field `traceparent` or `traceresponse`.
    pub fn text(&self) -> String {
        format!("00-{}-{}-{:02x}", text_of(&self.trace), text_of(&self.span), self.flags & SAMPLED)
    }
}

/// Bytes as hexadecimal digits.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = vec![0; 2 * bytes.len()];
    write_hexadecimal(&mut text, bytes);
    // Digits are UTF-8.
    String::from_utf8(text).unwrap_or_default()
}

/// Writes bytes as lower-case hexadecimal digits, two for each. What does not fit into the text is left out.
pub fn write_hexadecimal(text: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Lower-case digits only: section 3.2.2.
fn hexadecimal<const BYTES: usize>(text: &[u8]) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if text.len() != 2 * BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_field_is_read_and_written_as_it_was() {
        let context = TraceContext::parse(VALID.as_bytes()).expect("valid");
        assert_eq!((context.text().as_str(), context.is_sampled()), (VALID, true));
        let later = VALID.replace("00-4", "cc-4") + "-more";
        assert_eq!(TraceContext::parse(later.as_bytes()), Some(context));
    }

    #[test]
    fn an_invalid_field_is_none() {
        for (change, by) in [
            ("00-4", "ff-4"),
            ("00-4", "0g-4"),
            ("4bf92f", "4BF92F"),
            ("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            ("00f067aa0ba902b7", "0000000000000000"),
            ("-01", "-0"),
            ("-01", "-011"),
            ("-01", "-01-"),
            ("-00f0", "x00f0"),
        ] {
            let text = VALID.replacen(change, by, 1);
            assert_eq!(TraceContext::parse(text.as_bytes()), None, "{text}");
        }
        for length in 0..VALID.len() {
            assert_eq!(TraceContext::parse(&VALID.as_bytes()[..length]), None);
        }
        let later = VALID.replace("00-4", "cc-4") + "x";
        assert_eq!(TraceContext::parse(later.as_bytes()), None);
    }
}
