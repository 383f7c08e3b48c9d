//! The application that is called: one request at a time on a thread, its body collected before the call, its answer suspended
//! while the client is slow. It does all that an adapter for an interpreter has to do, and nothing else. It does not know
//! sockets. The threads of a test worker run it.

use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

use bolide_engine::answer::{Answer, Field, Pushed, ServerFields, Status, When};
use bolide_engine::app::{App, Language, Outcome, SignalOutcome};
use bolide_engine::request::{Body, HeaderMemory, LogFacts, Request, RequestParts};

use crate::gates::Gates;
use crate::interpreter::{Interpreter, Kept};
use crate::pages::{Page, part};
use crate::variables::Table;

pub struct TestLanguage {
    pub interpreter: &'static Interpreter,
    pub gates: Arc<dyn Gates>,
}

/// One thread of the language. It holds the language from its creation to its end, except during [`App::release`].
pub struct TestApp {
    interpreter: &'static Interpreter,
    gates: Arc<dyn Gates>,
}

/// A header block as the application sees it.
pub struct Fields {
    block: Block,
    interpreter: &'static Interpreter,
}

/// Its fields, one a line, and its variables.
#[derive(Clone)]
struct Block {
    fields: Vec<u8>,
    variables: Table,
    facts: LogFacts,
}

/// The body of an answer in progress.
struct Sending {
    parts: Box<dyn Iterator<Item = Vec<u8>> + Send>,
    /// The next part, and the number of its bytes that were taken.
    part: Option<(Vec<u8>, usize)>,
    fails: bool,
}

/// The same, while the engine keeps it.
pub struct SuspendedSending {
    sending: Sending,
    kept: Kept,
}

impl TestLanguage {
    /// Makes a language that lives as long as the process, as the engine requires.
    pub fn new(gates: Arc<dyn Gates>) -> &'static TestLanguage {
        Box::leak(Box::new(TestLanguage { interpreter: Box::leak(Box::default()), gates }))
    }
}

impl Language for TestLanguage {
    type App = TestApp;

    fn enter(&self, _thread: u32) -> Result<TestApp, String> {
        self.interpreter.acquire();
        Ok(TestApp { interpreter: self.interpreter, gates: self.gates.clone() })
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        std::thread::Builder::new().name(name).spawn(body).map(drop).map_err(|error| error.to_string())
    }
}

impl App for TestApp {
    type Memo = Fields;
    type Pending = SuspendedSending;

    fn call(&mut self, request: &mut Request<'_, Fields>, answer: &mut Answer<'_>) -> Outcome<SuspendedSending> {
        let block = self.block(request);
        let (line, path) = line_and_path(&request.parts);
        self.interpreter.note_call(&line);
        let page = Page::of(&path);
        let mut body = line;
        match &page {
            Page::Fail { leaves: true } => return Outcome::FailedFatally,
            Page::Fail { leaves: false } => return Outcome::Failed,
            Page::Stream { parts, bytes, fails } => {
                let (parts, bytes) = (*parts, *bytes);
                begin(answer, b"200 OK", None);
                let parts = Box::new((0..parts).map(move |number| part(number, bytes)));
                return self.send(Sending { parts, part: None, fails: *fails }, answer);
            }
            Page::Slow { gate, keeps_language } => self.pass(gate, *keeps_language),
            Page::Fields => body = block.fields,
            Page::Variables => {
                let mut variables = block.variables;
                request.set_variables(&mut variables, block.facts);
                body = variables.lines();
            }
            Page::NotFound => body = b"nothing is here\n".to_vec(),
            Page::Echo | Page::Short | Page::Long => {}
        }
        body.extend(bytes_of(std::mem::take(&mut request.body)));
        let length = match page {
            Page::Short => body.len() + 1,
            Page::Long => body.len() - 1,
            _ => body.len(),
        };
        begin(answer, if page == Page::NotFound { b"404 Not Found" } else { b"200 OK" }, Some(length));
        self.send(Sending { parts: Box::new(std::iter::once(body)), part: None, fails: false }, answer)
    }

