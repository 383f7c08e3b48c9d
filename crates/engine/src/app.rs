//! The ONE seam between the engine and languages. An adapter implements [`Language`] (one for the process)
//! and [`App`] (one for each thread); the engine is compiled for it, so that a call costs a call.

use std::ops::ControlFlow;

use crate::request::Request;
use crate::request::request_stream::RequestStream;
use crate::response::ResponseWriter;

/// A language with its application loaded.
pub trait Language: Sync + 'static {
    type App: App;

    /// Prepares the calling thread; on return it may run the application's code (it holds the interpreter).
    ///
    /// # Errors
    /// What keeps this thread from running the language, as one sentence.
    fn enter(&self, thread: u32) -> Result<Self::App, String>;

    /// Makes a thread of the language's own kind that calls `body`; its first act there is [`Language::enter`].
    ///
    /// # Errors
    /// The system's or the language's reason why there is no further thread.
    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String>;
}

/// The application as one thread sees it.
pub trait App: Sized {
    /// The adapter's memory of a connection's header block, so that the same bytes need not be turned
    /// into the language's objects twice. It must be safe to drop on any thread that runs the language.
    type Memo: Send;

    /// A response that waits for its client to take more: an iterator and the chunk at which it stopped. Or, where
    /// the application [keeps exchanges](App::KEEPS_EXCHANGES), its name for one that it has kept.
    type Pending: Send;

    /// True: the application is called as soon as the head of a request is there, with the body in `request.request_stream` as it
    /// comes, and may switch to WebSocket there. False: it is called with the whole body in `request.body`.
    const STREAMS_BODY: bool = false;

    /// True: the application may keep an exchange beyond its call ([`Outcome::Ongoing`]). It comes back through
    /// [`crate::EmbeddedWorker::visit`], and checks the length of its answers itself ([`ResponseWriter::length_fault`]).
    const KEEPS_EXCHANGES: bool = false;

    /// Serves a request: calls the application and hands its answer to `response`, as far as the client takes it.
    fn call(&mut self, request: &mut Request<'_, Self::Memo>, response: &mut ResponseWriter<'_>) -> Outcome<Self::Pending>;

    /// Goes on with a suspended response; the client has taken what was buffered. It can't be kept from here on.
    fn resume(&mut self, pending: Self::Pending, response: &mut ResponseWriter<'_>) -> Outcome<Self::Pending>;

    /// Gives a suspended response or an ongoing exchange up: the client has gone. The application's `close()` runs.
    fn abandon(&mut self, pending: Self::Pending);

    /// Something about an ongoing exchange has changed: there is more from the client, or room for more to it, or it has gone. Once it has
    /// gone (its request stream has hung up) no answer may be begun: the engine may have to say what was wrong with the request.
    fn news(&mut self, _pending: &mut Self::Pending, _response: &mut ResponseWriter<'_>, _request_stream: &mut RequestStream) {}

    /// An ongoing exchange is over its time (`harakiri`): the application is told to give it up. The engine answers 504.
    fn overdue(&mut self, _pending: Self::Pending, _milliseconds: u64) {}

    /// Lets other threads of the process run the language, because this one is about to wait in the kernel.
    fn release(&mut self);

    /// Takes the language again after [`App::release`].
    fn acquire(&mut self);

    /// Does native work that may take long (a disk's, a hash's, an encoder's): other threads may run the language meanwhile. Nothing of
    /// the language may be touched in it.
    fn aside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.release();
        let result = work();
        self.acquire();
        result
    }

    /// Whether the ends of exchanges are to be told. Asked of a thread that may not have the language.
    fn hears_of_ends(&self) -> bool {
        false
    }

    /// An answer has left, or its client has gone; its line is not written yet, and may be changed.
    fn exchange_has_ended(&mut self, _response: &mut ResponseWriter<'_>) {}

    /// A signal interrupted the wait: the language may have handlers to run, on the thread that entered it first. `Break` asks for an ordered
    /// end of the worker.
    fn interrupted(&mut self) -> ControlFlow<()>;
}

/// The end of a call of the application.
#[derive(Debug)]
pub enum Outcome<Pending> {
    /// All that the application has to say is said (and possibly still in the response's buffer).
    Finished,
    /// The client is slow and the buffer is full, or it has had its turn: call `resume` when there is room again.
    Suspended(Pending),
    /// The application has the exchange in its hands and goes on by itself. Only of [`App::call`], and only where it [keeps exchanges](App::KEEPS_EXCHANGES).
    Ongoing(Pending),
    /// The application failed; the adapter has logged why. The engine answers 500, or closes when the head has left.
    Failed,
    /// As `Failed`, and the worker is to end after this answer: the application has asked the process to exit, or can't go on.
    FailedFatally,
    /// As one of these; what is still open of the application's is closed by [`App::abandon`] behind the engine's answer.
    FailedOpen { pending: Pending, is_fatal: bool },
}
