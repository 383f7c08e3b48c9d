//! One request or WebSocket in the hands of the application: what its `receive` and `send` are about, where the connection
//! is at present, and who waits for what.
//!
//! It knows no sockets and no protocol's bytes: those are the engine's. The event loop's thread runs all of it.
//!
//! Python's code may come back here whenever it runs, and it runs in more places than one sees: a loop's `call_soon`, an object's
//! `__del__`. So an exchange is borrowed for moments in which none of it runs ([`Exchange::with`]), and what those find is turned
//! into Python's objects, exceptions and wake-ups afterwards.

use std::borrow::Cow;

use bolide_engine::forks::leave_if_child;
use bolide_engine::request_stream::{Part, RequestStream};
use bolide_engine::response::Response;
use bolide_engine::websocket::{Goodbye, Message as SocketMessage};
use bolide_engine::{Key, Visited};
use pyo3::ffi;

use super::Asgi;
use super::http::HttpTalk;
use super::messages::Message;
use super::native::{Lasting, bound, held};
use super::socket::SocketTalk;
use crate::object::{Object, new_reference};

/// What `receive` and `send` share.
pub struct Exchange {
    pub asgi: &'static Asgi,
    pub place: Place,
    pub talk: Talk,
    /// The futures that waiting calls of `receive()` and of `send()` await.
    pub receivers: Vec<Object>,
    pub senders: Vec<Object>,
    /// The application's task, once it is known to go on by itself.
    pub task: Option<Object>,
    /// The request's method and target, for the log; from then on.
    pub first_line: Vec<u8>,
    /// When the application got the request, in monotonic milliseconds; from then on.
    pub began_ms: u64,
}

/// Where the connection is.
#[derive(Clone, Copy)]
pub enum Place {
    /// In the hands of the call that gave the request to the application, further up the stack.
    Lent { response: *mut Response, request_stream: *mut RequestStream },
    /// In the engine's connection table.
    Parked(Key),
    /// It is no longer ours: all was said, or the client has gone.
    Over,
}

/// What is being spoken, and how far it has come.
pub enum Talk {
    Http(HttpTalk),
    Socket(Box<SocketTalk>),
}

/// What a message is to do, read from Python.
pub enum Act {
    Http(super::http::Act),
    Socket(super::socket::Act),
}

/// What a `receive()` found.
pub enum Received {
    Message(Object),
    /// Nothing yet.
    Wait(Object),
}

/// What there is for a `receive()`, before Python's objects are made of it.
pub enum Found {
    Nothing,
    /// Of a request's body.
    Part(Part),
    /// The client of a request has gone, or all was said to it.
    Disconnect,
    /// A WebSocket asks to be accepted.
    Connect,
    Message(SocketMessage),
    /// A WebSocket's end.
    End(Goodbye),
}

/// What an application's message came to.
pub enum Said {
    Done,
    /// The client is slow: the application is to wait.
    Wait,
}

/// Why an application's message was not said: the exception that it gets.
pub enum Refusal {
    /// It does not fit what was said before.
    Mistake(Cow<'static, str>),
    Value(String),
    Gone,
    /// The connection is not ours any more, which was not known.
    Lost,
}

impl Refusal {
    pub fn mistake<T>(text: impl Into<Cow<'static, str>>) -> Result<T, Refusal> {
        Err(Refusal::Mistake(text.into()))
    }

