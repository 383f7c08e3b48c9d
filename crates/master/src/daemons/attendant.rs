//! The event loop of the attendant: orders of the master, output of programs, their exits, and the clock. It waits for nothing
//! else, and ends when the master is gone. It never returns to the code that the master was running at the fork. The attendant
//! runs it.

use std::io::PipeReader;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use bolide_contract::attendant::Attendant;
use bolide_contract::clock::now_ms;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::channel::{FromMaster, MasterChannel};
use bolide_supervision::processes::child_setup::{CapabilitiesAtExec, RawConfinement};
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::system;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::cron::{MAX_RUNNING, Runs};
use super::output::Output;
use super::packets::{AttendantOrder, AttendantReport, ProgramState};
use super::pidfile::Identities;
use super::program::{LaunchEnvironment, LaunchRequest, name_of, names_of};
use super::supervise::{DaemonEnd, SupervisedDaemon};

/// Interval at which the files of daemons are checked, in milliseconds.
const CHECK_MS: u64 = 1000;
/// Time for programs to end when the master is gone, in milliseconds. Nothing outlives the master for longer than two seconds.
const ORPHANED_MERCY_MS: u64 = 1000;
/// Maximum number of output pipes that are read at a time. Above it, the oldest pipe is dropped; a program's own children may
/// hold such pipes open.
const MAX_OUTPUTS: usize = 256;
/// Delay before reports that the master had no buffer space for are sent again, in milliseconds.
const RESEND_MS: u64 = 50;
/// The longest wait, in milliseconds, because the clock may be set in the meantime.
const MAX_TURN_MS: u64 = 60_000;
const MINUTE_S: i64 = 60;

/// The configuration of an attendant, which it gets when it is forked.
#[derive(Debug)]
pub struct Instructions {
    pub settings: Attendant,
    /// The identity of each daemon, in their order.
    pub identities: Vec<Option<Privileges>>,
    /// The identity for the commands of `cron`.
    pub identity: Option<Privileges>,
    pub launch_environment: LaunchEnvironment,
    /// `chroot`: its programs and their pidfiles are within this root.
    pub root: RawConfinement,
    /// The minute, counted from 1970, whose jobs have run. Without it, jobs that are due run immediately.
    pub minute_done: Option<i64>,
}

/// The state of the attendant's loop.
struct AttendantLoop {
    channel: MasterChannel,
    /// Log lines that the master did not accept since the last one that it accepted.
    dropped: u64,
    /// Reports that must reach the master, sent again later if necessary: at most two.
    unsent: Vec<AttendantReport>,
    /// The last reported state of each program: daemons first, then jobs.
    reported_states: Vec<ProgramState>,
    /// The master had no buffer space for some of the states.
    has_unreported_states: bool,
    signals: SignalFd,
    daemons: Vec<SupervisedDaemon>,
    runs: Runs,
    outputs: Vec<Output>,
    identity: Option<Privileges>,
    launch_environment: LaunchEnvironment,
    mercy_ms: u64,
    check_ms: u64,
    /// `Retire` or a stronger order arrived: nothing is started any more.
    is_ending: bool,
    has_reported_gone: bool,
    is_orphaned: bool,
}

/// The attendant's whole life. Returns its exit status.
pub fn run(plan: Instructions, channel: MasterChannel) -> i32 {
    if let Err(error) = plan.root.take(CapabilitiesAtExec::RootOnly) {
        // Without its root the attendant starts nothing; the master reports that it has ended.
        return error.raw_os_error().unwrap_or(1);
    }
    i32::from(AttendantLoop::new(plan, channel).map(|mut attendant| attendant.work()).is_err())
}

