//! `fork-safety = lazy`: an application that has opened what workers can't share is loaded by each of them. The prototype that found that is
//! spoiled, so it ends, with all that the application has started, and another one of the same generation forks workers. Which things can't be shared the
//! prototype knows. The master runs this.

use bolide_contract::message::Order;
use bolide_contract::settings::ForkSafety;
use bolide_supervision::error::StartError;

use crate::children::child::KillReason;
use crate::children::{Children, GRACE_MS};
use crate::generations::Generations;
use crate::generations::forming::notice_ms;
use crate::provision::Provision;

/// A prototype says that what it has loaded can't be shared. It is waited for: the application may hold what one process at a time can have.
pub fn note(id: u64, number: u32, generations: &mut Generations, children: &mut Children, provision: &Provision, now_ms: u64) {
    let is_asked_for = provision.coming_settings().application.fork_safety == ForkSafety::Lazy;
    // One that was given up meanwhile ends anyway.
    let Some(forming) = generations.forming_of(number) else { return };
    // A prototype that loads nothing has nothing to find, so this is said once in a generation.
    if forming.generation.is_lazy || !is_asked_for {
        return children.kill_and_log(id, KillReason::OutOfReach, provision, now_ms);
    }
    forming.generation.is_lazy = true;
    forming.unshared = Some(id);
    children.order_end(id, Order::Retire, now_ms + GRACE_MS);
}

/// Starts the next prototype of the generation that forms, where it was this one's end that it waited for. Gives whether it was.
///
/// # Errors
/// It can't be started.
pub fn go_on_lazily(
    ended: u64,
    generations: &mut Generations,
    children: &mut Children,
    provision: &Provision,
    now_ms: u64,
) -> Result<bool, StartError> {
    let Some(forming) = generations.forming_mut().filter(|forming| forming.unshared == Some(ended)) else { return Ok(false) };
    forming.unshared = None;
    // The application is loaded once more, and `load-timeout` is the time for one such try.
    forming.patient_since_ms = now_ms;
    forming.notice_ms = now_ms + notice_ms();
    let number = forming.generation.number;
    let note = generations.start_prototype(number, true, children, provision)?;
    if let Some(forming) = generations.forming_mut() {
        forming.note = note;
    }
    Ok(true)
}
