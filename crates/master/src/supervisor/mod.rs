//! The event loop of the master, over signals, reports of children and timers. The supervisor holds the owners of the instance's
//! parts, each with a decision of its own. The consequences of events are in `events`, and steps that involve several owners are
//! in `steps`.
//!
//! Every turn first handles the events (reports, signals, exits), then what is due, then compares the actual with the wanted
//! state and starts what is missing. So the next turn corrects a lost race, and the loop never blocks anywhere else. It accepts
//! no connection and knows no protocol. The master runs it.

pub mod ending;
mod events;
mod steps;

use std::os::fd::AsFd;

use bolide_contract::clock::now_ms;
use bolide_contract::settings::ReloadOrder;
use bolide_contract::watching::FileAction;
use bolide_services::reloads::ReloadCause;
use bolide_supervision::daemonize::ParentPipe;
use bolide_supervision::error::StartError;
use bolide_supervision::files::file_watches::{FileChange, Watches};
use bolide_supervision::log_sink;
use bolide_supervision::polling::{self, ServerToken, Source};
use bolide_supervision::process_state::is_zombie;
use bolide_supervision::processes::memory_watch::MemoryWatch;
use bolide_supervision::processes::oom_kills::OomKills;
use bolide_supervision::processes::signals::{self, Signals};
use bolide_supervision::sockets::service_manager::Notifier;
use bolide_supervision::sockets::upgrade_pair::Predecessor;

use crate::alarms::Alarms;
use crate::children::child::{Child, KillReason, State};
use crate::children::handovers::Prospects;
use crate::children::single_signals::SingleSignals;
use crate::children::{Children, LOST_MS};
use crate::control::commands::Command;
use crate::control::endpoints::ControlEndpoints;
use crate::control::signals::{SignalAction, action};
use crate::daemons::attendants::Attendants;
use crate::development::{Development, extend_if_halted, has_halted_worker};
use crate::generations::generation::Reason;
use crate::generations::{Generations, helpers, workers};
use crate::log_keeping::LogKeeping;
use crate::outcomes::{Asker, Outcomes};
use crate::provision::Provision;
use crate::provision::configuration::Configuration;
use crate::provision::connection_queue::{self, ConnectionMove};
use crate::signalling::{Instance, Signalling};
use crate::spans::exporters::Exporters;
use crate::statistics::reporting::Reporting;
use crate::statistics::routes::Door;
use crate::statistics::view::View;
use crate::supervisor::ending::{Ending, StopProgress};
use crate::terminal::EndsWithTerminal;
use crate::token::Token;
use crate::touch_hooks::TouchHooks;
use crate::upgrade::Takeover;
use crate::workers::harakiri::{Watch, watch_requests};
use crate::workers::recycling::Recycling;
use crate::workers::scaling::{Scaled, Scaling};
use crate::workers::{memory_limits, pausing};

/// The longest turn, in milliseconds: a safety net for a forgotten timer.
const MAX_TURN_MS: u64 = 10_000;
/// The scoreboard's clock may lag this much, in milliseconds. The loop waits this much longer for a timer, so that the timer is
/// due then.
const CLOCK_LAG_MS: u64 = 4;
/// The remains of an instance that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    /// The last line of the log.
    pub exit_message: Option<String>,
    pub provision: Provision,
    /// The `daemonize` parent, if it still waits for the start.
    pub parent_pipe: Option<ParentPipe>,
    /// The ordered stop, if there was one.
    pub stop_progress: Option<StopProgress>,
    /// Socket files and pidfiles are removed.
    pub removes_files: bool,
}

/// The parts that a start has made for the master.
#[derive(Debug)]
pub struct Started {
    pub provision: Provision,
    pub children: Children,
    pub signals: Signals,
    pub configuration: Configuration,
    pub reporting: Reporting,
    pub control: ControlEndpoints,
    pub logs: LogKeeping,
    pub alarms: Alarms,
    /// The previous master, which we replace.
    pub predecessor: Option<Predecessor>,
}

