//! One request or WebSocket that the application handles: the state of its `receive` and `send`, the current place of the
//! connection, and the calls that wait.
//!
//! It does not know about sockets or protocol's bytes, which belong to the engine. The event loop's thread runs all of it.
//!
//! Python code may call back into this file whenever it runs, and it runs in more places than one sees: a loop's `call_soon`, an
//! object's `__del__`. So an exchange is borrowed only while no Python code runs ([`AsgiExchange::with`]), and the results are
//! turned into Python objects, exceptions and wake-ups afterwards.

use bolide_engine::answer::Answer;
use bolide_engine::app::HeldPermit;
use bolide_engine::forks::leave_if_child;
use bolide_engine::request_stream::RequestStream;
use bolide_engine::{ExchangeId, Visited};
use pyo3::ffi;

use super::awaitable::ReceiveResult;
use super::context::Asgi;
use super::events::{ReceiveEvent, SendError, SendResult};
use super::futures::{future, is_done, reject_gone, wake};
use super::http::{self, HttpSendEvent, HttpState};
use super::messages::Message;
use super::websocket::{self, WebSocketSendEvent, WebSocketState};
use crate::event_loop::hosted::Hosted;
use crate::faults::FaultPlace;
use crate::native::{Lasting, NativeType, bound, call, held};
use crate::object::Object;

/// One request or WebSocket of the application: the shared state of its `receive` and `send`.
pub struct AsgiExchange {
    pub asgi: &'static Asgi,
    pub connection: ConnectionRef,
    pub protocol: ProtocolState,
    /// The futures of waiting calls of `receive()` and of `send()`.
    pub receivers: Vec<Object>,
    pub senders: Vec<Object>,
    /// The application's task, if it continues after its first step.
    pub task: Option<Object>,
    /// The request's method and target, for the log; set with `task`.
    pub request_line: Vec<u8>,
    /// The request's identifier; empty if it has none.
    pub request_id: String,
    /// When the application got the request, in monotonic milliseconds; set with `task`.
    pub began_ms: u64,
    /// The application's number, for the counters; set with `task`.
    pub application: u32,
    /// The index in the list of ongoing exchanges; set with `task`.
    pub place: usize,
    /// The client has ended its side, as the engine has reported since `task` was set.
    pub has_left: bool,
    /// The permit of its bulkhead, if the task goes on without the engine's exchange.
    pub permit: Option<HeldPermit>,
}

/// An ongoing exchange, as the engine holds it.
pub struct ExchangeHandle(pub Object);

