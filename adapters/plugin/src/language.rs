//! A language as the engine calls it: the table of its adapter, and in each thread what the adapter has made for it. An adapter
//! is called in threads, or it has an event loop in which the worker is a guest.
//!
//! It knows neither a language nor the protocol of a request. Worker threads run it.

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use bolide_abi::{BOLIDE_FAILED, BOLIDE_FAILED_FATALLY, BOLIDE_FINISHED, BOLIDE_ONGOING, BOLIDE_SUSPENDED, bolide_pair};
use bolide_engine::answer::{Answer, Stage};
use bolide_engine::app::{App, Language, Outcome, SignalOutcome};
use bolide_engine::mounts::Mounts;
use bolide_engine::request::variables::{OwnVariable, Variables};
use bolide_engine::request::{Body, HeaderMemory, Request};
use bolide_engine::request_stream::RequestStream;

use crate::lent::{AnswerTerms, Held, LentRequest, Places, lend_answer, lend_stream, pointer_of};
use crate::library::Adapter;
use crate::reasons;
use crate::variables::{BlockMemory, Table};

/// What the log calls an answer whose request is over.
pub const STREAMED: &str = "an answer that was being streamed";

/// A language with its applications loaded, in one worker. It lives as long as the process.
pub struct PluginLanguage {
    pub adapter: Adapter,
    pub mounts: Mounts,
    /// The variables that all requests of a listener have, for each.
    pub listeners: Vec<Table>,
    pub terms: AnswerTerms,
    /// What the adapter has made for thread 0, if that has called the application before; null otherwise.
    pub first: AtomicPtr<c_void>,
}

impl PluginLanguage {
    /// Thread 0 goes on with this when it serves.
    pub fn keep_first(&self, thread: *mut c_void) {
        self.first.store(thread, Relaxed);
    }
}

