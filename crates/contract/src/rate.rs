//! The rate of a limit, and what the limit says about a request. Plain data: rules compile rates, the memory that workers share
//! counts. Workers use it. `models` compiles this file too.

/// How many requests pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Microseconds in which one more request may pass.
    pub interval_us: u64,
    /// Requests that pass without a pause between them.
    pub burst: u64,
}

/// What a limit says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// It passes, and so would `remaining` others. In `full_us` microseconds the whole burst would.
    Passes { remaining: u64, full_us: u64 },
    /// The limit is reached. The next request passes in `retry_us` microseconds, and the whole burst in `full_us`.
    Refused { retry_us: u64, full_us: u64 },
    /// It passes without being counted: all cells that the key may have are those of keys that have reached their limit.
    Uncounted,
}
