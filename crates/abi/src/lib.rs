//! The interface between Bolide and the adapter of a language that is a library: two tables of functions, in terms of C.
//! `bolide_app.h` is made from this file, comments included.
//!
//! It contains declarations only, and does not depend on the engine or a language. Prototypes and workers of plugins use it.

// The names are those of C, so that a reader of the header finds them here.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

/// The version of this interface. It changes only if an adapter of an earlier version would no longer work. Members are added at
/// the ends of the structures, and `size` tells which of them the other side knows.
pub const BOLIDE_ABI_VERSION: u32 = 1;

/// The answer is complete. The host sends what is left of it.
pub const BOLIDE_FINISHED: u32 = 0;
/// The client is slow, or its turn is over: the host calls `resume` when there is room again, or `abandon`. `*pending` is set.
pub const BOLIDE_SUSPENDED: u32 = 1;
/// The application failed, and the adapter has logged why. The host answers 500, or breaks the answer off if a part of it was
/// sent. If `*pending` is set, the host calls `abandon` afterwards.
pub const BOLIDE_FAILED: u32 = 2;
/// As `BOLIDE_FAILED`, and this worker must end, because the application can't go on in it.
pub const BOLIDE_FAILED_FATALLY: u32 = 3;

/// The adapter keeps the exchange, and continues it in `client_event` or by `visit`. Only for an adapter that has `run`. The
/// answer ends with `finish` or `fail`. When the exchange is over, complete or not, the host calls `abandon` once.
pub const BOLIDE_ONGOING: u32 = 4;

/// `push` and `write` return this if the client is gone.
pub const BOLIDE_GONE: usize = usize::MAX;

/// Flag of `push`: another part follows before the application runs again, so this one may wait for it.
pub const BOLIDE_WITH_THE_NEXT: u32 = 1;
/// Flag of `push_file`: the file is the whole body, so its length is the answer's.
pub const BOLIDE_WHOLE_BODY: u32 = 1;
/// Flag of `finish`: code of the application runs before the call returns, so the client gets the end first.
pub const BOLIDE_MORE_CODE: u32 = 1;

/// Bit of `state`: the head was sent and can't be changed.
pub const BOLIDE_HEAD_IS_SENT: u32 = 1;
/// Bit of `state`: the status was set.
pub const BOLIDE_HAS_STATUS: u32 = 2;
/// Bit of `state`: the client has disconnected.
pub const BOLIDE_CLIENT_IS_GONE: u32 = 4;
/// Bit of `state`: the client reads in time and has not had its turn. Without it the adapter returns `BOLIDE_SUSPENDED`.
pub const BOLIDE_HAS_ROOM: u32 = 8;
/// Bit of `state`: the answer consists of a head alone (HEAD, 204, 304), so the body need not be produced.
pub const BOLIDE_HAS_NO_BODY: u32 = 16;
/// Bit of `state`: the application has set Content-Length.
pub const BOLIDE_HAS_LENGTH: u32 = 32;
/// Bit of `state`: the connection belongs to the application (`take_over`).
pub const BOLIDE_IS_TAKEN_OVER: u32 = 64;

/// Bit of `take_body`: more of the body may follow.
pub const BOLIDE_MORE_BODY: u32 = 1;
/// Bit of `take_body`: there was something new, if only the end.
pub const BOLIDE_HAS_PART: u32 = 2;
/// Bit of `take_body`: the client has disconnected, or will not send more.
pub const BOLIDE_SENDS_NO_MORE: u32 = 4;

/// `turn`: there is nothing to wait for but the descriptor.
pub const BOLIDE_NO_TIMER: i64 = -1;
/// `turn`: there is more to do, so the next turn follows the tasks of the adapter that are ready.
pub const BOLIDE_AGAIN: i64 = -2;
/// `turn`: the worker has drained. `run` ends its loop and returns.
pub const BOLIDE_DRAINED: i64 = -3;

/// `visit`: the function was called.
pub const BOLIDE_VISITED: u32 = 0;
/// `visit`: the exchange is with a caller higher in the stack.
pub const BOLIDE_AWAY: u32 = 1;
/// `visit`: the exchange has ended.
pub const BOLIDE_ENDED: u32 = 2;

