//! The resources from which generations are made: the current settings, sockets and program, those of the plan that a reload has
//! read, and resources that all processes share. It starts prototypes and does not keep records of them. The master runs it.

pub mod changes;
pub mod child_of_user;
pub mod configuration;
pub mod connection_queue;
pub mod data_files;
pub mod error_report;
pub mod language;
pub mod load_check;
pub mod memories;
pub mod message_queues;
pub mod own_program;
pub mod plugin;
pub mod program;
pub mod python;
pub mod renewing;
pub mod spool_directories;
mod store_files;
pub mod vassals_check;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use bolide_contract::boot::{Boot, BulkheadFiles, SessionFiles};
use bolide_contract::clock::now_ms;
use bolide_contract::message::order_pair;
use bolide_contract::settings::Settings;
use bolide_contract::succession::HandedQueue;
use bolide_scoreboard::Scoreboard;
use bolide_scoreboard::log_losses::LogLosses;
use bolide_supervision::error::StartError;
use bolide_supervision::files::pidfile;
use bolide_supervision::log_sink;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::child_setup::RawConfinement;
use bolide_supervision::processes::reader_permit::ReaderPermit;
use bolide_supervision::processes::spawn::{self, Launch};
use bolide_supervision::processes::{environment, process_attributes};
use bolide_supervision::sockets::bulkheads::{Bulkheads, HandedBulkhead};
use bolide_supervision::sockets::listen_queue::QueueWatch;
use bolide_supervision::sockets::listeners::Listeners;
use bolide_supervision::sockets::sessions::Sessions;
use bolide_supervision::sockets::ticket_keys::TicketKeyRenewal;
use nix::unistd::Pid;

use crate::owner::{Owner, Turn, Waits};
use crate::provision::connection_queue::ConnectionQueue;
use crate::provision::error_report::ErrorReport;
use crate::provision::memories::Memories;
use crate::provision::message_queues::MessageQueues;
use crate::provision::program::Program;
use crate::spans::socket::SpanSocket;
use crate::token::Token;

/// The current resources, the planned ones, and those that stay for the life of an instance.
#[derive(Debug)]
pub struct Provision {
    settings: Settings,
    listeners: Listeners,
    memories: Memories,
    /// When the files of memories are written to the disk, if any are.
    sync_ms: Option<u64>,
    /// `None` if no TLS session can be resumed, and no cookie is sealed.
    tickets: Option<TicketKeyRenewal>,
    /// The plan for the forming generation, if the configuration was read again for it; the fields above are those in force.
    coming: Option<Plan>,
    program: Program,
    privileges: Option<Privileges>,
    memory: OwnedFd,
    connection_queue: ConnectionQueue,
    sessions: Sessions,
    bulkheads: Bulkheads,
    /// The memory file of the count of lost lines.
    log_losses: OwnedFd,
    /// In development: see [`error_report::error_page`].
    error_page: Option<OwnedFd>,
    room: Room,
    queue_watch: QueueWatch,
    message_queues: MessageQueues,
    span_socket: SpanSocket,
    reader_permit: ReaderPermit,
}

/// The settings, sockets and program of a generation.
#[derive(Debug)]
pub struct Plan {
    pub settings: Settings,
    pub listeners: Listeners,
    pub memories: Memories,
    pub program: Program,
}

/// The capacity of the scoreboard, so that a reload may bring more processes, helpers or threads. Memory that no process touches
/// costs nothing.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub processes: u32,
    pub helpers: u32,
    pub threads: u32,
}

/// A prototype that was executed: its process, the master's end of its order socket, and the report of why it can't load the
/// application.
pub struct Executed {
    pub pid: Pid,
    pub channel: OwnedFd,
    pub note: ErrorReport,
}

/// Which prototype is executed.
#[derive(Debug, Clone, Copy)]
pub struct PrototypeStart {
    pub generation: u32,
    /// Which of the two generations that may serve at the same time it is ([`SessionFiles::side`]).
    pub side: bool,
    /// Its workers load the application.
    pub is_lazy: bool,
    pub no_generation_serves: bool,
}

