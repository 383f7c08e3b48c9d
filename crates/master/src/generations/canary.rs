//! `reload-canary`: one worker of a new generation serves beside the old ones for a time, and the generation is rolled back where it makes
//! more errors than they do. Whether it does is decided in the room `services`; here are the numbers, the times, and what follows.
//! While it is watched workers have connections in turn, which the scoreboard tells them (`takes_turns`).
//! It continues the supervisor. The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::{Row, Work};
use bolide_services::canary::{Answers, Moment, Standard, Verdict, in_words, judge};
use bolide_supervision::logs::log_sink;
use bolide_supervision::text::duration;

use crate::children::child::{Child, KillReason};
use crate::generations::generation::{CanaryWatch, Forming, FormingStage, Reason};
use crate::generations::reload::notice_ms;
use crate::supervisor::Supervisor;

/// How often a canary is looked at, in milliseconds.
const LOOK_MS: u64 = 1000;
/// What a service manager gives a reload beyond the canary's time, in milliseconds: the other workers are forked then.
const AFTERWARDS_MS: u64 = 60_000;

impl Supervisor {
    /// How a generation begins: with one worker, where a canary is asked for and there is something to hold it against.
    pub(crate) fn first_stage(&self, reason: Reason, number: u32) -> FormingStage {
        let Some(length_ms) = self.fleet.coming_settings().reloading.canary_ms.filter(|_| reason == Reason::Ordered) else {
            return FormingStage::Whole;
        };
        // With nothing in service there is nothing to go on with: a reload with `reload-order = stop-first` until now, say.
        match self.serving.as_ref().map(|serving| (serving.number, serving.is_empty())) {
            Some((_, false)) => FormingStage::CanaryStarts { length_ms },
            Some((serving, true)) => {
                log_sink::line(&format!(
                    "canary: no worker of generation {serving} serves (cheap), to hold one of generation {number} against: there is none"
                ));
                FormingStage::Whole
            }
            None => FormingStage::Whole,
        }
    }

    /// Takes the canary of the forming generation a step further, if it has one. `true`: its other workers have to wait.
    pub(crate) fn advance_canary(&mut self, now_ms: u64) -> bool {
        let Some(forming) = &self.forming else { return false };
        match &forming.stage {
            FormingStage::Whole => false,
            FormingStage::CanaryStarts { length_ms } => {
                let (number, length_ms) = (forming.generation.number, *length_ms);
                let serving = self.fleet.active_workers(number).find(|worker| worker.state.is_serving());
                let canary = serving.map(ToString::to_string);
                if let Some(canary) = canary {
                    self.begin_watch(&canary, length_ms, now_ms);
                }
                true
            }
            FormingStage::Canary(watch) if now_ms < watch.wake_ms() => true,
            FormingStage::Canary(_) => self.look_at_canary(now_ms),
        }
    }

    fn begin_watch(&mut self, canary: &str, length_ms: u64, now_ms: u64) {
        let Some(serving) = self.serving.as_ref().map(|generation| generation.number) else { return };
        let before = self.answers_of(serving);
        let Some(forming) = &mut self.forming else { return };
        forming.stage = FormingStage::Canary(CanaryWatch {
            began_ms: now_ms,
            until_ms: now_ms.saturating_add(length_ms),
            is_extended: false,
            next_look_ms: now_ms + LOOK_MS,
            before,
            ended_new: Answers::default(),
            ended_old: Answers::default(),
        });
        let (number, length) = (forming.generation.number, duration(length_ms));
        let what = format!("{canary} of generation {number} serves beside those of generation {serving} for {length}");
        log_sink::line(&format!("canary: {what} (reload-canary)"));
        self.notifier.status(&what);
        self.notifier.extend(length_ms.saturating_add(AFTERWARDS_MS));
    }

    /// Judges. `true`: it is too early to say that all is well.
    fn look_at_canary(&mut self, now_ms: u64) -> bool {
        let Some((canary, old)) = self.canary_numbers() else { return false };
        let Some(forming) = &mut self.forming else { return false };
        let number = forming.generation.number;
        let FormingStage::Canary(watch) = &mut forming.stage else { return false };
        watch.next_look_ms = now_ms + LOOK_MS;
        let moment = match (now_ms >= watch.until_ms, watch.is_extended) {
            (false, _) => Moment::Meanwhile,
            (true, false) => Moment::AtEnd,
            (true, true) => Moment::AtLast,
        };
        let took = duration(now_ms.saturating_sub(watch.began_ms));
        let numbers = in_words(canary, &old);
        match judge(canary, &old, moment) {
            Verdict::Worse => {
                self.roll_back(&format!("canary: {numbers}"), now_ms);
                return true;
            }
            _ if moment == Moment::Meanwhile => return true,
            Verdict::Doubtful => {
                let length_ms = watch.until_ms.saturating_sub(watch.began_ms);
                (watch.until_ms, watch.is_extended) = (now_ms.saturating_add(length_ms), true);
                let more = duration(length_ms);
                log_sink::line(&format!("canary: {numbers}, in {took}: not one was good, it is watched for {more} more"));
                self.notifier.extend(length_ms.saturating_add(AFTERWARDS_MS));
                return true;
            }
            Verdict::AsGood => log_sink::line(&format!("canary: {numbers}, in {took}: generation {number} is let in")),
            Verdict::TooFew => {
                log_sink::line(&format!("canary: {numbers}, in {took}: too few to judge, generation {number} is let in"));
            }
        }
        forming.stage = FormingStage::Whole;
        forming.patient_since_ms = now_ms;
        forming.notice_ms = now_ms + notice_ms();
        self.notifier.status(&format!("generation {number} is let in, its other workers are started"));
        false
    }

