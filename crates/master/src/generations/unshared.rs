//! `fork-safety = lazy`: an application that has opened what workers can't share is loaded by each of them. The prototype that found that is
//! spoiled, so it ends, with all that the application has started, and another one of the same generation forks workers. Which things can't be shared the
//! prototype knows. The master runs this.

use bolide_contract::message::Order;
use bolide_contract::settings::ForkSafety;

use crate::children::child::KillReason;
use crate::generations::reload::notice_ms;
use crate::supervisor::{GRACE_MS, Supervisor};

impl Supervisor {
    /// A prototype says that what it has loaded can't be shared. It is waited for: the application may hold what one process at a time can have.
    pub(crate) fn note_unshared(&mut self, id: u64, generation: u32, now_ms: u64) {
        let is_asked_for = self.fleet.coming_settings().python.fork_safety == ForkSafety::Lazy;
        // One that was given up meanwhile ends anyway.
        let Some(forming) = self.forming.as_mut().filter(|forming| forming.generation.number == generation) else { return };
        // A prototype that loads nothing has nothing to find, so this is said once in a generation.
        if forming.generation.is_lazy || !is_asked_for {
            return self.kill_and_log(id, KillReason::OutOfReach, now_ms);
        }
        forming.generation.is_lazy = true;
        forming.unshared = Some(id);
        self.fleet.order_end(id, Order::Retire, now_ms + GRACE_MS);
    }

    /// Starts the next prototype of the generation that forms, where it was this one's end that it waited for. Gives whether it was.
    pub(crate) fn goes_on_lazily(&mut self, ended: u64, now_ms: u64) -> bool {
        let Some(forming) = self.forming.as_mut().filter(|forming| forming.unshared == Some(ended)) else { return false };
        forming.unshared = None;
        // The application is loaded once more, and `load-timeout` is the time for one such try.
        forming.patient_since_ms = now_ms;
        forming.notice_ms = now_ms + notice_ms();
        let number = forming.generation.number;
        match self.start_prototype(number, true) {
            Ok(note) => {
                if let Some(forming) = &mut self.forming {
                    forming.note = note;
                }
            }
            Err(error) => self.give_up_forming(&error.to_string(), now_ms),
        }
        true
    }
}
