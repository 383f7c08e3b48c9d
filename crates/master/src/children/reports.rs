//! What children report, and their closed sockets: what each report leads to. The master runs it.

use std::os::fd::AsFd;

use bolide_contract::message::{self, Received, Report};
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::exit_report::Cause;
use nix::unistd::Pid;

use crate::children::child::{Event, KillReason, Progress, Role, State};
use crate::children::fleet::Fleet;
use crate::children::harakiri::Watch;
use crate::supervisor::{LOST_MS, Supervisor};

/// Reports taken from one child in a turn: a child that floods us does not keep the others waiting.
pub const REPORTS_A_TURN: usize = 64;

impl Supervisor {
    /// Takes what a child has to say, or its closed socket.
    pub(crate) fn take_reports(&mut self, id: u64, now: u64) {
        for _ in 0..REPORTS_A_TURN {
            let Some(channel) = self.fleet.find(id).and_then(|child| child.channel.as_ref()) else { return };
            match message::receive::<Report>(channel.as_fd()) {
                Ok(Received::Message(Report::Imports, list)) => self.take_imports(id, list, now),
                Ok(Received::Message(report, _)) => self.take_report(id, report, now),
                Ok(Received::Nothing) => return,
                Ok(Received::End) => return self.channel_closed(id, now),
                Err(error) => {
                    if let Some(child) = self.fleet.find(id) {
                        log_sink::line(&format!("{child} sent what is no report: {error}"));
                    }
                    self.channel_closed(id, now);
                    return self.kill_and_log(id, KillReason::OutOfReach, now);
                }
            }
        }
    }

    /// The one match over reports. Rows and pids are checked: they come from processes that may run as another user.
    fn take_report(&mut self, id: u64, report: Report, now: u64) {
        let Some(child) = self.fleet.find(id) else { return };
        let (role, generation) = (child.role, child.generation);
        match (role, report) {
            (Role::Prototype, Report::Loaded { milliseconds }) => self.prototype_loaded(id, milliseconds, now),
            (Role::Prototype, Report::LoadFailed) => {
                if self.forming.as_ref().is_some_and(|forming| forming.generation.number == generation) {
                    self.give_up_forming("see the traceback above", now);
                }
            }
            (Role::Prototype, Report::Unshared) => self.note_unshared(id, generation, now),
            (Role::Prototype, Report::Forked { row, pid }) => {
                if let Some(worker) = self.fleet.with_row(generation, row).map(|worker| worker.id) {
                    // A pid that fails the check belongs to a worker that has ended already: the report of its end follows.
                    self.fleet.note_pid(worker, pid);
                }
            }
            (Role::Prototype, Report::ForkFailed { row, errno }) => {
                self.end_of_row(generation, row, None, Cause::NotForked(errno as i32), now)
            }
            (Role::Prototype, Report::Ended { row, pid, status }) => {
                self.end_of_row(generation, row, Some(pid), Cause::from_status(status as i32), now);
            }
            (Role::Worker { row, .. }, Report::Passed { row: told, pid }) if row == told => {
                if self.believes_pid(id, pid)
                    && let Some(worker) = self.fleet.find_mut(id)
                {
                    worker.waits_for_admission = true;
                }
            }
            (Role::Worker { row, .. }, Report::Serving { row: told, pid }) if row == told => {
                if self.believes_pid(id, pid) {
                    self.worker_serves(id, generation, now);
                }
            }
            (Role::Helper { row, .. }, Report::Serving { row: told, pid }) if row == told => {
                if self.believes_pid(id, pid) {
                    self.note_ready(id, now);
                }
            }
            (Role::Helper { row, .. }, Report::Worn { row: told, .. }) if row == told => self.renew_helper(id, now),
            (Role::Worker { row, .. }, Report::Worn { row: told, .. }) if row == told => self.take_worn(id, now),
            (Role::Worker { row, .. }, Report::Left { row: told, somebody_waits }) if row == told => {
                self.note_left(id, somebody_waits)
            }
            (Role::Worker { row, .. }, Report::Drained { row: told, .. }) if row == told => {
                self.advance_end(id, Progress::Drained, now)
            }
            (Role::Worker { row, .. }, Report::Leaving { row: told, .. }) if row == told => {
                self.advance_end(id, Progress::Leaving, now)
            }
            (Role::Worker { row, .. }, Report::Limited { row: told, milliseconds }) if row == told => {
                let limit_ms = u64::from(milliseconds);
                match &mut self.watch {
                    Some(watch) => watch.look_sooner(limit_ms, now),
                    None => self.watch = Watch::new(None, Some(limit_ms), &self.fleet.settings.lifecycle.harakiri_manners),
                }
            }
            (Role::Worker { row, .. }, Report::Halted { row: told, is_halted }) if row == told => {
                self.note_debugger(id, is_halted)
            }
            (Role::Worker { row, .. } | Role::Helper { row, .. }, Report::Asked { row: told, asked }) if row == told => {
                let by = child.to_string();
                self.obey_application(asked, &by, now);
            }
            (_, report) => {
                log_sink::line(&format!("{child} sent a report that is not its to send: {report:?}"));
                self.kill_and_log(id, KillReason::OutOfReach, now);
            }
        }
    }

