//! ASGI: asynchronous applications, served from within their own event loop.
//!
//! [`Asgi`] is the state of a worker, [`AsgiThread`] the interface that the engine calls. This file alone knows all the others in
//! the directory. All of it runs on the event loop's thread, which holds the interpreter: the engine's poll is one of the
//! descriptors that the loop watches.

mod awaitable;
mod context;
mod events;
mod exchange;
mod futures;
mod http;
mod messages;
mod names;
mod scope;
mod task;
mod task_factory;
mod websocket;
pub mod worker;

use std::borrow::Cow;
use std::ops::ControlFlow;

use bolide_contract::clock::now_ms;
use bolide_engine::answer::{Answer, Failure};
use bolide_engine::app::{App, Cancelled, HeldPermit, Language, Outcome};
use bolide_engine::request::Request;
use bolide_engine::request_stream::RequestStream;
use bolide_engine::sampling::Sampler;

use crate::exceptions::{keeping_exception, lookup_error, raise, runtime_error};
use crate::faults::{described, failed, request_id};
use crate::names::Methods;
use crate::native::NativeType;
use crate::sampling::{Kept, PythonSampler};
use crate::services::inboxes;
use context::Asgi;
use exchange::{AsgiChannel, AsgiExchange, ConnectionRef, ExchangeHandle, ProtocolState};
use futures::is_done;
use http::HttpState;
use names::AsgiNames;
use scope::{ScopeMemo, Scopes};
use websocket::WebSocketState;

/// The application as the engine calls it.
pub struct AsgiThread {
    asgi: &'static Asgi,
    scopes: Scopes,
    exchanges: NativeType<AsgiExchange>,
    /// The callables of the last request, to be used for the next one.
    spare: Option<AsgiChannel>,
}

impl Language for Asgi {
    type App = AsgiThread;

    fn enter(&self, _thread: u32) -> Result<AsgiThread, String> {
        let templates = self.templates.take().ok_or("an event loop has only one thread, which exists already")?;
        let names = AsgiNames::new().ok_or("out of memory")?;
        let methods = Methods::new().ok_or("out of memory")?;
        // SAFETY: the engine asks for a `&'static` language, and this one is: it is never freed (see worker.rs).
        let asgi: &'static Asgi = unsafe { &*std::ptr::from_ref(self) };
        // SAFETY: the type has no slot except the one that frees its objects.
        let exchanges = unsafe { NativeType::new(c"bolide._native.Exchange", &[]) }.ok_or("out of memory")?;
        let scopes = Scopes::new(names, methods, templates).ok_or("out of memory")?;
        Ok(AsgiThread { asgi, scopes, exchanges, spare: None })
    }

    fn spawn(&self, _name: String, _body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        Err("an event loop has only one thread".to_owned())
    }

    fn note_leaving(&self) {
        inboxes::note_leaving();
    }

    fn sampler(&self) -> Option<Box<dyn Sampler>> {
        Some(Box::new(PythonSampler::new(Kept::Task)))
    }
}

impl App for AsgiThread {
    type Memo = ScopeMemo;
    type Pending = ExchangeHandle;
    const STREAMS_BODY: bool = true;
    const KEEPS_EXCHANGES: bool = true;

    fn call(&mut self, request: &mut Request<'_, ScopeMemo>, answer: &mut Answer<'_>) -> Outcome<ExchangeHandle> {
        if self.asgi.ongoing.count() >= self.asgi.most_running {
            answer.fail(Failure::Busy);
            return Outcome::Finished;
        }
        let outcome = self.begin(request, answer);
        outcome.unwrap_or_else(|| failed(&self.asgi.fault_log, &described(request)))
    }

    fn resume(&mut self, pending: ExchangeHandle, _answer: &mut Answer<'_>) -> Outcome<ExchangeHandle> {
        // Ongoing exchanges get events; they are never suspended.
        Outcome::Ongoing(pending)
    }

    fn abandon(&mut self, pending: ExchangeHandle) {
        task::note_left(self.asgi, &pending.0);
        AsgiExchange::with(&pending.0, AsgiExchange::disconnect).wake(self.asgi);
    }

