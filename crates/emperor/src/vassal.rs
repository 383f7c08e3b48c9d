//! One vassal: what its file was at the last look, its process, and what is to be done with it next. It starts and signals
//! nothing. The emperor runs it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bolide_contract::emperor::Emperor;
use bolide_contract::loyalty::VassalReport;
use bolide_supervision::polling::Source;
use bolide_supervision::processes::auxiliary::AuxiliaryProcess;
use bolide_supervision::system;

use crate::demand::Demand;
use crate::places::{Found, Owner, Stamp};

/// A vassal that takes longer than this to start no longer delays the others, in milliseconds.
const START_MS: u64 = 30_000;
/// A vassal that has served and lived for less than this starts again after a pause, in milliseconds.
const SHORT_LIFE_MS: u64 = 3000;

/// A configuration, and the instance that it has.
#[derive(Debug)]
pub struct Vassal {
    pub id: u64,
    pub name: String,
    /// What the last look has found; `None` if the file is gone.
    pub found: Option<Found>,
    pub process: Option<AuxiliaryProcess<Bond>>,
    /// The socket at which its first connection is awaited; `None` if it does not wait for one.
    pub demand: Option<Demand>,
    /// A command has stopped it: it starts when its file changes.
    pub is_stopped: bool,
    /// Why it can't start on demand.
    pub obstacle: Option<String>,
    /// It runs without the socket that it is to have, or with one that it is not to have any more.
    pub leaves_mode: bool,
    pub pauses: Pauses,
    pub times: Times,
}

/// When things have happened, in seconds since 1970, and how often, for the statistics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// When the current process started.
    pub started_s: u64,
    pub first_run_s: u64,
    pub last_run_s: u64,
    pub loyal_s: u64,
    pub ready_s: u64,
    pub accepting_s: u64,
    pub heartbeat_s: u64,
    pub told_to_end_s: u64,
    /// Reloads.
    pub respawns: u64,
}

/// What ties a process to its emperor.
#[derive(Debug)]
pub struct Bond {
    /// `None` when the vassal has closed its end.
    pub link: Option<UnixStream>,
    /// The process, if it is not our child: its end is read there.
    pub handle: Option<OwnedFd>,
    /// What the file was when it was last told to read it.
    pub stamp: Stamp,
    pub owner: Option<Owner>,
    pub started_ms: u64,
    pub is_ready: bool,
    pub is_accepting: bool,
    pub is_loyal: bool,
    /// A command has stopped it.
    pub was_stopped: bool,
    /// It has reported that no request has come for a time, and ends.
    pub was_idle: bool,
    /// When the last heartbeat came; `None` if none has come yet.
    pub heartbeat_ms: Option<u64>,
}

impl Bond {
    /// The bond of a process that has reported nothing yet.
    pub fn new(link: UnixStream, handle: Option<OwnedFd>, stamp: Stamp, owner: Option<Owner>, now_ms: u64) -> Bond {
        Bond {
            link: Some(link),
            handle,
            stamp,
            owner,
            started_ms: now_ms,
            is_ready: false,
            is_accepting: false,
            is_loyal: false,
            was_stopped: false,
            was_idle: false,
            heartbeat_ms: None,
        }
    }
}

