//! One request or WebSocket in the hands of the application: what its `receive` and `send` are about, where the connection
//! is at present, and who waits for what.
//!
//! It knows no sockets and no protocol's bytes: those are the engine's. The event loop's thread runs all of it.
//!
//! Python's code may come back here whenever it runs, and it runs in more places than one sees: a loop's `call_soon`, an object's
//! `__del__`. So an exchange is borrowed for moments in which none of it runs ([`AsgiExchange::with`]), and what those find is turned
//! into Python's objects, exceptions and wake-ups afterwards.

use bolide_engine::forks::leave_if_child;
use bolide_engine::request_stream::RequestStream;
use bolide_engine::response::ResponseWriter;
use bolide_engine::{ExchangeId, Visited};
use pyo3::ffi;

use super::awaitable::ReceiveResult;
use super::context::Asgi;
use super::events::{ReceiveEvent, SendError, SendResult};
use super::futures::{future, is_done, reject_gone, wake};
use super::http::{self, HttpSendEvent, HttpState};
use super::messages::Message;
use super::websocket::{self, WebSocketSendEvent, WebSocketState};
use crate::native::{Lasting, NativeType, bound, call, held};
use crate::object::Object;

/// One request or WebSocket of the application: what its `receive` and `send` share.
pub struct AsgiExchange {
    pub asgi: &'static Asgi,
    pub connection: ConnectionRef,
    pub protocol: ProtocolState,
    /// The futures that waiting calls of `receive()` and of `send()` await.
    pub receivers: Vec<Object>,
    pub senders: Vec<Object>,
    /// The application's task, once it is known to go on by itself.
    pub task: Option<Object>,
    /// The request's method and target, for the log; from then on.
    pub request_line: Vec<u8>,
    /// When the application got the request, in monotonic milliseconds; from then on.
    pub began_ms: u64,
    /// The application's number, for the counters; from then on.
    pub application: u32,
    /// Where it is among those that go on; from then on.
    pub place: usize,
    /// The client has ended its side, as far as the engine has told; from then on.
    pub has_left: bool,
}

/// An ongoing exchange, as the engine holds it.
pub struct ExchangeHandle(pub Object);

/// The connection of an exchange, wherever it is.
#[derive(Clone, Copy)]
pub enum ConnectionRef {
    /// In the hands of the call that gave the request to the application, further up the stack.
    Lent { response: *mut ResponseWriter<'static>, request_stream: *mut RequestStream },
    /// In the engine's connection table.
    Parked(ExchangeId),
    /// It is no longer ours: all was said, or the client has gone.
    Over,
}

/// The protocol of an exchange, HTTP or WebSocket, and how far it has come.
pub enum ProtocolState {
    Http(HttpState),
    WebSocket(Box<WebSocketState>),
}

/// A message of the application's `send()` (ASGI: "event"), read from Python.
pub enum SendEvent {
    Http(HttpSendEvent),
    WebSocket(WebSocketSendEvent),
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
    pub fn wake(self, asgi: &Asgi) {
        for sender in self.gone {
            reject_gone(asgi, &sender);
        }
        for waiter in self.ready {
            wake(asgi, &waiter);
        }
    }
}

/// The callables `receive` and `send` of an exchange, as the application gets them.
pub struct AsgiChannel {
    pub exchange: Object,
    pub receive: Object,
    pub send: Object,
}

impl AsgiChannel {
    /// `None`: an exception is set.
    pub fn new(
        asgi: &'static Asgi,
        exchanges: &NativeType<AsgiExchange>,
        connection: ConnectionRef,
        protocol: ProtocolState,
    ) -> Option<AsgiChannel> {
        let (receivers, senders, request_line) = (Vec::new(), Vec::new(), Vec::new());
        let exchange = exchanges.make(AsgiExchange {
            asgi,
            connection,
            protocol,
            receivers,
            senders,
            task: None,
            request_line,
            began_ms: 0,
            application: 0,
            place: 0,
            has_left: false,
        })?;
        let (receive, send) = (bound(&RECEIVE, &exchange)?, bound(&SEND, &exchange)?);
        Some(AsgiChannel { exchange, receive, send })
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
    pub fn renew(&self, connection: ConnectionRef, protocol: ProtocolState) {
        let old = AsgiExchange::with(&self.exchange, |exchange| {
            exchange.connection = connection;
            let (receivers, senders) = (std::mem::take(&mut exchange.receivers), std::mem::take(&mut exchange.senders));
            (std::mem::replace(&mut exchange.protocol, protocol), receivers, senders)
        });
        drop(old);
    }
}

impl AsgiExchange {
    /// A moment with the exchange that an object holds: none of Python's code may run in `act`.
    pub fn with<R>(object: &Object, act: impl FnOnce(&mut AsgiExchange) -> R) -> R {
        // SAFETY: the object is an exchange, and the loop's thread alone has such; as no code of Python's runs meanwhile, nobody
        // else has its value.
        act(unsafe { held::<AsgiExchange>(object.as_ptr()) })
    }

