//! The master's one loop, over signals, children's reports and timers. What each event leads to is decided here and in the
//! files that continue this type: `reports` (what children say), `endings` (their ends), `reload` (generations), `recycling` (worn workers), `stop` (the end).
//!
//! Every turn first takes the news (reports, signals, ends), then looks at what is due, then compares what is with what should be
//! and starts what lacks. So a lost race is put right by the next turn, and nothing is ever waited for in place.
//! It accepts no connection and knows no protocol. The master runs it.

mod settling;
mod stop;
pub mod stop_progress;

use std::collections::VecDeque;
use std::os::fd::AsFd;

use bolide_contract::message::stack_signal;
use bolide_contract::scoreboard::now_ms;
use bolide_contract::watching::FileAction;
use bolide_services::statistics::ReloadFacts;
use bolide_supervision::error::StartError;
use bolide_supervision::files::file_watches::Watches;
use bolide_supervision::logs::captured_output::CapturedOutput;
use bolide_supervision::logs::log_files::Logs;
use bolide_supervision::logs::log_programs::LogPrograms;
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::{self, ServerToken, Source};
use bolide_supervision::processes::backoff::{Backoff, Jitter};
use bolide_supervision::processes::daemonize::Starter;
use bolide_supervision::processes::exit_report;
use bolide_supervision::processes::memory_watch::MemoryWatch;
use bolide_supervision::processes::signals::{self, Signals};
use bolide_supervision::processes::system;
use bolide_supervision::sockets::service_manager::Notifier;
use bolide_supervision::sockets::ticket_keys::TicketKeyRenewal;
use bolide_supervision::sockets::upgrade_pair::{Predecessor, Successor};
use bolide_supervision::text::duration;
use nix::unistd::Pid;

use crate::children::child::{Child, KillReason, Progress, State};
use crate::children::elasticity::Elasticity;
use crate::children::fleet::{Fleet, is_zombie};
use crate::children::harakiri::{Verdict, Watch};
use crate::control::commands::Command;
use crate::control::endpoints::ControlEndpoints;
use crate::control::signals::{SignalAction, action};
use crate::daemons::attendants::Attendants;
use crate::generations::configuration::Configuration;
use crate::generations::generation::{Forming, Generation, Reason};
use crate::statistics::reporting::Reporting;
use crate::supervisor::stop_progress::StopProgress;
use crate::token::Token;
use crate::touch_hooks::TouchHooks;

/// The longest turn, in milliseconds: a net under a timer that was forgotten.
const TURN_MOST_MS: u64 = 10_000;
/// The scoreboard's clock may lag this much, in milliseconds: a timer is waited for that much longer, so that it is due then.
const CLOCK_LAG_MS: u64 = 4;
/// Time that a worker may live on after its order socket is closed, in milliseconds.
pub const LOST_MS: u64 = 2000;
/// Time that a prototype may take to end when it has nothing left to do, in milliseconds.
pub const GRACE_MS: u64 = 2000;

/// The instance serves, or ends with an exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    Stopping { status: i32 },
}

/// What is left of an instance that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    /// The log's last line.
    pub exit_message: Option<String>,
    pub fleet: Fleet,
    /// Who still waits for the start.
    pub starter: Option<Starter>,
    /// The stop that was ordered, if one was.
    pub stop_progress: Option<StopProgress>,
    /// Its workers have served.
    pub has_served: bool,
}

