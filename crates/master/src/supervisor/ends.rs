//! The ends of processes: which child has exited, and what follows for its generation, its number and the instance. It continues
//! the supervisor and starts nothing itself: the next comparison with the wanted state does. The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::bulkheads::Holder;
use bolide_supervision::processes::backoff::EARLY_FAILURE_MS;
use bolide_supervision::processes::exit_report::{self, Cause};
use bolide_supervision::processes::oom_kills::KernelKill;
use bolide_supervision::{log_sink, system};
use nix::unistd::Pid;

use crate::children::child::{Child, KillReason, Role};
use crate::children::reports::{self, REPORTS_A_TURN};
use crate::generations::generation::Reason;
use crate::generations::{forming, helpers};
use crate::owner::Aftermath;
use crate::supervisor::Supervisor;
use crate::workers::ends::{self, WorkerEnd};
use crate::workers::{crash_reports, unfinished};

impl Supervisor {
    /// Reaps the master's own children (prototypes, and workers whose prototype has exited), and finds workers whose exit can't
    /// be reported any more.
    pub(super) fn reap(&mut self, now: u64) {
        while let Some((pid, pause)) = system::next_pause() {
            ends::note_pause(pid, pause, &mut self.children, now);
        }
        while let Some(pid) = system::next_end() {
            let child = self.children.with_pid(pid).map(|child| (child.id, child.is_prototype() && !child.has_served));
            if let Some((id, true)) = child {
                // Kills the processes that the application started while it was loaded. The group's number was not reused yet.
                self.children.end_group(id, KillReason::GivenUp, now);
            }
            let child = child.map(|(id, _)| id);
            let status = system::take_status(pid);
            match self.note_end_beside(pid, status, now) {
                Some(Aftermath::Nothing) => continue,
                Some(Aftermath::UpgradeFailed(why)) => {
                    self.note_failed_upgrade(&why, now);
                    continue;
                }
                None => {}
            }
            // Processes that applications left behind are not children in the list; the master only reaps them as their
            // subreaper.
            let Some(id) = child else { continue };
            // Reports that it sent before it ended are handled first: the ends of its workers.
            for _ in 0..=self.children.iter().count().div_ceil(REPORTS_A_TURN) {
                self.take_reports(id, now);
            }
            self.handle_exit(id, Cause::from_status(status), now);
        }
        for id in self.children.ids(|child| self.children.has_exited_unreported(child)) {
            self.take_reports(id, now);
            self.handle_exit(id, Cause::Unknown, now);
        }
    }

    /// Tells the owner of a process of no generation that it has ended. `None`: it was none.
    fn note_end_beside(&mut self, pid: Pid, status: i32, now_ms: u64) -> Option<Aftermath> {
        let (context, mut owners) = self.processes(now_ms);
        owners.find_map(|owner| owner.note_end(pid, status, context))
    }

    /// Handles the end of a worker. Its own reports come first: they name the files in which a generation is mended. They come
    /// before it has this pid, which may belong to another process by now, since an invalid report gets its sender killed.
    pub(super) fn row_ended(&mut self, generation: u32, row: u32, pid: Option<u32>, cause: Cause, now: u64) {
        let known = self.children.with_row(generation, row).map(|worker| worker.id);
        known.into_iter().for_each(|id| self.take_reports(id, now));
        if let Some(worker) = reports::ended_in_row(generation, row, pid, &mut self.children) {
            self.handle_exit(worker, cause, now);
        }
    }

    /// Removes a child from the list and handles its end.
    fn handle_exit(&mut self, id: u64, cause: Cause, now: u64) {
        let Some(mut child) = self.children.remove(id) else { return };
        if self.provision.settings().lifecycle.crash_reports.is_some() {
            crash_reports::take_last_state(&mut child);
        }
        self.signaling.note_end(&child, &self.children);
        self.raise_segfault(&child, &cause, now);
        match child.role {
            Role::Worker { row, number } => self.worker_ended(&child, row, number, &cause, now),
            Role::Helper { row, number } => {
                self.children.close_row(row, None);
                if let Some(status) = helpers::status_of_script(&child, &cause).filter(|_| !self.ending.is_stopping()) {
                    log_sink::line(&format!("{child} {}: the instance exits with it", cause.words()));
                    return self.stop(status, now);
                }
                let serving = self.generations.serving_mut().filter(|_| !self.ending.is_stopping());
                helpers::note_end(&child, number, serving, &cause, now);
            }
            Role::Prototype => self.prototype_ended(&child, &cause, now),
        }
    }

