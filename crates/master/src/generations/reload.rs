//! Generations: how the first one forms, how a new one takes over from an old one, and what happens when it can't.
//! It starts no process and reads no report itself: `fleet` and `supervisor` do. The master runs it.
//!
//! A reload is ordered by SIGHUP, and happens by itself when the prototype of the serving generation has died: its workers
//! serve on, but nobody could fork their replacements. An ordered one reads the configuration again (`renewing`).

use bolide_contract::children::ChildKind;
use bolide_contract::message::{EXIT_LOAD_FAILED, Order, stack_signal};
use bolide_contract::settings::ReloadOrder;
use bolide_supervision::error::StartError;
use bolide_supervision::files::pidfile;
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::backoff::Backoff;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::system;
use bolide_supervision::text::{duration, workers_in_words};

use crate::announce;
use crate::children::child::{Child, KillReason, Role, State};
use crate::children::elasticity;
use crate::children::fleet::ForkError;
use crate::generations::error_report::ErrorReport;
use crate::generations::generation::{Forming, FormingStage, Generation, Reason};
use crate::generations::interpreter::{enter_folder, not_executed};
use crate::supervisor::{GRACE_MS, Supervisor};

/// A new generation is given up when this many of its workers have died at birth.
const DEATHS_MOST: u32 = 5;
/// How a reason begins where the application was loaded, and did not start (`bolide/lifespan.py`).
const LIFESPAN: &str = "the application's lifespan ";
/// Pause before an order to fork that could not be sent is sent again, in milliseconds.
pub const FORK_RETRY_MS: u64 = 20;
/// Time between two lines that a generation still forms, in milliseconds.
const NOTICE_MS: u64 = 30_000;
/// The rest of the mercy of an old generation's workers when a new one needs their rows of the scoreboard, in milliseconds.
const HURRY_MS: u64 = 2_000;

/// [`NOTICE_MS`]; tests can't wait for that long.
pub fn notice_ms() -> u64 {
    let shortened = std::env::var("BOLIDE_TEST_NOTICE_MS").ok().and_then(|text| text.parse().ok());
    shortened.unwrap_or(NOTICE_MS)
}

impl Supervisor {
    /// Starts the prototype of a new generation.
    ///
    /// # Errors
    /// Its folder can't be entered, or its program not executed. Nothing has changed then.
    pub(crate) fn begin_generation(&mut self, reason: Reason, now_ms: u64) -> Result<(), StartError> {
        let number = self.last_generation + 1;
        let is_lazy = self.fleet.coming_settings().python.lazy;
        let note = self.start_prototype(number, is_lazy)?;
        self.last_generation = number;
        // A reload under load begins with as many workers as serve, and one while none serves with none.
        let before = self.serving.as_ref().map(Generation::wanted_count);
        let wanted = elasticity::first_workers(self.fleet.coming_settings(), before);
        let worker_slots = vec![Backoff::default(); wanted.len()];
        let helper_slots = vec![Backoff::default(); self.fleet.coming_settings().helpers.len()];
        let stage = self.first_stage(reason, number);
        self.forming = Some(Forming {
            generation: Generation { number, worker_slots, wanted, helper_slots, served: false, is_lazy },
            reason,
            stage,
            began_ms: now_ms,
            patient_since_ms: now_ms,
            loaded_in_ms: None,
            note,
            deaths_at_birth: 0,
            notice_ms: now_ms + notice_ms(),
            unshared: None,
        });
        Ok(())
    }

    /// Executes the prototype of a generation, in the folder of its settings.
    ///
    /// # Errors
    /// As [`Supervisor::begin_generation`].
    pub(crate) fn start_prototype(&mut self, number: u32, is_lazy: bool) -> Result<ErrorReport, StartError> {
        enter_folder(self.fleet.coming_settings())?;
        let serves_nobody = self.serving.is_none();
        let started = self.fleet.start_prototype(number, is_lazy, serves_nobody);
        started.map_err(|error| not_executed(self.fleet.program(), &error))
    }

