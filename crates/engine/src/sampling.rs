//! What a thread or a task of the language does at one moment, as reports of slow requests show it: the interface between the
//! engine, which knows the requests, and the adapter, which can read the language's stacks.
//!
//! It knows neither a language nor a report. The worker's thread that watches slow requests runs it.

/// Looks at threads of the worker without stopping them, and without the language: it may be held forever.
pub trait Sampler {
    /// Looks at a request that is in the application.
    ///
    /// # Errors
    /// Why nothing can be read, as one sentence.
    fn look(&mut self, subject: Subject) -> Result<Look, String>;
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// The kernel's id of its thread, or of the thread of its event loop.
    pub thread: u32,
    /// What the language has for a request that it keeps, such as the address of a task; `None` if the thread is in its call.
    pub task: Option<u64>,
}

/// A line of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePlace {
    pub file: String,
    pub line: i64,
    pub function: String,
}

/// One moment of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The innermost line of the application's own code.
    pub place: Option<CodePlace>,
    /// The innermost line, if it is one of a library.
    pub inner: Option<CodePlace>,
    pub doing: Doing,
}

/// What the code at that place does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    Runs,
    /// It is in a system call and keeps the language from all other threads.
    WaitsAndHolds {
        call: String,
    },
    /// Another thread holds the language: where that is, and the system call in which it keeps it.
    WaitsForLanguage {
        holder: Option<CodePlace>,
        call: Option<String>,
    },
    /// The peer of a socket: an address, or the path of a UNIX socket.
    WaitsForPeer {
        peer: String,
        call: String,
    },
    /// Another system call.
    Waits {
        call: String,
    },
    /// A task or greenlet: `Future`, `a time (sleep)`.
    Awaits {
        what: String,
    },
    /// It could go on, but its event loop does something else.
    WaitsForLoop {
        busy: Option<CodePlace>,
    },
}
