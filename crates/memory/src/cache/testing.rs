//! Caches for the tests of this directory.

use bolide_contract::services::SharedCache;

use crate::cache::layout::{Parts, identity};
use crate::cache::{Cache, repair};
use crate::mapping::Mapping;

/// The digest of the present start of the system.
pub const SYSTEM_START: u64 = 1;

/// Settings as the options make them, with this many items and small values.
pub fn settings(items: u64) -> SharedCache {
    SharedCache { key_bytes: 32, block_bytes: 100, ..SharedCache::new("test".to_owned(), items, "x.ini:1".to_owned()) }
}

/// An empty cache that forked processes share.
pub fn cache(settings: &SharedCache) -> Cache {
    let (mapping, memory) = Mapping::create("test", &identity(settings)).expect("memory");
    let mapping: &'static Mapping = Box::leak(Box::new(mapping));
    repair::begin(&Parts::of(settings, mapping), 7, SYSTEM_START).expect("robust mutexes");
    mapping.finish(&identity(settings));
    Cache::attach(settings, mapping, std::os::fd::AsFd::as_fd(&memory)).expect("attached")
}