impl AttendantLoop {
    fn new(plan: Instructions, channel: MasterChannel) -> Result<AttendantLoop, Errno> {
        let now = now_ms();
        // All signals are blocked since the start of the master; only SIGCHLD concerns the attendant.
        let mut children = SigSet::empty();
        children.add(Signal::SIGCHLD);
        let signals = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let mut daemons: Vec<SupervisedDaemon> = Vec::new();
        let names = names_of(&plan.settings.daemons.iter().map(|daemon| daemon.command.as_str()).collect::<Vec<&str>>());
        for ((daemon, identity), name) in plan.settings.daemons.into_iter().zip(plan.identities).zip(names) {
            let identities = Identities { daemon: identity, application: plan.identity.clone() };
            daemons.push(SupervisedDaemon::new(daemon, name, identities, now));
        }
        let minute = plan.minute_done.unwrap_or(i64::MIN);
        let mut attendant = AttendantLoop {
            channel,
            dropped: 0,
            unsent: Vec::new(),
            reported_states: vec![ProgramState::default(); daemons.len() + plan.settings.jobs.len()],
            has_unreported_states: false,
            signals,
            daemons,
            runs: Runs::new(plan.settings.jobs, minute),
            outputs: Vec::new(),
            identity: plan.identity,
            launch_environment: plan.launch_environment,
            mercy_ms: plan.settings.mercy_ms,
            check_ms: now + CHECK_MS,
            is_ending: false,
            has_reported_gone: false,
            is_orphaned: false,
        };
        let found: Vec<String> = attendant.daemons.iter().filter_map(SupervisedDaemon::found).collect();
        attendant.say_all(&found);
        Ok(attendant)
    }

    /// Runs the loop until no work is left.
    fn work(&mut self) {
        loop {
            let now = now_ms();
            self.take_orders(now);
            self.reap(now);
            self.read_outputs();
            self.check_files(now);
            self.start_due(now);
            self.kill_late(now);
            self.report_states();
            self.send_unsent();
            if self.is_ending && self.is_done() {
                // Their last output has been read by now, unless another process still writes to the pipe.
                self.read_outputs();
                self.send_unsent();
                return;
            }
            self.wait();
        }
    }

    /// Returns whether there is nothing left to wait for. Reports to the master when the daemons are gone, even if commands still
    /// run.
    fn is_done(&mut self) -> bool {
        if self.daemons.iter().any(SupervisedDaemon::is_running) {
            return false;
        }
        if !std::mem::replace(&mut self.has_reported_gone, true) {
            self.unsent.push(AttendantReport::DaemonsGone);
        }
        self.runs.is_idle()
    }

    fn take_orders(&mut self, now: u64) {
        while !self.is_orphaned
            && let Some(news) = self.channel.next()
        {
            match news {
                FromMaster::Gone => {
                    self.is_orphaned = true;
                    self.mercy_ms = self.mercy_ms.min(ORPHANED_MERCY_MS);
                    self.obey(AttendantOrder::Stop, now);
                }
                FromMaster::Order(byte) => AttendantOrder::of(byte).into_iter().for_each(|order| self.obey(order, now)),
            }
        }
    }

    fn obey(&mut self, order: AttendantOrder, now: u64) {
        self.is_ending = true;
        self.runs.forget_jobs();
        for daemon in &mut self.daemons {
            match order {
                AttendantOrder::StopNow => daemon.kill(),
                _ => daemon.end(order == AttendantOrder::Retire, self.mercy_ms, now),
            }
        }
        match order {
            AttendantOrder::Retire => {}
            AttendantOrder::Stop => self.runs.end(self.mercy_ms, now),
            AttendantOrder::StopNow => self.runs.kill(),
        }
    }

