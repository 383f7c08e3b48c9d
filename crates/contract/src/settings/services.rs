//! Settings of the services that the processes of an instance share in memory. Plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::distributed::Distributed;
use super::sharing::{Area, Inboxes, Metrics, Queue};

/// The services of an instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Services {
    /// In the order of the configuration: the first one is the default.
    pub caches: Vec<SharedCache>,
    /// `locks`: how many locks the application has besides lock 0.
    pub locks: u32,
    pub queue: Option<Queue>,
    /// In the order of their numbers.
    pub areas: Vec<Area>,
    /// `None` without `enable-metrics` and the options that imply it.
    pub metrics: Option<Metrics>,
    /// `publish`: `None` without it.
    pub inboxes: Option<Inboxes>,
    pub distributed: Distributed,
    /// `rate-limit` and the action `ratelimit`, in the order of their rules.
    pub rate_limits: Vec<RateLimitSettings>,
    /// Items that the configuration puts into caches, in its order.
    pub preloaded: Vec<PreloadedItem>,
}

/// A rate limit that all workers count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitSettings {
    /// Unique among them.
    pub name: String,
    /// The rate as it was written, such as `60/m`.
    pub rate: String,
    /// Requests that pass without a pause between them.
    pub burst: u32,
}

impl RateLimitSettings {
    /// The most limits of an instance: each has 1 MiB of shared memory.
    pub const MAX: usize = 64;
    /// The longest name, in bytes.
    pub const NAME_BYTES: usize = 32;
}

/// A cache that all processes of the instance share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedCache {
    pub name: String,
    /// The most items at a time.
    pub items: u64,
    /// Bytes of a key at most.
    pub key_bytes: u32,
    /// Bytes of a block: of a value at most, or with `is_bitmap` the unit of the room for values.
    pub block_bytes: u64,
    /// Blocks for all values.
    pub blocks: u64,
    /// A value may take several consecutive blocks.
    pub is_bitmap: bool,
    pub when_full: WhenFull,
    /// Items that are full or purged are not logged.
    pub ignores_full: bool,
    /// Items never expire, whatever time they are given.
    pub never_expires: bool,
    /// The time of the last change is kept.
    pub notes_changes: bool,
    /// The number that `cache_inc` and the related functions begin with.
    pub first_number: i64,
    pub store: Option<Store>,
    /// Where the cache was configured.
    pub origin: String,
}

impl SharedCache {
    /// As in uWSGI.
    pub const BLOCK_BYTES: u64 = 65_536;
    /// As in uWSGI.
    const KEY_BYTES: u32 = 2048;

    /// A cache whose settings are the defaults but for these.
    pub fn new(name: String, items: u64, origin: String) -> SharedCache {
        SharedCache {
            name,
            items,
            key_bytes: Self::KEY_BYTES,
            block_bytes: Self::BLOCK_BYTES,
            blocks: items,
            is_bitmap: false,
            when_full: WhenFull::Refuse,
            ignores_full: false,
            never_expires: false,
            notes_changes: false,
            first_number: 0,
            store: None,
            origin,
        }
    }
}

/// What a new item in a full cache replaces. Expired items are replaced in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenFull {
    /// Nothing: the new item is refused.
    #[default]
    Refuse,
    /// An item that was not read for long (`purge_lru`).
    Purge,
    /// All items (`clear_on_full`).
    Clear,
}

/// A file that keeps a cache beyond the end of the instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    pub path: PathBuf,
    /// Seconds between two writes to the disk; 0 leaves the time to the kernel.
    pub sync_s: u64,
    /// A file that is not a cache's is removed (`store_delete`); otherwise it is renamed.
    pub deletes_foreign: bool,
}

/// An item that a cache has before the application is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreloadedItem {
    /// Empty: all caches.
    pub cache: String,
    pub key: String,
    pub content: PreloadedContent,
    /// The option and where it was written.
    pub origin: String,
}

/// The value of such an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreloadedContent {
    Text(String),
    /// The content of a file, as it is or compressed with gzip.
    File {
        path: PathBuf,
        is_compressed: bool,
    },
}