    /// Another generation is wanted. One that still forms has begun with older code, and may hang in it: it is given up. `by` says who asked.
    /// A brutal one leaves the generation before it no time when it takes over.
    ///
    /// # Errors
    /// The configuration can't be used; the log says so too.
    pub(crate) fn reload(&mut self, by: &str, is_brutal: bool, now_ms: u64) -> Result<(), String> {
        if self.is_stopping() || self.puts_off_reload(by, is_brutal) {
            return Ok(());
        }
        if self.fleet.settings.reloading.exits {
            log_sink::line("reload: the instance ends (exit-on-reload)");
            self.stop(now_ms);
            return Ok(());
        }
        self.plan_generation()?;
        self.reload_wanted = true;
        self.reload_is_brutal |= is_brutal;
        let Some(reason) = self.forming.as_ref().map(|forming| forming.reason) else { return Ok(()) };
        self.abandon_forming(&format!("for a new one that {by} asks for"), now_ms);
        if reason == Reason::First {
            // A first generation has nobody to take over from.
            self.reload_wanted = false;
            self.put_plan_in_force(None);
            if let Err(error) = self.begin_generation(Reason::First, now_ms) {
                let program = self.fleet.program().executable.display().to_string();
                self.end_with(EXIT_LOAD_FAILED, format!("{program} can't be executed: {error}; nothing is served"), now_ms);
            }
        }
        Ok(())
    }

    /// `load-timeout`: gives up a generation that does not serve in time, and single workers that don't.
    pub(crate) fn kill_late_starters(&mut self, now_ms: u64) {
        if let Some(forming) = &self.forming
            && !matches!(forming.stage, FormingStage::Canary(_))
            && let Some(timeout_ms) = self.load_timeout_ms(forming.generation.number)
            && now_ms >= forming.patient_since_ms.saturating_add(timeout_ms)
        {
            let most = duration(timeout_ms);
            let (is_first, why) = (forming.reason == Reason::First, format!("it did not serve within {most} (load-timeout)"));
            if is_first {
                let words = format!("the application could not be loaded: {why}; nothing is served");
                self.abandon_forming("because of load-timeout", now_ms);
                return self.end_with(EXIT_LOAD_FAILED, words, now_ms);
            }
            self.kill_before_it_served(now_ms);
            self.give_up_forming(&why, now_ms);
        }
        let is_late = |child: &Child| child.late_ms(self.load_timeout_ms(child.generation)).is_some_and(|time| now_ms >= time);
        for id in self.fleet.ids(|child| !child.is_prototype() && is_late(child)) {
            self.kill_and_log(id, KillReason::Late, now_ms);
        }
    }

    /// The time that a worker or a prototype of this generation may take until it is ready: a generation that forms has the limit that it
    /// brings.
    pub(crate) fn load_timeout_ms(&self, generation: u32) -> Option<u64> {
        let forms = self.forming.as_ref().is_some_and(|forming| forming.generation.number == generation);
        let settings = if forms { self.fleet.coming_settings() } else { &self.fleet.settings };
        settings.lifecycle.load_timeout_ms
    }

    /// Ends the forming generation although it has not failed.
    fn abandon_forming(&mut self, why: &str, now_ms: u64) {
        self.kill_before_it_served(now_ms);
        let Some(forming) = self.forming.take() else { return };
        let number = forming.generation.number;
        log_sink::line(&format!("reload: generation {number}, which is still being started, is given up {why}"));
        self.end_generations(|generation| generation == number, now_ms);
    }

    /// A generation of which nothing has served has nothing to finish, and may take no order: it is killed, and what its application
    /// has started with it.
    fn kill_before_it_served(&mut self, now_ms: u64) {
        let Some(number) = self.forming.as_ref().map(|forming| forming.generation.number) else { return };
        let unproven = self.fleet.prototype(number).filter(|prototype| !prototype.has_served);
        if let Some(id) = unproven.map(|prototype| prototype.id) {
            self.fleet.kill_group(id, KillReason::GivenUp, now_ms);
        }
    }

