//! Strings of JSON, for any bytes. It knows no line. Every process runs it.

use crate::dates;

/// Begins a JSON object for a line: its time, its type and the pid. The caller appends the rest, which begins with a comma.
pub fn begin_object(line: &mut Vec<u8>, kind: &str) {
    let now_us = dates::now_us();
    line.extend_from_slice(b"{\"time\":\"");
    dates::rfc3339(line, now_us);
    line.extend_from_slice(format!("\",\"type\":\"{kind}\",\"pid\":{}", std::process::id()).as_bytes());
}

/// Appends `"text"`.
pub fn string(line: &mut Vec<u8>, text: &[u8]) {
    line.push(b'"');
    escaped(line, text);
    line.push(b'"');
}

/// Appends a text in the form that it has within quotes. Bytes that are not UTF-8 become U+FFFD.
pub fn escaped(line: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => line.extend_from_slice(b"\\\""),
                '\\' => line.extend_from_slice(b"\\\\"),
                '\n' => line.extend_from_slice(b"\\n"),
                '\t' => line.extend_from_slice(b"\\t"),
                '\r' => line.extend_from_slice(b"\\r"),
                // U+2028 and U+2029 end lines for some readers; terminals may interpret DEL.
                '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    line.extend_from_slice(format!("\\u{:04x}", character as u32).as_bytes());
                }
                _ => line.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            line.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_leaves_the_line_valid() {
        let cases: [(&[u8], &str); 6] = [
            (b"plain", "\"plain\""),
            (b"a\"b\\c", "\"a\\\"b\\\\c\""),
            (b"\n\t\r\0\x1b\x7f", "\"\\n\\t\\r\\u0000\\u001b\\u007f\""),
            ("Ä€😀".as_bytes(), "\"Ä€😀\""),
            (b"a\xff\xfeb\xe2\x82", "\"a\u{fffd}\u{fffd}b\u{fffd}\""),
            ("\u{2028}\u{85}".as_bytes(), "\"\\u2028\\u0085\""),
        ];
        for (text, expected) in cases {
            let mut line = Vec::new();
            string(&mut line, text);
            assert_eq!(String::from_utf8_lossy(&line), expected);
        }
    }
}
