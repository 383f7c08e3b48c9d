//! WSGI (PEP 3333): calls the application and passes the iterable that it returns to the answer.
//!
//! There is one [`Wsgi`] for the worker and one [`WsgiThread`] for each of its threads. All of it runs on the thread that read
//! the request, which holds the interpreter.

pub mod calls;
pub mod iterable;
pub mod sending;

use std::ops::ControlFlow;
use std::ptr::null_mut;

use bolide_engine::answer::{Answer, Stage};
use bolide_engine::app::{App, Language, Outcome};
use bolide_engine::forks::leave_if_child;
use bolide_engine::request::Request;
use bolide_engine::sampling::Sampler;
use pyo3::ffi;

use crate::call::context::Wsgi;
use crate::call::current::forget_current;
use crate::contexts::Contexts;
use crate::environ::EnvironMemo;
use crate::exceptions::clear_client_disconnected;
use crate::faults::{FaultPlace, described, failed, log_message, log_set_exception};
use crate::native::without_interpreter;
use crate::object::Object;
use crate::sampling::{Kept, PythonSampler};
use crate::services::inboxes;
use crate::start_response::StartResponse;
use crate::threads;
use crate::wsgi::iterable::Iterable;
use calls::{Calls, PreparedCall};
use sending::{SendProgress, Sender};

/// An answer that is suspended because its client is slow.
pub struct SuspendedAnswer {
    iterable: Iterable,
    /// The chunk that was not taken completely, and the number of bytes that were taken.
    chunk: Option<(Object, usize)>,
    /// The application may still call it, from its generator, so it stays with this answer.
    start: StartResponse,
    /// Its context variables.
    context: Option<Object>,
}

pub struct WsgiThread {
    wsgi: &'static Wsgi,
    calls: Calls,
    sender: Sender,
    start: Option<StartResponse>,
    core: Option<Object>,
    contexts: Contexts,
    saved: *mut ffi::PyThreadState,
}

impl Language for Wsgi {
    type App = WsgiThread;

    fn enter(&self, thread: u32) -> Result<WsgiThread, String> {
        let core = if thread == 0 { None } else { integer(thread) };
        // SAFETY: the engine asks for a `&'static` language, and this one is: `Wsgi` is never freed (see worker.rs).
        let wsgi: &'static Wsgi = unsafe { &*std::ptr::from_ref(self) };
        let calls = Calls::new(wsgi)?;
        let sender = Sender::new(wsgi, calls.close_name());
        let contexts = Contexts::enter().ok_or("out of memory")?;
        Ok(WsgiThread { wsgi, calls, sender, start: None, core, contexts, saved: null_mut() })
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        threads::spawn(name, body)
    }

    fn note_leaving(&self) {
        inboxes::note_leaving();
    }

    fn sampler(&self) -> Option<Box<dyn Sampler>> {
        Some(Box::new(PythonSampler::new(Kept::Nothing)))
    }
}

fn integer(number: u32) -> Option<Object> {
    // SAFETY: the result is new.
    unsafe { Object::owned(ffi::PyLong_FromUnsignedLongLong(number.into())) }
}

impl App for WsgiThread {
    type Memo = EnvironMemo;
    type Pending = SuspendedAnswer;

    fn call(&mut self, request: &mut Request<'_, EnvironMemo>, answer: &mut Answer<'_>) -> Outcome<SuspendedAnswer> {
        let outcome = self.serve(request, answer);
        outcome.unwrap_or_else(|| failed(&self.wsgi.fault_log, &described(request)))
    }

    fn resume(&mut self, pending: SuspendedAnswer, answer: &mut Answer<'_>) -> Outcome<SuspendedAnswer> {
        let SuspendedAnswer { mut iterable, chunk, start, context } = pending;
        self.contexts.resume(context);
        start.make_current();
        // SAFETY: the engine lends us the answer for this call, and it is disarmed below.
        unsafe { start.arm(answer, true) };
        let mut sent = self.sender.send(&mut iterable, chunk, answer);
        if matches!(sent, Some(SendProgress::All)) {
            sent = Some(self.sender.complete(&mut iterable, answer));
        }
        start.disarm();
        let outcome = self.conclude(sent, iterable, start, answer, &|| FaultPlace::other("an answer that was being streamed"));
        match &self.start {
            Some(start) => start.make_current(),
            None => forget_current(),
        }
        self.contexts.rest();
        outcome
    }

    fn observes_ends(&self) -> bool {
        self.wsgi.after_request.is_some()
    }

    fn exchange_has_ended(&mut self, answer: &mut Answer<'_>) {
        let Some(hook) = &self.wsgi.after_request else { return };
        let start = self.start.take().or_else(|| StartResponse::new(&self.wsgi.rules));
        if let Some(start) = &start {
            start.make_current();
            // SAFETY: the engine lends us the answer for this call, and it is disarmed by `keep`.
            unsafe { start.arm_ended(answer) };
        }
        // SAFETY: the callable lives as long as the worker; the result is dropped.
        if start.is_none() || unsafe { Object::owned(ffi::PyObject_CallNoArgs(hook.as_ptr())) }.is_none() {
            log_set_exception(&self.wsgi.fault_log, "uwsgi.after_req_hook");
        }
        leave_if_child();
        if let Some(start) = start {
            self.keep(start);
        }
    }

    fn abandon(&mut self, pending: SuspendedAnswer) {
        self.contexts.resume(pending.context);
        self.sender.close(&pending.iterable);
        pending.start.end_offer();
        self.contexts.rest();
    }