    /// Sets the exception.
    fn raise<T>(&self, asgi: &Asgi) -> Option<T> {
        match self {
            Refusal::Mistake(text) => asgi.raise_runtime(text),
            Refusal::Value(text) => asgi.raise_value(text),
            Refusal::Gone | Refusal::Lost => asgi.raise_gone(),
        }
    }
}

impl Found {
    /// The message for the application; `Some(None)`: there is none. `None`: an exception is set.
    fn make(self, asgi: &Asgi) -> Option<Option<Object>> {
        let message = match self {
            Found::Nothing => return Some(None),
            Found::Part(part) => asgi.request_message(&part.bytes, part.more),
            Found::Disconnect => asgi.disconnect_message(),
            Found::Connect => super::socket::connect_message(asgi),
            Found::Message(message) => super::socket::received_message(asgi, message.kind, &message.payload),
            Found::End(goodbye) => super::socket::end_message(asgi, &goodbye),
        };
        message.map(Some)
    }
}

/// Futures that calls of `receive()` and `send()` await, taken out of their exchange: to be told when nothing of it is borrowed.
#[must_use]
#[derive(Default)]
pub struct Waiters {
    /// They go on.
    ready: Vec<Object>,
    /// Calls of `send()` whose client has gone.
    gone: Vec<Object>,
}

impl Waiters {
    pub fn tell(self, asgi: &Asgi) {
        for sender in self.gone {
            asgi.reject_gone(&sender);
        }
        for waiter in self.ready {
            asgi.wake(&waiter);
        }
    }
}

/// What became of acting on a connection.
pub enum Reached<R> {
    Done(R),
    /// The server itself is attending to it at this moment, further up the stack.
    Away,
    /// It is not ours any more.
    Gone,
}

/// An exchange and the callables for the application.
pub struct Hands {
    pub exchange: Object,
    pub receive: Object,
    pub send: Object,
}

impl Hands {
    /// `None`: an exception is set.
    pub fn new(asgi: &'static Asgi, place: Place, talk: Talk) -> Option<Hands> {
        let (receivers, senders, first_line) = (Vec::new(), Vec::new(), Vec::new());
        let exchange =
            asgi.exchanges.make(Exchange { asgi, place, talk, receivers, senders, task: None, first_line, began_ms: 0 })?;
        let (receive, send) = (bound(&RECEIVE, &exchange)?, bound(&SEND, &exchange)?);
        Some(Hands { exchange, receive, send })
    }

    /// For the next request, if the application has let go of them.
    pub fn is_free(&self) -> bool {
        /// Ours, and those of the two callables.
        const OWN_REFERENCES: isize = 3;
        // SAFETY: the object lives as long as we refer to it.
        let references = unsafe { ffi::Py_REFCNT(self.exchange.as_ptr()) };
        references == OWN_REFERENCES && self.receive.is_unshared() && self.send.is_unshared()
    }

    /// Begins anew with what has become free.
    pub fn renew(&self, place: Place, talk: Talk) {
        let old = Exchange::with(&self.exchange, |exchange| {
            exchange.place = place;
            let (receivers, senders) = (std::mem::take(&mut exchange.receivers), std::mem::take(&mut exchange.senders));
            (std::mem::replace(&mut exchange.talk, talk), receivers, senders)
        });
        drop(old);
    }
}

impl Exchange {
    /// A moment with the exchange that an object holds: none of Python's code may run in `act`.
    pub fn with<R>(object: &Object, act: impl FnOnce(&mut Exchange) -> R) -> R {
        // SAFETY: the object is an exchange, and the loop's thread alone has such; as no code of Python's runs meanwhile, nobody
        // else has its value.
        act(unsafe { held::<Exchange>(object.as_ptr()) })
    }

    /// For the application's task: its end.
    pub fn end_callback(object: &Object) -> Option<Object> {
        bound(&TASK_DONE, object)
    }

    /// Acts on the connection, wherever it is, in which none of Python's code may run. What a visit leaves to do is asked for with
    /// [`Asgi::want_turn`].
    pub fn reach<R>(&mut self, act: impl FnOnce(&mut Talk, &mut Response, &mut RequestStream) -> R) -> Reached<R> {
        match self.place {
            Place::Lent { response, request_stream } => {
                // SAFETY: the engine lent us both for the call that is on the stack below us; that call is not touching them
                // while the application runs, and takes them back (`Parked` or `Over`) before it returns. `act` comes not back here.
                let (response, request_stream) = unsafe { (&mut *response, &mut *request_stream) };
                Reached::Done(act(&mut self.talk, response, request_stream))
            }
            Place::Parked(key) => {
                let Some(embedded) = self.asgi.embedded() else { return Reached::Gone };
                let talk = &mut self.talk;
                match embedded.visit(key, |response, request_stream| act(talk, response, request_stream)) {
                    Visited::Done(result) => Reached::Done(result),
                    Visited::Away => Reached::Away,
                    Visited::Gone => Reached::Gone,
                }
            }
            Place::Over => Reached::Gone,
        }
    }

