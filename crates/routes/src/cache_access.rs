//! The caches as rules use them. Must not know how a cache is kept, nor rules. Workers run it.

/// An operation with a number, of a variable or of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Plus,
    Minus,
    Times,
    Divide,
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