/// Flag of an adapter: its language can't be forked, so each worker loads the application itself.
pub const BOLIDE_LOADS_AFTER_FORK: u32 = 1;
/// Flag of an adapter: its language runs in one thread of a process, so `threads` of more than 1 is refused.
pub const BOLIDE_ONE_THREAD: u32 = 2;

/// Bytes of the side that has made them. They are valid until the call returns, unless a comment says otherwise. `data` is never
/// NULL, and no 0 follows the bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bolide_text {
    pub data: *const c_char,
    pub size: usize,
}

/// A name and its value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bolide_pair {
    pub name: bolide_text,
    pub value: bolide_text,
}

/// The instance, for `start`. All of it stays valid as long as the process.
#[repr(C)]
pub struct bolide_instance {
    pub size: u32,
    /// The number of worker processes, and of threads in each.
    pub processes: u32,
    pub threads: u32,
    /// How often the instance has loaded the application, this time included.
    pub generation: u32,
    /// The server and its version: `bolide/1.0`.
    pub software: bolide_text,
    /// The options of the plugin in the order of the configuration. `lua-path = /srv` is `path` and `/srv` for `plugin = lua`.
    pub options: *const bolide_pair,
    pub option_count: usize,
}

/// The body of a request. It is valid until the exchange ends: until `call` or `resume` returns something else than
/// `BOLIDE_SUSPENDED`, or `abandon` returns.
#[repr(C)]
pub struct bolide_body {
    /// The body in memory, if `descriptor` is -1.
    pub data: *const c_char,
    /// The length of the body in bytes.
    pub size: u64,
    /// A file with the body from its start on, or -1. It is the host's: the adapter does not close it, and may read and seek.
    pub descriptor: c_int,
}

/// A request. It is the host's, and valid until `call` returns. Only the thread of that call may use it.
pub enum bolide_request {}

/// An answer. It is the host's, and valid until the call that was given it returns. Only the thread of that call may use it.
pub enum bolide_answer {}

/// The body of a request as it arrives, for an adapter that has `run`. It is the host's, and valid until the call that was
/// given it returns.
pub enum bolide_stream {}

/// The worker inside the loop of an adapter that has `run`. It is the host's, and valid until `run` returns. Only its thread may
/// use it.
pub enum bolide_loop {}

/// An exchange that an adapter keeps. The same one never comes again.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bolide_exchange {
    pub connection: u64,
    pub stream: u32,
}

/// The functions of Bolide. The table is valid as long as the process. None of its functions calls the application, keeps a
/// pointer that it is given, or unwinds. An adapter must not jump over them with longjmp or an exception either.
#[repr(C)]
pub struct bolide_host {
    /// `BOLIDE_ABI_VERSION` of the host.
    pub version: u32,
    /// The size of this table in bytes. A member beyond it does not exist.
    pub size: u32,

    /// Writes lines to the log as the application's. A line end after the last one is not needed. It never waits for a reader.
    pub log: unsafe extern "C" fn(lines: *const c_char, size: usize),
    /// Tells why the function of the adapter that is about to return a failure fails, as one sentence for people.
    pub explain: unsafe extern "C" fn(reason: *const c_char, size: usize),

    /// Makes the variables of the request: those of CGI/1.1 (RFC 3875), REQUEST_URI, REMOTE_PORT, REQUEST_SCHEME, those of TLS,
    /// and those that a reverse proxy or a route has set. Returns their number and sets `*pairs`.
    pub variables: unsafe extern "C" fn(request: *mut bolide_request, pairs: *mut *const bolide_pair) -> usize,
    /// Finds one of them by its name. Returns 0 if there is none.
    pub variable:
        unsafe extern "C" fn(request: *mut bolide_request, name: *const c_char, size: usize, value: *mut bolide_text) -> c_int,
    /// Returns the fields of the header as the client has sent them, in order. There are none if a reverse proxy speaks the uwsgi
    /// protocol, SCGI or FastCGI.
    pub fields: unsafe extern "C" fn(request: *mut bolide_request, pairs: *mut *const bolide_pair) -> usize,
    /// Returns the body, which has arrived completely.
    pub body: unsafe extern "C" fn(request: *mut bolide_request, body: *mut bolide_body),
    /// Returns the number of the application that the request is for, as `load` was given it.
    pub application: unsafe extern "C" fn(request: *mut bolide_request) -> u32,

