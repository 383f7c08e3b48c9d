//! The master's record of its attendants: the active one, and those that are ending because another has replaced them. It forks
//! them, reads their reports, and orders them to end. It does not know their programs' processes. The master runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use bolide_contract::attendant::Attendant;
use bolide_contract::confinement::Confinement;
use bolide_contract::settings::Settings;
use bolide_services::statistics::{DaemonFacts, JobFacts};
use bolide_supervision::error::StartError;
use bolide_supervision::polling::Source;
use bolide_supervision::privileges::{self, Privileges};
use bolide_supervision::processes::backoff::{Backoff, EARLY_FAILURE_MS};
use bolide_supervision::processes::child_setup::RawConfinement;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::process_attributes;
use bolide_supervision::{log_sink, system};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::Pid;

use crate::daemons::{self, AttendantOrder, AttendantReport, Instructions, LaunchEnvironment, MAX_PACKET_BYTES, ProgramState};
use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};
use crate::token::Token;

/// Reports read from one attendant in a turn, so that programs with much output do not delay workers.
const ATTENDANT_REPORTS_A_TURN: usize = 64;
/// Time to end that an attendant has beyond the time of its programs, in milliseconds.
const END_GRACE_MS: u64 = 2000;

/// The current order of an attendant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    AtWork,
    /// Its daemons end, so that another attendant can start them again.
    Retiring,
    /// Its daemons have ended; commands of `cron` may still run.
    Retired,
    Stopping,
}

/// An attendant process that is alive.
#[derive(Debug)]
struct AttendantProcess {
    pid: Pid,
    channel: OwnedFd,
    task: Task,
    born_ms: u64,
    /// The settings that it was started with, and the states that it reports for their programs.
    settings: Attendant,
    daemons: Vec<ProgramState>,
    jobs: Vec<ProgramState>,
    /// When it is killed unless it has ended.
    deadline_ms: Option<u64>,
}

/// All attendants of an instance.
#[derive(Debug, Default)]
pub struct Attendants {
    attendants: Vec<AttendantProcess>,
    /// An attendant should be active: from the first loaded application to the end.
    is_wanted: bool,
    /// This master has forked an attendant before.
    has_begun: bool,
    /// The attendants of the previous master have not ended yet.
    is_held: bool,
    /// The minute, counted from 1970, whose jobs another attendant has run.
    minute_done: Option<i64>,
    backoff: Backoff,
}

/// Returns the identities of daemons, in their order.
///
/// # Errors
/// An unknown name, or a change that only root may make.
pub fn identities(settings: &Attendant, common: Option<&Privileges>) -> Result<Vec<Option<Privileges>>, StartError> {
    let of_daemon = |daemon: &bolide_contract::attendant::Daemon| {
        if daemon.user.is_none() && daemon.group.is_none() {
            return Ok(common.cloned());
        }
        let found = privileges::of_daemon(daemon.user.as_deref(), daemon.group.as_deref(), common);
        found.map_err(|error| StartError::new(format!("{}: {error}", daemon.origin)))
    };
    settings.daemons.iter().map(of_daemon).collect()
}

/// The tag of uWSGI's lines about jobs of cron, and about daemons (core/cron.c, core/daemons.c).
const TAGS: [(&str, &str); 2] = [("cron ", "[uwsgi-cron]"), ("daemon ", "[uwsgi-daemons]")];

/// Returns the tag with which uWSGI begins such a line.
fn tag_of(words: &str) -> &'static str {
    TAGS.iter().find(|(beginning, _)| words.starts_with(beginning)).map_or("", |(_, tag)| tag)
}

impl Attendants {
    /// Starts daemons and `cron` when the application is loaded for the first time.
    pub fn begin(&mut self, settings: &Settings) {
        self.is_wanted |= !self.has_begun && !settings.attendant.is_empty();
    }

    /// Restarts daemons when a new generation serves, by an attendant with the current settings.
    pub fn renew(&mut self, settings: &Settings, now_ms: u64) {
        self.retire(settings, now_ms);
        self.is_wanted = !settings.attendant.is_empty();
    }

    /// Ends daemons without a replacement in this master; running commands of `cron` continue.
    pub fn retire(&mut self, settings: &Settings, now_ms: u64) {
        self.is_wanted = false;
        for attendant in self.attendants.iter_mut().filter(|attendant| attendant.task == Task::AtWork) {
            self.minute_done = Some(daemons::this_minute());
            attendant.tell(AttendantOrder::Retire);
            attendant.task = Task::Retiring;
            attendant.deadline_ms = Some(now_ms + settings.attendant.mercy_ms + END_GRACE_MS);
        }
    }

    /// Returns the record for a master that replaces another: nothing is started before [`Attendants::release`].
    pub fn held() -> Attendants {
        Attendants { is_held: true, ..Attendants::default() }
    }

