//! The event loop of the attendant: orders of the master, output of programs, their exits, and the clock. It waits for nothing
//! else, and ends when the master is gone. It never returns to the code that the master was running at the fork. The attendant
//! runs it.

use std::io::PipeReader;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use bolide_contract::attendant::Attendant;
use bolide_contract::scoreboard::now_ms;
use bolide_supervision::processes::child_setup::{CapabilitiesAtExec, RawConfinement};
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::privileges::Privileges;
use bolide_supervision::processes::process_attributes;
use bolide_supervision::processes::system;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::Pid;

use super::cron::{RUNNING_MOST, Runs};
use super::output::Output;
use super::packets::{AttendantOrder, News, Standing};
use super::pidfile::Identities;
use super::program::{Launched, Surroundings, Wanted, name_of};
use super::supervise::{DaemonEnd, SupervisedDaemon};

/// Interval at which the files of daemons are checked, in milliseconds.
const LOOK_MS: u64 = 1000;
/// Time for programs to end when the master is gone, in milliseconds. Nothing outlives the master for longer than two seconds.
const ORPHANED_MERCY_MS: u64 = 1000;
/// Maximum number of output pipes that are read at a time. Above it, the oldest pipe is dropped; a program's own children may
/// hold such pipes open.
const OUTPUTS_MOST: usize = 256;
/// Delay before reports that the master had no buffer space for are sent again, in milliseconds.
const OWED_MS: u64 = 50;
/// The longest wait, in milliseconds, because the clock may be set meanwhile.
const TURN_MOST_MS: u64 = 60_000;
const MINUTE_S: i64 = 60;

/// The configuration of an attendant, which it gets when it is forked.
#[derive(Debug)]
pub struct Instructions {
    pub settings: Attendant,
    /// The identity of each daemon, in their order.
    pub identities: Vec<Option<Privileges>>,
    /// The identity for the commands of `cron`.
    pub identity: Option<Privileges>,
    pub surroundings: Surroundings,
    /// `chroot`: its programs and their pidfiles are within this root.
    pub root: RawConfinement,
    /// The minute, counted from 1970, whose jobs have run. Without it, jobs that are due run immediately.
    pub minute_done: Option<i64>,
    pub process_name: String,
}

/// The state of the attendant's loop.
struct AttendantLoop {
    channel: OwnedFd,
    /// Log lines that the master did not accept since the last one that it accepted.
    dropped: u64,
    /// Reports that must reach the master, sent again later if necessary: at most two.
    owed: Vec<News>,
    /// The last reported state of each program: daemons first, then jobs.
    told: Vec<Standing>,
    /// The master had no buffer space for some of the states.
    has_untold: bool,
    signals: SignalFd,
    daemons: Vec<SupervisedDaemon>,
    runs: Runs,
    outputs: Vec<Output>,
    identity: Option<Privileges>,
    surroundings: Surroundings,
    mercy_ms: u64,
    look_ms: u64,
    /// `Retire` or a stronger order arrived: nothing is started any more.
    is_ending: bool,
    has_told_gone: bool,
    is_orphaned: bool,
}

/// Turns the child of a fork into the attendant. Never returns.
pub fn run(plan: Instructions, channel: OwnedFd) -> ! {
    system::close_others(&[channel.as_raw_fd()]);
    // A process group of its own: a terminal's ^C reaches the master only. The call fails if the group is already ours.
    let _ = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
    process_attributes::set_name(&plan.process_name);
    if let Err(error) = plan.root.take(CapabilitiesAtExec::RootOnly) {
        // Without its root the attendant starts nothing; the master reports that it has ended.
        system::leave(error.raw_os_error().unwrap_or(1));
    }
    let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        AttendantLoop::new(plan, channel).map(|mut attendant| attendant.work())
    }));
    system::leave(i32::from(!matches!(worked, Ok(Ok(())))))
}

