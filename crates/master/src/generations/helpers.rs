//! Helpers of the generation in service: processes that its prototype forks beside the request workers. They start when the
//! generation serves and the helpers of older generations have ended, so that two generations of a helper never run at the same
//! time. A helper that dies is forked again. Only the language knows what a helper does. The master runs this.

use std::io::ErrorKind;

use bolide_contract::children::{ChildKind, Task};
use bolide_contract::message::{EXIT_RECYCLED, Order};
use bolide_supervision::log_sink;
use bolide_supervision::processes::backoff::EARLY_FAILURE_MS;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::text::duration;

use crate::children::child::{Child, State};
use crate::children::{Children, ForkError, ForkTerms};
use crate::generations::generation::Generation;
use crate::generations::workers::FORK_RETRY_MS;
use crate::provision::Provision;

/// What a shell adds to the number of a signal that ended a process.
const SIGNALED: i32 = 128;

/// Returns the exit status that the instance has if this helper is the script of `pyrun` and has ended by itself.
pub fn status_of_script(child: &Child, cause: &Cause) -> Option<i32> {
    let is_script = child.helper.as_ref().is_some_and(|helper| matches!(helper.task, Task::Script { .. }));
    match cause {
        _ if !is_script || child.state == State::Ending => None,
        Cause::Exited(status) => Some(*status),
        Cause::Signaled { signal, .. } => Some(SIGNALED + signal),
        Cause::NotForked(_) | Cause::Unknown => None,
    }
}

/// Orders the missing helpers of the generation in service.
pub fn start_missing(serving: &mut Generation, children: &mut Children, provision: &Provision, now_ms: u64) {
    let generation = serving.number;
    let of_others = |child: &Child| child.helper_number().is_some() && child.generation != generation;
    if serving.helper_slots.is_empty() || children.iter().any(of_others) {
        return;
    }
    let ready_by_ms = serving.load_timeout_ms.map(|timeout_ms| now_ms.saturating_add(timeout_ms));
    for (number, slot) in (1u32..).zip(&mut serving.helper_slots) {
        // A helper that is still ending counts as present.
        let is_there = children.iter().any(|child| child.helper_number() == Some(number));
        if is_there || !slot.over(now_ms) {
            continue;
        }
        match children.fork(generation, ChildKind::Helper, number, ForkTerms::default(), provision) {
            Ok(helper) => helper.ready_by_ms = ready_by_ms,
            // The shortage passes: the end of a child frees a row, and a generation without a prototype is replaced.
            Err(ForkError::NoPrototype | ForkError::NoRow) => return,
            Err(ForkError::Failed(error)) if error.kind() == ErrorKind::WouldBlock => return slot.hold(now_ms + FORK_RETRY_MS),
            Err(ForkError::Failed(error)) => {
                let pause = duration(slot.failed_early(now_ms));
                let helper = provision.settings().helpers.get(number as usize - 1);
                let name = helper.map_or_else(|| format!("helper {number}"), |helper| helper.name(number));
                return log_sink::line(&format!("{name} can't be ordered: {error}; next attempt in {pause}"));
            }
        }
    }
}

/// Restarts a helper that was sent SIGTERM: it ends regularly and is forked again.
pub fn renew(id: u64, children: &mut Children, provision: &Provision, now_ms: u64) {
    if children.find(id).is_some_and(|helper| helper.state.is_active()) {
        children.order_end_of_helper(id, Order::Drain { has_successors: true }, provision, now_ms);
    }
}

/// Replaces all helpers of a kind.
pub fn renew_kind(kind: &str, by: &str, children: &mut Children, provision: &Provision, now_ms: u64) {
    log_sink::line(&format!("{by}: replacing the {kind}s"));
    for id in
        children.ids(|child| child.helper.as_ref().is_some_and(|helper| helper.kind(0).0 == kind) && child.state.is_serving())
    {
        renew(id, children, provision, now_ms);
    }
}

/// Records the end of a helper. If its generation continues (`serving`), a replacement follows: immediately, or after a pause if
/// it failed early.
pub fn note_end(helper: &Child, number: u32, serving: Option<&mut Generation>, cause: &Cause, now_ms: u64) {
    let has_done_enough = *cause == Cause::Exited(EXIT_RECYCLED);
    let was_told = helper.state == State::Ending && helper.kill_reason.is_none() || has_done_enough;
    let follows = serving.filter(|serving| serving.number == helper.generation).map(|serving| {
        let slot = &mut serving.helper_slots[number as usize - 1];
        if was_told || helper.ready_ms.is_some_and(|ready| now_ms.saturating_sub(ready) >= EARLY_FAILURE_MS) {
            slot.lived();
            "; it is replaced".to_owned()
        } else {
            format!(" soon after startup; next attempt in {}", duration(slot.failed_early(now_ms)))
        }
    });
    // A kill already has a log line, and an ordered end needs none.
    if helper.kill_reason.is_none() && !(was_told && matches!(cause, Cause::Exited(0 | EXIT_RECYCLED))) {
        log_sink::line(&format!("{helper} {}{}", cause.words(), follows.unwrap_or_default()));
    }
}
