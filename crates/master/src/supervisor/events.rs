//! The consequences of events: commands, from all endpoints, reports of children, and exits of processes. Each goes to its owner;
//! steps that involve several owners are in `steps`. It continues the supervisor and decides nothing for an owner. The master
//! runs it.

use std::os::fd::AsFd;

use bolide_contract::message::{self, Asked, Received, Report};
use bolide_services::reloads::ReloadCause;
use bolide_supervision::files::pidfile;
use bolide_supervision::processes::backoff::EARLY_FAILURE_MS;
use bolide_supervision::processes::exit_report::{self, Cause};
use bolide_supervision::processes::oom_kills::KernelKill;
use bolide_supervision::{log_sink, system};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::children::child::{Child, Event, KillReason, Progress, Role};
use crate::children::reports::{self, REPORTS_A_TURN};
use crate::children::single_signals::{self, Step};
use crate::control::commands::{self, Command, Letter};
use crate::generations::generation::Reason;
use crate::generations::{forming, helpers, imports};
use crate::outcomes::{Asker, report_failure};
use crate::signalling;
use crate::statistics::routes::Numbers;
use crate::statistics::{observed, status};
use crate::supervisor::Supervisor;
use crate::upgrade::SuccessorOutcome;
use crate::workers::ends::{self, WorkerEnd};
use crate::workers::harakiri::Watch;
use crate::workers::{crash_reports, pausing, unfinished};

// Commands.
impl Supervisor {
    /// Executes a command, or begins to.
    pub(super) fn obey(&mut self, command: Command, by: Asker<'_>, now_ms: u64) {
        // The error is logged already.
        drop(self.attempt(command, by, now_ms));
    }

    /// Like `obey`, but returns the outcome.
    ///
    /// # Errors
    /// Why it could not be done or begun. The error is logged too.
    fn attempt(&mut self, command: Command, asker: Asker<'_>, now_ms: u64) -> Result<(), String> {
        let by = asker.words;
        match command {
            Command::ReopenLogs => return self.logs.reopen(by, &self.children),
            Command::RotateLogs => return self.logs.rotate(by, &self.children),
            Command::Upgrade if self.ending.is_stopping() => return Err("it is being stopped".to_owned()),
            Command::Upgrade => {
                let (reporting, configuration) = (&self.reporting, &self.configuration);
                let started = self.takeover.start(&self.generations, &self.provision, reporting, configuration, now_ms);
                let outcome = match &started {
                    Ok(pid) => format!("starting a new master (pid {pid}), this one serves until the new one does"),
                    Err(why) => format!("{why}: this master stays"),
                };
                log_sink::line(&format!("upgrade ({by}): {outcome}"));
                return started.map(drop);
            }
            Command::Stop => self.stop(0, now_ms),
            Command::StopNow => self.stop_now(by, now_ms),
            Command::Reload | Command::ReloadBrutally => {
                if !self.ending.is_stopping() {
                    self.logs.reopen_at_reload(&self.children);
                }
                return self.reload(asker, command == Command::ReloadBrutally, now_ms);
            }
            // Workers are always replaced one at a time, so both commands are the same.
            Command::ReloadWorkers | Command::ReloadChain => return self.reload_chain(asker, now_ms),
            Command::ReloadMules | Command::ReloadSpoolers if self.ending.is_stopping() => {}
            Command::ReloadMules => helpers::renew_kind("mule", by, &mut self.children, &self.provision, now_ms),
            Command::ReloadSpoolers => helpers::renew_kind("spooler", by, &mut self.children, &self.provision, now_ms),
            Command::Pause | Command::Resume | Command::TogglePause => {
                if self.ending.is_stopping() {
                    let why = "it is being stopped";
                    log_sink::line(&format!("{by}: {why}"));
                    return Err(why.to_owned());
                }
                // The user decides from here on whether requests start, and not the reload that they wait for.
                self.development.let_requests_go(false, None, &mut self.children, now_ms);
                let is_to_pause = command == Command::Pause || command == Command::TogglePause && !self.children.is_paused();
                if is_to_pause {
                    pausing::pause(by, &mut self.children, &self.notifier);
                } else if !self.end_pause(by, now_ms) {
                    log_sink::line(&format!("{by}: it is not paused"));
                }
            }
            Command::AddWorker => return self.scaled().add_worker(by),
            Command::RemoveWorker => return self.scaled().remove_worker(by, now_ms),
            Command::SetWorkers(number) => return self.scaled().set_workers(number, by, now_ms),
            Command::Status => {
                let (view, reporting) = self.view();
                status::write(view, &reporting.snapshot(view), now_ms);
            }
            Command::Hook(number) => self.touch_hooks.begin(number, self.provision.settings(), self.provision.privileges()),
            Command::WritePidfiles => pidfile::write_again(self.provision.settings(), self.provision.privileges()),
        }
        Ok(())
    }

