//! The events of ASGI's two callables: the messages of `receive()`, and the results of a `send()`. `messages` reads the messages
//! of the application. It does not know about connections; the event loop's thread runs all of it.

use std::borrow::Cow;

use bolide_engine::request_stream::Part;
use bolide_engine::websocket::{CloseStatus, Message as SocketMessage, MessageKind};
use pyo3::ffi;

use super::context::Asgi;
use super::futures::GONE;
use super::names::set;
use crate::exceptions::{raise, runtime_error, value_error};
use crate::object::{Object, new_bytes, utf8};

/// An event for `receive()`, before it is converted to Python objects.
pub enum ReceiveEvent {
    Nothing,
    /// Of a request's body.
    Part(Part),
    /// The client of a request has disconnected, or the answer is complete.
    Disconnect,
    /// A WebSocket's handshake.
    Connect,
    Message(SocketMessage),
    /// The end of a WebSocket.
    End(CloseStatus),
}

impl ReceiveEvent {
    /// Returns the message for the application; `Some(None)`: there is none. `None`: an exception is set.
    pub fn into_message(self, asgi: &Asgi) -> Option<Option<Object>> {
        let message = match self {
            ReceiveEvent::Nothing => return Some(None),
            ReceiveEvent::Part(part) => request_message(asgi, &part.bytes, part.more),
            ReceiveEvent::Disconnect => copy_of(&asgi.disconnect_template),
            ReceiveEvent::Connect => connect_message(asgi),
            ReceiveEvent::Message(message) => received_message(asgi, message.kind, &message.payload),
            ReceiveEvent::End(close_status) => end_message(asgi, &close_status),
        };
        message.map(Some)
    }
}

/// The result of a successful `send()`.
pub enum SendResult {
    Done,
    /// The client is slow: the application has to wait.
    Wait,
    /// Other tasks have their turn before the application continues.
    Pause,
}

/// The reason of a failed `send()`: the exception that it raises in the application.
pub enum SendError {
    /// The message is not allowed after the earlier ones.
    Mistake(Cow<'static, str>),
    Value(String),
    Gone,
    /// The connection was lost, unnoticed until now.
    Lost,
}

impl SendError {
    pub fn mistake<T>(text: impl Into<Cow<'static, str>>) -> Result<T, SendError> {
        Err(SendError::Mistake(text.into()))
    }

    /// Sets the exception.
    pub fn raise<T>(&self, asgi: &Asgi) -> Option<T> {
        match self {
            SendError::Mistake(text) => raise(runtime_error(), text),
            SendError::Value(text) => raise(value_error(), text),
            SendError::Gone | SendError::Lost => raise(asgi.callbacks.client_disconnected.as_ptr(), GONE),
        }
    }
}

/// `http.request`. `None`: an exception is set.
fn request_message(asgi: &Asgi, body: &[u8], more: bool) -> Option<Object> {
    let message = copy_of(&asgi.request_template)?;
    if !body.is_empty() {
        set(&message, &asgi.names.body, new_bytes(body)?.as_ptr())?;
    }
    if more {
        // SAFETY: True is immortal.
        set(&message, &asgi.names.more_body, unsafe { ffi::Py_True() })?;
    }
    Some(message)
}

fn copy_of(template: &Object) -> Option<Object> {
    // SAFETY: a dictionary of ours; the copy is new.
    unsafe { Object::owned(ffi::PyDict_Copy(template.as_ptr())) }
}

/// `websocket.connect`. `None`: an exception is set.
fn connect_message(asgi: &Asgi) -> Option<Object> {
    message(asgi, &asgi.names.websocket_connect)
}

/// `websocket.disconnect`. `None`: an exception is set.
fn end_message(asgi: &Asgi, close_status: &CloseStatus) -> Option<Object> {
    let message = message(asgi, &asgi.names.websocket_disconnect)?;
    // SAFETY: the results are new; the dictionary takes references of its own.
    unsafe {
        let code = Object::owned(ffi::PyLong_FromLong(close_status.code.into()))?;
        set(&message, &asgi.names.code, code.as_ptr())?;
        set(&message, &asgi.names.reason, utf8(close_status.reason.as_bytes())?.as_ptr())?;
    }
    Some(message)
}

fn message(asgi: &Asgi, kind: &Object) -> Option<Object> {
    // SAFETY: the result is new.
    let message = unsafe { Object::owned(ffi::PyDict_New())? };
    set(&message, &asgi.names.kind, kind.as_ptr())?;
    Some(message)
}

/// `websocket.receive`. `None`: an exception is set.
fn received_message(asgi: &Asgi, kind: MessageKind, payload: &[u8]) -> Option<Object> {
    let names = &asgi.names;
    let message = message(asgi, &names.websocket_receive)?;
    // Only the key that has a value: applications check `"bytes" in message`.
    match kind {
        MessageKind::Text => set(&message, &names.text, utf8(payload)?.as_ptr())?,
        MessageKind::Binary => set(&message, &names.bytes, new_bytes(payload)?.as_ptr())?,
    }
    Some(message)
}
