//! ASGI: asynchronous applications, served from within their own event loop.
//!
//! [`Asgi`] is what the worker has of them, [`AsgiThread`] what the engine calls. All of it runs on the thread of the event
//! loop, with the interpreter in hand: the engine's poll is one of the descriptors that the loop watches.

mod awaitable;
mod exchange;
mod http;
mod messages;
mod names;
mod native;
mod scope;
mod task;
mod watcher;
mod websocket;
pub mod worker;

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::ControlFlow;

use bolide_contract::scoreboard::now_ms;
use bolide_engine::EmbeddedWorker;
use bolide_engine::app::{App, Language, Outcome};
use bolide_engine::request::{HttpRequest, Request, RequestParts};
use bolide_engine::request_stream::RequestStream;
use bolide_engine::response::Response;
use bolide_files::named::NamedFiles;
use pyo3::ffi;

use crate::faults::{FaultLog, failed, log_set_exception};
use crate::mounts::Mounts;
use crate::names::Methods;
use crate::object::{Object, latin1};
use awaitable::Awaitables;
use exchange::{AsgiChannel, AsgiExchange, ConnectionRef, ProtocolState};
use http::HttpState;
use names::AsgiNames;
use native::{NativeType, call_method, call_method_with};
use scope::{ScopeMemo, Scopes, Templates};
use websocket::WebSocketState;

/// What a worker has of its asynchronous applications.
pub struct Asgi {
    pub mounts: Mounts,
    /// The application of each mount.
    pub callables: Vec<Object>,
    pub names: AsgiNames,
    pub awaitables: Awaitables,
    exchanges: NativeType<AsgiExchange>,
    pub event_loop: Object,
    /// `b""`
    pub empty: Object,
    /// `{"type": "http.request", "body": b"", "more_body": False}`
    request_template: Object,
    disconnect_template: Object,
    /// `(callable of asyncio.Task, names of its keywords)`
    task_factory: task::TaskFactory,
    pub callbacks: PyCallbacks,
    pub fault_log: FaultLog,
    templates: Cell<Option<Templates>>,
    /// Those that `http.response.pathsend` has named lately.
    files: RefCell<NamedFiles<Object>>,
    /// A client that leaves is worth no line (`ignore-write-errors`, `disable-write-exception`).
    is_quiet_of_clients: bool,
    /// `limit-concurrency`
    most_running: usize,
    /// Tasks of the application that have not ended.
    running: Cell<usize>,
    turn_is_wanted: Cell<bool>,
    /// `AsgiWorker.turn`, for the loop to call.
    turn: OnceCell<Object>,
    /// The context of each turn. Without it a turn that one request asks for had that request's context variables, and so would
    /// the requests that it gives to the application.
    context: Object,
    /// `("context",)`: the keyword of `call_soon` for it.
    context_keyword: Object,
    embedded: OnceCell<EmbeddedWorker<Asgi>>,
}

// SAFETY: the event loop's thread is the only one that touches an `Asgi`: the engine is embedded in that loop and has no
// thread of its own, the watcher knows the engine's heartbeat only, and Python's other threads have no way to it but
// through objects that say "not from this thread" (asyncio's own rule).
unsafe impl Sync for Asgi {}

/// Functions of `bolide.asgi` for what is easier said in Python.
pub struct PyCallbacks {
    /// `plain_headers(headers)`: a list of pairs of bytes, or a TypeError.
    pub plain_headers: Object,
    /// `log_overdue(task, seconds, place)`: the stack of a task that is over its time.
    pub log_overdue: Object,
    /// `report_stall(loop, seconds)`: the tasks that wait behind what blocks the loop.
    pub report_stall: Object,
    /// The exception of a `send()` whose client has gone.
    pub client_disconnected: Object,
    /// `is_departure(exception)`: whether that exception is behind another one.
    pub is_departure: Object,
}

/// The application as the engine sees it.
pub struct AsgiThread {
    asgi: &'static Asgi,
    scopes: Scopes,
    /// What the last request has left for the next one.
    spare: Option<AsgiChannel>,
}

/// An ongoing exchange, as the engine holds it.
pub struct ExchangeHandle(Object);

impl Language for Asgi {
    type App = AsgiThread;

