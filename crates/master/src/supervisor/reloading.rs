//! A reload, from the request to the generation that takes over or fails: what each stage (`generations/reload`) means for the
//! rest of the instance. It continues the supervisor. The master runs it.

use bolide_contract::clock::now_ms as clock_ms;
use bolide_contract::message::EXIT_LOAD_FAILED;
use bolide_contract::settings::ReloadOrder;
use bolide_services::reloads::ReloadCause;
use bolide_supervision::processes::memory_watch::MemoryWatch;
use bolide_supervision::processes::process_attributes;
use bolide_supervision::text::{duration, workers_in_words};
use bolide_supervision::{log_sink, system};

use crate::announce;
use crate::children::child::KillReason;
use crate::generations::canary::CanaryProgress;
use crate::generations::forming::kill_before_it_served;
use crate::generations::generation::{Forming, Generation, Reason};
use crate::generations::reload::{Failure, Stage, Until, WaitingReload};
use crate::outcomes::Asker;
use crate::provision::renewing;
use crate::supervisor::Supervisor;
use crate::workers::harakiri::Watch;
use crate::workers::recycling::FollowingChain;
use crate::workers::scaling::Scaling;

/// The beginning of a reason if the application was loaded but its startup failed (`bolide/lifespan.py`).
const LIFESPAN: &str = "the application's lifespan ";

impl Supervisor {
    /// Requests another generation. One that is starting is completed first, unless it takes far longer than the last one, and
    /// one more reload follows it, however many are requested in the meantime. A brutal reload abandons it, and gives the
    /// previous generation no time to finish.
    ///
    /// # Errors
    /// The configuration can't be used; the error is logged too.
    pub(super) fn reload(&mut self, asker: Asker<'_>, is_brutal: bool, now_ms: u64) -> Result<(), String> {
        if self.ending.is_ordered() {
            return Ok(());
        }
        if is_brutal || !self.reload_follows(asker.cause) {
            return self.reload_now(asker, is_brutal, now_ms);
        }
        if self.wait_with_reload(Until::Started, asker, false)
            && let Some(starting) = self.generations.reload.start_in_words(now_ms)
        {
            let by = asker.words;
            log_sink::line(&format!("reload: {starting}: one more reload follows it, requested by {by}"));
            self.notifier.reloading(&format!("{starting}, another reload follows it"));
        }
        Ok(())
    }

    /// Returns whether a reload for this cause would follow the generation that is starting. In development, newer code makes
    /// older code worthless.
    pub(super) fn reload_follows(&self, cause: ReloadCause) -> bool {
        !self.provision.is_developed() && cause != ReloadCause::Change && self.generations.reload.may_follow()
    }

    /// Lets a reload wait. Returns whether none has waited yet.
    fn wait_with_reload(&mut self, until: Until, asker: Asker<'_>, is_brutal: bool) -> bool {
        let (by, cause) = (asker.words.to_owned(), asker.cause);
        self.generations.reload.wait(WaitingReload { until, by, cause, is_brutal })
    }

    /// Begins the reload that was requested while a generation was starting, when that one has ended its start or takes too long.
    fn begin_following_if_due(&mut self, now_ms: u64) {
        let Some(following) = self.generations.reload.take_due(now_ms) else { return };
        self.control.channel.begin_next_wait();
        let asker = Asker { words: &following.by, cause: following.cause };
        // The error is logged already.
        drop(self.reload_now(asker, following.is_brutal, now_ms));
    }

