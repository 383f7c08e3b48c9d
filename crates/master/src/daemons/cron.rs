//! The commands of `cron`: which are due in a new minute, which are running, and for how long they may. It starts nothing itself
//! and reads no clock; times are passed to it. The attendant runs it.

use bolide_contract::attendant::Job;
use bolide_services::cron::{LocalMinute, is_due};
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::leash::Leash;
use bolide_supervision::system;
use bolide_supervision::text::duration;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::program::name_of;

/// Maximum number of commands that run at the same time, of all jobs together.
pub const MAX_RUNNING: usize = 64;

/// A running command.
#[derive(Debug)]
struct Running {
    /// The index of its job.
    job: usize,
    pid: Pid,
    /// Kills the process group of the command when the attendant dies.
    leash: Option<Leash>,
    started_ms: u64,
    /// Seconds since 1970.
    started_s: u64,
    kill_ms: Option<u64>,
    /// A signal was sent to it, so the rest of its process group is killed with it.
    was_signalled: bool,
    /// The signal by which a stop ordered it to end.
    order: Option<i32>,
}

/// All jobs and their running commands.
#[derive(Debug)]
pub struct Runs {
    jobs: Vec<Job>,
    running: Vec<Running>,
    /// The last minute, counted from 1970, whose jobs were started.
    minute: i64,
}

impl Runs {
    /// Returns the record without running commands. The jobs of `minute` are not started any more.
    pub fn new(jobs: Vec<Job>, minute: i64) -> Runs {
        Runs { jobs, running: Vec::new(), minute }
    }

    /// Returns the jobs whose command is due now, once per minute. Minutes that were missed are not caught up.
    pub fn due(&mut self, minute: i64, local: LocalMinute) -> Vec<usize> {
        if minute == self.minute {
            return Vec::new();
        }
        self.minute = minute;
        let is_busy = |number| self.running.iter().any(|running| running.job == number);
        let due = |(number, job): &(usize, &Job)| is_due(job.schedule, local) && !(job.is_unique && is_busy(*number));
        self.jobs.iter().enumerate().filter(due).map(|(number, _)| number).collect()
    }

    /// Returns the running command of a job that was started last: its pid and its start, in seconds since 1970.
    pub fn latest(&self, number: usize) -> Option<(Pid, u64)> {
        let of_job = self.running.iter().filter(|running| running.job == number);
        of_job.max_by_key(|running| running.started_ms).map(|running| (running.pid, running.started_s))
    }

    pub fn job(&self, number: usize) -> Option<&Job> {
        self.jobs.get(number)
    }

