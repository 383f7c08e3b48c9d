//! The event loop of the master, over signals, reports of children and timers. The supervisor holds the parts of the instance,
//! each with a decision of its own. The files beside this one have what one part means for the others: `commands`, `reports`,
//! `ends` of processes, `timers`, `reloading`, `stopping`, and `succession` of masters.
//!
//! Every turn first handles the events (reports, signals, exits), then what is due, then compares the actual with the wanted
//! state and starts what is missing. So the next turn corrects a lost race, and the loop never blocks anywhere else. It does
//! not accept connections and does not know protocols. The master runs it.

mod commands;
pub mod ending;
mod ends;
mod reforking;
mod reloading;
mod reports;
mod stopping;
mod succession;
mod timers;

use bolide_contract::clock::now_ms;
use bolide_services::reloads::ReloadCause;
use bolide_supervision::daemonize::ParentPipe;
use bolide_supervision::error::StartError;
use bolide_supervision::files::file_watches::Watches;
use bolide_supervision::log_sink;
use bolide_supervision::polling::{self, ServerToken};
use bolide_supervision::processes::memory_watch::MemoryWatch;
use bolide_supervision::processes::oom_kills::OomKills;
use bolide_supervision::processes::signals::{self, Signals};
use bolide_supervision::sockets::emperor_link::EmperorLink;
use bolide_supervision::sockets::service_manager::Notifier;
use bolide_supervision::sockets::upgrade_pair::Predecessor;

use crate::alarms::Alarms;
use crate::children::Children;
use crate::children::child::KillReason;
use crate::children::handovers::Prospects;
use crate::children::single_signals::SingleSignals;
use crate::control::commands::Command;
use crate::control::endpoints::ControlEndpoints;
use crate::control::signals::{SignalAction, action};
use crate::daemons::attendants::Attendants;
use crate::development::Development;
use crate::generations::generation::Reason;
use crate::generations::reload::ReloadEvent;
use crate::generations::{Generations, helpers, workers};
use crate::log_keeping::LogKeeping;
use crate::outcomes::{Asker, Outcomes};
use crate::owner::{ConnectionMove, Owner, OwnerContext, Processes, Turn};
use crate::provision::Provision;
use crate::provision::configuration::Configuration;
use crate::signaling::{Instance, Signaling};
use crate::spans::exporters::Exporters;
use crate::statistics::reporting::Reporting;
use crate::statistics::routes::Door;
use crate::statistics::view::View;
use crate::supervisor::ending::{Ending, StopProgress};
use crate::terminal::EndsWithTerminal;
use crate::token::Token;
use crate::touch_hooks::TouchHooks;
use crate::upgrade::Takeover;
use crate::workers::harakiri::Watch;
use crate::workers::recycling::Recycling;
use crate::workers::scaling::{Scaled, Scaling};

/// The longest turn, in milliseconds: a safety net for a forgotten timer.
const MAX_TURN_MS: u64 = 10_000;
/// The scoreboard's clock may lag this much, in milliseconds. The loop waits this much longer for a timer, so that the timer is
/// due then.
const CLOCK_LAG_MS: u64 = 4;

/// The remains of an instance that has exited.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    /// The last line of the log.
    pub exit_message: Option<String>,
    pub provision: Provision,
    /// The `daemonize` parent, if it still waits for startup.
    pub parent_pipe: Option<ParentPipe>,
    /// The ordered stop, if there was one.
    pub stop_progress: Option<StopProgress>,
    /// Socket files and pidfiles are removed.
    pub removes_files: bool,
}

/// The parts that startup has made for the master.
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

