//! What reports change in the record of a child. Rows and pids are checked: they come from processes that may run as another user. What follows
//! elsewhere is not decided here. The master runs it.

use std::os::fd::AsFd;

use bolide_contract::message::{self, Order};
use bolide_supervision::logs::log_sink;
use nix::unistd::Pid;

use crate::children::child::{Child, Event, KillReason, Progress, State};
use crate::children::{Children, LOST_MS};

/// Reports taken from one child in a turn: a child that floods us does not keep the others waiting.
pub const REPORTS_A_TURN: usize = 64;

/// A worker says what its pid is.
pub fn believes_pid(id: u64, pid: u32, children: &mut Children) -> bool {
    let is_known = children.note_pid(id, pid);
    // A worker that is gone already has told the truth: its end is on the way to us.
    if !is_known && Children::exists(pid) {
        log_sink::line(&format!("a worker claims pid {pid}, which belongs to another process: the report is ignored"));
    }
    is_known
}

/// A worker serves, or a helper works. Gives whether it was not ready before. `stop_ms`: when patience is over in a stop that goes on.
pub fn note_ready(child: &mut Child, stop_ms: Option<u64>, now_ms: u64) -> bool {
    child.apply(Event::Ready);
    if child.ready_ms.is_some() {
        return false;
    }
    if child.state == State::Ending && child.deadline_reason == KillReason::Mercy {
        // It was told to end before it served, and given a moment for that: now it has the time of one that serves.
        child.deadline_ms = child.deadline_ms.max(stop_ms);
    }
    child.ready_ms = Some(now_ms);
    true
}

/// Progress of a worker that ends. From `Leaving` on, when all requests are answered, its interpreter's end has a deadline of its own.
pub fn advance_end(worker: &mut Child, progress: Progress, now_ms: u64) {
    worker.progress = progress;
    if progress == Progress::Leaving && worker.state == State::Ending {
        worker.hurry(now_ms + message::INTERPRETER_END_MS, KillReason::InterpreterStays);
    }
}

/// A worker that was told to end accepts nothing any more. Somebody may have been waiting of whom the kernel has told that worker alone:
/// others are to look.
pub fn note_left(id: u64, somebody_waits: bool, children: &mut Children) {
    if let Some(worker) = children.find_mut(id) {
        worker.has_left = true;
    }
    if !somebody_waits {
        return;
    }
    let serves = |child: &&Child| child.is_request_worker() && child.state.is_serving();
    let mut takers: Vec<&Child> = children.iter().filter(serves).collect();
    if takers.is_empty() {
        // Those who serve now are another master's, whom we tell nothing: it takes them itself.
        takers.extend(children.find(id));
    }
    for channel in takers.iter().filter_map(|taker| taker.channel.as_ref()) {
        // One whose socket is full has orders to read, and looks behind them; one that is gone looks no more.
        let _ = message::send(channel.as_fd(), &Order::Look, None);
    }
}

/// A prototype says that the worker of this row has ended, `pid` if that was known. Gives the worker, if it is that.
pub fn ended_in_row(generation: u32, row: u32, pid: Option<u32>, children: &mut Children) -> Option<u64> {
    let id = children.with_row(generation, row)?.id;
    let worker = children.find_mut(id)?;
    // The row may have its next worker already, where this end became known in another way first.
    if pid.is_some() && worker.pid.is_some_and(|known| Some(known.as_raw() as u32) != pid) {
        return None;
    }
    // A worker that was gone before its pid could be verified gets it now, for the log: nothing is sent to it any more.
    worker.pid = worker.pid.or_else(|| pid.map(|pid| Pid::from_raw(pid as i32)));
    Some(id)
}

/// A child has closed its order socket.
pub fn channel_closed(child: &mut Child, now_ms: u64) {
    child.channel = None;
    // A child that ends anyway has closed its socket in good order and has a deadline already.
    if child.state.is_active() {
        child.hurry(now_ms + LOST_MS, KillReason::OutOfReach);
    }
}
