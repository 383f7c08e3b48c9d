//! The table of a request's variables for languages that get them as pairs of texts. It does not know languages. Worker threads
//! run it.

use bolide_abi::{bolide_pair, bolide_text};
use bolide_engine::request::LogFacts;
use bolide_engine::request::variables::{OwnVariable, Variables};

/// The number of variables that most requests do not exceed.
const USUAL_VARIABLES: usize = 48;
const USUAL_BYTES: usize = 4096;

/// How many variables [`OwnVariable`] has.
const OWN_VARIABLES: usize = OwnVariable::RequestStart as usize + 1;

/// A range of the table's bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Range {
    start: u32,
    end: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    name: Range,
    value: Range,
    is_removed: bool,
}

/// Variables with their values, whose memory is used again for the next request.
#[derive(Debug, Clone, Default)]
pub struct Table {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The entry of each variable of the server's own, plus 1; 0: there is none.
    own: [u16; OWN_VARIABLES],
}

impl Table {
    pub fn new() -> Table {
        Table { bytes: Vec::with_capacity(USUAL_BYTES), entries: Vec::with_capacity(USUAL_VARIABLES), own: [0; OWN_VARIABLES] }
    }

    /// Makes this table the same as another one.
    pub fn copy(&mut self, other: &Table) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&other.bytes);
        self.entries.clear();
        self.entries.extend_from_slice(&other.entries);
        self.own = other.own;
    }

    /// The value of a variable.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let entry = self.place_of(name)?;
        Some(self.at(self.entries[entry].value))
    }

    /// Writes the pairs to a list for C, which is valid as long as the table does not change.
    pub fn write_pairs(&self, pairs: &mut Vec<bolide_pair>) {
        pairs.clear();
        let present = self.entries.iter().filter(|entry| !entry.is_removed);
        pairs.extend(
            present.map(|entry| bolide_pair { name: text_of(self.at(entry.name)), value: text_of(self.at(entry.value)) }),
        );
    }

    /// Names the server as the client does (RFC 3875 section 4.1.14): by the Host field without its port.
    pub fn name_server(&mut self) {
        let (Some(host), Some(name)) = (self.own_place(OwnVariable::Host), self.own_place(OwnVariable::ServerName)) else {
            return;
        };
        let Range { start, end } = self.entries[host].value;
        let length = without_port(self.at(Range { start, end })).len() as u32;
        if length > 0 {
            self.entries[name].value = Range { start, end: start + length };
        }
    }

    fn at(&self, range: Range) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }

    /// The last entry of this name.
    fn place_of(&self, name: &[u8]) -> Option<usize> {
        let is_it = |entry: &Entry| !entry.is_removed && self.at(entry.name) == name;
        self.entries.iter().position(is_it)
    }

    fn add_bytes(&mut self, bytes: &[u8]) -> Range {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        Range { start, end: self.bytes.len() as u32 }
    }

    fn add(&mut self, name: &[u8], value: &[u8]) -> usize {
        let entry = Entry { name: self.add_bytes(name), value: self.add_bytes(value), is_removed: false };
        self.entries.push(entry);
        self.entries.len() - 1
    }

    fn own_place(&self, name: OwnVariable) -> Option<usize> {
        match self.own[name as usize] {
            // A header field, a reverse proxy or a route may have set it by its name.
            0 => self.place_of(name.name().as_bytes()),
            place => Some(usize::from(place) - 1),
        }
    }

    fn replace(&mut self, place: usize, value: &[u8]) {
        let value = self.add_bytes(value);
        let entry = &mut self.entries[place];
        (entry.value, entry.is_removed) = (value, false);
    }
}

impl Variables for Table {
    fn set(&mut self, name: OwnVariable, value: &[u8]) {
        if let Some(place) = self.own_place(name) {
            return self.replace(place, value);
        }
        let place = self.add(name.name().as_bytes(), value);
        self.own[name as usize] = u16::try_from(place + 1).unwrap_or(0);
    }

    fn set_named(&mut self, name: &[u8], value: &[u8]) {
        match self.place_of(name) {
            Some(place) => self.replace(place, value),
            None => _ = self.add(name, value),
        }
    }

