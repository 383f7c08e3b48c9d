//! The application that keeps its exchanges: it gets a request with its head, and takes the body as it arrives, or gets it with a
//! whole body. It answers from within [`App::client_event`] or, later, from outside by [`EmbeddedWorker::visit`], like an
//! asynchronous application. It does not know sockets. One thread runs it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bolide_engine::answer::{Answer, Failure, Interim, Pushed, Stage, Then, When};
use bolide_engine::app::{App, Language, Outcome, SignalOutcome};
use bolide_engine::request::Request;
use bolide_engine::request_stream::{BodyStream, RequestStream};
use bolide_engine::{EmbeddedWorker, ExchangeId, Visited};

use crate::interpreter::{Interpreter, Kept};
use crate::language::{begin, bytes_of, line_and_path, lines_of};
use crate::pages::{Page, part};
use crate::variables::Table;

#[derive(Clone, Copy)]
pub struct TestStreams<const STREAMS_BODY: bool = true> {
    pub interpreter: &'static Interpreter,
    exchanges: &'static Mutex<Exchanges>,
}

/// The application's ongoing exchanges, by numbers of its own.
#[derive(Default)]
struct Exchanges {
    next: u64,
    going_on: BTreeMap<u64, Exchange>,
}

struct Exchange {
    id: ExchangeId,
    /// The gate at which it waits: until it is open, it takes nothing of the body, and sends nothing.
    gate: Option<String>,
    is_echo: bool,
    /// The status, until the answer has begun.
    status: Option<&'static [u8]>,
    parts: Box<dyn Iterator<Item = Vec<u8>> + Send>,
    /// Bytes that the client has not taken yet.
    unsent: Vec<u8>,
    fails: bool,
}

/// The progress of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It waits for its client, or at a gate.
    Waits,
    Complete,
    Failed,
}

/// The application on its one thread.
pub struct StreamApp<const STREAMS_BODY: bool> {
    streams: TestStreams<STREAMS_BODY>,
}

/// An exchange as the engine holds it.
pub struct ExchangeNumber {
    number: u64,
    kept: Kept,
}

impl TestStreams {
    /// Makes a language that lives as long as the process, as the engine requires.
    pub fn new() -> &'static TestStreams {
        TestStreams::lasting()
    }
}

impl TestStreams<false> {
    /// The same, with bodies that are collected before the call.
    pub fn with_whole_bodies() -> &'static TestStreams<false> {
        TestStreams::lasting()
    }
}

impl<const STREAMS_BODY: bool> TestStreams<STREAMS_BODY> {
    fn lasting() -> &'static TestStreams<STREAMS_BODY> {
        Box::leak(Box::new(TestStreams { interpreter: Box::leak(Box::default()), exchanges: Box::leak(Box::default()) }))
    }

    /// Opens a gate from outside of any turn, and continues the exchanges that wait there. Returns the result of each visit.
    pub fn open(&self, gate: &str, worker: &EmbeddedWorker<TestStreams<STREAMS_BODY>>) -> Vec<Visited<()>> {
        let waits = |exchange: &Exchange| exchange.gate.as_deref() == Some(gate);
        let numbers: Vec<u64> =
            self.lock().going_on.iter().filter(|(_, exchange)| waits(exchange)).map(|(number, _)| *number).collect();
        numbers.into_iter().map(|number| self.go_on(number, worker)).collect()
    }

    /// The number of ongoing exchanges.
    pub fn going_on(&self) -> usize {
        self.lock().going_on.len()
    }

    fn go_on(&self, number: u64, worker: &EmbeddedWorker<TestStreams<STREAMS_BODY>>) -> Visited<()> {
        let Some(mut exchange) = self.lock().going_on.remove(&number) else { return Visited::Gone };
        exchange.gate = None;
        let mut step = Step::Waits;
        let visited = worker.visit(exchange.id, |answer, stream| step = exchange.finish_or_wait(answer, Some(stream)));
        if step == Step::Waits && visited == Visited::Done(()) {
            self.lock().going_on.insert(number, exchange);
        }
        visited
    }

    fn lock(&self) -> MutexGuard<'_, Exchanges> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const STREAMS_BODY: bool> Language for TestStreams<STREAMS_BODY> {
    type App = StreamApp<STREAMS_BODY>;

    fn enter(&self, _thread: u32) -> Result<StreamApp<STREAMS_BODY>, String> {
        self.interpreter.acquire();
        Ok(StreamApp { streams: *self })
    }

    fn spawn(&self, _name: String, _body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        Err("an event loop has only one thread".to_owned())
    }
}

