//! What becomes of logs while an instance runs: files that are put aside or opened anew, and programs that are started again, in
//! this process and in all children. The master runs it.

use std::os::fd::{AsFd, AsRawFd};

use bolide_contract::logging::Logging;
use bolide_contract::message::{self, Order};
use bolide_supervision::logs::captured_output::CapturedOutput;
use bolide_supervision::logs::log_files::Logs;
use bolide_supervision::logs::log_programs::{LogPrograms, NewLog};
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::Source;
use nix::unistd::Pid;

use crate::children::Children;
use crate::provision::Provision;
use crate::token::Token;

/// The logs of an instance: files, programs that read lines, and what applications print.
#[derive(Debug)]
pub struct LogKeeping {
    files: Logs,
    programs: LogPrograms,
    captured: Option<CapturedOutput>,
}

impl LogKeeping {
    pub fn new(files: Logs, programs: LogPrograms, captured: Option<CapturedOutput>) -> LogKeeping {
        LogKeeping { files, programs, captured }
    }

    pub fn source(&self) -> Option<Source<'_, Token>> {
        self.captured.as_ref().map(|captured| captured.source(Token::Printed))
    }

    /// When to look, though nothing happens; at files only if they are the instance's own.
    pub fn wake_ms(&self, has_files: bool, now_ms: u64) -> Option<u64> {
        let rest = bolide_log::is_waiting().then_some(now_ms + bolide_log::RETRY_MS);
        let files = self.files.wake_ms().filter(|_| has_files);
        [rest, files, self.programs.wake_ms(now_ms)].into_iter().flatten().min()
    }

    /// Writes what applications have printed.
    pub fn read_captured(&mut self) {
        self.captured.iter_mut().for_each(CapturedOutput::read);
    }

    /// Writes what is left of it.
    pub fn finish_captured(&mut self) {
        self.captured.iter_mut().for_each(CapturedOutput::finish);
    }

    /// Logs are those of these settings from now on.
    pub fn renew(&mut self, logging: &Logging) {
        self.files.renew(logging);
        bolide_log::configure(logging);
    }

    /// Notes the end of a child of the master. False where it was no program that reads lines.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> bool {
        self.programs.note_end(pid, status, now_ms)
    }

    /// Opens the files of logs anew, because somebody has moved them away.
    ///
    /// # Errors
    /// What could not be done, in words that the log has.
    pub fn reopen(&mut self, by: &str, children: &Children) -> Result<(), String> {
        let done = self.files.reopen_all();
        take_new(done, by, children)
    }

    /// `log-reopen`: each reload does.
    pub fn reopen_at_reload(&mut self, children: &Children) {
        if self.files.reopens_at_reload() {
            // What could not be done is in the log, and no reason not to reload.
            let _ = self.reopen("log-reopen", children);
        }
    }

    /// Puts the files of logs aside.
    ///
    /// # Errors
    /// What could not be done, in words that the log has.
    pub fn rotate(&mut self, by: &str, children: &Children) -> Result<(), String> {
        let done = self.files.rotate_all();
        take_new(done, by, children)
    }

    /// Puts those aside that have grown beyond their limit.
    pub fn look(&mut self, children: &Children, now_ms: u64) {
        let done = self.files.look(now_ms);
        if !done.is_empty() {
            // What could not be done is in the log.
            let _ = take_new(done, "log-maxsize", children);
        }
    }

    /// Starts programs again that read lines and have ended.
    pub fn restart_programs(&mut self, children: &Children, provision: &Provision, now_ms: u64) {
        for one in self.programs.start_due(provision.privileges(), now_ms) {
            match one {
                Ok((words, new)) => {
                    // First the pipe: the line may go there.
                    hand_on(&new, children);
                    log_sink::line(&words);
                }
                Err(words) => log_sink::line(&words),
            }
        }
    }
}

fn take_new(done: Vec<Result<(String, NewLog), String>>, by: &str, children: &Children) -> Result<(), String> {
    if done.is_empty() {
        let why = "no log is a file, so there is none to open again";
        log_sink::line(&format!("{by}: {why}"));
        return Err(why.to_owned());
    }
    let mut troubles = Vec::new();
    for one in done {
        match one {
            Ok((words, new)) => {
                log_sink::line(&format!("{by}: {words}"));
                hand_on(&new, children);
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
fn hand_on(new: &NewLog, children: &Children) {
    if let Err(error) = bolide_log::replace(new.number as usize, &new.file) {
        log_sink::line(&format!("the log {} can't be replaced: {error}", new.number));
        return;
    }
    let order = Order::TakeLog { log: new.number };
    for child in children.iter() {
        let Some(channel) = &child.channel else { continue };
        // A child that can't be told has ended, or goes on in the old file.
        if let Err(error) = message::send(channel.as_fd(), &order, Some(new.file.as_raw_fd()))
            && !matches!(error.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
        {
            log_sink::line(&format!("{child} can't be given the new file of a log: {error}; it keeps writing to the old one"));
        }
    }
}
