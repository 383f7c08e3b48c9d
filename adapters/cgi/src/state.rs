//! The requests of a worker: those whose programs run, those that wait for their turn, and programs that go on after their
//! answer. It does not know pipes or sockets. The thread of a worker runs it, inside the engine's turns and between them.

use std::collections::{HashMap, VecDeque};
use std::io;

use bolide_contract::clock::now_ms;
use bolide_contract::settings::{Cgi, Settings};
use bolide_engine::answer::{Answer, Failure, ServerFields, Status, Then, When};
use bolide_engine::app::Outcome;
use bolide_engine::request::Request;
use bolide_engine::request::body::BodyLimits;
use bolide_engine::request_stream::{BodyStream, RequestStream};
use bolide_engine::{ExchangeId, ListeningSocket};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollFlags};

use crate::environment::{Base, Environment, ScriptFacts};
use crate::input::{Input, SPOOLED_BYTES};
use crate::output::OUTPUT_BYTES;
use crate::place::{NoScript, Places, Script};
use crate::run::{Advance, Run, RunNumber, ScriptNames, Start};
use crate::spawn::{Spawner, empty_file};
use crate::tools::{self, Event, Tools};

/// Maximum number of requests of a worker that wait for their program's turn. Others get 503.
const MAX_WAITING: usize = 1024;
/// Maximum number of bytes of a request's target in a line of the log.
const MAX_LOGGED_TARGET_BYTES: usize = 200;

/// The state of a worker.
pub struct State {
    runs: HashMap<u64, Run>,
    next: u64,
    /// Requests whose programs have not been started, in their order.
    waiting: VecDeque<u64>,
    /// Runs that have more to do.
    again: Vec<u64>,
    /// Programs that were not reaped.
    children: u32,
    most: u32,
    base: Base,
    places: Places,
    body_limits: Option<BodyLimits>,
    tools: Tools,
}

impl State {
    /// # Errors
    /// A system call fails, or a place or a helper is missing.
    pub fn new(settings: &Settings, cgi: &Cgi, listeners: &[ListeningSocket], worker: u32) -> io::Result<State> {
        Ok(State {
            runs: HashMap::new(),
            next: 0,
            waiting: VecDeque::new(),
            again: Vec::new(),
            children: 0,
            most: cgi.programs.max(1),
            base: Base::new(settings, listeners, &cgi.unset),
            places: Places::new(cgi, &Base::search(settings)).map_err(io::Error::other)?,
            body_limits: None,
            tools: Tools {
                poll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
                spawner: Spawner::new()?,
                buffer: vec![0; OUTPUT_BYTES].into_boxed_slice(),
                null: empty_file()?,
                timeout_ms: cgi.timeout_ms,
                outlives_client: cgi.outlives_client,
                worker,
            },
        })
    }

    /// The engine is there: requests come from now on, with these limits of their bodies.
    pub fn attach(&mut self, limits: BodyLimits) {
        self.body_limits = Some(BodyLimits { memory_bytes: SPOOLED_BYTES, ..limits });
    }

    pub fn poll(&self) -> &Epoll {
        &self.tools.poll
    }

    // What the engine calls.

    /// A request has come.
    pub fn begin<Memo>(&mut self, request: &mut Request<'_, Memo>, answer: &mut Answer<'_>) -> Outcome<RunNumber> {
        let mut environment = self.base.of_request(request);
        if self.waiting.len() >= MAX_WAITING {
            answer.fail(Failure::Busy);
            return Outcome::Finished;
        }
        let path = path_of(request.parts.path(), &mut environment);
        let script = match self.places.find(&path, now_ms()) {
            Ok(script) => script,
            Err(none) => {
                self.refuse(&none, request, answer);
                return Outcome::Finished;
            }
        };
        complete(&self.base, &mut environment, &script);
        let is_length_known = environment.has_length() && !request.parts.is_chunked();
        let (names, text) = (ScriptNames::of(&script), described(request));
        let whole = std::mem::take(&mut request.body);
        let stream = request.request_stream.as_deref_mut().and_then(RequestStream::body);
        let input = match (self.body_limits, &stream) {
            (Some(limits), Some(stream)) if !is_length_known && !stream.is_complete() => Input::collecting(limits),
            _ => Input::whole(whole),
        };
        self.next += 1;
        let number = self.next;
        let run = Run::new(request.id, text, Start::new(names, environment, is_length_known), input);
        self.runs.insert(number, run);
        self.client_event(number, answer, stream);
        match self.runs.get(&number).and_then(|run| run.id) {
            Some(_) => Outcome::Ongoing(RunNumber(number)),
            None => Outcome::Finished,
        }
    }