    /// Begins the head of the answer, or begins it again: `200 OK`, or only `200`. Returns an empty text, or why the status is
    /// refused, which is valid as long as the process.
    pub status: unsafe extern "C" fn(answer: *mut bolide_answer, status: *const c_char, size: usize) -> bolide_text,
    /// Adds a field to the head. A field that only the server may set, such as Connection, is dropped, and its meaning is obeyed.
    /// After `Transfer-Encoding: chunked` the parts of the body are chunks. Returns as `status`.
    pub field: unsafe extern "C" fn(
        answer: *mut bolide_answer,
        name: *const c_char,
        name_size: usize,
        value: *const c_char,
        value_size: usize,
    ) -> bolide_text,
    /// Sets the length of the body if the application has not.
    pub set_length: unsafe extern "C" fn(answer: *mut bolide_answer, length: u64),
    /// Discards a head that was refused, so that the answer can begin again. A head that was sent stays.
    pub retract: unsafe extern "C" fn(answer: *mut bolide_answer),
    /// Passes a part of the body. Returns how much of it was taken: if that is not all, the adapter keeps the rest, returns
    /// `BOLIDE_SUSPENDED`, and passes the rest in `resume`. After a part that was taken it looks for `BOLIDE_HAS_ROOM` in
    /// `state`.
    pub push: unsafe extern "C" fn(answer: *mut bolide_answer, part: *const c_char, size: usize, flags: u32) -> usize,
    /// Passes a part of the body in a call that can't be suspended: it waits until the client has read enough. It returns `size`,
    /// or `BOLIDE_GONE`. While it waits, it has called `release`. An adapter with `without_lock` calls it without the lock.
    pub write: unsafe extern "C" fn(answer: *mut bolide_answer, part: *const c_char, size: usize) -> usize,
    /// Passes `length` bytes of a file from `offset`. The host takes a copy of the descriptor. Returns 0, or -1 if the body must
    /// be passed otherwise. Nothing else may be passed in the same call. An adapter that has more to send returns
    /// `BOLIDE_SUSPENDED`.
    pub push_file:
        unsafe extern "C" fn(answer: *mut bolide_answer, descriptor: c_int, offset: i64, length: u64, flags: u32) -> c_int,
    /// Sends the head and what was passed, as far as the client reads.
    pub flush: unsafe extern "C" fn(answer: *mut bolide_answer),
    /// Ends the answer before the call returns.
    pub finish: unsafe extern "C" fn(answer: *mut bolide_answer, flags: u32),
    /// Answers with this status in the application's place, or breaks the answer off if a part of it was sent.
    pub fail: unsafe extern "C" fn(answer: *mut bolide_answer, status: u32),
    /// Sends a response before the answer, such as `103 Early Hints`, if the client can take it. Returns as `status`.
    pub inform:
        unsafe extern "C" fn(answer: *mut bolide_answer, status: u32, fields: *const bolide_pair, count: usize) -> bolide_text,
    /// Adds a field after the body. It is dropped if the framing of the answer does not allow it. Returns as `status`.
    pub trailer: unsafe extern "C" fn(
        answer: *mut bolide_answer,
        name: *const c_char,
        name_size: usize,
        value: *const c_char,
        value_size: usize,
    ) -> bolide_text,
    /// Announces that trailers follow. It is called before the fields of the head.
    pub announce_trailers: unsafe extern "C" fn(answer: *mut bolide_answer),
    /// Closes the connection after this answer.
    pub close_after: unsafe extern "C" fn(answer: *mut bolide_answer),
    /// Gives the connection to the application. Returns a descriptor that the adapter closes, or -1 with a reason in the log.
    pub take_over: unsafe extern "C" fn(answer: *mut bolide_answer) -> c_int,
    /// Returns the bits `BOLIDE_HEAD_IS_SENT` and following.
    pub state: unsafe extern "C" fn(answer: *const bolide_answer) -> u32,
    /// Sets a variable of the request's log line.
    pub note: unsafe extern "C" fn(
        answer: *mut bolide_answer,
        name: *const c_char,
        name_size: usize,
        value: *const c_char,
        value_size: usize,
    ),

