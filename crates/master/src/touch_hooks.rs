//! Hooks of changed files (`hook-touch`, `touch-exec`). A child runs each of them, as the user of the application and within its
//! jail, because hooks may block. A hook whose file changes again while it runs is run once more afterwards. It watches no files.
//! The master runs it.

use std::io;

use bolide_contract::hooks::Hook;
use bolide_contract::settings::Settings;
use bolide_hooks::{Means, OwnFiles, no_functions};
use bolide_supervision::log_sink;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::auxiliary::{Auxiliaries, AuxiliaryProcess};
use bolide_supervision::processes::child_setup::RawConfinement;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::forking::{self, Forked};
use nix::unistd::Pid;

use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};

/// The running hooks: at most one run of each.
#[derive(Debug, Default)]
pub struct TouchHooks(Auxiliaries<TouchRun>);

#[derive(Debug)]
struct TouchRun {
    number: u32,
    /// The file has changed since the start of the run.
    again: bool,
}

impl TouchHooks {
    /// Runs the hook with this number, now or after its present run.
    pub fn begin(&mut self, number: u32, settings: &Settings, privileges: Option<&Privileges>) {
        if let Some(running) = self.0.iter_mut().find(|one| one.record.number == number) {
            running.record.again = true;
            return;
        }
        let Some(hook) = settings.watching.hooks.get(number as usize) else { return };
        match begin(settings, hook, privileges) {
            Ok(forked) => {
                let (name, run) = (format!("the hook {}", hook.origin), TouchRun { number, again: false });
                self.0.add(AuxiliaryProcess::new(name, forked, run, 0));
            }
            Err(error) => log_sink::line(&format!("{}: the hook can't be executed: {error}", hook.origin)),
        }
    }

    /// Kills the running hooks at the end of the instance.
    fn kill(&mut self) {
        std::mem::take(&mut self.0).iter_mut().for_each(AuxiliaryProcess::kill);
    }
}

/// The exit status of a child whose hook failed; the child has logged the error.
const FAILED: i32 = 1;

fn begin(settings: &Settings, hook: &Hook, privileges: Option<&Privileges>) -> io::Result<Forked> {
    let confinement = RawConfinement::of(&settings.confinement, settings.application.chdir.as_deref(), privileges)?;
    forking::on_leash(&confinement, &[], |prepared| {
        let mut call = no_functions;
        let (environment, removed) = (&settings.application.environment, &settings.application.removed_variables);
        // The child has become the user before it opens any file.
        let mut means = Means { shells: &settings.attendant.shells, environment, removed, files: &OwnFiles, call: &mut call };
        let outcome = prepared.map_err(|error| format!("{}: {error}", hook.origin));
        let outcome = outcome.and_then(|()| bolide_hooks::run_one(hook, &mut means).map_err(|error| error.to_string()));
        match outcome {
            Ok(()) => 0,
            Err(words) => {
                log_sink::line(&words);
                FAILED
            }
        }
    })
}

impl Owner for TouchHooks {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::default()
    }
}

impl Processes for TouchHooks {
    /// A hook has all the time that it takes.
    fn due(&mut self, _context: OwnerContext<'_>) {}

    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath> {
        let ended = self.0.note_end(pid, status, context.now_ms)?;
        if !matches!(ended.cause, Cause::Exited(0 | FAILED)) {
            log_sink::line(&ended.words());
        }
        let run = match ended.cause {
            // Processes that it left in the background are not ours.
            Cause::Exited(_) => ended.let_go(),
            // It has not left them by itself: they end with it.
            _ => ended.process.record,
        };
        // The file may have changed while its hook ran: the hook runs again then.
        if run.again && !context.is_stopping {
            self.begin(run.number, context.settings, context.privileges);
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
