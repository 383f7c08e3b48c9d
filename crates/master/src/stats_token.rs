//! Whose news it is at the address of `stats`. Pure data.

/// The owner of a descriptor there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsToken {
    Listener,
    Client(u64),
}