    /// Visits the connection, wherever it is; none of Python's code may run in `act`. What a visit leaves to do is asked for with
    /// [`Asgi::want_turn`].
    pub fn visit<R>(
        &mut self,
        act: impl FnOnce(&mut ProtocolState, &mut ResponseWriter<'_>, &mut RequestStream) -> R,
    ) -> Visited<R> {
        match self.connection {
            ConnectionRef::Lent { response, request_stream } => {
                // SAFETY: the engine lent us both for the call that is on the stack below us; that call is not touching them
                // while the application runs, and takes them back (`Parked` or `Over`) before it returns. `act` comes not back here.
                let (response, request_stream) = unsafe { (&mut *response, &mut *request_stream) };
                Visited::Done(act(&mut self.protocol, response, request_stream))
            }
            ConnectionRef::Parked(id) => {
                let Some(embedded) = self.asgi.embedded() else { return Visited::Gone };
                let protocol = &mut self.protocol;
                embedded.visit(id, |response, request_stream| act(protocol, response, request_stream))
            }
            ConnectionRef::Over => Visited::Gone,
        }
    }

    /// The connection has news: who waits for them is returned.
    pub fn news(&mut self, response: &mut ResponseWriter<'_>, request_stream: &mut RequestStream) -> Waiters {
        self.has_left |= request_stream.body().is_some_and(|body| body.is_gone);
        let can_send = match &mut self.protocol {
            ProtocolState::Http(http) => http.go_on(response),
            ProtocolState::WebSocket(socket) => socket.go_on(response, request_stream),
        };
        let mut waiters = Waiters::default();
        if can_send {
            waiters.ready.append(&mut self.senders);
        }
        let can_receive = match &self.protocol {
            ProtocolState::Http(http) => http.has_message(request_stream),
            ProtocolState::WebSocket(socket) => socket.has_message(request_stream),
        };
        if can_receive {
            waiters.ready.append(&mut self.receivers);
        }
        if self.protocol.is_complete() {
            self.connection = ConnectionRef::Over;
        }
        waiters
    }

    /// The client has gone, or the engine has given the exchange up. Who waits for it is returned.
    pub fn disconnect(&mut self) -> Waiters {
        self.connection = ConnectionRef::Over;
        match &mut self.protocol {
            ProtocolState::Http(http) => http.disconnect(),
            ProtocolState::WebSocket(socket) => socket.disconnect(),
        }
        Waiters { ready: std::mem::take(&mut self.receivers), gone: std::mem::take(&mut self.senders) }
    }

    /// The next message, or a future that is done when there may be one. `None`: an exception is set.
    pub fn take_or_wait(object: &Object) -> Option<ReceiveResult> {
        let (asgi, event) = AsgiExchange::with(object, |exchange| (exchange.asgi, exchange.receive_event()));
        asgi.want_turn();
        if let Some(message) = event.into_message(asgi)? {
            return Some(ReceiveResult::Message(message));
        }
        let future = future(asgi)?;
        // A receive() with a time limit leaves a cancelled future behind: a stream that looks for its client's end once a second
        // must not gather one each second.
        let mut waiting = AsgiExchange::with(object, |exchange| std::mem::take(&mut exchange.receivers));
        waiting.retain(|receiver| !matches!(is_done(asgi, receiver), Some(true)));
        waiting.push(future.clone());
        AsgiExchange::with(object, |exchange| exchange.receivers.append(&mut waiting));
        Some(ReceiveResult::Wait(future))
    }

    fn receive_event(&mut self) -> ReceiveEvent {
        let visited = self.visit(|protocol, response, request_stream| match protocol {
            ProtocolState::Http(http) => http.receive(response, request_stream),
            ProtocolState::WebSocket(socket) => socket.receive(request_stream),
        });
        match visited {
            Visited::Done(event) => event,
            Visited::Away => ReceiveEvent::Nothing,
            Visited::Gone => self.protocol.last_message(),
        }
    }

    /// `send(message)`: says it, and returns a finished awaitable, or one that waits. `None`: an exception is set.
    pub fn send(object: &Object, mut event: SendEvent) -> Option<Object> {
        leave_if_child();
        let (asgi, result, waiters) = AsgiExchange::with(object, |exchange| {
            let result = exchange.deliver(&mut event);
            let waiters = exchange.after_sending(&result);
            (exchange.asgi, result, waiters)
        });
        waiters.wake(asgi);
        asgi.want_turn();
        match result {
            Ok(SendResult::Done) => Some(asgi.awaitables.done()),
            // SAFETY: the function lives as long as the loop; the coroutine is new.
            Ok(SendResult::Pause) => unsafe { call(asgi.callbacks.pause.as_ptr(), []) },
            Ok(SendResult::Wait) => {
                let future = future(asgi)?;
                let waiting = asgi.awaitables.waiting(&future)?;
                AsgiExchange::with(object, |exchange| exchange.senders.push(future));
                Some(waiting)
            }
            Err(refusal) => refusal.raise(asgi),
        }
    }

    /// Gives an event to the client. None of Python's objects in it is let go here.
    pub fn deliver(&mut self, event: &mut SendEvent) -> Result<SendResult, SendError> {
        let result = match (&self.protocol, &event) {
            (ProtocolState::Http(http), SendEvent::Http(event)) => http.may_send(event),
            (ProtocolState::WebSocket(socket), SendEvent::WebSocket(_)) if socket.is_disconnected() => Err(SendError::Gone),
            _ => Ok(()),
        };
        result?;
        if let (ProtocolState::Http(http), SendEvent::Http(event)) = (&mut self.protocol, &*event)
            && http.is_silent()
        {
            return http.swallow(event);
        }
        let visited = self.visit(|protocol, response, request_stream| match (protocol, event) {
            (ProtocolState::Http(http), SendEvent::Http(event)) => http.apply(event, response),
            (ProtocolState::WebSocket(socket), SendEvent::WebSocket(event)) => socket.apply(event, response, request_stream),
            _ => SendError::mistake("a message of HTTP was sent to a WebSocket, or the other way round"),
        });
        match visited {
            Visited::Done(result) => result,
            Visited::Away => SendError::mistake(
                "send() was called while the server attends to this connection, as from a `__del__`; nothing was sent",
            ),
            Visited::Gone => match &self.protocol {
                ProtocolState::WebSocket(socket) if socket.is_complete() => {
                    SendError::mistake("the WebSocket is closed: nothing may follow")
                }
                _ => Err(SendError::Lost),
            },
        }
    }

    /// The calls that go on after a `send()`, whether it succeeded or not.
    fn after_sending(&mut self, result: &Result<SendResult, SendError>) -> Waiters {
        if matches!(result, Err(SendError::Lost)) {
            return self.disconnect();
        }
        if result.is_err() || !self.protocol.is_complete() {
            return Waiters::default();
        }
        if let ConnectionRef::Parked(_) = self.connection {
            self.connection = ConnectionRef::Over;
        }
        // Nothing more will come; whoever waits for the client is told so.
        Waiters { ready: std::mem::take(&mut self.receivers), gone: Vec::new() }
    }
}

impl ProtocolState {
    /// All has been said to the client.
    pub fn is_complete(&self) -> bool {
        match self {
            ProtocolState::Http(http) => http.is_complete(),
            ProtocolState::WebSocket(socket) => socket.is_complete(),
        }
    }

