//! The children that exist, and what can be done to them: start, fork, tell, kill. It decides nothing:
//! `supervisor` and `reload` do. The master runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::boot::Boot;
use bolide_contract::children::ChildKind;
use bolide_contract::message::{self, Order};
use bolide_contract::scoreboard::{Scoreboard, now_ms};
use bolide_contract::settings::Settings;
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::Source;
use bolide_supervision::processes::child_setup::RawConfinement;
use bolide_supervision::processes::privileges::Privileges;
use bolide_supervision::processes::process_attributes;
use bolide_supervision::processes::signals;
use bolide_supervision::processes::spawn::{self, Launch};
use bolide_supervision::processes::system;
use bolide_supervision::sockets::listen_queue::QueueWatch;
use bolide_supervision::sockets::listeners::Listeners;
use bolide_supervision::sockets::ticket_keys::TicketKeyRenewal;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;

use crate::children::child::{Child, Event, KillReason, Progress, Role, State};
use crate::children::ledger::Ledger;
use crate::generations::error_report::{self, ErrorReport};
use crate::generations::interpreter::Program;
use crate::token::Token;

/// Time that a killed child may take to be gone before the log says so, in milliseconds.
pub const KILL_WAIT_MS: u64 = 5000;

/// All children of an instance, and what they are made with.
#[derive(Debug)]
pub struct Fleet {
    pub settings: Settings,
    pub listeners: Listeners,
    pub scoreboard: Scoreboard,
    pub children: Vec<Child>,
    pub ledger: Ledger,
    /// Workers begin no request, whenever they were forked.
    pub is_paused: bool,
    /// `None` where no TLS session can be resumed.
    pub tickets: Option<TicketKeyRenewal>,
    /// What the forming generation is made with, where the configuration was read again for it; the above is what is in force.
    pub coming: Option<Plan>,
    program: Program,
    pub privileges: Option<Privileges>,
    memory: OwnedFd,
    /// The two ends of the queue of connections that look for a worker. The master keeps both: what lies in it while no worker is there is
    /// served by the next.
    connection_queue: [OwnedFd; 2],
    /// In development: see [`error_report::error_page`].
    error_page: Option<OwnedFd>,
    room: Room,
    next_id: u64,
    queue_watch: QueueWatch,
}

/// What a generation is made with.
#[derive(Debug)]
pub struct Plan {
    pub settings: Settings,
    pub listeners: Listeners,
    pub program: Program,
}

/// What the scoreboard has room for, so that a reload may bring more processes, helpers or threads. Memory that nobody uses costs nothing.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub processes: u32,
    pub helpers: u32,
    pub threads: u32,
}

/// Why nothing was forked.
#[derive(Debug)]
pub enum ForkError {
    /// The generation has no prototype that forks.
    NoPrototype,
    /// Every row of the scoreboard is taken, by workers and helpers that still end.
    NoRow,
    /// The order could not be sent; it may be tried again.
    Failed(io::Error),
}

impl Fleet {
    /// A fleet with no child yet.
    ///
    /// # Errors
    /// No memory for what processes share.
    pub fn new(settings: Settings, listeners: Listeners, program: Program, privileges: Option<Privileges>) -> io::Result<Fleet> {
        let (room, (whole, memory)) = create_scoreboard(&settings)?;
        let scoreboard = whole.within(Room::without_spare(&settings).rows(), settings.workers.threads.most());
        let tickets = TicketKeyRenewal::create(&settings, now_ms())?;
        let error_page = settings.development.is_some().then(error_report::error_page).transpose()?;
        let (put, take) = order_pair()?;
        let (children, coming, ledger, next_id) = (Vec::new(), None, Ledger::default(), 1);
        Ok(Fleet {
            settings,
            listeners,
            scoreboard,
            children,
            ledger,
            is_paused: false,
            tickets,
            coming,
            program,
            privileges,
            memory,
            connection_queue: [put, take],
            error_page,
            room,
            next_id,
            queue_watch: QueueWatch::default(),
        })
    }

    /// The interpreter that runs prototypes, for messages.
    pub fn program(&self) -> &Program {
        self.coming.as_ref().map_or(&self.program, |coming| &coming.program)
    }

    /// The settings of the generation that forms, or is the next to do so.
    pub fn coming_settings(&self) -> &Settings {
        self.coming.as_ref().map_or(&self.settings, |coming| &coming.settings)
    }

    pub fn room(&self) -> Room {
        self.room
    }

