//! One daemon and its life cycle: when it is started, what its end leads to, how it is stopped, and, if it has a pidfile, which
//! process that refers to. It does not read the clock; times are passed to it. The attendant runs it.

use std::io::PipeReader;
use std::path::Path;
use std::time::SystemTime;

use bolide_contract::attendant::Daemon;
use bolide_supervision::processes::auxiliary::AuxiliaryProcess;
use bolide_supervision::processes::backoff::{self, Backoff};
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::system;
use nix::unistd::Pid;

use super::pidfile::{self, Identities};
use super::program::{LaunchEnvironment, LaunchRequest};

/// A daemon and its state.
#[derive(Debug)]
pub struct SupervisedDaemon {
    pub name: String,
    daemon: Daemon,
    identities: Identities,
    /// The process that we started, until it ends.
    child: Option<AuxiliaryProcess<()>>,
    /// When it was last started.
    started_ms: u64,
    /// How often it was started.
    starts: u64,
    /// When it is to be started; `None` if it need not be.
    start_ms: Option<u64>,
    backoff: Backoff,
    /// It is not started any more.
    is_over: bool,
    /// The process that the pidfile named at the last check.
    named: Option<Pid>,
    /// The number of checks since its start in which the pidfile did not refer to a process.
    missing: u32,
    touched: Vec<Option<SystemTime>>,
}

/// The consequence of the end of a daemon's process.
#[derive(Debug, PartialEq, Eq)]
pub enum DaemonEnd {
    /// Nothing else; with the log line, if any.
    Logged(Option<String>),
    /// The instance exits with it; with the log line.
    Control(String),
}

impl SupervisedDaemon {
    /// Returns a daemon that is started immediately, or, with a pidfile, if that does not refer to a process.
    pub fn new(daemon: Daemon, name: String, identities: Identities, now_ms: u64) -> SupervisedDaemon {
        let touched = daemon.touch.iter().map(|path| changed_at(path)).collect();
        let backoff = Backoff::by_seconds(daemon.throttle_most_s);
        let mut daemon = SupervisedDaemon {
            name,
            daemon,
            identities,
            child: None,
            started_ms: 0,
            starts: 0,
            start_ms: Some(now_ms),
            backoff,
            is_over: false,
            named: None,
            missing: 0,
            touched,
        };
        daemon.named = daemon.named_by_pidfile();
        if daemon.named.is_some() {
            daemon.start_ms = None;
        }
        daemon
    }

    /// Returns the log line about a daemon that was already running.
    pub fn found(&self) -> Option<String> {
        self.named.map(|pid| format!("daemon {}: already running (pid {pid}, according to its pidfile)", self.name))
    }

    /// Returns whether it ends with the instance: daemons without a pidfile do.
    pub fn is_attached(&self) -> bool {
        self.daemon.pidfile.is_none()
    }

    pub fn is_child(&self, pid: Pid) -> bool {
        self.child.as_ref().is_some_and(|child| child.pid() == pid)
    }

    /// Returns its process: the one that we started, or the one that its pidfile names.
    pub fn process(&self) -> Option<Pid> {
        self.child.as_ref().filter(|_| self.is_attached()).map(AuxiliaryProcess::pid).or(self.named)
    }

    /// Returns how often it was restarted.
    pub fn respawns(&self) -> u64 {
        self.starts.saturating_sub(1)
    }

    /// Returns whether its process is alive and must end before the attendant exits.
    pub fn is_running(&self) -> bool {
        self.is_attached() && self.child.is_some()
    }

    /// Starts it if that is due. Returns the log line and the pipe with its output.
    pub fn start_if_due(&mut self, launch_environment: &LaunchEnvironment, now_ms: u64) -> Option<(String, Option<PipeReader>)> {
        if self.is_over || self.child.is_some() || self.start_ms.is_none_or(|start_ms| now_ms < start_ms) {
            return None;
        }
        self.start_ms = None;
        self.started_ms = now_ms;
        self.missing = 0;
        let launch = LaunchRequest {
            command: &self.daemon.command,
            identity: self.identities.daemon.as_ref(),
            directory: self.daemon.directory.as_deref(),
            has_stdin: self.daemon.has_stdin,
            outlives: !self.is_attached(),
        };
        match launch_environment.start(&launch) {
            Ok((forked, reader)) => {
                let pid = forked.pid;
                self.child = Some(AuxiliaryProcess::new(format!("daemon {}", self.name), forked, (), now_ms));
                self.starts += 1;
                let mut words = format!("daemon {}: started (pid {pid})", self.name);
                if self.daemon.is_detached
                    && let Some(path) = &self.daemon.pidfile
                {
                    match pidfile::write(path, pid, &self.identities) {
                        Ok(()) => self.named = Some(pid),
                        Err(error) => words += &format!("; its pidfile {} can't be written: {error}", path.display()),
                    }
                }
                Some((words, reader))
            }
            Err(error) => {
                let pause = self.pause_before_next(now_ms);
                Some((format!("daemon {}: can't be started: {error}; next attempt {pause}", self.name), None))
            }
        }
    }

