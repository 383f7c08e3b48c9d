//! WSGI (PEP 3333): calls the application and passes its answer to the response.
//!
//! There is one [`Wsgi`] for the worker and one [`WsgiThread`] for each of its threads. All of it runs on the thread that read
//! the request, which holds the interpreter.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use bolide_contract::scoreboard::{Row, Slot};
use bolide_engine::app::{App, Language, Outcome, SignalOutcome};
use bolide_engine::cut_off_late_stream;
use bolide_engine::forks::leave_if_child;
use bolide_engine::mounts::Mounts;
use bolide_engine::request::{Body, Request};
use bolide_engine::response::{Progress, Pushed, ResponseWriter, When};
use pyo3::ffi;

use crate::answer::{Answer, Part, item, length, not_bytes};
use crate::contexts::Contexts;
use crate::current_request::forget_current;
use crate::environ::{Dictionary, EnvironMemo, Environs};
use crate::exceptions::{lookup_error, raise};
use crate::faults::{FaultLog, described, failed, log_message, log_set_exception};
use crate::names::{EnvironKeys, EnvironNames, Methods};
use crate::object::{Object, bytes_of};
use crate::start_response::StartResponse;
use crate::threads;
use crate::uwsgi_signals;

/// Size of a body part whose compression takes long enough, about a millisecond, to release the interpreter to other threads
/// meanwhile.
const LONG_CODING_BYTES: usize = 32 * 1024;

/// The applications of a worker, and the objects that its threads need to call them.
pub struct Wsgi {
    pub row: &'static Row,
    pub mounts: Mounts,
    /// The application of each mount.
    pub callables: Vec<Object>,
    /// A template of `environ` for each listener.
    pub templates: Vec<Object>,
    /// `bolide.wsgi.body_in_memory(bytes)` and `body_in_file(descriptor)`: make `wsgi.input`.
    pub body_in_memory: Object,
    pub body_in_file: Object,
    /// `bolide.wsgi.FileWrapper`, and `sendable(wrapper)`: `(descriptor, offset, length)` or None.
    pub file_wrapper: Object,
    pub sendable: Object,
    /// `bolide.wsgi.read_and_go_on(wrapper, rest)`: an iterator over a wrapper's parts, and then over the rest of the answer.
    pub read_and_go_on: Object,
    /// `bolide.wsgi.ConnectionSocket(take_socket)`
    pub connection_socket: Object,
    /// `uwsgi.after_req_hook`
    pub after_request: Option<Object>,
    /// `wsgi-strict`
    pub is_strict: bool,
    pub fault_log: FaultLog,
    pub write_errors: bool,
    pub write_timeout: std::time::Duration,
}

/// An answer that is suspended because its client is slow.
pub struct SuspendedAnswer {
    answer: Answer,
    /// The chunk that was not taken completely, and the number of bytes that were taken.
    chunk: Option<(Object, usize)>,
    /// The application may still call it, from its generator, so it stays with this answer.
    start: StartResponse,
    /// Its context variables.
    context: Option<Object>,
}

pub struct WsgiThread {
    wsgi: &'static Wsgi,
    environs: Environs,
    start: Option<StartResponse>,
    core: Option<Object>,
    contexts: Contexts,
    saved: *mut ffi::PyThreadState,
}

impl Language for Wsgi {
    type App = WsgiThread;

    fn enter(&self, thread: u32) -> Result<WsgiThread, String> {
        let no_memory = || "no memory is left".to_owned();
        let names = EnvironNames::new().ok_or_else(no_memory)?;
        let methods = Methods::new().ok_or_else(no_memory)?;
        let core = if thread == 0 { None } else { integer(thread) };
        // SAFETY: the engine asks for a `&'static` language, and this one is: `Wsgi` is never freed (see worker.rs).
        let wsgi: &'static Wsgi = unsafe { &*std::ptr::from_ref(self) };
        let keys = EnvironKeys::new().ok_or_else(no_memory)?;
        let environs = Environs::new(names, methods, keys, self.templates.clone());
        let contexts = Contexts::enter().ok_or_else(no_memory)?;
        Ok(WsgiThread { wsgi, environs, start: None, core, contexts, saved: null_mut() })
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        threads::spawn(name, body)
    }
}

fn integer(number: u32) -> Option<Object> {
    // SAFETY: the result is new.
    unsafe { Object::owned(ffi::PyLong_FromUnsignedLongLong(number.into())) }
}

