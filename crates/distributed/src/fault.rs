//! The faults of a call to an engine. They are texts for the log: callers only ask whether the engine is away.

use std::fmt;
use std::io;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The server can't be reached, does not answer in time, or says that it can't serve now.
    Away(String),
    /// A call before this one failed, and it is too early to try again. Nothing was sent.
    Resting,
    /// The server has refused the command: `WRONGTYPE …`, `OOM …`.
    Refused(String),
    /// The caller's value is larger than its bound. Nothing was sent.
    TooLarge,
}

impl Fault {
    /// Returns whether the server is away, so a later call may succeed.
    pub fn is_away(&self) -> bool {
        matches!(self, Fault::Away(_) | Fault::Resting)
    }

    /// A connection's fault: the text says which step failed.
    pub(crate) fn of_io(step: &str, error: &io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Fault::Away(format!("no {step} in time")),
            io::ErrorKind::UnexpectedEof => Fault::Away(format!("the server closed the connection before its {step}")),
            _ => Fault::Away(format!("no {step}: {error}")),
        }
    }

    pub(crate) fn unexpected(what: &str) -> Fault {
        Fault::Away(format!("the server gave an answer of an unexpected type to {what}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Away(reason) | Fault::Refused(reason) => formatter.write_str(reason),
            Fault::Resting => formatter.write_str("the engine is away"),
            Fault::TooLarge => formatter.write_str("the value is too large"),
        }
    }
}

impl std::error::Error for Fault {}