    /// Requests another generation. A forming generation has begun with older code and may hang in it, so it is abandoned.
    pub(super) fn reload_now(&mut self, asker: Asker<'_>, is_brutal: bool, now_ms: u64) -> Result<(), String> {
        let by = asker.words;
        self.outcomes.note_cause(asker.cause);
        // The new master has the sockets and settings of this generation.
        if let Some(pid) = self.takeover.starting_successor() {
            if self.wait_with_reload(Until::UpgradeFailed, asker, is_brutal) {
                log_sink::line(&format!(
                    "reload ({by}): an upgrade is in progress (new master pid {pid}): the reload follows if it fails"
                ));
            }
            return Ok(());
        }
        if self.provision.settings().reloading.exits {
            log_sink::line("reload: the instance exits (exit-on-reload)");
            self.stop(0, now_ms);
            return Ok(());
        }
        self.plan_generation()?;
        self.recycling.drop_following();
        let Some(abandoned) = self.generations.reload.request(is_brutal) else { return Ok(()) };
        let is_first = abandoned.reason == Reason::First;
        self.abandon(&abandoned, Some(&format!("for a new one, requested by {by}")), now_ms);
        if is_first {
            // The first generation does not take over from another.
            self.apply_plan(None);
            if let Err(error) = self.generations.begin(Reason::First, &mut self.children, &self.provision, now_ms) {
                let program = self.provision.program().executable.display().to_string();
                self.end_with(EXIT_LOAD_FAILED, format!("{program} can't be executed: {error}; nothing is served"), now_ms);
            }
        }
        Ok(())
    }

    /// Begins a chain reload. If workers are being replaced, it follows that, because some of them may have older code already.
    ///
    /// # Errors
    /// Why it can't begin; the error is logged too if a generation serves.
    pub(super) fn reload_chain(&mut self, asker: Asker<'_>, now_ms: u64) -> Result<(), String> {
        let by = asker.words;
        if self.ending.is_ordered() {
            return Err("it is being stopped".to_owned());
        }
        if self.generations.serving().is_none() {
            return Err("nothing is served yet".to_owned());
        }
        if self.provision.settings().reloading.exits {
            return self.reload(asker, false, now_ms);
        }
        if self.recycling.has_chain() || self.generations.is_forming() {
            if self.recycling.follow(FollowingChain { by: by.to_owned(), cause: asker.cause }) {
                log_sink::line(&format!(
                    "chain reload ({by}): workers are already being replaced: one more chain reload follows"
                ));
            }
            return Ok(());
        }
        self.end_pause(by, now_ms);
        self.outcomes.note_cause(asker.cause);
        if let Some(serving) = self.generations.serving() {
            self.recycling.begin_chain(serving, by, &mut self.children);
        }
        Ok(())
    }

    /// Begins the chain reload that was requested while workers were being replaced.
    fn begin_following_chain_if_due(&mut self, now_ms: u64) {
        if self.generations.serving().is_none() || self.generations.reload.is_loading() {
            return;
        }
        if let Some(following) = self.recycling.take_following() {
            let asker = Asker { words: &following.by, cause: following.cause };
            // The error is logged already.
            drop(self.reload_chain(asker, now_ms));
        }
    }

    /// Reads the configuration again, for the next generation.
    fn plan_generation(&mut self) -> Result<(), String> {
        match renewing::read_plan(&mut self.configuration, &self.provision, self.outcomes.fresh_warnings()) {
            Ok(plan) => {
                self.provision.plan(plan);
                self.children.widen_scoreboard(&self.provision);
                if let Err(error) = self.provision.prepare_tickets() {
                    log_sink::line(&format!("reload: TLS sessions can't be resumed: {error}"));
                }
                let lines = self.provision.prepare_message_queues();
                for line in lines.unwrap_or_else(|error| vec![format!("no sockets for messages between processes: {error}")]) {
                    log_sink::line(&format!("reload: {line}"));
                }
                if let Err(error) = self.provision.prepare_sessions() {
                    log_sink::line(&format!("reload: workers can't share the owners of sessions (sticky): {error}"));
                }
                if let Err(error) = self.provision.prepare_bulkheads() {
                    log_sink::line(&format!("reload: there is no memory for bulkheads: {error}"));
                }
                if let Err(error) = self.provision.prepare_span_socket() {
                    log_sink::line(&format!("reload: there is no socket for spans: {error}"));
                }
                if let Err(error) = self.alarms.prepare(self.provision.coming_settings()) {
                    log_sink::line(&format!("reload: there is no socket for alarms: {error}"));
                }
                Ok(())
            }
            Err(lines) => {
                for line in &lines {
                    log_sink::line(&format!("reload: {line}"));
                }
                let who = self.generations.serving_in_words();
                log_sink::line(&format!("reload: the configuration can't be used, see above: {who} with its current settings"));
                let why = lines.last().cloned().unwrap_or_default();
                // The service manager that requested this reload waits for its end (`Type=notify-reload`), which is now, or the
                // end of the forming generation's start.
                let words = format!("{why}: {who}");
                match self.generations.forming().map(|forming| forming.reason) {
                    Some(Reason::First) => {}
                    Some(_) => self.notifier.reloading(&words),
                    None => self.notifier.not_reloaded(&words),
                }
                self.outcomes.note_reload(Err(why.clone()), &mut self.control.channel);
                Err(format!("the reload has failed: {why}"))
            }
        }
    }