impl Provision {
    /// Returns the resources of the first generation, and the master's view of the scoreboard.
    ///
    /// # Errors
    /// Not enough memory for what processes share.
    pub fn new(
        settings: Settings,
        listeners: Listeners,
        memories: Memories,
        program: Program,
        privileges: Option<Privileges>,
    ) -> io::Result<(Provision, Scoreboard)> {
        let (room, (whole, memory)) = create_scoreboard(&settings)?;
        let scoreboard = whole.within(Room::without_spare(&settings).rows(), settings.workers.threads.most());
        let tickets = TicketKeyRenewal::create(&settings, now_ms())?;
        let error_page = settings.development.is_some().then(error_report::error_page).transpose()?;
        let connection_queue = ConnectionQueue::new()?;
        let mut sessions = Sessions::default();
        sessions.prepare(&settings)?;
        let (losses, log_losses) = LogLosses::create()?;
        bolide_log::losses::share(losses);
        let queue_watch = QueueWatch::default();
        let coming = None;
        let provision = Provision {
            settings,
            listeners,
            memories,
            sync_ms: None,
            tickets,
            coming,
            program,
            privileges,
            memory,
            connection_queue,
            sessions,
            bulkheads: Bulkheads::default(),
            log_losses,
            error_page,
            room,
            queue_watch,
            message_queues: MessageQueues::default(),
            span_socket: SpanSocket::default(),
            reader_permit: ReaderPermit::new()?,
        };
        Ok((provision, scoreboard))
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the longest time that any process of the settings in force has for its work in progress, in milliseconds.
    pub fn longest_mercy_ms(&self) -> u64 {
        let of_helpers = self.settings.helpers.iter().filter_map(|helper| helper.reload_mercy_ms);
        of_helpers.fold(self.settings.lifecycle.reload_mercy_ms, u64::max)
    }

    pub fn is_developed(&self) -> bool {
        self.settings.development.is_some()
    }

    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Returns the interpreter that runs prototypes, for messages.
    pub fn program(&self) -> &Program {
        self.coming.as_ref().map_or(&self.program, |coming| &coming.program)
    }

    /// Returns the settings of the forming or the next generation.
    pub fn coming_settings(&self) -> &Settings {
        self.coming.as_ref().map_or(&self.settings, |coming| &coming.settings)
    }

    pub fn room(&self) -> Room {
        self.room
    }

    /// Returns where the scoreboard is, for tools that look at it in each moment (`bolide profile`).
    pub fn scoreboard_place(&self) -> serde_json::Value {
        let (rows, slots) = (self.room.rows(), self.room.threads);
        serde_json::json!({
            "descriptor": self.memory.as_raw_fd(),
            "rows": rows,
            "slots": slots,
            "bytes": Scoreboard::bytes(rows, slots),
        })
    }

    /// Returns the permission that readers of memory need from processes.
    pub fn reader_permit(&self) -> ReaderPermit {
        self.reader_permit
    }

    /// Returns the user that prototypes and workers run as, if it differs from the master's.
    pub fn privileges(&self) -> Option<&Privileges> {
        self.privileges.as_ref()
    }

    /// Sets the plan for the next generation, replacing an earlier one.
    pub fn plan(&mut self, plan: Plan) {
        self.drop_plan_but(Some(&plan));
        self.coming = Some(plan);
    }

    /// Drops the plan of a generation that failed, and closes the sockets that were bound for it.
    pub fn drop_plan(&mut self) {
        self.drop_plan_but(None);
    }

    fn drop_plan_but(&mut self, next: Option<&Plan>) {
        let Some(mut dropped) = self.coming.take() else { return };
        let kept = [Some(&self.listeners), next.map(|plan| &plan.listeners)];
        for list in kept.into_iter().flatten() {
            dropped.listeners.forget(list);
        }
        drop(dropped.listeners.end());
        dropped.listeners.remove_files();
    }

    /// Returns the sockets for these settings: those that are open already, in the plan or in force, and new ones.
    ///
    /// # Errors
    /// A socket can't be bound.
    pub fn listeners_for(&self, settings: &Settings) -> Result<Listeners, StartError> {
        let pending = self.coming.as_ref().map(|coming| &coming.listeners);
        self.listeners.renewed(pending, &settings.listeners, self.privileges())
    }

    /// `cache-store-sync`: begins to write the files of caches to the disk when it is time.
    pub fn sync_memories_if_due(&mut self, now_ms: u64) {
        let every_ms = self.memories.sync_every_ms();
        match (every_ms, self.sync_ms) {
            (None, _) => self.sync_ms = None,
            (Some(every_ms), None) => self.sync_ms = Some(now_ms + every_ms),
            (Some(every_ms), Some(due_ms)) if now_ms >= due_ms => {
                self.sync_ms = Some(now_ms + every_ms);
                self.memories.begin_sync().iter().for_each(|line| log_sink::line(line));
            }
            _ => {}
        }
    }

    pub fn memories_in_force(&self) -> &Memories {
        &self.memories
    }

    /// Returns the memory for these settings: that which is in the plan or in force, and new one. `changed` gets a line for each
    /// memory that begins empty.
    ///
    /// # Errors
    /// There is no memory.
    pub fn memories_for(&self, settings: &Settings, changed: &mut Vec<String>) -> io::Result<Memories> {
        self.memories.for_settings(&settings.services, self.privileges(), changed)
    }

    /// Replaces files of the coming generation's memories that another process has cut: it could not be loaded with them.
    pub fn mend_memories(&mut self) {
        let memories = self.coming.as_mut().map_or(&mut self.memories, |coming| &mut coming.memories);
        memories.mend(self.privileges.as_ref()).iter().for_each(|line| log_sink::line(line));
    }

    /// Creates the keys for session tickets if they are missing: the first TLS listener may have come with a reload.
    ///
    /// # Errors
    /// Not enough memory for the keys.
    pub fn prepare_tickets(&mut self) -> io::Result<()> {
        if self.tickets.is_none() {
            self.tickets = TicketKeyRenewal::create(self.coming_settings(), now_ms())?;
        }
        Ok(())
    }

    /// The descriptor of the keys' memory, if there are keys.
    pub fn ticket_keys(&self) -> Option<i32> {
        self.tickets.as_ref().map(|tickets| tickets.ring().memory().as_raw_fd())
    }

    /// Makes the queues of messages that the coming settings need. Returns lines for the log.
    ///
    /// # Errors
    /// No socket can be made.
    pub fn prepare_message_queues(&mut self) -> io::Result<Vec<String>> {
        let settings = self.coming.as_ref().map_or(&self.settings, |coming| &coming.settings);
        self.message_queues.extend_for(settings)
    }

    /// Takes over the queues of the previous master, and its keys, which open what it has sealed.
    pub fn take_handed(&mut self, queues: MessageQueues, ticket_keys: Option<OwnedFd>) {
        self.message_queues = queues;
        match ticket_keys.map(|handed| TicketKeyRenewal::succeed(&self.settings, &handed, now_ms())) {
            Some(Ok(tickets)) => self.tickets = tickets,
            Some(Err(error)) => log_sink::line(&format!(
                "the keys of the previous master can't be used, so TLS sessions and cookies begin again: {error}"
            )),
            None => {}
        }
    }

    pub fn message_queues(&self) -> &MessageQueues {
        &self.message_queues
    }

    pub fn connection_queue(&self) -> &ConnectionQueue {
        &self.connection_queue
    }

    pub fn connection_queue_mut(&mut self) -> &mut ConnectionQueue {
        &mut self.connection_queue
    }

    /// Takes over the queue of the previous master. Returns whether its packets are ours.
    pub fn take_connection_queue(&mut self, handed: (HandedQueue, OwnedFd, OwnedFd)) -> bool {
        let queue = ConnectionQueue::handed(handed);
        let is_taken = queue.is_some();
        if let Some(queue) = queue {
            self.connection_queue = queue;
        }
        is_taken
    }

    /// Takes connections of killed workers out of the queue.
    pub fn take_connections(&mut self, now_ms: u64) {
        let planned = self.coming.as_ref().map(|coming| &coming.listeners);
        let listeners: Vec<&Listeners> = [&self.listeners].into_iter().chain(planned).collect();
        self.connection_queue.take(&listeners, now_ms);
    }

    /// Makes what workers need to find the one that has a session, if the coming settings need it.
    ///
    /// # Errors
    /// No memory or no descriptors are left.
    pub fn prepare_sessions(&mut self) -> io::Result<()> {
        let settings = self.coming.as_ref().map_or(&self.settings, |coming| &coming.settings);
        self.sessions.prepare(settings)
    }

    /// Takes over what the previous master has handed, and makes the bulkheads that are missing.
    ///
    /// # Errors
    /// No memory or no descriptors are left.
    pub fn take_bulkheads(&mut self, handed: Vec<HandedBulkhead>) -> io::Result<()> {
        self.bulkheads.take_handed(handed);
        self.bulkheads.prepare(&self.settings)
    }

    /// Makes the bulkheads that the coming settings need.
    ///
    /// # Errors
    /// No memory or no descriptors are left.
    pub fn prepare_bulkheads(&mut self) -> io::Result<()> {
        let settings = self.coming.as_ref().map_or(&self.settings, |coming| &coming.settings);
        self.bulkheads.prepare(settings)
    }

    pub fn bulkheads(&self) -> &Bulkheads {
        &self.bulkheads
    }

    /// Makes the socket for spans if the coming settings need it.
    ///
    /// # Errors
    /// No socket can be made.
    pub fn prepare_span_socket(&mut self) -> io::Result<()> {
        let settings = self.coming.as_ref().map_or(&self.settings, |coming| &coming.settings);
        self.span_socket.prepare(settings)
    }

    /// Returns the file of the page that says to browsers why new code isn't there, if they are told.
    pub fn shown_error_page(&self) -> Option<&OwnedFd> {
        let is_shown = self.settings.development.as_ref().is_some_and(|development| development.shows_tracebacks);
        self.error_page.as_ref().filter(|_| is_shown)
    }

    pub fn span_socket(&self) -> &SpanSocket {
        &self.span_socket
    }

    pub fn rotate_tickets_if_due(&mut self, now_ms: u64) {
        if let Some(tickets) = &mut self.tickets {
            tickets.rotate_if_due(now_ms);
        }
    }

    /// Puts the plan of the generation that formed into force. Returns the previous resources, and the errors of sockets that
    /// could not be adjusted.
    pub fn adopt_plan(&mut self) -> Option<(Plan, Vec<String>)> {
        let coming = self.coming.take()?;
        let settings = std::mem::replace(&mut self.settings, coming.settings);
        let listeners = std::mem::replace(&mut self.listeners, coming.listeners);
        let memories = std::mem::replace(&mut self.memories, coming.memories);
        let dropped = self.message_queues.keep_for(&self.settings);
        self.bulkheads.keep_for(&self.settings);
        let program = std::mem::replace(&mut self.program, coming.program);
        let troubles = self.listeners.adjust(&settings.listeners, &self.settings.listeners, self.privileges.as_ref());
        let not_taken = environment::take(&self.settings.application, self.privileges.is_some());
        let troubles = troubles.into_iter().chain(dropped).chain(not_taken);
        Some((Plan { settings, listeners, memories, program }, troubles.collect()))
    }

    /// Shuts the sockets down. Returns the connections that were not accepted yet.
    pub fn end_listeners(&mut self) -> Vec<(u32, OwnedFd)> {
        self.listeners.end()
    }

    /// Another master owns the sockets, their files and the pidfiles from now on.
    pub fn hand_over(&mut self) {
        self.listeners.hand_over();
        self.settings.lifecycle.vacuum = false;
    }

    /// Removes socket files and pidfiles at the end of the instance that made them.
    pub fn remove_files(&self) {
        self.listeners.remove_files();
        pidfile::remove_all(&self.settings, self.privileges());
    }

    /// We own the sockets from now on.
    pub fn take_over(&mut self) {
        self.listeners.own(self.privileges.as_ref());
    }

    /// Executes the prototype of a generation.
    ///
    /// # Errors
    /// The program can't be executed, or no file descriptor is available.
    pub fn execute_prototype(&self, start: PrototypeStart) -> io::Result<Executed> {
        let PrototypeStart { generation, side, is_lazy, no_generation_serves } = start;
        let (near, far) = order_pair()?;
        let note = ErrorReport::new()?;
        let settings = self.coming_settings();
        let listeners = self.coming.as_ref().map_or(&self.listeners, |coming| &coming.listeners);
        let descriptors = listeners.descriptors();
        let mut inherited: Vec<i32> = descriptors.iter().map(|listener| listener.descriptor).collect();
        let log = bolide_log::descriptor().map(|descriptor| descriptor.as_raw_fd());
        let log_targets = bolide_log::targets();
        inherited.extend(&log_targets);
        let alarms = bolide_log::alarms::descriptor().map(|descriptor| descriptor.as_raw_fd());
        inherited.extend(alarms);
        let ticket_keys = self.ticket_keys();
        let memories = self.coming.as_ref().map_or(&self.memories, |coming| &coming.memories);
        inherited.extend(memories.descriptors());
        inherited.extend(self.message_queues.descriptors());
        let (spans, error_page) = (self.span_socket.put(settings), self.error_page.as_ref().map(AsRawFd::as_raw_fd));
        inherited.extend(spans.into_iter().chain(error_page));
        let connection_queue = self.connection_queue.descriptors();
        inherited.extend(connection_queue);
        let (sessions, bulkheads) = (self.sessions.files(settings, side), self.bulkheads.files(settings));
        inherited.extend(sessions.iter().flat_map(SessionFiles::descriptors));
        inherited.extend(bulkheads.iter().flat_map(BulkheadFiles::descriptors));
        let own = [far.as_raw_fd(), self.memory.as_raw_fd(), self.log_losses.as_raw_fd(), note.descriptor()];
        inherited.extend(own.into_iter().chain(log).chain(ticket_keys));
        let at_terminal = may_be_debugged(settings);
        let boot = Boot {
            settings: booted(settings, is_lazy),
            generation,
            master_pid: Pid::this().as_raw() as u32,
            at_terminal,
            control: far.as_raw_fd(),
            scoreboard: self.memory.as_raw_fd(),
            scoreboard_rows: self.room.rows(),
            scoreboard_slots: self.room.threads,
            rows_in_use: self.rows_in_use(),
            slots_in_use: settings.workers.threads.most(),
            ticket_keys,
            memories: memories.files(),
            message_queues: self.message_queues.files(),
            log,
            log_targets,
            log_losses: Some(self.log_losses.as_raw_fd()),
            alarms,
            spans,
            reason: note.descriptor(),
            error_page,
            no_generation_serves,
            connection_queue: Some(connection_queue),
            sessions,
            bulkheads,
            reader_secret: self.reader_permit.secret(),
            listeners: descriptors,
            package_directory: self.program().package_directory.as_ref().map(|path| path.to_string_lossy().into_owned()),
        };
        let confinement =
            RawConfinement::of(&settings.confinement, settings.application.chdir.as_deref(), self.privileges.as_ref())?;
        let program = self.program();
        let launch = Launch {
            executable: &program.executable,
            arguments: &program.arguments,
            boot: &boot,
            inherited,
            confinement,
            at_terminal,
        };
        let pid = spawn::prototype(&launch)?;
        Ok(Executed { pid, channel: near, note })
    }

    /// Returns the number of connections that are not accepted yet, at all sockets together.
    pub fn waiting_connections(&mut self) -> u32 {
        let waiting = self.listeners.sockets().iter().map(|socket| self.queue_watch.look(socket.as_fd()).length);
        waiting.fold(0, u32::saturating_add)
    }

    /// Returns the rows of the scoreboard that generations of both settings use.
    pub fn rows_in_use(&self) -> u32 {
        self.room_in_use().rows()
    }

    /// Returns the maximum number of threads that a worker of either settings has.
    pub fn threads_in_use(&self) -> u32 {
        self.settings.workers.threads.most().max(self.coming_settings().workers.threads.most())
    }

    /// Returns the number of rows for request workers, and of those for all children.
    pub fn row_counts(&self) -> (u32, u32) {
        let room = self.room_in_use();
        (room.worker_rows(), room.rows())
    }

    fn room_in_use(&self) -> Room {
        let [now, coming] = [&self.settings, self.coming_settings()].map(Room::without_spare);
        Room { processes: now.processes.max(coming.processes), helpers: now.helpers.max(coming.helpers), ..now }
    }
}

/// Whether a debugger in the application may use the master's terminal.
fn may_be_debugged(settings: &Settings) -> bool {
    settings.application.honour_stdin || settings.workers.processes == 1 && std::io::IsTerminal::is_terminal(&std::io::stdin())
}

/// The settings that a prototype gets.
fn booted(settings: &Settings, is_lazy: bool) -> Settings {
    let mut booted = settings.clone();
    booted.application.lazy = is_lazy;
    // Secrets that no process of the application needs.
    booted.tracing.spans.headers.clear();
    booted
}

/// Creates the scoreboard, without spare capacity if the file size limit does not allow it, and then without durations of groups
/// of routes.
fn create_scoreboard(settings: &Settings) -> io::Result<(Room, (Scoreboard, OwnedFd))> {
    let with_groups = |room: Room| {
        let bytes = Scoreboard::bytes_with_groups(room.rows(), room.threads) as u64;
        let made = process_attributes::with_file_size(bytes, || Scoreboard::create_with_groups(room.rows(), room.threads))?;
        Ok::<_, io::Error>(made.map(|made| (room, made)))
    };
    let bytes = |room: Room| Scoreboard::bytes(room.rows(), room.threads) as u64;
    let create = |room: Room| {
        let made = process_attributes::with_file_size(bytes(room), || Scoreboard::create(room.rows(), room.threads))?;
        Ok::<_, io::Error>(made.map(|made| (room, made)))
    };
    let (whole, least) = (Room::for_settings(settings), Room::without_spare(settings));
    if !settings.statistics.groups.is_empty() {
        for room in [whole, least] {
            if let Some(made) = with_groups(room)? {
                return Ok(made);
            }
        }
    }
    if let Some(made) = create(whole)? {
        return Ok(made);
    }
    create(least)?.ok_or_else(|| process_attributes::file_size_too_small(bytes(least)))
}

impl Room {
    /// The number of processes, helpers and threads that a reload may bring even if there were fewer at startup.
    const PROCESSES: u32 = 64;
    const HELPERS: u32 = 16;
    const THREADS: u32 = 64;