impl<const STREAMS_BODY: bool> App for StreamApp<STREAMS_BODY> {
    type Memo = ();
    type Pending = ExchangeNumber;
    const STREAMS_BODY: bool = STREAMS_BODY;
    const KEEPS_EXCHANGES: bool = true;

    fn call(&mut self, request: &mut Request<'_, ()>, answer: &mut Answer<'_>) -> Outcome<ExchangeNumber> {
        self.streams.interpreter.note_call(&line_and_path(&request.parts).0);
        if let (Some(handshake), Some(stream)) = (request.handshake.take(), request.request_stream.as_deref_mut()) {
            match handshake.accept(answer, None, &[]) {
                Ok(websocket) => *stream = RequestStream::Messages(Box::new(websocket)),
                Err(_) => return Outcome::Failed,
            }
        }
        let mut exchange = match Exchange::new(request) {
            Ok(exchange) => exchange,
            Err(outcome) => return outcome,
        };
        match exchange.advance(answer, request.request_stream.as_deref_mut()) {
            Step::Complete => Outcome::Finished,
            Step::Failed => Outcome::Failed,
            Step::Waits => {
                let mut exchanges = self.streams.lock();
                exchanges.next += 1;
                let number = exchanges.next;
                exchanges.going_on.insert(number, exchange);
                Outcome::Ongoing(ExchangeNumber { number, kept: Kept::new(self.streams.interpreter) })
            }
        }
    }

    fn resume(&mut self, pending: ExchangeNumber, _answer: &mut Answer<'_>) -> Outcome<ExchangeNumber> {
        // Ongoing exchanges get events; they are never suspended.
        Outcome::Ongoing(pending)
    }

    fn abandon(&mut self, pending: ExchangeNumber) {
        self.streams.lock().going_on.remove(&pending.number);
    }

    fn client_event(&mut self, pending: &mut ExchangeNumber, answer: &mut Answer<'_>, stream: &mut RequestStream) {
        self.streams.interpreter.check();
        let Some(mut exchange) = self.streams.lock().going_on.remove(&pending.number) else { return };
        if exchange.finish_or_wait(answer, Some(stream)) == Step::Waits {
            self.streams.lock().going_on.insert(pending.number, exchange);
        }
    }

    fn overdue(&mut self, pending: ExchangeNumber, _milliseconds: u64) {
        self.abandon(pending);
    }

    fn release(&mut self) {
        self.streams.interpreter.release();
    }

    fn acquire(&mut self) {
        self.streams.interpreter.acquire();
    }

    fn signal(&mut self, number: u8) -> SignalOutcome {
        self.streams.interpreter.note_call(format!("SIGNAL {number}\n").as_bytes());
        SignalOutcome::Handled
    }