    /// Makes the plan's settings those of the instance, because its generation serves. Sockets that are no longer configured are
    /// shut down; the generation that listened there serves the connections queued on them before it is ordered to end.
    fn apply_plan(&mut self, served_before: Option<u32>) {
        let Some((mut before, troubles)) = self.provision.adopt_plan() else { return };
        for trouble in troubles {
            log_sink::line(&format!("reload: {trouble}"));
        }
        let (settings, listeners) = (self.provision.settings(), self.provision.listeners());
        self.logs.renew(&settings.logging);
        self.alarms.renew(settings);
        self.watches.renew(&settings.watching, clock_ms());
        self.requests = Watch::for_settings(settings);
        if before.settings.scaling != settings.scaling || before.settings.workers != settings.workers {
            self.scaling = Scaling::new(settings, clock_ms());
        }
        if before.settings.recycling != settings.recycling || before.settings.helpers != settings.helpers {
            self.memory = MemoryWatch::new(&settings.recycling, &settings.helpers);
        }
        if before.settings.naming != settings.naming
            && let Some(name) = process_attributes::name_of_master(&settings.naming)
        {
            process_attributes::set_name(&name);
        }
        for endpoint in listeners.endpoints_beside(&before.listeners) {
            log_sink::line(&format!("listening on {}", endpoint.to_open()));
        }
        for endpoint in before.listeners.endpoints_beside(listeners) {
            log_sink::line(&format!("no longer listening on {}", endpoint.to_open()));
        }
        self.children.hand_over_waiting(before.listeners.end_all_but(listeners), served_before);
        if settings.lifecycle.vacuum {
            before.listeners.remove_files_but(listeners);
        }
        self.children.widen_scoreboard(&self.provision);
    }

    /// Drops the plan of a generation that failed, and closes the sockets that were bound for it.
    pub(super) fn drop_plan(&mut self) {
        self.provision.drop_plan();
        self.children.widen_scoreboard(&self.provision);
    }

    /// Begins a reload if one is requested or needed, and none is in progress.
    pub(super) fn begin_reload_if_due(&mut self, now_ms: u64) {
        self.begin_following_if_due(now_ms);
        self.begin_following_chain_if_due(now_ms);
        if !self.generations.reload.may_begin(now_ms) {
            return;
        }
        let Some(serving) = self.generations.serving_number() else { return self.start_after_stop(now_ms) };
        let orphaned = !self.children.prototype(serving).is_some_and(|prototype| prototype.state.is_active());
        let reason = match self.generations.reload.stage() {
            Stage::Planned => Reason::Ordered,
            _ if orphaned => Reason::PrototypeDied,
            _ => return,
        };
        if let Some(why) = self.stops_first() {
            // A prototype that is still ending is waited for.
            if reason == Reason::Ordered || self.children.prototype(serving).is_none() {
                self.stop_first(serving, why, now_ms);
            }
            return;
        }
        let serves = format!("generation {serving} keeps serving");
        if self.begin(reason, &serves, orphaned, now_ms) {
            let number = self.generations.last_number();
            if !self.provision.is_developed() {
                log_sink::line(&format!("reload: starting generation {number}, {serves}"));
            }
            self.notifier.reloading(&format!("starting generation {number}, generation {serving} continues"));
        }
    }

    /// Starts the prototype of the next generation. Returns whether it was started. `until_then` says what is served; without
    /// `again` no other attempt follows a failure.
    fn begin(&mut self, reason: Reason, until_then: &str, again: bool, now_ms: u64) -> bool {
        self.provision.mend_memories();
        let Err(error) = self.generations.begin(reason, &mut self.children, &self.provision, now_ms) else { return true };
        let pause = duration(self.generations.reload.note_not_begun(now_ms));
        let again = if again { format!("; next attempt in {pause}") } else { String::new() };
        log_sink::line(&format!("reload: {error}: {until_then}{again}"));
        self.notifier.not_reloaded(&format!("{error}: {until_then}"));
        self.note_failed(reason, error.to_string());
        false
    }

