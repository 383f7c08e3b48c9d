//! The ends of children: they are reaped, told of where they are news, and lead to replacements. The master runs it.

use bolide_contract::message;
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::backoff::BIRTH_MS;
use bolide_supervision::processes::exit_report::{self, Cause};
use bolide_supervision::processes::signals;
use bolide_supervision::processes::system::{self, Pause};
use bolide_supervision::text::duration;
use nix::unistd::Pid;

use crate::children::child::{Child, KillReason, Role};
use crate::children::fleet;
use crate::children::reports::REPORTS_A_TURN;
use crate::generations::generation::Reason;
use crate::supervisor::Supervisor;

/// A worker that was killed for its memory within this time had too much of it from its start, in milliseconds.
const OVER_MEMORY_EARLY_MS: u64 = 10_000;
/// Time that a prototype stopped by a signal may take to go on, in milliseconds: while it is stopped no worker is replaced.
const STOPPED_MS: u64 = 5000;

impl Supervisor {
    /// Reaps children of the master's own (prototypes, and workers whose prototype has ended), and finds the ends of
    /// workers that nobody can report any more.
    pub(crate) fn reap(&mut self, now: u64) {
        while let Some((pid, pause)) = system::next_pause() {
            self.note_pause(pid, pause, now);
        }
        while let Some(pid) = system::next_end() {
            let child = self.fleet.with_pid(pid);
            if let Some(child) = child.filter(|child| child.is_prototype() && !child.has_served) {
                // Processes that the application has started while it was loaded go with it, as long as the group's number is surely its.
                fleet::end_group(child);
            }
            let child = child.map(|child| child.id);
            let status = system::take_status(pid);
            if self.attendance.note_end(pid, status, now) || self.log_programs.note_end(pid, status, now) {
                continue;
            }
            self.note_successor_end(pid, status, now);
            self.note_hook_end(pid, status);
            // Processes that applications left behind are nobody's child here: as their nearest living ancestor the master only lets them go.
            let Some(id) = child else { continue };
            // Reports that it sent before it ended come first: the ends of its workers.
            for _ in 0..=self.fleet.children.len().div_ceil(REPORTS_A_TURN) {
                self.take_reports(id, now);
            }
            self.handle_exit(id, Cause::from_status(status), now);
        }
        for id in self.fleet.ids(|child| self.fleet.is_gone_unseen(child)) {
            self.handle_exit(id, Cause::Unknown, now);
        }
    }

    /// A prototype that is stopped replaces nobody: it gets a moment to go on.
    fn note_pause(&mut self, pid: Pid, pause: Pause, now: u64) {
        let Some(id) = self.fleet.with_pid(pid).filter(|child| child.is_prototype()).map(|child| child.id) else { return };
        let Some(child) = self.fleet.find_mut(id) else { return };
        child.stopped_until_ms = match pause {
            Pause::Stopped(signal) => {
                let (name, most) = (signals::name(signal), duration(STOPPED_MS));
                log_sink::line(&format!("{child} was stopped by {name}: it is killed unless it goes on (SIGCONT) within {most}"));
                Some(now + STOPPED_MS)
            }
            Pause::Continued => None,
        };
    }

    /// Takes a child off the list, and does what its end asks for.
    pub(crate) fn handle_exit(&mut self, id: u64, cause: Cause, now: u64) {
        let Some(position) = self.fleet.children.iter().position(|child| child.id == id) else { return };
        let child = self.fleet.children.remove(position);
        match child.role {
            Role::Worker { row, number } => self.worker_ended(&child, row, number, &cause, now),
            Role::Helper { row, number } => self.helper_ended(&child, row, number, &cause, now),
            Role::Prototype => self.prototype_ended(&child, &cause, now),
        }
    }

