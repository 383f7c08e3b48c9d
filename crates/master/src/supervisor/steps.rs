//! Steps that involve several owners: how a generation begins, takes over or is abandoned, and how the instance stops or is
//! handed over to another master. It continues the supervisor; the decisions of each owner are in the owner's file. The master
//! runs it.

use std::os::fd::OwnedFd;

use bolide_contract::clock::now_ms as clock_ms;
use bolide_contract::message::{EXIT_LOAD_FAILED, INTERPRETER_END_MS, Order};
use bolide_contract::succession::Step;
use bolide_scoreboard::InFlight;
use bolide_supervision::error::EXIT_START_FAILED;
use bolide_supervision::files::pidfile;
use bolide_supervision::log_sink;
use bolide_supervision::processes::memory_watch::MemoryWatch;
use bolide_supervision::processes::{exit_report, process_attributes};
use bolide_supervision::sockets::upgrade_pair::PredecessorEvent;
use bolide_supervision::text::{counted, duration, workers_in_words};

use crate::children::GRACE_MS;
use crate::children::child::{Child, KillReason, State};
use crate::control::endpoints::ControlEndpoints;
use crate::generations::canary::CanaryProgress;
use crate::generations::generation::{Forming, Generation, Reason};
use crate::outcomes::{Asker, report_failure};
use crate::provision::renewing;
use crate::supervisor::Supervisor;
use crate::terminal::is_attached;
use crate::workers::harakiri::Watch;
use crate::workers::pausing;
use crate::workers::scaling::Scaling;
use crate::{announce, development};

/// Exit status if the previous master has ended together with its sockets: that of a failed start.
const EXIT_PREDECESSOR_LOST: i32 = EXIT_START_FAILED;
/// The beginning of a reason if the application was loaded but its startup failed (`bolide/lifespan.py`).
const LIFESPAN: &str = "the application's lifespan ";

// Generations.
impl Supervisor {
    /// Requests another generation. A forming generation has begun with older code and may hang in it, so it is abandoned.
    pub(super) fn reload_now(&mut self, asker: Asker<'_>, is_brutal: bool, now_ms: u64) -> Result<(), String> {
        let by = asker.words;
        self.outcomes.note_cause(asker.cause);
        if self.takeover.defers_reload(by, is_brutal) {
            return Ok(());
        }
        if self.provision.settings().reloading.exits {
            log_sink::line("reload: the instance ends (exit-on-reload)");
            self.stop(0, now_ms);
            return Ok(());
        }
        self.plan_generation()?;
        self.generations.request_reload(is_brutal);
        let Some(reason) = self.generations.forming().map(|forming| forming.reason) else { return Ok(()) };
        self.abandon_forming(Some(&format!("for a new one that {by} asks for")), now_ms);
        if reason == Reason::First {
            // There is no generation that the first one takes over from.
            self.generations.clear_request();
            self.apply_plan(None);
            if let Err(error) = self.generations.begin(Reason::First, &mut self.children, &self.provision, now_ms) {
                let program = self.provision.program().executable.display().to_string();
                self.end_with(EXIT_LOAD_FAILED, format!("{program} can't be executed: {error}; nothing is served"), now_ms);
            }
        }
        Ok(())
    }

