//! What the threads of a worker share, and what each has to itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bolide_contract::scoreboard::{Row, Slot};
use bolide_contract::settings::Settings;
use bolide_files::Files;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::session::HeadParts;

use crate::access_log::AccessLog;
use crate::body::BodyLimits;
use crate::buffers::ResponseBuffers;
use crate::clock::Clock;
use crate::listener::ListeningSocket;
use crate::routing::Rules;
use crate::turn::TurnBudget;

/// Bytes that a thread reads at once. A head that is within its limit always fits, with what may follow it.
const READ_BYTES: usize = 64 * 1024;

/// The worker: settings, its scoreboard row, its sockets. Shared by its threads and never locked.
pub struct Worker {
    pub settings: Settings,
    pub number: u32,
    pub row: &'static Row,
    pub slots: &'static [Slot],
    pub listeners: Vec<ListeningSocket>,
    pub head_limits: HeadLimits,
    pub body_limits: BodyLimits,
    /// Routes, header fields, compression; `None` where nothing of them is set, so that it costs one branch.
    pub rules: Option<&'static Rules>,
    /// What is answered without the application; `None` where nothing is.
    pub files: Option<&'static Files>,
    /// Some requests are answered without the application: by routes, or with files.
    pub has_own_answers: bool,
    /// Requests of all other workers, as of the last turn of the loop: for the log only.
    pub requests_elsewhere: AtomicU64,
    /// An order to drain came: answers say `Connection: close`.
    pub draining: AtomicBool,
    /// When a draining worker gives up what applications have in their hands still, in monotonic milliseconds; [`u64::MAX`]
    /// before that.
    pub mercy_ends_ms: AtomicU64,
    /// When a stopping worker gives up streams, the same way.
    pub streams_end_ms: AtomicU64,
    /// The application asked the process to exit.
    pub leaving: AtomicBool,
}

impl Worker {
    pub fn is_tcp(&self, listener: usize) -> bool {
        self.listeners.get(listener).is_some_and(|listener| listener.is_tcp)
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

/// What one thread works with: buffers that live as long as it, so that a request allocates none.
pub struct ThreadContext {
    pub read: Vec<u8>,
    pub parts: HeadParts,
    pub path: Vec<u8>,
    pub buffers: ResponseBuffers,
    pub log: AccessLog,
    pub clock: Clock,
    /// The thread's number in its worker: uWSGI's core.
    pub core: u32,
    pub slot: &'static Slot,
    /// Others wait to be served: an answer may leave a little later, together with theirs.
    pub may_cork: bool,
    /// Of the connection that is attended to.
    pub turn: TurnBudget,
}

impl ThreadContext {
    pub fn new(worker: &Worker, core: u32, slot: &'static Slot) -> ThreadContext {
        let read_bytes = READ_BYTES.max(worker.head_limits.head_bytes + worker.head_limits.request_line_bytes + READ_BYTES / 4);
        slot.thread.store(nix::unistd::gettid().as_raw() as u32, Relaxed);
        ThreadContext {
            read: vec![0; read_bytes],
            parts: HeadParts::default(),
            path: Vec::new(),
            buffers: ResponseBuffers::default(),
            log: AccessLog::new(worker.settings.logging.memory_report),
            clock: Clock::new(),
            core,
            slot,
            may_cork: false,
            turn: TurnBudget::default(),
        }
    }
}