    /// Something has changed for the client's side of a run, or its program may be started.
    pub fn client_event(&mut self, number: u64, answer: &mut Answer<'_>, mut stream: Option<&mut BodyStream>) {
        let is_turn = self.waiting.front() == Some(&number) || self.waiting.is_empty();
        let may_start = is_turn && self.children < self.most;
        let mut queues = false;
        let advance = self.with(number, |run, tools| {
            if run.is_collecting() {
                let Some(stream) = stream.as_deref_mut() else { return Advance::Waits };
                match run.collect(answer, stream, tools) {
                    Advance::Ready => {}
                    other => return other,
                }
            }
            if run.is_waiting() && run.id.is_some() {
                if !may_start {
                    queues = true;
                    return Advance::Waits;
                }
                run.start(number, answer, stream.as_deref_mut(), tools);
            }
            run.advance(answer, stream, tools)
        });
        if queues && !self.waiting.contains(&number) {
            self.waiting.push_back(number);
        } else if !queues {
            self.waiting.retain(|waiting| *waiting != number);
        }
        if advance == Some(Advance::Again) {
            self.again.push(number);
        }
        self.note_room();
    }

    /// The client has left.
    pub fn leave(&mut self, number: u64) {
        self.waiting.retain(|waiting| *waiting != number);
        self.with(number, |run, tools| run.leave(tools));
        self.note_room();
    }

    /// The time limit of a request has passed.
    pub fn end_overdue(&mut self, number: u64, milliseconds: u64) {
        self.waiting.retain(|waiting| *waiting != number);
        self.with(number, |run, tools| run.end_overdue(milliseconds, tools));
        self.note_room();
    }

    // What the loop calls.

    /// Notes an event of the poll.
    pub fn note(&mut self, key: u64, flags: EpollFlags) {
        let (number, event) = Event::of_key(key);
        let has_hung_up = flags.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        if self.with(number, |run, _| run.note(event, has_hung_up)) == Some(true) && !self.again.contains(&number) {
            self.again.push(number);
        }
    }

    /// Its connection is attended to by a caller: it goes on later.
    pub fn put_again(&mut self, number: u64) {
        self.again.push(number);
    }