    /// Records the end of its process, and kills the rest of its process group.
    pub fn note_end(&mut self, cause: Cause, now_ms: u64) -> DaemonEnd {
        let Some(child) = self.child.take() else { return DaemonEnd::Logged(None) };
        // A daemon that goes to the background ends here regularly, and its pidfile shows its state.
        let is_logged = self.is_over || self.is_attached() || self.daemon.is_detached || cause != Cause::Exited(0);
        let text = child.ended(cause, now_ms).words();
        if self.is_over || !self.is_attached() {
            return DaemonEnd::Logged(is_logged.then_some(text));
        }
        if self.daemon.is_control {
            self.is_over = true;
            return DaemonEnd::Control(format!("{text}, and the instance exits with it"));
        }
        let pause = self.pause_before_next(now_ms);
        DaemonEnd::Logged(Some(format!("{text}; restarting {pause}")))
    }

    /// Checks its files, once a second. Returns the log lines.
    pub fn check_files(&mut self, mercy_ms: u64, now_ms: u64) -> Vec<String> {
        let mut lines = Vec::new();
        if self.is_over {
            return lines;
        }
        for (path, before) in self.daemon.touch.iter().zip(&mut self.touched) {
            let now = changed_at(path);
            let is_touched = now.is_some() && now != *before;
            *before = now;
            if is_touched {
                lines.push(path.display().to_string());
            }
        }
        if let Some(path) = lines.first() {
            lines = vec![format!("daemon {}: {path} was touched: restarting it", self.name)];
            // A restart because of a touched file does not count as an early failure.
            self.started_ms = self.started_ms.min(now_ms.saturating_sub(self.backoff.early_ms() + 1));
            self.end_with(self.daemon.stop_signal, now_ms + mercy_ms);
        }
        if !self.is_attached() {
            lines.extend(self.check_pidfile(now_ms));
        }
        lines
    }

    fn check_pidfile(&mut self, now_ms: u64) -> Option<String> {
        let named = self.named_by_pidfile();
        let before = std::mem::replace(&mut self.named, named);
        let name = &self.name;
        match (before, named) {
            (Some(before), Some(now)) if before == now => None,
            (_, Some(now)) => {
                self.missing = 0;
                self.start_ms = None;
                Some(format!("daemon {name}: its pidfile contains {now}"))
            }
            (Some(before), None) => {
                let pause = self.pause_before_next(now_ms);
                Some(format!("daemon {}: the process in its pidfile ({before}) has ended; restarting {pause}", self.name))
            }
            (None, None) if self.start_ms.is_some() => None,
            (None, None) => {
                self.missing += 1;
                if self.missing < self.daemon.checks {
                    return None;
                }
                self.missing = 0;
                let late = format!("its pidfile has not contained a running process for {} s", self.daemon.checks);
                if self.child.is_some() {
                    return Some(format!("daemon {}: {late}, and its command did not go to the background", self.name));
                }
                let pause = self.pause_before_next(now_ms);
                Some(format!("daemon {}: {late}; restarting {pause}", self.name))
            }
        }
    }

    /// Orders it to end for good. A daemon with a pidfile lives on, and is notified only if configured.
    pub fn end(&mut self, is_reload: bool, mercy_ms: u64, now_ms: u64) {
        if self.is_over {
            self.attached_child().into_iter().for_each(|child| child.end_by(now_ms + mercy_ms));
            return;
        }
        self.is_over = true;
        self.start_ms = None;
        let asked = self.daemon.reload_signal.filter(|_| is_reload);
        let usual = if is_reload && !self.is_attached() { libc::SIGHUP } else { self.daemon.stop_signal };
        if self.is_attached() || self.daemon.is_notified {
            self.end_with(asked.unwrap_or(usual), now_ms + mercy_ms);
        }
    }

    /// Kills it after its deadline. Returns the log line.
    pub fn kill_if_late(&mut self, now_ms: u64) -> Option<String> {
        self.child.as_mut()?.kill_if_late("", now_ms)
    }

    /// Kills it immediately.
    pub fn kill(&mut self) {
        self.is_over = true;
        self.attached_child().into_iter().for_each(|child| child.signal(libc::SIGKILL));
    }

    pub fn wake_ms(&self) -> Option<u64> {
        let start_ms = self.start_ms.filter(|_| !self.is_over && self.child.is_none());
        let deadline_ms = self.child.as_ref().and_then(AuxiliaryProcess::deadline_ms);
        [start_ms, deadline_ms].into_iter().flatten().min()
    }

