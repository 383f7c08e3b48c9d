//! The head of an answer: its status, and its fields as spans of one buffer. Workers run it.
//!
//! The buffer has the lines of HTTP/1, because most heads are sent as they were written: then they are copied once, and their
//! fields are never searched. If a field is read (by a filter, or for a protocol with another format), the spans are found, and
//! from then on they define the head: the bytes of a removed or changed field stay in the buffer. Nothing is validated here.

use memchr::memchr;

use crate::fault::Span;

/// One field: its line, and where its name ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldSpan {
    /// The line including its line end.
    line: Span,
    name_bytes: u32,
}

#[derive(Debug, Default)]
pub struct ResponseHead {
    /// 0 before it is set.
    status: u16,
    /// The status and its reason, a line end, and the lines of fields.
    text: Vec<u8>,
    /// The position of the status and its reason.
    status_span: Span,
    /// Valid if `is_indexed`.
    fields: Vec<FieldSpan>,
    is_indexed: bool,
    /// The spans define the head, and the buffer as a whole does not.
    is_edited: bool,
    /// The value of Content-Length, if there is one.
    pub content_length: Option<u64>,
    /// The length was set by the server, not by the application.
    pub length_is_own: bool,
    /// These fields were set or removed explicitly: the server does not add its own.
    pub has_date: bool,
    pub has_server: bool,
    /// Number of fields, without those that the server adds itself.
    pub count: u32,
}

impl ResponseHead {
    /// Empties the head, and keeps its buffer.
    #[inline]
    pub fn clear(&mut self) {
        self.status = 0;
        self.text.clear();
        self.is_indexed = false;
        self.is_edited = false;
        self.content_length = None;
        self.length_is_own = false;
        self.has_date = false;
        self.has_server = false;
        self.count = 0;
    }

    /// Gives an empty head a buffer.
    pub fn lend(&mut self, buffer: Vec<u8>) {
        self.text = buffer;
        self.clear();
    }

    /// Takes the buffer out: only the status is left of the head.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.is_indexed = false;
        self.fields = Vec::new();
        std::mem::take(&mut self.text)
    }

    /// Starts a new head with a status. `text` is its three digits, a space and a reason.
    #[inline]
    pub fn begin(&mut self, status: u16, text: &[u8]) {
        self.clear();
        self.status = status;
        self.text.extend_from_slice(text);
        self.end_status();
    }

    /// Like [`ResponseHead::begin`], with the digits of a number and a reason that may be empty.
    pub fn begin_with(&mut self, status: u16, reason: &str) {
        self.clear();
        self.status = status;
        let mut digits = itoa::Buffer::new();
        for part in [digits.format(status), " ", reason] {
            self.text.extend_from_slice(part.as_bytes());
        }
        self.end_status();
    }

    fn end_status(&mut self) {
        self.status_span = Span::between(0, self.text.len());
        self.text.extend_from_slice(b"\r\n");
    }

    /// Sets a head that is complete except for the server's own fields: the status line without the protocol's name, and `count`
    /// lines of fields, each with its line end.
    pub fn set_ready(&mut self, status: u16, parts: &[&[u8]], count: u32, content_length: Option<u64>) {
        self.clear();
        self.status = status;
        for part in parts {
            self.text.extend_from_slice(part);
        }
        let end = memchr(b'\r', &self.text).unwrap_or(self.text.len());
        self.status_span = Span::between(0, end);
        self.count = count;
        self.content_length = content_length;
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// Replaces the status for the log. Nothing of the head is sent any more.
    pub fn note_status(&mut self, status: u16) {
        self.status = status;
    }

    /// Returns the status and its reason.
    pub fn status_text(&self) -> &[u8] {
        self.status_span.of(&self.text)
    }

    /// Adds a field of the application.
    #[inline(always)]
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        self.add_own(name, value);
        self.count += 1;
    }

    /// Adds a field of the server.
    #[inline(always)]
    pub fn add_own(&mut self, name: &[u8], value: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b"\r\n");
        if self.is_indexed {
            let line = Span::between(start, self.text.len());
            self.fields.push(FieldSpan { line, name_bytes: name.len() as u32 });
        }
    }

    /// Sets the body's length.
    pub fn set_length(&mut self, length: u64) {
        self.content_length = Some(length);
        self.length_is_own = true;
        self.add_own(b"Content-Length", itoa::Buffer::new().format(length).as_bytes());
    }

    /// Returns the fields as name and value, in the order of the head.
    pub fn fields(&mut self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.index();
        let text: &[u8] = &self.text;
        self.fields.iter().map(move |field| field.of(text))
    }

    /// Returns the values of all fields with this name.
    pub fn values(&mut self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.fields().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the value of the first field with this name.
    pub fn value(&mut self, name: &[u8]) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// Removes all fields with this name; returns the value of the first.
    pub fn remove(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        let first = self.value(name)?.to_vec();
        let text: &[u8] = &self.text;
        let before = self.fields.len();
        self.fields.retain(|field| !field.of(text).0.eq_ignore_ascii_case(name));
        self.count = self.count.saturating_sub((before - self.fields.len()) as u32);
        self.is_edited = true;
        Some(first)
    }

    /// Changes the value of the first field with this name. Returns false if there is none.
    pub fn change(&mut self, name: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.index();
        let text: &[u8] = &self.text;
        let Some(number) = self.fields.iter().position(|field| field.of(text).0.eq_ignore_ascii_case(name)) else {
            return false;
        };
        let field = self.fields[number];
        let (name, value) = field.of(text);
        let mut line = [name, b": "].concat();
        let mut value = value.to_vec();
        change(&mut value);
        line.extend_from_slice(&value);
        line.extend_from_slice(b"\r\n");
        let start = self.text.len();
        self.text.extend_from_slice(&line);
        self.fields[number] = FieldSpan { line: Span::between(start, self.text.len()), name_bytes: field.name_bytes };
        self.is_edited = true;
        true
    }

    /// Writes the status, after `prefix`, and the lines of the fields.
    #[inline(always)]
    pub fn write(&self, prefix: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(prefix);
        if !self.is_edited {
            out.extend_from_slice(&self.text);
            return;
        }
        out.extend_from_slice(self.status_text());
        out.extend_from_slice(b"\r\n");
        for field in &self.fields {
            out.extend_from_slice(field.line.of(&self.text));
        }
    }

    /// Passes each field to `each`, in the order of the head.
    #[inline]
    pub(super) fn each(&self, mut each: impl FnMut(&[u8], &[u8])) {
        if self.is_indexed {
            for field in &self.fields {
                let (name, value) = field.of(&self.text);
                each(name, value);
            }
            return;
        }
        let mut rest = self.text.get(self.status_span.end as usize + b"\r\n".len()..).unwrap_or_default();
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            let (name, value) = line.split_at(memchr(b':', line).unwrap_or(0));
            each(name, value.get(1..).unwrap_or_default().trim_ascii());
            rest = after;
        }
    }

    /// Finds the fields, if that was not done yet.
    fn index(&mut self) {
        if self.is_indexed {
            return;
        }
        self.is_indexed = true;
        self.fields.clear();
        let mut at = self.status_span.end as usize + b"\r\n".len();
        while let Some(length) = self.text.get(at..).and_then(|rest| memchr(b'\n', rest)) {
            let line = Span::between(at, at + length + 1);
            let name_bytes = memchr(b':', line.of(&self.text)).unwrap_or(0) as u32;
            self.fields.push(FieldSpan { line, name_bytes });
            at = line.end as usize;
        }
    }
}

