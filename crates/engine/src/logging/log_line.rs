//! The content of a request line, independent of its format: its values, and the escaping of clients' text. It writes nothing.
//! Worker threads run it.

use std::borrow::Cow;

use bolide_contract::logging::AlwaysLogged;

use crate::logging::identity::Identity;

/// Maximum number of bytes of a URI in a line, and of other client text in a format.
pub const URI_BYTES: usize = 2048;

/// Maximum number of bytes of an address in a line: `log-x-forwarded-for` may contain a list.
pub const ADDRESS_BYTES: usize = 512;

/// The values of a request line, in their order.
pub struct LogLine<'a> {
    pub application: u32,
    /// The number of requests of this worker, and of all workers.
    pub request: u64,
    pub request_of_all: u64,
    pub address: &'a [u8],
    pub user: &'a [u8],
    pub variables: u32,
    pub variable_bytes: u32,
    pub ctime: &'a [u8],
    pub method: &'a [u8],
    pub uri: &'a [u8],
    pub body_bytes: u64,
    pub microseconds: u64,
    pub via_sendfile: bool,
    /// The answer is a file, regardless of how it was sent.
    pub is_file: bool,
    pub protocol: &'a [u8],
    pub status: u16,
    pub header_count: u32,
    pub head_bytes: u64,
    pub core: u32,
    pub worker: u32,
    /// The client did not read the whole answer.
    pub is_broken: bool,
}

impl LogLine<'_> {
    /// Whether the request is logged even if request logging is off.
    pub fn is_among(&self, always: &AlwaysLogged) -> bool {
        always.client_errors && (400..500).contains(&self.status)
            || always.server_errors && (500..600).contains(&self.status)
            || always.slow_ms.is_some_and(|slow_ms| self.microseconds / 1000 >= slow_ms)
            || always.big_bytes.is_some_and(|big_bytes| self.body_bytes >= big_bytes)
            || always.empty && self.body_bytes == 0
            || always.files && self.is_file
            || always.broken && self.is_broken
    }
}

/// Texts that outlive the bytes of their request, all in one allocation.
#[derive(Debug)]
pub struct Texts {
    /// The end of each text, as four bytes, then the texts.
    bytes: Vec<u8>,
    count: usize,
}

impl Texts {
    /// Most requests have values of this many bytes, or less.
    const USUAL_BYTES: usize = 256;
    const END_BYTES: usize = size_of::<u32>();

    pub fn of<'a>(texts: impl ExactSizeIterator<Item = Cow<'a, [u8]>>) -> Texts {
        let count = texts.len();
        let mut bytes = Vec::with_capacity(count * Texts::END_BYTES + Texts::USUAL_BYTES);
        bytes.resize(count * Texts::END_BYTES, 0);
        for (place, text) in texts.enumerate() {
            bytes.extend_from_slice(&text);
            let end = (bytes.len() as u32).to_ne_bytes();
            bytes[place * Texts::END_BYTES..][..Texts::END_BYTES].copy_from_slice(&end);
        }
        Texts { bytes, count }
    }

    /// Returns a text by its place; nothing for one that does not exist.
    pub fn get(&self, place: usize) -> &[u8] {
        let end = |place: usize| {
            let end = self.bytes.get(place * Texts::END_BYTES..)?.first_chunk()?;
            (place < self.count).then(|| u32::from_ne_bytes(*end) as usize)
        };
        let begin = place.checked_sub(1).map_or(Some(self.count * Texts::END_BYTES), end);
        begin.zip(end(place)).and_then(|(begin, end)| self.bytes.get(begin..end)).unwrap_or_default()
    }
}

/// More values of a request for a format: those of the names that the style returns, and the application's own variables.
#[derive(Clone, Copy, Default)]
pub struct RequestNotes<'a> {
    pub values: Option<&'a Texts>,
    pub application: &'a [(Vec<u8>, Vec<u8>)],
    pub identity: Option<&'a Identity>,
}

impl RequestNotes<'_> {
    pub fn request(&self, place: usize) -> &[u8] {
        self.values.map_or(b"", |values| values.get(place))
    }

    /// Returns the application's variable of this name; the last one counts.
    pub fn of_application(&self, name: &[u8]) -> &[u8] {
        self.application.iter().rfind(|(known, _)| known == name).map_or(b"", |(_, value)| value)
    }
}

/// The first byte of U+0080 to U+009F in UTF-8, which terminals interpret like `ESC [` and similar; the second is at most
/// [`C1_LAST`].
const C1_LEAD: u8 = 0xc2;
const C1_LAST: u8 = 0x9f;

/// Replaces control characters in client text: a log line stays one line, and can't control a terminal.
pub fn visible(buffer: &mut Vec<u8>, text: &[u8]) {
    let start = buffer.len();
    buffer.extend_from_slice(text);
    for byte in &mut buffer[start..] {
        if *byte < 0x20 || *byte == 0x7f {
            *byte = b'?';
        }
    }
    let mut rest = &mut buffer[start..];
    while let Some(at) = memchr::memchr(C1_LEAD, rest) {
        rest = &mut rest[at + 1..];
        if let Some(second) = rest.first_mut().filter(|second| (0x80..=C1_LAST).contains(*second)) {
            // U+00BF, an inverted question mark, keeps the text valid UTF-8.
            *second = 0xbf;
        }
    }
}

