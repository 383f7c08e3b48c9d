//! Objects and strings of JSON, for any bytes. It does not know events. Every process runs it.

use crate::level::Level;
use crate::{dates, identity};

/// Begins a JSON object for a line: its time, level and type, and the process. The caller appends the rest, which begins with a
/// comma.
pub fn begin_object(line: &mut Vec<u8>, level: Level, kind: &str) {
    begin_object_with(line, &after_time(level, kind));
}

/// Begins such an object with what is the same in many: the result of [`after_time`].
pub fn begin_object_with(line: &mut Vec<u8>, after_time: &[u8]) {
    line.extend_from_slice(b"{\"time\":\"");
    dates::rfc3339(line, dates::now_us());
    line.extend_from_slice(after_time);
}

/// Returns what follows the time in an object of this process.
pub fn after_time(level: Level, kind: &str) -> Vec<u8> {
    let mut text = Vec::new();
    level_and_process(&mut text, level, kind, identity::pid(), identity::worker());
    if let Some(helper) = identity::helper() {
        text.extend_from_slice(b",\"helper\":");
        string(&mut text, helper.as_bytes());
    }
    text
}

/// Begins an object about another process: the worker with this number, or 0.
pub fn begin_object_of(line: &mut Vec<u8>, level: Level, kind: &str, pid: u32, worker: u32) {
    begin_object_with(line, b"");
    level_and_process(line, level, kind, pid, worker);
}

fn level_and_process(line: &mut Vec<u8>, level: Level, kind: &str, pid: u32, worker: u32) {
    for part in ["\",\"level\":\"", level.name(), "\",\"type\":\"", kind, "\",\"pid\":"] {
        line.extend_from_slice(part.as_bytes());
    }
    number(line, pid.into());
    if worker > 0 {
        line.extend_from_slice(b",\"worker\":");
        number(line, worker.into());
    }
}

/// Appends a number.
pub fn number(line: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let (mut begin, mut rest) = (digits.len(), value);
    loop {
        begin -= 1;
        digits[begin] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[begin..]);
}

/// Appends `"text"`.
pub fn string(line: &mut Vec<u8>, text: &[u8]) {
    line.push(b'"');
    escaped(line, text);
    line.push(b'"');
}

/// Appends a text in the form that it has within quotes. Bytes that are not UTF-8 become U+FFFD.
///
/// Nearly every text of a request is plain: it is copied as a whole, since a look at each character costs ten times as much.
#[inline]
pub fn escaped(line: &mut Vec<u8>, text: &[u8]) {
    // Not `all`, which stops at the first other byte: without that, the compiler looks at many bytes at a time.
    match text.iter().fold(true, |is_plain, byte| is_plain & is_copied(*byte)) {
        true => line.extend_from_slice(text),
        false => escaped_one_by_one(line, text),
    }
}

/// ASCII without controls, quotes and backslashes.
fn is_copied(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\')
}

fn escaped_one_by_one(line: &mut Vec<u8>, text: &[u8]) {
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
    fn numbers_have_all_their_digits() {
        for value in [0, 7, 10, 4711, u64::MAX] {
            let mut line = Vec::new();
            number(&mut line, value);
            assert_eq!(String::from_utf8_lossy(&line), value.to_string());
        }
    }

    #[test]
    fn a_text_that_is_copied_is_the_one_that_would_be_written_one_by_one() {
        for byte in 0..=255 {
            let text = [b'a', byte, b'b'];
            let (mut quick, mut slow) = (Vec::new(), Vec::new());
            escaped(&mut quick, &text);
            escaped_one_by_one(&mut slow, &text);
            assert_eq!(quick, slow, "{byte:#x}");
        }
    }

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
