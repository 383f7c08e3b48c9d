//! Hooks of changed files (`hook-touch`, `touch-exec`). A child runs each of them, as the user of the application and within its
//! jail, because hooks may block. A hook whose file changes again while it runs is run once more afterwards. It watches no files.
//! The master runs it.

use std::io;

use bolide_contract::hooks::Hook;
use bolide_contract::settings::Settings;
use bolide_hooks::{Means, OwnFiles, no_functions};
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::leash::Leash;
use bolide_supervision::{log_sink, system};
use nix::unistd::Pid;

use crate::children::grouped::{self, Side};
use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};

/// The running hooks: at most one run of each.
#[derive(Debug, Default)]
pub struct TouchHooks {
    running: Vec<TouchRun>,
}

#[derive(Debug)]
struct TouchRun {
    pid: Pid,
    number: u32,
    /// Kills the process group of the hook when the master dies.
    leash: Leash,
    /// The file has changed since the start of the run.
    again: bool,
}

impl TouchHooks {
    /// Runs the hook with this number, now or after its present run.
    pub fn begin(&mut self, number: u32, settings: &Settings, privileges: Option<&Privileges>) {
        if let Some(running) = self.running.iter_mut().find(|one| one.number == number) {
            running.again = true;
            return;
        }
        let Some(hook) = settings.watching.hooks.get(number as usize) else { return };
        match begin(settings, hook, privileges) {
            Ok((pid, leash)) => self.running.push(TouchRun { pid, number, leash, again: false }),
            Err(error) => log_sink::line(&format!("{}: the hook can't be executed: {error}", hook.origin)),
        }
    }

    /// Handles the end of a child of the master. `None`: it was no hook. Returns the number of a hook that must run again.
    fn note_end(&mut self, pid: Pid, status: i32) -> Option<Option<u32>> {
        let position = self.running.iter().position(|one| one.pid == pid)?;
        let ended = self.running.swap_remove(position);
        let cause = Cause::from_status(status);
        match cause {
            // Processes that it left in the background are not ours.
            Cause::Exited(_) => ended.leash.let_go(),
            // It has not left them by itself: they end with it.
            _ => drop(ended.leash),
        }
        if !matches!(cause, Cause::Exited(0 | FAILED)) {
            log_sink::line(&format!("a hook (touch, pid {pid}) {}", cause.words()));
        }
        Some(ended.again.then_some(ended.number))
    }

    /// Kills the running hooks at the end of the instance.
    fn kill(&mut self) {
        for one in self.running.drain(..) {
            system::signal_group(one.pid, libc::SIGKILL);
        }
    }
}

/// The exit status of a child whose hook failed; the child has logged the error.
const FAILED: i32 = 1;

fn begin(settings: &Settings, hook: &Hook, privileges: Option<&Privileges>) -> io::Result<(Pid, Leash)> {
    let prepared = match grouped::fork(settings, privileges)? {
        Side::Master(child, leash) => return Ok((child, leash)),
        Side::Child(prepared) => prepared,
    };
    let mut call = no_functions;
    let (environment, removed) = (&settings.application.environment, &settings.application.removed_variables);
    // The child has become the user before it opens any file.
    let mut means = Means { shells: &settings.attendant.shells, environment, removed, files: &OwnFiles, call: &mut call };
    let outcome = prepared.map_err(|error| format!("{}: {error}", hook.origin));
    let outcome = outcome.and_then(|()| bolide_hooks::run_one(hook, &mut means).map_err(|error| error.to_string()));
    if let Err(words) = &outcome {
        log_sink::line(words);
    }
    bolide_log::finish();
    system::leave(if outcome.is_ok() { 0 } else { FAILED })
}

impl Owner for TouchHooks {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::default()
    }
}

impl Processes for TouchHooks {
    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath> {
        // A file may have changed while its hook ran: the hook runs again then.
        if let Some(number) = self.note_end(pid, status)?.filter(|_| !context.is_stopping) {
            self.begin(number, context.settings, context.privileges);
        }
        Some(Aftermath::Nothing)
    }

    fn stop_now(&mut self, _now_ms: u64) {
        self.kill();
    }

    fn finish(&mut self, is_last: bool, _context: OwnerContext<'_>) -> bool {
        if is_last {
            self.kill();
        }
        is_last
    }
}
