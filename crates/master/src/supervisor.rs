//! The master's one loop, over signals, children's reports and timers. What each event leads to is decided here and in the
//! files that continue this type: `reload` (generations), `recycling` (worn workers), `stop` (the end).
//!
//! Every turn first takes the news (reports, signals, ends), then looks at what is due, then compares what is with what should be
//! and starts what lacks. So a lost race is put right by the next turn, and nothing is ever waited for in place.
//! It accepts no connection and knows no protocol. The master runs it.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use bolide_contract::message::{self, Received, Report};
use bolide_contract::scoreboard::now_ms;
use nix::unistd::Pid;

use crate::attendance::Attendance;
use crate::background::Starter;
use crate::backoff::{BIRTH_MS, Backoff};
use crate::child::{Child, Event, KillReason, Progress, Role, State};
use crate::configuration::Configuration;
use crate::error::StartError;
use crate::exit_report::{self, Cause};
use crate::fleet::{self, Fleet, is_zombie};
use crate::generation::{Forming, Generation, Reason, ReloadOutcome};
use crate::harakiri::{Verdict, Watch};
use crate::jitter::Jitter;
use crate::log_sink;
use crate::memory_watch::MemoryWatch;
use crate::notify::{self, Notifier};
use crate::signals::{self, SignalAction, Signals};
use crate::system::{self, Pause};
use crate::tickets::Tickets;
use crate::waiting::{self, Source, Token};
use crate::watching::{FileNews, Watches};
use crate::words::duration;

/// The longest turn, in milliseconds: a net under a timer that was forgotten.
const TURN_MOST_MS: u64 = 10_000;
/// The scoreboard's clock may lag this much, in milliseconds: a timer is waited for that much longer, so that it is due then.
const CLOCK_LAG_MS: u64 = 4;
/// Reports taken from one child in a turn: a child that floods us does not keep the others waiting.
const REPORTS_A_TURN: usize = 64;
/// Time that a worker may live on after its order socket is closed, in milliseconds.
const LOST_MS: u64 = 2000;
/// Time that a prototype may take to end when it has nothing left to do, in milliseconds.
pub const GRACE_MS: u64 = 2000;
/// A worker that was killed for its memory within this time had too much of it from its start, in milliseconds.
const FAT_BIRTH_MS: u64 = 10_000;
/// Time that a prototype stopped by a signal may take to go on, in milliseconds: while it is stopped no worker is replaced.
const STOPPED_MS: u64 = 5000;

/// The instance serves, or ends with an exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    Stopping { status: i32 },
}

/// The master at work.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) fleet: Fleet,
    pub(crate) phase: Phase,
    /// The generation in service; none before the first is.
    pub(crate) serving: Option<Generation>,
    pub(crate) forming: Option<Forming>,
    /// With `reload-order = stop-first`: the generation that has ended, or is ending, for one that does not serve yet.
    pub(crate) vacated_by: Option<u32>,
    pub(crate) last_generation: u32,
    /// SIGHUP has asked for a reload that has not begun; several count as one.
    pub(crate) reload_wanted: bool,
    /// The old generation gets no time when the forming one, or the next, takes over.
    pub(crate) reload_is_brutal: bool,
    pub(crate) prototype_backoff: Backoff,
    /// The worker that is being replaced, and those that wait for their turn.
    pub(crate) recycling: Option<u64>,
    pub(crate) recycling_queue: VecDeque<u64>,
    /// Workers whose replacement a chain reload has asked for, and that have not ended yet.
    pub(crate) chain: Vec<u64>,
    pub(crate) exit_message: Option<String>,
    pub(crate) notifier: Notifier,
    /// Who waits in the foreground for the start of an instance in the background; none once its workers serve.
    pub(crate) starter: Option<Starter>,
    pub(crate) configuration: Configuration,
    /// How the last reload that somebody asked for has ended; `None`: there was none.
    pub(crate) last_reload: Option<ReloadOutcome>,
    pub(crate) attendance: Attendance,
    signals: Signals,
    pub(crate) watch: Option<Watch>,
    pub(crate) watches: Watches,
    pub(crate) memory_watch: Option<MemoryWatch>,
    jitter: Jitter,
}