    fn enter(&self, _thread: u32) -> Result<AsgiThread, String> {
        let templates = self.templates.take().ok_or("an event loop has one thread, and has it already")?;
        let names = AsgiNames::new().ok_or("no memory is left")?;
        let methods = Methods::new().ok_or("no memory is left")?;
        // SAFETY: the engine asks for a `&'static` language, and this is that one: it is never freed (see worker.rs).
        let asgi: &'static Asgi = unsafe { &*std::ptr::from_ref(self) };
        Ok(AsgiThread { asgi, scopes: Scopes::new(names, methods, templates), spare: None })
    }

    fn spawn(&self, _name: String, _body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        Err("an event loop has one thread".to_owned())
    }
}

impl App for AsgiThread {
    type Memo = ScopeMemo;
    type Pending = ExchangeHandle;
    const STREAMS: bool = true;

    fn call(&mut self, request: &mut Request<'_, ScopeMemo>, response: &mut Response) -> Outcome<ExchangeHandle> {
        if self.asgi.running.get() >= self.asgi.most_running {
            response.answer_busy();
            return Outcome::Finished;
        }
        let outcome = self.begin(request, response);
        outcome.unwrap_or_else(|| failed(&self.asgi.fault_log, &described(&request.parts)))
    }

    fn resume(&mut self, pending: ExchangeHandle, _reply: &mut Response) -> Outcome<ExchangeHandle> {
        // Ongoing exchanges have news; they are never suspended.
        Outcome::Ongoing(pending)
    }

    fn abandon(&mut self, pending: ExchangeHandle) {
        AsgiExchange::with(&pending.0, AsgiExchange::disconnect).wake(self.asgi);
    }

    fn news(&mut self, pending: &mut ExchangeHandle, response: &mut Response, request_stream: &mut RequestStream) {
        AsgiExchange::with(&pending.0, |exchange| exchange.news(response, request_stream)).wake(self.asgi);
    }

    fn overdue(&mut self, pending: ExchangeHandle, milliseconds: u64) {
        task::cancel_overdue(&pending.0, milliseconds);
    }

    fn release(&mut self) {}

    fn acquire(&mut self) {}

    fn interrupted(&mut self) -> ControlFlow<()> {
        // The loop's own code sees to signals.
        ControlFlow::Continue(())
    }
}

impl AsgiThread {
    /// Gives a request to its application, as far as that goes without waiting. `None`: an exception is set.
    fn begin(&mut self, request: &mut Request<'_, ScopeMemo>, response: &mut Response) -> Option<Outcome<ExchangeHandle>> {
        let asgi = self.asgi;
        let (number, mount) = asgi.choose(request)?;
        let scope = self.scopes.make(request, number, mount)?;
        let Some(request_stream) = request.request_stream.as_deref_mut() else {
            return asgi.raise_runtime("a request came without its body's flow");
        };
        let connection = ConnectionRef::Lent { response, request_stream };
        let protocol = match request.handshake.take() {
            Some(handshake) => ProtocolState::WebSocket(Box::new(WebSocketState::new(handshake))),
            None => ProtocolState::Http(HttpState::new()),
        };
        let channel = match self.spare.take() {
            Some(spare) => {
                spare.renew(connection, protocol);
                spare
            }
            None => AsgiChannel::new(asgi, connection, protocol)?,
        };
        let started = task::start(asgi, asgi.callables.get(number)?, scope, &channel);
        let connection =
            AsgiExchange::with(&channel.exchange, |exchange| std::mem::replace(&mut exchange.connection, ConnectionRef::Over));
        let Some(task) = started else {
            // The application refused the call itself, or asked the process to exit.
            let waiters = AsgiExchange::with(&channel.exchange, AsgiExchange::disconnect);
            keeping_exception(|| waiters.wake(asgi));
            return None;
        };
        if task::is_done(asgi, &task)? {
            let outcome = task::ended_at_once(asgi, &channel.exchange, &task, connection, || described(&request.parts));
            drop(task);
            if channel.is_free() {
                self.spare = Some(channel);
            }
            return Some(outcome);
        }
        task::follow(asgi, &channel.exchange, task)?;
        let is_complete = AsgiExchange::with(&channel.exchange, |exchange| {
            exchange.first_line = first_line(&request.parts);
            exchange.began_ms = now_ms();
            let is_complete = exchange.protocol.is_complete();
            if !is_complete {
                exchange.connection = ConnectionRef::Parked(request.connection);
            }
            is_complete
        });
        // What the application still does after its answer, it does for itself.
        Some(if is_complete { Outcome::Finished } else { Outcome::Ongoing(ExchangeHandle(channel.exchange)) })
    }
}

