//! An upgrade: executes another master, with the program that is installed now, and passes our listening sockets to it. We serve
//! until it does, and then end like an old generation: no client is refused and no connection is cut. If the new master never
//! serves, nothing changes. It does not know the encoding between both masters, which is in `upgrade_pair`. The master runs it.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command as Process;

use bolide_contract::boot::BulkheadFiles;
use bolide_contract::confinement::Namespace;
use bolide_contract::succession::{HandedSocket, Step, Succession, VARIABLE};
use bolide_supervision::files::pidfile;
use bolide_supervision::processes::environment;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::sockets::service_manager;
use bolide_supervision::sockets::upgrade_pair::{Predecessor, PredecessorEvent, Successor, SuccessorEvent, SuccessorStage};
use bolide_supervision::text::{duration, printable};
use bolide_supervision::{log_sink, system};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;

use crate::generations::Generations;
use crate::generations::generation::Reason;
use crate::generations::reload::Stage;
use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};
use crate::provision::Provision;
use crate::provision::configuration::Configuration;
use crate::statistics::reporting::Reporting;
use crate::token::Token;

/// Time limit for a new master to serve if `load-timeout` is not set, in milliseconds.
const SUCCESSOR_MS: u64 = 600_000;
/// Time beyond `load-timeout` that it may take to begin, in milliseconds.
const BEGIN_MS: u64 = 5_000;

/// The consequence of an event of the new master.
pub enum SuccessorOutcome {
    Nothing,
    /// Its workers serve: it has replaced us.
    Serves,
    /// It has replaced us and is being stopped: the rest of the instance here must be stopped too.
    Stopped,
}

/// The masters before and after this one.
#[derive(Debug, Default)]
pub struct Takeover {
    /// The master that replaces us, in an upgrade.
    successor: Option<Successor>,
    /// The master that we replace when our workers serve, or have replaced.
    predecessor: Option<Predecessor>,
}

impl Takeover {
    pub fn new(predecessor: Option<Predecessor>) -> Takeover {
        Takeover { successor: None, predecessor }
    }

    /// Returns whether the instance belongs to another master until our workers serve.
    pub fn awaits_takeover(&self) -> bool {
        self.predecessor.as_ref().is_some_and(Predecessor::is_awaited)
    }

    /// Notifies the previous master that our workers serve.
    pub fn take_over(&mut self) {
        if let Some(predecessor) = &mut self.predecessor {
            predecessor.take();
        }
    }

    /// Returns the events of the previous master, including its end.
    pub fn take_predecessor_events(&mut self) -> Vec<PredecessorEvent> {
        self.predecessor.as_mut().map(Predecessor::take_news).unwrap_or_default()
    }

    /// Begins an upgrade: executes another master. Returns its pid.
    ///
    /// # Errors
    /// Why there is none, as text.
    pub fn start(
        &mut self,
        generations: &Generations,
        provision: &Provision,
        reporting: &Reporting,
        configuration: &Configuration,
        now_ms: u64,
    ) -> Result<Pid, String> {
        if let Some(successor) = &self.successor {
            return Err(format!("one is already in progress (pid {})", successor.pid));
        }
        if Pid::this().as_raw() == 1 {
            return Err(
                "PID 1 of a container can't be replaced, because the container would exit with it; start a container of \
                the new image beside this one, and stop this one when the new one is ready (a rolling deployment); if only the \
                code is new, reload"
                    .to_owned(),
            );
        }
        if provision.settings().confinement.namespaces.contains(&Namespace::Network) {
            return Err(
                "a new master would start in the network namespace of this one (unshare = net), where no client reaches \
                it; restart the instance"
                    .to_owned(),
            );
        }
        if generations.serving().is_none() {
            return Err("nothing is served yet".to_owned());
        }
        let is_ordered = generations.forming().is_some_and(|forming| forming.reason == Reason::Ordered);
        if generations.reload.stage() == Stage::Planned || is_ordered {
            return Err("a reload is in progress; try again when it is done".to_owned());
        }
        let trouble = |error: std::io::Error| format!("a new master can't be created: {error}");
        let (near, far) = UnixStream::pair().map_err(trouble)?;
        near.set_nonblocking(true).map_err(trouble)?;
        let pid = execute(&far, provision, reporting, configuration)?;
        // The successor is reaped like every child of the master.
        let process = system::process_descriptor(pid).map_err(trouble)?;
        let load_ms = provision.settings().lifecycle.load_timeout_ms;
        let until_ms = now_ms.saturating_add(load_ms.map_or(SUCCESSOR_MS, |most| most.saturating_add(BEGIN_MS)));
        let stage = SuccessorStage::Starting { until_ms, why: Vec::new() };
        self.successor = Some(Successor { pid, process, channel: Some(near), stage, takes_connections: false });
        Ok(pid)
    }