    fn resume(&mut self, mut pending: SuspendedSending, answer: &mut Answer<'_>) -> Outcome<SuspendedSending> {
        pending.kept.give_back();
        self.send(pending.sending, answer)
    }

    fn abandon(&mut self, mut pending: SuspendedSending) {
        pending.kept.give_back();
    }

    fn release(&mut self) {
        self.interpreter.release();
    }

    fn acquire(&mut self) {
        self.interpreter.acquire();
    }

    fn signal(&mut self, number: u8) -> SignalOutcome {
        self.interpreter.note_call(format!("SIGNAL {number}\n").as_bytes());
        SignalOutcome::Handled
    }

    fn interrupted(&mut self) -> ControlFlow<()> {
        self.interpreter.check();
        ControlFlow::Continue(())
    }
}

impl TestApp {
    fn pass(&mut self, gate: &str, keeps_language: bool) {
        if keeps_language {
            return self.gates.pass(gate);
        }
        self.interpreter.release();
        self.gates.pass(gate);
        self.interpreter.acquire();
    }

    /// Returns the request's header block: from the memo if the same bytes came before.
    fn block(&mut self, request: &mut Request<'_, Fields>) -> Block {
        if let Some(HeaderMemory::Same(fields)) = request.parts.memory() {
            return fields.block.clone();
        }
        let mut variables = Table::of_listener();
        let facts = request.set_connection_variables(&mut variables);
        let block = Block { fields: lines_of(request), variables, facts };
        if let Some(HeaderMemory::Fill(memory)) = request.parts.memory() {
            **memory = Some(Fields { block: block.clone(), interpreter: self.interpreter });
        }
        block
    }

    /// Passes as much of the body to the response as the client takes.
    fn send(&mut self, mut sending: Sending, answer: &mut Answer<'_>) -> Outcome<SuspendedSending> {
        self.interpreter.check();
        while let Some((part, taken)) = sending.part.take().or_else(|| sending.parts.next().map(|part| (part, 0))) {
            match answer.push(&part[taken..], When::Now) {
                Pushed::All if !answer.turn_is_over() => continue,
                Pushed::All => {}
                Pushed::Part(further) => sending.part = Some((part, taken + further)),
                Pushed::Gone => return Outcome::Finished,
            }
            return Outcome::Suspended(SuspendedSending { sending, kept: Kept::new(self.interpreter) });
        }
        if sending.fails { Outcome::Failed } else { Outcome::Finished }
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        self.interpreter.release();
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        self.interpreter.check();
    }
}

/// The first line of most answers, and the path that selects an answer.
pub fn line_and_path<Memo>(parts: &RequestParts<'_, Memo>) -> (Vec<u8>, Vec<u8>) {
    ([&parts.line()[..], b"\n"].concat(), parts.path().to_vec())
}

pub fn lines_of<Memo>(request: &Request<'_, Memo>) -> Vec<u8> {
    let mut lines = Vec::new();
    request.each_field(|name, value| lines.extend([name, b"=", value, b"\n"].concat()));
    lines
}

/// Begins an answer.
pub fn begin(answer: &mut Answer<'_>, status: &[u8], length: Option<usize>) {
    let length = length.map(|length| length.to_string());
    let fields = [("Content-Type", Some("text/plain")), ("Content-Length", length.as_deref())];
    assert_eq!(answer.begin(Status::Line(status)), Ok(()), "the answer refuses a status that is right");
    for (name, value) in fields.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let set = answer.field(name.as_bytes(), value.as_bytes(), ServerFields::Refused);
        assert_eq!(set, Ok(Field::Set), "the answer refuses a field that is right");
    }
}

pub fn bytes_of(body: Body) -> Vec<u8> {
    match body {
        Body::Empty => Vec::new(),
        Body::Memory(bytes) => bytes,
        Body::File { mut file, length } => {
            let mut bytes = Vec::new();
            let read = file.read_to_end(&mut bytes).map(|count| count as u64);
            assert!(read.is_ok_and(|count| count == length), "the length of a body's file differs from the announced one");
            bytes
        }
    }
}