impl Asgi {
    /// The engine, once it is there.
    pub fn embedded(&self) -> Option<&EmbeddedWorker<Asgi>> {
        self.embedded.get()
    }

    /// Asks the loop for a turn if a visit left something to do.
    pub fn want_turn(&self) {
        let (Some(embedded), Some(turn)) = (self.embedded.get(), self.turn.get()) else { return };
        if self.turn_is_wanted.get() || !embedded.wants_turn() {
            return;
        }
        self.turn_is_wanted.set(true);
        keeping_exception(|| {
            let arguments = [self.event_loop.as_ptr(), turn.as_ptr(), self.context.as_ptr()];
            // SAFETY: all live; the result is ours. The last argument is the one that the tuple names.
            let asked = unsafe { call_method_with(&self.names.call_soon, arguments, &self.context_keyword) };
            if asked.is_none() {
                self.log_set_exception("the event loop");
            }
        });
    }

    /// Tasks of the application that have not ended.
    pub fn running(&self) -> usize {
        self.running.get()
    }

    /// A future of the loop. `None`: an exception is set.
    pub fn future(&self) -> Option<Object> {
        // SAFETY: the loop lives; the future is new.
        unsafe { call_method(&self.names.create_future, [self.event_loop.as_ptr()]) }
    }

    /// Whoever awaits the future goes on, unless it was cancelled.
    pub fn wake(&self, future: &Object) {
        // SAFETY: both live; None is immortal.
        let told = unsafe {
            task::is_done(self, future).and_then(|done| {
                if done { Some(()) } else { call_method(&self.names.set_result, [future.as_ptr(), ffi::Py_None()]).map(drop) }
            })
        };
        if told.is_none() {
            self.log_set_exception("a message to the application");
        }
    }

    /// A `send()` that waits learns that its client has gone.
    pub fn reject_gone(&self, future: &Object) {
        // SAFETY: all live; the exception is new.
        let told = unsafe {
            task::is_done(self, future).and_then(|done| {
                if done {
                    return Some(());
                }
                let text = latin1(GONE.as_bytes())?;
                let exception = native::call(self.callbacks.client_disconnected.as_ptr(), [text.as_ptr()])?;
                call_method(&self.names.set_exception, [future.as_ptr(), exception.as_ptr()]).map(drop)
            })
        };
        if told.is_none() {
            self.log_set_exception("a message to the application");
        }
    }

    pub fn disconnect_message(&self) -> Option<Object> {
        // SAFETY: a dictionary of ours; the copy is new.
        unsafe { Object::owned(ffi::PyDict_Copy(self.disconnect_template.as_ptr())) }
    }

    pub fn request_message(&self, body: &[u8], more: bool) -> Option<Object> {
        // SAFETY: dictionaries and keys of ours; True lives for ever.
        unsafe {
            let message = Object::owned(ffi::PyDict_Copy(self.request_template.as_ptr()))?;
            if !body.is_empty() {
                names::set(&message, &self.names.body, scope::bytes(body)?.as_ptr())?;
            }
            if more {
                names::set(&message, &self.names.more_body, ffi::Py_True())?;
            }
            Some(message)
        }
    }

    pub fn log_set_exception(&self, place: &str) {
        log_set_exception(&self.fault_log, place);
    }

    pub fn raise_runtime<T>(&self, text: &str) -> Option<T> {
        // SAFETY: the exception type lives as long as the interpreter.
        raise(unsafe { ffi::PyExc_RuntimeError }, text)
    }

    pub fn raise_type<T>(&self, text: &str) -> Option<T> {
        // SAFETY: as above.
        raise(unsafe { ffi::PyExc_TypeError }, text)
    }

    pub fn raise_value<T>(&self, text: &str) -> Option<T> {
        // SAFETY: as above.
        raise(unsafe { ffi::PyExc_ValueError }, text)
    }

    pub fn raise_gone<T>(&self) -> Option<T> {
        raise(self.callbacks.client_disconnected.as_ptr(), GONE)
    }

