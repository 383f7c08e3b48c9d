//! Starts missing workers of a generation: orders its prototype to fork them. It does not decide how many there should be. The
//! master runs it.

use std::io::ErrorKind;

use bolide_contract::children::ChildKind;
use bolide_supervision::log_sink;
use bolide_supervision::text::{duration, workers_in_words};

use crate::children::child::{Child, KillReason, State};
use crate::children::{Children, ForkError, ForkTerms};
use crate::generations::Generations;
use crate::generations::generation::{Forming, Reason};
use crate::provision::Provision;

/// Pause before a fork order that could not be sent is sent again, in milliseconds.
pub const FORK_RETRY_MS: u64 = 20;
/// Remaining time of an old generation's workers when a new one needs their rows of the scoreboard, in milliseconds.
const NO_ROOM_MS: u64 = 2_000;

/// Orders the missing workers of a generation. `recycled` is the worker that is being replaced.
pub fn start_missing(
    number: u32,
    generations: &mut Generations,
    recycled: Option<u64>,
    children: &mut Children,
    provision: &Provision,
    now_ms: u64,
) {
    let forming = generations.forming().filter(|forming| forming.generation.number == number);
    let is_on_trial = forming.is_some_and(|forming| forming.reason == Reason::Ordered);
    let wanted_now = forming.map(Forming::wanted_now);
    let Some(generation) = generations.with_number_mut(number) else { return };
    let mut wanted: Vec<usize> = wanted_now.unwrap_or_else(|| generation.wanted.clone()).into_iter().map(usize::from).collect();
    let ready_by_ms = generation.load_timeout_ms.map(|timeout_ms| now_ms.saturating_add(timeout_ms));
    let recycled = recycled.and_then(|id| children.find(id)).filter(|worker| worker.state == State::Worn);
    if let Some(worker) = recycled.filter(|worker| worker.generation == number)
        && let Some(missing) = worker.worker_number().and_then(|number| wanted.get_mut(number as usize - 1))
    {
        *missing += 1;
    }
    for worker in children.active_workers(number) {
        if let Some(missing) = worker.worker_number().and_then(|number| wanted.get_mut(number as usize - 1)) {
            *missing = missing.saturating_sub(1);
        }
    }
    for ((place, slot), lacking) in (1u32..).zip(&mut generation.worker_slots).zip(wanted) {
        if lacking == 0 || !slot.over(now_ms) {
            continue;
        }
        let terms = ForkTerms { is_on_trial, is_first: !generation.begun.contains(&place) };
        match children.fork(number, ChildKind::RequestWorker, place, terms, provision) {
            Ok(worker) => {
                worker.ready_by_ms = ready_by_ms;
                generation.begun.insert(place);
            }
            // The shortage passes: a generation without a prototype gets a new one.
            Err(ForkError::NoPrototype) => return,
            Err(ForkError::NoRow) => return shorten_oldest_deadlines(number, children, now_ms),
            // A full socket is the normal end of a burst of orders.
            Err(ForkError::Failed(error)) if error.kind() == ErrorKind::WouldBlock => return slot.hold(now_ms + FORK_RETRY_MS),
            Err(ForkError::Failed(error)) => {
                let pause = duration(slot.failed_early(now_ms));
                return log_sink::line(&format!("worker {place} can't be ordered: {error}; next attempt in {pause}"));
            }
        }
    }
}

/// Shortens the deadline of the oldest ending generation, because workers that are still ending occupy every row of the
/// scoreboard.
fn shorten_oldest_deadlines(newer: u32, children: &mut Children, now_ms: u64) {
    let ending = |child: &Child| child.is_request_worker() && child.state == State::Ending && child.generation < newer;
    let Some(oldest) = children.iter().filter(|child| ending(child)).map(|child| child.generation).min() else { return };
    let mut shortened = 0;
    for worker in children.iter_mut().filter(|child| ending(child) && child.generation == oldest) {
        shortened += u32::from(worker.shorten_deadline(now_ms + NO_ROOM_MS, KillReason::NoRoom));
    }
    if shortened > 0 {
        let (workers, most) = (workers_in_words(shortened), duration(NO_ROOM_MS));
        log_sink::line(&format!(
            "reload: there is no room for generation {newer}: {workers} of generation {oldest} must finish within {most}"
        ));
    }
}