/// The same language with an event loop of its own.
pub struct LoopLanguage(pub &'static PluginLanguage);

/// The language in one thread. With `IN_LOOP` the adapter may keep an exchange, and gets its body as it arrives.
pub struct PluginThread<const IN_LOOP: bool> {
    language: &'static PluginLanguage,
    held: Held,
    places: Places,
    table: Table,
    pairs: Vec<bolide_pair>,
    fields: Vec<bolide_pair>,
}

/// A suspended answer, with the body of its request, which the adapter may still read. Or an exchange that the adapter keeps.
pub struct PendingAnswer {
    pending: *mut c_void,
    body: Body,
    /// Who keeps the exchange. It is given back exactly once, whether its answer is complete or not.
    keeper: Option<(&'static PluginLanguage, *mut c_void)>,
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if let Some((language, thread)) = self.keeper.take()
            && let Some(abandon) = language.adapter.table.abandon
        {
            // SAFETY: the adapter's function, in the one thread of its loop, with what it keeps.
            unsafe { abandon(thread, self.pending) };
        }
    }
}

// SAFETY: the adapter promises that another thread may continue an answer (bolide_app.h, `resume`).
unsafe impl Send for PendingAnswer {}

impl Language for PluginLanguage {
    type App = PluginThread<false>;

    fn enter(&self, thread: u32) -> Result<PluginThread<false>, String> {
        // SAFETY: the engine asks for a `&'static` language, and this one is: it is never freed (see prototype.rs).
        PluginThread::enter(unsafe { &*std::ptr::from_ref(self) }, thread)
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        let Some(spawn) = self.adapter.table.spawn else {
            return std::thread::Builder::new().name(name).spawn(body).map(drop).map_err(|error| error.to_string());
        };
        let argument = Box::into_raw(Box::new(body)).cast();
        // SAFETY: the adapter's function. It calls the body once, or fails without calling it.
        match unsafe { spawn(run_body, argument) } {
            0 => Ok(()),
            _ => {
                // SAFETY: the body was not called, so the box is still ours.
                drop(unsafe { Box::from_raw(argument.cast::<Box<dyn FnOnce() + Send + 'static>>()) });
                Err(reasons::take())
            }
        }
    }
}

impl Language for LoopLanguage {
    type App = PluginThread<true>;

    fn enter(&self, thread: u32) -> Result<PluginThread<true>, String> {
        PluginThread::enter(self.0, thread)
    }

    fn spawn(&self, _name: String, _body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        Err("an event loop has only one thread".to_owned())
    }
}

unsafe extern "C" fn run_body(argument: *mut c_void) {
    // SAFETY: `spawn` has made the box for one call.
    let body = unsafe { Box::from_raw(argument.cast::<Box<dyn FnOnce() + Send + 'static>>()) };
    body();
}

impl<const IN_LOOP: bool> PluginThread<IN_LOOP> {
    fn enter(language: &'static PluginLanguage, thread: u32) -> Result<PluginThread<IN_LOOP>, String> {
        let adapter = language.adapter;
        let before = if thread == 0 { language.first.swap(null_mut(), Relaxed) } else { null_mut() };
        let own = match adapter.table.enter {
            None => null_mut(),
            Some(_) if !before.is_null() => before,
            Some(enter) => {
                // SAFETY: the adapter's function, in the thread that it is for.
                let own = unsafe { enter(thread) };
                if own.is_null() {
                    return Err(format!("thread {thread} can't run {}: {}", adapter.language(), reasons::take()));
                }
                own
            }
        };
        let held = Held { adapter, thread: own };
        let places = Places::of_new_thread();
        Held::set(Some(held));
        Ok(PluginThread { language, held, places, table: Table::new(), pairs: Vec::new(), fields: Vec::new() })
    }

    /// Stops calling the application until the thread serves, without a word to the adapter. Returns what it has made.
    pub fn leave_to_next(self) -> *mut c_void {
        let thread = self.held.thread;
        let mut kept = std::mem::ManuallyDrop::new(self);
        (kept.table, kept.pairs, kept.fields) = (Table::new(), Vec::new(), Vec::new());
        Held::set(None);
        thread
    }

    /// Makes the variables of a request, as far as they do not depend on its application.
    fn make_variables(&mut self, request: &mut Request<'_, BlockMemory>) {
        let facts = match request.parts.memory() {
            Some(HeaderMemory::Same(block)) => {
                self.table.copy(&block.table);
                block.facts
            }
            _ => {
                if let Some(of_listener) = self.language.listeners.get(request.listener).or(self.language.listeners.first()) {
                    self.table.copy(of_listener);
                }
                let facts = request.set_connection_variables(&mut self.table);
                self.table.name_server();
                if let Some(HeaderMemory::Fill(memory)) = request.parts.memory() {
                    **memory = Some(BlockMemory { table: self.table.clone(), facts });
                }
                facts
            }
        };
        request.set_variables(&mut self.table, facts);
        // The host of the request line, or of a trusted reverse proxy, has replaced that of the header block.
        if !request.authority().is_empty() && request.parts.variable(b"SERVER_NAME").is_none() {
            self.table.name_server();
        }
    }

    /// Chooses the application, and moves its mount point from the path to SCRIPT_NAME.
    fn choose(&mut self, request: &Request<'_, BlockMemory>) -> Result<u32, String> {
        let mounts = &self.language.mounts;
        if mounts.is_by_host() {
            let text = |name: &[u8]| String::from_utf8_lossy(self.table.get(name).unwrap_or_default()).into_owned();
            let id = format!("{}|{}", text(b"HTTP_HOST"), text(b"SCRIPT_NAME"));
            return mounts.of_id(id.as_bytes()).map(|number| number as u32);
        }
        let choice = mounts.choose(&request.parts)?;
        let kept = request.forwarded.and_then(|forwarded| forwarded.below(request.parts.path()));
        if let Some((mount, path)) = kept.or(choice.below) {
            let script_name = [request.script_name, mount].concat();
            self.table.set(OwnVariable::ScriptName, &script_name);
            self.table.set(OwnVariable::PathInfo, path);
        }
        Ok(choice.number as u32)
    }

    /// Turns what the adapter has returned into an outcome for the engine.
    fn conclude(
        &self,
        outcome: u32,
        mut own: PendingAnswer,
        answer: &mut Answer<'_>,
        describe: &dyn Fn() -> String,
    ) -> Outcome<PendingAnswer> {
        let has_pending = !own.pending.is_null();
        if outcome == BOLIDE_FINISHED && answer.was_sent_in_call() {
            self.held.aside(|| answer.finish_in_call(self.language.terms.write_timeout));
        }
        let language = || self.held.adapter.language();
        match outcome {
            BOLIDE_FINISHED => {
                if answer.stage() == Stage::Fresh && !answer.is_taken_over() && !answer.client_is_gone() {
                    bolide_log::line(&format!(
                        "{}: the application did not answer ({}); answered with 500",
                        describe(),
                        language()
                    ));
                    return Outcome::Failed;
                }
                Outcome::Finished
            }
            BOLIDE_ONGOING if IN_LOOP && has_pending => {
                own.keeper = Some((self.language, self.held.thread));
                Outcome::Ongoing(own)
            }
            BOLIDE_SUSPENDED if has_pending && self.held.adapter.table.resume.is_some() => Outcome::Suspended(own),
            BOLIDE_FAILED if has_pending => Outcome::FailedOpen { pending: own, is_fatal: false },
            BOLIDE_FAILED_FATALLY if has_pending => Outcome::FailedOpen { pending: own, is_fatal: true },
            BOLIDE_FAILED => Outcome::Failed,
            BOLIDE_FAILED_FATALLY => Outcome::FailedFatally,
            BOLIDE_SUSPENDED => {
                self.log_bug(describe, "suspended its answer without `resume`, or without anything to continue");
                Outcome::Failed
            }
            strange => {
                self.log_bug(describe, &format!("returned the outcome {strange}, which does not exist"));
                Outcome::Failed
            }
        }
    }

    fn log_bug(&self, describe: &dyn Fn() -> String, what: &str) {
        let language = self.held.adapter.language();
        bolide_log::line(&format!("{}: the plugin of {language} {what}: a bug of the plugin", describe()));
    }
}

impl<const IN_LOOP: bool> App for PluginThread<IN_LOOP> {
    type Memo = BlockMemory;
    type Pending = PendingAnswer;
    const STREAMS_BODY: bool = IN_LOOP;
    const KEEPS_EXCHANGES: bool = IN_LOOP;

    fn call(&mut self, request: &mut Request<'_, BlockMemory>, answer: &mut Answer<'_>) -> Outcome<PendingAnswer> {
        self.make_variables(request);
        let application = match self.choose(request) {
            Ok(application) => application,
            Err(problem) => {
                bolide_log::line(&format!("{}: {problem}", describe(request)));
                return Outcome::Failed;
            }
        };
        request.log_facts.application = application;
        let body = std::mem::take(&mut request.body);
        let Some(call) = self.held.adapter.table.call else { return Outcome::FailedFatally };
        let (held, places) = (self.held, self.places);
        let slot = Some(request.slot);
        let mut pending = null_mut();
        let id = request.id;
        let mut stream = request.request_stream.take();
        let outcome = {
            let mut lent = LentRequest {
                request,
                exchange: id,
                has_stream: stream.is_some(),
                body: &body,
                application,
                table: &mut self.table,
                pairs: &mut self.pairs,
                fields: &mut self.fields,
                has_variables: false,
                has_fields: false,
            };
            let run = || {
                lend_answer(&self.language.terms, held, slot, answer, |lent_answer| {
                    // SAFETY: the adapter's function, in its thread, with what is lent for the time of the call.
                    unsafe { call(held.thread, pointer_of(places.request), lent_answer, &raw mut pending) }
                })
            };
            let run = || lend_stream(places, stream.as_deref_mut(), run);
            // SAFETY: the request lives during the call, and only the functions of the table use it.
            unsafe { places.request.lend((&raw mut lent).cast(), run) }
        };
        request.request_stream = stream;
        self.conclude(outcome, PendingAnswer { pending, body, keeper: None }, answer, &|| describe(request))
    }

    fn resume(&mut self, mut own: PendingAnswer, answer: &mut Answer<'_>) -> Outcome<PendingAnswer> {
        let Some(resume) = self.held.adapter.table.resume else { return Outcome::Failed };
        let held = self.held;
        let pending = &raw mut own.pending;
        let outcome = lend_answer(&self.language.terms, held, None, answer, |lent_answer| {
            // SAFETY: the adapter's function, in its thread, with what it has suspended.
            unsafe { resume(held.thread, lent_answer, pending) }
        });
        self.conclude(outcome, own, answer, &|| STREAMED.to_owned())
    }

    fn abandon(&mut self, mut own: PendingAnswer) {
        if own.keeper.is_none()
            && let Some(abandon) = self.held.adapter.table.abandon
        {
            // SAFETY: the adapter's function, in its thread, with what it has suspended.
            unsafe { abandon(self.held.thread, own.pending) };
        }
        // The adapter may have read it until now.
        drop(std::mem::take(&mut own.body));
    }

    fn client_event(&mut self, own: &mut PendingAnswer, answer: &mut Answer<'_>, stream: &mut RequestStream) {
        let (held, places) = (self.held, self.places);
        let Some(client_event) = held.adapter.table.client_event else { return };
        let pending = own.pending;
        lend_stream(places, Some(stream), || {
            lend_answer(&self.language.terms, held, None, answer, |lent_answer| {
                // SAFETY: the adapter's function, in its thread, with what it keeps.
                unsafe { client_event(held.thread, lent_answer, pointer_of(places.stream), pending) };
                BOLIDE_ONGOING
            })
        });
    }

    fn overdue(&mut self, own: PendingAnswer, milliseconds: u64) {
        if let Some(overdue) = self.held.adapter.table.overdue {
            // SAFETY: the adapter's function, in its thread, with what it keeps.
            unsafe { overdue(self.held.thread, own.pending, milliseconds) };
        }
        self.abandon(own);
    }

    fn release(&mut self) {
        self.held.release();
    }

    fn acquire(&mut self) {
        self.held.acquire();
    }

    fn signal(&mut self, number: u8) -> SignalOutcome {
        let Some(signal) = self.held.adapter.table.signal else {
            bolide_log::line(&format!("signal {number}: {} does not handle signals", self.held.adapter.language()));
            return SignalOutcome::Failed;
        };
        // SAFETY: the adapter's function, in its thread.
        match unsafe { signal(self.held.thread, number) } {
            0 => SignalOutcome::Handled,
            _ => {
                bolide_log::line(&format!("signal {number}: {}", reasons::take()));
                SignalOutcome::Failed
            }
        }
    }

    fn interrupted(&mut self) -> ControlFlow<()> {
        let Some(interrupted) = self.held.adapter.table.interrupted else { return ControlFlow::Continue(()) };
        // SAFETY: the adapter's function, in its thread.
        match unsafe { interrupted(self.held.thread) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}

impl<const IN_LOOP: bool> Drop for PluginThread<IN_LOOP> {
    fn drop(&mut self) {
        Held::set(None);
        if let Some(leave) = self.held.adapter.table.leave {
            // SAFETY: the adapter's function, in its thread.
            unsafe { leave(self.held.thread) };
        }
    }
}

/// Has the thread's adapter show where it is. It is called from a signal handler.
pub extern "C" fn show_stack() {
    let Some(held) = Held::of_thread() else { return };
    if let Some(show_stack) = held.adapter.table.show_stack {
        // SAFETY: the adapter's function, which does only what a signal handler may (bolide_app.h).
        unsafe { show_stack(held.thread) };
    }
}

/// A request for the log: its line and its identifier.
pub fn describe<Memo>(request: &Request<'_, Memo>) -> String {
    let line = String::from_utf8_lossy(&request.parts.line()).into_owned();
    match &request.identity {
        Some(identity) => format!("{line} (request {})", &*identity.id),
        None => line,
    }
}