    fn reap(&mut self, now: u64) {
        // The signal only says that a child exited; the kernel's list of children says which.
        while let Ok(Some(_)) = self.signals.read_signal() {}
        while let Some(pid) = system::next_end() {
            if self.daemons.iter().any(|daemon| daemon.is_child(pid) && daemon.is_attached()) {
                // A process that a daemon leaves in its group could hold the port that the restarted daemon needs.
                system::signal_group(pid, Signal::SIGKILL as i32);
            }
            self.runs.end_group_of(pid);
            // The number of the process group is reserved until this call reaps the process.
            let status = system::take_status(pid);
            let daemon = self.daemons.iter_mut().find(|daemon| daemon.is_child(pid));
            let words = match daemon.map(|daemon| (daemon.note_end(Cause::from_status(status), now), daemon.name.clone())) {
                Some((DaemonEnd::Logged(words), _)) => words,
                Some((DaemonEnd::Control(words), name)) => {
                    self.unsent.push(AttendantReport::ControlEnded(name));
                    Some(words)
                }
                None => self.runs.note_end(pid, status, now),
            };
            self.say_all(words.as_slice());
        }
    }

    fn read_outputs(&mut self) {
        let mut lines = Vec::new();
        self.outputs.retain_mut(|output| output.take(&mut lines));
        for line in lines {
            self.put(|channel| send(channel, &AttendantReport::Output(line)));
        }
    }

    fn add_output(&mut self, reader: PipeReader, kind: &str, name: &str) {
        match Output::new(reader, kind, name) {
            Ok(output) => {
                if self.outputs.len() >= MAX_OUTPUTS {
                    self.outputs.remove(0);
                }
                self.outputs.push(output);
            }
            Err(error) => self.say(&format!("{kind} {name}: its output can't be read: {error}")),
        }
    }

    fn check_files(&mut self, now: u64) {
        if now < self.check_ms {
            return;
        }
        self.check_ms = now + CHECK_MS;
        let mercy_ms = self.mercy_ms;
        let lines: Vec<String> = self.daemons.iter_mut().flat_map(|daemon| daemon.check_files(mercy_ms, now)).collect();
        self.say_all(&lines);
    }

    fn start_due(&mut self, now: u64) {
        if self.is_ending {
            return;
        }
        for number in 0..self.daemons.len() {
            let Some(daemon) = self.daemons.get_mut(number) else { continue };
            let Some((words, reader)) = daemon.start_if_due(&self.launch_environment, now) else { continue };
            let name = daemon.name.clone();
            self.say(&words);
            if let Some(reader) = reader {
                self.add_output(reader, "daemon", &name);
            }
        }
        if !self.runs.has_jobs() {
            return;
        }
        let minute = this_minute();
        let Some(local) = system::local_minute(minute * MINUTE_S) else { return };
        for number in self.runs.due(minute, local) {
            self.start_job(number, now);
        }
    }

    fn start_job(&mut self, number: usize, now: u64) {
        let Some(command) = self.runs.job(number).map(|job| job.command.clone()) else { return };
        let name = name_of(&command);
        if self.runs.is_full() {
            return self.say(&format!("cron {name} is skipped: {MAX_RUNNING} commands are already running"));
        }
        let launch = LaunchRequest {
            command: &command,
            identity: self.identity.as_ref(),
            directory: None,
            has_stdin: false,
            outlives: false,
        };
        match self.launch_environment.start(&launch) {
            Ok((forked, reader)) => {
                self.runs.note_start(number, forked, since_1970_ms() as u64 / 1000, now);
                if let Some(reader) = reader {
                    self.add_output(reader, "cron", &name);
                }
            }
            Err(error) => self.say(&format!("cron {name} can't be started: {error}")),
        }
    }

    fn kill_late(&mut self, now: u64) {
        let mut lines: Vec<String> = self.daemons.iter_mut().filter_map(|daemon| daemon.kill_if_late(now)).collect();
        lines.extend(self.runs.kill_late(now));
        self.say_all(&lines);
    }

    fn wait(&self) {
        let mut poll_fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if !self.is_orphaned {
            poll_fds.push(PollFd::new(self.channel.as_fd(), PollFlags::POLLIN));
        }
        poll_fds.extend(self.outputs.iter().map(|output| PollFd::new(output.as_fd(), PollFlags::POLLIN)));
        // An interrupted or failed wait is a turn without events.
        let _ = poll(&mut poll_fds, PollTimeout::from(self.turn_ms(now_ms()) as u16));
    }