impl Supervisor {
    pub fn new(fleet: Fleet, signals: Signals, configuration: Configuration) -> Supervisor {
        let lifecycle = &fleet.settings.lifecycle;
        let memory_watch = MemoryWatch::new(&fleet.settings.recycling);
        let watch = Watch::new(lifecycle.harakiri_ms, lifecycle.shortest_route_harakiri_ms, &lifecycle.harakiri_manners);
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        let watches = Watches::new(&fleet.settings.watching, now_ms());
        Supervisor {
            fleet,
            phase: Phase::Running,
            serving: None,
            forming: None,
            vacated_by: None,
            last_generation: 0,
            reload_wanted: false,
            reload_is_brutal: false,
            prototype_backoff: Backoff::default(),
            recycling: None,
            recycling_queue: VecDeque::new(),
            chain: Vec::new(),
            exit_message: None,
            starter: None,
            notifier: Notifier::new(std::env::var_os(notify::VARIABLE)),
            configuration,
            last_reload: None,
            attendance: Attendance::default(),
            signals,
            watch,
            watches,
            memory_watch,
            jitter: Jitter::new(u64::from(time) << 32 | Pid::this().as_raw() as u64),
        }
    }

    /// Starts the first generation.
    ///
    /// # Errors
    /// Its prototype can't be started.
    pub fn start(&mut self) -> Result<(), StartError> {
        self.begin_generation(Reason::First, now_ms())
    }

    /// Runs until the instance has ended. Gives the exit status, the log's last line, and who still waits for the start.
    pub fn run(mut self) -> (i32, Option<String>, Fleet, Option<Starter>) {
        loop {
            for token in self.wait_for_news() {
                match token {
                    Token::Child(id) => self.take_reports(id, now_ms()),
                    Token::Watches => self.watches.ring(now_ms()),
                    Token::Attendant(pid) => self.take_attendant_news(pid, now_ms()),
                    // Signals come last: one is acted upon with all that is known.
                    Token::Signals => {}
                }
            }
            self.take_signals();
            self.reap(now_ms());
            self.take_timers(now_ms());
            self.reconcile(now_ms());
            bolide_log::flush();
            if let Some(status) = self.finished(now_ms()) {
                for child in &self.fleet.children {
                    log_sink::line(&format!("{child} can't be killed: it is left behind"));
                }
                return (status, self.exit_message, self.fleet, self.starter);
            }
        }
    }

    /// Waits until somebody has news or a time has come.
    fn wait_for_news(&self) -> Vec<Token> {
        let mut sources = vec![Source::readable(Token::Signals, self.signals.as_fd())];
        sources.extend(self.fleet.sources());
        sources.extend(self.watches.sources());
        sources.extend(self.attendance.sources());
        waiting::wait(&sources, self.turn_ms(now_ms()) as u16).unwrap_or_else(|error| {
            log_sink::line(&format!("waiting for news failed: {error}"));
            Vec::new()
        })
    }

    fn take_signals(&mut self) {
        while let Some((signal, request)) = self.signals.next() {
            match request {
                SignalAction::Ask(command) => self.obey(command, &signals::name(signal), now_ms()),
                // Children's ends are looked for in every turn.
                SignalAction::Reap | SignalAction::Ignore => {}
                SignalAction::Refuse => {
                    let name = signals::name(signal);
                    log_sink::line(&format!("{name} came, which asks nothing of the master: it goes on"));
                }
            }
        }
    }

