//! The master's record of its attendants: the active one, and those that are ending because another has replaced them. It forks
//! them, reads their reports, and orders them to end. It does not know their programs' processes. The master runs it.

use std::io;

use bolide_contract::attendant::Attendant;
use bolide_contract::confinement::Confinement;
use bolide_contract::settings::Settings;
use bolide_services::statistics::{DaemonFacts, JobFacts};
use bolide_supervision::error::StartError;
use bolide_supervision::log_sink;
use bolide_supervision::privileges::{self, Privileges};
use bolide_supervision::processes::auxiliary::{Auxiliaries, AuxiliaryProcess};
use bolide_supervision::processes::backoff::Backoff;
use bolide_supervision::processes::channel::ChildReport;
use bolide_supervision::processes::child_setup::RawConfinement;
use bolide_supervision::processes::forking;
use bolide_supervision::processes::process_attributes;
use nix::unistd::Pid;

use crate::daemons::{self, AttendantOrder, AttendantReport, Instructions, LaunchEnvironment, ProgramState};
use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};
use crate::token::Token;

/// For the log.
const NAME: &str = "the process for daemons and cron";
/// Reports read from one attendant in a turn, so that programs with much output do not delay workers.
const ATTENDANT_REPORTS_A_TURN: usize = 64;
/// Time to end that an attendant has beyond the time of its programs, in milliseconds.
const END_GRACE_MS: u64 = 2000;

/// The current order of an attendant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    AtWork,
    /// Its daemons exit, so that another attendant can start them again.
    Retiring,
    /// Its daemons have exited; commands of `cron` may still run.
    Retired,
    Stopping,
}

/// What is kept for an attendant.
#[derive(Debug)]
struct AttendantRecord {
    task: Task,
    /// The settings that it was started with, and the states that it reports for their programs.
    settings: Attendant,
    daemons: Vec<ProgramState>,
    jobs: Vec<ProgramState>,
}

