//! What is due in a turn of the master's loop: deadlines of children, limits of workers, changed files, and the clocks of the
//! other parts. It continues the supervisor. Each part decides for itself; here is the order, and what one part means for
//! another. The master runs it.

use bolide_contract::loyalty::VassalReport;
use bolide_contract::message::EXIT_LOAD_FAILED;
use bolide_contract::watching::FileAction;
use bolide_services::reloads::ReloadCause;
use bolide_supervision::files::file_watches::FileChange;
use bolide_supervision::log_sink;
use bolide_supervision::process_state::is_zombie;
use bolide_supervision::text::duration;

use crate::children::LOST_MS;
use crate::children::child::{KillReason, State};
use crate::children::single_signals::{self, Step};
use crate::control::commands::Command;
use crate::development::{extend_if_halted, has_halted_worker};
use crate::generations::forming::kill_before_it_served;
use crate::generations::generation::Reason;
use crate::generations::helpers;
use crate::outcomes::Asker;
use crate::supervisor::Supervisor;
use crate::workers::harakiri::watch_requests;
use crate::workers::memory_limits;

impl Supervisor {
    /// Handles timers: deadlines of children, requests over time, workers past their lifetime.
    pub(super) fn take_timers(&mut self, now: u64) {
        self.children.shorten_prototype_deadlines(now);
        self.control.check_if_due(now);
        self.end_departure_if_due(now);
        self.log_stop_progress(now);
        self.take_single_signals(now);
        let has_daemons = self.attendants.has_daemons() || self.children.has_helpers();
        self.takeover.check_successor(self.provision.settings().lifecycle.load_timeout_ms, has_daemons, now);
        self.notifier.feed_watchdog(now);
        self.emperor.beat_if_due(now);
        self.provision.rotate_tickets_if_due(now);
        self.provision.sync_memories_if_due(now);
        for id in self.children.ids(|child| child.stopped_until_ms.is_some_and(|time| now >= time)) {
            if let Some(child) = self.children.find_mut(id) {
                child.stopped_until_ms = None;
            }
            self.children.kill_and_log(id, KillReason::Stopped, &self.provision, now);
        }
        for id in self.children.ids(|child| child.deadline_ms.is_some_and(|time| now >= time)) {
            self.deadline_passed(id, now);
        }
        self.children.kill_handed_over(&self.provision, now);
        self.children.wake_again(now);
        self.provision.connection_queue_mut().close_late(now);
        if !self.ending.is_stopping() {
            self.recycling.enqueue_expired(&mut self.children, now);
            self.kill_late_starters(now);
            if let Some(watch) = &mut self.memory {
                memory_limits::check(watch, &mut self.children, &mut self.recycling, &self.provision, now);
            }
            if self.scaled().scale(now) {
                self.emperor.report(VassalReport::Idle);
                self.stop(0, now);
            }
        }
        let has_takers = self.prospects().has_takers();
        if let Some(watch) = &mut self.requests {
            watch_requests(watch, &mut self.children, &mut self.provision, has_takers, now);
        }
        let (view, reporting) = self.view();
        for raised in reporting.report_due(view, now) {
            self.alarms.raise_each(&[raised.alarm], &raised.message, &self.provision, now);
        }
        self.take_file_changes(now);
        if !self.ending.is_stopping() && !self.takeover.awaits_takeover() {
            let (signaling, instance, _) = self.signaling();
            signaling.fire_due(instance, now);
        }
        if self.takeover.owns_files() {
            self.logs.rotate_due(&self.children, now);
        }
        self.logs.reach_again(&self.children, &self.provision, now);
        let (context, owners) = self.processes(now);
        owners.for_each(|owner| owner.due(context));
        for number in self.alarms.take_signals() {
            let (signaling, instance, _) = self.signaling();
            signaling.raise_in_service(number, instance);
        }
    }

    /// Executes the commands that changed files request.
    fn take_file_changes(&mut self, now: u64) {
        // A request that comes before the change has settled is for the new code already.
        if self.provision.is_developed() && !self.ending.is_ordered() && self.watches.sees_changed_import() {
            self.hold_requests(now);
        }
        for change in self.watches.take_changes(now) {
            let Some(command) = command_of(change.action) else {
                self.raise_for_file(&change);
                continue;
            };
            // The other master executes commands for the instance; changed code must be loaded by us too.
            let is_for_predecessor = self.takeover.awaits_takeover() && !command.row().is_reload;
            if self.ending.is_ordered() || is_for_predecessor {
                continue;
            }
            let option = &change.option;
            let changes = change.words(self.provision.settings().application.chdir.as_deref());
            if !self.provision.is_developed() || !command.row().is_reload {
                log_sink::line(&format!("{option}: {changes}"));
            } else {
                self.hold_requests(now);
                if !self.development.may_reload_now(command, &changes, option, &self.children) {
                    continue;
                }
            }
            self.obey(command, Asker { words: option, cause: ReloadCause::of_option(option) }, now);
        }
        if !self.ending.is_ordered()
            && let Some((command, option)) = self.development.release(&self.children)
        {
            self.hold_requests(now);
            self.obey(command, Asker { words: &option, cause: ReloadCause::of_option(&option) }, now);
        }
    }