    /// Takes what a child has to say, or its closed socket.
    fn take_reports(&mut self, id: u64, now: u64) {
        for _ in 0..REPORTS_A_TURN {
            let Some(channel) = self.fleet.find(id).and_then(|child| child.channel.as_ref()) else { return };
            match message::receive::<Report>(channel.as_fd()) {
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
            (Role::Worker { row, .. }, Report::Serving { row: told, pid }) if row == told => {
                if self.fleet.note_pid(id, pid) {
                    self.worker_serves(id, generation, now);
                } else if Fleet::exists(pid) {
                    // A worker that is gone already has told the truth: its end is on the way to us.
                    log_sink::line(&format!(
                        "a worker says that its pid is {pid}, which is another's: the report is not believed"
                    ));
                }
            }
            (Role::Worker { row, .. }, Report::Worn { row: told, .. }) if row == told => self.take_worn(id, now),
            (Role::Worker { row, .. }, Report::Drained { row: told, .. }) if row == told => {
                self.advance_end(id, Progress::Drained, now)
            }
            (Role::Worker { row, .. }, Report::Leaving { row: told, .. }) if row == told => {
                self.advance_end(id, Progress::Leaving, now)
            }
            (Role::Worker { row, .. }, Report::Asked { row: told, asked }) if row == told => {
                let by = child.to_string();
                self.obey_application(asked, &by, now);
            }
            (_, report) => {
                log_sink::line(&format!("{child} sent a report that is not its to send: {report:?}"));
                self.kill_and_log(id, KillReason::OutOfReach, now);
            }
        }
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
        let Some(worker) = self.fleet.find_mut(id) else { return };
        worker.apply(Event::Ready);
        if worker.ready_ms.is_none() {
            worker.ready_ms = Some(now);
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

    /// Progress of a worker that ends. From `Leaving` on, when all requests are answered, its interpreter's end has a deadline of its own.
    fn advance_end(&mut self, id: u64, progress: Progress, now: u64) {
        let Some(worker) = self.fleet.find_mut(id) else { return };
        worker.progress = progress;
        if progress == Progress::Leaving && worker.state == State::Ending {
            worker.hurry(now + message::INTERPRETER_END_MS, KillReason::InterpreterStays);
        }
    }

    fn end_of_row(&mut self, generation: u32, row: u32, pid: Option<u32>, cause: Cause, now: u64) {
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

    /// Reaps children of the master's own (prototypes, and workers whose prototype has ended), and finds the ends of
    /// workers that nobody can report any more.
    fn reap(&mut self, now: u64) {
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
            if self.attendance.note_end(pid, status, now) {
                continue;
            }
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
    fn handle_exit(&mut self, id: u64, cause: Cause, now: u64) {
        let Some(position) = self.fleet.children.iter().position(|child| child.id == id) else { return };
        let child = self.fleet.children.remove(position);
        match child.role {
            Role::Worker { row, number } => self.worker_ended(&child, row, number, &cause, now),
            Role::Prototype => self.prototype_ended(&child, &cause, now),
        }
    }

    fn worker_ended(&mut self, worker: &Child, row: u32, number: u32, cause: &Cause, now: u64) {
        let in_flight = self.fleet.scoreboard.in_flight(row);
        let has_worked = worker.kill_reason == Some(KillReason::Harakiri) || self.fleet.scoreboard.has_begun_requests(row);
        self.fleet.scoreboard.clear(row);
        let asked = !worker.state.is_active();
        // A worker that had too much memory soon after its start will have it again.
        let is_fat = worker.kill_reason == Some(KillReason::Memory);
        let lived = has_worked && !is_fat
            || worker.ready_ms.is_some_and(|ready| now.saturating_sub(ready) >= if is_fat { FAT_BIRTH_MS } else { BIRTH_MS });
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
            } else if is_fat {
                format!(" had too much memory soon after its start; the next is tried in {}", duration(slot.died_at_birth(now)))
            } else {
                format!(" before its first request; the next is tried in {}", duration(slot.died_at_birth(now)))
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
        if is_fat && !lived {
            log_sink::line(&format!("{worker}{follows}"));
        } else if !is_known {
            log_sink::line(&format!("{worker} {}{}{follows}", cause.words(), exit_report::while_serving(&in_flight, now)));
        }
        if is_forming && !asked && !lived && !never_was {
            self.note_death_while_forming(cause, now);
        }
        self.note_end_in_chain(worker, cause, asked);
    }

    fn prototype_ended(&mut self, prototype: &Child, cause: &Cause, now: u64) {
        let asked = !prototype.state.is_active();
        let news = prototype.kill_reason.is_none()
            && !(asked && *cause == Cause::Exited(0))
            && *cause != Cause::Exited(message::EXIT_LOAD_FAILED);
        if news && !self.is_stopping() {
            log_sink::line(&format!("{prototype} {}", cause.words()));
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
                self.prototype_backoff.died_at_birth(now);
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

    /// Does what is due: ends patience with children, looks for requests over time, queues workers past their lifetime for recycling.
    fn take_timers(&mut self, now: u64) {
        self.attendance.kill_late(now);
        self.hurry_prototypes_without_workers(now);
        if let Some(tickets) = &mut self.fleet.tickets {
            tickets.rotate_if_due(now);
        }
        for id in self.fleet.ids(|child| child.stopped_until_ms.is_some_and(|time| now >= time)) {
            if let Some(child) = self.fleet.find_mut(id) {
                child.stopped_until_ms = None;
            }
            self.kill_and_log(id, KillReason::Stopped, now);
        }
        for id in self.fleet.ids(|child| child.deadline_ms.is_some_and(|time| now >= time)) {
            self.deadline_passed(id, now);
        }
        if !self.is_stopping() {
            self.queue_expired_workers(now);
            self.kill_late_starters(now);
            self.watch_memory(now);
        }
        self.watch_requests(now);
        self.take_file_news(now);
    }

    /// Does what files that have changed ask for.
    fn take_file_news(&mut self, now: u64) {
        for news in self.watches.take_changes(now) {
            if self.is_stopping() {
                return;
            }
            let FileNews { command, option, .. } = &news;
            log_sink::line(&format!("{option}: {}", news.words()));
            self.obey(*command, option, now);
        }
    }

    fn deadline_passed(&mut self, id: u64, now: u64) {
        let Some(child) = self.fleet.find_mut(id) else { return };
        match child.state {
            // A killed child has no further deadline: a stop does not wait for it, and else its row is free only when it has ended.
            State::Killed | State::Ended => {
                child.deadline_ms = None;
                log_sink::line(&format!("{child} was killed and has not ended yet"));
            }
            State::Ending => {
                let kill_reason = child.deadline_reason;
                self.kill_and_log(id, kill_reason, now);
            }
            State::Ordered | State::Starting | State::Serving | State::Worn => {
                child.deadline_ms = None;
                if child.pid.is_some_and(is_zombie) {
                    // The worker has ended, and its prototype is only slow to report it.
                    child.deadline_ms = Some(now + LOST_MS);
                    return;
                }
                self.kill_and_log(id, KillReason::OutOfReach, now);
            }
        }
    }

    fn watch_requests(&mut self, now: u64) {
        let Some(watch) = &mut self.watch else { return };
        // A worker that has answered all has no request over time, whatever its loop does at its end.
        let at_work = |child: &&Child| child.pid.is_some() && child.state != State::Killed && child.progress == Progress::AtWork;
        let living = self.fleet.children.iter().filter(at_work);
        let workers: Vec<(u64, u32)> = living.filter_map(|child| child.row().map(|row| (child.id, row))).collect();
        let waiting = || self.fleet.listeners.waiting();
        let verdicts = watch.look(&workers, &self.fleet.scoreboard, waiting, now);
        let limits: Vec<String> =
            verdicts.iter().map(|verdict| duration(watch.limit_ms(verdict.request()).unwrap_or(0))).collect();
        for (verdict, limit) in verdicts.into_iter().zip(limits) {
            match verdict {
                Verdict::AskStack { child: id, request } => {
                    let Some((child, pid)) = self.fleet.find(id).and_then(|child| child.pid.map(|pid| (child, pid))) else {
                        continue;
                    };
                    let told = exit_report::requests(std::slice::from_ref(&request), now);
                    log_sink::line(&format!("harakiri: {child} serves {told}, the limit is {limit}; its Python stack:"));
                    // A thread that is gone has no stack to tell; the second look finds that out.
                    if child.handle.as_ref().is_none_or(|handle| system::signal_process(handle, 0).is_ok())
                        && let Err(error) = system::signal_thread(pid, request.thread, signals::stack_signal())
                    {
                        log_sink::line(&format!("harakiri: {child} can't be asked for its stack: {error}"));
                    }
                }
                Verdict::Warn { child, signal, most_ms, .. } => {
                    if let Some(child) = self.fleet.find(child) {
                        let (name, most) = (signals::name(signal), duration(most_ms));
                        log_sink::line(&format!(
                            "harakiri: {child} is sent {name}, and killed in {most} (harakiri-graceful-timeout)"
                        ));
                    }
                    self.fleet.signal(child, signal);
                }
                Verdict::Kill { child, .. } => self.kill_and_log(child, KillReason::Harakiri, now),
            }
        }
    }

    /// Compares what is with what should be, and starts what lacks.
    fn reconcile(&mut self, now: u64) {
        if self.is_stopping() {
            return;
        }
        self.attendance.start_if_due(&self.fleet.settings, self.fleet.privileges(), now);
        // Each step may make work for the next: in this order nothing is left for a turn that only a timer begins.
        self.complete_if_serving(now);
        self.begin_reload_if_due(now);
        self.advance_recycling(now);
        let numbers = [self.forming.as_ref().map(|forming| &forming.generation), self.serving.as_ref()];
        for number in numbers.map(|generation| generation.map(|generation| generation.number)).into_iter().flatten() {
            self.start_missing_workers(number, now);
        }
    }

    /// Milliseconds that the next turn may wait.
    fn turn_ms(&self, now: u64) -> u64 {
        let load_timeout_ms = self.fleet.settings.lifecycle.load_timeout_ms.filter(|_| !self.is_stopping());
        let times = |child: &Child| [child.deadline_ms, child.expires_ms, child.stopped_until_ms, child.late_ms(load_timeout_ms)];
        let children = self.fleet.children.iter().flat_map(times);
        let watch = self.watch.as_ref().map(Watch::wake_ms);
        let log = bolide_log::is_waiting().then_some(now + bolide_log::RETRY_MS);
        let tickets = self.fleet.tickets.as_ref().map(Tickets::wake_ms);
        let memory = self.memory_watch.as_ref().filter(|_| !self.is_stopping()).map(MemoryWatch::wake_ms);
        let attendance = self.attendance.wake_ms(now);
        let features = [watch, memory, log, tickets, attendance, self.watches.wake_ms(), self.wake_for_generations(now)];
        let wakes = children.chain(features).flatten();
        wakes.min().map_or(TURN_MOST_MS, |wake| wake.saturating_sub(now).saturating_add(CLOCK_LAG_MS).min(TURN_MOST_MS))
    }

    pub(crate) fn write_status(&self, now: u64) {
        let serving = self.serving.as_ref().map_or("none".to_owned(), |generation| generation.number.to_string());
        log_sink::line(&format!("status: generation in service: {serving}, children: {}", self.fleet.children.len()));
        for child in &self.fleet.children {
            let row = child.row().and_then(|row| self.fleet.scoreboard.row(row).map(|entry| (row, entry)));
            let work = row.map(|(number, row)| {
                let requests = row.requests.load(std::sync::atomic::Ordering::Relaxed);
                let in_flight = self.fleet.scoreboard.in_flight(number);
                let now_serving = if in_flight.is_empty() { "idle".to_owned() } else { exit_report::requests(&in_flight, now) };
                format!(", generation {}, {requests} requests, {now_serving}", child.generation)
            });
            log_sink::line(&format!("status: {child}: {:?}{}", child.state, work.unwrap_or_default()));
        }
    }
}
