//! What the master does otherwise where somebody works on the application (`develop`): a reload waits for a debugger, the old generation
//! leaves quickly, and lines of the log are fewer. The master runs it.

use std::io::{self, IsTerminal};

use bolide_contract::settings::Settings;
use bolide_supervision::logs::log_sink;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

use crate::children::Children;
use crate::children::child::{Child, KillReason};
use crate::control::commands::Command;

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

/// A reload that waits for a debugger: what is done, and what has asked for it.
#[derive(Debug, Default)]
pub struct Development {
    held_back: Option<(Command, String)>,
}

impl Development {
    /// What has changed asks for a reload: gives whether it is to begin, and not to wait for somebody who stands in a debugger.
    pub fn lets_reload(&mut self, command: Command, changes: &str, option: &str, children: &Children) -> bool {
        let is_halted = has_halted_worker(children);
        if !is_halted {
            log_sink::line(&format!("{changes}: reloading"));
        } else if self.held_back.replace((command, option.to_owned())).is_none() {
            log_sink::line(&format!("{changes}: the reload waits until the debugger continues"));
        }
        !is_halted
    }

    /// The reload that has waited for a debugger, when that has let go.
    pub fn release(&mut self, children: &Children) -> Option<(Command, String)> {
        let released = self.held_back.take_if(|_| !has_halted_worker(children))?;
        log_sink::line("the debugger has continued: reloading");
        Some(released)
    }
}

/// A worker of an older generation that stands in a debugger has all the time that it takes. Gives whether it is one.
pub fn spares_halted(worker: &mut Child, now_ms: u64) -> bool {
    if worker.is_halted {
        worker.deadline_ms = Some(now_ms + DEBUGGER_LOOK_MS);
    }
    worker.is_halted
}

/// At a stop nobody will answer the debugger any more.
pub fn kill_halted(children: &mut Children, now_ms: u64) {
    for id in children.ids(|child| child.is_halted) {
        children.kill(id, KillReason::StopNow, now_ms);
    }
}

fn has_halted_worker(children: &Children) -> bool {
    children.iter().any(|child| child.is_halted && child.state.is_active())
}
