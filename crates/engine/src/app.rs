//! The only interface between the engine and languages. An adapter implements [`Language`] (once per process) and [`App`] (once
//! per thread). The engine is generic over them, so a call into the application costs a plain function call. Workers run it.

use std::ops::ControlFlow;

pub use bolide_scoreboard::Cancelled;
pub use bolide_services::leaks::Collection;

use crate::answer::Answer;
use crate::request::Request;
use crate::request::request_stream::RequestStream;
use crate::sampling::Sampler;

/// A language runtime with the application loaded.
pub trait Language: Sync + 'static {
    type App: App;

    /// Prepares the calling thread. On return it may run the application's code (it holds the interpreter).
    ///
    /// # Errors
    /// Why this thread can't run the language, as one sentence.
    fn enter(&self, thread: u32) -> Result<Self::App, String>;

    /// Starts a thread of the language's own kind that calls `body`, which begins with [`Language::enter`].
    ///
    /// # Errors
    /// The error of the system or the language.
    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String>;

    /// The worker begins to drain or to stop, and may get the order twice. The calling thread may not run the language.
    fn note_leaving(&self) {}

    /// Returns what reads the language's stacks for reports of slow requests, on the calling thread, which does not run the
    /// language. `None`: it can't be done.
    fn sampler(&self) -> Option<Box<dyn Sampler>> {
        None
    }
}

/// The permit of a request's bulkhead, which is given back when it is dropped.
pub type HeldPermit = Box<dyn Send>;

/// The application in one thread.
pub trait App: Sized {
    /// The adapter's cache for a connection's header block, so that the same bytes need not be converted to the language's
    /// objects twice. It must be safe to drop on any thread that runs the language.
    type Memo: Send;

    /// A response that waits for its client to read: an iterator and the chunk at which it stopped. Or, if the application [keeps
    /// exchanges](App::KEEPS_EXCHANGES), the handle of an exchange that it has kept.
    type Pending: Send;

    /// True: the application is called when the head of a request is complete, reads the body from `request.request_stream` as it
    /// arrives, and may switch to WebSocket. False: it is called with the complete body in `request.body`.
    const STREAMS_BODY: bool = false;

    /// True: the application may keep an exchange after its call has returned ([`Outcome::Ongoing`]). It continues through
    /// [`crate::EmbeddedWorker::visit`], and checks the length of its answers itself ([`Answer::length_fault`]).
    const KEEPS_EXCHANGES: bool = false;

    /// Serves a request: calls the application and gives its `answer`, as far as the client reads it.
    fn call(&mut self, request: &mut Request<'_, Self::Memo>, answer: &mut Answer<'_>) -> Outcome<Self::Pending>;