    /// Begins a reload if one is asked for, or needed, and none goes on.
    pub(crate) fn begin_reload_if_due(&mut self, now_ms: u64) {
        if self.fleet.settings.lifecycle.reload_order == ReloadOrder::StopFirst {
            return self.stop_first_if_due(now_ms);
        }
        let Some(serving) = self.serving.as_ref().map(|generation| generation.number) else { return };
        if self.forming.is_some() || !(self.reload_wanted || self.prototype_backoff.over(now_ms)) {
            return;
        }
        let orphaned = !self.fleet.prototype(serving).is_some_and(|prototype| prototype.state.is_active());
        let reason = match (self.reload_wanted, orphaned) {
            (true, _) => Reason::Ordered,
            (false, true) => Reason::PrototypeDied,
            (false, false) => return,
        };
        self.reload_wanted = false;
        match self.begin_generation(reason, now_ms) {
            Ok(()) => {
                let number = self.last_generation;
                if !self.is_developed() {
                    log_sink::line(&format!("reload: generation {number} is started, generation {serving} goes on serving"));
                }
                self.notifier.reloading(&format!("generation {number} is started, generation {serving} serves"));
            }
            Err(error) => {
                let pause = self.prototype_backoff.failed_early(now_ms);
                let again = if orphaned { format!("; the next try is in {}", duration(pause)) } else { String::new() };
                log_sink::line(&format!("reload: {error}: generation {serving} goes on serving{again}"));
                self.notifier.not_reloaded(&format!("{error}: generation {serving} goes on serving"));
                self.fail_reload(reason, error.to_string());
            }
        }
    }

    /// Orders the workers that a generation lacks.
    pub(crate) fn start_missing_workers(&mut self, generation: u32, now_ms: u64) {
        let is_it = |forming: &Forming| forming.generation.number == generation && forming.reason == Reason::Ordered;
        let is_on_trial = self.forming.as_ref().is_some_and(is_it);
        let forming = self.forming.as_ref().filter(|forming| forming.generation.number == generation);
        let wanted_now = forming.map(Forming::wanted_now);
        let Some(wanted_now) = wanted_now.or_else(|| Some(self.generation_mut(generation)?.wanted.clone())) else { return };
        let mut wanted: Vec<usize> = wanted_now.into_iter().map(usize::from).collect();
        let recycling = self.recycling.and_then(|id| self.fleet.find(id)).filter(|worker| worker.state == State::Worn);
        if let Some(missing) =
            recycling.and_then(|worker| worker.worker_number()).and_then(|number| wanted.get_mut(number as usize - 1))
        {
            *missing += usize::from(recycling.is_some_and(|worker| worker.generation == generation));
        }
        for worker in self.fleet.active_workers(generation) {
            if let Some(missing) = worker.worker_number().and_then(|number| wanted.get_mut(number as usize - 1)) {
                *missing = missing.saturating_sub(1);
            }
        }
        for (number, lacking) in (1u32..).zip(wanted) {
            if lacking == 0
                || !self.generation_mut(generation).is_some_and(|found| found.worker_slots[number as usize - 1].over(now_ms))
            {
                continue;
            }
            match self.fleet.fork(generation, ChildKind::RequestWorker, number, is_on_trial) {
                Ok(()) => {}
                // The lack passes: a prototype is started for a generation that has none.
                Err(ForkError::NoPrototype) => return,
                Err(ForkError::NoRow) => return self.hurry_oldest_generation(generation, now_ms),
                Err(ForkError::Failed(error)) => {
                    let Some(found) = self.generation_mut(generation) else { return };
                    let slot = &mut found.worker_slots[number as usize - 1];
                    // A full socket is the ordinary end of a burst of orders.
                    if error.kind() == std::io::ErrorKind::WouldBlock {
                        return slot.hold(now_ms + FORK_RETRY_MS);
                    }
                    let pause = duration(slot.failed_early(now_ms));
                    return log_sink::line(&format!("worker {number} can't be ordered: {error}; the next try is in {pause}"));
                }
            }
        }
    }

