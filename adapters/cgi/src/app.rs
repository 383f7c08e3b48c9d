//! CGI as the engine calls it. It does not know programs or pipes: [`crate::state`] does. The thread of a worker runs it.

use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bolide_engine::answer::Answer;
use bolide_engine::app::{App, Cancelled, Language, Outcome, SignalOutcome};
use bolide_engine::request::Request;
use bolide_engine::request_stream::RequestStream;

use crate::run::RunNumber;
use crate::state::State;

/// The language of programs. A worker's process has one.
#[derive(Clone, Copy)]
pub struct CgiLanguage {
    state: &'static Mutex<State>,
}

/// CGI in the thread of a worker.
pub struct CgiApp {
    language: CgiLanguage,
}

impl CgiLanguage {
    /// It lives as long as the process, as the engine requires.
    pub fn lasting(state: State) -> &'static CgiLanguage {
        Box::leak(Box::new(CgiLanguage { state: Box::leak(Box::new(Mutex::new(state))) }))
    }

    /// Only one thread asks for it. It must not hold it while it calls the engine.
    pub fn lock(&self) -> MutexGuard<'static, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Language for CgiLanguage {
    type App = CgiApp;

    fn enter(&self, _thread: u32) -> Result<CgiApp, String> {
        Ok(CgiApp { language: *self })
    }

    fn spawn(&self, _name: String, _body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        Err("a worker of CGI has one thread".to_owned())
    }
}

impl App for CgiApp {
    /// Variables are made for each request, because starting a program costs much more.
    type Memo = ();
    type Pending = RunNumber;
    const STREAMS_BODY: bool = true;
    const KEEPS_EXCHANGES: bool = true;

    fn call(&mut self, request: &mut Request<'_, ()>, answer: &mut Answer<'_>) -> Outcome<RunNumber> {
        self.language.lock().begin(request, answer)
    }

    fn resume(&mut self, pending: RunNumber, _answer: &mut Answer<'_>) -> Outcome<RunNumber> {
        // Ongoing exchanges get events; they are never suspended.
        Outcome::Ongoing(pending)
    }

    fn abandon(&mut self, pending: RunNumber) {
        self.language.lock().leave(pending.0);
    }

    fn client_event(&mut self, pending: &mut RunNumber, answer: &mut Answer<'_>, request_stream: &mut RequestStream) {
        self.language.lock().client_event(pending.0, answer, request_stream.body());
    }

    fn cancels(&self, _pending: &RunNumber) -> Option<Cancelled> {
        Some(Cancelled::Running)
    }

    fn overdue(&mut self, pending: RunNumber, milliseconds: u64) {
        self.language.lock().end_overdue(pending.0, milliseconds);
    }

    fn release(&mut self) {}

    fn acquire(&mut self) {}

    fn signal(&mut self, _number: u8) -> SignalOutcome {
        // No program registers for uWSGI's signals.
        SignalOutcome::Handled
    }

    fn interrupted(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