impl AttendantLoop {
    fn new(plan: Instructions, channel: OwnedFd) -> Result<AttendantLoop, Errno> {
        let now = now_ms();
        // All signals are blocked since the start of the master; only SIGCHLD concerns the attendant.
        let mut children = SigSet::empty();
        children.add(Signal::SIGCHLD);
        let signals = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let mut daemons: Vec<SupervisedDaemon> = Vec::new();
        for (daemon, identity) in plan.settings.daemons.into_iter().zip(plan.identities) {
            let identities = Identities { daemon: identity, application: plan.identity.clone() };
            daemons.push(SupervisedDaemon::new(daemon, identities, now));
        }
        let minute = plan.minute_done.unwrap_or(i64::MIN);
        let mut attendant = AttendantLoop {
            channel,
            dropped: 0,
            owed: Vec::new(),
            told: vec![Standing::default(); daemons.len() + plan.settings.jobs.len()],
            has_untold: false,
            signals,
            daemons,
            runs: Runs::new(plan.settings.jobs, minute),
            outputs: Vec::new(),
            identity: plan.identity,
            surroundings: plan.surroundings,
            mercy_ms: plan.settings.mercy_ms,
            look_ms: now + LOOK_MS,
            is_ending: false,
            has_told_gone: false,
            is_orphaned: false,
        };
        let found: Vec<String> = attendant.daemons.iter().filter_map(SupervisedDaemon::found).collect();
        found.into_iter().for_each(|words| attendant.tell(&News::Told(words)));
        Ok(attendant)
    }

    /// Runs the loop until no work is left.
    fn work(&mut self) {
        loop {
            let now = now_ms();
            self.take_orders(now);
            self.reap(now);
            self.read_outputs();
            self.look(now);
            self.start_what_is_due(now);
            self.kill_what_is_late(now);
            self.tell_what_stands();
            self.pay();
            if self.is_ending && self.is_done() {
                // Their last output has been read by now, unless another process still writes to the pipe.
                self.read_outputs();
                self.pay();
                return;
            }
            self.wait();
        }
    }

    /// Returns whether there is nothing left to wait for. Reports to the master when the daemons are gone, even if commands still
    /// run.
    fn is_done(&mut self) -> bool {
        if self.daemons.iter().any(SupervisedDaemon::is_left) {
            return false;
        }
        if !std::mem::replace(&mut self.has_told_gone, true) {
            self.owed.push(News::DaemonsGone);
        }
        self.runs.is_idle()
    }

