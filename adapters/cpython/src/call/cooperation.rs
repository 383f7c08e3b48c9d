//! What the calls of a request need from a worker whose requests share a thread as greenlets: a visit to an answer that the
//! engine keeps in the meantime, and a wait that lets other requests run. Such a worker registers itself here; in others nothing
//! is registered, and calls use the answer that they were lent, and wait in the kernel.
//!
//! It does not know about greenlets. The thread that holds the interpreter runs it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::OnceLock;

use bolide_engine::ExchangeId;
use bolide_engine::answer::Answer;
use bolide_engine::request_stream::RequestStream;
use bolide_engine::websocket::Message;
use nix::sys::eventfd::EventFd;

use crate::object::Object;

/// A worker whose requests share a thread.
pub trait Cooperation: Sync {
    /// Lets `act` use an exchange that the engine keeps. False: there is none of this name any more.
    fn visit(&self, id: ExchangeId, act: &mut dyn FnMut(&mut Answer<'_>, &mut RequestStream)) -> bool;

    /// Lets other requests run until the engine reports an event of the client. `None`: an exception is set.
    fn wait(&self, client: &ClientEvent) -> Option<()>;

    /// Returns the `environ` of the request that the current greenlet serves.
    fn environ(&self) -> Option<Object>;

    /// Lets other requests run once. The engine keeps the answer of the current request from then on. `None`: an exception is
    /// set.
    fn pause(&self) -> Option<()>;
}

/// An event of a request's client: it has read or sent something, or has gone.
#[derive(Default)]
pub struct ClientEvent {
    /// The request has become a WebSocket. Such a state is not used for another request.
    pub has_websocket: Cell<bool>,
    /// The Python object that greenlets wait for, once one has waited.
    pub event: RefCell<Option<Object>>,
    /// The number of greenlets that wait for it.
    pub waiting: Cell<u32>,
    /// Messages of a WebSocket that has ended, which the application has not taken.
    pub left: RefCell<VecDeque<Message>>,
    /// `uwsgi.connection_fd()`: readable while the application could take a message.
    pub descriptor: OnceCell<EventFd>,
}

impl ClientEvent {
    /// The engine has news of a WebSocket: a program that watches the descriptor learns it, and messages that come before the end
    /// are kept.
    pub fn note(&self, request_stream: &mut RequestStream) {
        if let RequestStream::Messages(websocket) = request_stream {
            if websocket.close_status().is_some() {
                self.left.borrow_mut().extend(std::iter::from_fn(|| websocket.take()));
            }
            if websocket.has_event() {
                self.show();
            }
        }
    }

    /// Makes the descriptor readable.
    pub fn show(&self) {
        if let Some(descriptor) = self.descriptor.get() {
            // If the counter is full, it is readable already.
            let _ = descriptor.write(1);
        }
    }

    /// There is no message: the descriptor is readable at the next one.
    pub fn hide(&self) {
        if let Some(descriptor) = self.descriptor.get() {
            // An empty counter is not readable.
            let _ = descriptor.read();
        }
    }
}

static COOPERATION: OnceLock<&'static dyn Cooperation> = OnceLock::new();

/// Registers the worker, once.
pub fn register(worker: &'static dyn Cooperation) {
    let _made_once = COOPERATION.set(worker);
}

pub fn cooperation() -> Option<&'static dyn Cooperation> {
    COOPERATION.get().copied()
}

/// Lets `act` use an exchange that the engine keeps.
pub fn visit<R>(id: ExchangeId, act: impl FnOnce(&mut Answer<'_>, &mut RequestStream) -> R) -> Option<R> {
    let (mut act, mut result) = (Some(act), None);
    cooperation()?.visit(id, &mut |answer, request_stream| {
        if let Some(act) = act.take() {
            result = Some(act(answer, request_stream));
        }
    });
    result
}
