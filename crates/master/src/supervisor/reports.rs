//! The reports of children and attendants. It continues the supervisor: each report goes to its owner. The master runs it.

use std::os::fd::AsFd;

use bolide_contract::message::{self, Received, Report};
use bolide_supervision::log_sink;
use bolide_supervision::processes::exit_report::Cause;

use crate::children::child::{Event, KillReason, Progress, Role};
use crate::children::reports::{self, REPORTS_A_TURN};
use crate::generations::{forming, helpers, imports};
use crate::signaling;
use crate::supervisor::Supervisor;
use crate::workers::harakiri::Watch;

impl Supervisor {
    /// Reads the reports of an attendant: the end of a control daemon stops the instance.
    pub(super) fn read_attendant_reports(&mut self, pid: i32, now_ms: u64) {
        if self.attendants.read_reports(pid).is_some() {
            self.stop(0, now_ms);
        }
    }

    /// Reads the reports of a child, or handles its closed socket.
    pub(super) fn take_reports(&mut self, id: u64, now: u64) {
        for _ in 0..REPORTS_A_TURN {
            let Some(channel) = self.children.find(id).and_then(|child| child.channel.as_ref()) else { return };
            let received = message::receive::<Report>(channel.as_fd());
            match received {
                Ok(Received::Message(Report::Imports, list)) => {
                    let (generations, provision, watches) = (&self.generations, &self.provision, &mut self.watches);
                    imports::take(id, list, &mut self.children, generations, provision, watches, now);
                }
                Ok(Received::Message(Report::Registered, file)) => {
                    let (signaling, instance, watches) = self.signaling();
                    if let Some(reason) = signaling::take_report(id, file, signaling, instance, watches, now) {
                        self.children.kill_and_log(id, reason, &self.provision, now);
                    }
                }
                Ok(Received::Message(Report::Signaled { number }, _)) => {
                    let (signaling, instance, _) = self.signaling();
                    signaling.take_raised(id, number, instance);
                }
                Ok(Received::Message(Report::Crashed { .. }, state)) => {
                    if let Some(child) = self.children.find_mut(id) {
                        child.state_at_fault = state;
                    }
                }
                Ok(Received::Message(report, _)) => self.take_report(id, report, now),
                Ok(Received::Nothing) => return,
                Ok(Received::End) if self.is_awaited_prototype(id) => return self.succession_failed(id, now),
                Ok(Received::End) | Err(_) => {
                    let Some(child) = self.children.find_mut(id) else { return };
                    if let Err(error) = &received {
                        log_sink::line(&format!("{child} sent an invalid report: {error}"));
                    }
                    reports::channel_closed(child, now);
                    if received.is_err() {
                        self.children.kill_and_log(id, KillReason::Unreachable, &self.provision, now);
                    }
                    return;
                }
            }
        }
    }