impl App for WsgiThread {
    type Memo = EnvironMemo;
    type Pending = SuspendedAnswer;

    fn call(&mut self, request: &mut Request<'_, EnvironMemo>, response: &mut ResponseWriter<'_>) -> Outcome<SuspendedAnswer> {
        let outcome = self.serve(request, response);
        outcome.unwrap_or_else(|| failed(&self.wsgi.fault_log, &described(&request.parts)))
    }

    fn resume(&mut self, pending: SuspendedAnswer, response: &mut ResponseWriter<'_>) -> Outcome<SuspendedAnswer> {
        let SuspendedAnswer { mut answer, chunk, start, context } = pending;
        self.contexts.resume(context);
        start.make_current();
        // SAFETY: the engine lends us the response for this call, and it is disarmed below.
        unsafe { start.arm(response, true) };
        let mut sent = self.send(&mut answer, chunk, response);
        if matches!(sent, Some(SendProgress::All)) {
            sent = Some(self.complete(&mut answer, response));
        }
        start.disarm();
        let outcome = self.conclude(sent, answer, start, response, &|| "an answer that was being streamed".to_owned());
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

    fn exchange_has_ended(&mut self, response: &mut ResponseWriter<'_>) {
        let Some(hook) = &self.wsgi.after_request else { return };
        let start = self.start.take().or_else(|| StartResponse::new(self.wsgi.write_errors, self.wsgi.write_timeout));
        if let Some(start) = &start {
            start.make_current();
            // SAFETY: the engine lends us the response for this call, and it is disarmed by `keep`.
            unsafe { start.arm_ended(response) };
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
        self.close(&pending.answer);
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

    fn signal(&mut self, number: u8) -> SignalOutcome {
        uwsgi_signals::run_handler(number)
    }

    fn interrupted(&mut self) -> ControlFlow<()> {
        // SAFETY: the thread holds the interpreter. Only the main thread runs handlers; elsewhere this does nothing.
        if unsafe { ffi::PyErr_CheckSignals() } == 0 {
            return ControlFlow::Continue(());
        }
        match failed::<()>(&self.wsgi.fault_log, "a signal handler") {
            Outcome::FailedFatally => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The progress of sending an answer.
enum SendProgress {
    All,
    Gone,
    /// The client is slow, or other requests have their turn; this chunk was not taken completely.
    Slow(Option<(Object, usize)>),
}

impl WsgiThread {
    /// `None`: an exception is set.
    fn serve(
        &mut self,
        request: &mut Request<'_, EnvironMemo>,
        response: &mut ResponseWriter<'_>,
    ) -> Option<Outcome<SuspendedAnswer>> {
        let mut environ = self.environs.make(request)?;
        let callable = self.choose(&mut environ, request)?;
        self.give_body(&mut environ, std::mem::take(&mut request.body))?;
        if let Some(core) = &self.core {
            environ.set(&self.environs.names.uwsgi_core, core);
        }
        let start = match self.start.take() {
            Some(start) => start,
            None => {
                let made = StartResponse::new(self.wsgi.write_errors, self.wsgi.write_timeout)?;
                made.make_current();
                made
            }
        };
        let asks_for_upgrade = request.parts.asks_for_upgrade();
        let is_rare = asks_for_upgrade || request.parts.is_chunked();
        if asks_for_upgrade {
            self.offer_socket(&mut environ, &start, request.slot)?;
        }
        let environ = environ.done()?;
        if is_rare {
            start.keep_environ(&environ);
            start.note_slot(request.slot);
        }
        // SAFETY: the engine lends us the response for this call; it is disarmed before the call returns.
        unsafe { start.arm(response, false) };
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
            return self.forgive(response).then_some(Outcome::Finished);
        };
        let was_sent_in_call = response.was_sent_in_call();
        let mut answer = Answer::new(result);
        let mut sent = self.send(&mut answer, None, response);
        if matches!(sent, Some(SendProgress::All)) {
            if was_sent_in_call {
                let timeout = self.wsgi.write_timeout;
                self.aside(|| response.finish_in_call(timeout));
            }
            sent = Some(self.complete(&mut answer, response));
        }
        start.disarm();
        // Objects that are freed with it, such as the file of a large body, are freed after the answer.
        drop(environ);
        Some(self.conclude(sent, answer, start, response, &|| described(&request.parts)))
    }

    /// Offers the connection to libraries that speak WebSocket on it themselves, under the names that they look for.
    fn offer_socket(&self, environ: &mut Dictionary, start: &StartResponse, slot: &'static Slot) -> Option<()> {
        let arguments = [start.taker(slot)?];
        let pointers = [arguments[0].as_ptr()];
        // SAFETY: the callable and its argument live through the call; the result is ours.
        let socket = unsafe {
            let made = ffi::PyObject_Vectorcall(self.wsgi.connection_socket.as_ptr(), pointers.as_ptr(), 1, null_mut());
            Object::owned(made)?
        };
        environ.set(&self.environs.names.gunicorn_socket, &socket);
        environ.set(&self.environs.names.werkzeug_socket, &socket);
        Some(())
    }

    /// An application that has taken over its connection ends with an exception that tells other servers to send no answer
    /// (gunicorn: StopIteration, Werkzeug: ConnectionError). True: it was that exception, which is now cleared.
    fn forgive(&self, response: &ResponseWriter<'_>) -> bool {
        // SAFETY: the thread holds the interpreter, and an exception is set; the types live as long as it does.
        unsafe {
            let is_usual = ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) != 0
                || ffi::PyErr_ExceptionMatches(ffi::PyExc_ConnectionError) != 0;
            if !is_usual || !response.is_given_away() {
                return false;
            }
            ffi::PyErr_Clear();
        }
        true
    }

    /// Returns the application of a request, and sets SCRIPT_NAME and PATH_INFO for its mount.
    fn choose(&mut self, environ: &mut Dictionary, request: &mut Request<'_, EnvironMemo>) -> Option<*mut ffi::PyObject> {
        let choice = match self.wsgi.mounts.choose(&request.parts) {
            Ok(choice) => choice,
            Err(problem) => return raise(lookup_error(), &problem),
        };
        if let Some((mount, rest)) = choice.below {
            match request.script_name {
                [] => environ.set_text(&self.environs.names.script_name, mount),
                prefix => environ.set_text(&self.environs.names.script_name, &[prefix, mount].concat()),
            }
            environ.set_text(&self.environs.names.path_info, rest);
        }
        request.log_facts.application = choice.number as u32;
        self.wsgi.callables.get(choice.number).map(Object::as_ptr)
    }

    fn give_body(&mut self, environ: &mut Dictionary, body: Body) -> Option<()> {
        let input = match body {
            Body::Empty => return Some(()),
            Body::Memory(bytes) => {
                // SAFETY: the bytes are copied into a new object; both live through the call.
                unsafe {
                    let bytes = Object::owned(ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as isize))?;
                    let arguments = [bytes.as_ptr()];
                    Object::owned(ffi::PyObject_Vectorcall(self.wsgi.body_in_memory.as_ptr(), arguments.as_ptr(), 1, null_mut()))?
                }
            }
            Body::File { file, .. } => {
                use std::os::fd::IntoRawFd;
                // SAFETY: the descriptor becomes the Python file's, which closes it.
                unsafe {
                    let number = Object::owned(ffi::PyLong_FromLong(file.into_raw_fd().into()))?;
                    let arguments = [number.as_ptr()];
                    Object::owned(ffi::PyObject_Vectorcall(self.wsgi.body_in_file.as_ptr(), arguments.as_ptr(), 1, null_mut()))?
                }
            }
        };
        environ.set(&self.environs.names.wsgi_input, &input);
        Some(())
    }

    /// Passes a part to the response. Compression of a large part takes a while without Python: the caller holds the object of
    /// the bytes, and the application's callables leave the response to this thread.
    fn push(&mut self, part: &[u8], when: When, response: &mut ResponseWriter<'_>) -> Pushed {
        if part.len() > LONG_CODING_BYTES && response.is_filtered() {
            return self.aside(|| response.push(part, when));
        }
        response.push(part, when)
    }

    /// Sends as much of the answer as the client takes. `None`: an exception is set.
    fn send(
        &mut self,
        answer: &mut Answer,
        chunk: Option<(Object, usize)>,
        response: &mut ResponseWriter<'_>,
    ) -> Option<SendProgress> {
        let first_time = chunk.is_none() && answer.is_fresh();
        if let Some((bytes, taken)) = chunk {
            // SAFETY: a bytes object that lives as long as `bytes`.
            match self.push(unsafe { &bytes_of(bytes.as_ptr())[taken..] }, When::Now, response) {
                Pushed::All => {}
                Pushed::Gone => return Some(SendProgress::Gone),
                Pushed::Part(more) => return Some(SendProgress::Slow(Some((bytes, taken + more)))),
            }
        }
        if first_time {
            if let Some(result) = answer.result() {
                if self.is_wrapper(result)
                    && response.has_head()
                    && let Some((file, offset, length)) = self.sendable(result)?
                {
                    response.push_file(file, offset, length);
                    return Some(SendProgress::All);
                }
                if !self.wsgi.is_strict {
                    answer.put_bytes_in_a_tuple()?;
                }
            }
            if let Some(parts) = answer.whole()? {
                self.declare_whole(parts, response)?;
            }
        }
        loop {
            let bytes = match self.next_part(answer)? {
                Part::Bytes(bytes) => bytes,
                Part::File(wrapper) if response.has_head() => {
                    if self.send_file_part(answer, &wrapper, response)? {
                        return Some(SendProgress::Slow(None));
                    }
                    continue;
                }
                Part::File(wrapper) => wrapper,
                Part::End => return Some(SendProgress::All),
            };
            if !response.has_head() {
                // SAFETY: a bytes object that lives as long as `bytes`, if it is one.
                if unsafe { ffi::PyBytes_Check(bytes.as_ptr()) != 0 && bytes_of(bytes.as_ptr()).is_empty() } {
                    // PEP 3333 requires the head before the first part. An empty part does not count: uWSGI accepts it.
                    continue;
                }
                // SAFETY: the exception type lives as long as the interpreter.
                unsafe {
                    ffi::PyErr_SetString(
                        ffi::PyExc_AssertionError,
                        c"the application produced a part of the body before it called start_response (PEP 3333)".as_ptr(),
                    );
                }
                return None;
            }
            // SAFETY: a bytes object, since files do not get here; it lives as long as `bytes`.
            match self.push(unsafe { bytes_of(bytes.as_ptr()) }, answer.when(), response) {
                Pushed::All if cut_off_late_stream(self.wsgi.row, response) => return Some(SendProgress::Gone),
                Pushed::All if response.turn_is_over() => return Some(SendProgress::Slow(None)),
                Pushed::All => {}
                Pushed::Gone => return Some(SendProgress::Gone),
                Pushed::Part(taken) => return Some(SendProgress::Slow(Some((bytes, taken)))),
            }
        }
    }

    /// All parts are known: the answer is sent, and only then code of the application runs again (`close()`, or code that runs
    /// when its objects are freed). If the client is too slow for that, this code waits as well, unless there is none.
    fn complete(&mut self, answer: &mut Answer, response: &mut ResponseWriter<'_>) -> SendProgress {
        if !response.has_head() {
            return SendProgress::All;
        }
        let may_run_code = answer.result().is_some();
        let progress = match response.has_file() {
            true => self.aside(|| response.complete(may_run_code)),
            false => response.complete(may_run_code),
        };
        match progress {
            Progress::Done => SendProgress::All,
            Progress::Broken => SendProgress::Gone,
            Progress::Blocked if may_run_code => {
                answer.end();
                SendProgress::Slow(None)
            }
            Progress::Blocked => SendProgress::All,
        }
    }

    /// Handles the end of sending: the answer is complete, or it waits for the client. `sent` is `None` if an exception is set.
    fn conclude(
        &mut self,
        sent: Option<SendProgress>,
        answer: Answer,
        start: StartResponse,
        response: &ResponseWriter<'_>,
        place: &dyn Fn() -> String,
    ) -> Outcome<SuspendedAnswer> {
        match sent {
            Some(SendProgress::Slow(chunk)) => {
                start.leave_slot();
                forget_current();
                let context = self.contexts.suspend();
                return Outcome::Suspended(SuspendedAnswer { answer, chunk, start, context });
            }
            Some(SendProgress::All | SendProgress::Gone) => {
                self.close(&answer);
                self.keep(start);
            }
            None => {
                // The exception that is set is handled first: close() may raise another one.
                let outcome = if self.forgive(response) { Outcome::Finished } else { failed(&self.wsgi.fault_log, &place()) };
                let is_fatal = matches!(outcome, Outcome::FailedFatally);
                if answer.result().is_some() && matches!(outcome, Outcome::Failed | Outcome::FailedFatally) {
                    forget_current();
                    let pending = SuspendedAnswer { answer, chunk: None, start, context: self.contexts.suspend() };
                    return Outcome::FailedOpen { pending, is_fatal };
                }
                self.close(&answer);
                self.keep(start);
                return outcome;
            }
        }
        if !response.has_head() && !response.is_given_away() {
            log_message(
                &self.wsgi.fault_log,
                &format!("{}: the application did not call start_response; answered with 500", place()),
            );
            return Outcome::Failed;
        }
        Outcome::Finished
    }

    /// PEP 3333: `close()` is called in any case, whether the answer succeeded or not.
    fn close(&mut self, answer: &Answer) {
        if let Some(result) = answer.result() {
            self.close_object(result);
        }
    }

    fn close_object(&self, object: &Object) {
        // SAFETY: the object lives through the call; results are owned, and errors are taken and logged.
        unsafe {
            let Some(close) = Object::owned(ffi::PyObject_GetAttr(object.as_ptr(), self.environs.names.close.as_ptr())) else {
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 {
                    ffi::PyErr_Clear();
                } else {
                    log_set_exception(&self.wsgi.fault_log, "the answer's close()");
                }
                return;
            };
            if Object::owned(ffi::PyObject_CallNoArgs(close.as_ptr())).is_none() {
                log_set_exception(&self.wsgi.fault_log, "the answer's close()");
            }
        }
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

    fn is_wrapper(&self, object: &Object) -> bool {
        object.is_exactly(self.wsgi.file_wrapper.as_ptr().cast())
    }

    /// Returns the file, offset and length of a `wsgi.file_wrapper` around a regular file. `Some(None)`: it is not one, and is
    /// read like any iterable. `None`: an exception is set.
    fn sendable(&self, wrapper: &Object) -> Option<Option<(File, i64, u64)>> {
        let arguments = [wrapper.as_ptr()];
        // SAFETY: the callable and its argument live; the result is ours, and a tuple of three ints or None.
        unsafe {
            let found = Object::owned(ffi::PyObject_Vectorcall(self.wsgi.sendable.as_ptr(), arguments.as_ptr(), 1, null_mut()))?;
            if found.as_ptr() == ffi::Py_None() {
                return Some(None);
            }
            let number = |place| ffi::PyLong_AsLongLong(ffi::PyTuple_GetItem(found.as_ptr(), place));
            let (descriptor, offset, length) = (number(0), number(1), number(2));
            let borrowed = BorrowedFd::borrow_raw(descriptor as i32);
            // A copy of the descriptor, because the application's close() may close its own meanwhile.
            Some(borrowed.try_clone_to_owned().ok().map(|own| (File::from(own), offset, length as u64)))
        }
    }

    /// Sends a `wsgi.file_wrapper` that is one part of the answer. True: it is sent first, and the answer continues after it.
    fn send_file_part(&mut self, answer: &mut Answer, wrapper: &Object, response: &mut ResponseWriter<'_>) -> Option<bool> {
        if let Some((file, offset, length)) = self.sendable(wrapper)? {
            if length > 0 {
                response.push_file_part(file, offset, length);
            }
            self.close_object(wrapper);
            return Some(length > 0);
        }
        let arguments = [wrapper.as_ptr(), answer.rest()?.as_ptr()];
        // SAFETY: the callable and its arguments live through the call; the result is ours.
        let both = unsafe { ffi::PyObject_Vectorcall(self.wsgi.read_and_go_on.as_ptr(), arguments.as_ptr(), 2, null_mut()) };
        // SAFETY: as above.
        answer.go_on_with(unsafe { Object::owned(both)? });
        Some(false)
    }

    /// Returns the next part of an answer. `None`: an exception is set.
    fn next_part(&self, answer: &mut Answer) -> Option<Part> {
        let Some(part) = answer.next()? else { return Some(Part::End) };
        // SAFETY: the part lives.
        if unsafe { ffi::PyBytes_Check(part.as_ptr()) } != 0 {
            return Some(Part::Bytes(part));
        }
        if self.is_wrapper(&part) {
            return Some(Part::File(part));
        }
        not_bytes(&part);
        None
    }

    /// All parts are known, and so is the length of the body, unless there are files among them. `None`: an exception is set.
    fn declare_whole(&self, parts: &Object, response: &mut ResponseWriter<'_>) -> Option<()> {
        let mut total = 0u64;
        for index in 0..length(parts) {
            // SAFETY: the index is within the length; the part lives while it is looked at.
            unsafe {
                let part = item(parts, index)?;
                if ffi::PyBytes_Check(part.as_ptr()) == 0 {
                    if self.is_wrapper(&part) {
                        return Some(());
                    }
                    not_bytes(&part);
                    return None;
                }
                total += ffi::PyBytes_Size(part.as_ptr()) as u64;
            }
        }
        response.declare_length(total);
        Some(())
    }
}