/// The running master.
#[derive(Debug)]
pub struct Supervisor {
    children: Children,
    generations: Generations,
    provision: Provision,
    recycling: Recycling,
    scaling: Scaling,
    /// `None` if no request has a limit.
    requests: Option<Watch>,
    /// `None` if no worker has a limit.
    memory: Option<MemoryWatch>,
    oom_kills: OomKills,
    ending: Ending,
    takeover: Takeover,
    outcomes: Outcomes,
    notifier: Notifier,
    control: ControlEndpoints,
    configuration: Configuration,
    logs: LogKeeping,
    development: Development,
    attendants: Attendants,
    exporters: Exporters,
    alarms: Alarms,
    reporting: Reporting,
    watches: Watches,
    signalling: Signalling,
    touch_hooks: TouchHooks,
    signals: Signals,
    single_signals: SingleSignals,
    ends_with_terminal: EndsWithTerminal,
}

impl Supervisor {
    pub fn new(started: Started) -> Supervisor {
        let Started { provision, children, signals, configuration, mut reporting, control, logs, alarms, predecessor } = started;
        let settings = provision.settings();
        let mut notifier = Notifier::from_environment();
        let is_successor = predecessor.is_some();
        if is_successor {
            notifier.be_silent();
            reporting.await_takeover();
        }
        Supervisor {
            generations: Generations::default(),
            recycling: Recycling::new(),
            scaling: Scaling::new(settings, now_ms()),
            requests: Watch::for_settings(settings),
            memory: MemoryWatch::new(&settings.recycling, &settings.helpers),
            oom_kills: OomKills::new(),
            watches: Watches::new(&settings.watching, now_ms()),
            ending: Ending::default(),
            takeover: Takeover::new(predecessor),
            outcomes: Outcomes::default(),
            notifier,
            development: Development::default(),
            attendants: if is_successor { Attendants::held() } else { Attendants::default() },
            exporters: Exporters::default(),
            touch_hooks: TouchHooks::default(),
            ends_with_terminal: EndsWithTerminal::of(settings, configuration.has_files()),
            alarms,
            signalling: Signalling::default(),
            single_signals: SingleSignals::default(),
            children,
            provision,
            control,
            configuration,
            logs,
            reporting,
            signals,
        }
    }

    /// Starts the first generation.
    ///
    /// # Errors
    /// Its prototype can't be started.
    pub fn start(&mut self) -> Result<(), StartError> {
        if let Some(most_ms) = self.provision.settings().lifecycle.load_timeout_ms {
            self.notifier.starting(most_ms);
        }
        self.generations.begin(Reason::First, &mut self.children, &self.provision, now_ms())
    }

    /// Removes all files after a failed start.
    pub fn remove_files(&mut self) {
        self.provision.remove_files();
        self.reporting.remove_files();
        self.control.remove_files();
    }

    pub fn provision(&self) -> &Provision {
        &self.provision
    }

    /// Runs until the instance has ended. `parent_pipe` is the `daemonize` parent, which waits for the start.
    pub fn run(mut self, parent_pipe: Option<ParentPipe>) -> Ended {
        self.ending.parent_pipe = parent_pipe;
        loop {
            let mut connection_pending = false;
            for token in self.wait_for_events() {
                match token {
                    Token::Child(id) => self.take_reports(id, now_ms()),
                    Token::Printed => self.logs.read_captured(now_ms()),
                    Token::Watches => self.watches.ring(now_ms()),
                    Token::Alarms => self.alarms.take_messages(&self.provision, now_ms()),
                    Token::AlarmDescriptor(number) => self.alarms.read_descriptor(number, &self.provision, now_ms()),
                    Token::Attendant(pid) => self.read_attendant_reports(pid, now_ms()),
                    Token::Exporter(pid) => self.exporters.read_reports(pid),
                    Token::Listeners => connection_pending = true,
                    Token::Connections => self.move_connections(now_ms()),
                    Token::Stats(token) => self.report_to(Door::Statistics, token),
                    Token::Metrics(token) => self.report_to(Door::Metrics, token),
                    Token::Successor => self.take_successor_events(now_ms()),
                    Token::Predecessor => self.take_predecessor_events(now_ms()),
                    Token::Fifo => self.take_letters(now_ms()),
                    Token::Control(ServerToken::Listener) => self.control.channel.accept(now_ms()),
                    Token::Control(ServerToken::Client(id)) => self.take_question(id, now_ms()),
                    // Signals are handled last, so that a command is executed with all other events known.
                    Token::Signals => {}
                }
            }
            self.take_signals();
            self.reap(now_ms());
            if connection_pending && !self.ending.is_stopping() {
                self.scaled().connection_arrived(now_ms());
            }
            self.take_timers(now_ms());
            self.reconcile(now_ms());
            self.outcomes.report_if_settled(&self.children, &mut self.control.channel, now_ms());
            bolide_log::flush();
            if let Some(status) = self.finished(now_ms()) {
                self.logs.finish_captured(now_ms());
                for child in self.children.iter() {
                    log_sink::line(&format!("{child} can't be killed: leaving it behind"));
                }
                let removes_files = self.ending.removes_files(self.provision.settings());
                if removes_files {
                    self.reporting.remove_files();
                }
                self.touch_hooks.kill();
                self.control.remove_files();
                self.ending.log_end(now_ms());
                let Supervisor { provision, ending, .. } = self;
                let Ending { progress: stop_progress, exit_message, parent_pipe, .. } = ending;
                return Ended { status, exit_message, provision, parent_pipe, stop_progress, removes_files };
            }
        }
    }