    fn for_settings(settings: &Settings) -> Room {
        let Room { processes, helpers, threads } = Room::without_spare(settings);
        Room {
            processes: processes.max(Room::PROCESSES),
            helpers: helpers.max(Room::HELPERS),
            threads: threads.max(Room::THREADS),
        }
    }

    fn without_spare(settings: &Settings) -> Room {
        Room {
            processes: settings.workers.processes,
            helpers: settings.helpers.len() as u32,
            threads: settings.workers.threads.most(),
        }
    }

    /// Rows of request workers: three generations at the same time (one that serves, one that forms, and one whose streams have
    /// not ended when the deploy comes that fixes a deploy), a replacement, and a spare one.
    fn worker_rows(self) -> u32 {
        self.processes.saturating_mul(3).saturating_add(2)
    }

    /// Rows of the scoreboard. Helpers exist in one generation at a time.
    fn rows(self) -> u32 {
        self.worker_rows().saturating_add(self.helpers)
    }
}

impl Owner for Provision {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        let listeners = turn.listens.then(|| self.listeners.sources(Token::Listeners)).into_iter().flatten();
        let tickets_ms = self.tickets.as_ref().map(TicketKeyRenewal::wake_ms);
        let held_ms = (self.connection_queue.held() > 0).then_some(turn.now_ms + connection_queue::LOOK_MS);
        Waits::on(
            listeners.chain(self.connection_queue.source(turn.connection_move)),
            [tickets_ms, self.sync_ms, held_ms].into_iter().flatten().min(),
        )
    }
}
