//! `reload-canary`: one worker of a new generation serves beside the old ones for a time, and the generation is rolled back if it
//! makes more errors than they do. The crate `services` decides whether it does; this file contains the numbers, the times and
//! the consequences. During the watch, workers accept connections in turn, which the scoreboard tells them (`takes_turns`). It
//! continues `Generations`, and returns the state of the canary; it knows nothing of the rollback. The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::{Row, Work};
use bolide_services::canary::{Answers, Moment, Standard, Verdict, in_words, judge};
use bolide_supervision::log_sink;
use bolide_supervision::sockets::service_manager::Notifier;
use bolide_supervision::text::duration;

use crate::children::Children;
use crate::children::child::{Child, KillReason};
use crate::generations::Generations;
use crate::generations::forming::notice_ms;
use crate::generations::generation::{CanaryWatch, Forming};
use crate::generations::reload::Stage;

/// Interval at which a canary is judged, in milliseconds.
const CHECK_MS: u64 = 1000;
/// Time that the service manager is asked for beyond the canary's time, in milliseconds: the other workers are forked then.
const AFTERWARDS_MS: u64 = 60_000;

/// The state of a canary.
pub enum CanaryProgress {
    /// There is no canary or it has passed: the other workers of the generation may start.
    Passed,
    /// The other workers have to wait.
    Watched,
    /// The generation works worse than the one in service, with the evidence.
    Worse(String),
}

impl Generations {
    /// Advances the canary of the forming generation, if there is one.
    pub fn advance_canary(&mut self, children: &Children, notifier: &Notifier, now_ms: u64) -> CanaryProgress {
        match self.forming().map(|forming| (forming, &forming.watch, forming.canary_ms)) {
            None | Some((_, _, None)) => CanaryProgress::Passed,
            Some((forming, None, Some(length_ms))) => {
                let serving = children.active_workers(forming.generation.number).find(|worker| worker.state.is_serving());
                if let Some(canary) = serving {
                    self.begin_watch(canary, length_ms, children, notifier, now_ms);
                }
                CanaryProgress::Watched
            }
            Some((_, Some(watch), _)) if now_ms < watch.wake_ms() => CanaryProgress::Watched,
            Some((_, Some(_), _)) => self.judge_canary(children, notifier, now_ms),
        }
    }

    fn begin_watch(&mut self, canary: &Child, length_ms: u64, children: &Children, notifier: &Notifier, now_ms: u64) {
        let Some(serving) = self.serving_number() else { return };
        let before = answers_of(serving, children);
        let Some(number) = self.forming_number() else { return };
        self.reload.watch_canary(CanaryWatch {
            began_ms: now_ms,
            until_ms: now_ms.saturating_add(length_ms),
            is_extended: false,
            next_check_ms: now_ms + CHECK_MS,
            before,
            ended_new: Answers::default(),
            ended_old: Answers::default(),
        });
        let length = duration(length_ms);
        let what = format!("{canary} of generation {number} handles requests beside those of generation {serving} for {length}");
        log_sink::line(&format!("canary: {what} (reload-canary)"));
        notifier.status(&what);
        notifier.extend(length_ms.saturating_add(AFTERWARDS_MS));
    }

    fn judge_canary(&mut self, children: &Children, notifier: &Notifier, now_ms: u64) -> CanaryProgress {
        let Some((canary, old)) = self.canary_numbers(children) else { return CanaryProgress::Passed };
        let Some(Forming { generation, watch: Some(watch), .. }) = self.reload.forming_mut() else {
            return CanaryProgress::Passed;
        };
        let number = generation.number;
        watch.next_check_ms = now_ms + CHECK_MS;
        let moment = match (now_ms >= watch.until_ms, watch.is_extended) {
            (false, _) => Moment::Meanwhile,
            (true, false) => Moment::AtEnd,
            (true, true) => Moment::AtLast,
        };
        let took = duration(now_ms.saturating_sub(watch.began_ms));
        let numbers = in_words(canary, &old);
        match judge(canary, &old, moment) {
            Verdict::Worse => return CanaryProgress::Worse(format!("canary: {numbers}")),
            _ if moment == Moment::Meanwhile => return CanaryProgress::Watched,
            Verdict::Doubtful => {
                let length_ms = watch.until_ms.saturating_sub(watch.began_ms);
                (watch.until_ms, watch.is_extended) = (now_ms.saturating_add(length_ms), true);
                let more = duration(length_ms);
                log_sink::line(&format!("canary: {numbers}, in {took}: none succeeded, watching it for {more} more"));
                notifier.extend(length_ms.saturating_add(AFTERWARDS_MS));
                return CanaryProgress::Watched;
            }
            Verdict::AsGood => log_sink::line(&format!("canary: {numbers}, in {took}: generation {number} passes")),
            Verdict::TooFew => {
                log_sink::line(&format!("canary: {numbers}, in {took}: too few to judge, generation {number} passes"));
            }
        }
        self.reload.pass_canary(now_ms + notice_ms(), now_ms);
        notifier.status(&format!("generation {number} passes, starting its other workers"));
        CanaryProgress::Passed
    }

