//! What one thread of a worker works with: buffers, a clock, a piece of the log, a slot of the scoreboard.
//!
//! It knows no connection. Each thread has its own, and nobody else touches it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::Slot;
use bolide_protocol::session::HeadParts;

use crate::exchange::worker::Worker;
use crate::logging::access_log::AccessLog;
use crate::response::buffers::ResponseBuffers;
use crate::scheduling::clock::Clock;
use crate::scheduling::turn::TurnBudget;

/// Bytes that a thread reads at once. A head that is within its limit always fits, with what may follow it: a whole record of TLS at least.
const READ_BYTES: usize = 64 * 1024;

/// The tools of one thread: buffers that live as long as it, so that a request allocates none.
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
        let read_bytes = READ_BYTES.max(worker.head_limits.head_bytes + worker.head_limits.request_line_bytes + READ_BYTES / 2);
        slot.thread.store(nix::unistd::gettid().as_raw() as u32, Relaxed);
        ThreadContext {
            read: vec![0; read_bytes],
            parts: HeadParts::default(),
            path: Vec::new(),
            buffers: ResponseBuffers::default(),
            log: AccessLog::new(worker.line_style, worker.settings.logging.memory_report),
            clock: Clock::new(),
            core,
            slot,
            may_cork: false,
            turn: TurnBudget::default(),
        }
    }
}
