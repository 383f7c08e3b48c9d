//! The commands of `cron`: which are due in a new minute, which are running, and for how long they may. It starts nothing itself
//! and does not read the clock; times are passed to it. The attendant runs it.

use bolide_contract::attendant::Job;
use bolide_services::cron::{LocalMinute, is_due};
use bolide_supervision::processes::auxiliary::{Auxiliaries, AuxiliaryProcess};
use bolide_supervision::processes::forking::Forked;
use bolide_supervision::system;
use bolide_supervision::text::duration;
use nix::unistd::Pid;

use super::program::name_of;

/// Maximum number of commands that run at the same time, of all jobs together.
pub const MAX_RUNNING: usize = 64;

/// What is kept for a running command.
#[derive(Debug)]
struct JobRun {
    /// The index of its job.
    job: usize,
    /// Seconds since 1970.
    started_s: u64,
}

/// All jobs and their running commands.
#[derive(Debug)]
pub struct Runs {
    jobs: Vec<Job>,
    running: Auxiliaries<JobRun>,
    /// The last minute, counted from 1970, whose jobs were started.
    minute: i64,
}

impl Runs {
    /// Returns the record without running commands. The jobs of `minute` are not started any more.
    pub fn new(jobs: Vec<Job>, minute: i64) -> Runs {
        Runs { jobs, running: Auxiliaries::default(), minute }
    }

    /// Returns the jobs whose command is due now, once per minute. Minutes that were missed are not caught up.
    pub fn due(&mut self, minute: i64, local: LocalMinute) -> Vec<usize> {
        if minute == self.minute {
            return Vec::new();
        }
        self.minute = minute;
        let is_busy = |number| self.running.iter().any(|running| running.record.job == number);
        let due = |(number, job): &(usize, &Job)| is_due(job.schedule, local) && !(job.is_unique && is_busy(*number));
        self.jobs.iter().enumerate().filter(due).map(|(number, _)| number).collect()
    }

    /// Returns the running command of a job that was started last: its pid and its start, in seconds since 1970.
    pub fn latest(&self, number: usize) -> Option<(Pid, u64)> {
        let latest = self.running.iter().rfind(|running| running.record.job == number);
        latest.map(|running| (running.pid(), running.record.started_s))
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
    pub fn note_start(&mut self, number: usize, forked: Forked, started_s: u64, now_ms: u64) {
        let Some(job) = self.jobs.get(number) else { return };
        let record = JobRun { job: number, started_s };
        let mut running = AuxiliaryProcess::new(format!("cron {}", name_of(&job.command)), forked, record, now_ms);
        if let Some(seconds) = job.harakiri_s {
            running.end_by(now_ms.saturating_add(seconds.saturating_mul(1000)));
        }
        self.running.add(running);
    }

    /// Kills the rest of the process group of a command that was ordered to end. Called before the command is reaped.
    pub fn end_group_of(&self, pid: Pid) {
        if self.running.iter().any(|running| running.pid() == pid && !running.is_working()) {
            system::signal_group(pid, libc::SIGKILL);
        }
    }

    /// Records an end. Returns the log line, or `None` if no command of a job has this pid.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> Option<String> {
        let ended = self.running.note_end(pid, status, now_ms)?;
        let words = format!("{} after {}", ended.words(), duration(ended.lived_ms));
        if ended.by_itself {
            // Processes that a command leaves behind when it ends by itself are not ours any more.
            ended.let_go();
        }
        Some(words)
    }

    /// Does not start jobs any more; running commands continue.
    pub fn forget_jobs(&mut self) {
        // The jobs stay in the list, because running commands refer to them for their names.
        self.minute = i64::MAX;
    }

    /// Orders the running commands to end.
    pub fn end(&mut self, mercy_ms: u64, now_ms: u64) {
        for running in self.running.iter_mut() {
            if running.is_working() {
                running.signal(libc::SIGTERM);
            }
            running.end_by(now_ms + mercy_ms);
        }
    }

    /// Kills the running commands.
    pub fn kill(&mut self) {
        self.running.iter_mut().for_each(|running| running.signal(libc::SIGKILL));
    }

    /// Kills commands that take too long. Returns the log lines.
    pub fn kill_late(&mut self, now_ms: u64) -> Vec<String> {
        self.running.kill_late("takes too long (harakiri)", now_ms)
    }

    pub fn wake_ms(&self) -> Option<u64> {
        self.running.wake_ms()
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
        runs.note_start(1, Forked { pid, channel: None, leash: None }, 77, 1000);
        assert_eq!((runs.latest(1), runs.latest(0)), (Some((pid, 77)), None));
        assert_eq!(runs.due(8, NOON), [0]);
        assert_eq!(runs.wake_ms(), Some(6000));
        assert_eq!(runs.note_end(pid, 3 << 8, 3500), Some("cron x (pid 2147483647) exited with status 3 after 2.5 s".to_owned()));
        assert_eq!(runs.note_end(pid, 3 << 8, 3500), None);
        assert_eq!(runs.due(9, NOON), [0, 1]);
    }
}