impl FieldSpan {
    fn of(self, text: &[u8]) -> (&[u8], &[u8]) {
        let (name, rest) = self.line.of(text).split_at_checked(self.name_bytes as usize).unwrap_or_default();
        (name, rest.get(1..).unwrap_or_default().trim_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> ResponseHead {
        let mut head = ResponseHead::default();
        head.begin(200, b"200 OK");
        head.add(b"Content-Type", b"text/html");
        head.add(b"Set-Cookie", b"a=1; Path=/");
        head.add(b"set-cookie", b"b=2");
        head
    }

    fn written(head: &ResponseHead) -> String {
        let mut out = Vec::new();
        head.write(b"HTTP/1.1 ", &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_head_is_written_as_it_was_filled() {
        assert_eq!(
            written(&head()),
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\n"
        );
    }

    #[test]
    fn fields_are_found_taken_out_changed_and_added_in_any_order() {
        let mut head = head();
        assert_eq!(head.values(b"SET-COOKIE").collect::<Vec<_>>(), [&b"a=1; Path=/"[..], b"b=2"]);
        assert!(head.change(b"content-type", |value| value.extend_from_slice(b"; charset=utf-8")));
        assert!(!head.change(b"etag", |_| panic!("there is none")));
        head.add(b"ETag", b"\"x\"");
        assert_eq!(head.remove(b"set-cookie"), Some(b"a=1; Path=/".to_vec()));
        assert_eq!(head.remove(b"set-cookie"), None);
        assert_eq!(head.count, 2);
        assert!(head.change(b"etag", |value| value.splice(0..0, *b"W/").for_each(drop)));
        assert_eq!(written(&head), "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nETag: W/\"x\"\r\n");
    }

    #[test]
    fn a_ready_head_is_like_any_other() {
        let mut head = ResponseHead::default();
        head.set_ready(304, &[b"304 Not Modified\r\nETag: \"x\"\r\n", b"Vary: Cookie\r\n"], 2, None);
        assert_eq!(written(&head), "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nVary: Cookie\r\n");
        assert_eq!(head.value(b"vary"), Some(&b"Cookie"[..]));
        head.begin_with(410, "Gone");
        assert_eq!((written(&head), head.status(), head.count), ("HTTP/1.1 410 Gone\r\n".to_owned(), 410, 0));
    }
}