    /// Handles a report. Rows and pids are checked, because the reporting processes may run as another user.
    fn take_report(&mut self, id: u64, report: Report, now: u64) {
        let Some(child) = self.children.find_mut(id) else { return };
        let (role, generation) = (child.role, child.generation);
        match (role, report) {
            // A worker has this end until it has become a prototype.
            (Role::Prototype, report) if child.pid.is_none() && !report.is_of_successor() => {
                log_sink::line(&format!("a worker that is to become a prototype sent {report:?}, which it may not send"));
                self.succession_failed(id, now);
            }
            (Role::Prototype, Report::Loaded { milliseconds }) => {
                child.apply(Event::Ready);
                child.ready_ms.get_or_insert(now);
                self.attendants.begin(self.provision.settings());
                self.generations.reload.note_loaded(generation, u64::from(milliseconds));
            }
            (Role::Prototype, Report::LoadFailed) => {
                if self.generations.forming_number() == Some(generation) {
                    self.give_up_forming("see the traceback above", now);
                }
            }
            (Role::Prototype, Report::Unshared) => {
                forming::note_unshared(id, generation, &mut self.generations, &mut self.children, &self.provision, now);
            }
            (Role::Prototype, Report::Succeeded { pid }) => self.prototype_succeeded(id, pid, now),
            (Role::Prototype, Report::Refused) => self.succession_failed(id, now),
            (Role::Prototype, Report::Forked { row, pid }) => {
                if let Some(worker) = self.children.with_row(generation, row).map(|worker| worker.id) {
                    // A pid that fails the check belongs to a worker that has already exited: the report of its end follows.
                    self.children.note_pid(worker, pid);
                }
            }
            (Role::Prototype, Report::ForkFailed { row, errno }) => {
                self.row_ended(generation, row, None, Cause::NotForked(errno as i32), now);
            }
            (Role::Prototype, Report::Ended { row, pid, status }) => {
                self.row_ended(generation, row, Some(pid), Cause::from_status(status as i32), now);
            }
            (Role::Worker { row, .. }, Report::Passed { row: claimed, pid }) if row == claimed => {
                if reports::verify_pid(id, pid, &mut self.children)
                    && let Some(worker) = self.children.find_mut(id)
                {
                    worker.waits_for_admission = true;
                }
            }
            (_, Report::GotSignal { row, signal, sender }) if child.row().is_none_or(|own| own == row) => {
                self.single_signals.note(id, child.born_ms, signal as i32, sender, now);
            }
            (Role::Worker { row, .. } | Role::Helper { row, .. }, Report::Serving { row: claimed, pid }) if row == claimed => {
                if reports::verify_pid(id, pid, &mut self.children) {
                    self.child_serves(id, now);
                }
            }
            (Role::Helper { row, .. }, Report::Worn { row: claimed, .. }) if row == claimed => {
                helpers::renew(id, &mut self.children, &self.provision, now);
            }
            (Role::Worker { row, .. }, Report::Worn { row: claimed, .. }) if row == claimed => {
                self.recycling.take_worn(id, &mut self.children, &self.provision, now);
            }
            (Role::Worker { row, .. }, Report::Left { row: claimed, somebody_waits }) if row == claimed => {
                reports::note_stopped_accepting(id, somebody_waits, &mut self.children);
            }
            (Role::Worker { row, .. }, Report::HandedOver { row: claimed, waiting }) if row == claimed => {
                self.children.note_handed_over(id, waiting);
                self.pass_wakes_on();
            }
            (Role::Worker { row, .. }, Report::Drained { row: claimed, .. }) if row == claimed => {
                reports::advance_end(child, Progress::Drained, now);
            }
            (Role::Worker { row, .. }, Report::Leaving { row: claimed, .. }) if row == claimed => {
                reports::advance_end(child, Progress::Leaving, now);
            }
            (Role::Worker { row, .. } | Role::Helper { row, .. }, Report::Limited { row: claimed, milliseconds })
                if row == claimed =>
            {
                let limit_ms = u64::from(milliseconds);
                let policy = &self.provision.settings().lifecycle.harakiri_policy;
                match &mut self.requests {
                    Some(watch) => watch.check_sooner(limit_ms, now),
                    None => self.requests = Watch::new(None, Some(limit_ms), policy),
                }
            }
            (Role::Worker { row, .. }, Report::Halted { row: claimed, is_halted }) if row == claimed => {
                child.is_halted = is_halted
            }
            (Role::Worker { row, .. }, Report::HasDebuggerPort { row: claimed }) if row == claimed => {
                child.has_debugger_port = true
            }
            (Role::Worker { row, .. } | Role::Helper { row, .. }, Report::Asked { row: claimed, asked }) if row == claimed => {
                let by = child.to_string();
                self.obey_application(asked, &by, now);
            }
            (_, report) => {
                log_sink::line(&format!("{child} sent a report that it may not send: {report:?}"));
                self.children.kill_and_log(id, KillReason::Unreachable, &self.provision, now);
            }
        }
    }

    /// Handles the report that a worker serves or a helper works.
    fn child_serves(&mut self, id: u64, now: u64) {
        let settings = self.provision.settings();
        let mercy_ms = settings.lifecycle.reload_mercy_ms;
        let stop_ms = self.ending.progress.map(|progress| progress.began_ms().saturating_add(mercy_ms));
        let Some(child) = self.children.find_mut(id) else { return };
        let number = child.worker_number();
        let lifetime = number.and_then(|number| self.recycling.lifetime_ms(&settings.recycling, number));
        if reports::note_ready(child, stop_ms, now) {
            child.expires_ms = lifetime.map(|lifetime| now.saturating_add(lifetime));
        }
        let generation = child.generation;
        if number.is_none() {
            return;
        }
        if let Some(found) = self.generations.with_number_mut(generation) {
            found.served = true;
        }
        let prototype = self.children.find(id).and_then(|worker| self.children.forker_of(worker)).map(|prototype| prototype.id);
        if let Some(prototype) = prototype.and_then(|id| self.children.find_mut(id)) {
            prototype.has_served = true;
        }
    }
}