    /// Handles the messages of the successor, or its closed socket.
    pub fn take_successor_events(&mut self) -> SuccessorOutcome {
        let Some(successor) = &mut self.successor else { return SuccessorOutcome::Nothing };
        match (successor.take_news(), successor.is_in_place()) {
            (SuccessorEvent::Serves, _) => return SuccessorOutcome::Serves,
            // A successor that lives without its socket is useless; its end is logged when it is reaped.
            (SuccessorEvent::Gone, false) => kill(&successor.process),
            // We are still alive for commands of `cron` only; they end with the instance.
            (SuccessorEvent::Gone, true) => return SuccessorOutcome::Stopped,
            (SuccessorEvent::Nothing, _) => {}
        }
        SuccessorOutcome::Nothing
    }

    /// Returns the new master that does not serve yet: it has the sockets and settings of this generation.
    pub fn starting_successor(&self) -> Option<Pid> {
        self.successor.as_ref().filter(|successor| !successor.is_in_place()).map(|successor| successor.pid)
    }

    /// Kills a new master that does not serve in time. Notifies one that has replaced us when our daemons and helpers are gone.
    pub fn check_successor(&mut self, load_ms: Option<u64>, has_daemons: bool, now_ms: u64) {
        let Some(Successor { pid, process, stage, .. }) = &mut self.successor else { return };
        match stage {
            SuccessorStage::Starting { until_ms, why, .. } if now_ms >= *until_ms => {
                *until_ms = u64::MAX;
                let most = duration(load_ms.map_or(SUCCESSOR_MS, |most| most.saturating_add(BEGIN_MS)));
                log_sink::line(&format!("upgrade: the new master (pid {pid}) was not ready within {most}: killing it"));
                why.clear();
                why.push(Step::Failed.byte());
                why.extend(format!("not within {most} (load-timeout)").bytes());
                kill(process);
            }
            SuccessorStage::InPlace { knows_that_daemons_are_gone: false } if !has_daemons => {
                *stage = SuccessorStage::InPlace { knows_that_daemons_are_gone: true };
                self.tell(Step::DaemonsGone);
            }
            _ => {}
        }
    }

    /// We end, but not because of an upgrade: a successor that has not replaced us is killed.
    pub fn give_up(&mut self) {
        if let Some(successor) = self.successor.take_if(|successor| !successor.is_in_place()) {
            log_sink::line(&format!("upgrade: abandoned, killing the new master (pid {})", successor.pid));
            kill(&successor.process);
        }
    }

    /// Records that the successor replaces us from now on. Returns its pid.
    pub fn hand_over(&mut self) -> Option<Pid> {
        let successor = self.successor.as_mut()?;
        successor.stage = SuccessorStage::InPlace { knows_that_daemons_are_gone: false };
        Some(successor.pid)
    }

    /// Returns whether another master has replaced us.
    pub fn has_handed_over(&self) -> bool {
        self.successor.as_ref().is_some_and(Successor::is_in_place)
    }

    /// Returns whether the workers of the successor take open connections of ours.
    pub fn successor_takes_connections(&self) -> bool {
        self.successor.as_ref().is_some_and(|successor| successor.takes_connections)
    }

    /// Returns whether the instance continues in a successor that has replaced us.
    pub fn continues_in_successor(&self) -> bool {
        self.successor.as_ref().is_some_and(|successor| successor.channel.is_some())
    }

    /// Returns whether no other master manages the files of the instance.
    pub fn owns_files(&self) -> bool {
        !self.awaits_takeover() && !self.has_handed_over()
    }

    pub fn tell(&mut self, step: Step) {
        if let Some(successor) = &mut self.successor {
            successor.tell(step);
        }
    }
}

