//! One request and the program that is executed for it: from the body to the program, from the program to the answer, and the end
//! of each. It does not know sockets or other requests. Workers run it.

use std::os::fd::{AsFd, OwnedFd};

use bolide_contract::clock::{now_ms, precise_us};
use bolide_engine::ExchangeId;
use bolide_engine::answer::{Answer, Failure, Stage, Then};
use bolide_engine::request::body::Refusal;
use bolide_engine::request_stream::BodyStream;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::EpollEvent;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::pipe2;

use crate::environment::Environment;
use crate::error_lines::{ErrorLines, Rest};
use crate::input::{Input, InputState};
use crate::output::{Output, OutputState, finish};
use crate::place::Script;
use crate::spawn::{Child, Launch, StandardStreams, Step};
use crate::tools::{Event, Tools};

/// How long a process group may take after SIGTERM before it gets SIGKILL, in milliseconds.
const TERM_GRACE_MS: u64 = 1000;
/// How long the rest of a group may take after its first process has exited, in milliseconds.
const STRAGGLERS_MS: u64 = 100;
/// How long a head waits for the first bytes of the body, to leave with them, in milliseconds.
const HEAD_HOLD_MS: u64 = 20;
/// How long the end of a program is awaited that has closed its output without a header block, in milliseconds.
const EXIT_WAIT_MS: u64 = 1000;
const NEVER_MS: u64 = u64::MAX;

/// The number of a run, as the engine holds it.
pub struct RunNumber(pub u64);

/// A request, its program, or both.
pub struct Run {
    /// The exchange; `None`: it is over, and the program goes on.
    pub id: Option<ExchangeId>,
    /// The program's file, and method and target of the request, for the log.
    name: String,
    request: String,
    /// What is executed; `None`: it is running, or was.
    start: Option<Start>,
    /// The program has been started, and was not reaped.
    child: Option<Child>,
    /// How it has exited, for a message about it.
    ending: Option<String>,
    input: Input,
    output: Option<Output>,
    errors: Option<ErrorLines>,
    /// When it came, or the program has last written or read, in monotonic milliseconds.
    active_ms: u64,
    /// When its program was started, in microseconds.
    started_us: u64,
    /// The program is not late: its client is.
    is_delayed_by_client: bool,
    /// When the head leaves without a body.
    head_leaves_ms: u64,
    /// When the program has to have ended, or its group is killed.
    ends_ms: u64,
    killing: Killing,
    /// The client has left in the middle of its body.
    has_left: bool,
}

/// A program that has not been started.
pub struct Start {
    script: ScriptNames,
    environment: Environment,
    is_length_known: bool,
}

/// What a program is executed by.
pub struct ScriptNames {
    pub file: Vec<u8>,
    pub helper: Option<Vec<u8>>,
    pub directory: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killing {
    No,
    /// The group has got SIGTERM, and gets SIGKILL at this time.
    Asked {
        kill_ms: u64,
    },
    /// It has got SIGKILL.
    Done,
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    Waits,
    /// It has more to do, after others.
    Again,
    /// The body without a length is complete: the program may be started.
    Ready,
}

impl ScriptNames {
    pub fn of(script: &Script<'_>) -> ScriptNames {
        use std::os::unix::ffi::OsStrExt;
        let bytes = |path: &std::path::Path| path.as_os_str().as_bytes().to_vec();
        ScriptNames {
            file: bytes(&script.file),
            helper: script.helper.as_deref().map(bytes),
            directory: script.file.parent().map_or_else(|| b"/".to_vec(), bytes),
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.file).into_owned()
    }
}

impl Start {
    /// `is_length_known`: the variables contain the length of the body.
    pub fn new(script: ScriptNames, environment: Environment, is_length_known: bool) -> Start {
        Start { script, environment, is_length_known }
    }
}

impl Run {
    pub fn new(id: ExchangeId, request: String, start: Start, input: Input) -> Run {
        Run {
            id: Some(id),
            name: start.script.shown(),
            request,
            start: Some(start),
            child: None,
            ending: None,
            input,
            output: None,
            errors: None,
            active_ms: now_ms(),
            started_us: 0,
            is_delayed_by_client: false,
            head_leaves_ms: NEVER_MS,
            ends_ms: NEVER_MS,
            killing: Killing::No,
            has_left: false,
        }
    }