    /// Waits for an event or the next timer.
    fn wait_for_events(&self) -> Vec<Token> {
        let mut sources = vec![Source::readable(Token::Signals, self.signals.as_fd())];
        sources.extend(self.children.sources());
        sources.extend(self.watches.source(Token::Watches));
        sources.extend(self.attendants.sources());
        sources.extend(self.exporters.sources());
        sources.extend(self.alarms.sources());
        sources.extend(self.listening_sources(now_ms()));
        let connection_move = self.prospects().next_move(&self.children, now_ms());
        sources.extend(self.provision.connection_queue().source(connection_move));
        sources.extend(self.logs.source());
        sources.extend(self.reporting.sources());
        sources.extend(self.takeover.sources());
        sources.extend(self.control.sources());
        polling::wait(&sources, self.turn_ms(now_ms()) as u16).unwrap_or_else(|error| {
            log_sink::line(&format!("waiting for events failed: {error}"));
            Vec::new()
        })
    }

    /// Returns the listening sockets, if a pending connection may start workers. In a pause, connections do not wait for a
    /// worker.
    fn listening_sources(&self, now_ms: u64) -> impl Iterator<Item = Source<'_, Token>> {
        let may_add = !self.ending.is_stopping() && !self.children.is_paused();
        let serving = self.generations.serving().filter(|_| may_add);
        let may_start_workers =
            serving.is_some_and(|serving| serving.is_empty() || serving.has_room() && self.scaling.listens(now_ms));
        may_start_workers.then(|| self.provision.listeners().sources(Token::Listeners)).into_iter().flatten()
    }

    fn prospects(&self) -> Prospects {
        Prospects {
            is_stopping: self.ending.is_stopping(),
            awaits_takeover: self.takeover.awaits_takeover(),
            continues_elsewhere: self.takeover.successor_takes_connections(),
        }
    }

    /// Takes connections of killed workers out of the queue, or puts them back.
    fn move_connections(&mut self, now_ms: u64) {
        match self.prospects().next_move(&self.children, now_ms) {
            ConnectionMove::None => {}
            ConnectionMove::Take => self.provision.take_connections(now_ms),
            ConnectionMove::Give => self.provision.connection_queue_mut().give(now_ms),
        }
    }

    /// Kills a child as soon as it has handed over the connections that others can serve.
    fn condemn(&mut self, id: u64, kill_reason: KillReason, now_ms: u64) {
        let has_takers = self.prospects().has_takers();
        self.children.condemn(id, kill_reason, None, has_takers, &self.provision, now_ms);
    }

    /// Returns the view for statistics and status, and the reporting that uses it.
    fn view(&mut self) -> (View<'_>, &mut Reporting) {
        let Supervisor { children, generations, provision, attendants, exporters, outcomes, signalling, logs, reporting, .. } =
            self;
        let is_stopping = self.ending.is_stopping();
        (View { children, generations, provision, attendants, exporters, outcomes, signalling, logs, is_stopping }, reporting)
    }

    fn report_to(&mut self, door: Door, token: ServerToken) {
        let (view, reporting) = self.view();
        reporting.serve(door, token, view, now_ms());
    }

    fn scaled(&mut self) -> Scaled<'_> {
        let Supervisor { scaling, generations, children, provision, recycling, .. } = self;
        Scaled { scaling, generations, children, provision, recycling }
    }

    /// uWSGI's signals, with what their decisions need.
    fn signalling(&mut self) -> (&mut Signalling, Instance<'_>, &mut Watches) {
        let Supervisor { signalling, children, generations, provision, watches, .. } = self;
        (signalling, Instance { children, generations, provision }, watches)
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            self.single_signals.note_own(signal, now_ms());
            match action(signal) {
                SignalAction::Command(Command::Reload) if self.ends_with_terminal.is_due() => {
                    // The shell and the kernel may both send one.
                    if !self.ending.is_stopping() {
                        log_sink::line("the terminal has been closed");
                        self.stop(0, now_ms());
                    }
                }
                SignalAction::Command(command) => {
                    let asker = Asker { words: &signals::name(signal), cause: ReloadCause::Signal };
                    self.obey(command, asker, now_ms());
                }
                // The loop reaps children in every turn.
                SignalAction::Reap | SignalAction::Ignore => {}
                SignalAction::Refuse => {
                    let name = signals::name(signal);
                    log_sink::line(&format!("ignoring {name}"));
                }
            }
        }
    }

    /// Handles timers: deadlines of children, requests over time, workers past their lifetime.
    fn take_timers(&mut self, now: u64) {
        self.attendants.kill_late(now);
        self.exporters.kill_late(now);
        self.children.shorten_prototype_deadlines(now);
        self.control.check_if_due(now);
        self.log_stop_progress(now);
        self.take_single_signals(now);
        let has_daemons = self.attendants.has_daemons() || self.children.has_helpers();
        self.takeover.check_successor(self.provision.settings().lifecycle.load_timeout_ms, has_daemons, now);
        self.notifier.feed_watchdog(now);
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
        self.provision.connection_queue_mut().close_late(now);
        if !self.ending.is_stopping() {
            self.recycling.enqueue_expired(&mut self.children, now);
            self.kill_late_starters(now);
            if let Some(watch) = &mut self.memory {
                memory_limits::check(watch, &mut self.children, &mut self.recycling, &self.provision, now);
            }
            if self.scaled().scale(now) {
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
            let (signalling, instance, _) = self.signalling();
            signalling.fire_due(instance, now);
        }
        if self.takeover.owns_files() {
            self.logs.rotate_due(&self.children, now);
        }
        self.logs.write_due(now);
        self.logs.reach_again(&self.children, &self.provision, now);
        self.alarms.take_timers(self.provision.settings(), self.provision.privileges(), now);
        for number in self.alarms.take_signals() {
            let (signalling, instance, _) = self.signalling();
            signalling.raise_in_service(number, instance);
        }
    }

    /// Executes the commands that changed files request.
    fn take_file_changes(&mut self, now: u64) {
        // A request that comes before the change has settled is for the new code already.
        if self.provision.is_developed() && !self.ending.is_stopping() && self.watches.sees_changed_import() {
            self.hold_requests(now);
        }
        for change in self.watches.take_changes(now) {
            let Some(command) = command_of(change.action) else {
                self.raise_for_file(&change);
                continue;
            };
            // The other master executes commands for the instance; changed code must be loaded by us too.
            let is_for_predecessor = self.takeover.awaits_takeover() && !command.row().is_reload;
            if self.ending.is_stopping() || is_for_predecessor {
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
        if !self.ending.is_stopping()
            && let Some((command, option)) = self.development.release(&self.children)
        {
            self.hold_requests(now);
            self.obey(command, Asker { words: &option, cause: ReloadCause::of_option(&option) }, now);
        }
    }

    /// Returns why the old generation is to end before the new one begins, if it is.
    fn stops_first(&self) -> Option<&'static str> {
        if self.provision.settings().lifecycle.reload_order == ReloadOrder::StopFirst {
            return Some("reload-order");
        }
        self.children.iter().any(|child| child.has_debugger_port).then_some("only one process can have the debugger's port")
    }

    /// Lets requests wait for changed code, except while a debugger has stopped the worker.
    fn hold_requests(&mut self, now: u64) {
        let overlaps = self.generations.serving().is_some() && self.stops_first().is_none();
        if overlaps && !has_halted_worker(&self.children) {
            self.development.hold_requests(&mut self.children, now);
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
        let (signalling, instance, _) = self.signalling();
        signalling.raise_in_service(number, instance);
    }

    fn deadline_passed(&mut self, id: u64, now: u64) {
        let Some(child) = self.children.find_mut(id) else { return };
        match child.state {
            // A killed child has no further deadline: a stop does not wait for it, and otherwise its row is free only when it has
            // ended.
            State::Killed | State::Ended => {
                child.deadline_ms = None;
                log_sink::line(&format!("{child} was killed and has not ended yet"));
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

    /// Compares the actual with the wanted state, and starts what is missing.
    fn reconcile(&mut self, now: u64) {
        if self.ending.is_stopping() {
            return;
        }
        self.attendants.start_if_due(self.provision.settings(), self.provision.privileges(), now);
        let span_socket = self.provision.span_socket().take();
        self.exporters.reconcile(self.provision.settings(), span_socket, self.provision.privileges(), now);
        // Each step may make work for the next. In this order, no work is left for a turn that only a timer begins.
        self.complete_if_serving(now);
        self.begin_reload_if_due(now);
        let Supervisor { children, generations, provision, recycling, .. } = self;
        recycling.advance(generations.is_forming(), children, provision, now);
        for number in [generations.forming_number(), generations.serving_number()].into_iter().flatten() {
            workers::start_missing(number, generations, recycling.current_id(), children, provision, now);
        }
        if let Some(serving) = generations.serving_mut().filter(|_| !self.attendants.is_held()) {
            helpers::start_missing(serving, children, provision, now);
        }
        generations.assign_turns(children);
        let is_loading = generations.is_loading() || self.watches.is_settling();
        self.development.let_requests_go(is_loading, provision.shown_error_page(), children, now);
        children.send_pause_orders();
        let (signalling, instance, watches) = self.signalling();
        signalling.note_generation(instance, watches, now);
        signalling.advance(instance, now);
    }

    /// Returns how long the next turn may wait, in milliseconds.
    fn turn_ms(&self, now: u64) -> u64 {
        let is_stopping = self.ending.is_stopping();
        let late_ms = |child: &Child| {
            let timeout_ms = self.generations.load_timeout_ms(child.generation, &self.provision);
            child.late_ms(timeout_ms.filter(|_| !child.is_prototype() && !is_stopping))
        };
        let times = |child: &Child| [child.deadline_ms, child.expires_ms, child.stopped_until_ms, late_ms(child)];
        let children = self.children.iter().flat_map(times);
        let owners = [
            self.requests.as_ref().map(Watch::wake_ms),
            self.memory.as_ref().filter(|_| !is_stopping).map(MemoryWatch::wake_ms),
            self.scaling.wake_ms(now).filter(|_| !is_stopping),
            self.provision.wake_for_tickets(),
            self.provision.wake_for_memories(),
            self.attendants.wake_ms(now),
            self.exporters.wake_ms(now),
            self.development.wake_ms().filter(|_| !is_stopping),
            self.alarms.wake_ms(),
            Some(self.reporting.wake_ms()),
            self.watches.wake_ms(),
            self.signalling.wake_ms(now).filter(|_| !is_stopping),
            self.single_signals.wake_ms(),
            self.logs.wake_ms(self.takeover.owns_files(), now),
            self.generations.wake_ms(&self.provision, now),
            pausing::wake_ms(&self.children, now),
            self.outcomes.wake_ms(),
            self.ending.wake_ms(),
            self.takeover.wake_ms(),
            self.control.wake_ms(),
            self.notifier.wake_ms(),
            self.children.wake_for_handovers(now),
            (self.provision.connection_queue().held() > 0).then_some(now + connection_queue::LOOK_MS),
        ];
        let wakes = children.chain(owners).flatten();
        wakes.min().map_or(MAX_TURN_MS, |wake| wake.saturating_sub(now).saturating_add(CLOCK_LAG_MS).min(MAX_TURN_MS))
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
