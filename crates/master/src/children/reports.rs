//! The changes that reports make to the record of a child. Rows and pids are checked, because the reporting processes may run as
//! another user. It decides nothing beyond the record. The master runs it.

use std::os::fd::AsFd;

use bolide_contract::message::{self, Order};
use bolide_supervision::log_sink;
use nix::unistd::Pid;

use crate::children::child::{Child, Event, KillReason, Progress, State};
use crate::children::{Children, LOST_MS};

/// Reports read from one child in a turn: a child that floods the master does not delay the other children.
pub const REPORTS_A_TURN: usize = 64;

/// Checks the pid that a worker reports for itself. Returns whether the worker's pid is known now.
pub fn verify_pid(id: u64, pid: u32, children: &mut Children) -> bool {
    let is_known = children.note_pid(id, pid);
    // A worker that has exited already may have reported its true pid: its end will be reported.
    if !is_known && Children::exists(pid) {
        log_sink::line(&format!("a worker claims pid {pid}, which belongs to another process: the report is ignored"));
    }
    is_known
}

/// Records that a worker serves or a helper works. Returns whether it was not ready before. `stop_ms` is the deadline of shutdown
/// that is in progress.
pub fn note_ready(child: &mut Child, stop_ms: Option<u64>, now_ms: u64) -> bool {
    child.apply(Event::Ready);
    if child.ready_ms.is_some() {
        return false;
    }
    if child.state == State::Ending && child.deadline_reason == KillReason::Mercy {
        // It was ordered to end before it served and had a short deadline; now it gets the deadline of a serving worker.
        child.deadline_ms = child.deadline_ms.max(stop_ms);
    }
    child.ready_ms = Some(now_ms);
    true
}

/// Records the progress of a worker that exits. From `Leaving` on, when all requests are answered, the end of its interpreter has
/// a deadline of its own.
pub fn advance_end(worker: &mut Child, progress: Progress, now_ms: u64) {
    worker.progress = progress;
    if progress == Progress::Leaving && worker.state == State::Ending {
        worker.shorten_deadline(now_ms + message::INTERPRETER_END_MS, KillReason::InterpreterStays);
    }
}

/// Records that a worker that was ordered to end accepts no more connections. If connections may be pending that the kernel
/// announced to that worker only, other workers are ordered to check their sockets.
pub fn note_stopped_accepting(id: u64, somebody_waits: bool, children: &mut Children) {
    if let Some(worker) = children.find_mut(id) {
        worker.stopped_accepting = true;
    }
    if !somebody_waits {
        return;
    }
    if !order_look(children)
        && let Some(worker) = children.find(id)
    {
        // The serving workers belong to another master, which we cannot notify: the worker accepts the connections itself.
        send_look(worker);
    }
}

/// Orders all workers that serve to check their sockets. Returns `false` if there is none.
pub fn order_look(children: &Children) -> bool {
    let serving = || children.iter().filter(|child| child.is_request_worker() && child.state.is_serving());
    serving().for_each(send_look);
    serving().next().is_some()
}

fn send_look(worker: &Child) {
    if let Some(channel) = &worker.channel {
        // A worker whose socket is full has orders to read and checks its sockets after them; a worker that has exited does not
        // need orders.
        let _ = message::send(channel.as_fd(), &Order::Look, None);
    }
}

/// Returns the worker whose end its prototype reports for this row (`pid` if known), if the row still holds that worker.
pub fn ended_in_row(generation: u32, row: u32, pid: Option<u32>, children: &mut Children) -> Option<u64> {
    let id = children.with_row(generation, row)?.id;
    let worker = children.find_mut(id)?;
    // The row may already hold the next worker, if this end became known in another way first.
    if pid.is_some() && worker.pid.is_some_and(|known| Some(known.as_raw() as u32) != pid) {
        return None;
    }
    // A worker that exited before its pid was verified gets it now, for the log only: no signal is sent to it any more.
    worker.pid = worker.pid.or_else(|| pid.map(|pid| Pid::from_raw(pid as i32)));
    Some(id)
}

/// Records that a child has closed its order socket.
pub fn channel_closed(child: &mut Child, now_ms: u64) {
    child.channel = None;
    // A child that is ending closes its socket regularly and has a deadline already.
    if child.state.is_active() {
        child.shorten_deadline(now_ms + LOST_MS, KillReason::Unreachable);
    }
}