    /// Its body is still arriving, and the program must not start before its length is known.
    pub fn is_collecting(&self) -> bool {
        matches!(self.input, Input::Collected(_))
    }

    /// Its program has not been started.
    pub fn is_waiting(&self) -> bool {
        self.start.is_some()
    }

    /// When it came, in monotonic milliseconds.
    pub fn since_ms(&self) -> u64 {
        self.active_ms
    }

    /// Nothing is left of it.
    pub fn is_over(&self) -> bool {
        self.id.is_none() && self.child.is_none()
    }

    /// Since when the program works on its request, in microseconds. `None`: it does not.
    pub fn served_from_us(&self) -> Option<u64> {
        (self.id.is_some() && self.started_us > 0).then_some(self.started_us)
    }

    /// It holds one of the places for programs.
    pub fn has_child(&self) -> bool {
        self.child.is_some()
    }

    /// Executes the program. An error has been answered, and the run is over.
    pub fn start(&mut self, number: u64, answer: &mut Answer<'_>, stream: Option<&mut BodyStream>, tools: &mut Tools) {
        let Some(start) = self.start.take() else { return };
        let failure = match self.execute(start, number, stream, tools) {
            Ok(()) => return,
            Err(failure) => failure,
        };
        let (status, what) = match failure {
            (Step::Exec, error) if error.raw_os_error() == Some(libc::EACCES) => (403, format!("can't be executed: {error}")),
            (Step::Exec, error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOEXEC | libc::ENOTDIR)) => {
                (502, format!("can't be executed: {error}; it or the program in its first line is missing or wrong"))
            }
            (Step::Exec, error) => (502, format!("can't be executed: {error}")),
            (Step::Directory, error) => (403, format!("can't be executed, because its directory can't be entered: {error}")),
            (Step::Setup | Step::Fork, error) => (503, format!("can't be started: {error}")),
        };
        tools.complain(&format!("{} {what}", self.described()));
        self.end_exchange();
        answer.fail(Failure::Status(status));
    }

    fn execute(
        &mut self,
        start: Start,
        number: u64,
        stream: Option<&mut BodyStream>,
        tools: &mut Tools,
    ) -> Result<(), (Step, std::io::Error)> {
        let of_system = |errno: Errno| (Step::Setup, errno.into());
        let Start { script, mut environment, is_length_known } = start;
        let is_more = stream.is_some_and(|stream| {
            self.input.take_first_part(stream);
            !stream.is_told()
        });
        if let Some(length) = self.input.length().filter(|length| *length > 0 || environment.has_length())
            && !is_length_known
        {
            environment.set_length(length);
        }
        let input = self.input.open(is_more).map_err(|error| (Step::Setup, error))?;
        let (output, output_end) = watched_pipe().map_err(of_system)?;
        let (errors, errors_end) = watched_pipe().map_err(of_system)?;
        let text = |bytes: Vec<u8>| std::ffi::CString::new(bytes).unwrap_or_default();
        let launch = Launch {
            arguments: script.helper.into_iter().chain([script.file]).map(text).collect(),
            variables: environment.into_variables(),
            directory: text(script.directory),
        };
        let streams = StandardStreams {
            input: input.as_ref().map_or(tools.null.as_fd(), AsFd::as_fd),
            output: output_end.as_fd(),
            error: errors_end.as_fd(),
        };
        let child = tools.spawner.start(&launch, &streams)?;
        self.started_us = precise_us();
        self.active_ms = now_ms();
        let watches = [(child.pidfd.as_fd(), Event::Exit), (output.as_fd(), Event::Output), (errors.as_fd(), Event::Errors)];
        let watches = watches.into_iter().chain(self.input.pipe().map(|pipe| (pipe, Event::Input)));
        let mut watched = Ok(());
        for (descriptor, event) in watches {
            watched = watched.and(tools.poll.add(descriptor, EpollEvent::new(event.flags(), event.key(number))));
        }
        self.child = Some(child);
        self.output = Some(Output::new(output));
        self.errors = Some(ErrorLines::new(errors, self.name.clone()));
        if let Err(errno) = watched {
            self.kill_now();
            // The poll would not report its exit, and it would keep its place for good.
            if let Some(child) = self.child.take() {
                let _ = waitid(Id::PIDFd(child.pidfd.as_fd()), WaitPidFlag::WEXITED);
            }
            return Err((Step::Setup, errno.into()));
        }
        Ok(())
    }