    /// Every row of the scoreboard is taken by workers that still end: the oldest generation among them makes room.
    fn hurry_oldest_generation(&mut self, newer: u32, now_ms: u64) {
        let ending = |child: &Child| child.is_request_worker() && child.state == State::Ending && child.generation < newer;
        let Some(oldest) = self.fleet.children.iter().filter(|child| ending(child)).map(|child| child.generation).min() else {
            return;
        };
        let mut hurried = 0;
        for worker in self.fleet.children.iter_mut().filter(|child| ending(child) && child.generation == oldest) {
            hurried += u32::from(worker.hurry(now_ms + HURRY_MS, KillReason::InTheWay));
        }
        if hurried > 0 {
            let (workers, most) = (workers_in_words(hurried), duration(HURRY_MS));
            log_sink::line(&format!(
                "reload: generation {newer} has no place left: {workers} of generation {oldest}, still finishing, must end within {most}"
            ));
        }
    }

    /// Lets the forming generation take over when all its request workers serve.
    pub(crate) fn complete_if_serving(&mut self, now_ms: u64) {
        self.admit_if_all_passed();
        let is_held_back = self.advance_canary(now_ms);
        let Some(forming) = &mut self.forming else { return };
        let number = forming.generation.number;
        let mut serving = vec![false; forming.generation.worker_slots.len()];
        for worker in self.fleet.active_workers(number).filter(|worker| worker.state.is_serving()) {
            if let Some(serves) = worker.worker_number().and_then(|number| serving.get_mut(number as usize - 1)) {
                *serves = true;
            }
        }
        let wanted = &forming.generation.wanted;
        // Where no worker is wanted yet, the application must be loaded at least.
        let is_loaded = forming.loaded_in_ms.is_some() || !forming.generation.is_empty();
        if matches!(forming.stage, FormingStage::Canary(_)) {
            return;
        }
        if is_held_back || !is_loaded || serving.iter().zip(wanted).any(|(serves, wanted)| *wanted && !serves) {
            if now_ms >= forming.notice_ms {
                forming.notice_ms = now_ms + notice_ms();
                let what = if forming.loaded_in_ms.is_some() {
                    "its workers do not all serve yet"
                } else {
                    "it still loads the application"
                };
                log_sink::line(&format!("generation {number} was started {} ago, {what}", duration(now_ms - forming.began_ms)));
                self.tell_who_does_not_serve(number);
            }
            return;
        }
        let Some(forming) = self.forming.take() else { return };
        self.prototype_backoff.lived();
        self.take_over(forming, now_ms);
    }

    /// With `reload-probe`: the workers of the forming generation serve when each that there should be has passed. One that is late holds up
    /// the others, and one that fails has kept them from serving what does not work everywhere.
    fn admit_if_all_passed(&mut self) {
        let Some(forming) = &self.forming else { return };
        let mut lacking = forming.wanted_now();
        let mut waiting = Vec::new();
        for worker in self.fleet.active_workers(forming.generation.number) {
            let has_passed = worker.waits_for_admission || worker.state.is_serving();
            waiting.extend(worker.waits_for_admission.then_some(worker.id));
            if let Some(lacks) = worker.worker_number().and_then(|number| lacking.get_mut(number as usize - 1)) {
                *lacks &= !has_passed;
            }
        }
        if !lacking.contains(&true) {
            for id in waiting {
                self.fleet.admit(id);
            }
        }
    }

    /// Workers of a generation that were forked and do not serve yet, with the stacks that say what they wait for.
    fn tell_who_does_not_serve(&self, number: u32) {
        let is_late = |worker: &&Child| !worker.state.is_serving() && !worker.waits_for_admission;
        for worker in self.fleet.active_workers(number).filter(is_late) {
            let Some(pid) = worker.pid else { continue };
            log_sink::line(&format!("{worker} does not serve yet; its Python stack:"));
            // A worker that ends at this moment has no stack to write.
            let _ = system::signal_thread(pid, pid.as_raw().cast_unsigned(), stack_signal());
        }
    }