    /// Requests another generation. One that is starting is completed first, unless it takes far longer than the last one, and
    /// one more reload follows it, however many are requested meanwhile. A brutal reload abandons it, and gives the previous
    /// generation no time to finish.
    ///
    /// # Errors
    /// The configuration can't be used; the error is logged too.
    pub(super) fn reload(&mut self, asker: Asker<'_>, is_brutal: bool, now_ms: u64) -> Result<(), String> {
        if self.ending.is_stopping() {
            return Ok(());
        }
        if is_brutal || !self.reload_follows(asker.cause) {
            return self.reload_now(asker, is_brutal, now_ms);
        }
        if let Some(starting) = self.generations.follow(asker.words, asker.cause, now_ms) {
            let by = asker.words;
            log_sink::line(&format!("reload: {starting}: one more reload follows it, which {by} asks for"));
            self.notifier.reloading(&format!("{starting}, another reload follows it"));
        }
        Ok(())
    }

    /// Returns whether a reload for this cause would follow the generation that is starting. In development, newer code makes
    /// older code worthless.
    pub(super) fn reload_follows(&self, cause: ReloadCause) -> bool {
        !self.provision.is_developed() && cause != ReloadCause::Change && self.generations.may_follow()
    }

    /// Begins the reload that was requested while a generation was starting, when that one has ended its start or takes too long.
    pub(super) fn begin_following_if_due(&mut self, now_ms: u64) {
        let Some(following) = self.generations.take_due_following(now_ms) else { return };
        self.control.channel.begin_next_wait();
        let asker = Asker { words: &following.by, cause: following.cause };
        // The error is logged already.
        drop(self.reload_now(asker, false, now_ms));
    }

    /// Executes what an application requests through uWSGI's Python module. `worker` is the child that the application runs in.
    fn obey_application(&mut self, asked: Asked, worker: &str, now_ms: u64) {
        let (command, by) = match asked {
            Asked::Reload => (Command::Reload, "uwsgi.reload()"),
            Asked::Stop => (Command::Stop, "uwsgi.stop()"),
        };
        // An application that repeats the request is logged once.
        let is_first = match command {
            Command::Reload => !self.generations.reload_is_requested() && !self.generations.is_forming(),
            _ => !self.ending.is_stopping(),
        };
        if is_first {
            log_sink::line(&format!("{worker}: the application calls {by}"));
            self.obey(command, Asker { words: by, cause: ReloadCause::Application }, now_ms);
        }
    }

    /// Reads the reports of an attendant: the end of a control daemon stops the instance.
    pub(super) fn read_attendant_reports(&mut self, pid: i32, now_ms: u64) {
        if self.attendants.read_reports(pid).is_some() {
            self.stop(0, now_ms);
        }
    }

    /// Reads the letters of the FIFO.
    pub(super) fn take_letters(&mut self, now_ms: u64) {
        let Some(fifo) = &mut self.control.fifo else { return };
        let (by, letters) = (format!("master-fifo {}", fifo.path().display()), fifo.take());
        if letters.iter().any(|letter| commands::of_letter(*letter).is_none()) {
            fifo.report_unknown(&letters, now_ms);
        }
        for letter in commands::of_letters(&letters) {
            match letter {
                // The application's user can write to the FIFO too, and an upgrade starts a master with all of root's rights. No
                // check of files finds everything that the new master would read, import and execute.
                Letter::Command(Command::Upgrade) if self.configuration.is_for_another_user(self.provision.settings()) => {
                    log_sink::line(&format!(
                        "{by}: upgrade refused: the user of uid can write to this FIFO, and an upgrade is a start by root; run \
                            `bolide upgrade` as root"
                    ));
                }
                Letter::Command(command) => {
                    log_sink::line(&format!("{by}: {}", command.row().done));
                    self.obey(command, Asker { words: &by, cause: ReloadCause::Fifo }, now_ms);
                }
                Letter::Slot(slot) => {
                    if let Some(fifo) = &mut self.control.fifo {
                        fifo.choose(slot);
                    }
                }
                Letter::Unsupported(letter, why) => log_sink::line(&format!("{by}: `{letter}` has no effect: {why}")),
            }
        }
    }