    fn release(&mut self) {
        // SAFETY: this thread holds the interpreter; `acquire` restores it.
        self.saved = unsafe { ffi::PyEval_SaveThread() };
    }

    fn acquire(&mut self) {
        // SAFETY: `saved` is the value that `release` got on this thread.
        unsafe { ffi::PyEval_RestoreThread(self.saved) };
        self.saved = null_mut();
    }

    crate::call::of_the_process!();

    fn interrupted(&mut self) -> ControlFlow<()> {
        // SAFETY: the thread holds the interpreter. Only the main thread runs handlers; elsewhere this does nothing.
        if unsafe { ffi::PyErr_CheckSignals() } == 0 {
            return ControlFlow::Continue(());
        }
        match failed::<()>(&self.wsgi.fault_log, &FaultPlace::other("a signal handler")) {
            Outcome::FailedFatally => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl WsgiThread {
    /// `None`: an exception is set.
    fn serve(&mut self, request: &mut Request<'_, EnvironMemo>, answer: &mut Answer<'_>) -> Option<Outcome<SuspendedAnswer>> {
        let start = match self.start.take() {
            Some(start) => start,
            None => {
                let made = StartResponse::new(&self.wsgi.rules)?;
                made.make_current();
                made
            }
        };
        let PreparedCall { callable, environ, is_rare } = self.calls.prepare(request, &start, self.core.as_ref())?;
        if is_rare {
            start.note_slot(request.slot);
        }
        // SAFETY: the engine lends us the answer for this call; it is disarmed before the call returns.
        unsafe { start.arm(answer, false) };
        let arguments = [environ.as_ptr(), start.callable.as_ptr()];
        // SAFETY: the callable and both arguments live through the call.
        let result = unsafe { Object::owned(ffi::PyObject_Vectorcall(callable, arguments.as_ptr(), 2, null_mut())) };
        leave_if_child();
        start.call_has_returned();
        if is_rare {
            start.end_websocket();
        }
        let Some(result) = result else {
            drop(environ);
            self.keep(start);
            return self.forgive(answer).then_some(Outcome::Finished);
        };
        let was_sent_in_call = answer.was_sent_in_call();
        let mut iterable = Iterable::new(result);
        let mut sent = self.sender.send(&mut iterable, None, answer);
        if matches!(sent, Some(SendProgress::All)) {
            if was_sent_in_call {
                let timeout = self.wsgi.rules.write_timeout;
                without_interpreter(|| answer.finish_in_call(timeout));
            }
            sent = Some(self.sender.complete(&mut iterable, answer));
        }
        start.disarm();
        // Objects that are freed with it, such as the file of a large body, are freed after the answer.
        drop(environ);
        Some(self.conclude(sent, iterable, start, answer, &|| described(request)))
    }

    /// An application that has taken over its connection ends with an exception that tells other servers not to send an answer
    /// (gunicorn: StopIteration, Werkzeug: ConnectionError), and one whose client has left with that of `write`. True: it was one
    /// of them, which is now cleared.
    fn forgive(&self, answer: &Answer<'_>) -> bool {
        if clear_client_disconnected() {
            return true;
        }
        // SAFETY: the thread holds the interpreter, and an exception is set; the types live as long as it does.
        unsafe {
            let is_usual = ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) != 0
                || ffi::PyErr_ExceptionMatches(ffi::PyExc_ConnectionError) != 0;
            if !is_usual || !answer.is_taken_over() {
                return false;
            }
            ffi::PyErr_Clear();
        }
        true
    }

    /// Handles the end of sending: the answer is complete, or it waits for the client. `sent` is `None` if an exception is set.
    fn conclude(
        &mut self,
        sent: Option<SendProgress>,
        iterable: Iterable,
        start: StartResponse,
        answer: &Answer<'_>,
        place: &dyn Fn() -> FaultPlace,
    ) -> Outcome<SuspendedAnswer> {
        match sent {
            Some(SendProgress::Slow(chunk)) => {
                start.leave_slot();
                forget_current();
                let context = self.contexts.suspend();
                return Outcome::Suspended(SuspendedAnswer { iterable, chunk, start, context });
            }
            Some(SendProgress::All | SendProgress::Gone) => {
                self.sender.close(&iterable);
                self.keep(start);
            }
            None => {
                // The exception that is set is handled first: close() may raise another one.
                let outcome = if self.forgive(answer) { Outcome::Finished } else { failed(&self.wsgi.fault_log, &place()) };
                let is_fatal = matches!(outcome, Outcome::FailedFatally);
                if iterable.result().is_some() && matches!(outcome, Outcome::Failed | Outcome::FailedFatally) {
                    forget_current();
                    let pending = SuspendedAnswer { iterable, chunk: None, start, context: self.contexts.suspend() };
                    return Outcome::FailedOpen { pending, is_fatal };
                }
                self.sender.close(&iterable);
                self.keep(start);
                return outcome;
            }
        }
        if answer.stage() == Stage::Fresh && !answer.is_taken_over() {
            log_message(
                &self.wsgi.fault_log,
                &format!("{}: the application did not call start_response; answered with 500", place()),
            );
            return Outcome::Failed;
        }
        Outcome::Finished
    }

    /// Keeps the callables for the next request, if the application has released them.
    fn keep(&mut self, start: StartResponse) {
        start.disarm();
        if start.is_unshared() {
            self.start = Some(start);
        } else {
            start.end_offer();
        }
    }
}