    fn take_over(&mut self, forming: Forming, now_ms: u64) {
        let number = forming.generation.number;
        let (count, is_lazy) = (forming.generation.wanted_count(), forming.generation.is_lazy);
        let workers = workers_in_words(count);
        let took = now_ms.saturating_sub(forming.began_ms);
        let old = self.serving.replace(forming.generation).map(|old| old.number);
        self.put_plan_in_force(old);
        self.has_served = true;
        if forming.reason == Reason::Ordered {
            self.note_reload(Ok(number));
        }
        match (old, self.vacated_by.take()) {
            (None, None) => {
                // Where workers load the application themselves, the prototype's time says nothing.
                let load_ms = forming.loaded_in_ms.filter(|_| !is_lazy);
                let load = load_ms.map(|time| format!(" (the application was loaded in {time} ms)")).unwrap_or_default();
                if !self.take_place() {
                    pidfile::write_when_ready(&self.fleet.settings, self.fleet.privileges());
                }
                announce::ready(&self.fleet.settings, self.fleet.listeners.endpoints(), count, &format!(" in {took} ms{load}"));
                if let Some(starter) = self.starter.take() {
                    starter.ready();
                }
            }
            (Some(_), _) if self.is_developed() => self.tell_reloaded(took),
            (Some(old), _) => {
                log_sink::line(&format!("ready: {workers} of generation {number} in {took} ms; generation {old} ends"));
            }
            (None, Some(_)) => {
                log_sink::line(&format!("ready: {workers} of generation {number} in {took} ms"));
            }
        }
        self.notifier.ready(&format!("{workers} of generation {number}"));
        if forming.reason == Reason::Ordered {
            self.end_pause("the reload is done", now_ms);
            self.attendance.renew(&self.fleet.settings, now_ms);
        }
        self.recycling = None;
        self.recycling_queue.clear();
        self.end_generations(|generation| generation != number, now_ms);
        self.kill_before_if_brutal(number, now_ms);
        self.watches.forget_importers_but(&[number]);
    }

    /// A brutal reload leaves the workers and helpers of older generations no time.
    pub(crate) fn kill_before_if_brutal(&mut self, generation: u32, now_ms: u64) {
        if std::mem::take(&mut self.reload_is_brutal) {
            for id in self.fleet.ids(|child| !child.is_prototype() && child.generation < generation) {
                self.kill_and_log(id, KillReason::StopNow, now_ms);
            }
        }
    }

    /// Gives the forming generation up; the serving one goes on.
    pub(crate) fn give_up_forming(&mut self, why: &str, now_ms: u64) {
        let Some(forming) = self.forming.take() else { return };
        let number = forming.generation.number;
        let said = forming.note.read();
        let why = said.as_deref().unwrap_or(why);
        if forming.reason == Reason::First {
            let what = if why.starts_with(LIFESPAN) { "the start failed" } else { "the application could not be loaded" };
            self.end_with(EXIT_LOAD_FAILED, format!("{what}: {why}; nothing is served"), now_ms);
            return;
        }
        let serving = self.serving.as_ref().map_or(0, |generation| generation.number);
        let pause = self.prototype_backoff.failed_early(now_ms);
        let orphaned = self.fleet.prototype(serving).is_none();
        let again = if orphaned { format!("; the next try is in {}", duration(pause)) } else { String::new() };
        let who = self.who_serves();
        let what = if self.is_developed() { "the new code".to_owned() } else { format!("generation {number}") };
        let next = if self.is_developed() { "; the next change is waited for" } else { "" };
        log_sink::line(&format!("{what} could not be loaded ({why}): {who}{again}{next}"));
        self.notifier.not_reloaded(&format!("generation {number} could not be loaded ({why}): {who}"));
        self.fail_reload(forming.reason, format!("generation {number} could not be loaded ({why})"));
        self.end_generations(|generation| generation == number, now_ms);
    }

    /// An ordered reload has failed: the settings are those of the generation that goes on.
    pub(crate) fn fail_reload(&mut self, reason: Reason, why: String) {
        if reason == Reason::Ordered {
            self.drop_plan();
            // What was asked of this one is not asked of the next.
            self.reload_is_brutal = false;
            self.note_reload(Err(why));
        }
    }