    fn take_orders(&mut self, now: u64) {
        while !self.is_orphaned {
            let mut byte = [0; 1];
            match recv(self.channel.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(Errno::ECONNRESET) => {
                    self.is_orphaned = true;
                    self.mercy_ms = self.mercy_ms.min(ORPHANED_MERCY_MS);
                    self.obey(AttendantOrder::Stop, now);
                }
                Ok(_) => {
                    if let Some(order) = AttendantOrder::of(byte[0]) {
                        self.obey(order, now);
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => return,
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
        // The signal only says that a child ended; the kernel's list of children says which.
        while let Ok(Some(_)) = self.signals.read_signal() {}
        while let Some(pid) = system::next_end() {
            if self.daemons.iter().any(|daemon| daemon.is_child(pid) && daemon.is_attached()) {
                // A process that a daemon leaves in its group could hold the port that the restarted daemon needs.
                system::signal_group(pid, Signal::SIGKILL as i32);
            }
            self.runs.end_group_of(pid);
            // The number of the process group is reserved until this call reaps the process.
            let cause = Cause::from_status(system::take_status(pid));
            let daemon = self.daemons.iter_mut().find(|daemon| daemon.is_child(pid));
            let news = match daemon.map(|daemon| (daemon.note_end(&cause, now), daemon.name.clone())) {
                Some((DaemonEnd::Told(words), _)) => words.map(News::Told).into_iter().collect(),
                Some((DaemonEnd::Control(words), name)) => {
                    self.owed.push(News::ControlEnded(name));
                    vec![News::Told(words)]
                }
                None => self.runs.note_end(pid, &cause, now).map(News::Told).into_iter().collect(),
            };
            news.iter().for_each(|news| self.tell(news));
        }
    }

    fn read_outputs(&mut self) {
        let mut lines = Vec::new();
        self.outputs.retain_mut(|output| output.take(&mut lines));
        for line in lines {
            self.tell(&News::Written(line));
        }
    }

    fn add_output(&mut self, reader: PipeReader, kind: &str, name: &str) {
        match Output::new(reader, kind, name) {
            Ok(output) => {
                if self.outputs.len() >= OUTPUTS_MOST {
                    self.outputs.remove(0);
                }
                self.outputs.push(output);
            }
            Err(error) => self.tell(&News::Told(format!("{kind} {name}: its output can't be read: {error}"))),
        }
    }

    fn look(&mut self, now: u64) {
        if now < self.look_ms {
            return;
        }
        self.look_ms = now + LOOK_MS;
        let mercy_ms = self.mercy_ms;
        let told: Vec<String> = self.daemons.iter_mut().flat_map(|daemon| daemon.look(mercy_ms, now)).collect();
        told.into_iter().for_each(|words| self.tell(&News::Told(words)));
    }

    fn start_what_is_due(&mut self, now: u64) {
        if self.is_ending {
            return;
        }
        for number in 0..self.daemons.len() {
            let Some(daemon) = self.daemons.get_mut(number) else { continue };
            let Some((words, reader)) = daemon.start_if_due(&self.surroundings, now) else { continue };
            let name = daemon.name.clone();
            self.tell(&News::Told(words));
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
            let words = format!("cron {name} is skipped: {RUNNING_MOST} commands are already running");
            return self.tell(&News::Told(words));
        }
        let launch =
            Wanted { command: &command, identity: self.identity.as_ref(), folder: None, has_stdin: false, outlives: false };
        match self.surroundings.start(&launch) {
            Ok(Launched { pid, reader, leash }) => {
                self.runs.note_start(number, pid, leash, since_1970_ms() as u64 / 1000, now);
                if let Some(reader) = reader {
                    self.add_output(reader, "cron", &name);
                }
            }
            Err(error) => self.tell(&News::Told(format!("cron {name} can't be started: {error}"))),
        }
    }

    fn kill_what_is_late(&mut self, now: u64) {
        let mut told: Vec<String> = self.daemons.iter_mut().filter_map(|daemon| daemon.kill_if_late(now)).collect();
        told.extend(self.runs.kill_late(now));
        told.into_iter().for_each(|words| self.tell(&News::Told(words)));
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
        let looks = self.daemons.iter().any(SupervisedDaemon::has_files).then_some(self.look_ms);
        let minute = (self.runs.has_jobs() && !self.is_ending).then(|| now + milliseconds_to_next_minute());
        let daemons = self.daemons.iter().map(SupervisedDaemon::wake_ms);
        let owed = (self.has_untold || !self.owed.is_empty()).then_some(now + OWED_MS);
        let wake = daemons.chain([looks, minute, owed, self.runs.wake_ms()]).flatten().min();
        // The clock is coarse: a few extra milliseconds make sure that the deadline has passed.
        wake.map_or(TURN_MOST_MS, |wake| (wake.saturating_sub(now) + 4).min(TURN_MOST_MS))
    }

    /// Sends a report if the master has buffer space for it. Never waits.
    fn tell(&mut self, news: &News) {
        if self.dropped > 0 {
            let words = format!(
                "{} lines of daemons and cron were dropped: they arrived faster than they could be written",
                self.dropped
            );
            if !self.send(&News::Told(words)) {
                self.dropped += 1;
                return;
            }
            self.dropped = 0;
        }
        if !self.send(news) {
            self.dropped += 1;
        }
    }

    /// Sends the reports that must reach the master; those without buffer space stay queued.
    fn pay(&mut self) {
        let owed = std::mem::take(&mut self.owed);
        self.owed = owed.into_iter().filter(|news| !self.send(news)).collect();
    }

    /// Reports the state changes of programs to the master; those without buffer space are sent again later.
    fn tell_what_stands(&mut self) {
        self.has_untold = false;
        let daemons = self.daemons.len();
        for place in 0..self.told.len() {
            let (standing, news) = match self.daemons.get(place) {
                Some(daemon) => {
                    let standing = Standing { pid: number_of(daemon.process()), figure: daemon.respawns() };
                    (standing, News::Daemon { number: place as u32, standing })
                }
                None => {
                    let latest = self.runs.latest(place - daemons);
                    let figure = latest.map_or(0, |(_, started_s)| started_s);
                    let standing = Standing { pid: number_of(latest.map(|(pid, _)| pid)), figure };
                    (standing, News::Job { number: (place - daemons) as u32, standing })
                }
            };
            if self.told.get(place) == Some(&standing) {
                continue;
            }
            if !self.send(&news) {
                self.has_untold = true;
            } else if let Some(told) = self.told.get_mut(place) {
                *told = standing;
            }
        }
    }

    fn send(&self, news: &News) -> bool {
        send(self.channel.as_raw_fd(), &news.encode(), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).is_ok()
    }
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
