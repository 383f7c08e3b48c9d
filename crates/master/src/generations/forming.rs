//! How a generation forms: its prototype starts, its workers pass, serve or fail, and the log reports what it waits for. It
//! continues `Generations`, and returns the state of the generation; it does not know what follows. The master runs it.
//!
//! With `fork-safety = lazy` each worker loads an application that opens resources which workers can't share. The prototype
//! that detects this can't be used any more. It ends, with all processes that the application started, and another prototype of
//! the same generation forks workers. Only the prototype knows which resources can't be shared.

use std::collections::BTreeSet;

use bolide_contract::message::{EXIT_LOAD_FAILED, Order, stack_signal};
use bolide_contract::settings::{ForkSafety, Language, Settings};
use bolide_supervision::error::StartError;
use bolide_supervision::processes::backoff::Backoff;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::text::duration;
use bolide_supervision::{log_sink, system};

use crate::children::child::{Child, KillReason};
use crate::children::{Children, GRACE_MS};
use crate::generations::Generations;
use crate::generations::generation::{Forming, Generation, Reason, first_workers};
use crate::provision::error_report::ErrorReport;
use crate::provision::program::{enter_directory, not_executed};
use crate::provision::{PrototypeStart, Provision};

/// A new generation is abandoned when this many of its workers have failed early.
const MAX_EARLY_FAILURES: u32 = 5;
/// Interval between log lines that a generation is still forming, in milliseconds.
const NOTICE_MS: u64 = 30_000;

/// Returns [`NOTICE_MS`], or the shorter interval of a test.
pub fn notice_ms() -> u64 {
    let shortened = std::env::var("BOLIDE_TEST_NOTICE_MS").ok().and_then(|text| text.parse().ok());
    shortened.unwrap_or(NOTICE_MS)
}

impl Generations {
    /// Starts the prototype of a new generation.
    ///
    /// # Errors
    /// Its directory can't be entered, or its program can't be executed. Nothing has changed then.
    pub fn begin(&mut self, reason: Reason, children: &mut Children, provision: &Provision, now: u64) -> Result<(), StartError> {
        let number = self.last_number + 1;
        let settings = provision.coming_settings();
        let is_lazy = settings.application.lazy;
        let note = self.start_prototype(number, is_lazy, children, provision)?;
        self.last_number = number;
        // A reload under load begins with the present number of workers; a reload while no worker serves begins with none.
        let before = self.serving.as_ref().map(Generation::wanted_count);
        let wanted = first_workers(settings, before);
        let worker_slots = vec![Backoff::default(); wanted.len()];
        let helper_slots = vec![Backoff::default(); settings.helpers.len()];
        let canary_ms = self.canary_ms(reason, number, settings);
        self.reload.note_begun(Forming {
            generation: Generation {
                number,
                side: self.forming_side(),
                began_ms: now,
                formed_in_ms: None,
                worker_slots,
                wanted,
                helper_slots,
                begun: BTreeSet::new(),
                served: false,
                load_timeout_ms: settings.lifecycle.load_timeout_ms,
                is_lazy,
            },
            reason,
            canary_ms,
            watch: None,
            began_ms: now,
            timeout_since_ms: now,
            loaded_in_ms: None,
            note,
            early_failures: 0,
            notice_ms: now + notice_ms(),
            unshared_id: None,
        });
        Ok(())
    }

    /// Returns how long the canary of a generation is to serve, if one is configured and there is a generation to compare it
    /// with.
    fn canary_ms(&self, reason: Reason, number: u32, settings: &Settings) -> Option<u64> {
        let length_ms = settings.reloading.canary_ms.filter(|_| reason == Reason::Ordered)?;
        // Without a serving generation there is none to roll back to, for example in a reload with `reload-order = stop-first`.
        let serving = self.serving.as_ref()?;
        if serving.is_empty() {
            let old = serving.number;
            log_sink::line(&format!(
                "canary skipped: no worker of generation {old} is running (cheap) to compare generation {number} with"
            ));
            return None;
        }
        Some(length_ms)
    }

    /// Executes the prototype of a generation in the directory of its settings. With `is_lazy`, its workers load the application.
    ///
    /// # Errors
    /// See [`Generations::begin`].
    pub fn start_prototype(
        &self,
        number: u32,
        is_lazy: bool,
        children: &mut Children,
        provision: &Provision,
    ) -> Result<ErrorReport, StartError> {
        enter_directory(provision.coming_settings())?;
        let start = PrototypeStart {
            generation: number,
            side: self.forming_side(),
            is_lazy,
            no_generation_serves: self.serving.is_none(),
        };
        let executed = provision.execute_prototype(start);
        let executed = executed.map_err(|error| not_executed(provision.program(), &error))?;
        Ok(children.add_prototype(number, executed))
    }