    /// The client left before all was said.
    pub fn is_disconnected(&self) -> bool {
        match self {
            ProtocolState::Http(http) => http.is_disconnected(),
            ProtocolState::WebSocket(socket) => socket.is_disconnected(),
        }
    }

    /// The client has said that it leaves, or has left.
    pub fn has_ended(&self) -> bool {
        match self {
            ProtocolState::Http(http) => http.is_disconnected(),
            ProtocolState::WebSocket(socket) => socket.has_ended(),
        }
    }

    /// The application has begun to answer.
    pub fn has_begun(&self) -> bool {
        match self {
            ProtocolState::Http(http) => http.has_begun(),
            ProtocolState::WebSocket(_) => true,
        }
    }

    /// What `receive` finds when the connection is not ours any more.
    fn last_message(&mut self) -> ReceiveEvent {
        match self {
            ProtocolState::Http(_) => ReceiveEvent::Disconnect,
            ProtocolState::WebSocket(socket) => socket.last_message(),
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

/// # Safety
/// Called by Python only, with our exchange.
unsafe extern "C" fn receive(exchange: *mut ffi::PyObject, _nothing: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the callable was bound to an exchange, which lives through the call.
    let Some(object) = (unsafe { Object::borrowed(exchange) }) else { return std::ptr::null_mut() };
    let asgi = AsgiExchange::with(&object, |exchange| exchange.asgi);
    given(AsgiExchange::take_or_wait(&object).and_then(|received| match received {
        ReceiveResult::Message(message) => asgi.awaitables.ready(message),
        ReceiveResult::Wait(future) => asgi.awaitables.receiving(&future, object, AsgiExchange::take_or_wait),
    }))
}

/// # Safety
/// Called by Python only, with our exchange and a living object.
unsafe extern "C" fn send(exchange: *mut ffi::PyObject, message: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as above.
    let Some(object) = (unsafe { Object::borrowed(exchange) }) else { return std::ptr::null_mut() };
    let (asgi, is_http) =
        AsgiExchange::with(&object, |exchange| (exchange.asgi, matches!(exchange.protocol, ProtocolState::Http(_))));
    // Reading a message may run code of the application (a `__bool__`, say).
    let event = Message::new(asgi, message).and_then(|message| {
        Some(if is_http {
            SendEvent::Http(http::read(asgi, &message)?)
        } else {
            SendEvent::WebSocket(websocket::read(asgi, &message)?)
        })
    });
    given(event.and_then(|event| AsgiExchange::send(&object, event)))
}

fn given(object: Option<Object>) -> *mut ffi::PyObject {
    object.map_or(std::ptr::null_mut(), Object::into_ptr)
}