    // For an adapter that has `run`.
    /// Returns the descriptor that the adapter's loop watches for reading.
    pub loop_descriptor: unsafe extern "C" fn(worker: *mut bolide_loop) -> c_int,
    /// The loop begins: connections are accepted from now on.
    pub loop_start: unsafe extern "C" fn(worker: *mut bolide_loop),
    /// Attends to connections when the descriptor is readable, or the time of the last turn is over. It calls `call`,
    /// `client_event` and `abandon`. Returns milliseconds to wait at most, or `BOLIDE_NO_TIMER` and following.
    pub turn: unsafe extern "C" fn(worker: *mut bolide_loop) -> i64,
    /// Returns 1 if a visit has left work to do, for which the descriptor does not become readable. A loop asks once after its
    /// visits, and calls `turn` then.
    pub wants_turn: unsafe extern "C" fn(worker: *mut bolide_loop) -> c_int,
    /// Returns by which `visit` finds the exchange of a request.
    pub exchange: unsafe extern "C" fn(request: *mut bolide_request) -> bolide_exchange,
    /// Calls `act` with the answer and the body of an exchange that the adapter keeps. Returns `BOLIDE_VISITED` and following.
    pub visit: unsafe extern "C" fn(
        worker: *mut bolide_loop,
        exchange: bolide_exchange,
        act: unsafe extern "C" fn(argument: *mut c_void, answer: *mut bolide_answer, stream: *mut bolide_stream),
        argument: *mut c_void,
    ) -> u32,
    /// Returns the body of a request as it arrives, or NULL if it is complete and `body` returns it.
    pub stream: unsafe extern "C" fn(request: *mut bolide_request) -> *mut bolide_stream,
    /// Takes what has arrived of the body. The part is valid until the next call for a stream. Returns the bits
    /// `BOLIDE_MORE_BODY` and following. With `BOLIDE_MORE_BODY` the host calls `client_event` when more has arrived.
    pub take_body: unsafe extern "C" fn(stream: *mut bolide_stream, part: *mut bolide_text) -> u32,

    /// Logs why a request failed, or what its application reports: as `log`, with the method, the path and the identifier of the
    /// request in front of the first line. `request` is NULL outside of `call`.
    pub log_error: unsafe extern "C" fn(request: *mut bolide_request, lines: *const c_char, size: usize),
    /// Asks for a worker to replace this one, which goes on serving until the other one is ready. In the prototype, and in a
    /// process that the application has forked, it does nothing.
    pub retire: unsafe extern "C" fn(),
    /// Names a file that the application consists of. A change of it reloads the application, with `develop` and with the
    /// `auto-reload` of the language. `load` calls it.
    pub watch: unsafe extern "C" fn(path: *const c_char, size: usize),
}

