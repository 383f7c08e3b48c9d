//! The logs of a running instance: rotates and reopens files, opens again what was out of reach, and restarts log programs, in
//! this process and in all children. It does not know log lines. The master runs it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use bolide_contract::logging::{LogPlace, Logging};
use bolide_contract::message::{self, Order};
use bolide_services::statistics::LogFacts;
use bolide_supervision::log_sink;
use bolide_supervision::logs::captured_output::CapturedOutput;
use bolide_supervision::logs::log_files::{self, Logs};
use bolide_supervision::logs::log_programs::{LaunchMeans, LogPrograms};
use bolide_supervision::logs::log_reach::{self, LogReach, NewLog};
use bolide_supervision::processes::process_attributes::with_descriptors_in_flight;
use nix::unistd::Pid;

use crate::children::Children;
use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};
use crate::provision::Provision;
use crate::token::Token;

/// The logs of an instance: files, destinations that may be out of reach, programs that read lines, and the output of
/// applications.
#[derive(Debug)]
pub struct LogKeeping {
    files: Logs,
    reach: LogReach,
    programs: LogPrograms,
    captured: Option<CapturedOutput>,
}

impl LogKeeping {
    pub fn new(files: Logs, reach: LogReach, programs: LogPrograms, captured: Option<CapturedOutput>) -> LogKeeping {
        LogKeeping { files, reach, programs, captured }
    }

    /// Writes the captured output of applications.
    pub fn read_captured(&mut self, now_ms: u64) {
        self.captured.iter_mut().for_each(|captured| captured.read(now_ms));
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

    /// Opens the log files again, because another program has moved them.
    ///
    /// # Errors
    /// The failures, as text; they are logged already.
    pub fn reopen(&mut self, by: &str, children: &Children) -> Result<(), String> {
        let done = self.files.reopen_all();
        log_files::take_new(done, by, |new| hand_on(new, None, children))
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
        log_files::take_new(done, by, |new| hand_on(new, None, children))
    }

    /// Rotates log files that exceed their size limit.
    pub fn rotate_due(&mut self, children: &Children, now_ms: u64) {
        let done = self.files.look(now_ms);
        if !done.is_empty() {
            // A failure is logged already.
            let _ = log_files::take_new(done, "log-maxsize", |new| hand_on(new, None, children));
        }
    }

    /// Writes to the file that the emperor's log is now, if that is the log of this instance.
    pub fn follow_emperor(&mut self, file: OwnedFd, logging: &Logging, children: &Children) {
        if logging.file.is_none() {
            hand_on(&NewLog { number: 0, file }, None, children);
        }
    }

    /// Opens the destinations again that are out of reach.
    pub fn reach_again(&mut self, children: &Children, provision: &Provision, now_ms: u64) {
        for found in self.reach.look(provision.privileges(), now_ms) {
            let first = Some(found.words.as_str()).filter(|_| found.is_first_there);
            // The destination is replaced first, because the line may go there.
            hand_on(&found.new, first, children);
            if first.is_none() {
                log_sink::line(&found.words);
            }
        }
    }

    /// Returns the state of each log: its name, the lines that it has lost, and why it is out of reach.
    pub fn facts(&self, logging: &Logging, now_ms: u64) -> Vec<LogFacts> {
        let absence_of = |number: u32| self.reach.absence(number, now_ms).map(|(why, for_ms)| (why.to_owned(), Some(for_ms)));
        let facts = |number: u32, name: String, absence: Option<(String, Option<u64>)>| {
            let (absence, absent_ms) = absence.map_or((None, None), |(why, for_ms)| (Some(why), for_ms));
            LogFacts { name, lost: bolide_log::losses::of(number as usize), absence, absent_ms }
        };
        let log =
            facts(0, logging.file.as_ref().map_or_else(|| "log".to_owned(), |path| path.display().to_string()), absence_of(0));
        let targets = logging.targets.iter().zip(1..).map(|(target, number)| {
            let absence = match &target.place {
                LogPlace::Program(_) => self.programs.absence(number).map(|why| (why.to_owned(), None)),
                _ => absence_of(number),
            };
            facts(number, log_reach::name_of(&target.place), absence)
        });
        std::iter::once(log).chain(targets).collect()
    }
}

/// Replaces the old file, pipe or socket with the new one, here and in all children. `first` is the first line that goes there.
fn hand_on(new: &NewLog, first: Option<&str>, children: &Children) {
    if let Err(error) = bolide_log::replace_and_say(new.number as usize, &new.file, first) {
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

impl Owner for LogKeeping {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        let captured = self.captured.as_ref();
        let rest = bolide_log::retry_ms().map(|retry_ms| turn.now_ms + retry_ms);
        // Another master may have the files.
        let files = self.files.wake_ms().filter(|_| turn.owns_files);
        let stack = captured.and_then(CapturedOutput::wake_ms);
        let times = [rest, files, stack, self.programs.wake_ms(turn.now_ms), self.reach.wake_ms()];
        Waits::on(captured.map(|captured| captured.source(Token::Printed)), times.into_iter().flatten().min())
    }
}

impl Processes for LogKeeping {
    /// Restarts exited log programs, and writes a stack in the captured output that is complete.
    fn due(&mut self, context: OwnerContext<'_>) {
        let means = LaunchMeans { privileges: context.privileges, application: &context.settings.application };
        log_sink::lines(&self.programs.start_due(means, context.now_ms));
        self.captured.iter_mut().for_each(|captured| captured.write_due(context.now_ms));
    }

    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath> {
        self.programs.note_end(pid, status, context.now_ms).then_some(Aftermath::Nothing)
    }

    /// Log programs read to the end of their pipes, so they get the last lines of the instance.
    fn stop_now(&mut self, _now_ms: u64) {}

    fn finish(&mut self, _is_last: bool, _context: OwnerContext<'_>) -> bool {
        true
    }
}
