//! Generations of the application: the one that serves, the one that forms, and the request for the next. `forming` has how a
//! generation forms. The supervisor carries out what its success or failure means for the rest of the instance, which this room
//! does not know. The master runs it.

pub mod canary;
pub mod forming;
pub mod generation;
pub mod helpers;
pub mod imports;
pub mod workers;

use bolide_services::reloads::ReloadCause;
use bolide_supervision::processes::backoff::Backoff;
use bolide_supervision::text::duration;

use crate::generations::generation::{Forming, FormingStage, Generation, Reason};
use crate::provision::Provision;

/// A generation for which another one waits may take this many times as long as the last one took.
const PATIENCE_TIMES: u64 = 3;
/// The least time that it may take, in milliseconds.
const MIN_PATIENCE_MS: u64 = 5_000;
/// The time doubles with each generation that was abandoned for this reason, so that one of them serves, at most this often.
const MAX_DOUBLINGS: u32 = 8;

/// The present generations, and whether another one is requested.
#[derive(Debug, Default)]
pub struct Generations {
    /// The generation in service; `None` before the first one serves.
    serving: Option<Generation>,
    forming: Option<Forming>,
    /// With `reload-order = stop-first`: the generation that has ended, or is ending, for one that does not serve yet.
    vacated_by: Option<u32>,
    last_number: u32,
    /// A reload was requested and has not begun; several requests count as one.
    reload_requested: bool,
    /// A reload that was requested while a generation was starting.
    following: Following,
    /// The time that the generation in service took until it served.
    last_formed_ms: u64,
    /// The old generation gets no time to finish when the forming generation, or the next one, takes over.
    reload_is_brutal: bool,
    backoff: Backoff,
}

impl Generations {
    pub fn serving(&self) -> Option<&Generation> {
        self.serving.as_ref()
    }

    pub fn serving_mut(&mut self) -> Option<&mut Generation> {
        self.serving.as_mut()
    }

    pub fn forming(&self) -> Option<&Forming> {
        self.forming.as_ref()
    }

    pub fn forming_mut(&mut self) -> Option<&mut Forming> {
        self.forming.as_mut()
    }

    /// Returns both generations, to change them together.
    pub fn both_mut(&mut self) -> (Option<&mut Generation>, Option<&mut Generation>) {
        (self.serving.as_mut(), self.forming.as_mut().map(|forming| &mut forming.generation))
    }

    pub fn serving_number(&self) -> Option<u32> {
        self.serving.as_ref().map(|serving| serving.number)
    }

    pub fn forming_number(&self) -> Option<u32> {
        self.forming.as_ref().map(|forming| forming.generation.number)
    }

    pub fn is_forming(&self) -> bool {
        self.forming.is_some()
    }

    /// Returns whether a generation is being loaded, or will be at the next turn.
    pub fn is_loading(&self) -> bool {
        self.is_forming() || self.reload_is_requested()
    }

    /// Returns the forming generation, if it has this number.
    pub fn forming_of(&mut self, number: u32) -> Option<&mut Forming> {
        self.forming.as_mut().filter(|forming| forming.generation.number == number)
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

    /// Returns whether a generation has served before, including one that has ended for the next.
    pub fn has_served(&self) -> bool {
        self.serving.is_some() || self.vacated_by.is_some()
    }

    /// Returns a text about the generation that serves while the new one does not.
    pub fn serving_in_words(&self) -> String {
        match &self.serving {
            Some(serving) => format!("generation {} keeps serving", serving.number),
            None => "nothing is served, clients wait".to_owned(),
        }
    }

    /// Requests a generation, brutal or not.
    pub fn request_reload(&mut self, is_brutal: bool) {
        self.reload_requested = true;
        self.reload_is_brutal |= is_brutal;
    }

    pub fn reload_is_requested(&self) -> bool {
        self.reload_requested
    }

    /// Clears the request: its reload begins, or no reload is to begin any more.
    pub fn clear_request(&mut self) {
        self.reload_requested = false;
    }

    /// Returns whether a generation is loading that a further reload may follow. Before the first one serves, and while a canary
    /// is watched, another reload begins at once.
    pub fn may_follow(&self) -> bool {
        let is_loading = |forming: &Forming| forming.reason != Reason::First && !matches!(forming.stage, FormingStage::Canary(_));
        self.forming.as_ref().is_some_and(is_loading)
    }

    /// Lets a reload follow the generation that is starting. Returns that one's state in words if no reload follows it yet.
    pub fn follow(&mut self, by: &str, cause: ReloadCause, now_ms: u64) -> Option<String> {
        let forming = self.forming.as_ref()?;
        let time = duration(now_ms.saturating_sub(forming.began_ms));
        let is_first = self.following.wait(by, cause);
        is_first.then(|| format!("generation {} is still starting (for {time})", forming.generation.number))
    }

    pub fn has_following(&self) -> bool {
        self.following.is_waiting()
    }

    /// Returns the reload whose turn it is: the generation before it serves, has failed, has got as far as its canary, or takes
    /// too long.
    pub fn take_due_following(&mut self, now_ms: u64) -> Option<WaitingReload> {
        let is_late = self.following_late_ms().is_some_and(|late_ms| now_ms >= late_ms);
        if self.may_follow() && !is_late { None } else { self.following.take(is_late) }
    }

    fn following_late_ms(&self) -> Option<u64> {
        self.following.late_ms(self.forming.as_ref()?.began_ms, self.last_formed_ms)
    }

    /// Returns whether the generations before the next get no time to finish, and clears the flag.
    pub fn take_brutal_flag(&mut self) -> bool {
        std::mem::take(&mut self.reload_is_brutal)
    }

    /// Returns whether a reload is requested, or the pause after a failed one is over.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.forming.is_none() && (self.reload_requested || self.backoff.over(now_ms))
    }