    /// A worker of the forming generation died at birth: too often, or for want of an application, and the generation is given up.
    pub(crate) fn note_death_while_forming(&mut self, cause: &Cause, now_ms: u64) {
        let Some(forming) = &mut self.forming else { return };
        forming.deaths_at_birth += 1;
        // The one worker that loads the application itself at the start is like a prototype: its death is taken for the application's fault.
        let settings = &self.fleet.settings;
        let alone = forming.reason == Reason::First && forming.generation.is_lazy && settings.workers.processes == 1;
        if *cause == Cause::Exited(EXIT_LOAD_FAILED) && !forming.generation.served {
            self.give_up_forming("a worker could not, see above", now_ms);
        } else if alone && !forming.generation.served && matches!(cause, Cause::Signalled { .. } | Cause::Exited(_)) {
            self.give_up_forming(&format!("its worker {}", cause.words()), now_ms);
        } else if forming.reason != Reason::First && forming.deaths_at_birth >= DEATHS_MOST {
            self.give_up_forming("its workers die at birth", now_ms);
        }
    }

    /// The first generation's prototype has died after it loaded: its workers go on like those of any generation without one.
    pub(crate) fn promote_first(&mut self) {
        if let Some(forming) = self.forming.take() {
            self.serving = Some(forming.generation);
        }
    }

    /// Ends generations: workers and helpers that are at work finish what they have, the others are killed.
    pub(crate) fn end_generations(&mut self, which: impl Fn(u32) -> bool, now_ms: u64) {
        let mercy_ms = now_ms.saturating_add(self.fleet.settings.lifecycle.reload_mercy_ms);
        let is_developed = self.is_developed();
        let has_successors = self
            .fleet
            .children
            .iter()
            .any(|child| child.is_request_worker() && child.state.is_serving() && !which(child.generation));
        for id in self.fleet.ids(|child| which(child.generation) && child.state.is_active()) {
            let Some((role, state)) = self.fleet.find(id).map(|child| (child.role, child.state)) else { continue };
            match (role, state.is_serving()) {
                (Role::Prototype, true) => self.fleet.order_end(id, Order::Retire, mercy_ms.saturating_add(GRACE_MS)),
                // The prototype may be on its way out, with its reasons half written to the log.
                (Role::Prototype, false) => self.fleet.order_end(id, Order::Retire, now_ms + GRACE_MS),
                (Role::Helper { .. }, true) => self.fleet.order_end(id, Order::Stop, mercy_ms),
                // In development a page that is open must not go on with the code of yesterday.
                (Role::Worker { .. }, true) if is_developed => self.fleet.order_end(id, Order::Stop, mercy_ms),
                (Role::Worker { .. }, true) => self.fleet.order_end(id, Order::Drain { has_successors }, mercy_ms),
                (Role::Worker { .. } | Role::Helper { .. }, false) => self.fleet.kill(id, KillReason::GivenUp, now_ms),
            }
        }
    }

    /// The generation of this number, if it serves or forms.
    pub(crate) fn generation_mut(&mut self, number: u32) -> Option<&mut Generation> {
        let forming = self.forming.as_mut().map(|forming| &mut forming.generation);
        self.serving.as_mut().into_iter().chain(forming).find(|generation| generation.number == number)
    }

    /// The next time at which a generation has to be looked at though nothing happens.
    pub(crate) fn wake_for_generations(&self, now_ms: u64) -> Option<u64> {
        let forming = self.forming.as_ref().map(|forming| &forming.generation);
        let worker_slots = self.serving.iter().chain(forming).flat_map(|generation| &generation.worker_slots);
        let helper_slots = self.serving.iter().flat_map(|generation| &generation.helper_slots);
        let pauses =
            worker_slots.chain(helper_slots).chain([&self.prototype_backoff]).filter_map(|backoff| backoff.wake_ms(now_ms));
        let look = |forming: &Forming| match &forming.stage {
            FormingStage::Canary(watch) => Some(watch.wake_ms()),
            _ => [
                self.load_timeout_ms(forming.generation.number).map(|timeout| forming.patient_since_ms.saturating_add(timeout)),
                Some(forming.notice_ms),
            ]
            .into_iter()
            .flatten()
            .min(),
        };
        pauses.chain(self.forming.as_ref().and_then(look)).min()
    }
}
