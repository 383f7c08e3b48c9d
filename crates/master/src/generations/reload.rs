//! The reload in progress: one table of its stages and events, and the record that the master keeps of it, from the request to
//! the outcome. The start of the first generation goes through the same stages. `forming` has how a generation forms, and the
//! supervisor carries out what a stage means for the rest of the instance. It does not start or end processes. The master runs
//! it.

use bolide_services::reloads::ReloadCause;
use bolide_supervision::processes::backoff::Backoff;
use bolide_supervision::text::duration;

use crate::generations::generation::{CanaryWatch, Forming, Reason};

/// The stage of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// No reload is in progress.
    #[default]
    Idle,
    /// It was requested, and its configuration is read. It begins in this turn, or when a generation that was abandoned for it
    /// has ended.
    Planned,
    /// `reload-order = stop-first`: the old generation ends, and the next one begins when no process of it is left.
    StoppedFirst,
    /// The prototype of the new generation loads the application.
    Loading,
    /// The prototype has loaded, and workers start, pass `reload-probe`, and begin to serve: all of them, or the canary alone.
    Starting,
    /// The canary serves beside the old generation and is compared with it (`reload-canary`).
    Canary,
    /// The new generation serves. Workers of the old one may still accept connections.
    TakingOver,
    /// The new generation has failed. If nothing else serves, another attempt follows after a pause.
    Failed,
}

/// An event of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReloadEvent {
    /// A reload was requested, and its configuration can be used. A generation that forms is abandoned.
    Requested,
    /// The old generation got its order to end before the new one begins.
    Vacated,
    /// A prototype was executed.
    Begun,
    /// It has loaded the application.
    Loaded,
    CanaryServes,
    CanaryPassed,
    /// All workers of the new generation serve.
    Serves,
    /// The old workers have stopped accepting, and the outcome is reported.
    Settled,
    /// The new generation could not be started or loaded, or was rolled back.
    Failure,
    /// The prototype of the generation in service died too early.
    PrototypeLost,
    /// The pause after a failure is over.
    PauseOver,
    /// The instance stops, or another master has it.
    Cancelled,
}

/// The transition table: the events that lead out of each stage. Any other event leaves the stage as it is: the reports of a
/// worker and of its prototype may arrive in either order, and a generation may fail while it is abandoned.
const TABLE: [(Stage, &[(ReloadEvent, Stage)]); 8] = {
    use ReloadEvent::{
        Begun, CanaryPassed, CanaryServes, Cancelled, Failure, Loaded, PauseOver, PrototypeLost, Requested, Serves, Settled,
        Vacated,
    };
    use Stage::{Canary, Failed, Idle, Loading, Planned, Starting, StoppedFirst, TakingOver};
    [
        (Idle, &[(Requested, Planned), (Vacated, StoppedFirst), (Begun, Loading), (Failure, Failed), (PrototypeLost, Failed)]),
        (Planned, &[(Vacated, StoppedFirst), (Begun, Loading), (Failure, Failed), (Cancelled, Idle)]),
        (StoppedFirst, &[(Begun, Loading), (Failure, Failed), (Cancelled, Idle)]),
        (
            Loading,
            &[
                (Requested, Planned),
                (Loaded, Starting),
                (CanaryServes, Canary),
                (Serves, TakingOver),
                (Failure, Failed),
                (Cancelled, Idle),
            ],
        ),
        (Starting, &[(Requested, Planned), (CanaryServes, Canary), (Serves, TakingOver), (Failure, Failed), (Cancelled, Idle)]),
        (Canary, &[(Requested, Planned), (CanaryPassed, Starting), (Failure, Failed), (Cancelled, Idle)]),
        (
            TakingOver,
            &[
                (Requested, Planned),
                (Vacated, StoppedFirst),
                (Begun, Loading),
                (Settled, Idle),
                (Failure, Failed),
                (PrototypeLost, Failed),
                (Cancelled, Idle),
            ],
        ),
        (Failed, &[(Requested, Planned), (PauseOver, Idle), (Cancelled, Idle)]),
    ]
};

impl Stage {
    /// Returns the stage after an event.
    pub fn after(self, event: ReloadEvent) -> Stage {
        let ways = TABLE.iter().find(|(stage, _)| *stage == self).map_or(&[][..], |(_, ways)| ways);
        ways.iter().find(|(known, _)| *known == event).map_or(self, |(_, next)| *next)
    }

