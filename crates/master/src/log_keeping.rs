//! What becomes of logs while an instance runs: files that are put aside or opened anew, and programs that are started again, in
//! this process and in all children. The master runs it.

use std::os::fd::{AsFd, AsRawFd};

use bolide_contract::message::{self, Order};
use bolide_supervision::logs::log_programs::NewLog;
use bolide_supervision::logs::log_sink;

use crate::supervisor::Supervisor;

impl Supervisor {
    /// Opens the files of logs anew, because somebody has moved them away.
    ///
    /// # Errors
    /// What could not be done, in words that the log has.
    pub(crate) fn reopen_logs(&mut self, by: &str) -> Result<(), String> {
        let done = self.logs.reopen_all();
        self.take_logs(done, by)
    }

    /// `log-reopen`: each reload does.
    pub(crate) fn reopen_logs_if_wanted(&mut self) {
        if self.logs.reopens_at_reload() && !self.is_stopping() {
            // What could not be done is in the log, and no reason not to reload.
            let _ = self.reopen_logs("log-reopen");
        }
    }

    /// Puts the files of logs aside.
    ///
    /// # Errors
    /// What could not be done, in words that the log has.
    pub(crate) fn rotate_logs(&mut self, by: &str) -> Result<(), String> {
        let done = self.logs.rotate_all();
        self.take_logs(done, by)
    }

    /// Puts those aside that have grown beyond their limit.
    pub(crate) fn look_at_logs(&mut self, now_ms: u64) {
        let done = self.logs.look(now_ms);
        if !done.is_empty() {
            // What could not be done is in the log.
            let _ = self.take_logs(done, "log-maxsize");
        }
    }

    /// Starts programs again that read lines and have ended.
    pub(crate) fn restart_log_programs(&mut self, now_ms: u64) {
        for one in self.log_programs.start_due(self.fleet.privileges.as_ref(), now_ms) {
            match one {
                Ok((words, new)) => {
                    // First the pipe: the line may go there.
                    self.hand_on(&new);
                    log_sink::line(&words);
                }
                Err(words) => log_sink::line(&words),
            }
        }
    }

    fn take_logs(&mut self, done: Vec<Result<(String, NewLog), String>>, by: &str) -> Result<(), String> {
        if done.is_empty() {
            let why = "no log is a file, so there is none to open anew";
            log_sink::line(&format!("{by}: {why}"));
            return Err(why.to_owned());
        }
        let mut troubles = Vec::new();
        for one in done {
            match one {
                Ok((words, new)) => {
                    log_sink::line(&format!("{by}: {words}"));
                    self.hand_on(&new);
                }
                Err(words) => {
                    log_sink::line(&format!("{by}: {words}"));
                    troubles.push(words);
                }
            }
        }
        if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) }
    }

    /// The new file or pipe takes the place of the old one, here and in all children.
    fn hand_on(&self, new: &NewLog) {
        if let Err(error) = bolide_log::replace(new.number as usize, &new.file) {
            log_sink::line(&format!("the log {} can't be taken anew: {error}", new.number));
            return;
        }
        let order = Order::TakeLog { log: new.number };
        for child in &self.fleet.children {
            let Some(channel) = &child.channel else { continue };
            // A child that can't be told has ended, or goes on in the old file.
            if let Err(error) = message::send(channel.as_fd(), &order, Some(new.file.as_raw_fd()))
                && !matches!(error.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
            {
                log_sink::line(&format!("{child} can't be given the new file of a log: {error}; it goes on in the old one"));
            }
        }
    }
}