/// The outcome of a reload or an upgrade that is known and not told yet.
#[derive(Debug)]
pub(crate) struct PendingOutcome {
    pub(crate) words: String,
    /// When it is told at the latest, in monotonic milliseconds.
    pub(crate) until_ms: u64,
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
    /// Workers have served: what fails from here on is no failed start.
    pub(crate) has_served: bool,
    pub(crate) notifier: Notifier,
    /// Who waits in the foreground for the start of an instance in the background; none once its workers serve.
    pub(crate) starter: Option<Starter>,
    pub(crate) configuration: Configuration,
    /// How the reloads that somebody asked for have ended.
    pub(crate) reloads: ReloadFacts,
    /// A reload or an upgrade that has worked, while old workers may still accept.
    pub(crate) settling: Option<PendingOutcome>,
    /// Who takes our place at an upgrade that goes on.
    pub(crate) successor: Option<Successor>,
    /// Whose place is ours, or is to be when workers serve.
    pub(crate) place: Option<Predecessor>,
    pub(crate) attendance: Attendants,
    pub(crate) reporting: Reporting,
    pub(crate) control: ControlEndpoints,
    /// An ordered stop that goes on.
    pub(crate) stop_progress: Option<StopProgress>,
    signals: Signals,
    pub(crate) watch: Option<Watch>,
    pub(crate) watches: Watches,
    /// In development: a reload that waits for a debugger, and what asks for it.
    pub(crate) held_back: Option<(Command, String)>,
    pub(crate) touch_hooks: TouchHooks,
    pub(crate) memory_watch: Option<MemoryWatch>,
    pub(crate) jitter: Jitter,
    pub(crate) elasticity: Elasticity,
    pub(crate) logs: Logs,
    pub(crate) log_programs: LogPrograms,
    pub(crate) printed: Option<CapturedOutput>,
}

