//! Generations of the application: the one that serves, and the reload that forms the next. `forming` has how a generation forms.
//! The supervisor carries out what its success or failure means for the rest of the instance, which this module does not know.
//! The master runs it.

pub mod canary;
pub mod forming;
pub mod generation;
pub mod helpers;
pub mod imports;
pub mod reload;
pub mod workers;

use crate::generations::generation::{Forming, Generation};
use crate::generations::reload::{Reload, ReloadEvent};
use crate::owner::{Owner, Turn, Waits};

/// The present generations.
#[derive(Debug, Default)]
pub struct Generations {
    /// The generation in service. `None` before the first one serves, and with `reload-order = stop-first` from the end of one
    /// until the next serves.
    serving: Option<Generation>,
    pub reload: Reload,
    last_number: u32,
}

impl Generations {
    pub fn serving(&self) -> Option<&Generation> {
        self.serving.as_ref()
    }

    pub fn serving_mut(&mut self) -> Option<&mut Generation> {
        self.serving.as_mut()
    }

    pub fn forming(&self) -> Option<&Forming> {
        self.reload.forming()
    }

    /// Returns both generations, to change them together.
    pub fn both_mut(&mut self) -> (Option<&mut Generation>, Option<&mut Generation>) {
        (self.serving.as_mut(), self.reload.forming_mut().map(|forming| &mut forming.generation))
    }

    pub fn serving_number(&self) -> Option<u32> {
        self.serving.as_ref().map(|serving| serving.number)
    }

    pub fn forming_number(&self) -> Option<u32> {
        self.forming().map(|forming| forming.generation.number)
    }

    pub fn is_forming(&self) -> bool {
        self.forming().is_some()
    }

    /// Returns the forming generation, if it has this number.
    pub fn forming_of(&mut self, number: u32) -> Option<&mut Forming> {
        self.reload.forming_mut().filter(|forming| forming.generation.number == number)
    }

    /// Returns the generation with this number, if it serves or forms.
    pub fn with_number_mut(&mut self, number: u32) -> Option<&mut Generation> {
        let (serving, forming) = self.both_mut();
        serving.into_iter().chain(forming).find(|generation| generation.number == number)
    }

    /// Returns the number of the last generation that was begun.
    pub fn last_number(&self) -> u32 {
        self.last_number
    }

    /// Returns a text about the generation that serves while the new one does not.
    pub fn serving_in_words(&self) -> String {
        match (&self.serving, self.forming_number()) {
            (Some(serving), _) => format!("generation {} keeps serving", serving.number),
            (None, Some(starting)) => format!("generation {starting} keeps starting"),
            (None, None) => "nothing is served, clients wait".to_owned(),
        }
    }

    /// Puts a formed generation into service. Returns the number of the generation that it replaces.
    pub fn replace_serving(&mut self, formed: Generation) -> Option<u32> {
        self.serving.replace(formed).map(|old| old.number)
    }

    /// Puts the first generation into service after its prototype died once it had loaded: its workers continue like those of any
    /// generation without a prototype.
    pub fn promote_first(&mut self, now_ms: u64) {
        if let Some(forming) = self.reload.complete(now_ms) {
            self.serving = Some(forming.generation);
        }
    }

    /// Ends the generation in service for the next one (`reload-order = stop-first`).
    pub fn vacate(&mut self) {
        self.serving = None;
        self.reload.apply(ReloadEvent::Vacated);
    }
}

impl Owner for Generations {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        let forming = self.forming().map(|forming| &forming.generation);
        let worker_slots = self.serving.iter().chain(forming).flat_map(|generation| &generation.worker_slots);
        let helper_slots = self.serving.iter().flat_map(|generation| &generation.helper_slots);
        let pauses = worker_slots.chain(helper_slots).filter_map(|backoff| backoff.wake_ms(turn.now_ms));
        Waits::until(pauses.chain(self.reload.wake_ms(turn.now_ms)).min())
    }
}
