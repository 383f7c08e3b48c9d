//! The header block that a connection remembers: one that comes again is not read again. Workers run it.

use crate::http1::HeaderFacts;
use crate::http1::head::Version;

/// Bytes of a header block that a connection remembers: an idle one has the block, and what was made of it, for as long as it lives.
pub(super) const REMEMBERED_BYTES: usize = 4096;

/// After this many header blocks that were not the same as the one before, a connection stops to remember them.
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
    /// What the block says, if it begins as the last one was. It ends with an empty line, so that it is the same then.
    #[inline]
    pub(crate) fn facts_of(&self, block: &[u8], version: Version) -> Option<HeaderFacts> {
        let (known, facts) = self.known?;
        (known == version && block.starts_with(&self.bytes)).then_some(facts)
    }

    /// Remembers a block whose connection goes on, unless this client never sends the same twice.
    pub(crate) fn remember(&mut self, block: &[u8], version: Version, facts: HeaderFacts) {
        if self.known.take().is_some() {
            self.misses = self.misses.saturating_add(1);
        }
        // A request to switch protocols is looked at field by field, and comes once.
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