    /// Returns whether a generation forms in this stage.
    pub fn forms(self) -> bool {
        matches!(self, Stage::Loading | Stage::Starting | Stage::Canary)
    }
}

/// Returns the table as Markdown, for the documentation.
pub fn as_markdown() -> String {
    let ways = |ways: &[(ReloadEvent, Stage)]| {
        ways.iter().map(|(event, next)| format!("{event:?} → {next:?}")).collect::<Vec<String>>().join(", ")
    };
    let page = "| stage | events that lead out of it |\n|---|---|\n".to_owned();
    TABLE.iter().fold(page, |page, (stage, out)| page + &format!("| {stage:?} | {} |\n", ways(out)))
}

/// A generation for which another one waits may take this many times as long as the last one took.
const PATIENCE_TIMES: u64 = 3;
/// The least time that it may take, in milliseconds.
const MIN_PATIENCE_MS: u64 = 5_000;
/// The time doubles with each generation that was abandoned for this reason, so that one of them serves, at most this often.
const MAX_DOUBLINGS: u32 = 8;

/// Returns [`MIN_PATIENCE_MS`], or the time of a test.
fn patience_least_ms() -> u64 {
    let given = std::env::var("BOLIDE_TEST_LOAD_PATIENCE_MS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(MIN_PATIENCE_MS)
}

/// The reload in progress, or the last one. Several requests before it begins count as one.
#[derive(Debug, Default)]
pub struct Reload {
    stage: Stage,
    /// The new generation; it is there in the stages that form one.
    forming: Option<Forming>,
    /// The old generation is killed when the new one serves.
    is_brutal: bool,
    /// Another reload, which waits.
    waiting: Option<WaitingReload>,
    /// How many generations in a row were abandoned because they took too long for the reload that waited.
    abandoned: u32,
    /// The time that the generation in service took until it served.
    last_formed_ms: u64,
    /// The pause after a failure.
    backoff: Backoff,
}

/// A reload that waits for something else. There is at most one, so that requests which come faster than the application loads do
/// not keep each other from serving.
#[derive(Debug)]
pub struct WaitingReload {
    pub until: Until,
    /// What asked for it last.
    pub by: String,
    pub cause: ReloadCause,
    pub is_brutal: bool,
}

/// What a reload waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The generation that is starting serves or has failed.
    Started,
    /// The upgrade fails: the new master has the sockets and settings of this generation.
    UpgradeFailed,
}

/// A generation that has failed, and the pause before another attempt.
#[derive(Debug)]
pub struct Failure {
    pub forming: Forming,
    pub pause_ms: u64,
}

impl Reload {
    pub fn stage(&self) -> Stage {
        self.stage
    }

    pub fn forming(&self) -> Option<&Forming> {
        self.forming.as_ref()
    }

    pub fn forming_mut(&mut self) -> Option<&mut Forming> {
        self.forming.as_mut()
    }

    /// Returns whether a generation is being loaded, or will be at the next turn.
    pub fn is_loading(&self) -> bool {
        self.stage == Stage::Planned || self.stage.forms()
    }

    /// Requests a reload. Returns the generation that it abandons.
    pub fn request(&mut self, is_brutal: bool) -> Option<Forming> {
        self.is_brutal |= is_brutal;
        self.leave(ReloadEvent::Requested)
    }

    /// Returns whether the next generation may begin, or the old one end for it: a reload is requested, or nothing is in progress
    /// and the pause after a failure is over.
    pub fn may_begin(&mut self, now_ms: u64) -> bool {
        if self.stage == Stage::Failed && self.backoff.over(now_ms) {
            self.apply(ReloadEvent::PauseOver);
        }
        !self.stage.forms() && self.stage != Stage::Failed
    }

    /// Records that a prototype of the new generation was executed.
    pub fn note_begun(&mut self, forming: Forming) {
        self.forming = Some(forming);
        self.apply(ReloadEvent::Begun);
    }

    /// Records that the prototype has loaded the application.
    pub fn note_loaded(&mut self, generation: u32, took_ms: u64) {
        if let Some(forming) = self.forming.as_mut().filter(|forming| forming.generation.number == generation) {
            forming.loaded_in_ms.get_or_insert(took_ms);
            self.apply(ReloadEvent::Loaded);
        }
    }