    /// Returns whether its files must be checked once a second.
    pub fn has_files(&self) -> bool {
        !self.is_over && (self.daemon.pidfile.is_some() || !self.daemon.touch.is_empty())
    }

    /// The process that we started, if it must end before the attendant exits.
    fn attached_child(&mut self) -> Option<&mut AuxiliaryProcess<()>> {
        self.child.as_mut().filter(|_| self.daemon.pidfile.is_none())
    }

    /// Sends its process a signal that orders it to end. An attached one is killed at the deadline.
    fn end_with(&mut self, signal: i32, deadline_ms: u64) {
        if let Some(child) = self.attached_child() {
            child.signal(signal);
            child.forget_deadline();
            child.end_by(deadline_ms);
        } else if let Some(child) = self.child.as_mut().filter(|child| self.named == Some(child.pid())) {
            child.signal(signal);
        } else if let Some(named) = self.named {
            system::signal_group(named, signal);
        }
    }

    fn named_by_pidfile(&self) -> Option<Pid> {
        self.daemon.pidfile.as_deref().and_then(|path| pidfile::process(path, &self.identities))
    }

    /// Sets the time when it starts again: immediately if the daemon lived long enough, otherwise after a pause that grows by one
    /// second each time. Returns it as text.
    fn pause_before_next(&mut self, now_ms: u64) -> String {
        let pause_ms = self.backoff.ended(now_ms.saturating_sub(self.started_ms), now_ms);
        self.start_ms = Some(now_ms + pause_ms);
        backoff::in_words(pause_ms)
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use bolide_supervision::processes::forking::Forked;

    use super::*;

    fn daemon(throttle_most_s: u64) -> Daemon {
        Daemon {
            command: "false".to_owned(),
            pidfile: None,
            is_detached: false,
            checks: 2,
            is_control: false,
            touch: Vec::new(),
            stop_signal: 15,
            reload_signal: None,
            is_notified: false,
            user: None,
            group: None,
            directory: None,
            throttle_most_s,
            has_stdin: false,
            origin: "test".to_owned(),
        }
    }

    /// The daemon, with a process that was started at this time.
    fn started(daemon: &mut SupervisedDaemon, started_ms: u64) {
        // A pid that no process has: nothing is sent to it here.
        let forked = Forked { pid: Pid::from_raw(i32::MAX), channel: None, leash: None };
        daemon.started_ms = started_ms;
        daemon.child = Some(AuxiliaryProcess::new("daemon x", forked, (), started_ms));
    }

    #[test]
    fn pauses_grow_by_a_second_up_to_the_most_and_a_life_ends_them() {
        let mut daemon = SupervisedDaemon::new(daemon(3), String::new(), Identities::default(), 0);
        let pauses: Vec<u64> = (0..5)
            .map(|_| {
                started(&mut daemon, 100_000);
                daemon.note_end(Cause::Exited(1), 100_500);
                daemon.start_ms.unwrap_or_default() - 100_500
            })
            .collect();
        assert_eq!(pauses, [1000, 2000, 3000, 3000, 3000]);
        started(&mut daemon, 100_000);
        daemon.note_end(Cause::Exited(1), 103_001);
        assert_eq!(daemon.start_ms, Some(103_001));
    }

    #[test]
    fn a_control_daemon_that_ends_by_itself_ends_the_instance_and_one_that_was_told_to_does_not() {
        let control = Daemon { is_control: true, ..daemon(3) };
        let mut daemon = SupervisedDaemon::new(control.clone(), String::new(), Identities::default(), 0);
        started(&mut daemon, 0);
        assert!(matches!(daemon.note_end(Cause::Exited(0), 1), DaemonEnd::Control(_)));
        let mut daemon = SupervisedDaemon::new(control, String::new(), Identities::default(), 0);
        started(&mut daemon, 0);
        daemon.end(false, 1000, 0);
        assert!(matches!(daemon.note_end(Cause::Exited(0), 1), DaemonEnd::Logged(Some(_))));
        assert_eq!(daemon.wake_ms(), None);
    }

    #[test]
    fn a_pidfile_that_names_no_process_for_its_checks_restarts_the_daemon() {
        let mut daemon = SupervisedDaemon::new(
            Daemon { pidfile: Some("/nonexistent/daemon.pid".into()), ..daemon(3) },
            String::new(),
            Identities::default(),
            0,
        );
        daemon.start_ms = None;
        assert_eq!(daemon.check_files(1000, 1000), Vec::<String>::new());
        assert!(daemon.check_files(1000, 2000)[0].contains("has not contained a running process for 2 s"));
        assert!(daemon.start_ms.is_some());
    }
}