/// Defines the supervisor by its parts, in three groups. A new part is in one of them: one with descriptors or a time is an
/// [`Owner`], and one with processes of no generation is a [`Processes`] too, or this does not compile.
macro_rules! parts {
    (
        plain { $($(#[$plain_doc:meta])* $plain:ident: $plain_type:ty,)* }
        owners { $($(#[$owner_doc:meta])* $owner:ident: $owner_type:ty,)* }
        processes { $($(#[$keeper_doc:meta])* $keeper:ident: $keeper_type:ty,)* }
    ) => {
        /// The running master.
        #[derive(Debug)]
        pub struct Supervisor {
            $($(#[$plain_doc])* $plain: $plain_type,)*
            $($(#[$owner_doc])* $owner: $owner_type,)*
            $($(#[$keeper_doc])* $keeper: $keeper_type,)*
        }

        impl Supervisor {
            /// Returns all parts that the loop wakes up for.
            fn owners(&self) -> impl Iterator<Item = &dyn Owner> {
                [$(&self.$owner as &dyn Owner,)* $(&self.$keeper as &dyn Owner,)*].into_iter()
            }

            /// Returns all parts with processes of no generation, in the order in which they end, and what they may use.
            fn processes(&mut self, now_ms: u64) -> (OwnerContext<'_>, impl Iterator<Item = &mut dyn Processes>) {
                let continues_elsewhere = self.takeover.continues_in_successor();
                let Supervisor { provision, ending, $($keeper,)* .. } = self;
                let (settings, privileges) = (provision.settings(), provision.privileges());
                let is_stopping = ending.is_stopping();
                let context = OwnerContext { settings, privileges, is_stopping, continues_elsewhere, now_ms };
                (context, [$($keeper as &mut dyn Processes,)*].into_iter())
            }
        }
    };
}

parts! {
    plain {
        oom_kills: OomKills,
        configuration: Configuration,
        ends_with_terminal: EndsWithTerminal,
    }
    owners {
        signals: Signals,
        children: Children,
        generations: Generations,
        provision: Provision,
        scaling: Scaling,
        recycling: Recycling,
        /// `None` if no request has a limit.
        requests: Option<Watch>,
        /// `None` if no worker has a limit.
        memory: Option<MemoryWatch>,
        ending: Ending,
        outcomes: Outcomes,
        notifier: Notifier,
        /// The emperor of a vassal.
        emperor: EmperorLink,
        control: ControlEndpoints,
        development: Development,
        reporting: Reporting,
        watches: Watches,
        signaling: Signaling,
        single_signals: SingleSignals,
    }
    processes {
        attendants: Attendants,
        exporters: Exporters,
        takeover: Takeover,
        logs: LogKeeping,
        touch_hooks: TouchHooks,
        alarms: Alarms,
    }
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
            emperor: EmperorLink::from_environment(settings.control.heartbeat_ms),
            notifier,
            development: Development::default(),
            attendants: if is_successor { Attendants::held() } else { Attendants::default() },
            exporters: Exporters::default(),
            touch_hooks: TouchHooks::default(),
            ends_with_terminal: EndsWithTerminal::of(settings, configuration.has_files()),
            alarms,
            signaling: Signaling::default(),
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

    /// Runs until the instance has exited. `parent_pipe` is the `daemonize` parent, which waits for startup.
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
                    Token::Emperor => self.take_emperor_events(now_ms()),
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
            if self.outcomes.report_if_settled(&self.children, &mut self.control.channel, now_ms()) {
                self.generations.reload.apply(ReloadEvent::Settled);
            }
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
        let turn = self.turn(now_ms());
        let (mut sources, mut wake_ms) = (Vec::new(), None);
        for waits in self.owners().map(|owner| owner.waits(&turn)) {
            sources.extend(waits.sources);
            wake_ms = [wake_ms, waits.wake_ms].into_iter().flatten().min();
        }
        let left = |wake_ms: u64| wake_ms.saturating_sub(turn.now_ms).saturating_add(CLOCK_LAG_MS).min(MAX_TURN_MS);
        polling::wait(&sources, wake_ms.map_or(MAX_TURN_MS, left) as u16).unwrap_or_else(|error| {
            log_sink::line(&format!("waiting for events failed: {error}"));
            Vec::new()
        })
    }

    /// Returns what owners need to know of the others before the loop waits.
    fn turn(&self, now_ms: u64) -> Turn {
        Turn {
            now_ms,
            is_stopping: self.ending.is_stopping(),
            owns_files: self.takeover.owns_files(),
            listens: self.listens(now_ms),
            connection_move: self.prospects().next_move(&self.children, now_ms),
        }
    }

    /// Returns whether a pending connection may start workers. In a pause, connections do not wait for a worker.
    fn listens(&self, now_ms: u64) -> bool {
        let may_add = !self.ending.is_stopping() && !self.children.is_paused();
        let serving = self.generations.serving().filter(|_| may_add);
        serving.is_some_and(|serving| serving.is_empty() || serving.has_room() && self.scaling.listens(now_ms))
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
        let Supervisor { children, generations, provision, attendants, exporters, outcomes, signaling, logs, recycling, .. } =
            self;
        let (is_stopping, reporting) = (self.ending.is_stopping(), &mut self.reporting);
        let refork = recycling.refork();
        let view =
            View { children, generations, provision, attendants, exporters, outcomes, signaling, logs, refork, is_stopping };
        (view, reporting)
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
    fn signaling(&mut self) -> (&mut Signaling, Instance<'_>, &mut Watches) {
        let Supervisor { signaling, children, generations, provision, watches, .. } = self;
        (signaling, Instance { children, generations, provision }, watches)
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

    /// Compares the actual with the wanted state, and starts what is missing.
    fn reconcile(&mut self, now: u64) {
        if self.ending.is_stopping() {
            return;
        }
        let span_socket = self.provision.span_socket().take();
        self.exporters.reconcile(self.provision.settings(), span_socket, self.provision.privileges(), now);
        // Each step may make work for the next. In this order, no work is left for a turn that only a timer begins.
        self.complete_if_serving(now);
        self.begin_reload_if_due(now);
        let Supervisor { children, generations, provision, recycling, .. } = self;
        recycling.advance(generations.serving(), generations.is_forming(), children, provision, now);
        for number in [generations.forming_number(), generations.serving_number()].into_iter().flatten() {
            workers::start_missing(number, generations, recycling.current_id(), children, provision, now);
        }
        if let Some(serving) = generations.serving_mut().filter(|_| !self.attendants.is_held()) {
            helpers::start_missing(serving, children, provision, now);
        }
        generations.assign_turns(children);
        let is_loading = generations.reload.is_loading() || self.watches.is_settling();
        self.development.let_requests_go(is_loading, provision.shown_error_page(), children, now);
        children.send_pause_orders();
        children.send_departure_orders();
        let (signaling, instance, watches) = self.signaling();
        signaling.note_generation(instance, watches, now);
        signaling.advance(instance, now);
    }
}
