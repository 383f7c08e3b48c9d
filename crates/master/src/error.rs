//! The one error of this room: why an instance does not start, or a generation can't be. It knows nothing; the master runs it.

use std::fmt;

/// Exit status of a start that failed before an application could be loaded.
pub const EXIT_START_FAILED: i32 = 1;

/// Why a start failed, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError(String);

impl StartError {
    pub fn new(message: impl Into<String>) -> StartError {
        StartError(message.into())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}