    pub fn raise_os<T>(&self, errno: Option<i32>, text: &str) -> Option<T> {
        // SAFETY: the type lives; the arguments are ours. OSError chooses its subclass by the number (PEP 3151).
        unsafe {
            let text = latin1(text.as_bytes())?;
            let number = Object::owned(ffi::PyLong_FromLong(errno.unwrap_or(nix::libc::EINVAL).into()))?;
            if let Some(exception) = native::call(ffi::PyExc_OSError, [number.as_ptr(), text.as_ptr()]) {
                ffi::PyErr_SetObject(ffi::Py_TYPE(exception.as_ptr()).cast(), exception.as_ptr());
            }
        }
        None
    }

    /// The number of a request's application, and the mount that its path is below. `None`: an exception is set.
    fn choose(&self, request: &Request<'_, ScopeMemo>) -> Option<(usize, &[u8])> {
        if self.mounts.is_plain() {
            return Some((0, b""));
        }
        let (script_name, path) = match &request.parts {
            RequestParts::Http(http) => {
                // A route may have set it.
                let set = http.variables.iter().rfind(|(name, _)| name == b"SCRIPT_NAME");
                (set.map_or(&b""[..], |(_, value)| value.as_slice()), http.path)
            }
            RequestParts::Uwsgi(uwsgi) => {
                let find = |name: &[u8]| {
                    let found = uwsgi.variables.iter().rfind(|variable| variable.name.of(uwsgi.bytes) == name);
                    found.map_or(&b""[..], |variable| variable.value.of(uwsgi.bytes))
                };
                (find(b"SCRIPT_NAME"), find(b"PATH_INFO"))
            }
        };
        let below = self.mounts.below(path).map(|(mount, _)| mount);
        match self.mounts.named(below.unwrap_or(script_name)) {
            // In ASGI no root path ends with a slash.
            Some(number) => Some((number, below.map_or(b"", |mount| mount.strip_suffix(b"/").unwrap_or(mount)))),
            None => {
                let message = format!("no application is mounted at {}", String::from_utf8_lossy(path));
                // SAFETY: the exception type lives as long as the interpreter.
                raise(unsafe { ffi::PyExc_LookupError }, &message)
            }
        }
    }
}

const GONE: &str = "the client has gone";

fn raise<T>(kind: *mut ffi::PyObject, text: &str) -> Option<T> {
    // SAFETY: the type is alive; the text is new, or an exception is set already.
    unsafe {
        if let Some(text) = Object::owned(ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as isize)) {
            ffi::PyErr_SetObject(kind, text.as_ptr());
        }
    }
    None
}

/// Calls Python while an exception may be set that is somebody else's: a message of the application may be refused, and leave
/// the engine something to do.
#[allow(deprecated, reason = "the calls that replace these came with 3.12, and 3.9 is supported")]
fn keeping_exception(act: impl FnOnce()) {
    let (mut kind, mut value, mut traceback) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the thread holds the interpreter. What is fetched is ours until it is given back; all three may be null.
    unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback) };
    act();
    // SAFETY: as above.
    unsafe { ffi::PyErr_Restore(kind, value, traceback) };
}

/// `sys.hexversion`
fn hexversion() -> Option<u64> {
    // SAFETY: the object is borrowed from the sys module, which lives as long as the interpreter.
    unsafe {
        let number = ffi::PySys_GetObject(c"hexversion".as_ptr());
        if number.is_null() { None } else { Some(ffi::PyLong_AsUnsignedLongLong(number)) }
    }
}

/// The request in words, for the log.
fn described(parts: &RequestParts<'_, ScopeMemo>) -> String {
    String::from_utf8_lossy(&first_line(parts)).into_owned()
}

/// The same as bytes, which is all that is kept of a request that goes on: most are never spoken of.
fn first_line(parts: &RequestParts<'_, ScopeMemo>) -> Vec<u8> {
    let (method, uri) = match parts {
        RequestParts::Http(HttpRequest { method, uri, .. }) => (*method, *uri),
        RequestParts::Uwsgi(uwsgi) => {
            let found = |span: Option<bolide_engine::request::Span>| span.map_or(&b""[..], |span| span.of(uwsgi.bytes));
            (found(uwsgi.method), found(uwsgi.uri))
        }
    };
    [method, b" ", uri].concat()
}
