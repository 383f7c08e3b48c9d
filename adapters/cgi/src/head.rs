//! The header block of a program's answer (RFC 3875 section 6): its end, its lines, and the status. It reads bytes only. Workers
//! run it.

use std::ops::Range;

/// Maximum size in bytes of a header block.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Maximum number of bytes of a wrong line that the log shows.
const MAX_SHOWN_BYTES: usize = 120;

/// The status of an answer without a Status field (RFC 3875 section 6.3.3).
const OK: &[u8] = b"200 OK";
/// The status of an answer with a Location field and no other status (RFC 3875 section 6.2.3).
const FOUND: &[u8] = b"302 Found";

/// A header block as its bytes arrive.
#[derive(Debug, Default)]
pub struct HeadReader {
    bytes: Vec<u8>,
    /// The beginning of the line that is not complete yet.
    line: usize,
}

/// A complete header block.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    bytes: Vec<u8>,
    status: Option<Range<usize>>,
    fields: Vec<(Range<usize>, Range<usize>)>,
    is_redirect: bool,
}

/// Why a header block is refused, for a message about the program.
#[derive(Debug, PartialEq, Eq)]
pub struct HeadFault(pub String);

impl HeadReader {
    /// Takes bytes of the program's output. Returns the number of those that belong to the block, and the block once it is
    /// complete.
    ///
    /// # Errors
    /// The block is too long, or a line is not a header field.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Head>), HeadFault> {
        let before = self.bytes.len();
        let room = MAX_HEAD_BYTES - before;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let mut from = before;
        while let Some(end) = self.bytes[from..].iter().position(|byte| *byte == b'\n').map(|offset| from + offset) {
            from = end + 1;
            if without_return(&self.bytes[self.line..end]).is_empty() {
                let used = end + 1 - before;
                self.bytes.truncate(end + 1);
                return Ok((used, Some(Head::of(std::mem::take(&mut self.bytes))?)));
            }
            self.line = end + 1;
        }
        if bytes.len() >= room {
            return Err(HeadFault(format!("wrote a header block of more than {MAX_HEAD_BYTES} bytes")));
        }
        Ok((bytes.len(), None))
    }

    /// Whether nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The first line, for the log.
    pub fn first_line(&self) -> String {
        shown(self.bytes.split(|byte| *byte == b'\n').next().unwrap_or_default())
    }
}

impl Head {
    fn of(bytes: Vec<u8>) -> Result<Head, HeadFault> {
        let mut head = Head { bytes: Vec::new(), status: None, fields: Vec::new(), is_redirect: false };
        let mut from = 0;
        for line in bytes.split(|byte| *byte == b'\n') {
            let begin = from;
            from += line.len() + 1;
            let line = without_return(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|byte| *byte == b':');
            let Some(colon) = colon.filter(|colon| is_token(&line[..*colon])) else {
                return Err(HeadFault(format!("wrote a line that is not a header field: {}", shown(line))));
            };
            let value = trimmed(&line[colon + 1..]);
            let value_begin = begin + colon + 1 + value.start;
            let value = value_begin..value_begin + value.len();
            let name = begin..begin + colon;
            if bytes[name.clone()].eq_ignore_ascii_case(b"status") {
                // As in uWSGI, the first one counts.
                head.status.get_or_insert(value);
                continue;
            }
            head.is_redirect |= bytes[name.clone()].eq_ignore_ascii_case(b"location");
            head.fields.push((name, value));
        }
        if let Some(status) = &head.status {
            check_status(&bytes[status.clone()])?;
        }
        head.bytes = bytes;
        Ok(head)
    }

    /// Three digits, and maybe a space and a reason.
    pub fn status(&self) -> &[u8] {
        match &self.status {
            Some(status) => &self.bytes[status.clone()],
            None if self.is_redirect => FOUND,
            None => OK,
        }
    }

    /// Names and values of the fields, in their order, without Status.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (&self.bytes[name.clone()], &self.bytes[value.clone()]))
    }
}

fn check_status(status: &[u8]) -> Result<(), HeadFault> {
    let is_right = match status {
        [b'2'..=b'5', tens, units, rest @ ..] => {
            tens.is_ascii_digit() && units.is_ascii_digit() && matches!(rest, [] | [b' ', ..])
        }
        _ => false,
    };
    if is_right { Ok(()) } else { Err(HeadFault(format!("wrote a status that is none: {}", shown(status)))) }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The part of a value between its spaces and tabs.
fn trimmed(value: &[u8]) -> Range<usize> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let begin = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(begin, |last| last + 1);
    begin..end
}