    /// What the canary has answered, and what it is held against. `None`: there is none that serves.
    pub(crate) fn canary_numbers(&self) -> Option<(Answers, Standard)> {
        let (forming, serving) = (self.forming.as_ref()?, self.serving.as_ref()?);
        let FormingStage::Canary(watch) = &forming.stage else { return None };
        let since_start = self.answers_of(serving.number).plus(watch.ended_old);
        let canary = self.answers_of(forming.generation.number).plus(watch.ended_new);
        Some((canary, Standard { meanwhile: since_start.since(watch.before), since_start }))
    }

    /// Has workers take connections in turn while one of them is watched: the kernel would give those that come one by one to the old ones,
    /// which began to wait first. Nobody's turn has to be told when the watch is over, however it ended.
    pub(crate) fn share_out_turns(&self) {
        let is_watched = self.forming.as_ref().is_some_and(|forming| matches!(forming.stage, FormingStage::Canary(_)));
        let workers = self.fleet.children.iter().filter(|child| child.is_request_worker());
        let rows = workers.filter_map(Child::row).filter_map(|row| self.fleet.scoreboard.row(row));
        let (in_turn, others): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| row.takes_turns.load(Relaxed) == 1);
        // A row that is written is fetched anew by its worker: only where something changes.
        if !is_watched {
            in_turn.iter().for_each(|row| row.takes_turns.store(0, Relaxed));
            return;
        }
        let turns = in_turn.iter().map(|row| row.turns.load(Relaxed)).min().unwrap_or(0);
        for row in others {
            row.turns.store(turns, Relaxed);
            row.takes_turns.store(1, Relaxed);
        }
    }

    /// For whoever asks how it goes.
    pub(crate) fn canary_in_words(&self, now_ms: u64) -> Option<String> {
        let (canary, old) = self.canary_numbers()?;
        let FormingStage::Canary(watch) = &self.forming.as_ref()?.stage else { return None };
        let left = duration(watch.until_ms.saturating_sub(now_ms));
        Some(format!("{}; {left} to go", in_words(canary, &old)))
    }

    /// What the workers of a generation that live have answered since their start.
    fn answers_of(&self, generation: u32) -> Answers {
        let workers = self.fleet.children.iter().filter(|child| child.generation == generation);
        let works = workers.filter_map(Child::row).flat_map(|row| self.fleet.scoreboard.work(row));
        sum(works)
    }

    /// A worker has ended, with so many requests in flight; `works` is what its threads have done. Its answers count on, and requests that
    /// were killed with it are errors. The canary's own death ends the generation, but for `harakiri`: a request over its time is one error,
    /// with the old code as with the new, and another worker takes its place.
    pub(crate) fn note_end_beside_canary(
        &mut self,
        worker: &Child,
        works: impl Iterator<Item = Work>,
        in_flight: usize,
        how: &str,
        now_ms: u64,
    ) {
        let serving = self.serving.as_ref().map(|generation| generation.number);
        let Some(Forming { generation, stage: FormingStage::Canary(watch), .. }) = &mut self.forming else { return };
        let is_harakiri = worker.kill_reason == Some(KillReason::Harakiri);
        let is_lost = worker.state.is_active() || worker.kill_reason.is_some();
        let lost = if is_lost { in_flight.max(usize::from(is_harakiri)) as u64 } else { 0 };
        let answers = sum(works).plus(Answers { requests: lost, errors: lost });
        if worker.generation == generation.number {
            watch.ended_new = watch.ended_new.plus(answers);
            if is_lost && !is_harakiri {
                self.roll_back(&format!("canary: {worker} {how}"), now_ms);
            }
        } else if Some(worker.generation) == serving {
            watch.ended_old = watch.ended_old.plus(answers);
        }
    }

    /// The new generation works worse than the old one: it ends as one does that can't be loaded, but for its canary, which finishes what
    /// it has.
    fn roll_back(&mut self, why: &str, now_ms: u64) {
        let Some(forming) = self.forming.take() else { return };
        let number = forming.generation.number;
        let who = self.who_serves();
        log_sink::line(&format!("{why}: generation {number} is rolled back, {who}"));
        self.prototype_backoff.failed_early(now_ms);
        self.notifier.not_reloaded(&format!("{why}: generation {number} is rolled back, {who}"));
        self.fail_reload(forming.reason, format!("{why}: generation {number} is rolled back"));
        self.end_generations(|generation| generation == number, now_ms);
    }
}

fn sum(works: impl Iterator<Item = Work>) -> Answers {
    works.fold(Answers::default(), |sum, work| sum.plus(Answers { requests: work.requests, errors: work.errors }))
}