    /// Raises the signal that a changed file stands for.
    fn raise_for_file(&mut self, change: &FileChange) {
        let FileAction::Signal(number) = change.action else { return };
        if self.ending.is_stopping() || self.takeover.awaits_takeover() {
            return;
        }
        let changes = change.words(self.provision.settings().application.chdir.as_deref());
        log_sink::line(&format!("{}: {changes}: raising signal {number}", change.option));
        let (signaling, instance, _) = self.signaling();
        signaling.raise_in_service(number, instance);
    }

    fn deadline_passed(&mut self, id: u64, now: u64) {
        if self.is_awaited_prototype(id) {
            log_sink::line("refork-after: the worker has not become a prototype in time");
            return self.succession_failed(id, now);
        }
        let Some(child) = self.children.find_mut(id) else { return };
        match child.state {
            // A killed child has no other deadline: shutdown does not wait for it, and otherwise its row is free only when it has
            // ended.
            State::Killed | State::Ended => {
                child.deadline_ms = None;
                log_sink::line(&format!("{child} was killed and has not exited yet"));
            }
            State::Ending => {
                if !self.ending.is_stopping() && extend_if_halted(child, now) {
                    return;
                }
                let kill_reason = child.deadline_reason;
                self.condemn(id, kill_reason, now);
            }
            State::Ordered | State::Starting | State::Serving | State::Worn => {
                child.deadline_ms = None;
                if child.pid.is_some_and(is_zombie) {
                    // The worker has exited; its prototype is only slow to report it.
                    child.deadline_ms = Some(now + LOST_MS);
                    return;
                }
                self.children.kill_and_log(id, KillReason::Unreachable, &self.provision, now);
            }
        }
    }

    /// Lets requests wait for changed code, except while a debugger has stopped the worker.
    fn hold_requests(&mut self, now: u64) {
        let overlaps = self.generations.serving().is_some() && self.stops_first().is_none();
        if overlaps && !has_halted_worker(&self.children) {
            self.development.hold_requests(&mut self.children, now);
        }
    }

    /// Acts on signals that one process got alone. A shutdown ends every process, and what one of them got is not a second
    /// request.
    fn take_single_signals(&mut self, now: u64) {
        for reported in self.single_signals.take_due(now) {
            let Some(child) = self.children.find(reported.child).filter(|_| !self.ending.is_ordered()) else { continue };
            let settings = self.provision.settings();
            let (step, what) = single_signals::step(child, reported.signal, self.configuration.is_for_another_user(settings));
            let asker = Asker { words: "a signal to the prototype", cause: ReloadCause::Application };
            // A reload would abandon this generation, and the next signal that one.
            let abandons = self.generations.is_forming() && !self.reload_follows(asker.cause);
            if step == Step::Command(Command::Reload) && abandons {
                self.single_signals.postpone(reported, now);
                continue;
            }
            reported.tell(child, what);
            match step {
                Step::Replace => self.recycling.enqueue(reported.child, &mut self.children),
                Step::EndAfterWork => helpers::renew(reported.child, &mut self.children, &self.provision, now),
                Step::EndAtOnce => self.condemn(reported.child, KillReason::Signaled, now),
                Step::Command(command) => self.obey(command, asker, now),
                Step::Nothing => {}
            }
        }
    }

    /// `load-timeout`: abandons a generation that does not serve in time, and kills single workers that do not.
    fn kill_late_starters(&mut self, now_ms: u64) {
        if let Some(timeout_ms) = self.generations.late_after_ms(now_ms) {
            let why = format!("it was not ready within {} (load-timeout)", duration(timeout_ms));
            if self.generations.forming().is_some_and(|forming| forming.reason == Reason::First) {
                let words = format!("the application could not be loaded: {why}; nothing is served");
                if let Some(forming) = self.generations.reload.cancel() {
                    self.abandon(&forming, None, now_ms);
                }
                return self.end_with(EXIT_LOAD_FAILED, words, now_ms);
            }
            if let Some(number) = self.generations.forming_number() {
                kill_before_it_served(number, &mut self.children, now_ms);
            }
            self.give_up_forming(&why, now_ms);
        }
        for id in self.children.ids(|child| child.late_ms().is_some_and(|time| now_ms >= time)) {
            self.children.kill_and_log(id, KillReason::Late, &self.provision, now_ms);
        }
    }
}

/// Returns the command that the change of a watched file requests. `None`: it raises a signal of uWSGI's.
fn command_of(action: FileAction) -> Option<Command> {
    match action {
        FileAction::Reload => Some(Command::Reload),
        FileAction::BrutalReload => Some(Command::ReloadBrutally),
        FileAction::ReloadWorkers => Some(Command::ReloadWorkers),
        FileAction::ReloadChain => Some(Command::ReloadChain),
        FileAction::ReloadMules => Some(Command::ReloadMules),
        FileAction::ReloadSpoolers => Some(Command::ReloadSpoolers),
        FileAction::ReopenLogs => Some(Command::ReopenLogs),
        FileAction::RotateLogs => Some(Command::RotateLogs),
        FileAction::Hook(number) => Some(Command::Hook(number)),
        FileAction::Signal(_) => None,
    }
}