    /// A worker says what its pid is.
    fn believes_pid(&mut self, id: u64, pid: u32) -> bool {
        let is_known = self.fleet.note_pid(id, pid);
        // A worker that is gone already has told the truth: its end is on the way to us.
        if !is_known && Fleet::exists(pid) {
            log_sink::line(&format!("a worker says that its pid is {pid}, which is another's: the report is not believed"));
        }
        is_known
    }

    fn prototype_loaded(&mut self, id: u64, milliseconds: u32, now: u64) {
        let Some(prototype) = self.fleet.find_mut(id) else { return };
        prototype.apply(Event::Ready);
        prototype.ready_ms.get_or_insert(now);
        let generation = prototype.generation;
        self.attendance.begin(&self.fleet.settings);
        if let Some(forming) = self.forming.as_mut().filter(|forming| forming.generation.number == generation) {
            forming.loaded_in_ms.get_or_insert(u64::from(milliseconds));
        }
    }

    fn worker_serves(&mut self, id: u64, generation: u32, now: u64) {
        let Some(worker) = self.fleet.find(id) else { return };
        let lifetime = self.jitter.lifetime_ms(&self.fleet.settings.recycling, worker.worker_number().unwrap_or(1));
        if self.note_ready(id, now)
            && let Some(worker) = self.fleet.find_mut(id)
        {
            worker.expires_ms = lifetime.map(|lifetime| now.saturating_add(lifetime));
        }
        if let Some(found) = self.generation_mut(generation) {
            found.served = true;
        }
        if let Some(prototype) =
            self.fleet.children.iter_mut().find(|child| child.is_prototype() && child.generation == generation)
        {
            prototype.has_served = true;
        }
    }

    /// A worker serves, or a helper works. Gives whether it was not ready before.
    fn note_ready(&mut self, id: u64, now: u64) -> bool {
        let mercy_ms = self.fleet.settings.lifecycle.reload_mercy_ms;
        let stop_deadline_ms = self.stop_progress.map(|progress| progress.began_ms().saturating_add(mercy_ms));
        let Some(child) = self.fleet.find_mut(id) else { return false };
        child.apply(Event::Ready);
        if child.ready_ms.is_some() {
            return false;
        }
        if child.state == State::Ending && child.deadline_reason == KillReason::Mercy {
            // It was told to end before it served, and given a moment for that: now it has the time of one that serves.
            child.deadline_ms = child.deadline_ms.max(stop_deadline_ms);
        }
        child.ready_ms = Some(now);
        true
    }

    /// Progress of a worker that ends. From `Leaving` on, when all requests are answered, its interpreter's end has a deadline of its own.
    fn advance_end(&mut self, id: u64, progress: Progress, now: u64) {
        let Some(worker) = self.fleet.find_mut(id) else { return };
        worker.progress = progress;
        if progress == Progress::Leaving && worker.state == State::Ending {
            worker.hurry(now + message::INTERPRETER_END_MS, KillReason::InterpreterStays);
        }
    }

    pub(crate) fn end_of_row(&mut self, generation: u32, row: u32, pid: Option<u32>, cause: Cause, now: u64) {
        let Some(worker) = self.fleet.with_row(generation, row) else { return };
        // The row may have its next worker already, where this end became known in another way first.
        let same = pid.is_none() || worker.pid.is_none_or(|known| Some(known.as_raw() as u32) == pid);
        if same {
            let id = worker.id;
            // A worker that was gone before its pid could be verified gets it now, for the log: nothing is sent to it any more.
            if let (Some(pid), Some(worker)) = (pid, self.fleet.find_mut(id)) {
                worker.pid.get_or_insert(Pid::from_raw(pid as i32));
            }
            self.handle_exit(id, cause, now);
        }
    }

    fn channel_closed(&mut self, id: u64, now: u64) {
        let Some(child) = self.fleet.find_mut(id) else { return };
        child.channel = None;
        // A child that ends anyway has closed its socket in good order and has a deadline already.
        if child.state.is_active() {
            child.hurry(now + LOST_MS, KillReason::OutOfReach);
        }
    }
}