/// RFC 9110 section 5.6.2.
fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// A line for the log: short, and without control characters.
pub fn shown(line: &[u8]) -> String {
    let line = without_return(line);
    let text: String = String::from_utf8_lossy(&line[..line.len().min(MAX_SHOWN_BYTES)])
        .chars()
        .map(|character| if character.is_control() { '?' } else { character })
        .collect();
    if line.len() > MAX_SHOWN_BYTES { format!("`{text}…`") } else { format!("`{text}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status and the fields of a block, and what follows it; or the fault.
    type Read = Result<(String, Vec<(String, String)>, String), String>;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn read(output: &[u8], step: usize) -> Read {
        let mut reader = HeadReader::default();
        let mut used = 0;
        for piece in output.chunks(step) {
            let (taken, head) = reader.feed(piece).map_err(|HeadFault(fault)| fault)?;
            used += taken;
            if let Some(head) = head {
                let fields = head.fields().map(|(name, value)| (text(name), text(value))).collect();
                return Ok((text(head.status()), fields, text(&output[used..])));
            }
        }
        Err("incomplete".to_owned())
    }

    fn answer(status: &str, fields: &[(&str, &str)], body: &str) -> Read {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Ok((status.to_owned(), fields, body.to_owned()))
    }

    #[test]
    fn a_block_is_the_same_whole_byte_by_byte_and_with_a_body_behind_it() {
        let html = ("Content-Type", "text/html");
        for (output, wanted) in [
            (&b"Content-Type: text/html\n\n"[..], answer("200 OK", &[html], "")),
            (b"Content-Type: text/html\r\n\r\nbody\n\n", answer("200 OK", &[html], "body\n\n")),
            (b"Content-Type:text/html \t\n\r\nbody", answer("200 OK", &[html], "body")),
            (b"status: 404 Not Found\nContent-Type: text/html\n\nx", answer("404 Not Found", &[html], "x")),
            (b"Status:201\nStatus: 500\n\n", answer("201", &[], "")),
            (b"Location: /there\n\n", answer("302 Found", &[("Location", "/there")], "")),
            (b"Location: /there\nStatus: 301 Moved\n\n", answer("301 Moved", &[("Location", "/there")], "")),
            (b"X-Empty:\nX-Colon: a:b\n\n", answer("200 OK", &[("X-Empty", ""), ("X-Colon", "a:b")], "")),
            (b"\nbody", answer("200 OK", &[], "body")),
            (b"Content-Type: text/html\n", Err("incomplete".to_owned())),
            (b"", Err("incomplete".to_owned())),
            (b"<p>hello</p>\n\n", Err("wrote a line that is not a header field: `<p>hello</p>`".to_owned())),
            (b"HTTP/1.1 200 OK\n\n", Err("wrote a line that is not a header field: `HTTP/1.1 200 OK`".to_owned())),
            (b"A: b\n c: d\n\n", Err("wrote a line that is not a header field: ` c: d`".to_owned())),
            (b": x\n\n", Err("wrote a line that is not a header field: `: x`".to_owned())),
            (b"Status: 99\n\n", Err("wrote a status that is none: `99`".to_owned())),
            (b"Status: 100 Continue\n\n", Err("wrote a status that is none: `100 Continue`".to_owned())),
            (b"Status: 2000\n\n", Err("wrote a status that is none: `2000`".to_owned())),
            (b"Status:\n\n", Err("wrote a status that is none: ``".to_owned())),
        ] {
            for step in [1, 2, 3, 7, 4096] {
                assert_eq!(read(output, step), wanted, "{} in steps of {step}", text(output));
            }
        }
    }

    #[test]
    fn a_block_without_an_end_is_refused_at_its_bound() {
        for step in [1, 1000, MAX_HEAD_BYTES * 2] {
            let fault = read(&b"X: yyyyyy\n".repeat(MAX_HEAD_BYTES), step).expect_err("too long");
            assert!(fault.contains("more than 65536 bytes"), "{fault}");
        }
    }

    #[test]
    fn the_log_shows_a_bounded_line_without_control_characters() {
        let mut reader = HeadReader::default();
        assert!(reader.is_empty());
        reader.feed(&[b"\x1b[31m", &b"x".repeat(1000)[..], b"\nmore"].concat()).expect("not complete");
        let line = reader.first_line();
        assert!(line.starts_with("`?[31mxxx") && line.ends_with("x…`") && line.len() < 2 * MAX_SHOWN_BYTES, "{line}");
    }
}