    fn worker_ended(&mut self, worker: &Child, row: u32, number: u32, cause: &Cause, now: u64) {
        let in_flight = self.fleet.scoreboard.in_flight(row);
        let has_worked = worker.kill_reason == Some(KillReason::Harakiri) || self.fleet.scoreboard.has_begun_requests(row);
        self.fleet.ledger.note_end(number, self.fleet.scoreboard.work(row));
        let works = self.fleet.scoreboard;
        self.note_end_beside_canary(worker, works.work(row), in_flight.len(), &cause.words(), now);
        self.fleet.scoreboard.clear(row);
        let asked = !worker.state.is_active();
        // A worker that had too much memory soon after its start will have it again.
        let over_memory = worker.kill_reason == Some(KillReason::Memory);
        let lived = has_worked && !over_memory
            || worker
                .ready_ms
                .is_some_and(|ready| now.saturating_sub(ready) >= if over_memory { OVER_MEMORY_EARLY_MS } else { BIRTH_MS });
        let never_was = worker.pid.is_none() && *cause == Cause::Unknown;
        let mut follows = String::new();
        let stopping = self.is_stopping();
        if let Some(generation) = self.generation_mut(worker.generation)
            && (!asked
                || matches!(
                    worker.kill_reason,
                    Some(KillReason::Harakiri | KillReason::OutOfReach | KillReason::Late | KillReason::Memory)
                ))
            && !stopping
            && !never_was
        {
            let slot = &mut generation.worker_slots[number as usize - 1];
            follows = if lived {
                slot.lived();
                "; it is replaced".to_owned()
            } else if over_memory {
                format!(" had too much memory soon after its start; the next is tried in {}", duration(slot.failed_early(now)))
            } else {
                format!(" before its first request; the next is tried in {}", duration(slot.failed_early(now)))
            };
        }
        // The log names no worker twice: a kill has had its line, and an ordered end is no news.
        let forming = self.forming.as_ref().filter(|forming| forming.generation.number == worker.generation);
        let is_forming = forming.is_some();
        // A new generation that can't load the application has one line, when it is given up.
        let is_told =
            *cause == Cause::Exited(message::EXIT_LOAD_FAILED) && forming.is_some_and(|forming| !forming.generation.served);
        let ended_as_told = asked && *cause == Cause::Exited(0);
        let is_known = worker.kill_reason.is_some() || never_was || is_told || ended_as_told;
        if over_memory && !lived {
            log_sink::line(&format!("{worker}{follows}"));
        } else if !is_known {
            let (how, served) = (self.words_of_end(cause), exit_report::while_serving(&in_flight, now));
            log_sink::line(&format!("{worker} {how}{served}{follows}"));
        }
        if is_forming && !asked && !lived && !never_was {
            self.note_death_while_forming(cause, now);
        }
        self.note_end_in_chain(worker, cause, asked);
    }

    /// A cause in words, with what is probably behind it: no library says why it gives up when it can't have memory.
    fn words_of_end(&self, cause: &Cause) -> String {
        let words = cause.words();
        let limit = self.fleet.coming_settings().lifecycle.process.address_space_bytes;
        match (cause, limit) {
            (Cause::Signalled { signal: libc::SIGABRT, .. }, Some(bytes)) => {
                let most = bytes / (1024 * 1024);
                format!("{words}, probably because it could not have memory within limit-as = {most} MiB")
            }
            _ => words,
        }
    }

    fn prototype_ended(&mut self, prototype: &Child, cause: &Cause, now: u64) {
        let asked = !prototype.state.is_active();
        let news = prototype.kill_reason.is_none()
            && !(asked && *cause == Cause::Exited(0))
            && *cause != Cause::Exited(message::EXIT_LOAD_FAILED);
        if news && !self.is_stopping() {
            log_sink::line(&format!("{prototype} {}", self.words_of_end(cause)));
        }
        if self.goes_on_lazily(prototype.id, now) {
            return;
        }
        let forming = self.forming.as_ref().filter(|forming| forming.generation.number == prototype.generation);
        match forming.map(|forming| (forming.reason, prototype.ready_ms.is_some())) {
            Some((Reason::First, true)) => self.promote_first(),
            Some((_, loaded)) => self.give_up_forming(&self.why_not_loaded(cause, loaded), now),
            None => {}
        }
        if self.serving.as_ref().is_some_and(|serving| serving.number == prototype.generation) && !self.is_stopping() {
            log_sink::line("its workers serve on; a new generation is started, because nobody could replace them");
            let lived = prototype.ready_ms.is_some_and(|ready| now.saturating_sub(ready) >= BIRTH_MS);
            if !lived {
                self.prototype_backoff.failed_early(now);
            }
        }
    }

    /// The reason for the log why a prototype did not load. One that ended without a word may have found no Bolide to run.
    fn why_not_loaded(&self, cause: &Cause, loaded: bool) -> String {
        let program = self.fleet.program();
        let hint = match (cause, &program.package_folder) {
            (Cause::Exited(1), None) if !loaded => {
                format!(" (if it is the module `bolide` that is missing: {} -m pip install bolide)", program.executable.display())
            }
            _ => String::new(),
        };
        format!("its prototype {}, see above{hint}", cause.words())
    }
}