    /// Lets the plan of the generation that formed be what is in force. Gives what was before.
    pub fn adopt_coming(&mut self) -> Option<Plan> {
        let coming = self.coming.take()?;
        let settings = std::mem::replace(&mut self.settings, coming.settings);
        let listeners = std::mem::replace(&mut self.listeners, coming.listeners);
        let program = std::mem::replace(&mut self.program, coming.program);
        Some(Plan { settings, listeners, program })
    }

    /// The master looks at all that generations of both settings use.
    pub fn widen_scoreboard(&mut self) {
        // Workers that still end may have more threads than both.
        let before = self.scoreboard.slots(0).len() as u32;
        let threads = self.settings.workers.threads.most().max(self.coming_settings().workers.threads.most()).max(before);
        self.scoreboard = self.scoreboard.within(self.rows_in_use(), threads);
    }

    /// Whom prototypes and workers run as, where that is another than the master.
    pub fn privileges(&self) -> Option<&Privileges> {
        self.privileges.as_ref()
    }

    /// Executes the prototype of a generation, which leaves loading to its workers where that is lazy. Gives the file in which it and they write
    /// why they can't load the application.
    ///
    /// # Errors
    /// The program can't be executed, or no descriptor is left.
    pub fn start_prototype(&mut self, generation: u32, is_lazy: bool, serves_nobody: bool) -> io::Result<ErrorReport> {
        let (near, far) = order_pair()?;
        let note = ErrorReport::new()?;
        let settings = self.coming_settings();
        let listeners = self.coming.as_ref().map_or(&self.listeners, |coming| &coming.listeners);
        let descriptors = listeners.descriptors();
        let mut inherited: Vec<i32> = descriptors.iter().map(|listener| listener.descriptor).collect();
        let log = bolide_log::descriptor().map(|descriptor| descriptor.as_raw_fd());
        let log_targets = bolide_log::targets();
        inherited.extend(&log_targets);
        let ticket_keys = self.tickets.as_ref().map(|tickets| tickets.ring().memory().as_raw_fd());
        let error_page = self.error_page.as_ref().map(AsRawFd::as_raw_fd);
        inherited.extend(error_page);
        let connection_queue = self.connection_queue.each_ref().map(AsRawFd::as_raw_fd);
        inherited.extend(connection_queue);
        inherited.extend([far.as_raw_fd(), self.memory.as_raw_fd(), note.descriptor()].into_iter().chain(log).chain(ticket_keys));
        let at_terminal = settings.python.honour_stdin
            || settings.workers.processes == 1 && std::io::IsTerminal::is_terminal(&std::io::stdin());
        let mut booted = settings.clone();
        booted.python.lazy = is_lazy;
        let boot = Boot {
            settings: booted,
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
            log,
            log_targets,
            reason: note.descriptor(),
            slate: error_page,
            serves_nobody,
            connection_queue: Some(connection_queue),
            listeners: descriptors,
            package_folder: self.program().package_folder.as_ref().map(|folder| folder.to_string_lossy().into_owned()),
        };
        let confinement = RawConfinement::of(&settings.confinement, settings.python.chdir.as_deref(), self.privileges.as_ref())?;
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
        self.add(Role::Prototype, generation, Some(pid), near, State::Starting);
        Ok(note)
    }