    /// Handles the request of a client of the control socket.
    pub(super) fn take_question(&mut self, client: u64, now_ms: u64) {
        let Some(question) = self.control.channel.take(client) else { return };
        let asked = question["ask"].as_str().unwrap_or_default();
        let answer = match asked {
            "identity" => status::identity(self.provision.settings(), self.provision.listeners()),
            "status" => {
                let (view, reporting) = self.view();
                reporting.status(view, now_ms)
            }
            "top" => {
                let is_stopping = self.ending.is_stopping();
                let (view, reporting) = self.view();
                reporting.overview(view, is_stopping, now_ms).clone()
            }
            "trace" => {
                // Only root and our own user get here.
                if let Some(reader) = self.control.channel.pid_of(client).filter(|_| question["allow"] == true) {
                    observed::allow_reader(self.view().0, reader);
                }
                observed::traced(self.view().0, now_ms)
            }
            "observe" => observed::observed(self.view().0, now_ms),
            _ => match commands::of_question(&question) {
                Ok(command) => return self.carry_out(client, &question, command, now_ms),
                Err(why) => json!({"ok": false, "message": why}),
            },
        };
        self.control.channel.answer(client, &answer, now_ms);
    }

    fn carry_out(&mut self, client: u64, question: &Value, command: Command, now_ms: u64) {
        if self.ending.is_stopping() && !command.row().while_stopping {
            let refused = json!({"ok": false, "message": "it is being stopped"});
            return self.control.channel.answer(client, &refused, now_ms);
        }
        let waits = question["wait"].as_bool() == Some(true);
        if waits && !command.row().has_outcome {
            let refused = json!({"ok": false, "message": "its completion is not reported: use it without `--wait`"});
            return self.control.channel.answer(client, &refused, now_ms);
        }
        log_sink::line(&format!("control socket: {}", command.row().done));
        // Before the command, because its outcome may be known immediately.
        if waits && command == Command::Reload && self.reload_follows(ReloadCause::Command) {
            self.control.channel.keep_waiting_for_next(client);
        } else if waits {
            self.control.channel.keep_waiting(client);
        }
        let asked = question["change"].as_i64().map_or(1, i64::unsigned_abs);
        let times = if command.row().is_cumulative { asked } else { 1 };
        let asker = Asker { words: "the control socket", cause: ReloadCause::Command };
        let done = (0..times).try_for_each(|_| self.attempt(command, asker, now_ms));
        let answer = match done {
            Ok(()) if waits => return,
            Ok(()) => json!({"ok": true, "message": command.row().done}),
            Err(why) => json!({"ok": false, "message": why}),
        };
        self.control.channel.answer(client, &answer, now_ms);
    }

    /// Handles events of the master that is to replace us.
    pub(super) fn take_successor_events(&mut self, now_ms: u64) {
        match self.takeover.take_successor_events() {
            SuccessorOutcome::Nothing => {}
            SuccessorOutcome::Serves => self.hand_over_instance(now_ms),
            SuccessorOutcome::Stopped => self.attendants.stop(self.provision.settings(), now_ms),
        }
    }
}