    fn add_field(&mut self, name: &[u8], value: &[u8], joint: &'static [u8]) {
        let start = self.bytes.len();
        let is_bare = name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"content-length");
        if !is_bare {
            self.bytes.extend_from_slice(b"HTTP_");
        }
        self.bytes.extend(name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }));
        let own_name = Range { start: start as u32, end: self.bytes.len() as u32 };
        match self.place_of(self.at(own_name)) {
            Some(place) => {
                let before = self.entries[place].value;
                let joined_start = self.bytes.len() as u32;
                self.bytes.extend_from_within(before.start as usize..before.end as usize);
                self.bytes.extend_from_slice(joint);
                self.bytes.extend_from_slice(value);
                self.entries[place].value = Range { start: joined_start, end: self.bytes.len() as u32 };
            }
            None => {
                let value = self.add_bytes(value);
                self.entries.push(Entry { name: own_name, value, is_removed: false });
            }
        }
    }

    fn remove(&mut self, name: OwnVariable) {
        if let Some(place) = self.own_place(name) {
            self.entries[place].is_removed = true;
            self.own[name as usize] = 0;
        }
    }

    fn set_scheme(&mut self, is_https: bool) {
        self.set_named(b"REQUEST_SCHEME", if is_https { b"https" } else { b"http" });
    }

    /// HTTP_X_REQUEST_ID has it.
    fn set_identifier(&mut self, _id: &[u8]) {}

    fn length_of(&self, name: OwnVariable) -> u32 {
        self.own_place(name).map_or(0, |place| self.at(self.entries[place].value).len() as u32)
    }
}

/// The header block of a connection, as its variables, and how the log counts it.
pub struct BlockMemory {
    pub table: Table,
    pub facts: LogFacts,
}

/// A text for C. Its memory is that of the bytes.
pub fn text_of(bytes: &[u8]) -> bolide_text {
    bolide_text { data: bytes.as_ptr().cast(), size: bytes.len() }
}

/// The host of a Host field: `[::1]` of `[::1]:8080`.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| !byte.is_ascii_digit()) {
        Some(colon) if host[colon] == b':' && colon > 0 => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_named_by_the_host_without_its_port() {
        let cases = [
            ("a.example", "a.example"),
            ("a.example:8080", "a.example"),
            ("a.example:", "a.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("", "listener"),
            ("80", "80"),
        ];
        for (host, name) in cases {
            let mut table = Table::new();
            table.set(OwnVariable::ServerName, b"listener");
            table.add_field(b"Host", host.as_bytes(), b",");
            table.name_server();
            assert_eq!(table.get(b"SERVER_NAME"), Some(name.as_bytes()), "{host}");
        }
    }

    fn lines(table: &Table) -> Vec<String> {
        let mut lines: Vec<String> = table
            .entries
            .iter()
            .filter(|entry| !entry.is_removed)
            .map(|entry| {
                format!("{}={}", String::from_utf8_lossy(table.at(entry.name)), String::from_utf8_lossy(table.at(entry.value)))
            })
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_later_value_replaces_an_earlier_one_and_fields_of_a_name_are_joined() {
        let mut table = Table::new();
        table.set(OwnVariable::PathInfo, b"/one");
        table.set(OwnVariable::PathInfo, b"/two");
        table.set_named(b"PATH_INFO", b"/three");
        table.add_field(b"Accept", b"a", b", ");
        table.add_field(b"aCCEPT", b"b", b", ");
        table.add_field(b"Content-Type", b"text/plain", b", ");
        table.add_field(b"Host", b"there", b", ");
        table.set(OwnVariable::Host, b"here");
        table.add_field(b"X-Request-Id", b"1", b", ");
        table.remove(OwnVariable::RequestId);
        table.set_scheme(true);
        let wanted =
            ["CONTENT_TYPE=text/plain", "HTTP_ACCEPT=a, b", "HTTP_HOST=here", "PATH_INFO=/three", "REQUEST_SCHEME=https"];
        assert_eq!(lines(&table), wanted);
        assert_eq!((table.get(b"HTTP_HOST"), table.get(b"HTTP_X_REQUEST_ID")), (Some(&b"here"[..]), None));
        assert_eq!(table.length_of(OwnVariable::PathInfo), 6);
        let mut copy = Table::new();
        copy.copy(&table);
        copy.set(OwnVariable::RequestId, b"2");
        assert_eq!(lines(&copy).len(), wanted.len() + 1);
        assert_eq!(lines(&table), wanted, "the original stays");
    }
}
