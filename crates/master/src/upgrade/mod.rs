//! An upgrade: another master is executed, with whatever program is installed by now, and has our listening sockets. We serve until it does,
//! and then end as an old generation does: nobody is refused and nothing is cut. One that does not come to serve changes nothing.
//! What the other master does with it is in `upgrade_pair` and `taking_place`. The master runs it.

mod taking_place;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command as Process;

use bolide_contract::confinement::Namespace;
use bolide_contract::succession::{HandedSocket, Step, Succession, VARIABLE};
use bolide_supervision::files::pidfile;
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::system;
use bolide_supervision::sockets::service_manager;
use bolide_supervision::sockets::upgrade_pair::{Successor, SuccessorNews, SuccessorStage};
use bolide_supervision::text::{duration, printable};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;

use crate::generations::generation::Reason;
use crate::supervisor::{Phase, Supervisor};

/// Time that a new master may take to serve where `load-timeout` sets none, in milliseconds.
const SUCCESSOR_MS: u64 = 600_000;
/// Time beyond `load-timeout` that it may take to begin, in milliseconds.
const BEGIN_MS: u64 = 5_000;

impl Supervisor {
    /// Begins an upgrade. `by` says who asked.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn upgrade(&mut self, by: &str, now_ms: u64) -> Result<(), String> {
        if self.is_stopping() {
            return Err("it is being stopped".to_owned());
        }
        match self.start_successor(now_ms) {
            Ok(pid) => {
                log_sink::line(&format!("upgrade ({by}): a new master is started (pid {pid}), this one serves until it does"));
                Ok(())
            }
            Err(why) => {
                log_sink::line(&format!("upgrade ({by}): {why}: this master goes on"));
                Err(why)
            }
        }
    }

    fn start_successor(&mut self, now_ms: u64) -> Result<Pid, String> {
        if let Some(successor) = &self.successor {
            return Err(format!("one goes on already (pid {})", successor.pid));
        }
        if Pid::this().as_raw() == 1 {
            return Err("the first process of a container can't give its place to another, with it the container would end; \
                        start a container of the new image beside this one, and stop this one when that serves (a rolling \
                        deployment); for new code alone reload"
                .to_owned());
        }
        if self.fleet.settings.confinement.namespaces.contains(&Namespace::Network) {
            return Err("a new master would be born in the network of this one (unshare = net), where nobody reaches it; restart the instance".to_owned());
        }
        if self.serving.is_none() {
            return Err("nothing is served yet".to_owned());
        }
        let is_ordered = self.forming.as_ref().is_some_and(|forming| forming.reason == Reason::Ordered);
        if self.reload_wanted || is_ordered {
            return Err("a reload goes on; try it again when that has ended".to_owned());
        }
        let trouble = |error: std::io::Error| format!("a new master can't be had: {error}");
        let (near, far) = UnixStream::pair().map_err(trouble)?;
        near.set_nonblocking(true).map_err(trouble)?;
        let pid = self.execute_successor(&far)?;
        // It is reaped like everything that ends below the master.
        let process = system::process_descriptor(pid).map_err(trouble)?;
        let load_ms = self.fleet.settings.lifecycle.load_timeout_ms;
        let until_ms = now_ms.saturating_add(load_ms.map_or(SUCCESSOR_MS, |most| most.saturating_add(BEGIN_MS)));
        let stage = SuccessorStage::Starting { until_ms, why: Vec::new(), reload_waits: None };
        self.successor = Some(Successor { pid, process, channel: Some(near), stage });
        Ok(pid)
    }

    fn execute_successor(&self, channel: &UnixStream) -> Result<Pid, String> {
        let settings = &self.fleet.settings;
        let sockets: Vec<HandedSocket> = settings
            .listeners
            .iter()
            .zip(self.fleet.listeners.descriptors())
            .map(|(listener, handed)| HandedSocket { address: listener.address.clone(), descriptor: handed.descriptor })
            .collect();
        let statistics = self.reporting.handed_socket();
        let locks = pidfile::descriptors(settings, self.fleet.privileges.as_ref());
        let mut inherited: Vec<RawFd> = sockets.iter().chain(&statistics).map(|socket| socket.descriptor).collect();
        inherited.extend(locks.iter().copied().chain([channel.as_raw_fd()]));
        let master_pid = Pid::this().as_raw().cast_unsigned();
        let succession = Succession { master_pid, channel: channel.as_raw_fd(), locks, sockets, statistics };
        let text = serde_json::to_string(&succession).map_err(|error| error.to_string())?;
        let (program, arguments) = self.configuration.command(settings.reloading.program.as_deref());
        let mut process = Process::new(&program);
        process.args(arguments).current_dir(self.configuration.folder()).env(VARIABLE, text).process_group(0);
        process.envs(self.configuration.handed_variables());
        if service_manager::watches_this_process() {
            // It is that of the process that the service manager is told of.
            process.env_remove(service_manager::WATCHDOG_PID);
        }
        keep_at_exec(&inherited, true);
        let spawned = process.spawn();
        keep_at_exec(&inherited, false);
        let child = spawned.map_err(|error| format!("{} can't be executed: {error}", program.to_string_lossy()))?;
        Ok(Pid::from_raw(child.id().cast_signed()))
    }

    /// The successor has something to say, or has closed its end.
    pub(crate) fn take_successor_news(&mut self, now_ms: u64) {
        let Some(successor) = &mut self.successor else { return };
        match (successor.take_news(), successor.is_in_place()) {
            (SuccessorNews::Serves, _) => self.give_place(now_ms),
            // One that lives without its way to us is of no use; its end is told when it is reaped.
            (SuccessorNews::Gone, false) => kill(&successor.process),
            // The instance is stopped: commands of `cron`, for which we are still here, end with it.
            (SuccessorNews::Gone, true) => self.attendance.stop(&self.fleet.settings, now_ms),
            (SuccessorNews::Nothing, _) => {}
        }
    }

    /// Notes the end of a child of the master: of the successor, before its workers served, the upgrade has failed.
    pub(crate) fn note_successor_end(&mut self, pid: Pid, status: i32, now_ms: u64) {
        if self.successor.as_ref().is_none_or(|successor| successor.pid != pid) {
            return;
        }
        let Some(mut successor) = self.successor.take_if(|successor| !successor.is_in_place()) else { return };
        // What it said last; whatever it was, it is too late.
        successor.take_news();
        let cause = Cause::from_status(status);
        let why = match successor.why() {
            Some(why) => format!("the new master (pid {pid}) does not serve: {}", printable(&why)),
            None => format!("the new master (pid {pid}) {} before it served", cause.words()),
        };
        log_sink::line(&format!("upgrade: {why}: this one goes on"));
        self.tell_outcome(false, &format!("the upgrade has failed: {why}"));
        if let SuccessorStage::Starting { reload_waits: Some(is_brutal), .. } = successor.stage {
            // Why it can't be is in the log, and who waits is told.
            drop(self.reload("who asked during the upgrade", is_brutal, now_ms));
        }
    }

    /// Whether a reload must wait for the end of an upgrade: its new master has sockets and settings of this generation.
    pub(crate) fn puts_off_reload(&mut self, by: &str, is_brutal: bool) -> bool {
        let Some(Successor { pid, stage: SuccessorStage::Starting { reload_waits, .. }, .. }) = &mut self.successor else {
            return false;
        };
        if reload_waits.is_none() {
            log_sink::line(&format!("reload ({by}): an upgrade goes on (new master pid {pid}): it follows if that fails"));
        }
        *reload_waits = Some(is_brutal || *reload_waits == Some(true));
        true
    }

    /// Ends a new master that does not come to serve in time.
    pub(crate) fn look_after_successor(&mut self, now_ms: u64) {
        let Some(Successor { pid, process, stage, .. }) = &mut self.successor else { return };
        match stage {
            SuccessorStage::Starting { until_ms, why, .. } if now_ms >= *until_ms => {
                *until_ms = u64::MAX;
                let load_ms = self.fleet.settings.lifecycle.load_timeout_ms;
                let most = duration(load_ms.map_or(SUCCESSOR_MS, |most| most.saturating_add(BEGIN_MS)));
                log_sink::line(&format!("upgrade: the new master (pid {pid}) does not serve within {most}, and is killed"));
                why.clear();
                why.push(Step::Failed.byte());
                why.extend(format!("not within {most} (load-timeout)").bytes());
                kill(process);
            }
            SuccessorStage::InPlace { knows_that_daemons_are_gone: false }
                if !self.attendance.has_daemons() && !self.fleet.has_helpers() =>
            {
                *stage = SuccessorStage::InPlace { knows_that_daemons_are_gone: true };
                self.tell_successor(Step::DaemonsGone);
            }
            _ => {}
        }
    }

    /// We end, and not for the successor: it ends with us, as it has no place to take.
    pub(crate) fn give_up_upgrade(&mut self) {
        if let Some(successor) = self.successor.take_if(|successor| !successor.is_in_place()) {
            log_sink::line(&format!("upgrade: it is given up, the new master (pid {}) is killed", successor.pid));
            kill(&successor.process);
        }
    }

    /// Ends as an old generation does. The sockets, their files and the pidfiles are the successor's from here on.
    fn give_place(&mut self, now_ms: u64) {
        let Some(successor) = &mut self.successor else { return };
        successor.stage = SuccessorStage::InPlace { knows_that_daemons_are_gone: false };
        let pid = successor.pid;
        self.drop_plan();
        self.fleet.listeners.hand_over();
        self.fleet.settings.lifecycle.vacuum = false;
        self.phase = Phase::Stopping { status: 0 };
        self.give_up_plans();
        // Workers are told before anybody else: one that is not, and whose master is killed at this moment, would shut the sockets.
        self.end_generations(|_| true, now_ms);
        log_sink::line(&format!("upgrade: the new master (pid {pid}) serves, this one ends when its requests are answered"));
        self.settle(format!("the new master (pid {pid}) serves"), now_ms);
        self.notifier.give_place(pid.as_raw());
        self.tell_successor(Step::PlaceGiven);
        self.reporting.give_place();
        self.control.give_place();
        self.attendance.retire(&self.fleet.settings, now_ms);
    }

    /// Whether another master has our place.
    pub(crate) fn has_given_place(&self) -> bool {
        self.successor.as_ref().is_some_and(Successor::is_in_place)
    }

    /// No other master looks after the files of the instance.
    pub(crate) fn has_files_of_its_own(&self) -> bool {
        !self.awaits_place() && !self.has_given_place()
    }

    fn tell_successor(&mut self, step: Step) {
        if let Some(successor) = &mut self.successor {
            successor.tell(step);
        }
    }
}

fn kill(process: &OwnedFd) {
    // One that has ended already is dead.
    let _ = system::signal_process(process, libc::SIGKILL);
}

/// Lets descriptors pass an exec, or not. Nobody else starts anything meanwhile: the master has one thread.
fn keep_at_exec(descriptors: &[RawFd], is_kept: bool) {
    let flags = if is_kept { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    for descriptor in descriptors {
        // SAFETY: each is open: its owner is the supervisor, and it is borrowed for this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*descriptor) };
        if let Err(error) = fcntl(descriptor, FcntlArg::F_SETFD(flags)) {
            log_sink::line(&format!("upgrade: a descriptor can't be handed over: {error}"));
        }
    }
}