    /// The connection has news: who waits for them is returned.
    pub fn news(&mut self, response: &mut Response, request_stream: &mut RequestStream) -> Waiters {
        let can_send = match &mut self.talk {
            Talk::Http(http) => http.go_on(response),
            Talk::Socket(socket) => socket.go_on(response, request_stream),
        };
        let mut waiters = Waiters::default();
        if can_send {
            waiters.ready.append(&mut self.senders);
        }
        let can_receive = match &self.talk {
            Talk::Http(http) => http.has_message(request_stream),
            Talk::Socket(socket) => socket.has_message(request_stream),
        };
        if can_receive {
            waiters.ready.append(&mut self.receivers);
        }
        if self.talk.is_complete() {
            self.place = Place::Over;
        }
        waiters
    }

    /// The client has gone, or the engine has given the exchange up. Who waits for it is returned.
    pub fn lose(&mut self) -> Waiters {
        self.place = Place::Over;
        match &mut self.talk {
            Talk::Http(http) => http.lose(),
            Talk::Socket(socket) => socket.lose(),
        }
        Waiters { ready: std::mem::take(&mut self.receivers), gone: std::mem::take(&mut self.senders) }
    }

    /// The next message, or a future that is done when there may be one. `None`: an exception is set.
    pub fn take_or_wait(object: &Object) -> Option<Received> {
        let (asgi, found) = Exchange::with(object, |exchange| (exchange.asgi, exchange.find()));
        asgi.want_turn();
        if let Some(message) = found.make(asgi)? {
            return Some(Received::Message(message));
        }
        let future = asgi.future()?;
        // A receive() with a time limit leaves a cancelled future behind: a stream that looks for its client's end once a second
        // must not gather one each second.
        let mut waiting = Exchange::with(object, |exchange| std::mem::take(&mut exchange.receivers));
        waiting.retain(|receiver| !matches!(super::task::is_done(asgi, receiver), Some(true)));
        waiting.push(future.clone());
        Exchange::with(object, |exchange| exchange.receivers.append(&mut waiting));
        Some(Received::Wait(future))
    }

    fn find(&mut self) -> Found {
        let found = self.reach(|talk, response, request_stream| match talk {
            Talk::Http(http) => http.receive(response, request_stream),
            Talk::Socket(socket) => socket.receive(request_stream),
        });
        match found {
            Reached::Done(found) => found,
            Reached::Away => Found::Nothing,
            Reached::Gone => self.talk.last_message(),
        }
    }

    /// `send(message)`: says it, and returns a finished awaitable, or one that waits. `None`: an exception is set.
    pub fn send(object: &Object, mut act: Act) -> Option<Object> {
        leave_if_child();
        let (asgi, said, waiters) = Exchange::with(object, |exchange| {
            let said = exchange.say(&mut act);
            let waiters = exchange.after_saying(&said);
            (exchange.asgi, said, waiters)
        });
        waiters.tell(asgi);
        asgi.want_turn();
        match said {
            Ok(Said::Done) => Some(asgi.awaitables.done()),
            Ok(Said::Wait) => {
                let future = asgi.future()?;
                let waiting = asgi.awaitables.waiting(&future)?;
                Exchange::with(object, |exchange| exchange.senders.push(future));
                Some(waiting)
            }
            Err(refusal) => refusal.raise(asgi),
        }
    }

    /// Says a message to the client. None of Python's objects in it is let go here.
    pub fn say(&mut self, act: &mut Act) -> Result<Said, Refusal> {
        let said = match (&self.talk, &act) {
            (Talk::Http(http), Act::Http(act)) => http.may_say(act),
            (Talk::Socket(socket), Act::Socket(_)) if socket.is_lost() => Err(Refusal::Gone),
            _ => Ok(()),
        };
        said?;
        let reached = self.reach(|talk, response, request_stream| match (talk, act) {
            (Talk::Http(http), Act::Http(act)) => http.act(act, response),
            (Talk::Socket(socket), Act::Socket(act)) => socket.act(act, response, request_stream),
            _ => Refusal::mistake("a message of HTTP was sent to a WebSocket, or the other way round"),
        });
        match reached {
            Reached::Done(said) => said,
            Reached::Away => Refusal::mistake(
                "send() was called while the server attends to this connection, as from a `__del__`; nothing was sent",
            ),
            Reached::Gone => match &self.talk {
                Talk::Socket(socket) if socket.is_complete() => Refusal::mistake("the WebSocket is closed: nothing may follow"),
                _ => Err(Refusal::Lost),
            },
        }
    }

