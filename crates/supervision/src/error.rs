//! The error of a failed start: why an instance does not start, or why a generation can't be made. Pure data.

use std::fmt;

/// Exit status of a startup that failed before an application could be loaded.
pub const EXIT_START_FAILED: i32 = 1;

/// Why startup failed, as a message for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    message: String,
    status: i32,
}

impl StartError {
    /// A failed start, with [`EXIT_START_FAILED`] as the exit status.
    pub fn new(message: impl Into<String>) -> StartError {
        StartError { message: message.into(), status: EXIT_START_FAILED }
    }

    /// The instance was told to stop before it served, which is not a failure.
    pub fn told_to_stop(message: impl Into<String>) -> StartError {
        StartError { message: message.into(), status: 0 }
    }

    /// The exit status of the instance.
    pub fn status(&self) -> i32 {
        self.status
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}