/// Escapes client text for a format with quotes, so that a parser finds the end of the field: as in Apache's `%r` and `%i`,
/// quotes and backslashes get a backslash, and control characters become `\n`, `\t`, `\r` or `\xhh` per byte. UTF-8 is kept.
pub fn quotable(buffer: &mut Vec<u8>, text: &[u8]) {
    let is_special = |byte: &u8| *byte < 0x20 || matches!(*byte, b'"' | b'\\' | 0x7f | C1_LEAD);
    let mut rest = text;
    while let Some(place) = rest.iter().position(is_special) {
        let (plain, special) = rest.split_at(place);
        buffer.extend_from_slice(plain);
        let taken = match *special {
            [b'"', ..] => named(buffer, b'"'),
            [b'\\', ..] => named(buffer, b'\\'),
            [b'\n', ..] => named(buffer, b'n'),
            [b'\r', ..] => named(buffer, b'r'),
            [b'\t', ..] => named(buffer, b't'),
            [C1_LEAD, second @ 0x80..=C1_LAST, ..] => {
                numbered(buffer, C1_LEAD);
                numbered(buffer, second);
                2
            }
            [C1_LEAD, ..] => {
                buffer.push(C1_LEAD);
                1
            }
            [byte, ..] => {
                numbered(buffer, byte);
                1
            }
            [] => break,
        };
        rest = special.get(taken..).unwrap_or_default();
    }
    buffer.extend_from_slice(rest);
}

/// Writes `\n`; returns the number of bytes that it stands for.
fn named(buffer: &mut Vec<u8>, letter: u8) -> usize {
    buffer.extend_from_slice(&[b'\\', letter]);
    1
}

/// Writes `\x1b`.
fn numbered(buffer: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    buffer.extend_from_slice(&[b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
}

/// Returns the address space and resident memory of this process in bytes; zeros without /proc.
pub fn memory_bytes() -> (u64, u64) {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return (0, 0) };
    let mut pages = text.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096) as u64;
    (pages.next().unwrap_or(0) * page, pages.next().unwrap_or(0) * page)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A request that was answered.
    pub fn line() -> LogLine<'static> {
        LogLine {
            application: 0,
            request: 3,
            request_of_all: 7,
            address: b"127.0.0.1",
            user: b"",
            variables: 28,
            variable_bytes: 317,
            ctime: b"Sun Nov  6 08:49:37 1994",
            method: b"GET",
            uri: b"/x?y",
            body_bytes: 12,
            microseconds: 1999,
            via_sendfile: false,
            is_file: false,
            protocol: b"HTTP/1.1",
            status: 200,
            header_count: 2,
            head_bytes: 79,
            core: 0,
            worker: 1,
            is_broken: false,
        }
    }

    #[test]
    fn each_condition_has_a_line_for_its_requests_and_no_other() {
        let off = AlwaysLogged::default();
        for (always, yes, no) in [
            (
                AlwaysLogged { client_errors: true, ..off.clone() },
                LogLine { status: 404, ..line() },
                LogLine { status: 500, ..line() },
            ),
            (
                AlwaysLogged { server_errors: true, ..off.clone() },
                LogLine { status: 503, ..line() },
                LogLine { status: 499, ..line() },
            ),
            (AlwaysLogged { slow_ms: Some(2), ..off.clone() }, LogLine { microseconds: 2000, ..line() }, line()),
            (AlwaysLogged { big_bytes: Some(13), ..off.clone() }, LogLine { body_bytes: 13, ..line() }, line()),
            (AlwaysLogged { empty: true, ..off.clone() }, LogLine { body_bytes: 0, ..line() }, line()),
            (AlwaysLogged { files: true, ..off.clone() }, LogLine { is_file: true, ..line() }, line()),
            (AlwaysLogged { broken: true, ..off.clone() }, LogLine { is_broken: true, ..line() }, line()),
        ] {
            assert!(yes.is_among(&always) && !no.is_among(&always) && !yes.is_among(&off), "{always:?}");
        }
    }

    #[test]
    fn each_text_is_at_its_place_and_nothing_elsewhere() {
        for texts in [&[][..], &["a"], &["", "host", "", "agent"], &["one", "two", "three", ""]] {
            let kept = Texts::of(texts.iter().map(|text| Cow::Borrowed(text.as_bytes())));
            let expected: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).chain([&b""[..], b""]).collect();
            let found: Vec<&[u8]> = (0..expected.len()).map(|place| kept.get(place)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn client_text_cannot_end_a_quoted_field() {
        for (text, shown) in [
            (&b"plain"[..], "plain"),
            (b"", ""),
            (br#"x" 200 "y\"#, r#"x\" 200 \"y\\"#),
            (b"a\n\r\tb\0\x1b[0m\x7f", r"a\n\r\tb\x00\x1b[0m\x7f"),
            ("\u{9b}31m\u{a0}\u{e9}\u{20ac}".as_bytes(), "\\xc2\\x9b31m\u{a0}\u{e9}\u{20ac}"),
        ] {
            let mut buffer = Vec::new();
            quotable(&mut buffer, text);
            assert_eq!(String::from_utf8_lossy(&buffer), shown);
        }
        let mut buffer = Vec::new();
        quotable(&mut buffer, b"cut \xc2");
        assert_eq!(buffer, b"cut \xc2");
    }

    #[test]
    fn client_text_cannot_break_the_line() {
        let mut buffer = Vec::new();
        visible(&mut buffer, b"/a\nb\x1b[0m");
        assert_eq!(buffer, b"/a?b?[0m");
        for (text, shown) in [("\u{9b}31m\u{80}\u{9f}", "¿31m¿¿"), ("\u{a0}é€\u{c2}", "\u{a0}é€\u{c2}")] {
            buffer.clear();
            visible(&mut buffer, text.as_bytes());
            assert_eq!(buffer, shown.as_bytes());
        }
        buffer.clear();
        visible(&mut buffer, b"cut \xc2");
        assert_eq!(buffer, b"cut \xc2");
    }
}