    // What the poll reports.

    /// Notes an event of the poll. True: the run must be advanced.
    pub fn note(&mut self, event: Event, has_hung_up: bool) -> bool {
        match event {
            Event::Input => self.input.note_room(),
            Event::Output => {
                if let Some(output) = &mut self.output {
                    output.note_bytes(has_hung_up);
                }
            }
            Event::Errors => return self.take_errors(),
            Event::Exit => self.note_exit(),
        }
        true
    }

    fn take_errors(&mut self) -> bool {
        match self.errors.as_mut().map(ErrorLines::take_in) {
            Some(Rest::End) => {
                self.errors = None;
                false
            }
            Some(Rest::More) => true,
            Some(Rest::Nothing) | None => false,
        }
    }

    /// The program has exited. It is reaped once its group has got all signals, because its process group id may be reused
    /// from then on.
    fn note_exit(&mut self) {
        let Some(child) = &self.child else { return };
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.ending = match waitid(Id::PIDFd(child.pidfd.as_fd()), flags) {
            Ok(WaitStatus::Exited(_, status)) => Some(format!("has exited with status {status}")),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(format!("was ended by {}", signal.as_str())),
            Ok(_) => None,
            Err(_) => Some("has ended".to_owned()),
        };
        if self.ending.is_none() {
            return;
        }
        if let Killing::Asked { kill_ms } = &mut self.killing {
            *kill_ms = (*kill_ms).min(now_ms() + STRAGGLERS_MS);
        }
    }

