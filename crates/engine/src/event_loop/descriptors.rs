//! A worker without a free descriptor: it does not take a connection, neither from its listening sockets nor from the queue,
//! until one of its connections has ended or a moment has passed. Clients wait in the listen queue or in the queue in the
//! meantime, and nothing is lost.
//!
//! It does not know about protocols or the application. The threads that lead a worker run it.

use std::io;

use crate::app::Language;
use crate::event_loop::worker_state::{Housekeeping, Shared};
use crate::logging::access_log::complain;
use crate::scheduling::descriptors::WORN_MS;

/// No descriptor is left. With `error`, none could be accepted; otherwise the connection is in the queue.
pub(crate) fn begin_shortage<L: Language>(
    shared: &Shared<L>,
    error: Option<io::Error>,
    open: usize,
    housekeeping: &mut Housekeeping,
    now_ms: u64,
) {
    shared.leave_queue();
    shared.leave_sessions();
    for listener in &shared.worker.listeners {
        // It may not be registered: the worker is ahead of the others.
        let _may_be_unknown = shared.poll.delete(&listener.descriptor);
    }
    if let Some(times) = housekeeping.descriptors.note_refusal(shared.worker.row, now_ms) {
        let why = error.map(|error| format!(": {error}")).unwrap_or_default();
        let advice = "raise the limit of open files (ulimit -n, LimitNOFILE)";
        let again = if times > 1 { format!(" ({times} times since the last such line)") } else { String::new() };
        complain(
            shared.worker.number,
            &format!("can't accept a connection: {open} are open{why}; clients wait until one of them closes{again}; {advice}"),
        );
    }
}

/// The worker asks for its replacement.
#[cold]
pub(crate) fn log_lost_descriptors(worker: u32) {
    let seconds = WORN_MS / 1_000;
    complain(
        worker,
        &format!(
            "no connection could be accepted for {seconds} s, and few are open: the application keeps the descriptors; \
            replacing it"
        ),
    );
}