    /// Orders the prototype of a generation to fork the worker or helper of this number: a worker on trial where its generation is not let in
    /// yet.
    ///
    /// # Errors
    /// See [`ForkError`].
    pub fn fork(&mut self, generation: u32, kind: ChildKind, number: u32, is_on_trial: bool) -> Result<(), ForkError> {
        let row = self.free_row(kind).ok_or(ForkError::NoRow)?;
        let prototype =
            self.prototype(generation).filter(|prototype| prototype.state == State::Serving).ok_or(ForkError::NoPrototype)?;
        let channel = prototype.channel.as_ref().ok_or(ForkError::NoPrototype)?;
        let (near, far) = order_pair().map_err(ForkError::Failed)?;
        if self.is_paused && kind == ChildKind::RequestWorker {
            // It lies in its socket before the worker is born, which takes orders before it takes connections.
            message::send(near.as_fd(), &Order::Pause, None).map_err(ForkError::Failed)?;
        }
        if let Some(found) = self.scoreboard.row(row) {
            found.kind.store(kind.code(), Relaxed);
        }
        let order = Order::Fork { row, kind, number, is_on_trial };
        message::send(channel.as_fd(), &order, Some(far.as_raw_fd())).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ForkError::NoPrototype,
            _ => ForkError::Failed(error),
        })?;
        let role = match kind {
            ChildKind::RequestWorker => Role::Worker { row, number },
            ChildKind::Helper => Role::Helper { row, number },
        };
        self.add(role, generation, None, near, State::Ordered);
        Ok(())
    }

    /// Connections that wait to be accepted, at all sockets together.
    pub fn waiting_connections(&mut self) -> u32 {
        let waiting = self.listeners.sockets().iter().map(|socket| self.queue_watch.look(socket.as_fd()).length);
        waiting.fold(0, u32::saturating_add)
    }

    /// The prototype of a generation, if it lives.
    pub fn prototype(&self, generation: u32) -> Option<&Child> {
        self.children.iter().find(|child| child.is_prototype() && child.generation == generation)
    }

    /// A helper of any generation lives.
    pub fn has_helpers(&self) -> bool {
        self.children.iter().any(|child| child.helper_number().is_some())
    }

    /// The request workers of a generation that serve or soon will.
    pub fn active_workers(&self, generation: u32) -> impl Iterator<Item = &Child> {
        self.children
            .iter()
            .filter(move |child| child.is_request_worker() && child.generation == generation && child.state.is_active())
    }

    pub fn find(&self, id: u64) -> Option<&Child> {
        self.children.iter().find(|child| child.id == id)
    }

    pub fn find_mut(&mut self, id: u64) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.id == id)
    }

    /// The child with this pid.
    pub fn with_pid(&self, pid: Pid) -> Option<&Child> {
        self.children.iter().find(|child| child.pid == Some(pid))
    }

    /// The worker or helper of this row, of this generation.
    pub fn with_row(&self, generation: u32, row: u32) -> Option<&Child> {
        self.children.iter().find(|child| child.generation == generation && child.row() == Some(row))
    }

    /// Numbers of the children that a condition holds for, so that each can be changed in turn.
    pub fn ids(&self, condition: impl Fn(&Child) -> bool) -> Vec<u64> {
        self.children.iter().filter(|child| condition(child)).map(|child| child.id).collect()
    }

    /// Tells a child to end when its work is done, and notes when patience with it ends.
    pub fn order_end(&mut self, id: u64, order: Order, deadline_ms: u64) {
        let Some(child) = self.find_mut(id) else { return };
        child.apply(Event::ToldToEnd);
        child.hurry(deadline_ms, KillReason::Mercy);
        let row = child.row().and_then(|row| self.scoreboard.row(row));
        match (row, &order) {
            (Some(row), Order::Stop) => row.stopped_ms.store(now_ms(), Relaxed),
            (Some(row), Order::Drain { .. }) => row.drained_ms.store(now_ms(), Relaxed),
            _ => {}
        }
        let Some(child) = self.find(id) else { return };
        let Some(channel) = &child.channel else { return };
        if let Err(error) = message::send(channel.as_fd(), &order, None)
            && !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
        {
            // The deadline stands: a child that could not be told is killed then.
            log_sink::line(&format!("{child} could not be told to end: {error}"));
        }
    }

    /// Kills a child. One that is not forked yet is killed as soon as its pid is known.
    pub fn kill(&mut self, id: u64, kill_reason: KillReason, now_ms: u64) {
        let Some(child) = self.find_mut(id) else { return };
        if child.state != State::Killed {
            child.apply(Event::KillSent);
            child.kill_reason.get_or_insert(kill_reason);
            child.deadline_ms = Some(now_ms + KILL_WAIT_MS);
            if let Some(number) = child.worker_number().filter(|_| kill_reason == KillReason::Harakiri) {
                self.ledger.note_harakiri(number);
            }
        }
        if let Some(child) = self.find(id) {
            send_signal(child, libc::SIGKILL);
        }
    }

    /// Tells a worker that has passed its trial to serve.
    pub fn admit(&mut self, id: u64) {
        let Some(worker) = self.find_mut(id) else { return };
        let sent = worker.channel.as_ref().map(|channel| message::send(channel.as_fd(), &Order::Admit, None));
        // One that has gone meanwhile has its end reported; to one whose socket is full it is said in the next turn.
        worker.waits_for_admission = matches!(sent, Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock);
    }

    /// Tells workers what they do not know yet: whether the instance is paused. One that ends takes no such order.
    pub fn tell_pause(&mut self) {
        let is_paused = self.is_paused;
        let order = if is_paused { Order::Pause } else { Order::Resume };
        for worker in self.children.iter_mut().filter(|child| child.lacks_pause(is_paused)) {
            let sent = worker.channel.as_ref().map(|channel| message::send(channel.as_fd(), &order, None));
            // One that has gone meanwhile has its end reported; to one whose socket is full it is said in a later turn.
            let is_full = matches!(sent, Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock);
            worker.knows_pause = is_paused != is_full;
        }
    }

    /// Has a worker that is to be killed for one request leave to others what waits on its connections.
    pub fn tell_hand_over(&self, id: u64) {
        if let Some(channel) = self.find(id).and_then(|worker| worker.channel.as_ref()) {
            // One whose socket is full, or that is gone, hands nothing over.
            let _ = message::send(channel.as_fd(), &Order::HandOver, None);
        }
    }

    /// Sends a child a signal that is not to kill it at once.
    pub fn signal(&self, id: u64, signal: i32) {
        if let Some(child) = self.find(id) {
            send_signal(child, signal);
        }
    }

    /// Kills a prototype and all that it has started: its workers, and what the application has forked while it was loaded.
    pub fn kill_group(&mut self, id: u64, kill_reason: KillReason, now_ms: u64) {
        self.kill(id, kill_reason, now_ms);
        if let Some(child) = self.find(id).filter(|child| child.is_prototype()) {
            end_group(child);
        }
    }

    /// Notes the pid that a report gives for a worker, if it passes the check: who sends reports may run as another user than the
    /// master does, and must not be able to choose whom the master kills. Gives whether the worker's pid is known now.
    pub fn note_pid(&mut self, id: u64, pid: u32) -> bool {
        let Some(child) = self.find(id) else { return false };
        if let Some(known) = child.pid {
            return known.as_raw() as u32 == pid;
        }
        let Ok(number) = i32::try_from(pid) else { return false };
        // The descriptor is opened before the number is checked: the check then holds for the process that the descriptor names.
        let handle = system::process_descriptor(Pid::from_raw(number)).ok();
        if !self.is_forked_by(number, child.generation) {
            return false;
        }
        let Some(child) = self.find_mut(id) else { return false };
        child.pid = Some(Pid::from_raw(number));
        child.handle = handle;
        child.apply(Event::Born);
        if child.state == State::Killed {
            send_signal(child, libc::SIGKILL);
        }
        if let Some(number) = child.worker_number() {
            self.ledger.note_spawn(number);
        }
        true
    }

    /// A process of this number exists.
    pub fn exists(pid: u32) -> bool {
        i32::try_from(pid).is_ok_and(|pid| pid > 0 && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH))
    }

    /// A worker is surely gone although nobody reported it: its socket is closed, its prototype has ended, and its pid
    /// is nobody's.
    pub fn is_gone_unseen(&self, child: &Child) -> bool {
        let nobody = match (&child.handle, child.pid) {
            (Some(handle), _) => system::signal_process(handle, 0) == Err(Errno::ESRCH),
            (None, Some(pid)) => kill(pid, None) == Err(Errno::ESRCH),
            (None, None) => true,
        };
        !child.is_prototype() && child.channel.is_none() && self.prototype(child.generation).is_none() && nobody
    }

    /// The order sockets of the children, to wait on.
    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        let channels = self.children.iter().filter_map(|child| child.channel.as_ref().map(|channel| (child.id, channel)));
        channels.map(|(id, channel)| Source::readable(Token::Child(id), channel.as_fd()))
    }

    /// A process was forked by the prototype of a generation: it is that one's child, or in its process group, or,
    /// since a prototype that has ended leaves its workers to the master, our own child.
    fn is_forked_by(&self, pid: i32, generation: u32) -> bool {
        let parent = parent_of(pid);
        let ours = parent == Some(Pid::this().as_raw()) && self.with_pid(Pid::from_raw(pid)).is_none();
        let theirs = self.prototype(generation).and_then(|prototype| prototype.pid).is_some_and(|prototype| {
            parent == Some(prototype.as_raw()) || nix::unistd::getpgid(Some(Pid::from_raw(pid))) == Ok(prototype)
        });
        pid > 1 && (ours || theirs)
    }

    fn rows_in_use(&self) -> u32 {
        self.room_in_use().rows()
    }

    fn room_in_use(&self) -> Room {
        let [now, coming] = [&self.settings, self.coming_settings()].map(Room::without_spare);
        Room { processes: now.processes.max(coming.processes), helpers: now.helpers.max(coming.helpers), ..now }
    }

    /// Helpers take the last rows, so that workers that still end never keep one from its place.
    fn free_row(&self, kind: ChildKind) -> Option<u32> {
        let room = self.room_in_use();
        let is_free = |row: &u32| self.children.iter().all(|child| child.row() != Some(*row));
        match kind {
            ChildKind::RequestWorker => (0..room.worker_rows()).find(is_free),
            ChildKind::Helper => (0..room.rows()).rev().find(is_free),
        }
    }

    fn add(&mut self, role: Role, generation: u32, pid: Option<Pid>, channel: OwnedFd, state: State) {
        let id = self.next_id;
        self.next_id += 1;
        self.children.push(Child {
            id,
            role,
            generation,
            pid,
            handle: pid.and_then(|pid| system::process_descriptor(pid).ok()),
            channel: Some(channel),
            state,
            progress: Progress::AtWork,
            born_ms: now_ms(),
            waits_for_admission: false,
            has_left: false,
            knows_pause: self.is_paused,
            ready_ms: None,
            expires_ms: None,
            deadline_ms: None,
            deadline_reason: KillReason::Mercy,
            has_served: false,
            stopped_until_ms: None,
            is_halted: false,
            kill_reason: None,
        });
    }
}

