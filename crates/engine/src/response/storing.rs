//! `cachestore`: the body of an answer becomes an item of a cache while it is sent. A body that is cut off, that its application
//! does not complete, or that is too large for an item is not stored.
//!
//! It does not know about rules or languages. Worker threads run it, for answers that a rule wants to be stored.

use bolide_contract::answering::Coding;
use bolide_memory::cache::{Change, Waiting};
use bolide_routes::Store;

use crate::response::compression::Encoder;
use crate::services::{SharedCaches, largest_value};

/// The level of gzip for items: they are compressed once and sent often.
const GZIP_LEVEL: u32 = 6;

/// The items that an answer becomes, and its body so far.
pub struct AnswerStore {
    stores: Vec<Store>,
    caches: SharedCaches,
    body: Vec<u8>,
    /// The size of the largest item that any of them may have.
    most_bytes: usize,
}

impl AnswerStore {
    /// `None`: none of the caches exists.
    pub fn new(mut stores: Vec<Store>, caches: SharedCaches) -> Option<Box<AnswerStore>> {
        stores.retain(|store| caches.named(&store.cache).is_some());
        let sizes = stores.iter().filter_map(|store| caches.named(&store.cache)).map(largest_value);
        let most_bytes = usize::try_from(sizes.max()?).unwrap_or(usize::MAX);
        Some(Box::new(AnswerStore { stores, caches, body: Vec::new(), most_bytes }))
    }

    /// More items, of a response route.
    pub(super) fn add(&mut self, more: AnswerStore) {
        self.stores.extend(more.stores);
        self.most_bytes = self.most_bytes.max(more.most_bytes);
    }

    /// Looks at a part of the body before it is pushed. `None`: the store is done, because the answer is not wanted, or is
    /// complete with this part and stored. So the item exists before the client has read the whole answer.
    /// `left` is what remains of an announced length.
    pub(super) fn before(mut self: Box<Self>, part: &[u8], left: Option<u64>, status: u16) -> Option<Box<AnswerStore>> {
        if !self.takes(status) {
            return None;
        }
        match left {
            Some(left) if left <= part.len() as u64 => {
                self.note(&part[..left as usize]);
                self.keep(status);
                None
            }
            _ => Some(self),
        }
    }

    /// Stores a body that was complete from the beginning.
    pub(super) fn keep_whole(mut self, body: &[u8], status: u16) {
        if self.takes(status) {
            self.note(body);
            self.keep(status);
        }
    }

    /// Keeps a part of the body that was pushed. Of a body that is too large, one byte too many is kept: the cache counts what it
    /// refuses.
    pub(super) fn note(&mut self, part: &[u8]) {
        let room = self.most_bytes.saturating_add(1).saturating_sub(self.body.len());
        self.body.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn takes(&self, status: u16) -> bool {
        self.stores.iter().any(|store| store.takes(status))
    }

    /// Stores the complete body. An item that another process is writing at this moment stays as that one writes it.
    pub(super) fn keep(self, status: u16) {
        let mut compressed = None;
        for store in self.stores.iter().filter(|store| store.takes(status)) {
            let Some(cache) = self.caches.named(&store.cache) else { continue };
            let value = store.value.as_deref().unwrap_or(&self.body);
            if value.is_empty() {
                continue;
            }
            let put = |key: &[u8], value: &[u8]| _ = cache.put(key, Change::Update(value), store.expires_s, Waiting::Never);
            put(&store.key, value);
            let Some(gzip_key) = &store.gzip_key else { continue };
            if value.len() > self.most_bytes {
                continue;
            }
            let is_body = store.value.is_none();
            if let Some(made) = compressed.take_if(|_| is_body).or_else(|| gzipped(value)) {
                put(gzip_key, &made);
                compressed = Some(made).filter(|_| is_body);
            }
        }
    }
}

/// Returns a whole text as gzip; `None` without memory for the encoder.
pub fn gzipped(text: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(Coding::Gzip, GZIP_LEVEL).ok()?;
    let mut made = Vec::new();
    encoder.write(text, &mut made).ok()?;
    encoder.finish(&mut made).ok()?;
    Some(made)
}