impl Supervisor {
    pub fn new(
        fleet: Fleet,
        signals: Signals,
        configuration: Configuration,
        reporting: Reporting,
        control: ControlEndpoints,
    ) -> Supervisor {
        let lifecycle = &fleet.settings.lifecycle;
        let memory_watch = MemoryWatch::new(&fleet.settings.recycling);
        let elasticity = Elasticity::new(&fleet.settings, now_ms());
        let watch = Watch::new(lifecycle.harakiri_ms, lifecycle.shortest_route_harakiri_ms, &lifecycle.harakiri_manners);
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        let watches = Watches::new(&fleet.settings.watching, now_ms());
        let logs = Logs::new(&fleet.settings.logging, fleet.privileges.as_ref());
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
            has_served: false,
            control,
            stop_progress: None,
            notifier: Notifier::from_environment(),
            configuration,
            reloads: ReloadFacts::default(),
            settling: None,
            successor: None,
            place: None,
            attendance: Attendants::default(),
            reporting,
            signals,
            watch,
            watches,
            held_back: None,
            touch_hooks: TouchHooks::default(),
            memory_watch,
            elasticity,
            logs,
            log_programs: LogPrograms::default(),
            printed: None,
            jitter: Jitter::new(u64::from(time) << 32 | Pid::this().as_raw() as u64),
        }
    }

    /// Starts the first generation.
    ///
    /// # Errors
    /// Its prototype can't be started.
    pub fn start(&mut self) -> Result<(), StartError> {
        if let Some(most_ms) = self.fleet.settings.lifecycle.load_timeout_ms {
            self.notifier.starting(most_ms);
        }
        self.begin_generation(Reason::First, now_ms())
    }

    /// Runs until the instance has ended.
    pub fn run(mut self) -> Ended {
        loop {
            let mut hears_connection = false;
            for token in self.wait_for_news() {
                match token {
                    Token::Child(id) => self.take_reports(id, now_ms()),
                    Token::Printed => self.printed.iter_mut().for_each(CapturedOutput::read),
                    Token::Watches => self.watches.ring(now_ms()),
                    Token::Attendant(pid) => self.take_attendant_news(pid, now_ms()),
                    Token::Listeners => hears_connection = true,
                    Token::Stats(token) => self.serve_stats(token, now_ms()),
                    Token::Successor => self.take_successor_news(now_ms()),
                    Token::Place => self.take_place_news(now_ms()),
                    Token::Fifo => self.take_letters(now_ms()),
                    Token::Control(ServerToken::Listener) => self.control.channel.accept(now_ms()),
                    Token::Control(ServerToken::Client(id)) => self.take_question(id, now_ms()),
                    // Signals come last: one is acted upon with all that is known.
                    Token::Signals => {}
                }
            }
            self.take_signals();
            self.reap(now_ms());
            if hears_connection {
                self.connection_waits(now_ms());
            }
            self.take_timers(now_ms());
            self.reconcile(now_ms());
            self.tell_if_settled(now_ms());
            bolide_log::flush();
            if let Some(status) = self.finished(now_ms()) {
                self.printed.iter_mut().for_each(CapturedOutput::finish);
                for child in &self.fleet.children {
                    log_sink::line(&format!("{child} can't be killed: it is left behind"));
                }
                if self.fleet.settings.lifecycle.vacuum || status != 0 && !self.has_served {
                    self.reporting.remove_file();
                }
                self.touch_hooks.kill();
                self.control.remove_files();
                if let Some(progress) = self.stop_progress.filter(|_| self.exit_message.is_none()) {
                    log_sink::line(&progress.end_in_words(now_ms()));
                }
                let Supervisor { exit_message, fleet, starter, stop_progress, has_served, .. } = self;
                return Ended { status, exit_message, fleet, starter, stop_progress, has_served };
            }
        }
    }

    /// Waits until somebody has news or a time has come.
    fn wait_for_news(&self) -> Vec<Token> {
        let mut sources = vec![Source::readable(Token::Signals, self.signals.as_fd())];
        sources.extend(self.fleet.sources());
        sources.extend(self.watches.source(Token::Watches));
        sources.extend(self.attendance.sources());
        sources.extend(self.listening_sources(now_ms()));
        sources.extend(self.printed.as_ref().map(|printed| printed.source(Token::Printed)));
        sources.extend(self.reporting.sources());
        sources.extend(self.successor.as_ref().and_then(|successor| successor.source(Token::Successor)));
        sources.extend(self.place.as_ref().and_then(|place| place.source(Token::Place)));
        sources.extend(self.control.sources());
        polling::wait(&sources, self.turn_ms(now_ms()) as u16).unwrap_or_else(|error| {
            log_sink::line(&format!("waiting for news failed: {error}"));
            Vec::new()
        })
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match action(signal) {
                SignalAction::Command(command) => self.obey(command, &signals::name(signal), now_ms()),
                // Children's ends are looked for in every turn.
                SignalAction::Reap | SignalAction::Ignore => {}
                SignalAction::Refuse => {
                    let name = signals::name(signal);
                    log_sink::line(&format!("{name} came, which asks nothing of the master: it goes on"));
                }
            }
        }
    }

    /// Does what is due: ends patience with children, looks for requests over time, queues workers past their lifetime for recycling.
    fn take_timers(&mut self, now: u64) {
        self.attendance.kill_late(now);
        self.hurry_prototypes_without_workers(now);
        self.control.look_if_due(now);
        self.tell_stop_progress(now);
        self.look_after_successor(now);
        self.notifier.feed_watchdog(now);
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
            self.scale(now);
        }
        self.watch_requests(now);
        self.report_what_is_due(now);
        self.take_file_news(now);
        if self.has_files_of_its_own() {
            self.look_at_logs(now);
        }
        self.restart_log_programs(now);
    }

    /// Does what files that have changed ask for.
    fn take_file_news(&mut self, now: u64) {
        for news in self.watches.take_changes(now) {
            let command = command_of(news.action);
            // What is asked of the instance is the other master's to do; code that has changed is ours to load too.
            let is_anothers = self.awaits_place() && !command.row().is_reload;
            if self.is_stopping() || is_anothers {
                continue;
            }
            let option = &news.option;
            let changes = news.words(self.fleet.settings.python.chdir.as_deref());
            if self.is_developed() && command.row().is_reload {
                self.reload_in_development(command, &changes, option, now);
                continue;
            }
            log_sink::line(&format!("{option}: {changes}"));
            self.obey(command, option, now);
        }
        self.release_held_back(now);
    }

    fn deadline_passed(&mut self, id: u64, now: u64) {
        let Some(state) = self.fleet.find(id).map(|child| child.state) else { return };
        if state == State::Ending && self.spares_halted(id, now) {
            return;
        }
        let Some(child) = self.fleet.find_mut(id) else { return };
        match state {
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
        let at_work = |child: &&Child| {
            child.is_request_worker() && child.pid.is_some() && child.state != State::Killed && child.progress == Progress::AtWork
        };
        let living = self.fleet.children.iter().filter(at_work);
        let workers: Vec<(u64, u32)> = living.filter_map(|child| child.row().map(|row| (child.id, row))).collect();
        let counts_waiting = self.fleet.settings.lifecycle.harakiri_manners.queue_threshold > 0;
        let waiting = if counts_waiting { self.fleet.waiting_connections() } else { 0 };
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
                        && let Err(error) = system::signal_thread(pid, request.thread, stack_signal())
                    {
                        log_sink::line(&format!("harakiri: {child} can't be asked for its stack: {error}"));
                    }
                    self.fleet.tell_hand_over(id);
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
        self.start_missing_helpers(now);
        self.share_out_turns();
        self.fleet.tell_pause();
    }

    /// Milliseconds that the next turn may wait.
    fn turn_ms(&self, now: u64) -> u64 {
        let late_ms = |child: &Child| {
            let timeout_ms = self.load_timeout_ms(child.generation).filter(|_| !child.is_prototype() && !self.is_stopping());
            child.late_ms(timeout_ms)
        };
        let times = |child: &Child| [child.deadline_ms, child.expires_ms, child.stopped_until_ms, late_ms(child)];
        let children = self.fleet.children.iter().flat_map(times);
        let watch = self.watch.as_ref().map(Watch::wake_ms);
        let log = bolide_log::is_waiting().then_some(now + bolide_log::RETRY_MS);
        let tickets = self.fleet.tickets.as_ref().map(TicketKeyRenewal::wake_ms);
        let memory = self.memory_watch.as_ref().filter(|_| !self.is_stopping()).map(MemoryWatch::wake_ms);
        let attendance = self.attendance.wake_ms(now);
        let scaling = self.elasticity.wake_ms(now).filter(|_| !self.is_stopping());
        let features = [
            watch,
            memory,
            scaling,
            log,
            tickets,
            attendance,
            Some(self.reporting.wake_ms()),
            self.watches.wake_ms(),
            self.logs.wake_ms().filter(|_| self.has_files_of_its_own()),
            self.log_programs.wake_ms(now),
            self.wake_for_generations(now),
            self.wake_for_pause(now),
            self.wake_for_settling(),
        ];
        let stop = self.stop_progress.as_ref().map(StopProgress::wake_ms);
        let successor = self.successor.as_ref().and_then(Successor::wake_ms);
        let others = [stop, successor, self.control.wake_ms(), self.notifier.wake_ms()];
        let wakes = children.chain(features).chain(others).flatten();
        wakes.min().map_or(TURN_MOST_MS, |wake| wake.saturating_sub(now).saturating_add(CLOCK_LAG_MS).min(TURN_MOST_MS))
    }
}

/// The command that the change of a watched file asks for.
fn command_of(action: FileAction) -> Command {
    match action {
        FileAction::Reload => Command::Reload,
        FileAction::BrutalReload => Command::ReloadBrutally,
        FileAction::ReloadWorkers => Command::ReloadWorkers,
        FileAction::ReloadChain => Command::ReloadChain,
        FileAction::ReopenLogs => Command::ReopenLogs,
        FileAction::RotateLogs => Command::RotateLogs,
        FileAction::Hook(number) => Command::Hook(number),
    }
}