/// Makes the scoreboard, with less room to spare where files may not be as large as that.
fn create_scoreboard(settings: &Settings) -> io::Result<(Room, (Scoreboard, OwnedFd))> {
    let bytes = |room: Room| Scoreboard::bytes(room.rows(), room.threads) as u64;
    let create = |room: Room| {
        let made = process_attributes::with_file_size(bytes(room), || Scoreboard::create(room.rows(), room.threads))?;
        Ok::<_, io::Error>(made.map(|made| (room, made)))
    };
    let (whole, least) = (Room::for_settings(settings), Room::without_spare(settings));
    if let Some(made) = create(whole)? {
        return Ok(made);
    }
    create(least)?.ok_or_else(|| process_attributes::file_size_too_small(bytes(least)))
}

impl Room {
    /// Processes, helpers and threads that a reload may bring although the start had fewer.
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

    /// Rows of request workers: three generations side by side (one that serves, one that forms, and one whose streams have not ended
    /// when the deploy that mends a deploy comes), a replacement, and one to spare.
    fn worker_rows(self) -> u32 {
        self.processes.saturating_mul(3).saturating_add(2)
    }

    /// Rows of the scoreboard. Helpers have one generation at a time.
    fn rows(self) -> u32 {
        self.worker_rows().saturating_add(self.helpers)
    }
}