    /// Records that the daemons of the previous master have ended.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Returns whether the previous master may still run daemons and jobs that may run only once in an instance.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Records that the previous master is about to stop starting jobs, and has started those of this minute.
    pub fn note_minute(&mut self) {
        self.minute_done = Some(daemons::this_minute());
    }

    /// Returns whether a daemon may be running.
    pub fn has_daemons(&self) -> bool {
        self.attendants.iter().any(|attendant| attendant.task != Task::Retired)
    }

    /// Forks an attendant if one is wanted and none is active.
    pub fn start_if_due(&mut self, settings: &Settings, common: Option<&Privileges>, now_ms: u64) {
        let is_occupied = self.attendants.iter().any(|attendant| matches!(attendant.task, Task::AtWork | Task::Retiring));
        if !self.is_wanted || self.is_held || is_occupied || !self.backoff.over(now_ms) {
            return;
        }
        match self.fork(settings, common, now_ms) {
            Ok(attendant) => self.attendants.push(attendant),
            Err(error) => {
                self.backoff.failed_early(now_ms);
                log_sink::line(&format!("daemons and cron can't be started: {error}"));
            }
        }
    }

    fn fork(&mut self, settings: &Settings, common: Option<&Privileges>, now_ms: u64) -> Result<AttendantProcess, StartError> {
        let trouble = |error: io::Error| StartError::new(error.to_string());
        let root = Confinement { root: settings.confinement.root.clone(), ..Confinement::default() };
        let plan = Instructions {
            identities: identities(&settings.attendant, common)?,
            settings: settings.attendant.clone(),
            identity: common.cloned(),
            launch_environment: LaunchEnvironment {
                shells: settings.attendant.shells.clone(),
                application: settings.application.clone(),
                folder: settings.application.chdir.clone(),
                capabilities: settings.confinement.capabilities,
            },
            root: RawConfinement::of(&root, None, None).map_err(trouble)?,
            minute_done: self.minute_done.or_else(|| self.has_begun.then(daemons::this_minute)),
            process_name: process_attributes::name_of_helper(&settings.naming, "attendant"),
        };
        let supervised = settings.attendant.clone();
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
        let (near, far) = pair.map_err(|error| trouble(error.into()))?;
        match system::fork().map_err(trouble)? {
            None => daemons::run(plan, far),
            Some(pid) => {
                (self.has_begun, self.minute_done) = (true, None);
                Ok(AttendantProcess {
                    pid,
                    channel: near,
                    task: Task::AtWork,
                    born_ms: now_ms,
                    daemons: vec![ProgramState::default(); supervised.daemons.len()],
                    jobs: vec![ProgramState::default(); supervised.jobs.len()],
                    settings: supervised,
                    deadline_ms: None,
                })
            }
        }
    }

    /// Orders all attendants to end, once, within the time limit of their programs. The master's own children have ended by then.
    pub fn stop(&mut self, settings: &Settings, now_ms: u64) {
        self.is_wanted = false;
        for attendant in self.attendants.iter_mut().filter(|attendant| attendant.task != Task::Stopping) {
            attendant.tell(AttendantOrder::Stop);
            attendant.task = Task::Stopping;
            attendant.deadline_ms = Some(now_ms + settings.attendant.mercy_ms + END_GRACE_MS);
        }
    }

    /// Orders all attendants to kill their programs and to end.
    pub fn stop_now(&mut self, now_ms: u64) {
        self.is_wanted = false;
        for attendant in &mut self.attendants {
            attendant.tell(AttendantOrder::StopNow);
            attendant.task = Task::Stopping;
            attendant.deadline_ms = Some(now_ms + END_GRACE_MS);
        }
    }

    /// Returns whether no attendant is left.
    pub fn is_gone(&self) -> bool {
        self.attendants.is_empty()
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        self.attendants
            .iter()
            .map(|attendant| Source::readable(Token::Attendant(attendant.pid.as_raw()), attendant.channel.as_fd()))
    }

    /// Reads the reports of an attendant. Returns the name of a control daemon whose end ends the instance.
    pub fn read_reports(&mut self, pid: i32) -> Option<String> {
        let attendant = self.attendants.iter_mut().find(|attendant| attendant.pid.as_raw() == pid)?;
        let mut packet = [0; MAX_PACKET_BYTES];
        for _ in 0..ATTENDANT_REPORTS_A_TURN {
            let length = match recv(attendant.channel.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(_) => return None,
                Ok(length) => length,
            };
            match AttendantReport::decode(&packet[..length]) {
                Some(AttendantReport::LogLine(words)) => bolide_log::tagged_line(tag_of(&words), &words),
                Some(AttendantReport::Output(line)) => bolide_log::write_output(&line),
                Some(AttendantReport::ControlEnded(name)) => return Some(name),
                Some(AttendantReport::Daemon { number, state }) => note(&mut attendant.daemons, number, state),
                Some(AttendantReport::Job { number, state }) => note(&mut attendant.jobs, number, state),
                Some(AttendantReport::DaemonsGone) if attendant.task == Task::Retiring => {
                    attendant.task = Task::Retired;
                    // Commands of `cron` have their own time limit.
                    attendant.deadline_ms = None;
                }
                Some(AttendantReport::DaemonsGone) | None => {}
            }
        }
        None
    }