    /// The side of a forming generation is the one that the serving generation does not have.
    fn forming_side(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| !serving.side)
    }

    /// Returns `load-timeout` if the forming generation has exceeded it.
    pub fn late_after_ms(&self, now_ms: u64) -> Option<u64> {
        let forming = self.forming().filter(|forming| forming.late_ms().is_some_and(|late_ms| now_ms >= late_ms))?;
        forming.generation.load_timeout_ms
    }

    /// Returns the forming generation when all its request workers serve, so that it takes over. `is_held_back`: its canary is
    /// watched.
    pub fn complete(&mut self, is_held_back: bool, children: &Children, now_ms: u64) -> Option<Forming> {
        let forming = self.reload.forming_mut().filter(|forming| forming.watch.is_none())?;
        let number = forming.generation.number;
        let mut serving = vec![false; forming.generation.worker_slots.len()];
        for worker in children.active_workers(number).filter(|worker| worker.state.is_serving()) {
            if let Some(serves) = worker.worker_number().and_then(|number| serving.get_mut(number as usize - 1)) {
                *serves = true;
            }
        }
        let wanted = &forming.generation.wanted;
        // If no worker is wanted yet, the application must be loaded at least.
        let is_loaded = forming.loaded_in_ms.is_some() || !forming.generation.is_empty();
        if !is_held_back && is_loaded && serving.iter().zip(wanted).all(|(serves, wanted)| *serves || !*wanted) {
            return self.reload.complete(now_ms);
        }
        if now_ms >= forming.notice_ms {
            forming.notice_ms = now_ms + notice_ms();
            let is_loaded = forming.loaded_in_ms.is_some();
            let what = if is_loaded { "not all of its workers are ready yet" } else { "it is still loading the application" };
            log_sink::line(&format!("generation {number} was started {} ago, {what}", duration(now_ms - forming.began_ms)));
            log_stacks_of_late_workers(number, children);
        }
        None
    }

    /// With `reload-probe`: admits the workers of the forming generation once all wanted workers have passed the probe. One late
    /// worker delays the other workers; if one fails, none of them has served code that does not work everywhere.
    pub fn admit_if_all_passed(&self, children: &mut Children) {
        let Some(forming) = self.forming() else { return };
        let mut lacking = forming.wanted_now();
        let mut waiting = Vec::new();
        for worker in children.active_workers(forming.generation.number) {
            let has_passed = worker.waits_for_admission || worker.state.is_serving();
            waiting.extend(worker.waits_for_admission.then_some(worker.id));
            if let Some(lacks) = worker.worker_number().and_then(|number| lacking.get_mut(number as usize - 1)) {
                *lacks &= !has_passed;
            }
        }
        if !lacking.contains(&true) {
            for id in waiting {
                children.admit(id);
            }
        }
    }

    /// Records that a worker of the forming generation failed early. Returns the reason if the generation must be abandoned: too
    /// many failures, or the application can't be loaded.
    pub fn note_early_failure(&mut self, cause: &Cause, processes: u32) -> Option<String> {
        let forming = self.reload.forming_mut()?;
        forming.early_failures += 1;
        // A single worker that loads the application itself at startup is like a prototype: its death counts as the
        // application's fault.
        let alone = forming.reason == Reason::First && forming.generation.is_lazy && processes == 1;
        if *cause == Cause::Exited(EXIT_LOAD_FAILED) && !forming.generation.served {
            Some("a worker could not, see above".to_owned())
        } else if alone && !forming.generation.served && matches!(cause, Cause::Signaled { .. } | Cause::Exited(_)) {
            Some(format!("its worker {}", cause.words()))
        } else if forming.reason != Reason::First && forming.early_failures >= MAX_EARLY_FAILURES {
            Some("its workers exit before they are ready".to_owned())
        } else {
            None
        }
    }
}

/// Handles a prototype's report that its application can't be shared. The prototype's end is awaited, because the application may
/// hold resources that only one process at a time can have.
pub fn note_unshared(
    id: u64,
    number: u32,
    generations: &mut Generations,
    children: &mut Children,
    provision: &Provision,
    now_ms: u64,
) {
    let settings = provision.coming_settings();
    // The adapter of a plugin reports it of a language that can't be forked.
    let is_plugin = matches!(settings.language, Language::Plugin(_));
    let is_asked_for = is_plugin || settings.application.fork_safety == ForkSafety::Lazy;
    // A generation that was abandoned in the meantime ends anyway.
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
    let Some(forming) = generations.reload.forming_mut().filter(|forming| forming.unshared_id == Some(ended)) else {
        return Ok(false);
    };
    forming.unshared_id = None;
    // The application is loaded once more, and `load-timeout` limits each attempt.
    forming.timeout_since_ms = now_ms;
    forming.notice_ms = now_ms + notice_ms();
    let number = forming.generation.number;
    let note = generations.start_prototype(number, true, children, provision)?;
    if let Some(forming) = generations.reload.forming_mut() {
        forming.note = note;
    }
    Ok(true)
}

/// Kills a generation of which no worker has served, with the processes that its application started: it has no requests to
/// finish, and may not read orders.
pub fn kill_before_it_served(number: u32, children: &mut Children, now_ms: u64) {
    let prototype = children.prototype(number).filter(|prototype| !prototype.has_served);
    if let Some(id) = prototype.map(|prototype| prototype.id) {
        children.kill_group(id, KillReason::GivenUp, now_ms);
    }
}

/// Logs the workers of a generation that were forked but do not serve yet, with the stacks that show what they wait for.
fn log_stacks_of_late_workers(number: u32, children: &Children) {
    let is_late = |worker: &&Child| !worker.state.is_serving() && !worker.waits_for_admission;
    for worker in children.active_workers(number).filter(is_late) {
        let Some(pid) = worker.pid else { continue };
        log_sink::line(&format!("{worker} is not ready yet; its stack:"));
        // A worker that is just exiting has no stack to write.
        let _ = system::signal_thread(pid, pid.as_raw().cast_unsigned(), stack_signal());
    }
}
