//! What the master does otherwise where somebody works on the application (`develop`): a reload waits for a debugger, the old generation
//! leaves quickly, and lines of the log are fewer. The master runs it.

use std::io::{self, IsTerminal};

use bolide_contract::settings::Settings;
use bolide_supervision::logs::log_sink;
use bolide_supervision::text::duration;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

use crate::children::child::KillReason;
use crate::control::commands::Command;
use crate::supervisor::Supervisor;

/// Time between two looks at a worker whose mercy is over while a debugger has stopped it, in milliseconds.
const DEBUGGER_LOOK_MS: u64 = 1_000;

/// The terminal as it was at the start: a debugger that is ended while it reads a line leaves it without an echo.
pub struct Terminal(Option<Termios>);

impl Terminal {
    pub fn remember(settings: &Settings) -> Terminal {
        let is_wanted = settings.development.is_some() && io::stdin().is_terminal();
        Terminal(if is_wanted { tcgetattr(io::stdin()).ok() } else { None })
    }

    pub fn restore(self) {
        if let Some(before) = self.0 {
            // A terminal that is gone needs no echo.
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &before);
        }
    }
}

impl Supervisor {
    pub(crate) fn is_developed(&self) -> bool {
        self.fleet.settings.development.is_some()
    }

    /// What has changed asks for a reload, unless somebody stands in a debugger.
    pub(crate) fn reload_in_development(&mut self, command: Command, changes: &str, option: &str, now_ms: u64) {
        if self.has_halted_worker() {
            if self.held_back.replace((command, option.to_owned())).is_none() {
                log_sink::line(&format!("{changes}: the reload waits until the debugger lets go"));
            }
            return;
        }
        log_sink::line(&format!("{changes}: reloading"));
        self.obey(command, option, now_ms);
    }

    /// A debugger has stopped a worker, or has let it go on.
    pub(crate) fn note_debugger(&mut self, id: u64, is_halted: bool) {
        if let Some(worker) = self.fleet.find_mut(id) {
            worker.is_halted = is_halted;
        }
    }

    /// Begins the reload that has waited for a debugger.
    pub(crate) fn release_held_back(&mut self, now_ms: u64) {
        if self.held_back.is_some()
            && !self.has_halted_worker()
            && !self.is_stopping()
            && let Some((command, option)) = self.held_back.take()
        {
            log_sink::line("the debugger has let go: reloading");
            self.obey(command, &option, now_ms);
        }
    }

    /// A worker of an older generation that stands in a debugger has all the time that it takes. Gives whether it is one.
    pub(crate) fn spares_halted(&mut self, id: u64, now_ms: u64) -> bool {
        let is_stopping = self.is_stopping();
        let Some(worker) = self.fleet.find_mut(id).filter(|worker| worker.is_halted && !is_stopping) else { return false };
        worker.deadline_ms = Some(now_ms + DEBUGGER_LOOK_MS);
        true
    }

    /// At a stop nobody will answer the debugger any more.
    pub(crate) fn kill_halted(&mut self, now_ms: u64) {
        for id in self.fleet.ids(|child| child.is_halted) {
            self.fleet.kill(id, KillReason::StopNow, now_ms);
        }
    }

    /// The line when a new generation serves.
    pub(crate) fn tell_reloaded(&self, took_ms: u64) {
        log_sink::line(&format!("reloaded in {}", duration(took_ms)));
    }

    fn has_halted_worker(&self) -> bool {
        self.fleet.children.iter().any(|child| child.is_halted && child.state.is_active())
    }
}