    fn client_event(&mut self, pending: &mut ExchangeHandle, answer: &mut Answer<'_>, request_stream: &mut RequestStream) {
        AsgiExchange::with(&pending.0, |exchange| exchange.client_event(answer, request_stream)).wake(self.asgi);
    }

    fn cancels(&self, pending: &ExchangeHandle) -> Option<Cancelled> {
        AsgiExchange::with(&pending.0, |exchange| exchange.may_be_cancelled()).then_some(Cancelled::Running)
    }

    fn cancel(&mut self, pending: ExchangeHandle) {
        let object = pending.0.clone();
        self.abandon(pending);
        task::cancel_left(&object);
    }

    fn keep_permit(&mut self, pending: &ExchangeHandle, permit: HeldPermit) {
        AsgiExchange::with(&pending.0, |exchange| exchange.permit = Some(permit).filter(|_| exchange.task.is_some()));
    }

    fn overdue(&mut self, pending: ExchangeHandle, milliseconds: u64) {
        task::cancel_overdue(&pending.0, milliseconds);
    }

    fn release(&mut self) {}

    fn acquire(&mut self) {}

    fn address_of(&self, pending: &ExchangeHandle) -> u64 {
        AsgiExchange::with(&pending.0, |exchange| exchange.task.as_ref().map_or(0, |task| task.as_ptr().addr() as u64))
    }

    crate::call::of_the_process!();

    fn interrupted(&mut self) -> ControlFlow<()> {
        // The loop itself handles signals.
        ControlFlow::Continue(())
    }
}

impl AsgiThread {
    /// Passes a request to its application, and runs that up to its first wait. `None`: an exception is set.
    fn begin(&mut self, request: &mut Request<'_, ScopeMemo>, answer: &mut Answer<'_>) -> Option<Outcome<ExchangeHandle>> {
        let asgi = self.asgi;
        let choice = match asgi.mounts.choose(&request.parts) {
            Ok(choice) => choice,
            Err(problem) => return raise(lookup_error(), &problem),
        };
        let number = choice.number;
        // In ASGI, no root path ends with a slash.
        let kept = request.forwarded.and_then(|forwarded| forwarded.below(request.parts.path()));
        let mount = kept.or(choice.below).map_or(&b""[..], |(mount, _)| mount.strip_suffix(b"/").unwrap_or(mount));
        let root_path = match (request.script_name, mount) {
            (b"", root_path) | (root_path, b"") => Cow::Borrowed(root_path),
            (prefix, mount) => Cow::Owned([prefix, mount].concat()),
        };
        let scope = self.scopes.make(request, number, &root_path)?;
        let Some(request_stream) = request.request_stream.as_deref_mut() else {
            return raise(runtime_error(), "a request came without its body's flow");
        };
        let answer = std::ptr::from_mut(answer).cast();
        let connection = ConnectionRef::Lent { answer, request_stream };
        let protocol = match request.handshake.take() {
            Some(handshake) => ProtocolState::WebSocket(Box::new(WebSocketState::new(handshake))),
            None => ProtocolState::Http(HttpState::new()),
        };
        let channel = match self.spare.take() {
            Some(spare) => {
                spare.renew(connection, protocol);
                spare
            }
            None => AsgiChannel::new(asgi, &self.exchanges, connection, protocol)?,
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
        if is_done(asgi, &task)? {
            let outcome = task::ended_at_once(asgi, &channel.exchange, &task, connection, || described(request));
            drop(task);
            if channel.is_free() {
                self.spare = Some(channel);
            }
            return Some(outcome);
        }
        task::follow(asgi, &channel.exchange, task)?;
        let is_complete = AsgiExchange::with(&channel.exchange, |exchange| {
            exchange.request_line = request.parts.line();
            exchange.request_id.clear();
            exchange.request_id.push_str(request_id(request));
            exchange.application = request.log_facts.application;
            exchange.began_ms = now_ms();
            exchange.has_left = false;
            let is_complete = exchange.protocol.is_complete();
            if !is_complete {
                exchange.connection = ConnectionRef::Parked(request.id);
            }
            is_complete
        });
        // Work of the application after its answer does not concern the engine.
        Some(if is_complete { Outcome::Finished } else { Outcome::Ongoing(ExchangeHandle(channel.exchange)) })
    }
}
