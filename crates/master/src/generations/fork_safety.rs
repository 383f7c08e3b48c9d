//! `fork-safety = lazy`: if an application opens resources that workers can't share, each worker loads it. The prototype that
//! detects this can't be used any more. It ends, with all processes that the application started, and another prototype of the
//! same generation forks workers. Only the prototype knows which resources can't be shared. The master runs this.

use bolide_contract::message::Order;
use bolide_contract::settings::ForkSafety;
use bolide_supervision::error::StartError;

use crate::children::child::KillReason;
use crate::children::{Children, GRACE_MS};
use crate::generations::Generations;
use crate::generations::forming::notice_ms;
use crate::provision::Provision;

/// Handles a prototype's report that its application can't be shared. The prototype's end is awaited, because the application may
/// hold resources that only one process at a time can have.
pub fn note(id: u64, number: u32, generations: &mut Generations, children: &mut Children, provision: &Provision, now_ms: u64) {
    let is_asked_for = provision.coming_settings().application.fork_safety == ForkSafety::Lazy;
    // A generation that was abandoned meanwhile ends anyway.
    let Some(forming) = generations.forming_of(number) else { return };
    // A lazy prototype loads nothing and so detects nothing: the report is valid once per generation.
    if forming.generation.is_lazy || !is_asked_for {
        return children.kill_and_log(id, KillReason::Unreachable, provision, now_ms);
    }
    forming.generation.is_lazy = true;
    forming.unshared_id = Some(id);
    children.order_end(id, Order::Retire, now_ms + GRACE_MS);
}

/// Starts the next prototype of the forming generation, if that has waited for the end of this one. Returns whether it has.
///
/// # Errors
/// The prototype can't be started.
pub fn continue_lazily(
    ended: u64,
    generations: &mut Generations,
    children: &mut Children,
    provision: &Provision,
    now_ms: u64,
) -> Result<bool, StartError> {
    let Some(forming) = generations.forming_mut().filter(|forming| forming.unshared_id == Some(ended)) else {
        return Ok(false);
    };
    forming.unshared_id = None;
    // The application is loaded once more, and `load-timeout` limits each attempt.
    forming.timeout_since_ms = now_ms;
    forming.notice_ms = now_ms + notice_ms();
    let number = forming.generation.number;
    let note = generations.start_prototype(number, true, children, provision)?;
    if let Some(forming) = generations.forming_mut() {
        forming.note = note;
    }
    Ok(true)
}
