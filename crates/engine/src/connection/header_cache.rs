//! What a connection remembers of its last header block, so that the same bytes need not be understood twice.
//!
//! It knows no sockets and no requests. Workers run it, each for the connection that it attends to.

use bolide_protocol::http1::head::{HeaderFacts, Version};

use crate::request::HeaderMemory;

/// Bytes of a header block that a connection remembers: an idle one has the block and its Python strings for as long as it lives.
const REMEMBERED_BYTES: usize = 4096;

/// After this many header blocks that were not the same as the one before, a connection stops to remember them.
const MEMORY_MISSES: u8 = 4;

/// The header block that came last, and what was made of it.
pub(super) struct HeaderCache<Memo> {
    block: Vec<u8>,
    version: Version,
    pub facts: Option<HeaderFacts>,
    memo: Option<Memo>,
    misses: u8,
}

impl<Memo> HeaderCache<Memo> {
    pub fn new() -> HeaderCache<Memo> {
        HeaderCache { block: Vec::new(), version: Version::Http11, facts: None, memo: None, misses: 0 }
    }

    pub fn memory(&mut self, same: bool) -> HeaderMemory<'_, Memo> {
        match (self, same) {
            (HeaderCache { memo: Some(memo), .. }, true) => HeaderMemory::Same(memo),
            (HeaderCache { facts: Some(_), memo, .. }, false) => HeaderMemory::Fill(memo),
            _ => HeaderMemory::Off,
        }
    }

    pub fn is_same(&self, block: &[u8], version: Version) -> bool {
        self.facts.is_some() && self.memo.is_some() && self.version == version && block.starts_with(&self.block)
    }

    /// Remembers a block whose connection goes on, unless this client never sends the same twice.
    pub fn remember(&mut self, block: &[u8], version: Version, facts: HeaderFacts) {
        let (facts_before, memo_before) = (self.facts.take(), self.memo.take());
        if facts_before.is_some() || memo_before.is_some() {
            self.misses = self.misses.saturating_add(1);
        }
        // A request to switch protocols is looked at field by field, and comes once.
        if facts.keep_alive && !facts.upgrade && self.misses < MEMORY_MISSES && block.len() <= REMEMBERED_BYTES {
            self.block.clear();
            self.block.extend_from_slice(block);
            self.version = version;
            self.facts = Some(facts);
        } else {
            self.block = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use bolide_protocol::Progress;
    use bolide_protocol::http1::head::{HeadLimits, header_block};

    fn remember(cache: &mut HeaderCache<()>, block: &[u8]) {
        let limits = HeadLimits { request_line_bytes: 1 << 16, head_bytes: 1 << 16, header_count: 100, lenient_targets: false };
        let facts = header_block(block, Version::Http11, &limits, &mut Vec::new());
        let Ok(Progress::Complete(facts)) = facts else { panic!("a whole block") };
        cache.remember(block, Version::Http11, facts);
        if let HeaderMemory::Fill(memo) = cache.memory(false) {
            *memo = Some(());
        }
    }

    fn block(bytes: usize) -> Vec<u8> {
        let fields = "Host: localhost\r\nX: ";
        [fields.as_bytes(), &vec![b'x'; bytes - fields.len() - 4], b"\r\n\r\n"].concat()
    }

    #[test]
    fn a_block_is_known_again_up_to_its_bound() {
        for (bytes, known) in [(100, true), (REMEMBERED_BYTES, true), (REMEMBERED_BYTES + 1, false), (60_000, false)] {
            let mut cache = HeaderCache::new();
            let block = block(bytes);
            remember(&mut cache, &block);
            assert_eq!(cache.is_same(&block, Version::Http11), known, "{bytes} bytes");
            assert!(cache.block.capacity() <= REMEMBERED_BYTES && cache.memo.is_some() == known);
            assert!(!cache.is_same(&block, Version::Http10));
        }
    }
}
