//! The logs of a running instance: rotates and reopens files, and restarts log programs, in this process and in all children. It
//! knows no log line. The master runs it.

use std::os::fd::{AsFd, AsRawFd};

use bolide_contract::logging::Logging;
use bolide_contract::message::{self, Order};
use bolide_supervision::logs::captured_output::CapturedOutput;
use bolide_supervision::logs::log_files::Logs;
use bolide_supervision::logs::log_programs::{LogPrograms, NewLog};
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::Source;
use bolide_supervision::processes::process_attributes::with_descriptors_in_flight;
use nix::unistd::Pid;

use crate::children::Children;
use crate::provision::Provision;
use crate::token::Token;

/// The logs of an instance: files, programs that read lines, and the output of applications.
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

    /// Returns the next time to check logs without an event; the log files are checked only if the instance owns them.
    pub fn wake_ms(&self, has_files: bool, now_ms: u64) -> Option<u64> {
        let rest = bolide_log::is_waiting().then_some(now_ms + bolide_log::RETRY_MS);
        let files = self.files.wake_ms().filter(|_| has_files);
        let stack = self.captured.as_ref().and_then(CapturedOutput::wake_ms);
        [rest, files, stack, self.programs.wake_ms(now_ms)].into_iter().flatten().min()
    }

    /// Writes the captured output of applications.
    pub fn read_captured(&mut self, now_ms: u64) {
        self.captured.iter_mut().for_each(|captured| captured.read(now_ms));
    }

    /// Writes a stack in the captured output that is complete.
    pub fn write_due(&mut self, now_ms: u64) {
        self.captured.iter_mut().for_each(|captured| captured.write_due(now_ms));
    }

    /// Writes the rest of the captured output.
    pub fn finish_captured(&mut self, now_ms: u64) {
        self.captured.iter_mut().for_each(|captured| captured.finish(now_ms));
    }

    /// Applies the log settings of a reload.
    pub fn renew(&mut self, logging: &Logging) {
        self.files.renew(logging);
        bolide_log::configure(logging);
    }

    /// Records the end of a child of the master. Returns false if it was not a log program.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> bool {
        self.programs.note_end(pid, status, now_ms)
    }

    /// Opens the log files again, because another program has moved them.
    ///
    /// # Errors
    /// The failures, as text; they are logged already.
    pub fn reopen(&mut self, by: &str, children: &Children) -> Result<(), String> {
        let done = self.files.reopen_all();
        take_new(done, by, children)
    }

    /// Reopens the log files at a reload (`log-reopen`).
    pub fn reopen_at_reload(&mut self, children: &Children) {
        if self.files.reopens_at_reload() {
            // A failure is logged and does not prevent the reload.
            let _ = self.reopen("log-reopen", children);
        }
    }

    /// Rotates the log files.
    ///
    /// # Errors
    /// The failures, as text; they are logged already.
    pub fn rotate(&mut self, by: &str, children: &Children) -> Result<(), String> {
        let done = self.files.rotate_all();
        take_new(done, by, children)
    }

    /// Rotates log files that exceed their size limit.
    pub fn rotate_due(&mut self, children: &Children, now_ms: u64) {
        let done = self.files.look(now_ms);
        if !done.is_empty() {
            // A failure is logged already.
            let _ = take_new(done, "log-maxsize", children);
        }
    }

    /// Restarts log programs that have ended.
    pub fn restart_programs(&mut self, children: &Children, provision: &Provision, now_ms: u64) {
        for one in self.programs.start_due(provision.privileges(), now_ms) {
            match one {
                Ok((words, new)) => {
                    // The pipe is replaced first, because the line may go there.
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
        let why = "no log goes to a file, so there is nothing to reopen";
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

/// Replaces the old file or pipe with the new one, here and in all children.
fn hand_on(new: &NewLog, children: &Children) {
    if let Err(error) = bolide_log::replace(new.number as usize, &new.file) {
        log_sink::line(&format!("the log {} can't be replaced: {error}", new.number));
        return;
    }
    let order = Order::TakeLog { log: new.number };
    for child in children.iter() {
        let Some(channel) = &child.channel else { continue };
        // A child that does not get the order has ended, or keeps writing to the old file.
        if let Err(error) = with_descriptors_in_flight(|| message::send(channel.as_fd(), &order, Some(new.file.as_raw_fd())))
            && !matches!(error.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
        {
            log_sink::line(&format!("{child} can't be given the new file of a log: {error}; it keeps writing to the old one"));
        }
        children.wake_helper(child);
    }
}