/// What is to be done with a vassal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Nothing,
    Start,
    Reload,
    /// It is told to end, for this reason.
    Stop(&'static str),
    /// It is killed, for this reason.
    Kill(&'static str),
    /// Nothing is left of it.
    Forget,
}

impl Vassal {
    pub fn new(id: u64, name: String, found: Option<Found>) -> Vassal {
        Vassal {
            id,
            name,
            found,
            process: None,
            demand: None,
            is_stopped: false,
            obstacle: None,
            leaves_mode: false,
            pauses: Pauses::default(),
            times: Times::default(),
        }
    }

    /// Whether this is its file.
    pub fn is(&self, found: &Found) -> bool {
        let is_of_place = |before: &Found| before.place == found.place;
        self.name == found.name && self.found.as_ref().is_none_or(is_of_place)
    }

    /// The user that it runs as under a tyrant, and otherwise 0.
    pub fn owner_number(&self) -> u32 {
        self.found.as_ref().and_then(|found| found.owner).map_or(0, |owner| owner.user)
    }

    /// Whether it is starting, so that others wait for it.
    pub fn is_starting(&self, now_ms: u64) -> bool {
        let is_young = |bond: &Bond| !bond.is_accepting && now_ms < bond.started_ms.saturating_add(START_MS);
        self.process.as_ref().is_some_and(|process| process.is_working() && is_young(&process.record))
    }

    /// What is to be done next. The kill of one that does not end in time is the business of its process.
    pub fn step(&self, emperor: &Emperor, is_ending: bool, now_ms: u64) -> Step {
        let Some(process) = &self.process else {
            return match &self.found {
                _ if is_ending => Step::Forget,
                None => Step::Forget,
                Some(_) if now_ms < self.pauses.until_ms || self.is_stopped || self.obstacle.is_some() => Step::Nothing,
                Some(_) if self.demand.as_ref().is_some_and(|demand| !demand.is_called) => Step::Nothing,
                Some(_) => Step::Start,
            };
        };
        if !process.is_working() {
            return Step::Nothing;
        }
        let bond = &process.record;
        let is_late = |heartbeat_ms: u64| now_ms >= heartbeat_ms.saturating_add(emperor.heartbeat_ms);
        match &self.found {
            _ if is_ending => Step::Stop("the emperor stops"),
            None => Step::Stop("its file is gone"),
            Some(_) if bond.was_idle => Step::Stop("it is idle"),
            Some(_) if self.leaves_mode => Step::Stop("its socket on demand has changed"),
            Some(found) if found.owner != bond.owner => Step::Stop("its file belongs to another user now"),
            Some(_) if bond.heartbeat_ms.is_some_and(is_late) => Step::Kill("has sent no heartbeat for too long"),
            Some(found) if found.stamp != bond.stamp => Step::Reload,
            Some(_) => Step::Nothing,
        }
    }

    /// When [`Vassal::step`] may have another answer without an event, in monotonic milliseconds.
    pub fn wake_ms(&self, emperor: &Emperor) -> Option<u64> {
        match &self.process {
            None => self.found.as_ref().map(|_| self.pauses.until_ms),
            Some(process) => {
                let bond = &process.record;
                let heartbeat = bond.heartbeat_ms.filter(|_| process.is_working());
                let heartbeat = heartbeat.map(|heartbeat_ms| heartbeat_ms.saturating_add(emperor.heartbeat_ms));
                let start = (!bond.is_accepting).then_some(bond.started_ms.saturating_add(START_MS));
                [process.deadline_ms(), heartbeat, start].into_iter().flatten().min()
            }
        }
    }

    /// The socket of its process, the process if it is not our child, and the socket of its first connection.
    pub fn sources<T>(&self, reports: T, end: T, call: T) -> impl Iterator<Item = Source<'_, T>> {
        let bond = self.process.as_ref().map(|process| &process.record);
        let link = bond.and_then(|bond| bond.link.as_ref()).map(|link| Source::readable(reports, link.as_fd()));
        let handle = bond.and_then(|bond| bond.handle.as_ref()).map(|handle| Source::readable(end, handle.as_fd()));
        let demand = self.demand.as_ref().filter(|demand| self.process.is_none() && !demand.is_called);
        let demand = demand.map(|demand| Source::readable(call, demand.socket.as_fd()));
        link.into_iter().chain(handle).chain(demand)
    }

    /// The connection to its process.
    pub fn link(&self) -> Option<&UnixStream> {
        self.process.as_ref()?.record.link.as_ref()
    }

    /// Kills its process.
    pub fn kill(&mut self) {
        if let Some(process) = self.own_process() {
            process.kill();
        }
    }

    /// Kills its process if that was told to end and has not. Returns the line for the log.
    pub fn kill_if_late(&mut self, now_ms: u64) -> Option<String> {
        self.own_process()?.kill_if_late("", now_ms)
    }

    /// Returns its process. The pid of one that is not our child may be another's by now, which its handle knows.
    fn own_process(&mut self) -> Option<&mut AuxiliaryProcess<Bond>> {
        let lives = |handle: &OwnedFd| system::signal_process(handle, 0).is_ok();
        self.process.as_mut().filter(|process| process.record.handle.as_ref().is_none_or(lives))
    }

    /// Notes a report of its process. Returns whether it serves for the first time after failures.
    pub fn note(&mut self, report: VassalReport, now_ms: u64, now_s: u64) -> bool {
        let Some(process) = &mut self.process else { return false };
        let bond = &mut process.record;
        match report {
            VassalReport::Spawned => (bond.is_ready, self.times.ready_s) = (true, now_s),
            VassalReport::Accepting => (bond.is_accepting, self.times.accepting_s) = (true, now_s),
            VassalReport::Loyal => {
                (bond.is_loyal, self.times.loyal_s) = (true, now_s);
                return self.pauses.end();
            }
            VassalReport::Heartbeat => (bond.heartbeat_ms, self.times.heartbeat_s) = (Some(now_ms), now_s),
            VassalReport::Idle => bond.was_idle = true,
            VassalReport::Stopped => bond.was_stopped = true,
        }
        false
    }
}

/// The pauses before a vassal that fails starts again: each twice as long as the last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pauses {
    /// Failures in a row.
    pub failures: u32,
    pub until_ms: u64,
    pause_ms: u64,
}

impl Pauses {
    /// Notes the end of a process that nothing had told to end. Returns the pause before the next.
    pub fn ended(&mut self, was_loyal: bool, lived_ms: u64, emperor: &Emperor, now_ms: u64) -> u64 {
        if was_loyal && lived_ms >= SHORT_LIFE_MS {
            *self = Pauses::default();
            return 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.pause_ms = match self.pause_ms {
            _ if emperor.is_without_pauses => 0,
            0 => emperor.pause_ms,
            before => before.saturating_mul(2).min(emperor.longest_pause_ms),
        };
        self.until_ms = now_ms.saturating_add(self.pause_ms);
        self.pause_ms
    }

    /// The length of the last pause, in milliseconds.
    pub fn pause_ms(&self) -> u64 {
        self.pause_ms
    }

    /// Whether the failures in a row are told: the first, and the one after which the pauses do not grow any more.
    pub fn are_told(&self, emperor: &Emperor) -> bool {
        let grows_no_more = self.pause_ms >= emperor.longest_pause_ms && self.pause_ms / 2 < emperor.longest_pause_ms;
        self.failures == 1 || grows_no_more && self.failures <= emperor.longest_pause_ms.ilog2() + 2
    }

    /// The file was changed: the vassal starts without a pause.
    pub fn forget(&mut self) {
        *self = Pauses::default();
    }

    /// It serves. Returns whether it had failed before.
    fn end(&mut self) -> bool {
        let had_failed = self.failures > 0;
        // The length of the next pause is kept until it has lived for some time.
        self.failures = 0;
        had_failed
    }
}