    /// Records that a generation, or the prototype of the serving one, has failed. Returns the pause before the next attempt.
    pub fn note_failure(&mut self, now_ms: u64) -> u64 {
        self.backoff.failed_early(now_ms)
    }

    pub fn take_forming(&mut self) -> Option<Forming> {
        self.forming.take()
    }

    /// Puts a formed generation into service. Returns the generation that it replaces, and the one that has ended for it.
    pub fn replace_serving(&mut self, formed: Generation) -> (Option<u32>, Option<u32>) {
        self.backoff.lived();
        self.last_formed_ms = formed.formed_in_ms.unwrap_or(self.last_formed_ms);
        (self.serving.replace(formed).map(|old| old.number), self.vacated_by.take())
    }

    /// Puts the first generation into service after its prototype died once it had loaded: its workers continue like those of any
    /// generation without a prototype.
    pub fn promote_first(&mut self) {
        if let Some(forming) = self.forming.take() {
            self.serving = Some(forming.generation);
        }
    }

    /// Ends the generation in service for the next one (`reload-order = stop-first`).
    pub fn vacate(&mut self) {
        self.vacated_by = self.serving.take().map(|serving| serving.number);
    }

    pub fn is_vacated(&self) -> bool {
        self.vacated_by.is_some()
    }

    /// Returns how long a worker or a prototype of this generation may take to become ready. A forming generation has the limit
    /// of its own settings.
    pub fn load_timeout_ms(&self, generation: u32, provision: &Provision) -> Option<u64> {
        let forms = self.forming_number() == Some(generation);
        let settings = if forms { provision.coming_settings() } else { provision.settings() };
        settings.lifecycle.load_timeout_ms
    }

    /// Returns the next time at which a generation must be checked even without an event.
    pub fn wake_ms(&self, provision: &Provision, now_ms: u64) -> Option<u64> {
        let forming = self.forming.as_ref().map(|forming| &forming.generation);
        let worker_slots = self.serving.iter().chain(forming).flat_map(|generation| &generation.worker_slots);
        let helper_slots = self.serving.iter().flat_map(|generation| &generation.helper_slots);
        let pauses = worker_slots.chain(helper_slots).chain([&self.backoff]).filter_map(|backoff| backoff.wake_ms(now_ms));
        let look = |forming: &Forming| match &forming.stage {
            FormingStage::Canary(watch) => Some(watch.wake_ms()),
            _ => {
                let timeout_ms = self.load_timeout_ms(forming.generation.number, provision);
                let late_ms = timeout_ms.map(|timeout| forming.timeout_since_ms.saturating_add(timeout));
                [late_ms, Some(forming.notice_ms)].into_iter().flatten().min()
            }
        };
        pauses.chain(self.forming.as_ref().and_then(look)).chain(self.following_late_ms()).min()
    }
}

/// A reload that waits for a generation that is starting.
#[derive(Debug)]
pub struct WaitingReload {
    /// What asked for it last.
    pub by: String,
    pub cause: ReloadCause,
}

/// The reload that was requested while a generation was starting, of which there is at most one. It follows that generation, so
/// that requests which come faster than the application loads do not keep each other from serving.
#[derive(Debug, Default)]
struct Following {
    waiting: Option<WaitingReload>,
    /// How many generations in a row were abandoned because they took too long for the one that waited.
    abandoned: u32,
}

/// Returns [`MIN_PATIENCE_MS`], or the time of a test.
fn patience_least_ms() -> u64 {
    let given = std::env::var("BOLIDE_TEST_LOAD_PATIENCE_MS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(MIN_PATIENCE_MS)
}

impl Following {
    /// Lets a reload wait. Returns whether it is the first.
    pub fn wait(&mut self, by: &str, cause: ReloadCause) -> bool {
        self.waiting.replace(WaitingReload { by: by.to_owned(), cause }).is_none()
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Returns when a generation that began at `began_ms` is abandoned for the reload that waits.
    pub fn late_ms(&self, began_ms: u64, last_took_ms: u64) -> Option<u64> {
        self.waiting.as_ref()?;
        let usual_ms = last_took_ms.saturating_mul(PATIENCE_TIMES).max(patience_least_ms());
        let doubled_ms = usual_ms.saturating_mul(1 << self.abandoned.min(MAX_DOUBLINGS));
        Some(began_ms.saturating_add(doubled_ms))
    }

    /// Takes the reload: the generation before it has ended its start, or is late.
    pub fn take(&mut self, is_late: bool) -> Option<WaitingReload> {
        let waiting = self.waiting.take()?;
        self.abandoned = if is_late { self.abandoned + 1 } else { 0 };
        Some(waiting)
    }
}
