//! The caches as rules use them, the values that they answer with, and the items that they store. Must not know how a cache is
//! kept, nor rules. Workers run it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// An operation with a number, of a variable or of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Plus,
    Minus,
    Times,
    Divide,
}

impl Operator {
    pub(crate) fn apply(self, left: i64, right: i64) -> i64 {
        match self {
            Operator::Plus => left.saturating_add(right),
            Operator::Minus => left.saturating_sub(right),
            Operator::Times => left.saturating_mul(right),
            Operator::Divide => left.checked_div(right).unwrap_or(0),
        }
    }
}

/// The caches of an instance, by name. The empty name is the first one.
pub trait Caches {
    /// Returns a value that has not expired, and the second since 1970 at which it does; 0 is never.
    fn get(&self, cache: &[u8], key: &[u8]) -> Option<(Vec<u8>, u64)>;

    /// Returns a value that was stored as a whole response (`check-cache`). The bodies of pages (`cachestore`) are none, whatever
    /// they begin with: a client may have chosen the bytes, who must not choose the header fields of a page, or its type.
    fn response(&self, cache: &[u8], key: &[u8]) -> Option<Vec<u8>>;

    fn exists(&self, cache: &[u8], key: &[u8]) -> bool;

    /// Writes an item. False: another process writes to this part of the cache, and the call may not wait for it.
    fn write(&self, cache: &[u8], key: &[u8], write: &Write<'_>, may_wait: bool) -> bool;
}

/// A write of a rule. An item that it makes expires after this many seconds; 0 is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    pub change: Change<'a>,
    pub expires_s: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// An item that exists stays.
    Add(&'a [u8]),
    /// A number is changed; its time of expiry stays.
    Calculate(Operator, i64),
}

/// A value of a cache that is an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    pub value: Vec<u8>,
    /// In seconds since 1970; 0 is never.
    pub expires_s: u64,
    pub key: Vec<u8>,
    pub form: Arc<CachedForm>,
}

impl Cached {
    /// The value of the field `Expires`; `None` if the item never expires.
    pub fn expires(&self) -> Option<String> {
        let since_epoch = Duration::from_secs(Some(self.expires_s).filter(|&seconds| seconds != 0)?);
        Some(httpdate::fmt_http_date(UNIX_EPOCH.checked_add(since_epoch)?))
    }
}

/// How `cache:` presents a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedForm {
    pub content_type: String,
    /// Empty: none.
    pub content_encoding: String,
    /// The type follows from the key's extension, if that is known.
    pub type_by_key: bool,
}

/// `cachestore:` for one answer: the item that its body becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    pub cache: Vec<u8>,
    pub key: Vec<u8>,
    /// The key of an additional item: the same compressed with gzip.
    pub gzip_key: Option<Vec<u8>>,
    /// Instead of the body.
    pub value: Option<Vec<u8>>,
    /// A status besides 200.
    pub status: Option<u16>,
    pub expires_s: i64,
}

impl Store {
    /// Whether an answer with this status is stored.
    pub fn takes(&self, status: u16) -> bool {
        status == 200 || self.status == Some(status)
    }
}