    /// Raises the alarms for a process that a fault of the processor has ended (`alarm-segfault`).
    fn raise_segfault(&mut self, child: &Child, cause: &Cause, now: u64) {
        if cause.is_fault() {
            let in_flight = child.row().map(|row| self.children.scoreboard().in_flight(row)).unwrap_or_default();
            let message = format!("{child} {}{}", cause.words(), exit_report::while_serving(&in_flight, now));
            self.alarms.raise_each(&self.provision.settings().alarms.segfault, &message, &self.provision, now);
        }
    }

    fn worker_ended(&mut self, worker: &Child, row: u32, number: u32, cause: &Cause, now: u64) {
        let board = self.children.scoreboard();
        let has_worked = worker.kill_reason == Some(KillReason::Harakiri) || board.has_begun_requests(row);
        let is_killed = matches!(cause, Cause::Signaled { signal: libc::SIGKILL, .. }) && worker.kill_reason.is_none();
        let kernel_kill = if is_killed { self.oom_kills.look() } else { KernelKill::Unknown };
        let end = WorkerEnd { worker, number, cause, remembered: board.remembered(row), kernel_kill, has_worked };
        let in_flight = board.in_flight(row).len();
        let dropped = unfinished::send(&end, self.provision.span_socket(), now);
        self.exporters.count_dropped(dropped);
        if let Some(directory) =
            self.provision.settings().lifecycle.crash_reports.as_ref().filter(|_| crash_reports::is_reported(&end))
        {
            let text = crash_reports::compose(&end, &self.provision, now);
            self.alarms.report_crash(directory.clone(), text.as_bytes());
        }
        if let Some(why) = self.generations.note_end(worker, board.work(row), in_flight, &cause.words()) {
            self.roll_back(&why, now);
        }
        let kind = end.kind();
        if let Some(held) = self.children.scoreboard().row(row) {
            let pid = held.pid.load(Relaxed);
            self.provision.bulkheads().free(Holder { row: u16::try_from(row).unwrap_or(u16::MAX), pid });
        }
        self.children.close_row(row, Some(number));
        if !worker.stopped_accepting {
            self.pass_wakes_on();
        }
        self.children.count_end(kind);
        let failed_early = end.note(&mut self.generations, &self.provision, self.ending.is_stopping(), now);
        if failed_early && let Some(why) = self.generations.note_early_failure(cause, self.provision.settings().workers.processes)
        {
            self.give_up_forming(&why, now);
        }
        match self.recycling.note_end(worker, cause, &mut self.children) {
            None => {}
            Some(Ok(())) => self.outcomes.count_reload(),
            Some(Err(why)) => self.outcomes.note_reload(Err(why), &mut self.control.channel),
        }
    }

    /// The kernel wakes one worker for a connection. If that one has exited since, or has stopped taking connections because it
    /// will be killed, the others do not know of the connection and are told here.
    pub(super) fn pass_wakes_on(&self) {
        if self.provision.listeners().have_waiting() {
            // Workers that start later look when they begin to listen.
            let _is_any_serving = reports::order_look(&self.children);
        }
        self.provision.connection_queue().pass_wake_on();
    }

    fn prototype_ended(&mut self, prototype: &Child, cause: &Cause, now: u64) {
        if !self.ending.is_stopping() {
            ends::log_end_of_prototype(prototype, cause, &self.provision);
        }
        let generations = &mut self.generations;
        match forming::continue_lazily(prototype.id, generations, &mut self.children, &self.provision, now) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return self.give_up_forming(&error.to_string(), now),
        }
        let loaded = prototype.ready_ms.is_some();
        match self.generations.forming_of(prototype.generation).map(|forming| forming.reason) {
            Some(Reason::First) if loaded => self.generations.promote_first(now),
            Some(_) => self.give_up_forming(&ends::why_not_loaded(cause, loaded, &self.provision), now),
            None => {}
        }
        let is_serving = self.generations.serving_number() == Some(prototype.generation) && !self.ending.is_stopping();
        if is_serving && self.children.prototype(prototype.generation).is_none() {
            log_sink::line("its workers keep serving; starting a new generation, because nothing could replace them");
            if prototype.ready_ms.is_none_or(|ready| now.saturating_sub(ready) < EARLY_FAILURE_MS) {
                self.generations.reload.note_lost_prototype(now);
            }
        }
    }
}