    /// Records that the canary serves.
    pub fn watch_canary(&mut self, watch: CanaryWatch) {
        if let Some(forming) = &mut self.forming {
            forming.watch = Some(watch);
            self.apply(ReloadEvent::CanaryServes);
        }
    }

    /// Records that the canary has passed: the other workers start, and `load-timeout` begins again.
    pub fn pass_canary(&mut self, next_notice_ms: u64, now_ms: u64) {
        if let Some(forming) = &mut self.forming {
            (forming.watch, forming.canary_ms) = (None, None);
            (forming.timeout_since_ms, forming.notice_ms) = (now_ms, next_notice_ms);
            self.apply(ReloadEvent::CanaryPassed);
        }
    }

    /// Takes the new generation, whose workers all serve.
    pub fn complete(&mut self, now_ms: u64) -> Option<Forming> {
        self.backoff.lived();
        let formed = self.leave(ReloadEvent::Serves)?;
        self.last_formed_ms = now_ms.saturating_sub(formed.began_ms);
        Some(formed)
    }

    /// Records that the next generation could not begin. Returns the pause before another attempt, in milliseconds.
    pub fn note_not_begun(&mut self, now_ms: u64) -> u64 {
        self.apply(ReloadEvent::Failure);
        self.backoff.failed_early(now_ms)
    }

    /// Takes the forming generation, which has failed.
    pub fn fail(&mut self, now_ms: u64) -> Option<Failure> {
        let forming = self.forming.take()?;
        Some(Failure { forming, pause_ms: self.note_not_begun(now_ms) })
    }

    /// Records that the prototype of the generation in service has died too early, for which another generation follows.
    pub fn note_lost_prototype(&mut self, now_ms: u64) {
        self.backoff.failed_early(now_ms);
        self.apply(ReloadEvent::PrototypeLost);
    }

    /// Ends the reload, because nothing is to begin any more. Returns the generation that was forming.
    pub fn cancel(&mut self) -> Option<Forming> {
        self.waiting = None;
        self.leave(ReloadEvent::Cancelled)
    }

    /// Returns whether the generations before the next do not get time to finish, and clears the flag.
    pub fn take_brutal_flag(&mut self) -> bool {
        std::mem::take(&mut self.is_brutal)
    }

    /// Returns whether a generation is loading that another reload may follow. Before the first one serves, and while a canary
    /// is watched, another reload begins immediately.
    pub fn may_follow(&self) -> bool {
        let is_watched = self.stage == Stage::Canary;
        self.forming.as_ref().is_some_and(|forming| forming.reason != Reason::First && !is_watched)
    }

    /// Lets a reload wait. Returns whether it is the first.
    pub fn wait(&mut self, reload: WaitingReload) -> bool {
        let is_brutal = reload.is_brutal || self.waiting.as_ref().is_some_and(|before| before.is_brutal);
        self.waiting.replace(WaitingReload { is_brutal, ..reload }).is_none()
    }