    /// Begins a chain reload, unless one is in progress.
    ///
    /// # Errors
    /// Why it can't begin; the error is logged too if a generation serves.
    pub(super) fn reload_chain(&mut self, asker: Asker<'_>, now_ms: u64) -> Result<(), String> {
        let by = asker.words;
        if self.ending.is_stopping() || self.generations.serving().is_none() {
            return Err("nothing is served yet".to_owned());
        }
        if self.provision.settings().reloading.exits {
            return self.reload(asker, false, now_ms);
        }
        if self.recycling.has_chain() || self.generations.is_forming() {
            let why = "the workers are already being replaced";
            log_sink::line(&format!("chain reload ({by}): {why}"));
            return Err(why.to_owned());
        }
        self.end_pause(by, now_ms);
        self.outcomes.note_cause(asker.cause);
        if let Some(serving) = self.generations.serving() {
            self.recycling.begin_chain(serving, by, &mut self.children);
        }
        Ok(())
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
                for line in lines.unwrap_or_else(|error| vec![format!("a mule has no queue of messages: {error}")]) {
                    log_sink::line(&format!("reload: {line}"));
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
                match self.generations.forming() {
                    _ if !self.generations.has_served() => {}
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
            log_sink::line(&format!("listening at {}", endpoint.to_open()));
        }
        for endpoint in before.listeners.endpoints_beside(listeners) {
            log_sink::line(&format!("no longer listening at {}", endpoint.to_open()));
        }
        self.children.hand_over_waiting(before.listeners.end_all_but(listeners), served_before);
        if settings.lifecycle.vacuum {
            before.listeners.remove_files_but(listeners);
        }
        self.children.widen_scoreboard(&self.provision);
    }

    /// Drops the plan of a generation that failed, and closes the sockets that were bound for it.
    fn drop_plan(&mut self) {
        self.provision.drop_plan();
        self.children.widen_scoreboard(&self.provision);
    }

    /// Begins a reload if one is requested or needed, and none is in progress.
    pub(super) fn begin_reload_if_due(&mut self, now_ms: u64) {
        self.begin_following_if_due(now_ms);
        if !self.generations.is_due(now_ms) {
            return;
        }
        if self.generations.is_vacated() && self.generations.serving().is_none() {
            return self.start_after_stop(now_ms);
        }
        if let Some(why) = self.stops_first() {
            return self.stop_first(why, now_ms);
        }
        let Some(serving) = self.generations.serving_number() else { return };
        let orphaned = !self.children.prototype(serving).is_some_and(|prototype| prototype.state.is_active());
        let reason = match (self.generations.reload_is_requested(), orphaned) {
            (true, _) => Reason::Ordered,
            (false, true) => Reason::PrototypeDied,
            (false, false) => return,
        };
        self.generations.clear_request();
        self.provision.mend_memories();
        match self.generations.begin(reason, &mut self.children, &self.provision, now_ms) {
            Ok(()) => {
                let number = self.generations.last_number();
                if !self.provision.is_developed() {
                    log_sink::line(&format!("reload: starting generation {number}, generation {serving} keeps serving"));
                }
                self.notifier.reloading(&format!("starting generation {number}, generation {serving} serves"));
            }
            Err(error) => {
                let pause = self.generations.note_failure(now_ms);
                let again = if orphaned { format!("; next attempt in {}", duration(pause)) } else { String::new() };
                log_sink::line(&format!("reload: {error}: generation {serving} keeps serving{again}"));
                self.notifier.not_reloaded(&format!("{error}: generation {serving} keeps serving"));
                self.fail_reload(reason, error.to_string());
            }
        }
    }

    /// `reload-order = stop-first`: the old generation ends before the new one begins, for applications with exclusive resources
    /// (a locked database file, a port of their own). The listening sockets stay open meanwhile, so clients wait and are not
    /// refused. A generation that can't be loaded is tried again, after a pause or at the next SIGHUP, because no other one could
    /// serve.
    fn stop_first(&mut self, why: &str, now_ms: u64) {
        let Some(serving) = self.generations.serving_number() else { return };
        if !self.generations.reload_is_requested() && self.children.prototype(serving).is_some() {
            return;
        }
        self.generations.clear_request();
        self.apply_plan(Some(serving));
        self.generations.vacate();
        let next = self.generations.last_number() + 1;
        let what = format!("generation {serving} ends first ({why}), clients wait until generation {next} serves");
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
        self.generations.clear_request();
        // No generation serves with other settings.
        self.apply_plan(None);
        self.provision.mend_memories();
        match self.generations.begin(Reason::Ordered, &mut self.children, &self.provision, now_ms) {
            Ok(()) => log_sink::line(&format!("reload: starting generation {}", self.generations.last_number())),
            Err(error) => {
                let pause = self.generations.note_failure(now_ms);
                log_sink::line(&format!("reload: {error}: nothing is served; next attempt in {}", duration(pause)));
                self.notifier.not_reloaded(&format!("{error}: nothing is served"));
                self.fail_reload(Reason::Ordered, error.to_string());
            }
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
        let (old, vacated_by) = self.generations.replace_serving(formed);
        self.apply_plan(old);
        self.ending.has_served = true;
        self.outcomes.note_serving(number, forming.reason, &mut self.control.channel);
        match (old, vacated_by) {
            (None, None) => {
                // With `lazy-apps`, workers load the application, and the time of the prototype has no meaning.
                let load_ms = forming.loaded_in_ms.filter(|_| !is_lazy);
                let load = load_ms.map(|time| format!(" (the application was loaded in {time} ms)")).unwrap_or_default();
                self.take_over_instance();
                let (settings, endpoints) = (self.provision.settings(), self.provision.listeners().endpoints());
                let what = announce::What::of(&self.provision, &self.configuration);
                announce::ready(settings, endpoints, count, &format!(" in {took} ms{load}"), what);
                self.ending.notify_parent();
            }
            (Some(_), _) if self.provision.is_developed() => log_sink::line(&format!("reloaded in {}", duration(took))),
            (Some(old), _) => {
                log_sink::line(&format!("ready: {workers} of generation {number} in {took} ms; generation {old} ends"));
            }
            (None, Some(_)) => {
                log_sink::line(&format!("ready: {workers} of generation {number} in {took} ms"));
            }
        }
        if !self.generations.has_following() {
            self.notifier.ready(&format!("{workers} of generation {number}"));
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
    }

    /// Kills workers and helpers of older generations after a brutal reload.
    fn kill_older_if_brutal(&mut self, generation: u32, now_ms: u64) {
        if self.generations.take_brutal_flag() {
            for id in self.children.ids(|child| !child.is_prototype() && child.generation < generation) {
                self.condemn(id, KillReason::StopNow, now_ms);
            }
        }
    }

    /// `load-timeout`: abandons a generation that does not serve in time, and kills single workers that do not.
    pub(super) fn kill_late_starters(&mut self, now_ms: u64) {
        if let Some(timeout_ms) = self.generations.late_after_ms(&self.provision, now_ms) {
            let why = format!("it did not serve within {} (load-timeout)", duration(timeout_ms));
            if self.generations.forming().is_some_and(|forming| forming.reason == Reason::First) {
                let words = format!("the application could not be loaded: {why}; nothing is served");
                self.abandon_forming(None, now_ms);
                return self.end_with(EXIT_LOAD_FAILED, words, now_ms);
            }
            self.generations.kill_before_it_served(&mut self.children, now_ms);
            self.give_up_forming(&why, now_ms);
        }
        let timeout_ms = |child: &Child| self.generations.load_timeout_ms(child.generation, &self.provision);
        let is_late = |child: &Child| child.late_ms(timeout_ms(child)).is_some_and(|time| now_ms >= time);
        for id in self.children.ids(|child| !child.is_prototype() && is_late(child)) {
            self.children.kill_and_log(id, KillReason::Late, &self.provision, now_ms);
        }
    }

    /// Ends the forming generation although it has not failed. Without `why`, another line says so.
    fn abandon_forming(&mut self, why: Option<&str>, now_ms: u64) {
        self.generations.kill_before_it_served(&mut self.children, now_ms);
        let Some(forming) = self.generations.take_forming() else { return };
        let number = forming.generation.number;
        if let Some(why) = why {
            log_sink::line(&format!("reload: generation {number}, which is still starting, is abandoned {why}"));
        }
        self.children.end_abandoned(number, forming.reason == Reason::First, &self.provision, now_ms);
    }

    /// Abandons the forming generation after a failure; the serving one continues.
    pub(super) fn give_up_forming(&mut self, why: &str, now_ms: u64) {
        let Some(forming) = self.generations.take_forming() else { return };
        let number = forming.generation.number;
        let said = forming.note.read();
        let why = said.as_deref().unwrap_or(why);
        if forming.reason == Reason::First {
            let what = if why.starts_with(LIFESPAN) { "the start failed" } else { "the application could not be loaded" };
            self.end_with(EXIT_LOAD_FAILED, format!("{what}: {why}; nothing is served"), now_ms);
            return;
        }
        let pause = self.generations.note_failure(now_ms);
        let orphaned = self.generations.serving_number().is_none_or(|serving| self.children.prototype(serving).is_none());
        let again = if orphaned { format!("; next attempt in {}", duration(pause)) } else { String::new() };
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
        let Some(forming) = self.generations.take_forming() else { return };
        let who = self.generations.serving_in_words();
        let why = format!("{why}: generation {} is rolled back", forming.generation.number);
        log_sink::line(&format!("{why}, {who}"));
        self.generations.note_failure(now_ms);
        self.end_failed(&forming, &format!("{why}, {who}"), why, now_ms);
    }

    /// Ends a generation that has failed. `words` is for the service manager, `why` for the outcome of an ordered reload.
    fn end_failed(&mut self, forming: &Forming, words: &str, why: String, now_ms: u64) {
        self.notifier.not_reloaded(words);
        self.fail_reload(forming.reason, why);
        let number = forming.generation.number;
        self.children.end_generations(|generation| generation == number, false, &self.provision, now_ms);
    }

    /// Records the failure of an ordered reload: the settings of the serving generation stay.
    fn fail_reload(&mut self, reason: Reason, why: String) {
        if reason == Reason::Ordered {
            self.drop_plan();
            // The next generation is not brutal because of this request.
            self.generations.take_brutal_flag();
            self.outcomes.note_reload(Err(why), &mut self.control.channel);
        }
    }

    /// Ends a pause. Returns whether there was one.
    pub(super) fn end_pause(&mut self, by: &str, now_ms: u64) -> bool {
        let serving = self.generations.serving();
        pausing::resume(by, &mut self.children, &mut self.scaling, serving, &self.notifier, now_ms)
    }
}

// The end of the instance, and its handover to another master.
impl Supervisor {
    /// SIGTERM, SIGINT: the first requests a graceful stop with this status, the second an immediate one.
    pub(super) fn stop(&mut self, status: i32, now_ms: u64) {
        if self.ending.is_stopping() {
            let progress = self.ending.progress;
            if self.takeover.has_handed_over() && progress.is_none() {
                // A stop of all processes of the service includes this one, which is ending already: requests keep their time.
                self.ending.order(now_ms);
                return self.attendants.stop(self.provision.settings(), now_ms);
            }
            if progress.is_none_or(|progress| progress.is_new_request(now_ms)) {
                self.stop_now("a second signal", now_ms);
            }
            return;
        }
        self.ending.order(now_ms);
        let mercy = self.provision.settings().lifecycle.reload_mercy_ms;
        log_sink::line(&format!("stop: completing requests in flight, for at most {}", duration(mercy)));
        development::kill_halted(&mut self.children, now_ms);
        let waiting = self.begin_end(status);
        self.children.hand_over_waiting(waiting, self.generations.serving_number());
        let mercy_ms = now_ms.saturating_add(mercy);
        let longest_ms = now_ms.saturating_add(self.provision.longest_mercy_ms());
        for id in self.children.ids(|child| child.state != State::Killed) {
            let Some(child) = self.children.find(id) else { continue };
            let (is_prototype, is_helper, state) = (child.is_prototype(), child.helper_number().is_some(), child.state);
            match (is_prototype, state) {
                (true, State::Ordered | State::Starting) => {
                    // A prototype that loads the application reads no order until it has loaded, so a kill loses nothing.
                    self.children.kill_group(id, KillReason::StopNow, now_ms);
                }
                (true, _) => self.children.order_end(id, Order::Retire, longest_ms.saturating_add(GRACE_MS)),
                // A worker that does not serve yet has nothing to finish, but may be about to begin.
                (false, State::Ordered | State::Starting) => {
                    self.children.order_end(id, Order::Stop, mercy_ms.min(now_ms + GRACE_MS))
                }
                (false, _) if is_helper => self.children.order_end_of_helper(id, Order::Stop, &self.provision, now_ms),
                (false, _) => self.children.order_end(id, Order::Stop, mercy_ms),
            }
        }
    }

    /// Logs the progress of a stop, if that is due.
    pub(super) fn log_stop_progress(&mut self, now_ms: u64) {
        if !self.ending.is_progress_due(now_ms) {
            return;
        }
        let rows = self.children.iter().filter_map(|child| child.row());
        let in_flight: Vec<InFlight> = rows.flat_map(|row| self.children.scoreboard().in_flight(row)).collect();
        let what = match in_flight.len() {
            0 if !self.ending.has_served => "the application is still being loaded".to_owned(),
            0 => {
                let left: Vec<String> = self.children.iter().map(ToString::to_string).collect();
                let left = if left.is_empty() { "daemons and commands of cron".to_owned() } else { left.join(", ") };
                format!("no request is in flight; waiting for the end of {left}")
            }
            count => {
                let requests = counted(count as u64, "request");
                format!("waiting for {requests}: {}", exit_report::requests(&in_flight, now_ms))
            }
        };
        let again = if is_attached() { "Ctrl-C again" } else { "a second SIGTERM" };
        log_sink::line(&format!("stop: {what}; {again} stops immediately"));
        self.notifier.status(&what);
    }

    /// SIGQUIT, or a second SIGTERM: kills every child.
    pub(super) fn stop_now(&mut self, why: &str, now_ms: u64) {
        log_sink::line(&format!("stopping immediately ({why})"));
        drop(self.begin_end(0));
        self.attendants.stop_now(now_ms);
        self.exporters.hurry(now_ms);
        for id in self.children.ids(|child| child.state != State::Killed) {
            self.condemn(id, KillReason::StopNow, now_ms);
        }
    }

    /// Ends an instance that could not start, with this status and this last log line.
    fn end_with(&mut self, status: i32, words: String, now_ms: u64) {
        self.ending.exit_message = Some(words);
        drop(self.begin_end(status));
        for id in self.children.ids(|child| !child.is_prototype()) {
            self.children.kill(id, KillReason::GivenUp, now_ms);
        }
        for id in self.children.ids(|child| child.is_prototype()) {
            // The prototype may be exiting already, with its error half written to the log.
            self.children.order_end(id, Order::Retire, now_ms + GRACE_MS);
        }
    }

    /// Begins the end. Returns the connections that were not accepted yet.
    fn begin_end(&mut self, status: i32) -> Vec<(u32, OwnedFd)> {
        self.drop_plan();
        self.takeover.give_up();
        if self.ending.begin(status) {
            self.notifier
                .stopping(self.provision.longest_mercy_ms() + GRACE_MS + INTERPRETER_END_MS + self.exporters.end_most_ms());
            self.outcomes.report_pending(&mut self.control.channel, clock_ms());
            report_failure("it is being stopped", &mut self.control.channel);
        }
        let waiting = self.provision.end_listeners();
        self.cancel_replacements();
        waiting
    }

    /// Cancels all planned replacements of workers.
    fn cancel_replacements(&mut self) {
        self.generations.take_forming();
        self.generations.clear_request();
        self.recycling.forget();
        for child in self.children.iter_mut() {
            child.expires_ms = None;
        }
    }

    /// Returns the exit status once every child has ended, or the last ones can't be killed.
    pub(super) fn finished(&mut self, now_ms: u64) -> Option<i32> {
        let status = self.ending.status()?;
        if self.children.iter().any(|child| child.state != State::Killed || child.deadline_ms.is_some()) {
            return None;
        }
        // Daemons end last, because requests in flight may need them. Commands of `cron` outlive an upgrade, like a reload, but
        // not the instance.
        if !self.takeover.continues_in_successor() {
            self.attendants.stop(self.provision.settings(), now_ms);
        }
        self.exporters.stop(now_ms);
        if !self.attendants.is_gone() || !self.exporters.is_gone() {
            return None;
        }
        self.alarms.take_messages(&self.provision, now_ms);
        self.alarms.take_timers(self.provision.settings(), self.provision.privileges(), now_ms);
        self.alarms.finish(now_ms).then_some(status)
    }

    /// An upgrade: this instance ends like an old generation. The successor owns the sockets and all files from now on.
    pub(super) fn hand_over_instance(&mut self, now_ms: u64) {
        let Some(pid) = self.takeover.hand_over() else { return };
        self.drop_plan();
        self.provision.hand_over();
        self.ending.begin(0);
        self.cancel_replacements();
        // Workers first: if the master were killed now, workers without the order would shut the sockets down.
        self.children.end_generations(|_| true, self.takeover.successor_takes_connections(), &self.provision, now_ms);
        log_sink::line(&format!("upgrade: the new master (pid {pid}) serves, this one ends when its requests are answered"));
        self.outcomes.settle(format!("the new master (pid {pid}) serves"), &mut self.control.channel, now_ms);
        self.notifier.give_place(pid.as_raw());
        self.takeover.tell(Step::HandedOver);
        self.reporting.hand_over();
        self.control.hand_over();
        self.attendants.retire(self.provision.settings(), now_ms);
    }

    /// Our workers serve for the first time: the pidfiles are ours now, and after an upgrade also the sockets and control
    /// endpoints.
    fn take_over_instance(&mut self) {
        if !self.takeover.awaits_takeover() {
            return pidfile::write_when_ready(self.provision.settings(), self.provision.privileges());
        }
        self.outcomes.count_upgrade(true);
        self.provision.take_over();
        let (settings, privileges) = (self.provision.settings(), self.provision.privileges());
        self.reporting.take_over(privileges);
        self.attendants.note_minute();
        self.signalling.note_minute();
        pidfile::write_as_successor(settings, privileges);
        self.control = ControlEndpoints::take_over(&settings.control, privileges, clock_ms());
        self.takeover.take_over();
    }

    /// Handles events of the previous master.
    pub(super) fn take_predecessor_events(&mut self, now_ms: u64) {
        for event in self.takeover.take_predecessor_events() {
            match event {
                PredecessorEvent::Given => self.notifier.speak(),
                PredecessorEvent::DaemonsGone => self.attendants.release(),
                PredecessorEvent::Lost => {
                    // Its workers shut the sockets down when it is killed, so there is nothing left to serve.
                    let words = "the master that this one was to replace has ended: its sockets are gone with it";
                    self.end_with(EXIT_PREDECESSOR_LOST, words.to_owned(), now_ms);
                }
            }
        }
    }
}