/// The present place of an exchange's connection.
#[derive(Clone, Copy)]
pub enum ConnectionRef {
    /// Lent by the call that gave the request to the application, by a caller higher in the stack.
    Lent { answer: *mut Answer<'static>, request_stream: *mut RequestStream },
    /// In the engine's connection table.
    Parked(ExchangeId),
    /// No longer ours: the answer is complete, or the client has disconnected.
    Over,
}

/// The protocol of an exchange, HTTP or WebSocket, and its state.
pub enum ProtocolState {
    Http(HttpState),
    WebSocket(Box<WebSocketState>),
}

/// A message of the application's `send()` (ASGI: "event"), after it was read from Python.
pub enum SendEvent {
    Http(HttpSendEvent),
    WebSocket(WebSocketSendEvent),
}

/// Futures of calls of `receive()` and `send()`, taken out of their exchange, to be completed while nothing of it is borrowed.
#[must_use]
#[derive(Default)]
pub struct Waiters {
    /// Calls that continue.
    ready: Vec<Object>,
    /// Calls of `send()` whose client has disconnected.
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

/// The callables `receive` and `send` of an exchange that the application gets.
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
            request_id: String::new(),
            began_ms: 0,
            application: 0,
            place: 0,
            has_left: false,
            permit: None,
        })?;
        let (receive, send) = (bound(&RECEIVE, &exchange)?, bound(&SEND, &exchange)?);
        Some(AsgiChannel { exchange, receive, send })
    }

    /// True if the application has released them, so that the next request can use them.
    pub fn is_free(&self) -> bool {
        /// Ours, and one of each callable.
        const OWN_REFERENCES: isize = 3;
        // SAFETY: the object lives as long as we refer to it.
        let references = unsafe { ffi::Py_REFCNT(self.exchange.as_ptr()) };
        references == OWN_REFERENCES && self.receive.is_unshared() && self.send.is_unshared()
    }

    /// Resets a free exchange for the next request.
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
    /// The request, for the log.
    pub fn place_in_log(&self) -> FaultPlace {
        FaultPlace::of_request(&self.request_line, &self.request_id)
    }

    /// Accesses the exchange that an object holds: no Python code may run in `act`.
    pub fn with<R>(object: &Object, act: impl FnOnce(&mut AsgiExchange) -> R) -> R {
        // SAFETY: the object is an exchange, and exchanges belong to the loop's thread. No Python code runs in `act`, so no
        // other code uses its value at the same time.
        act(unsafe { held::<AsgiExchange>(object.as_ptr()) })
    }

    /// Visits the connection at its present place; no Python code may run in `act`. A visit may leave work to do:
    /// [`Asgi::want_turn`] schedules it.
    pub fn visit<R>(&mut self, act: impl FnOnce(&mut ProtocolState, &mut Answer<'_>, &mut RequestStream) -> R) -> Visited<R> {
        match self.connection {
            ConnectionRef::Lent { answer, request_stream } => {
                // SAFETY: the engine lent us both for the call that is on the stack below us; that call does not touch them while
                // the application runs, and takes them back (`Parked` or `Over`) before it returns. `act` does not come back
                // here.
                let (answer, request_stream) = unsafe { (&mut *answer, &mut *request_stream) };
                Visited::Done(act(&mut self.protocol, answer, request_stream))
            }
            ConnectionRef::Parked(id) => {
                let Some(embedded) = self.asgi.embedded() else { return Visited::Gone };
                let protocol = &mut self.protocol;
                embedded.visit(id, |answer, request_stream| act(protocol, answer, request_stream))
            }
            ConnectionRef::Over => Visited::Gone,
        }
    }

    /// The connection has events: returns the calls that wait for them.
    pub fn client_event(&mut self, answer: &mut Answer<'_>, request_stream: &mut RequestStream) -> Waiters {
        self.has_left |= request_stream.body().is_some_and(|body| body.is_gone);
        let can_send = match &mut self.protocol {
            ProtocolState::Http(http) => http.go_on(answer),
            ProtocolState::WebSocket(socket) => socket.go_on(answer, request_stream),
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

    /// Whether its task ends if it is cancelled. An application learns the end of a WebSocket by a message, and a thread would go
    /// on without the task that waits for it.
    pub fn may_be_cancelled(&self) -> bool {
        let is_bridged = self.asgi.bridged.get(self.application as usize).copied().unwrap_or_default();
        matches!(self.protocol, ProtocolState::Http(_)) && self.task.is_some() && !is_bridged
    }

    /// The client has disconnected, or the engine has given the exchange up. Returns the calls that wait for it.
    pub fn disconnect(&mut self) -> Waiters {
        self.connection = ConnectionRef::Over;
        match &mut self.protocol {
            ProtocolState::Http(http) => http.disconnect(),
            ProtocolState::WebSocket(socket) => socket.disconnect(),
        }
        Waiters { ready: std::mem::take(&mut self.receivers), gone: std::mem::take(&mut self.senders) }
    }

    /// Returns the next message, or a future that is done when there may be one. `None`: an exception is set.
    pub fn take_or_wait(object: &Object) -> Option<ReceiveResult> {
        let (asgi, event) = AsgiExchange::with(object, |exchange| (exchange.asgi, exchange.receive_event()));
        asgi.want_turn();
        if let Some(message) = event.into_message(asgi)? {
            return Some(ReceiveResult::Message(message));
        }
        let future = future(asgi)?;
        // A receive() with a time limit leaves a cancelled future behind: a stream that checks for its client's end once a second
        // must not collect one each second.
        let mut waiting = AsgiExchange::with(object, |exchange| std::mem::take(&mut exchange.receivers));
        waiting.retain(|receiver| !matches!(is_done(asgi, receiver), Some(true)));
        waiting.push(future.clone());
        AsgiExchange::with(object, |exchange| exchange.receivers.append(&mut waiting));
        Some(ReceiveResult::Wait(future))
    }

    fn receive_event(&mut self) -> ReceiveEvent {
        let visited = self.visit(|protocol, answer, request_stream| match protocol {
            ProtocolState::Http(http) => http.receive(answer, request_stream),
            ProtocolState::WebSocket(socket) => socket.receive(request_stream),
        });
        match visited {
            Visited::Done(event) => event,
            Visited::Away => ReceiveEvent::Nothing,
            Visited::Gone => self.protocol.last_message(),
        }
    }

    /// `send(message)`: delivers the message, and returns a finished awaitable, or one that waits. `None`: an exception is set.
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

    /// Delivers an event to the client. No Python object in it is dropped here.
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
        let visited = self.visit(|protocol, answer, request_stream| match (protocol, event) {
            (ProtocolState::Http(http), SendEvent::Http(event)) => {
                let result = http.apply(event, answer);
                // RFC 9110 section 15.5.14: the rest of a body that is too large is not read, so the connection can't go on.
                if event.refuses_body() && request_stream.body().is_some_and(|body| !body.is_complete()) {
                    answer.close_after();
                }
                result
            }
            (ProtocolState::WebSocket(socket), SendEvent::WebSocket(event)) => socket.apply(event, answer, request_stream),
            _ => SendError::mistake("an HTTP message was sent to a WebSocket, or the other way round"),
        });
        match visited {
            Visited::Done(result) => result,
            Visited::Away => SendError::mistake(
                "send() was called while the server is handling this connection, as from a `__del__`; nothing was sent",
            ),
            Visited::Gone => match &self.protocol {
                ProtocolState::WebSocket(socket) if socket.is_complete() => {
                    SendError::mistake("the WebSocket is closed: nothing may follow")
                }
                _ => Err(SendError::Lost),
            },
        }
    }

    /// Returns the calls that continue after a `send()`, whether it succeeded or not.
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
        // No message will follow, and calls that wait are told so.
        Waiters { ready: std::mem::take(&mut self.receivers), gone: Vec::new() }
    }
}

impl ProtocolState {
    /// True if the answer is complete.
    pub fn is_complete(&self) -> bool {
        match self {
            ProtocolState::Http(http) => http.is_complete(),
            ProtocolState::WebSocket(socket) => socket.is_complete(),
        }
    }

    /// True if the client disconnected before the answer was complete.
    pub fn is_disconnected(&self) -> bool {
        match self {
            ProtocolState::Http(http) => http.is_disconnected(),
            ProtocolState::WebSocket(socket) => socket.is_disconnected(),
        }
    }

    /// True if the client has announced its end, or has disconnected.
    pub fn has_ended(&self) -> bool {
        match self {
            ProtocolState::Http(http) => http.is_disconnected(),
            ProtocolState::WebSocket(socket) => socket.has_ended(),
        }
    }

    /// True if the application has begun to answer.
    pub fn has_begun(&self) -> bool {
        match self {
            ProtocolState::Http(http) => http.has_begun(),
            ProtocolState::WebSocket(_) => true,
        }
    }

    /// The message of `receive` when the connection is no longer ours.
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
