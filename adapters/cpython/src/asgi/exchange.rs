//! One request or WebSocket in the hands of the application: what its `receive` and `send` are about, where the connection
//! is at present, and who waits for what.
//!
//! It knows no sockets and no protocol's bytes: those are the engine's. The event loop's thread runs all of it.

use bolide_engine::Key;
use bolide_engine::inflow::Inflow;
use bolide_engine::reply::Reply;
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
}

/// Where the connection is.
#[derive(Clone, Copy)]
pub enum Place {
    /// In the hands of the call that gave the request to the application, further up the stack.
    Lent { reply: *mut Reply, inflow: *mut Inflow },
    /// In the engine's hall.
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

/// What an application's message came to.
pub enum Said {
    Done,
    /// The client is slow: the application is to wait.
    Wait,
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
        let exchange = asgi.exchanges.make(Exchange { asgi, place, talk, receivers, senders, task: None, first_line })?;
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
        let exchange = self.exchange();
        exchange.place = place;
        exchange.talk = talk;
        exchange.receivers.clear();
        exchange.senders.clear();
    }

    #[expect(clippy::mut_from_ref, reason = "the exchange is Python's, and held by one thread")]
    pub fn exchange(&self) -> &mut Exchange {
        // SAFETY: the object is an exchange; the loop's thread asks while no code of the application runs.
        unsafe { held::<Exchange>(self.exchange.as_ptr()) }
    }
}

impl Exchange {
    /// For the application's task: its end.
    pub fn end_callback(object: &Object) -> Option<Object> {
        bound(&TASK_DONE, object)
    }

    /// Acts on the connection, wherever it is. `None`: it is not ours any more.
    pub fn reach<R>(&mut self, act: impl FnOnce(&mut Talk, &mut Reply, &mut Inflow) -> R) -> Option<R> {
        match self.place {
            // SAFETY: the engine lent us both for the call that is on the stack below us; that call is not touching them
            // while the application runs, and takes them back (`Parked` or `Over`) before it returns.
            Place::Lent { reply, inflow } => Some(act(&mut self.talk, unsafe { &mut *reply }, unsafe { &mut *inflow })),
            Place::Parked(key) => {
                let (asgi, talk) = (self.asgi, &mut self.talk);
                let result = asgi.hosted()?.visit(key, |reply, inflow| act(talk, reply, inflow));
                asgi.want_turn();
                result
            }
            Place::Over => None,
        }
    }

    /// The connection has news: whoever waits for them is told.
    pub fn news(&mut self, reply: &mut Reply, inflow: &mut Inflow) {
        let can_send = match &mut self.talk {
            Talk::Http(http) => http.go_on(reply),
            Talk::Socket(socket) => socket.go_on(reply, inflow),
        };
        if can_send {
            self.wake_senders();
        }
        let can_receive = match &self.talk {
            Talk::Http(http) => http.has_message(inflow),
            Talk::Socket(socket) => socket.has_message(inflow),
        };
        if can_receive {
            self.wake_receivers();
        }
        if self.talk.is_complete() {
            self.place = Place::Over;
        }
    }

    /// The client has gone, or the engine has given the exchange up. `inflow` is what the client has said last.
    pub fn lose(&mut self) {
        self.place = Place::Over;
        match &mut self.talk {
            Talk::Http(http) => http.lose(),
            Talk::Socket(socket) => socket.lose(),
        }
        for sender in std::mem::take(&mut self.senders) {
            self.asgi.reject_gone(&sender);
        }
        self.wake_receivers();
    }

    /// The next message, or a future that is done when there may be one. `None`: an exception is set.
    pub fn take_or_wait(object: &Object) -> Option<Received> {
        // SAFETY: the object is an exchange; what follows runs no code of the application.
        unsafe { held::<Exchange>(object.as_ptr()) }.take()
    }

    fn take(&mut self) -> Option<Received> {
        let asgi = self.asgi;
        let found = self.reach(|talk, reply, inflow| match talk {
            Talk::Http(http) => http.receive(asgi, reply, inflow),
            Talk::Socket(socket) => socket.receive(asgi, inflow),
        });
        let message = match found {
            Some(message) => message?,
            None => Some(self.talk.last_message(asgi)?),
        };
        match message {
            Some(message) => Some(Received::Message(message)),
            None => {
                let future = asgi.future()?;
                // A receive() with a time limit leaves a cancelled future behind: a stream that looks for its client's end
                // once a second must not gather one each second.
                self.receivers.retain(|receiver| !matches!(super::task::is_done(asgi, receiver), Some(true)));
                self.receivers.push(future.clone());
                Some(Received::Wait(future))
            }
        }
    }

    /// `send(message)`: says it, and returns a finished awaitable, or one that waits. `None`: an exception is set.
    fn send(&mut self, act: Act) -> Option<Object> {
        let asgi = self.asgi;
        let said = match act {
            Act::Http(act) => super::http::say(self, act)?,
            Act::Socket(act) => super::socket::say(self, act)?,
        };
        if self.talk.is_complete() {
            if let Place::Parked(_) = self.place {
                self.place = Place::Over;
            }
            // Nothing more will come; whoever waits for the client is told so.
            self.wake_receivers();
        }
        match said {
            Said::Done => Some(asgi.awaitables.done()),
            Said::Wait => {
                let future = asgi.future()?;
                let waiting = asgi.awaitables.waiting(&future)?;
                self.senders.push(future);
                Some(waiting)
            }
        }
    }

    fn wake_senders(&mut self) {
        for sender in std::mem::take(&mut self.senders) {
            self.asgi.wake(&sender);
        }
    }

    fn wake_receivers(&mut self) {
        for receiver in std::mem::take(&mut self.receivers) {
            self.asgi.wake(&receiver);
        }
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

    /// What `receive` finds when the connection is not ours any more. `None`: an exception is set.
    fn last_message(&mut self, asgi: &Asgi) -> Option<Object> {
        match self {
            Talk::Http(_) => asgi.disconnect_message(),
            Talk::Socket(socket) => socket.last_message(asgi),
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
    // SAFETY: as above; only its constant part is looked at.
    let asgi = unsafe { held::<Exchange>(exchange) }.asgi;
    given(Exchange::take_or_wait(&object).and_then(|received| match received {
        Received::Message(message) => asgi.awaitables.ready(message),
        Received::Wait(future) => asgi.awaitables.receiving(&future, object),
    }))
}

/// # Safety
/// Called by Python only, with our exchange and a living object.
unsafe extern "C" fn send(exchange: *mut ffi::PyObject, message: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as above. Reading a message may run code of the application (a `__bool__`, say): the exchange is let go before.
    let looked_at = unsafe { held::<Exchange>(exchange) };
    let (asgi, is_http) = (looked_at.asgi, matches!(looked_at.talk, Talk::Http(_)));
    let act = Message::new(asgi, message).and_then(|message| {
        Some(if is_http {
            Act::Http(super::http::read(asgi, &message)?)
        } else {
            Act::Socket(super::socket::read(asgi, &message)?)
        })
    });
    // SAFETY: as above; what follows runs no code of the application.
    given(act.and_then(|act| unsafe { held::<Exchange>(exchange) }.send(act)))
}

/// # Safety
/// Called by Python only, with our exchange and a task that is done.
unsafe extern "C" fn task_done(exchange: *mut ffi::PyObject, task: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe {
        super::task::ended_later(held::<Exchange>(exchange), task);
        new_reference(ffi::Py_None())
    }
}

fn given(object: Option<Object>) -> *mut ffi::PyObject {
    object.map_or(std::ptr::null_mut(), Object::into_ptr)
}