    /// `reload-order = stop-first`: the old generation ends before the new one begins, for applications with exclusive resources
    /// (a locked database file, a port of their own). The listening sockets stay open in the meantime, so clients wait and are
    /// not refused. A generation that can't be loaded is tried again, after a pause or at the next SIGHUP, because no other one
    /// could serve.
    fn stop_first(&mut self, serving: u32, why: &str, now_ms: u64) {
        self.apply_plan(Some(serving));
        self.generations.vacate();
        let next = self.generations.last_number() + 1;
        let what = format!("generation {serving} ends first ({why}), clients wait until generation {next} is ready");
        log_sink::line(&format!("reload: {what}"));
        self.notifier.reloading(&what);
        self.children.end_generations(|_| true, false, &self.provision, now_ms);
        self.kill_older_if_brutal(next, now_ms);
    }

    /// Begins the next generation after the one that ended first.
    fn start_after_stop(&mut self, now_ms: u64) {
        if !self.children.is_empty() {
            return;
        }
        // No generation serves with other settings.
        self.apply_plan(None);
        if self.begin(Reason::Ordered, "nothing is served", true, now_ms) {
            log_sink::line(&format!("reload: starting generation {}", self.generations.last_number()));
        }
    }

    /// Lets the forming generation take over when all its request workers serve.
    pub(super) fn complete_if_serving(&mut self, now_ms: u64) {
        self.generations.admit_if_all_passed(&mut self.children);
        let is_held_back = match self.generations.advance_canary(&self.children, &self.notifier, now_ms) {
            CanaryProgress::Passed => false,
            CanaryProgress::Watched => true,
            CanaryProgress::Worse(why) => return self.roll_back(&why, now_ms),
        };
        if let Some(forming) = self.generations.complete(is_held_back, &self.children, now_ms) {
            self.take_over(forming, now_ms);
        }
    }

    fn take_over(&mut self, forming: Forming, now_ms: u64) {
        let number = forming.generation.number;
        let (count, is_lazy) = (forming.generation.wanted_count(), forming.generation.is_lazy);
        let workers = workers_in_words(count);
        let took = now_ms.saturating_sub(forming.began_ms);
        let is_ordered = forming.reason == Reason::Ordered;
        let formed = Generation { formed_in_ms: Some(took), ..forming.generation };
        let old = self.generations.replace_serving(formed);
        self.apply_plan(old);
        self.ending.has_served = true;
        self.outcomes.note_serving(number, forming.reason, &mut self.control.channel);
        log_sink::lines(&self.configuration.take_held());
        match old {
            None if forming.reason == Reason::First => {
                // With `lazy-apps`, workers load the application, and the time of the prototype has no meaning.
                let load_ms = forming.loaded_in_ms.filter(|_| !is_lazy);
                let load = load_ms.map(|time| format!(" (the application was loaded in {time} ms)")).unwrap_or_default();
                self.take_over_instance();
                let (settings, endpoints) = (self.provision.settings(), self.provision.listeners().endpoints());
                let what = announce::What::of(&self.provision, &self.configuration);
                announce::ready(settings, endpoints, count, &format!(" in {took} ms{load}"), what);
                self.ending.notify_parent();
            }
            Some(_) if self.provision.is_developed() => log_sink::line(&format!("reloaded in {}", duration(took))),
            Some(old) => {
                log_sink::line(&format!("ready: {workers} of generation {number} in {took} ms; generation {old} ends"));
            }
            None => log_sink::line(&format!("ready: {workers} of generation {number} in {took} ms")),
        }
        if !self.generations.reload.is_followed() {
            self.notifier.ready(&format!("{workers} of generation {number}"));
            self.emperor.serves();
        }
        if is_ordered {
            // Requests that wait for changed code continue when the old workers have their order to end.
            if !self.development.holds_requests() {
                self.end_pause("the reload is done", now_ms);
            }
            self.attendants.renew(self.provision.settings(), now_ms);
        }
        self.recycling.forget();
        self.children.end_generations(|generation| generation != number, false, &self.provision, now_ms);
        self.kill_older_if_brutal(number, now_ms);
        self.watches.forget_importers_but(&[number]);
        system::give_back_memory();
    }