    fn turn_ms(&self, now: u64) -> u64 {
        let looks = self.daemons.iter().any(SupervisedDaemon::has_files).then_some(self.check_ms);
        let minute = (self.runs.has_jobs() && !self.is_ending).then(|| now + milliseconds_to_next_minute());
        let daemons = self.daemons.iter().map(SupervisedDaemon::wake_ms);
        let unsent = (self.has_unreported_states || !self.unsent.is_empty()).then_some(now + RESEND_MS);
        let wake = daemons.chain([looks, minute, unsent, self.runs.wake_ms()]).flatten().min();
        // The clock is coarse: a few extra milliseconds make sure that the deadline has passed.
        wake.map_or(MAX_TURN_MS, |wake| (wake.saturating_sub(now) + 4).min(MAX_TURN_MS))
    }

    /// Has the master write lines to the log.
    fn say_all(&mut self, lines: &[String]) {
        lines.iter().for_each(|words| self.say(words));
    }

    fn say(&mut self, words: &str) {
        self.put(|channel| channel.say(words));
    }

    /// Sends a line if the master has buffer space for it. Never waits.
    fn put(&mut self, send: impl FnOnce(&MasterChannel) -> bool) {
        if let dropped @ 1.. = self.dropped {
            let told =
                format!("{dropped} lines of daemons and cron were dropped: they arrived faster than they could be written");
            if self.channel.say(&told) {
                self.dropped = 0;
            }
        }
        if self.dropped > 0 || !send(&self.channel) {
            self.dropped += 1;
        }
    }

    /// Sends the reports that must reach the master; those without buffer space stay queued.
    fn send_unsent(&mut self) {
        let unsent = std::mem::take(&mut self.unsent);
        self.unsent = unsent.into_iter().filter(|report| !send(&self.channel, report)).collect();
    }

    /// Reports the state changes of programs to the master; those without buffer space are sent again later.
    fn report_states(&mut self) {
        self.has_unreported_states = false;
        let daemons = self.daemons.len();
        for place in 0..self.reported_states.len() {
            let (state, report) = match self.daemons.get(place) {
                Some(daemon) => {
                    let state = ProgramState { pid: number_of(daemon.process()), figure: daemon.respawns() };
                    (state, AttendantReport::Daemon { number: place as u32, state })
                }
                None => {
                    let latest = self.runs.latest(place - daemons);
                    let figure = latest.map_or(0, |(_, started_s)| started_s);
                    let state = ProgramState { pid: number_of(latest.map(|(pid, _)| pid)), figure };
                    (state, AttendantReport::Job { number: (place - daemons) as u32, state })
                }
            };
            if self.reported_states.get(place) == Some(&state) {
                continue;
            }
            if !send(&self.channel, &report) {
                self.has_unreported_states = true;
            } else if let Some(reported) = self.reported_states.get_mut(place) {
                *reported = state;
            }
        }
    }
}

/// Sends a report, if the master has buffer space for it.
fn send(channel: &MasterChannel, report: &AttendantReport) -> bool {
    let (kind, text) = report.encode();
    channel.report(kind, &text)
}

/// Returns the pid as packets encode it.
fn number_of(pid: Option<Pid>) -> u32 {
    pid.map_or(0, |pid| pid.as_raw().unsigned_abs())
}

fn since_1970_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64)
}

/// Returns the current minute, counted from 1970.
pub fn this_minute() -> i64 {
    since_1970_ms() / (MINUTE_S * 1000)
}

fn milliseconds_to_next_minute() -> u64 {
    (MINUTE_S * 1000 - since_1970_ms() % (MINUTE_S * 1000)) as u64
}
