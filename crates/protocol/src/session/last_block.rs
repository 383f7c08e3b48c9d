//! The last header block of a connection: a repeated one is not parsed again. Workers run it.

use crate::http1::HeaderFacts;
use crate::http1::head::Version;

/// Largest header block that a connection remembers, in bytes: an idle connection keeps the block, and the values made from it,
/// as long as it lives.
pub(super) const REMEMBERED_BYTES: usize = 4096;

/// After this many header blocks that differ from the previous one, a connection stops remembering them.
pub(super) const MEMORY_MISSES: u8 = 4;

/// The header block that came last.
#[derive(Debug, Default)]
pub(crate) struct LastBlock {
    bytes: Vec<u8>,
    /// `None`: nothing is remembered.
    known: Option<(Version, HeaderFacts)>,
    misses: u8,
}

impl LastBlock {
    /// Returns the facts of the block, if it begins like the last one. That one ends with an empty line, so the two are equal.
    #[inline]
    pub(crate) fn facts_of(&self, block: &[u8], version: Version) -> Option<HeaderFacts> {
        let (known, facts) = self.known?;
        (known == version && block.starts_with(&self.bytes)).then_some(facts)
    }

    /// Remembers a block if the connection stays open, unless this client never repeats a block.
    pub(crate) fn remember(&mut self, block: &[u8], version: Version, facts: HeaderFacts) {
        if self.known.take().is_some() {
            self.misses = self.misses.saturating_add(1);
        }
        // A request to switch protocols is parsed field by field, and is not repeated.
        if facts.keep_alive && !facts.upgrade && self.misses < MEMORY_MISSES && block.len() <= REMEMBERED_BYTES {
            self.bytes.clear();
            self.bytes.extend_from_slice(block);
            self.known = Some((version, facts));
        } else {
            self.bytes = Vec::new();
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