    /// Returns whether there is a next minute to wait for.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns whether [`MAX_RUNNING`] commands are running.
    pub fn is_full(&self) -> bool {
        self.running.len() >= MAX_RUNNING
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Records that the command of a job was started.
    pub fn note_start(&mut self, number: usize, pid: Pid, leash: Option<Leash>, started_s: u64, now_ms: u64) {
        let harakiri_s = self.jobs.get(number).and_then(|job| job.harakiri_s);
        let kill_ms = harakiri_s.map(|seconds| now_ms.saturating_add(seconds.saturating_mul(1000)));
        let (was_signalled, order) = (false, None);
        self.running.push(Running { job: number, pid, leash, started_ms: now_ms, started_s, kill_ms, was_signalled, order });
    }

    /// Kills the rest of the process group of a command that was ordered to end. Called before the command is reaped.
    pub fn end_group_of(&self, pid: Pid) {
        if self.running.iter().any(|running| running.pid == pid && running.was_signalled) {
            system::signal_group(pid, Signal::SIGKILL as i32);
        }
    }

    /// Records an end. Returns the log line, or `None` if no command of a job has this pid.
    pub fn note_end(&mut self, pid: Pid, cause: &Cause, now_ms: u64) -> Option<String> {
        let position = self.running.iter().position(|running| running.pid == pid)?;
        let running = self.running.swap_remove(position);
        if let Some(leash) = running.leash.filter(|_| !running.was_signalled) {
            // Processes that a command leaves behind when it ends by itself are not ours any more.
            leash.let_go();
        }
        let name = self.jobs.get(running.job).map(|job| name_of(&job.command)).unwrap_or_default();
        let (how, lived) = (cause.words_after(running.order), duration(now_ms.saturating_sub(running.started_ms)));
        Some(format!("cron {name} (pid {pid}) {how} after {lived}"))
    }

    /// Starts no job any more; running commands continue.
    pub fn forget_jobs(&mut self) {
        // The jobs stay in the list, because running commands refer to them for their names.
        self.minute = i64::MAX;
    }

    /// Orders the running commands to end.
    pub fn end(&mut self, mercy_ms: u64, now_ms: u64) {
        for running in &mut self.running {
            let kill_ms = now_ms + mercy_ms;
            running.kill_ms = Some(running.kill_ms.map_or(kill_ms, |earlier| earlier.min(kill_ms)));
            if !std::mem::replace(&mut running.was_signalled, true) {
                running.order = Some(Signal::SIGTERM as i32);
                system::signal_group(running.pid, Signal::SIGTERM as i32);
            }
        }
    }

    /// Kills the running commands.
    pub fn kill(&mut self) {
        for running in &mut self.running {
            running.was_signalled = true;
            running.order = Some(Signal::SIGKILL as i32);
            running.kill_ms = None;
            system::signal_group(running.pid, Signal::SIGKILL as i32);
        }
    }

    /// Kills commands that take too long. Returns the log lines.
    pub fn kill_late(&mut self, now_ms: u64) -> Vec<String> {
        let late = |running: &&mut Running| running.kill_ms.is_some_and(|kill_ms| now_ms >= kill_ms);
        let kill = |running: &mut Running| {
            running.kill_ms = None;
            system::signal_group(running.pid, Signal::SIGKILL as i32);
            let name = self.jobs.get(running.job).map(|job| name_of(&job.command)).unwrap_or_default();
            let why = if running.was_signalled { "has not ended after being told to" } else { "takes too long (harakiri)" };
            running.was_signalled = true;
            format!("cron {name} (pid {}) {why}: killing it", running.pid)
        };
        self.running.iter_mut().filter(late).map(kill).collect()
    }

    pub fn wake_ms(&self) -> Option<u64> {
        self.running.iter().filter_map(|running| running.kill_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::attendant::Schedule;

    const NOON: LocalMinute = LocalMinute { minute: 0, hour: 12, day: 1, month: 6, weekday: 1 };

    fn job(is_unique: bool) -> Job {
        Job { schedule: Schedule::ALWAYS, command: "x".to_owned(), is_unique, harakiri_s: Some(5), origin: "test".to_owned() }
    }

    #[test]
    fn a_minute_is_due_once_and_a_unique_job_is_not_started_while_it_runs() {
        let mut runs = Runs::new(vec![job(false), job(true)], 0);
        assert_eq!(runs.due(0, NOON), Vec::<usize>::new());
        assert_eq!(runs.due(7, NOON), [0, 1]);
        assert_eq!(runs.due(7, NOON), Vec::<usize>::new());
        // A pid that no process has: nothing is sent to it here.
        let pid = Pid::from_raw(i32::MAX);
        runs.note_start(1, pid, None, 77, 1000);
        assert_eq!((runs.latest(1), runs.latest(0)), (Some((pid, 77)), None));
        assert_eq!(runs.due(8, NOON), [0]);
        assert_eq!(runs.wake_ms(), Some(6000));
        assert_eq!(
            runs.note_end(pid, &Cause::Exited(3), 3500),
            Some("cron x (pid 2147483647) exited with status 3 after 2.5 s".to_owned())
        );
        assert_eq!(runs.note_end(pid, &Cause::Exited(3), 3500), None);
        assert_eq!(runs.due(9, NOON), [0, 1]);
    }
}