/// All attendants of an instance.
#[derive(Debug, Default)]
pub struct Attendants {
    attendants: Auxiliaries<AttendantRecord>,
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
        if self.attendants.iter().any(|attendant| attendant.record.task == Task::AtWork) {
            self.minute_done = Some(daemons::this_minute());
        }
        let deadline_ms = now_ms + settings.attendant.mercy_ms + END_GRACE_MS;
        self.tell(AttendantOrder::Retire, Task::Retiring, deadline_ms, |task| task == Task::AtWork);
    }

    /// Returns the record for a master that replaces another: nothing is started before [`Attendants::release`].
    pub fn held() -> Attendants {
        Attendants { is_held: true, ..Attendants::default() }
    }

    /// Records that the daemons of the previous master have exited.
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
        self.attendants.iter().any(|attendant| attendant.record.task != Task::Retired)
    }

    /// Returns whether an attendant is wanted and none is active.
    fn is_lacking(&self) -> bool {
        let is_occupied = self.attendants.iter().any(|attendant| matches!(attendant.record.task, Task::AtWork | Task::Retiring));
        self.is_wanted && !self.is_held && !is_occupied
    }

    /// Forks an attendant if one is lacking.
    fn start_if_due(&mut self, context: OwnerContext<'_>) {
        let OwnerContext { settings, privileges, now_ms, .. } = context;
        if !self.is_lacking() || !self.backoff.over(now_ms) {
            return;
        }
        if let Err(error) = self.fork(settings, privileges, now_ms) {
            self.backoff.failed_early(now_ms);
            log_sink::line(&format!("daemons and cron can't be started: {error}"));
        }
    }

    fn fork(&mut self, settings: &Settings, common: Option<&Privileges>, now_ms: u64) -> Result<(), StartError> {
        let trouble = |error: io::Error| StartError::new(error.to_string());
        let root = Confinement { root: settings.confinement.root.clone(), ..Confinement::default() };
        let plan = Instructions {
            identities: identities(&settings.attendant, common)?,
            settings: settings.attendant.clone(),
            identity: common.cloned(),
            launch_environment: LaunchEnvironment {
                shells: settings.attendant.shells.clone(),
                application: settings.application.clone(),
                directory: settings.application.chdir.clone(),
                capabilities: settings.confinement.capabilities,
            },
            root: RawConfinement::of(&root, None, None).map_err(trouble)?,
            minute_done: self.minute_done.or_else(|| self.has_begun.then(daemons::this_minute)),
        };
        let process_name = process_attributes::name_of_helper(&settings.naming, "attendant");
        let forked = forking::with_channel(&process_name, &[], |channel| daemons::run(plan, channel)).map_err(trouble)?;
        let record = AttendantRecord {
            task: Task::AtWork,
            settings: settings.attendant.clone(),
            daemons: vec![ProgramState::default(); settings.attendant.daemons.len()],
            jobs: vec![ProgramState::default(); settings.attendant.jobs.len()],
        };
        self.attendants.add(AuxiliaryProcess::new(NAME, forked, record, now_ms));
        (self.has_begun, self.minute_done) = (true, None);
        Ok(())
    }

    /// Orders all attendants to end, once, within the time limit of their programs. The master's own children have exited by
    /// then.
    pub fn stop(&mut self, settings: &Settings, now_ms: u64) {
        self.is_wanted = false;
        let deadline_ms = now_ms + settings.attendant.mercy_ms + END_GRACE_MS;
        self.tell(AttendantOrder::Stop, Task::Stopping, deadline_ms, |task| task != Task::Stopping);
    }

    /// Gives those with such a task another one.
    fn tell(&mut self, order: AttendantOrder, task: Task, deadline_ms: u64, is_meant: impl Fn(Task) -> bool) {
        for attendant in self.attendants.iter_mut().filter(|attendant| is_meant(attendant.record.task)) {
            attendant.record.task = task;
            attendant.order(order.byte(), deadline_ms);
        }
    }

    /// Reads the reports of an attendant. Returns the name of a control daemon whose end ends the instance.
    pub fn read_reports(&mut self, pid: i32) -> Option<String> {
        let mut ended = None;
        self.attendants.take_reports(pid, ATTENDANT_REPORTS_A_TURN, |report, attendant| {
            let report = match report {
                ChildReport::Line(words) => return bolide_log::tagged_line(tag_of(&words), &words),
                ChildReport::Other(kind, text) => AttendantReport::decode(kind, text),
            };
            match report {
                Some(AttendantReport::Output(line)) => bolide_log::write_output(&line),
                Some(AttendantReport::ControlEnded(name)) => ended = Some(name),
                Some(AttendantReport::Daemon { number, state }) => note(&mut attendant.record.daemons, number, state),
                Some(AttendantReport::Job { number, state }) => note(&mut attendant.record.jobs, number, state),
                Some(AttendantReport::DaemonsGone) if attendant.record.task == Task::Retiring => {
                    attendant.record.task = Task::Retired;
                    // Commands of `cron` have their own time limit.
                    attendant.forget_deadline();
                }
                Some(AttendantReport::DaemonsGone) | None => {}
            }
        });
        ended
    }

    /// Returns the pid and the start time in monotonic milliseconds of each attendant, and whether it has been ordered to end.
    pub fn processes(&self) -> impl Iterator<Item = (Pid, u64, bool)> {
        self.attendants.processes()
    }

    /// Returns the state of daemons and jobs, as reported by the attendant that has daemons now; without an attendant, nothing
    /// runs.
    pub fn facts(&self, settings: &Settings) -> (Vec<DaemonFacts>, Vec<JobFacts>) {
        let records = self.attendants.iter().map(|attendant| &attendant.record);
        let attendant = records.rev().find(|record| record.task != Task::Retired);
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
}

fn note(states: &mut [ProgramState], number: u32, state: ProgramState) {
    if let Some(known) = states.get_mut(number as usize) {
        *known = state;
    }
}

impl Owner for Attendants {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        let is_due = self.is_lacking() && !turn.is_stopping;
        let next_start = is_due.then(|| self.backoff.wake_ms(turn.now_ms).unwrap_or(turn.now_ms));
        Waits::on(self.attendants.sources(Token::Attendant), self.attendants.wake_ms().into_iter().chain(next_start).min())
    }
}

impl Processes for Attendants {
    fn due(&mut self, context: OwnerContext<'_>) {
        // The kernel kills the attached programs with them.
        log_sink::lines(&self.attendants.kill_late("", context.now_ms));
        if !context.is_stopping {
            self.start_if_due(context);
        }
    }

    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath> {
        // Its last reports.
        let _ = self.read_reports(pid.as_raw());
        let ended = self.attendants.note_end(pid, status, context.now_ms)?;
        if ended.process.record.task == Task::AtWork {
            log_sink::line(&ended.followed(&mut self.backoff, context.now_ms));
        }
        Some(Aftermath::Nothing)
    }

    fn stop_now(&mut self, now_ms: u64) {
        self.is_wanted = false;
        self.tell(AttendantOrder::StopNow, Task::Stopping, now_ms + END_GRACE_MS, |_| true);
    }

    /// Daemons exit last, because requests in flight may need them. Commands of `cron` outlive an upgrade, like a reload, but not
    /// the instance.
    fn finish(&mut self, _is_last: bool, context: OwnerContext<'_>) -> bool {
        if !context.continues_elsewhere {
            self.stop(context.settings, context.now_ms);
        }
        self.attendants.is_empty()
    }
}