    /// Kills workers and helpers of older generations after a brutal reload.
    fn kill_older_if_brutal(&mut self, generation: u32, now_ms: u64) {
        if self.generations.reload.take_brutal_flag() {
            for id in self.children.ids(|child| !child.is_prototype() && child.generation < generation) {
                self.condemn(id, KillReason::StopNow, now_ms);
            }
        }
    }

    /// Ends a generation that was forming although it has not failed. Without `why`, another line reports it.
    pub(super) fn abandon(&mut self, forming: &Forming, why: Option<&str>, now_ms: u64) {
        let number = forming.generation.number;
        kill_before_it_served(number, &mut self.children, now_ms);
        if let Some(why) = why {
            log_sink::line(&format!("reload: generation {number}, which is still starting, is abandoned {why}"));
        }
        self.children.end_abandoned(number, forming.reason == Reason::First, &self.provision, now_ms);
    }

    /// Abandons the forming generation after a failure; the serving one continues.
    pub(super) fn give_up_forming(&mut self, why: &str, now_ms: u64) {
        let Some(Failure { forming, pause_ms }) = self.generations.reload.fail(now_ms) else { return };
        let number = forming.generation.number;
        let said = forming.note.read();
        let why = said.as_deref().unwrap_or(why);
        if forming.reason == Reason::First {
            let what = if why.starts_with(LIFESPAN) { "startup failed" } else { "the application could not be loaded" };
            self.end_with(EXIT_LOAD_FAILED, format!("{what}: {why}; nothing is served"), now_ms);
            return;
        }
        let orphaned = self.generations.serving_number().is_none_or(|serving| self.children.prototype(serving).is_none());
        let again = if orphaned { format!("; next attempt in {}", duration(pause_ms)) } else { String::new() };
        let who = self.generations.serving_in_words();
        let is_developed = self.provision.is_developed();
        let what = if is_developed { "the new code".to_owned() } else { format!("generation {number}") };
        let next = if is_developed { "; waiting for the next change" } else { "" };
        log_sink::line(&format!("{what} could not be loaded ({why}): {who}{again}{next}"));
        let why = format!("generation {number} could not be loaded ({why})");
        self.end_failed(&forming, &format!("{why}: {who}"), why, now_ms);
    }

    /// Rolls back a new generation that works worse than the old one: it ends like one that can't be loaded, except that its
    /// canary finishes its requests.
    pub(super) fn roll_back(&mut self, why: &str, now_ms: u64) {
        let Some(Failure { forming, .. }) = self.generations.reload.fail(now_ms) else { return };
        let who = self.generations.serving_in_words();
        let why = format!("{why}: generation {} is rolled back", forming.generation.number);
        log_sink::line(&format!("{why}, {who}"));
        self.end_failed(&forming, &format!("{why}, {who}"), why, now_ms);
    }

    /// Ends a generation that has failed. `words` is for the service manager, `why` for the outcome of an ordered reload.
    fn end_failed(&mut self, forming: &Forming, words: &str, why: String, now_ms: u64) {
        self.notifier.not_reloaded(words);
        self.note_failed(forming.reason, why);
        let number = forming.generation.number;
        self.children.end_generations(|generation| generation == number, false, &self.provision, now_ms);
    }

    /// Records the failure of an ordered reload: the settings of the serving generation stay.
    fn note_failed(&mut self, reason: Reason, why: String) {
        if reason == Reason::Ordered {
            self.drop_plan();
            // The next generation is not brutal because of this request.
            self.generations.reload.take_brutal_flag();
            self.outcomes.note_reload(Err(why), &mut self.control.channel);
        }
    }

    /// Returns why the old generation is to end before the new one begins, if it is.
    pub(super) fn stops_first(&self) -> Option<&'static str> {
        if self.provision.settings().lifecycle.reload_order == ReloadOrder::StopFirst {
            return Some("reload-order");
        }
        self.children.iter().any(|child| child.has_debugger_port).then_some("only one process can have the debugger's port")
    }
}