    /// Returns the answers of the canary and those that they are compared with, or `None` if no canary serves.
    fn canary_numbers(&self, children: &Children) -> Option<(Answers, Standard)> {
        let (forming, serving) = (self.forming()?, self.serving.as_ref()?);
        let watch = forming.watch.as_ref()?;
        let since_start = answers_of(serving.number, children).plus(watch.ended_old);
        let canary = answers_of(forming.generation.number, children).plus(watch.ended_new);
        Some((canary, Standard { meanwhile: since_start.since(watch.before), since_start }))
    }

    /// Makes workers accept connections in turn while a canary is watched. Otherwise the kernel would give single connections to
    /// the old workers, because they began to wait first. Turns end with the watch, however it ended.
    pub fn assign_turns(&self, children: &Children) {
        let is_watched = self.reload.stage() == Stage::Canary;
        let workers = children.iter().filter(|child| child.is_request_worker());
        let rows = workers.filter_map(Child::row).filter_map(|row| children.scoreboard().row(row));
        let (in_turn, others): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| row.takes_turns.load(Relaxed) == 1);
        // A worker's CPU has to fetch a row again after a write, so only changes are written.
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

    /// Returns the progress of the canary for `bolide status`.
    pub fn canary_in_words(&self, children: &Children, now_ms: u64) -> Option<String> {
        let (canary, old) = self.canary_numbers(children)?;
        let watch = self.forming()?.watch.as_ref()?;
        let left = duration(watch.until_ms.saturating_sub(now_ms));
        Some(format!("{}; {left} to go", in_words(canary, &old)))
    }

    /// Records the end of a worker that had `in_flight` requests in flight; `works` is the work of its threads. Its answers still
    /// count, and requests that were killed with it count as errors. The death of the canary ends the generation, except for
    /// `harakiri`: a request over its time is one error, with the old code as with the new, and another worker replaces the
    /// canary. Returns the reason for a rollback.
    pub fn note_end(&mut self, worker: &Child, works: impl Iterator<Item = Work>, in_flight: usize, how: &str) -> Option<String> {
        let serving = self.serving_number();
        let Some(Forming { generation, watch: Some(watch), .. }) = self.reload.forming_mut() else { return None };
        let is_harakiri = worker.kill_reason == Some(KillReason::Harakiri);
        let is_lost = worker.state.is_active() || worker.kill_reason.is_some();
        let lost = if is_lost { in_flight.max(usize::from(is_harakiri)) as u64 } else { 0 };
        let answers = sum(works).plus(Answers { requests: lost, errors: lost });
        if worker.generation == generation.number {
            watch.ended_new = watch.ended_new.plus(answers);
            return (is_lost && !is_harakiri).then(|| format!("canary: {worker} {how}"));
        }
        if Some(worker.generation) == serving {
            watch.ended_old = watch.ended_old.plus(answers);
        }
        None
    }
}

/// Returns the number of answers of a generation's live workers since their start.
fn answers_of(generation: u32, children: &Children) -> Answers {
    let workers = children.iter().filter(|child| child.generation == generation);
    let works = workers.filter_map(Child::row).flat_map(|row| children.scoreboard().work(row));
    sum(works)
}

fn sum(works: impl Iterator<Item = Work>) -> Answers {
    works.fold(Answers::default(), |sum, work| sum.plus(Answers { requests: work.requests, errors: work.errors }))
}
