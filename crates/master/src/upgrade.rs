//! An upgrade: another master is executed, with whatever program is installed by now, and has our listening sockets. We serve until it does,
//! and then end as an old generation does: nobody is refused and nothing is cut. One that does not come to serve changes nothing.
//! What the other master does with it is in `succession`. The master runs it.

use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command as Process;

use bolide_contract::settings::Address;
use bolide_contract::succession::{HandedSocket, Succession, VARIABLE};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::unistd::{Pid, pipe2};

use crate::log_sink;
use crate::pidfile;
use crate::succession::Successor;
use crate::supervisor::{Phase, Supervisor};

impl Supervisor {
    /// Begins an upgrade. `by` says who asked.
    pub(crate) fn upgrade(&mut self, by: &str) {
        if self.is_stopping() {
            return;
        }
        match self.start_successor() {
            Ok(pid) => {
                log_sink::line(&format!("upgrade ({by}): a new master is started (pid {pid}), this one serves until it does"));
            }
            Err(why) => {
                log_sink::line(&format!("upgrade ({by}): {why}: this master goes on"));
                self.note_reload(Err(why));
            }
        }
    }

    fn start_successor(&mut self) -> Result<Pid, String> {
        if let Some(successor) = &self.successor {
            return Err(format!("one goes on already (pid {})", successor.pid));
        }
        if Pid::this().as_raw() == 1 {
            return Err("the first process of a container can't be replaced by another; start another container".to_owned());
        }
        if self.serving.is_none() {
            return Err("nothing is served yet".to_owned());
        }
        let settings = &self.fleet.settings;
        if settings.listeners.iter().any(|listener| matches!(listener.address, Address::Passed(_) | Address::Descriptor(_))) {
            return Err("sockets that were handed to the instance stay open at a restart: restart the service".to_owned());
        }
        if settings.statistics.server.is_some() {
            return Err("the address of `stats` can't be handed over: restart for this, or leave `stats` out".to_owned());
        }
        let (news, ready) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(|error| format!("there is no pipe: {error}"))?;
        let sockets: Vec<HandedSocket> = settings
            .listeners
            .iter()
            .zip(self.fleet.listeners.descriptors())
            .map(|(listener, handed)| HandedSocket { address: listener.address.clone(), descriptor: handed.descriptor })
            .collect();
        let locks = pidfile::descriptors(settings);
        let mut inherited: Vec<RawFd> = sockets.iter().map(|socket| socket.descriptor).collect();
        inherited.extend(locks.iter().copied().chain([ready.as_raw_fd()]));
        let succession =
            Succession { master_pid: Pid::this().as_raw().cast_unsigned(), ready: ready.as_raw_fd(), locks, sockets };
        let text = serde_json::to_string(&succession).map_err(|error| error.to_string())?;
        let (program, arguments) = self.configuration.command(settings.reloading.program.as_deref());
        let mut process = Process::new(&program);
        process.args(arguments).current_dir(self.configuration.folder()).env(VARIABLE, text).process_group(0);
        keep_at_exec(&inherited, true);
        let spawned = process.spawn();
        keep_at_exec(&inherited, false);
        let child = spawned.map_err(|error| format!("{} can't be executed: {error}", program.to_string_lossy()))?;
        // It is reaped like everything that ends below the master.
        let pid = Pid::from_raw(child.id().cast_signed());
        self.successor = Some(Successor { pid, news });
        Ok(pid)
    }

    /// The successor serves, or has ended before it did.
    pub(crate) fn take_successor_news(&mut self, now_ms: u64) {
        let Some(successor) = self.successor.take() else { return };
        let mut byte = [0];
        match std::fs::File::from(successor.news).read(&mut byte) {
            Ok(1) => self.give_place_to(successor.pid, now_ms),
            _ => {
                let why = format!("the new master (pid {}) has ended before it served, see above", successor.pid);
                log_sink::line(&format!("upgrade: {why}: this one goes on"));
                self.note_reload(Err(why));
            }
        }
    }

    /// Ends as an old generation does. The sockets, their files and the pidfiles are the successor's from here on.
    fn give_place_to(&mut self, successor: Pid, now_ms: u64) {
        if self.is_stopping() {
            return;
        }
        log_sink::line(&format!(
            "upgrade: the new master (pid {successor}) serves, this one ends when its requests are answered"
        ));
        self.notifier.successor(successor.as_raw());
        self.drop_plan();
        self.fleet.listeners.hand_over();
        self.fleet.settings.lifecycle.vacuum = false;
        self.phase = Phase::Stopping { status: 0 };
        self.give_up_plans();
        self.end_generations(|_| true, now_ms);
    }
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
