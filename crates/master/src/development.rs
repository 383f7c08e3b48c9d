//! Differences of the master in development (`develop`): requests wait while changed code is loaded, a reload waits for a
//! debugger, the old generation ends quickly, and fewer lines are logged. It watches no files. The master runs it.

use std::os::fd::OwnedFd;
use std::time::SystemTime;

use bolide_supervision::log_sink;

use crate::children::Children;
use crate::children::child::{Child, KillReason};
use crate::control::commands::Command;
use crate::owner::{Owner, Turn, Waits};
use crate::provision::error_report;

/// Interval at which a worker past its deadline is checked while a debugger has stopped it, in milliseconds.
const DEBUGGER_CHECK_MS: u64 = 1_000;

/// How long requests wait for changed code, in milliseconds. Then the old worker continues: it answers browsers that ask for a
/// page with one that says where the import is, and all other requests with the old code.
const MAX_HOLD_MS: u64 = 10_000;
/// How much longer they wait if that page is not written yet, in milliseconds: on a busy machine the import begins late.
const PAGE_GRACE_MS: u64 = 5_000;
/// Interval at which that page is looked for, in milliseconds.
const PAGE_CHECK_MS: u64 = 100;

#[derive(Debug, Default)]
pub struct Development {
    /// A reload that waits for a debugger: the command, and the option that requested it.
    held_back: Option<(Command, String)>,
    /// Requests wait for changed code.
    hold: Option<Hold>,
}

#[derive(Debug)]
struct Hold {
    began: SystemTime,
    /// When the hold may end although code is being loaded, and when it must.
    next_check_ms: u64,
    until_ms: u64,
}

impl Hold {
    fn begin(now_ms: u64) -> Hold {
        let next_check_ms = now_ms + MAX_HOLD_MS;
        Hold { began: SystemTime::now(), next_check_ms, until_ms: next_check_ms + PAGE_GRACE_MS }
    }

    /// Returns whether the hold has taken too long. A page is waited for only where there will be one.
    fn is_over(&mut self, page: Option<&OwnedFd>, now_ms: u64) -> bool {
        if now_ms < self.next_check_ms {
            return false;
        }
        self.next_check_ms = now_ms + PAGE_CHECK_MS;
        let has_page = page.is_none_or(|page| error_report::page_written(page).is_some_and(|written| written >= self.began));
        has_page || now_ms >= self.until_ms
    }
}

impl Development {
    /// Decides about a reload because of changes. Returns whether it may begin now; if a worker is stopped in a debugger, it
    /// waits.
    pub fn may_reload_now(&mut self, command: Command, changes: &str, option: &str, children: &Children) -> bool {
        let is_halted = has_halted_worker(children);
        if !is_halted {
            log_sink::line(&format!("{changes}: reloading"));
        } else if self.held_back.replace((command, option.to_owned())).is_none() {
            log_sink::line(&format!("{changes}: the reload waits until the debugger continues"));
        }
        !is_halted
    }

    /// Lets requests wait while changed code is loaded, so that a file that was saved is what the next request sees. The user's
    /// own pause stays as it is.
    pub fn hold_requests(&mut self, children: &mut Children, now_ms: u64) {
        if self.hold.is_some() || children.pause(true) {
            self.hold = Some(Hold::begin(now_ms));
        }
    }

    /// Returns whether requests wait for changed code.
    pub fn holds_requests(&self) -> bool {
        self.hold.is_some()
    }

    /// Lets requests continue if no code is being loaded any more, or if that takes too long. `page` is the file of the page that
    /// tells browsers.
    pub fn let_requests_go(&mut self, is_loading: bool, page: Option<&OwnedFd>, children: &mut Children, now_ms: u64) {
        if self.hold.take_if(|hold| !is_loading || hold.is_over(page, now_ms)).is_some() {
            children.pause(false);
        }
    }

    /// Returns the reload that waited for a debugger, once the debugger has continued.
    pub fn release(&mut self, children: &Children) -> Option<(Command, String)> {
        let released = self.held_back.take_if(|_| !has_halted_worker(children))?;
        log_sink::line("the debugger has continued: reloading");
        Some(released)
    }
}

/// Extends the deadline of an old generation's worker while it is stopped in a debugger. Returns whether it is.
pub fn extend_if_halted(worker: &mut Child, now_ms: u64) -> bool {
    if worker.is_halted {
        worker.deadline_ms = Some(now_ms + DEBUGGER_CHECK_MS);
    }
    worker.is_halted
}

/// Kills workers that are stopped in a debugger: during shutdown there is no user to continue them.
pub fn kill_halted(children: &mut Children, now_ms: u64) {
    for id in children.ids(|child| child.is_halted) {
        children.kill(id, KillReason::StopNow, now_ms);
    }
}

/// Returns whether a debugger has stopped a worker, which would have to end for new code.
pub fn has_halted_worker(children: &Children) -> bool {
    children.iter().any(|child| child.is_halted && child.state.is_active())
}

impl Owner for Development {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        // Requests may have waited long enough then.
        Waits::until(self.hold.as_ref().filter(|_| !turn.is_stopping).map(|hold| hold.next_check_ms))
    }
}