    /// Returns whether a reload follows the generation that is starting.
    pub fn is_followed(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.until == Until::Started)
    }

    /// Returns the reload whose turn it is: the generation before it serves, has failed, has got as far as its canary, or takes
    /// too long.
    pub fn take_due(&mut self, now_ms: u64) -> Option<WaitingReload> {
        let is_late = self.followed_late_ms().is_some_and(|late_ms| now_ms >= late_ms);
        if self.may_follow() && !is_late {
            return None;
        }
        let due = self.take_waiting(Until::Started)?;
        self.abandoned = if is_late { self.abandoned + 1 } else { 0 };
        Some(due)
    }

    /// Returns the reload that has waited for this.
    pub fn take_waiting(&mut self, until: Until) -> Option<WaitingReload> {
        self.waiting.take_if(|waiting| waiting.until == until)
    }

    /// Returns for how long the generation has been starting that a reload would follow, in words.
    pub fn start_in_words(&self, now_ms: u64) -> Option<String> {
        let forming = self.forming.as_ref()?;
        let time = duration(now_ms.saturating_sub(forming.began_ms));
        Some(format!("generation {} is still starting (for {time})", forming.generation.number))
    }

    /// Returns when the generation that is starting is abandoned for the reload that waits.
    fn followed_late_ms(&self) -> Option<u64> {
        let forming = self.forming.as_ref().filter(|_| self.is_followed())?;
        let usual_ms = self.last_formed_ms.saturating_mul(PATIENCE_TIMES).max(patience_least_ms());
        let doubled_ms = usual_ms.saturating_mul(1 << self.abandoned.min(MAX_DOUBLINGS));
        Some(forming.began_ms.saturating_add(doubled_ms))
    }

    /// Returns the next time at which it must be looked at even without an event.
    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        debug_assert_eq!(self.stage.forms(), self.forming.is_some(), "{:?}", self.stage);
        let forming = self.forming.as_ref().map(Forming::wake_ms);
        [forming, self.followed_late_ms(), self.backoff.wake_ms(now_ms)].into_iter().flatten().min()
    }

    /// Applies an event that changes nothing but the stage.
    pub fn apply(&mut self, event: ReloadEvent) {
        self.stage = self.stage.after(event);
    }

    /// Applies an event after which no generation forms. Returns the one that did.
    fn leave(&mut self, event: ReloadEvent) -> Option<Forming> {
        self.apply(event);
        self.forming.take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn walk(events: &[ReloadEvent]) -> Stage {
        events.iter().fold(Stage::Idle, |stage, event| stage.after(*event))
    }

    #[test]
    fn the_table_has_each_stage_once_and_each_event_leads_out_of_it_once() {
        use Stage::{Canary, Failed, Idle, Loading, Planned, Starting, StoppedFirst, TakingOver};
        for stage in [Idle, Planned, StoppedFirst, Loading, Starting, Canary, TakingOver, Failed] {
            assert_eq!(TABLE.iter().filter(|(known, _)| *known == stage).count(), 1, "{stage:?}");
        }
        for (stage, ways) in TABLE {
            let events: HashSet<ReloadEvent> = ways.iter().map(|(event, _)| *event).collect();
            assert_eq!(events.len(), ways.len(), "an event leads out of {stage:?} twice");
            assert!(ways.iter().all(|(_, next)| *next != stage), "{stage:?}");
        }
        assert_eq!(as_markdown().lines().count(), 2 + TABLE.len());
    }

    #[test]
    fn a_request_leads_from_each_stage_to_a_new_generation_and_a_failure_never_to_service() {
        for (stage, _) in TABLE {
            let begun = stage.after(ReloadEvent::Requested).after(ReloadEvent::Begun);
            assert_eq!(begun, Stage::Loading, "{stage:?}");
            assert_ne!(stage.after(ReloadEvent::Failure), Stage::TakingOver);
            assert!(!stage.after(ReloadEvent::Cancelled).forms(), "{stage:?}");
        }
    }

    #[test]
    fn reloads_go_their_ways() {
        use ReloadEvent::{
            Begun, CanaryPassed, CanaryServes, Failure, Loaded, PauseOver, PrototypeLost, Requested, Serves, Settled, Vacated,
        };
        assert_eq!(walk(&[Begun, Loaded, Serves, Settled]), Stage::Idle);
        assert_eq!(walk(&[Requested, Begun, Loaded, CanaryServes]), Stage::Canary);
        assert_eq!(walk(&[Requested, Begun, Loaded, CanaryServes, CanaryPassed, Serves]), Stage::TakingOver);
        // A worker's report may come before its prototype's.
        assert_eq!(walk(&[Requested, Begun, Serves, Loaded]), Stage::TakingOver);
        assert_eq!(walk(&[Requested, Vacated, Requested, Begun, Failure]), Stage::Failed);
        assert_eq!(walk(&[Requested, Begun, Failure, PauseOver]), Stage::Idle);
        // The prototype of the old generation dies while the next one loads: that one replaces it anyway.
        assert_eq!(walk(&[Requested, Begun, PrototypeLost]), Stage::Loading);
    }

    #[test]
    fn of_two_reloads_that_wait_one_follows_and_it_is_brutal_if_either_was() {
        let waiting = |by: &str, is_brutal| WaitingReload {
            until: Until::UpgradeFailed,
            by: by.to_owned(),
            cause: ReloadCause::Signal,
            is_brutal,
        };
        let mut reload = Reload::default();
        assert!(reload.wait(waiting("first", true)));
        assert!(!reload.wait(waiting("second", false)));
        assert!(reload.take_due(0).is_none());
        let due = reload.take_waiting(Until::UpgradeFailed).expect("it waits");
        assert_eq!((due.by.as_str(), due.is_brutal), ("second", true));
        assert!(reload.take_waiting(Until::UpgradeFailed).is_none());
    }
}