    /// Reaps a program that has exited, once its group has got all signals.
    fn reap(&mut self) {
        let holds_output = self.output.as_ref().is_some_and(|output| output.pipe().is_some());
        if self.ending.is_none() || holds_output || matches!(self.killing, Killing::Asked { .. }) {
            return;
        }
        if let Some(child) = self.child.take() {
            let _ = waitid(Id::PIDFd(child.pidfd.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
            if let Some(mut errors) = self.errors.take() {
                errors.take_in();
                errors.finish();
            }
        }
    }

    // The exchange.

    /// Collects a body without a length.
    pub fn collect(&mut self, answer: &mut Answer<'_>, stream: &mut BodyStream, tools: &mut Tools) -> Advance {
        if self.note_left(stream) {
            return Advance::Again;
        }
        let fault = match self.input.collect(stream, answer) {
            Ok(InputState::Complete) => return Advance::Ready,
            Ok(_) => return Advance::Waits,
            Err(Refusal::Fault(fault)) => {
                answer.close_after();
                fault.status
            }
            Err(Refusal::Spill(error)) => {
                tools.complain(&format!("the body of {} can't be stored: {error}", self.request));
                500
            }
        };
        self.end_exchange();
        answer.fail(Failure::Status(fault));
        Advance::Waits
    }

    /// Whether the client has left before its body was complete. The engine may still have an answer for that, so the exchange is
    /// ended later, from outside.
    fn note_left(&mut self, stream: &BodyStream) -> bool {
        self.has_left |= stream.is_gone && !stream.is_complete() && !stream.has_part();
        self.has_left
    }

    /// Ends the exchange of a client that has left in the middle of its body. True: it was one.
    pub fn end_left(&mut self, answer: &mut Answer<'_>, tools: &Tools) -> bool {
        if self.has_left && self.id.is_some() {
            answer.fail(Failure::ClientLeft);
            self.leave(tools);
        }
        self.has_left
    }

    /// Does everything that can be done without waiting.
    pub fn advance(&mut self, answer: &mut Answer<'_>, stream: Option<&mut BodyStream>, tools: &mut Tools) -> Advance {
        let is_left = stream.as_ref().is_some_and(|stream| self.note_left(stream));
        if is_left || self.id.is_none() {
            return if is_left { Advance::Again } else { self.advance_alone(tools) };
        }
        let (input, has_written) = self.input.advance(stream, answer);
        let Some(output) = &mut self.output else { return Advance::Waits };
        let (output_state, has_read) = output.advance(&mut tools.buffer, answer);
        if has_written || has_read || self.is_delayed_by_client {
            self.active_ms = now_ms();
        }
        self.is_delayed_by_client = output_state == OutputState::AwaitsClient || input == InputState::AwaitsClient;
        let has_only_head = output.has_head() && answer.stage() < Stage::Body;
        match output_state {
            OutputState::Again => return Advance::Again,
            OutputState::AwaitsProgram => {
                if !has_only_head {
                    self.head_leaves_ms = NEVER_MS;
                } else if self.head_leaves_ms == NEVER_MS {
                    self.head_leaves_ms = now_ms() + HEAD_HOLD_MS;
                }
            }
            OutputState::AwaitsClient => {}
            OutputState::HeadAlone => {
                answer.finish(Then::RequestEnds);
                self.end_exchange();
                return self.advance_alone(tools);
            }
            OutputState::Gone => {
                self.leave(tools);
                return Advance::Waits;
            }
            OutputState::Fault(fault) => {
                self.fail(answer, &fault, tools);
                return Advance::Waits;
            }
            OutputState::End | OutputState::TooLong => self.end_output(answer, tools),
        }
        self.reap();
        if input == InputState::Again { Advance::Again } else { Advance::Waits }
    }

    /// The program has closed its output.
    fn end_output(&mut self, answer: &mut Answer<'_>, tools: &Tools) {
        if self.output.as_ref().is_some_and(Output::has_head) {
            if let Some(fault) = finish(answer) {
                tools.complain(&format!("{} {fault}", self.described()));
                tools.count_broken_off(answer);
            }
            self.end_exchange();
            return;
        }
        if self.ending.is_none() {
            self.note_exit();
        }
        match (&self.ending, &self.output) {
            (Some(ending), Some(output)) => {
                let fault = format!("{}: it {ending}", output.head_fault());
                self.fail(answer, &fault, tools);
            }
            // Its end will say more than that its output has one.
            _ => self.ends_ms = self.ends_ms.min(now_ms() + EXIT_WAIT_MS),
        }
    }

    /// Answers for a program that has not written a right header block, and ends the program.
    fn fail(&mut self, answer: &mut Answer<'_>, fault: &str, tools: &Tools) {
        tools.complain(&format!("{} {fault}", self.described()));
        answer.fail(Failure::Status(502));
        self.end_exchange();
        self.kill();
    }

    /// Does what is left to do for a program without an exchange.
    fn advance_alone(&mut self, tools: &mut Tools) -> Advance {
        let state = self.output.as_mut().map(|output| output.discard(&mut tools.buffer));
        self.reap();
        if state == Some(OutputState::Again) && self.child.is_some() { Advance::Again } else { Advance::Waits }
    }

    /// Goes on with a program whose exchange is over.
    pub fn advance_without_exchange(&mut self, tools: &mut Tools) -> Advance {
        let advance = self.advance_alone(tools);
        if self.take_errors() { Advance::Again } else { advance }
    }

    /// The exchange is over. The program may go on for its time-out.
    fn end_exchange(&mut self) {
        self.id = None;
        self.start = None;
        self.input = Input::Closed;
        if let Some(output) = &mut self.output {
            output.drop_rest();
        }
        self.active_ms = now_ms();
        self.is_delayed_by_client = false;
    }

    /// The client has left, so nothing that the program does reaches anyone.
    pub fn leave(&mut self, tools: &Tools) {
        self.end_exchange();
        if let Some(output) = &mut self.output {
            output.close();
        }
        if !tools.outlives_client {
            self.kill();
        }
        self.reap();
    }

    /// The time limit of the request has passed (`harakiri`).
    pub fn end_overdue(&mut self, milliseconds: u64, tools: &Tools) {
        tools.complain(&format!("{} is killed after {milliseconds} ms (harakiri)", self.described()));
        self.end_exchange();
        if let Some(output) = &mut self.output {
            output.close();
        }
        self.kill();
        self.reap();
    }

    fn described(&self) -> String {
        format!("{} ({})", self.name, self.request)
    }

    // Time.

    /// When it wants [`Run::pass_time`] or [`Run::pass_time_with`], in monotonic milliseconds.
    pub fn due_ms(&self, timeout_ms: u64) -> u64 {
        let kill_ms = match self.killing {
            Killing::Asked { kill_ms } => return kill_ms,
            Killing::Done => return NEVER_MS,
            Killing::No => self.ends_ms,
        };
        let is_timed = self.child.is_some() && !self.is_delayed_by_client;
        let silent_ms = if is_timed { self.active_ms + timeout_ms } else { NEVER_MS };
        kill_ms.min(silent_ms).min(self.head_leaves_ms)
    }

    /// Does what is due with the answer.
    pub fn pass_time_with(&mut self, answer: &mut Answer<'_>, tools: &Tools) {
        let now_ms = now_ms();
        if self.head_leaves_ms <= now_ms {
            self.head_leaves_ms = NEVER_MS;
            answer.flush();
        }
        let has_closed = self.output.as_ref().is_none_or(|output| output.pipe().is_none());
        if self.ends_ms <= now_ms && has_closed {
            let fault = "has closed its output without a header block, and goes on";
            self.fail(answer, fault, tools);
            return;
        }
        if self.is_silent(now_ms, tools) {
            let seconds = tools.timeout_ms / 1000;
            let described = self.described();
            if self.output.as_ref().is_some_and(Output::has_head) {
                tools.complain(&format!(
                    "{described} has written nothing for {seconds} seconds: its answer is cut off (cgi-timeout)"
                ));
                answer.fail(Failure::CutOff);
                tools.count_broken_off(answer);
            } else {
                tools.complain(&format!("{described} has written nothing for {seconds} seconds and is killed (cgi-timeout)"));
                answer.fail(Failure::Status(504));
            }
            self.end_exchange();
            self.kill();
        }
    }

    /// Does what is due without an exchange.
    pub fn pass_time(&mut self, tools: &Tools) {
        let now_ms = now_ms();
        match self.killing {
            Killing::Asked { kill_ms } if kill_ms <= now_ms => self.kill_now(),
            Killing::No if self.id.is_none() && self.is_silent(now_ms, tools) => {
                tools.complain(&format!("{} goes on after its answer and is killed (cgi-timeout)", self.described()));
                self.kill();
            }
            _ => {}
        }
        self.reap();
    }

    fn is_silent(&self, now_ms: u64, tools: &Tools) -> bool {
        self.child.is_some() && !self.is_delayed_by_client && self.active_ms + tools.timeout_ms <= now_ms
    }

    /// Asks the program and all that it has started to end. They are killed if they don't.
    pub fn kill(&mut self) {
        let Some(child) = &self.child else { return };
        if self.killing != Killing::No {
            return;
        }
        let _ = killpg(child.pid, Signal::SIGTERM);
        let grace_ms = if self.ending.is_some() { STRAGGLERS_MS } else { TERM_GRACE_MS };
        self.killing = Killing::Asked { kill_ms: now_ms() + grace_ms };
    }

    /// Kills the group. The process itself was not reaped, so the number is still the group's.
    fn kill_now(&mut self) {
        if let Some(child) = &self.child {
            let _ = killpg(child.pid, Signal::SIGKILL);
        }
        self.killing = Killing::Done;
        // A process outside of the group may hold the output, and no one reads it.
        if let Some(output) = &mut self.output {
            output.close();
        }
    }
}

/// A pipe whose read end does not block, and is the first one.
fn watched_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read_end, write_end) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read_end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read_end, write_end))
}