    /// Resumes a suspended response, after the client has read the buffered data. The application can no longer keep the
    /// exchange.
    fn resume(&mut self, pending: Self::Pending, answer: &mut Answer<'_>) -> Outcome<Self::Pending>;

    /// Aborts a suspended response or an ongoing exchange, because the client has disconnected. Runs the application's `close()`.
    fn abandon(&mut self, pending: Self::Pending);

    /// The state of an ongoing exchange has changed: data from the client has arrived, there is room for more data to it, or it
    /// has disconnected. After a disconnect (its request stream has hung up) the application must not begin an answer: the engine
    /// may have to answer with an error about the request.
    fn client_event(&mut self, _pending: &mut Self::Pending, _answer: &mut Answer<'_>, _request_stream: &mut RequestStream) {}

    /// What [`App::cancel`] would do to an ongoing exchange whose answer is not complete. `None`: its work can't be ended.
    fn cancels(&self, _pending: &Self::Pending) -> Option<Cancelled> {
        None
    }

    /// As [`App::abandon`], and the application's work for the exchange ends (`cancel-on-disconnect`).
    fn cancel(&mut self, pending: Self::Pending) {
        self.abandon(pending);
    }

    /// An ongoing exchange is about to end, and the application's work for it may go on: the request counts as one in progress
    /// until the permit is dropped, at the end of that work.
    fn keep_permit(&mut self, _pending: &Self::Pending, permit: HeldPermit) {
        drop(permit);
    }

    /// An ongoing exchange has exceeded its time limit (`harakiri`): the application must cancel it. The engine answers 504.
    fn overdue(&mut self, _pending: Self::Pending, _milliseconds: u64) {}

    /// Releases the language for other threads of the process, before this thread waits in the kernel.
    fn release(&mut self);

    /// Reacquires the language after [`App::release`].
    fn acquire(&mut self);

    /// Runs native work that may take long (disk I/O, hashing, compression) while other threads may run the language. The work
    /// must not touch the language's objects.
    fn aside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.release();
        let result = work();
        self.acquire();
        result
    }

    /// Whether the application wants to be notified of the end of exchanges. May be called by a thread that does not hold the
    /// language.
    fn observes_ends(&self) -> bool {
        false
    }

    /// An answer has been sent, or its client has disconnected. Its log line has not been written yet, and may be changed.
    fn exchange_has_ended(&mut self, _answer: &mut Answer<'_>) {}

    /// Whether the application decides which requests have a line in the log. May be called by a thread that does not hold the
    /// language.
    #[inline(always)]
    fn judges_requests(&self) -> bool {
        false
    }

    /// Whether a request that has ended has a line in the log.
    fn judge_request(&mut self, _request: &EndedRequest<'_>) -> bool {
        true
    }

    /// The small objects of the language that are in use, after a collection. The thread holds the language, and is not serving a
    /// request.
    fn objects(&mut self, _collection: Collection) -> Objects {
        Objects::default()
    }

    /// The address of the language's object that runs a kept exchange, such as a task: [`Language::sampler`] reads it. 0: there
    /// is none.
    fn address_of(&self, _pending: &Self::Pending) -> u64 {
        0
    }

    /// Runs the handler of a signal of uWSGI's, between two requests.
    fn signal(&mut self, number: u8) -> SignalOutcome;

    /// A signal of the kernel interrupted the wait. The language may have handlers to run, on the thread that entered it first.
    /// `Break` requests an orderly end of the worker.
    fn interrupted(&mut self) -> ControlFlow<()>;
}

/// A request that has ended, for its application's log.
#[derive(Debug, Clone, Copy)]
pub struct EndedRequest<'a> {
    pub address: &'a [u8],
    pub method: &'a [u8],
    /// Path and query, as the client sent them.
    pub target: &'a [u8],
    pub protocol: &'a [u8],
    pub status: u16,
    pub body_bytes: u64,
    pub microseconds: u64,
}

/// Objects of the language in use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Objects {
    pub count: u64,
    /// The application has turned its collector off, so nothing was collected.
    pub collector_is_off: bool,
}

/// The outcome of a signal's handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalOutcome {
    Handled,
    /// It failed; the adapter has logged why.
    Failed,
    /// Like `Failed`, and the worker must end: the handler has requested an exit.
    FailedFatally,
}

/// The outcome of a call of the application.
#[derive(Debug)]
pub enum Outcome<Pending> {
    /// The application has produced its whole answer, part of which may still be in the response's buffer.
    Finished,
    /// The client is slow and the buffer is full, or its turn is over: call `resume` when there is room again.
    Suspended(Pending),
    /// The application keeps the exchange and continues by itself. Only returned by [`App::call`], and only if the application
    /// [keeps exchanges](App::KEEPS_EXCHANGES).
    Ongoing(Pending),
    /// The application failed; the adapter has logged why. The engine answers 500, or closes the connection if the head has been
    /// sent.
    Failed,
    /// Like `Failed`, and the worker must end after this answer: the application has requested an exit, or can't continue.
    FailedFatally,
    /// Like `Failed` or `FailedFatally`; open resources of the application are closed by [`App::abandon`] after the engine's
    /// answer.
    FailedOpen { pending: Pending, is_fatal: bool },
}