/// The functions of an adapter. The table is valid as long as the process. Each function but `call` and `load` may be NULL.
/// Functions that return an int return 0, or another number after `explain`. None may unwind.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bolide_adapter {
    /// `BOLIDE_ABI_VERSION` of the header that the adapter was compiled with.
    pub version: u32,
    /// `sizeof(bolide_adapter)` of that header.
    pub size: u32,
    /// The language and its version, for people: `Lua 5.4`. It ends with a 0.
    pub name: *const c_char,
    /// `BOLIDE_LOADS_AFTER_FORK` and following.
    pub flags: u32,

    /// Loads the application that the configuration names, in the prototype, or in each worker with `lazy-apps`. `number` counts
    /// applications from 0. `mount` is the path at which it answers, or empty.
    pub load: Option<unsafe extern "C" fn(number: u32, source: bolide_text, mount: bolide_text) -> c_int>,
    /// Serves a request in this thread. Returns `BOLIDE_FINISHED` or another outcome. `*pending` is NULL, and may be set to what
    /// the adapter needs to continue.
    pub call: Option<
        unsafe extern "C" fn(
            thread: *mut c_void,
            request: *mut bolide_request,
            answer: *mut bolide_answer,
            pending: *mut *mut c_void,
        ) -> u32,
    >,
    /// Continues a suspended answer. `*pending` is what it was, and may be changed. This may be another thread than that of
    /// `call`.
    pub resume: Option<unsafe extern "C" fn(thread: *mut c_void, answer: *mut bolide_answer, pending: *mut *mut c_void) -> u32>,
    /// The client of a suspended answer is gone, the answer has failed, or an exchange that was kept is over: frees `pending`.
    pub abandon: Option<unsafe extern "C" fn(thread: *mut c_void, pending: *mut c_void)>,

    /// Is called once in the prototype, before `load`.
    pub start: Option<unsafe extern "C" fn(instance: *const bolide_instance) -> c_int>,
    /// Everything is loaded and about to be forked: a garbage collector should leave it alone from now on.
    pub freeze: Option<unsafe extern "C" fn()>,
    /// Is called in the prototype before each fork, and after it.
    pub before_fork: Option<unsafe extern "C" fn()>,
    pub after_fork_in_parent: Option<unsafe extern "C" fn()>,
    /// This process is the worker of this number from now on.
    pub after_fork_in_child: Option<unsafe extern "C" fn(worker: u32) -> c_int>,

    /// Prepares a thread. Returns what is passed to the calls of this thread, or NULL after `explain`. Without this function it
    /// is NULL. Thread 0 is the one that has loaded the application.
    pub enter: Option<unsafe extern "C" fn(thread: u32) -> *mut c_void>,
    /// The thread has stopped serving.
    pub leave: Option<unsafe extern "C" fn(thread: *mut c_void)>,
    /// Makes a thread of the language's kind, which calls `body(argument)`. Without this function it is one of the system.
    pub spawn: Option<unsafe extern "C" fn(body: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) -> c_int>,
    /// Releases the language's lock before this thread waits, and takes it again.
    pub release: Option<unsafe extern "C" fn(thread: *mut c_void)>,
    pub acquire: Option<unsafe extern "C" fn(thread: *mut c_void)>,
    /// Calls `body(argument)` without the language's lock. Some languages, such as Ruby, offer this instead of a pair of calls.
    /// The host then serves in `body`, so that all calls of the adapter come without the lock, and `release` and `acquire` are
    /// not called.
    pub without_lock: Option<unsafe extern "C" fn(body: unsafe extern "C" fn(*mut c_void), argument: *mut c_void)>,

    /// Runs the handler of one of uWSGI's signals.
    pub signal: Option<unsafe extern "C" fn(thread: *mut c_void, number: u8) -> c_int>,
    /// A signal of the kernel has interrupted the wait of this thread: handlers of the application may run now. A number other
    /// than 0 ends the worker in good order.
    pub interrupted: Option<unsafe extern "C" fn(thread: *mut c_void) -> c_int>,
    /// The request of this thread takes too long. The call comes from a signal handler in this thread, so it may only set a
    /// flag or a hook that has the language log where it is.
    pub show_stack: Option<unsafe extern "C" fn(thread: *mut c_void)>,

    /// Runs the event loop of the language, in which the host serves: `call` comes when the head of a request is complete, and
    /// may return `BOLIDE_ONGOING`. It returns when `turn` has returned `BOLIDE_DRAINED`.
    pub run: Option<unsafe extern "C" fn(worker: *mut bolide_loop) -> c_int>,
    /// Something has changed for an exchange that the adapter keeps: a part of its body has arrived, or the client has read, or
    /// it is gone. The answer may be continued here.
    pub client_event: Option<
        unsafe extern "C" fn(thread: *mut c_void, answer: *mut bolide_answer, stream: *mut bolide_stream, pending: *mut c_void),
    >,
    /// An exchange that the adapter keeps takes longer than `harakiri`, and the host answers 504. The adapter ends its work, and
    /// `abandon` follows.
    pub overdue: Option<unsafe extern "C" fn(thread: *mut c_void, pending: *mut c_void, milliseconds: u64)>,

    /// Forks the prototype: returns as fork(2), with its errno. A language that has threads of its own needs it, such as Ruby,
    /// whose `Process._fork` stops and restarts them. Without this function the host forks.
    pub fork: Option<unsafe extern "C" fn() -> c_int>,
}

/// The one symbol that an adapter exports: `bolide_adapter_v1`. It returns the adapter's table, or NULL after `explain`.
pub type bolide_adapter_v1_function = unsafe extern "C" fn(host: *const bolide_host) -> *const bolide_adapter;
