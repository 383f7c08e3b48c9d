//! The dynamic table of a decoder (RFC 7541 section 2.3.2): fields that the peer has sent before, and those among them that
//! HTTP/2 handles specially. Workers run it.
//!
//! An entry is stored as the line that it becomes in a head (`name: value` and a line end), so an indexed field costs one copy.

use std::collections::VecDeque;

/// Table size until SETTINGS change it; ours don't (RFC 9113 section 6.5.2).
pub const TABLE_BYTES: usize = 4096;

/// Size of an entry besides its bytes (RFC 7541 section 4.1).
pub const ENTRY_SURPLUS_BYTES: usize = 32;

/// The text is compacted when its bytes, with those of evicted entries, exceed this.
const MAX_TEXT_BYTES: usize = 2 * TABLE_BYTES;

#[derive(Debug)]
pub struct DynamicTable {
    /// The newest is the last.
    entries: VecDeque<Entry>,
    text: Vec<u8>,
    /// The total size of the entries, and the limit that the peer has set.
    size: usize,
    most: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where its line begins in the text.
    start: u32,
    name_bytes: u32,
    value_bytes: u32,
    kind: FieldKind,
}

/// An entry as the decoder reads it.
#[derive(Debug, Clone, Copy)]
pub struct EntryView<'a> {
    /// `name: value` and a line end.
    pub line: &'a [u8],
    pub name_bytes: usize,
    pub kind: FieldKind,
}

impl<'a> EntryView<'a> {
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.line.get(..self.name_bytes).unwrap_or_default()
    }

    #[inline]
    pub fn value(&self) -> &'a [u8] {
        self.line.get(self.name_bytes + 2..self.line.len().saturating_sub(2)).unwrap_or_default()
    }
}

impl DynamicTable {
    pub fn new() -> DynamicTable {
        DynamicTable { entries: VecDeque::new(), text: Vec::new(), size: 0, most: TABLE_BYTES }
    }

    /// Returns the entry with this number; the newest is 0.
    #[inline]
    pub fn get(&self, number: usize) -> Option<EntryView<'_>> {
        let place = self.entries.len().checked_sub(1)?.checked_sub(number)?;
        let entry = self.entries.get(place)?;
        let start = entry.start as usize;
        let line = self.text.get(start..start + entry.line_bytes())?;
        Some(EntryView { line, name_bytes: entry.name_bytes as usize, kind: entry.kind })
    }

    /// Adds an entry and evicts the oldest ones; one that is larger than the table empties it (RFC 7541 section 4.4).
    pub fn insert(&mut self, kind: FieldKind, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY_SURPLUS_BYTES;
        self.evict(self.most.saturating_sub(size));
        if size > self.most {
            return;
        }
        let entry = Entry {
            start: self.text_start(name.len() + value.len() + 4),
            name_bytes: name.len() as u32,
            value_bytes: value.len() as u32,
            kind,
        };
        for part in [name, b": ", value, b"\r\n"] {
            self.text.extend_from_slice(part);
        }
        self.size += size;
        self.entries.push_back(entry);
    }

    /// Sets the table size. Returns false if it exceeds the allowed one.
    pub fn resize(&mut self, most: usize) -> bool {
        if most > TABLE_BYTES {
            return false;
        }
        self.most = most;
        self.evict(most);
        true
    }

    /// Evicts the oldest entries until the rest is at most `most`.
    fn evict(&mut self, most: usize) {
        while self.size > most
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
        }
        if self.entries.is_empty() {
            self.text.clear();
        }
    }

    /// Returns the offset for a line of this length.
    fn text_start(&mut self, bytes: usize) -> u32 {
        if self.text.len() + bytes > MAX_TEXT_BYTES {
            let gone = self.entries.front().map_or(self.text.len(), |entry| entry.start as usize);
            self.text.drain(..gone);
            for entry in &mut self.entries {
                entry.start -= gone as u32;
            }
        }
        self.text.len() as u32
    }
}

impl Entry {
    fn size(&self) -> usize {
        self.name_bytes as usize + self.value_bytes as usize + ENTRY_SURPLUS_BYTES
    }

    fn line_bytes(&self) -> usize {
        self.name_bytes as usize + self.value_bytes as usize + 4
    }
}

/// Which header fields HTTP/2 handles specially, by name.
///
/// A name is classified once, when it comes as a literal. The table stores the class, so an indexed entry is treated like its
/// literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Regular,
    /// A regular name with an underscore: no head has it.
    Underscored,
    Host,
    Cookie,
    Method,
    Scheme,
    Path,
    Authority,
    /// RFC 8441 section 4.
    Protocol,
    /// No request has any other, nor a name with a colon within, which could be read as that of another field.
    OtherPseudo,
}

impl FieldKind {
    #[inline]
    pub fn of(name: &[u8]) -> FieldKind {
        match name {
            b"host" => FieldKind::Host,
            b"cookie" => FieldKind::Cookie,
            [b':', ..] => match name {
                b":method" => FieldKind::Method,
                b":scheme" => FieldKind::Scheme,
                b":path" => FieldKind::Path,
                b":authority" => FieldKind::Authority,
                b":protocol" => FieldKind::Protocol,
                _ => FieldKind::OtherPseudo,
            },
            _ => match memchr::memchr2(b':', b'_', name) {
                None => FieldKind::Regular,
                Some(place) if name.get(place) == Some(&b'_') => FieldKind::Underscored,
                Some(_) => FieldKind::OtherPseudo,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_holds_the_newest_fields_that_fit() {
        let mut table = DynamicTable::new();
        for number in 0..10_000usize {
            let (name, value) = (format!("x-{number}"), "v".repeat(number % 90));
            table.insert(FieldKind::Regular, name.as_bytes(), value.as_bytes());
            let mut size = 0;
            for back in 0..=number {
                let (name, value) = (format!("x-{}", number - back), "v".repeat((number - back) % 90));
                size += name.len() + value.len() + 32;
                let Some(known) = table.get(back) else {
                    assert!(size > TABLE_BYTES, "{back} of {number} is gone");
                    break;
                };
                assert!(size <= TABLE_BYTES);
                assert_eq!((known.name(), known.value()), (name.as_bytes(), value.as_bytes()));
            }
            assert!(table.text.len() <= MAX_TEXT_BYTES);
        }
    }

    #[test]
    fn a_field_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new();
        table.insert(FieldKind::Regular, b"a", b"b");
        table.insert(FieldKind::Regular, b"a", &[b'v'; TABLE_BYTES - 32]);
        assert!(table.get(0).is_none());
        table.insert(FieldKind::Regular, b"a", &[b'v'; TABLE_BYTES - 33]);
        assert!(table.get(0).is_some() && table.get(1).is_none());
        assert!(table.resize(0) && table.get(0).is_none() && !table.resize(TABLE_BYTES + 1));
    }
}