    /// Returns the pid and the start in monotonic milliseconds of each attendant, and whether it has been ordered to end.
    pub fn processes(&self) -> impl Iterator<Item = (Pid, u64, bool)> {
        self.attendants.iter().map(|attendant| (attendant.pid, attendant.born_ms, attendant.task != Task::AtWork))
    }

    /// Returns the state of daemons and jobs, as reported by the attendant that has daemons now; without an attendant, nothing
    /// runs.
    pub fn facts(&self, settings: &Settings) -> (Vec<DaemonFacts>, Vec<JobFacts>) {
        let attendant = self.attendants.iter().rev().find(|attendant| attendant.task != Task::Retired);
        let supervised = attendant.map_or(&settings.attendant, |attendant| &attendant.settings);
        let of_daemon =
            |number: usize| attendant.and_then(|attendant| attendant.daemons.get(number)).copied().unwrap_or_default();
        let of_job =
            |number: usize| attendant.and_then(|attendant| attendant.jobs.get(number)).copied().filter(|state| state.pid > 0);
        let daemons = supervised.daemons.iter().enumerate().map(|(number, daemon)| DaemonFacts {
            command: daemon.command.clone(),
            pid: of_daemon(number).pid,
            respawns: of_daemon(number).figure,
        });
        let jobs = supervised.jobs.iter().enumerate().map(|(number, job)| JobFacts {
            schedule: job.schedule,
            command: job.command.clone(),
            is_unique: job.is_unique,
            running: of_job(number).map(|state| (state.pid, state.figure)),
        });
        (daemons.collect(), jobs.collect())
    }

    /// Records the end of a child of the master. Returns false if it was not an attendant.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> bool {
        let Some(position) = self.attendants.iter().position(|attendant| attendant.pid == pid) else { return false };
        // Its last reports.
        let _ = self.read_reports(pid.as_raw());
        let attendant = self.attendants.remove(position);
        let cause = Cause::from_status(status);
        if attendant.task == Task::AtWork {
            let lived = now_ms.saturating_sub(attendant.born_ms) > EARLY_FAILURE_MS;
            if lived {
                self.backoff.lived();
            } else {
                self.backoff.failed_early(now_ms);
            }
            log_sink::line(&format!("the process for daemons and cron (pid {pid}) {}: starting another", cause.words()));
        }
        true
    }

    /// Kills attendants that exceed their time to end; the kernel kills their attached programs with them.
    pub fn kill_late(&mut self, now_ms: u64) {
        for attendant in &mut self.attendants {
            if attendant.deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms) {
                attendant.deadline_ms = None;
                log_sink::line(&format!("the process for daemons and cron (pid {}) has not ended: killing it", attendant.pid));
                // The attendant is our child and was not reaped, so its pid was not reused.
                system::signal_group(attendant.pid, libc::SIGKILL);
            }
        }
    }

    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        let deadlines = self.attendants.iter().filter_map(|attendant| attendant.deadline_ms);
        deadlines.chain(self.backoff.wake_ms(now_ms).filter(|_| self.is_wanted && !self.is_held)).min()
    }
}

fn note(states: &mut [ProgramState], number: u32, state: ProgramState) {
    if let Some(known) = states.get_mut(number as usize) {
        *known = state;
    }
}

impl AttendantProcess {
    fn tell(&self, order: AttendantOrder) {
        // The socket's buffer holds hundreds of orders; if it is full, the deadline applies.
        match send(self.channel.as_raw_fd(), &[order.byte()], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(_) | Err(Errno::EPIPE) => {}
            Err(error) => {
                log_sink::line(&format!("the process for daemons and cron (pid {}) can't be reached: {error}", self.pid))
            }
        }
    }
}

impl Owner for Attendants {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        Waits::on(self.sources(), self.wake_ms(turn.now_ms))
    }
}

impl Processes for Attendants {
    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath> {
        self.note_end(pid, status, context.now_ms).then_some(Aftermath::Nothing)
    }

    fn stop_now(&mut self, now_ms: u64) {
        self.stop_now(now_ms);
    }

    /// Daemons end last, because requests in flight may need them. Commands of `cron` outlive an upgrade, like a reload, but not
    /// the instance.
    fn finish(&mut self, _is_last: bool, context: OwnerContext<'_>) -> bool {
        if !context.continues_elsewhere {
            self.stop(context.settings, context.now_ms);
        }
        self.is_gone()
    }
}