// Reports of children, and exits.
impl Supervisor {
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
                    let (signalling, instance, watches) = self.signalling();
                    if let Some(reason) = signalling::take_report(id, file, signalling, instance, watches, now) {
                        self.children.kill_and_log(id, reason, &self.provision, now);
                    }
                }
                Ok(Received::Message(Report::Signalled { number }, _)) => {
                    let (signalling, instance, _) = self.signalling();
                    signalling.take_raised(id, number, instance);
                }
                Ok(Received::Message(Report::Crashed { .. }, state)) => {
                    if let Some(child) = self.children.find_mut(id) {
                        child.state_at_fault = state;
                    }
                }
                Ok(Received::Message(report, _)) => self.take_report(id, report, now),
                Ok(Received::Nothing) => return,
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
            (Role::Prototype, Report::Loaded { milliseconds }) => {
                child.apply(Event::Ready);
                child.ready_ms.get_or_insert(now);
                self.attendants.begin(self.provision.settings());
                if let Some(forming) = self.generations.forming_of(generation) {
                    forming.loaded_in_ms.get_or_insert(u64::from(milliseconds));
                }
            }
            (Role::Prototype, Report::LoadFailed) => {
                if self.generations.forming_number() == Some(generation) {
                    self.give_up_forming("see the traceback above", now);
                }
            }
            (Role::Prototype, Report::Unshared) => {
                forming::note_unshared(id, generation, &mut self.generations, &mut self.children, &self.provision, now);
            }
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

    /// Acts on signals that one process got alone. A stop ends every process, and what one of them got is no second request.
    pub(super) fn take_single_signals(&mut self, now: u64) {
        for reported in self.single_signals.take_due(now) {
            let Some(child) = self.children.find(reported.child).filter(|_| !self.ending.is_stopping()) else { continue };
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
                Step::EndAtOnce => self.condemn(reported.child, KillReason::Signalled, now),
                Step::Command(command) => self.obey(command, asker, now),
                Step::Nothing => {}
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
        let mut children = self.children.iter_mut();
        if let Some(prototype) = children.find(|child| child.is_prototype() && child.generation == generation) {
            prototype.has_served = true;
        }
    }

    /// Reaps the master's own children (prototypes, and workers whose prototype has ended), and finds workers whose end no
    /// process can report any more.
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
            let is_known = self.attendants.note_end(pid, status, now)
                || self.exporters.note_end(pid, status, now)
                || self.logs.note_end(pid, status, now)
                || self.alarms.note_end(pid, status);
            if is_known {
                continue;
            }
            self.note_other_end(pid, status, now);
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

    /// Handles the end of the successor or of a hook, if the process was one.
    fn note_other_end(&mut self, pid: Pid, status: i32, now: u64) {
        if let Some((why, reload_waits)) = self.takeover.note_end(pid, status) {
            report_failure(&format!("the upgrade has failed: {why}"), &mut self.control.channel);
            self.outcomes.count_upgrade(false);
            if let Some(is_brutal) = reload_waits {
                let asker = Asker { words: "a request during the upgrade", cause: self.outcomes.cause() };
                // A failure is logged and reported to waiting clients.
                drop(self.reload(asker, is_brutal, now));
            }
        }
        // A file may have changed while its hook ran: the hook runs again then.
        if let Some(number) = self.touch_hooks.note_end(pid, status).filter(|_| !self.ending.is_stopping()) {
            self.touch_hooks.begin(number, self.provision.settings(), self.provision.privileges());
        }
    }

    /// Handles the end of a worker. Its own reports come first: they name the files in which a generation is mended. They come
    /// before it has this pid, which may belong to another process by now, since an invalid report has its sender killed.
    fn row_ended(&mut self, generation: u32, row: u32, pid: Option<u32>, cause: Cause, now: u64) {
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
        self.signalling.note_end(&child, &self.children);
        self.raise_segfault(&child, &cause, now);
        match child.role {
            Role::Worker { row, number } => self.worker_ended(&child, row, number, &cause, now),
            Role::Helper { row, number } => {
                self.children.close_row(row, None);
                if let Some(status) = helpers::status_of_script(&child, &cause).filter(|_| !self.ending.is_stopping()) {
                    log_sink::line(&format!("{child} {}: the instance ends with it", cause.words()));
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
        let is_killed = matches!(cause, Cause::Signalled { signal: libc::SIGKILL, .. }) && worker.kill_reason.is_none();
        let kernel_kill = if is_killed { self.oom_kills.look() } else { KernelKill::Unknown };
        let end = WorkerEnd { worker, number, cause, remembered: board.remembered(row), kernel_kill, has_worked };
        let in_flight = board.in_flight(row).len();
        let dropped = unfinished::send(&end, self.provision.span_socket(), now);
        self.exporters.count_dropped(dropped);
        if let Some(folder) =
            self.provision.settings().lifecycle.crash_reports.as_ref().filter(|_| crash_reports::is_reported(&end))
        {
            let text = crash_reports::compose(&end, &self.provision, now);
            self.alarms.report_crash(folder.clone(), text.as_bytes());
        }
        if let Some(why) = self.generations.note_end(worker, board.work(row), in_flight, &cause.words()) {
            self.roll_back(&why, now);
        }
        let kind = end.kind();
        self.children.close_row(row, Some(number));
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
            Some(Reason::First) if loaded => self.generations.promote_first(),
            Some(_) => self.give_up_forming(&ends::why_not_loaded(cause, loaded, &self.provision), now),
            None => {}
        }
        if self.generations.serving_number() == Some(prototype.generation) && !self.ending.is_stopping() {
            log_sink::line("its workers keep serving; starting a new generation, because nothing could replace them");
            if prototype.ready_ms.is_none_or(|ready| now.saturating_sub(ready) < EARLY_FAILURE_MS) {
                self.generations.note_failure(now);
            }
        }
    }
}
