//! The ends of children: their effect on the worker number, and the log lines about them. It reaps no process. The master runs
//! it.

use bolide_contract::message;
use bolide_scoreboard::Remembered;
use bolide_supervision::log_sink;
use bolide_supervision::processes::backoff::EARLY_FAILURE_MS;
use bolide_supervision::processes::exit_report::{self, Cause};
use bolide_supervision::processes::oom_kills::KernelKill;
use bolide_supervision::processes::signals;
use bolide_supervision::system::Pause;
use bolide_supervision::text::duration;
use nix::unistd::Pid;

use crate::children::child::{Child, KillReason};
use crate::children::ledger::EndKind;
use crate::children::{Children, log_last_requests};
use crate::generations::Generations;
use crate::provision::Provision;

/// A worker that was killed for its memory within this time exceeded its limit from startup, in milliseconds.
const OVER_MEMORY_EARLY_MS: u64 = 10_000;
/// How long a prototype that was stopped by a signal may take to continue, in milliseconds: while it is stopped, no worker is
/// replaced.
const STOPPED_MS: u64 = 5000;

/// Handles the stop or continuation of a prototype: a stopped prototype can't fork replacements, so it gets a short time to
/// continue.
pub fn note_pause(pid: Pid, pause: Pause, children: &mut Children, now: u64) {
    let Some(id) = children.with_pid(pid).filter(|child| child.is_prototype()).map(|child| child.id) else { return };
    let Some(child) = children.find_mut(id) else { return };
    child.stopped_until_ms = match pause {
        Pause::Stopped(signal) => {
            let (name, most) = (signals::name(signal), duration(STOPPED_MS));
            log_sink::line(&format!("{child} was stopped by {name}: it is killed unless it continues (SIGCONT) within {most}"));
            Some(now + STOPPED_MS)
        }
        Pause::Continued => None,
    };
}

/// An exited worker, and the details of its end.
pub struct WorkerEnd<'a> {
    pub worker: &'a Child,
    pub number: u32,
    pub cause: &'a Cause,
    /// The requests that it remembers, in flight and answered, with their threads.
    pub remembered: Vec<(u32, Remembered)>,
    /// What the kernel says about a death by SIGKILL.
    pub kernel_kill: KernelKill,
    /// It has begun requests.
    pub has_worked: bool,
}

impl WorkerEnd<'_> {
    /// Returns the cause, for the statistics.
    pub fn kind(&self) -> EndKind {
        match (self.worker.kill_reason, self.cause) {
            (Some(KillReason::Harakiri), _) => EndKind::Harakiri,
            (Some(KillReason::Memory), _) => EndKind::Memory,
            (Some(KillReason::Mercy | KillReason::Late | KillReason::InterpreterStays), _) => EndKind::Late,
            (Some(KillReason::StopNow), _) => EndKind::Ordered,
            (Some(KillReason::Signaled), _) => EndKind::Signal,
            (Some(_), _) => EndKind::Other,
            (None, Cause::Exited(0)) if !self.worker.state.is_active() => EndKind::Ordered,
            (None, Cause::Exited(_)) => EndKind::Exit,
            (None, Cause::Signaled { .. }) => EndKind::Signal,
            (None, Cause::NotForked(_) | Cause::Unknown) => EndKind::Other,
        }
    }

    /// Records the end for its number, whose next worker starts immediately or after a pause, and logs it. Returns whether the
    /// worker failed early without an order to end.
    pub fn note(&self, generations: &mut Generations, provision: &Provision, is_stopping: bool, now: u64) -> bool {
        let WorkerEnd { worker, number, cause, .. } = *self;
        let asked = !worker.state.is_active();
        // A worker that exceeded its memory limit soon after its start will do so again.
        let over_memory = worker.kill_reason == Some(KillReason::Memory);
        let least_ms = if over_memory { OVER_MEMORY_EARLY_MS } else { EARLY_FAILURE_MS };
        let lived = self.has_worked && !over_memory || worker.ready_ms.is_some_and(|ready| now.saturating_sub(ready) >= least_ms);
        let never_was = worker.pid.is_none() && *cause == Cause::Unknown;
        let mut follows = String::new();
        if let Some(generation) = generations.with_number_mut(worker.generation)
            && (!asked
                || matches!(
                    worker.kill_reason,
                    Some(KillReason::Harakiri | KillReason::Unreachable | KillReason::Late | KillReason::Memory)
                ))
            && !is_stopping
            && !never_was
        {
            let slot = &mut generation.worker_slots[number as usize - 1];
            follows = if lived {
                slot.lived();
                "; it is replaced".to_owned()
            } else if over_memory {
                format!(" used too much memory soon after startup; next attempt in {}", duration(slot.failed_early(now)))
            } else {
                format!(" before its first request; next attempt in {}", duration(slot.failed_early(now)))
            };
        }
        // No end is logged twice: a kill has its line already, and an ordered end needs none.
        let forming = generations.forming_of(worker.generation);
        let is_forming = forming.is_some();
        // A new generation that can't load the application has one line, when it is abandoned.
        let is_told =
            *cause == Cause::Exited(message::EXIT_LOAD_FAILED) && forming.is_some_and(|forming| !forming.generation.served);
        let ended_as_told = asked && *cause == Cause::Exited(0);
        let is_known = worker.kill_reason.is_some() || never_was || is_told || ended_as_told;
        if over_memory && !lived {
            log_sink::line(&format!("{worker}{follows}"));
        } else if !is_known {
            let served = exit_report::while_serving(&exit_report::open(&self.remembered), now);
            let (how, by_kernel) = (words_of_end(cause, provision), self.kernel_kill.words());
            log_sink::line(&format!("{worker} {how}{by_kernel}{served}{follows}"));
            log_last_requests(worker, &self.remembered, now);
        }
        is_forming && !asked && !lived && !never_was
    }
}

/// Logs the end of a prototype, unless it was ordered or is logged already.
pub fn log_end_of_prototype(prototype: &Child, cause: &Cause, provision: &Provision) {
    let asked = !prototype.state.is_active();
    let is_logged = prototype.kill_reason.is_none()
        && !(asked && *cause == Cause::Exited(0))
        && *cause != Cause::Exited(message::EXIT_LOAD_FAILED);
    if is_logged {
        log_sink::line(&format!("{prototype} {}", words_of_end(cause, provision)));
    }
}

/// Returns a cause as text, with its probable reason: libraries do not report that they abort for lack of memory.
fn words_of_end(cause: &Cause, provision: &Provision) -> String {
    let words = cause.words();
    let limit = provision.coming_settings().lifecycle.process.address_space_bytes;
    match (cause, limit) {
        (Cause::Signaled { signal: libc::SIGABRT, .. }, Some(bytes)) => {
            let most = bytes / (1024 * 1024);
            format!("{words}, probably because it could not allocate memory within limit-as = {most} MiB")
        }
        _ => words,
    }
}

/// Returns the reason why a prototype did not load. A prototype without any output may not have found the module `bolide`.
pub fn why_not_loaded(cause: &Cause, loaded: bool, provision: &Provision) -> String {
    let program = provision.program();
    let hint = match (cause, &program.package_directory) {
        (Cause::Exited(1), None) if !loaded => {
            format!(" (if the module `bolide` is missing: {} -m pip install bolide)", program.executable.display())
        }
        _ => String::new(),
    };
    format!("its prototype {}, see above{hint}", cause.words())
}