fn execute(channel: &UnixStream, provision: &Provision, reporting: &Reporting, config: &Configuration) -> Result<Pid, String> {
    let settings = provision.settings();
    let sockets: Vec<HandedSocket> = settings
        .listeners
        .iter()
        .zip(provision.listeners().descriptors())
        .map(|(listener, handed)| HandedSocket { address: listener.address.clone(), descriptor: handed.descriptor })
        .collect();
    let (statistics, metrics) = reporting.handed_sockets();
    let locks = pidfile::descriptors(settings, provision.privileges());
    let memories = provision.memories_in_force().files();
    let mut inherited: Vec<RawFd> = sockets.iter().chain(&statistics).chain(&metrics).map(|socket| socket.descriptor).collect();
    inherited.extend(memories.iter().map(|memory| memory.descriptor));
    let message_queues = provision.message_queues().files();
    inherited.extend(provision.message_queues().descriptors());
    inherited.extend(provision.connection_queue().descriptors());
    let ticket_keys = provision.ticket_keys();
    inherited.extend(ticket_keys);
    let bulkheads = provision.bulkheads().files(settings);
    inherited.extend(bulkheads.iter().flat_map(BulkheadFiles::descriptors));
    inherited.extend(locks.iter().copied().chain([channel.as_raw_fd()]));
    let master_pid = Pid::this().as_raw().cast_unsigned();
    let succession = Succession {
        master_pid,
        channel: channel.as_raw_fd(),
        locks,
        sockets,
        statistics,
        metrics,
        memories,
        message_queues,
        connection_queue: Some(provision.connection_queue().to_hand()),
        ticket_keys,
        bulkheads,
    };
    let text = serde_json::to_string(&succession).map_err(|error| error.to_string())?;
    let (program, arguments) = config.command(settings.reloading.program.as_deref());
    let mut process = Process::new(&program);
    process.args(arguments).current_dir(config.directory()).env(VARIABLE, text).process_group(0);
    environment::restore(&mut process);
    process.envs(config.handed_variables());
    if service_manager::watches_this_process() {
        // The variable names the process that the service manager watches, which is this one.
        process.env_remove(service_manager::WATCHDOG_PID);
    }
    keep_at_exec(&inherited, true);
    let spawned = process.spawn();
    keep_at_exec(&inherited, false);
    let child = spawned.map_err(|error| format!("{} can't be executed: {error}", program.to_string_lossy()))?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

fn kill(process: &OwnedFd) {
    // The call fails if it has already ended.
    let _ = system::signal_process(process, libc::SIGKILL);
}

/// Sets whether descriptors survive an exec. The master has one thread, so no other program is started in the meantime.
fn keep_at_exec(descriptors: &[RawFd], is_kept: bool) {
    let flags = if is_kept { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    for descriptor in descriptors {
        // SAFETY: each descriptor is open: its owner is the supervisor, and it is borrowed for this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*descriptor) };
        if let Err(error) = fcntl(descriptor, FcntlArg::F_SETFD(flags)) {
            log_sink::line(&format!("upgrade: a descriptor can't be passed on: {error}"));
        }
    }
}

impl Owner for Takeover {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        let successor = self.successor.as_ref().and_then(|successor| successor.source(Token::Successor));
        let predecessor = self.predecessor.as_ref().and_then(|predecessor| predecessor.source(Token::Predecessor));
        Waits::on(successor.into_iter().chain(predecessor), self.successor.as_ref().and_then(Successor::wake_ms))
    }
}

impl Processes for Takeover {
    /// [`Takeover::check_successor`] needs to know more.
    fn due(&mut self, _context: OwnerContext<'_>) {}

    fn note_end(&mut self, pid: Pid, status: i32, _context: OwnerContext<'_>) -> Option<Aftermath> {
        let mut successor = self.successor.take_if(|successor| successor.pid == pid && !successor.is_in_place())?;
        // Reads its last messages; any other than the reason comes too late.
        successor.take_news();
        let cause = Cause::from_status(status);
        let why = match successor.why() {
            Some(why) => format!("the new master (pid {pid}) is not ready: {}", printable(&why)),
            None => format!("the new master (pid {pid}) {} before it was ready", cause.words()),
        };
        log_sink::line(&format!("upgrade: {why}: this master keeps serving"));
        Some(Aftermath::UpgradeFailed(why))
    }

    /// [`Takeover::give_up`] has killed a master that does not serve, and one that does is not ours.
    fn stop_now(&mut self, _now_ms: u64) {}

    fn finish(&mut self, _is_last: bool, _context: OwnerContext<'_>) -> bool {
        true
    }
}