    /// Who is to be told after something was said, or could not be.
    fn after_saying(&mut self, said: &Result<Said, Refusal>) -> Waiters {
        if matches!(said, Err(Refusal::Lost)) {
            return self.lose();
        }
        if said.is_err() || !self.talk.is_complete() {
            return Waiters::default();
        }
        if let Place::Parked(_) = self.place {
            self.place = Place::Over;
        }
        // Nothing more will come; whoever waits for the client is told so.
        Waiters { ready: std::mem::take(&mut self.receivers), gone: Vec::new() }
    }
}

impl Talk {
    /// All has been said to the client.
    pub fn is_complete(&self) -> bool {
        match self {
            Talk::Http(http) => http.is_complete(),
            Talk::Socket(socket) => socket.is_complete(),
        }
    }

    /// The client left before all was said.
    pub fn is_lost(&self) -> bool {
        match self {
            Talk::Http(http) => http.is_lost(),
            Talk::Socket(socket) => socket.is_lost(),
        }
    }

    /// What `receive` finds when the connection is not ours any more.
    fn last_message(&mut self) -> Found {
        match self {
            Talk::Http(_) => Found::Disconnect,
            Talk::Socket(socket) => socket.last_message(),
        }
    }
}

static RECEIVE: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"receive".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: receive },
    ml_flags: ffi::METH_NOARGS,
    ml_doc: c"receive(): the next message from the client (ASGI)".as_ptr(),
});

static SEND: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"send".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: send },
    ml_flags: ffi::METH_O,
    ml_doc: c"send(message): a message to the client (ASGI)".as_ptr(),
});

static TASK_DONE: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"task_done".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: task_done },
    ml_flags: ffi::METH_O,
    ml_doc: c"task_done(task): the application has ended".as_ptr(),
});

/// # Safety
/// Called by Python only, with our exchange.
unsafe extern "C" fn receive(exchange: *mut ffi::PyObject, _nothing: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the callable was bound to an exchange, which lives through the call.
    let Some(object) = (unsafe { Object::borrowed(exchange) }) else { return std::ptr::null_mut() };
    let asgi = Exchange::with(&object, |exchange| exchange.asgi);
    given(Exchange::take_or_wait(&object).and_then(|received| match received {
        Received::Message(message) => asgi.awaitables.ready(message),
        Received::Wait(future) => asgi.awaitables.receiving(&future, object),
    }))
}

/// # Safety
/// Called by Python only, with our exchange and a living object.
unsafe extern "C" fn send(exchange: *mut ffi::PyObject, message: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as above.
    let Some(object) = (unsafe { Object::borrowed(exchange) }) else { return std::ptr::null_mut() };
    let (asgi, is_http) = Exchange::with(&object, |exchange| (exchange.asgi, matches!(exchange.talk, Talk::Http(_))));
    // Reading a message may run code of the application (a `__bool__`, say).
    let act = Message::new(asgi, message).and_then(|message| {
        Some(if is_http {
            Act::Http(super::http::read(asgi, &message)?)
        } else {
            Act::Socket(super::socket::read(asgi, &message)?)
        })
    });
    given(act.and_then(|act| Exchange::send(&object, act)))
}

/// # Safety
/// Called by Python only, with our exchange and a task that is done.
unsafe extern "C" fn task_done(exchange: *mut ffi::PyObject, task: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe {
        if let Some(object) = Object::borrowed(exchange) {
            super::task::ended_later(&object, task);
        }
        new_reference(ffi::Py_None())
    }
}

fn given(object: Option<Object>) -> *mut ffi::PyObject {
    object.map_or(std::ptr::null_mut(), Object::into_ptr)
}
