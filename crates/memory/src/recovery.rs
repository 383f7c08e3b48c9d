//! The outcome of a recovery, for the log. A prototype has it from each structure.

/// A lock that a process held when it died, and that has been repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// What the lock protects: `the cache "sessions"`.
    pub what: String,
    /// What was lost with the process, as the end of a sentence: `the item that it wrote is dropped`. Empty: nothing.
    pub lost: String,
}