/// A pair for orders and reports. Our end never makes us wait; neither end is inherited by what is executed, unless
/// its number is cleared for that one child.
fn order_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    fcntl(&near, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    Ok((near, far))
}

/// Kills what is left in the process group of a prototype. The group's number stays its own until it is reaped.
pub fn end_group(prototype: &Child) {
    // An empty group is none, and the call fails.
    let _ = prototype.pid.map(|pid| killpg(pid, Signal::SIGKILL));
}

fn send_signal(child: &Child, signal: i32) {
    let Some(pid) = child.pid else { return };
    let sent = match &child.handle {
        Some(handle) => system::signal_process(handle, signal),
        // The descriptor could not be opened when the child was new.
        None => Signal::try_from(signal).and_then(|signal| kill(pid, signal)),
    };
    match sent {
        // The process is gone already: its end is on the way to us.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => log_sink::line(&format!("{child} can't be sent {}: {error}", signals::name(signal))),
    }
}

/// A process has ended and waits for its parent to reap it.
pub fn is_zombie(pid: Pid) -> bool {
    process_state(pid.as_raw()).is_some_and(|(state, _)| state == "Z")
}

/// The parent of a process, as the kernel tells it; `None` if there is no such process.
fn parent_of(pid: i32) -> Option<i32> {
    process_state(pid).map(|(_, parent)| parent)
}

/// State letter and parent of a process.
fn process_state(pid: i32) -> Option<(String, i32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may itself hold any character: what follows the last one is numbers (proc(5)).
    let (_, numbers) = text.rsplit_once(')')?;
    let mut numbers = numbers.split_whitespace();
    Some((numbers.next()?.to_owned(), numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_read_from_the_kernel() {
        assert_eq!(parent_of(Pid::this().as_raw()), Some(Pid::parent().as_raw()));
        assert_eq!(parent_of(0), None);
    }

    #[test]
    fn neither_end_of_an_order_pair_is_inherited_and_ours_never_waits() {
        let (near, far) = order_pair().expect("made");
        for end in [&near, &far] {
            assert_eq!(fcntl(end, FcntlArg::F_GETFD), Ok(libc::FD_CLOEXEC));
        }
        assert!(matches!(message::receive::<Order>(near.as_fd()), Ok(message::Received::Nothing)));
    }
}