    fn interrupted(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<const STREAMS_BODY: bool> Drop for StreamApp<STREAMS_BODY> {
    fn drop(&mut self) {
        self.streams.interpreter.release();
    }
}

impl Drop for ExchangeNumber {
    fn drop(&mut self) {
        // An exchange whose answer is complete is finished: the engine drops its handle.
        self.kept.give_back();
    }
}

impl Exchange {
    /// Makes the exchange of a request. The error is the outcome of a request that the application fails.
    fn new<Memo>(request: &mut Request<'_, Memo>) -> Result<Exchange, Outcome<ExchangeNumber>> {
        let (mut line, path) = line_and_path(&request.parts);
        let is_streamed = request.request_stream.is_some();
        line.extend(bytes_of(std::mem::take(&mut request.body)));
        let mut exchange = Exchange {
            id: request.id,
            gate: None,
            is_echo: false,
            status: None,
            parts: Box::new(std::iter::empty()),
            unsent: Vec::new(),
            fails: false,
        };
        if let Some(RequestStream::Messages(_)) = request.request_stream {
            return Ok(exchange);
        }
        let page = Page::of(&path);
        exchange.status = Some(if page == Page::NotFound { b"404 Not Found" } else { b"200 OK" });
        match page {
            Page::Fail { leaves } => return Err(if leaves { Outcome::FailedFatally } else { Outcome::Failed }),
            Page::Slow { gate, .. } => (exchange.gate, exchange.is_echo, exchange.unsent) = (Some(gate), is_streamed, line),
            Page::Stream { parts, bytes, fails } => {
                exchange.parts = Box::new((0..parts).map(move |number| part(number, bytes)));
                exchange.fails = fails;
            }
            Page::Fields => exchange.unsent = lines_of(request),
            Page::Variables => exchange.unsent = Table::of(request).lines(),
            Page::Echo | Page::Short | Page::Long => (exchange.is_echo, exchange.unsent) = (is_streamed, line),
            Page::NotFound => exchange.unsent = b"nothing is here\n".to_vec(),
        }
        Ok(exchange)
    }

    /// Like [`Exchange::advance`], from outside of the call: its result becomes an answer here.
    fn finish_or_wait(&mut self, answer: &mut Answer<'_>, stream: Option<&mut RequestStream>) -> Step {
        let step = self.advance(answer, stream);
        match step {
            Step::Waits => {}
            Step::Complete => {
                answer.finish(Then::RequestEnds);
            }
            Step::Failed => answer.fail(Failure::Status(500)),
        }
        step
    }

    /// Continues as far as the client permits.
    fn advance(&mut self, answer: &mut Answer<'_>, mut stream: Option<&mut RequestStream>) -> Step {
        let is_held = self.gate.is_some();
        // If the client has disconnected before its body was complete, the request may be refused: a begun answer would prevent
        // that.
        let is_fresh = self.status.is_some();
        let waits_in_vain =
            |body: &mut BodyStream| body.is_gone && (is_held || !body.has_part() || is_fresh && !body.is_complete());
        if (is_held || self.is_echo) && stream.as_mut().and_then(|stream| stream.body()).is_some_and(waits_in_vain) {
            // The client has disconnected, and an application that is told so has nothing to wait for.
            return Step::Failed;
        }
        if self.gate.is_some() {
            return Step::Waits;
        }
        let mut body = match stream {
            Some(RequestStream::Messages(websocket)) => {
                while !websocket.is_behind(answer)
                    && let Some(message) = websocket.take()
                {
                    websocket.say(message.kind, &message.payload, answer);
                }
                return Step::Waits;
            }
            Some(RequestStream::Body(body)) => Some(body),
            None => None,
        };
        if self.status.is_some() && self.is_echo && !self.take_body(body.as_deref_mut(), answer) {
            return Step::Waits;
        }
        if let Some(status) = self.status.take() {
            begin(answer, status, None);
        }
        loop {
            if !self.unsent.is_empty() {
                match answer.push(&self.unsent, When::Now) {
                    Pushed::All => self.unsent.clear(),
                    Pushed::Part(taken) => drop(self.unsent.drain(..taken)),
                    Pushed::Gone => return Step::Waits,
                }
                if !self.unsent.is_empty() || answer.turn_is_over() {
                    return Step::Waits;
                }
            }
            if let Some(part) = self.parts.next() {
                self.unsent = part;
                continue;
            }
            if !self.is_echo {
                return if self.fails { Step::Failed } else { Step::Complete };
            }
            if !self.take_body(body.as_deref_mut(), answer) {
                return Step::Waits;
            }
        }
    }

    /// Takes the part of the body that has arrived. False: nothing has.
    fn take_body(&mut self, body: Option<&mut BodyStream>, answer: &mut Answer<'_>) -> bool {
        let Some(body) = body else { return false };
        body.is_wanted = false;
        if let Some(part) = body.take() {
            self.unsent.extend_from_slice(&part.bytes);
            self.is_echo = part.more;
            return true;
        }
        body.is_wanted = true;
        if body.owes_continue && answer.stage() < Stage::Body {
            body.owes_continue = false;
            let _always_may = answer.inform(Interim::Continue);
        }
        false
    }
}
