//! What each command leads to: the one match over all of them. The master runs it.

use bolide_contract::message::Asked;
use bolide_supervision::files::pidfile;
use bolide_supervision::logs::log_sink;
use nix::unistd::Pid;

use crate::control::commands::Command;
use crate::supervisor::{Phase, Supervisor};

impl Supervisor {
    /// Executes a command, or begins to. `by` names what asked for it, for the log: a signal, a file, an address.
    pub(crate) fn obey(&mut self, command: Command, by: &str, now_ms: u64) {
        // The log has the error.
        drop(self.attempt(command, by, now_ms));
    }

    /// Like `obey`, but returns the outcome.
    ///
    /// # Errors
    /// Why it could not be done or begun. The log has it too.
    pub(crate) fn attempt(&mut self, command: Command, by: &str, now_ms: u64) -> Result<(), String> {
        match command {
            Command::ReopenLogs => return self.reopen_logs(by),
            Command::RotateLogs => return self.rotate_logs(by),
            Command::Upgrade => return self.upgrade(by, now_ms),
            Command::Stop => self.stop(now_ms),
            Command::StopNow => self.stop_now(by, now_ms),
            Command::Reload | Command::ReloadBrutally => {
                self.reopen_logs_if_wanted();
                return self.reload(by, command == Command::ReloadBrutally, now_ms);
            }
            // Workers are always replaced one at a time, so both are the same.
            Command::ReloadWorkers | Command::ReloadChain => return self.reload_chain(by, now_ms),
            Command::Pause => return self.pause(by),
            Command::Resume => return self.resume(by, now_ms),
            Command::TogglePause => return self.toggle_pause(by, now_ms),
            Command::AddWorker => return self.add_worker(by),
            Command::RemoveWorker => return self.remove_worker(by, now_ms),
            Command::Status => self.write_status(now_ms),
            Command::Hook(number) => self.do_touch_hook(number),
            Command::WritePidfiles => pidfile::write_again(&self.fleet.settings, self.fleet.privileges()),
        }
        Ok(())
    }

    /// Executes what an application asks for through uWSGI's Python module. `worker` is where it runs.
    pub(crate) fn obey_application(&mut self, asked: Asked, worker: &str, now_ms: u64) {
        let (command, by) = match asked {
            Asked::Reload => (Command::Reload, "uwsgi.reload()"),
            Asked::Stop => (Command::Stop, "uwsgi.stop()"),
        };
        // An application that asks in each of its requests is logged once.
        let is_news = match command {
            Command::Reload => !self.reload_wanted && self.forming.is_none(),
            _ => self.phase == Phase::Running,
        };
        if is_news {
            log_sink::line(&format!("{worker}: the application calls {by}"));
            self.obey(command, by, now_ms);
        }
    }

    /// Reads what an attendant reports: the end of a control daemon stops the instance.
    pub(crate) fn take_attendant_news(&mut self, pid: i32, now_ms: u64) {
        if let Some(daemon) = self.attendance.take_news(pid) {
            self.obey(Command::Stop, &format!("daemon {daemon}"), now_ms);
        }
    }

    fn do_touch_hook(&mut self, number: u32) {
        self.touch_hooks.begin(number, &self.fleet.settings, self.fleet.privileges());
    }

    /// A hook that has ended may have missed a change: it runs again then.
    pub(crate) fn note_hook_end(&mut self, pid: Pid, status: i32) {
        if let Some(number) = self.touch_hooks.note_end(pid, status).filter(|_| !self.is_stopping()) {
            self.do_touch_hook(number);
        }
    }
}