    /// The runs that have something to do.
    pub fn take_again(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.again)
    }

    pub fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// The exchange of a run, which must be visited for anything about its answer.
    pub fn exchange_of(&self, number: u64) -> Option<ExchangeId> {
        self.runs.get(&number)?.id
    }

    /// Goes on with a run's answer, in a visit.
    pub fn go_on(&mut self, number: u64, answer: &mut Answer<'_>, stream: &mut RequestStream) {
        if self.with(number, |run, tools| run.end_left(answer, tools)) == Some(false) {
            self.client_event(number, answer, stream.body());
        }
        self.note_room();
    }

    /// Goes on with a run without an exchange.
    pub fn go_on_alone(&mut self, number: u64) {
        if self.with(number, Run::advance_without_exchange) == Some(Advance::Again) {
            self.again.push(number);
        }
        self.note_room();
    }

    /// The next request whose program may be started, and since when it waits.
    pub fn next_waiting(&mut self) -> Option<(u64, ExchangeId, u64)> {
        while self.children < self.most {
            let number = *self.waiting.front()?;
            match self.runs.get(&number).and_then(|run| Some((number, run.id?, run.since_ms()))) {
                Some(next) => return Some(next),
                None => drop(self.waiting.pop_front()),
            }
        }
        None
    }

    /// A request has waited too long, and is answered.
    pub fn drop_waiting(&mut self, number: u64) {
        self.leave(number);
    }

    /// When the first time limit of a run passes, in monotonic milliseconds.
    pub fn due_ms(&self) -> u64 {
        self.runs.values().map(|run| run.due_ms(self.tools.timeout_ms)).min().unwrap_or(u64::MAX)
    }

    /// The runs whose time limits have passed.
    pub fn overdue(&self, now_ms: u64) -> Vec<u64> {
        let is_due = |(_, run): &(&u64, &Run)| run.due_ms(self.tools.timeout_ms) <= now_ms;
        self.runs.iter().filter(is_due).map(|(number, _)| *number).collect()
    }

    /// Does what is due for a run, in a visit if there is an answer.
    pub fn pass_time(&mut self, number: u64, answer: Option<&mut Answer<'_>>) {
        self.with(number, |run, tools| {
            if let Some(answer) = answer {
                run.pass_time_with(answer, tools);
            }
            run.pass_time(tools);
        });
        self.note_room();
    }

    /// The worker exits: ends the programs that still run. True: there are none.
    pub fn end_all(&mut self) -> bool {
        let numbers: Vec<u64> = self.runs.keys().copied().collect();
        for number in numbers {
            self.with(number, |run, tools| {
                run.leave(tools);
                run.kill();
            });
        }
        self.runs.is_empty()
    }

    // Helpers.

    /// Acts on a run, counts its program, and forgets it if nothing is left of it.
    fn with<R>(&mut self, number: u64, act: impl FnOnce(&mut Run, &mut Tools) -> R) -> Option<R> {
        let run = self.runs.get_mut(&number)?;
        let (had_child, served_from_us) = (run.has_child(), run.served_from_us());
        let result = act(run, &mut self.tools);
        self.children += u32::from(run.has_child());
        self.children -= u32::from(had_child);
        if let (Some(from_us), None) = (served_from_us, run.id) {
            tools::note_service(from_us);
        }
        if run.is_over() {
            self.runs.remove(&number);
        }
        Some(result)
    }

    /// Connections are accepted as long as more programs may run.
    fn note_room(&self) {
        tools::set_full(self.children >= self.most || !self.waiting.is_empty());
    }

    fn refuse<Memo>(&self, none: &NoScript, request: &Request<'_, Memo>, answer: &mut Answer<'_>) {
        let status = match none {
            NoScript::Missing => 404,
            NoScript::Forbidden(_) => 403,
            NoScript::Broken(_) => 500,
            NoScript::Redirect => {
                redirect_to_slash(request.parts.uri(), answer);
                return;
            }
        };
        if let NoScript::Forbidden(reason) | NoScript::Broken(reason) = none {
            self.tools.complain(&format!("{reason} ({})", described(request)));
        }
        answer.fail(Failure::Status(status));
    }
}

/// The path that is looked up. A reverse proxy of FastCGI may send it as SCRIPT_NAME alone.
fn path_of(path: &[u8], environment: &mut Environment) -> Vec<u8> {
    if !path.is_empty() {
        return path.to_vec();
    }
    let script_name = environment.get(b"SCRIPT_NAME").unwrap_or_default().to_vec();
    environment.put(b"SCRIPT_NAME", b"");
    script_name
}

fn complete(base: &Base, environment: &mut Environment, script: &Script<'_>) {
    let facts = ScriptFacts {
        file: script.file.as_os_str().as_encoded_bytes(),
        name: &script.name,
        path_info: script.path_info,
        root: script.root.as_os_str().as_encoded_bytes(),
    };
    base.complete(environment, &facts);
}

/// Method and target, for the log.
fn described<Memo>(request: &Request<'_, Memo>) -> String {
    let target = request.parts.uri();
    let target = &target[..target.len().min(MAX_LOGGED_TARGET_BYTES)];
    let text = format!("{} {}", String::from_utf8_lossy(request.parts.method()), String::from_utf8_lossy(target));
    text.replace(|character: char| character.is_control(), "?")
}

/// Sends the client to the path of a directory with its slash. Several slashes at the beginning would be another host.
fn redirect_to_slash(uri: &[u8], answer: &mut Answer<'_>) {
    let (path, query) = match uri.iter().position(|byte| *byte == b'?') {
        Some(end) => (&uri[..end], &uri[end..]),
        None => (uri, &b""[..]),
    };
    let slashes = path.iter().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
    let location = [b"/", &path[slashes..], b"/", query].concat();
    let is_begun = answer.begin(Status::Code(301)).is_ok()
        && answer.field(b"Location", &location, ServerFields::Refused).is_ok()
        && answer.field(b"Content-Length", b"0", ServerFields::Refused).is_ok();
    if is_begun {
        answer.push(b"", When::WithTheNext);
        answer.finish(Then::RequestEnds);
    } else {
        answer.fail(Failure::Status(404));
    }
}
