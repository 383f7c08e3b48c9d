/* The interface between Bolide and the adapter of a language: two tables of functions. An adapter is a library that exports
 * bolide_adapter_v1. docs/write-a-plugin.md shows a small one.
 *
 * Made from crates/abi/src/lib.rs. Nothing unwinds over these calls, and no memory changes hands. */

#ifndef BOLIDE_APP_H
#define BOLIDE_APP_H

#include <stddef.h>
#include <stdint.h>

// `push` and `write` return this if the client is gone. The adapter ends its work for the request and returns
// `BOLIDE_FINISHED`.
#define BOLIDE_GONE SIZE_MAX


// The version of this interface. It changes only if an adapter of an earlier version would no longer work. Members are added at
// the ends of the structures, and `size` tells which of them the other side knows.
#define BOLIDE_ABI_VERSION 1

// The answer is complete. The host sends what is left of it.
#define BOLIDE_FINISHED 0

// The client is slow, or its turn is over: the host calls `resume` when there is room again, or `abandon`. `*pending` is set.
#define BOLIDE_SUSPENDED 1

// The application failed, and the adapter has logged why. The host answers 500, or breaks the answer off if a part of it was
// sent. If `*pending` is set, the host calls `abandon` afterwards.
#define BOLIDE_FAILED 2

// As `BOLIDE_FAILED`, and this worker must end, because the application can't go on in it.
#define BOLIDE_FAILED_FATALLY 3

// The adapter keeps the exchange, and continues it in `client_event` or by `visit`. Only for an adapter that has `run`. The
// answer ends with `finish` or `fail`. When the exchange is over, complete or not, the host calls `abandon` once.
#define BOLIDE_ONGOING 4



// Flag of `push`: another part follows before the application runs again, so this one may wait for it.
#define BOLIDE_WITH_THE_NEXT 1

// Flag of `push_file`: the file is the whole body, so its length is the answer's.
#define BOLIDE_WHOLE_BODY 1

// Flag of `finish`: code of the application runs before the call returns, so the client gets the end first.
#define BOLIDE_MORE_CODE 1

// Bit of `state`: the head was sent and can't be changed.
#define BOLIDE_HEAD_IS_SENT 1

// Bit of `state`: the status was set.
#define BOLIDE_HAS_STATUS 2

// Bit of `state`: the client has disconnected.
#define BOLIDE_CLIENT_IS_GONE 4

// Bit of `state`: the client reads in time and has not had its turn. Without it the adapter returns `BOLIDE_SUSPENDED`.
#define BOLIDE_HAS_ROOM 8

// Bit of `state`: the answer consists of a head alone (HEAD, 204, 304), so the body need not be produced.
#define BOLIDE_HAS_NO_BODY 16

// Bit of `state`: the application has set Content-Length.
#define BOLIDE_HAS_LENGTH 32

// Bit of `state`: the connection belongs to the application (`take_over`).
#define BOLIDE_IS_TAKEN_OVER 64

// Bit of `take_body`: more of the body may follow.
#define BOLIDE_MORE_BODY 1

// Bit of `take_body`: there was something new, if only the end.
#define BOLIDE_HAS_PART 2

// Bit of `take_body`: the client has disconnected, or will not send more.
#define BOLIDE_SENDS_NO_MORE 4

// `turn`: there is nothing to wait for but the descriptor.
#define BOLIDE_NO_TIMER -1

// `turn`: there is more to do, so the next turn follows the tasks of the adapter that are ready.
#define BOLIDE_AGAIN -2

// `turn`: the worker has drained. `run` ends its loop and returns.
#define BOLIDE_DRAINED -3

// `visit`: the function was called.
#define BOLIDE_VISITED 0

// `visit`: the exchange is with a caller higher in the stack.
#define BOLIDE_AWAY 1

// `visit`: the exchange has ended.
#define BOLIDE_ENDED 2

// Flag of an adapter: its language can't be forked, so each worker loads the application itself.
#define BOLIDE_LOADS_AFTER_FORK 1

// Flag of an adapter: its language runs in one thread of a process, so `threads` of more than 1 is refused.
#define BOLIDE_ONE_THREAD 2

// An answer. It is the host's, and valid until the call that was given it returns. Only the thread of that call may use it.
typedef struct bolide_answer bolide_answer;

// The worker inside the loop of an adapter that has `run`. It is the host's, and valid until `run` returns. Only its thread may
// use it.
typedef struct bolide_loop bolide_loop;

// A request. It is the host's, and valid until `call` returns. Only the thread of that call may use it.
typedef struct bolide_request bolide_request;

// The body of a request as it arrives, for an adapter that has `run`. It is the host's, and valid until the call that was
// given it returns.
typedef struct bolide_stream bolide_stream;

// Bytes of the side that has made them. They are valid until the call returns, unless a comment says otherwise. `data` is never
// NULL, and no 0 follows the bytes.
typedef struct {
  const char *data;
  size_t size;
} bolide_text;

// A name and its value.
typedef struct {
  bolide_text name;
  bolide_text value;
} bolide_pair;

// The body of a request. It is valid until the exchange ends: until `call` or `resume` returns something else than
// `BOLIDE_SUSPENDED`, or `abandon` returns.
typedef struct {
  // The body in memory, if `descriptor` is -1.
  const char *data;
  // The length of the body in bytes.
  uint64_t size;
  // A file with the body from its start on, or -1. It is the host's: the adapter does not close it, and may read and seek.
  int descriptor;
} bolide_body;

// An exchange that an adapter keeps. The same one never comes again.
typedef struct {
  uint64_t connection;
  uint32_t stream;
} bolide_exchange;

// The functions of Bolide. The table is valid as long as the process. None of its functions calls the application, keeps a
// pointer that it is given, or unwinds. An adapter must not jump over them with longjmp or an exception either.
typedef struct {
  // `BOLIDE_ABI_VERSION` of the host.
  uint32_t version;
  // The size of this table in bytes. A member beyond it does not exist.
  uint32_t size;
  // Writes lines to the log as the application's. A line end after the last one is not needed. It never waits for a reader.
  void (*log)(const char *lines, size_t size);
  // Tells why the function of the adapter that is about to return a failure fails, as one sentence for people.
  void (*explain)(const char *reason, size_t size);
  // Makes the variables of the request: those of CGI/1.1 (RFC 3875), REQUEST_URI, REMOTE_PORT, REQUEST_SCHEME, those of TLS,
  // and those that a reverse proxy or a route has set. Returns their number and sets `*pairs`.
  size_t (*variables)(bolide_request *request, const bolide_pair **pairs);
  // Finds one of them by its name. Returns 0 if there is none.
  int (*variable)(bolide_request *request, const char *name, size_t size, bolide_text *value);
  // Returns the fields of the header as the client has sent them, in order. There are none if a reverse proxy speaks the uwsgi
  // protocol, SCGI or FastCGI.
  size_t (*fields)(bolide_request *request, const bolide_pair **pairs);
  // Returns the body, which has arrived completely.
  void (*body)(bolide_request *request, bolide_body *body);
  // Returns the number of the application that the request is for, as `load` was given it.
  uint32_t (*application)(bolide_request *request);
  // Begins the head of the answer, or begins it again: `200 OK`, or only `200`. Returns an empty text, or why the status is
  // refused, which is valid as long as the process.
  bolide_text (*status)(bolide_answer *answer, const char *status, size_t size);
  // Adds a field to the head. A field that only the server may set, such as Connection, is dropped, and its meaning is obeyed.
  // After `Transfer-Encoding: chunked` the parts of the body are chunks. Returns as `status`.
  bolide_text (*field)(bolide_answer *answer, const char *name, size_t name_size, const char *value, size_t value_size);
  // Sets the length of the body if the application has not.
  void (*set_length)(bolide_answer *answer, uint64_t length);
  // Discards a head that was refused, so that the answer can begin again. A head that was sent stays.
  void (*retract)(bolide_answer *answer);
  // Passes a part of the body. Returns how much of it was taken: if that is not all, the adapter keeps the rest, returns
  // `BOLIDE_SUSPENDED`, and passes the rest in `resume`. After a part that was taken it looks for `BOLIDE_HAS_ROOM` in
  // `state`.
  size_t (*push)(bolide_answer *answer, const char *part, size_t size, uint32_t flags);
  // Passes a part of the body in a call that can't be suspended: it waits until the client has read enough. It returns `size`,
  // or `BOLIDE_GONE`. While it waits, it has called `release`. An adapter with `without_lock` calls it without the lock.
  size_t (*write)(bolide_answer *answer, const char *part, size_t size);
  // Passes `length` bytes of a file from `offset`. The host takes a copy of the descriptor. Returns 0, or -1 if the body must
  // be passed otherwise. Nothing else may be passed in the same call. An adapter that has more to send returns
  // `BOLIDE_SUSPENDED`.
  int (*push_file)(bolide_answer *answer, int descriptor, int64_t offset, uint64_t length, uint32_t flags);
  // Sends the head and what was passed, as far as the client reads.
  void (*flush)(bolide_answer *answer);
  // Ends the answer before the call returns.
  void (*finish)(bolide_answer *answer, uint32_t flags);
  // Answers with this status in the application's place, or breaks the answer off if a part of it was sent.
  void (*fail)(bolide_answer *answer, uint32_t status);
  // Sends a response before the answer, such as `103 Early Hints`, if the client can take it. Returns as `status`.
  bolide_text (*inform)(bolide_answer *answer, uint32_t status, const bolide_pair *fields, size_t count);
  // Adds a field after the body. It is dropped if the framing of the answer does not allow it. Returns as `status`.
  bolide_text (*trailer)(bolide_answer *answer, const char *name, size_t name_size, const char *value, size_t value_size);
  // Announces that trailers follow. It is called before the fields of the head.
  void (*announce_trailers)(bolide_answer *answer);
  // Closes the connection after this answer.
  void (*close_after)(bolide_answer *answer);
  // Gives the connection to the application. Returns a descriptor that the adapter closes, or -1 with a reason in the log.
  int (*take_over)(bolide_answer *answer);
  // Returns the bits `BOLIDE_HEAD_IS_SENT` and following.
  uint32_t (*state)(const bolide_answer *answer);
  // Sets a variable of the request's log line.
  void (*note)(bolide_answer *answer, const char *name, size_t name_size, const char *value, size_t value_size);
  // Returns the descriptor that the adapter's loop watches for reading.
  int (*loop_descriptor)(bolide_loop *worker);
  // The loop begins: connections are accepted from now on.
  void (*loop_start)(bolide_loop *worker);
  // Attends to connections when the descriptor is readable, or the time of the last turn is over. It calls `call`,
  // `client_event` and `abandon`. Returns milliseconds to wait at most, or `BOLIDE_NO_TIMER` and following.
  int64_t (*turn)(bolide_loop *worker);
  // Returns 1 if a visit has left work to do, for which the descriptor does not become readable. A loop asks once after its
  // visits, and calls `turn` then.
  int (*wants_turn)(bolide_loop *worker);
  // Returns by which `visit` finds the exchange of a request.
  bolide_exchange (*exchange)(bolide_request *request);
  // Calls `act` with the answer and the body of an exchange that the adapter keeps. Returns `BOLIDE_VISITED` and following.
  uint32_t (*visit)(bolide_loop *worker, bolide_exchange exchange, void (*act)(void *argument,
                                                                               bolide_answer *answer,
                                                                               bolide_stream *stream), void *argument);
  // Returns the body of a request as it arrives, or NULL if it is complete and `body` returns it.
  bolide_stream *(*stream)(bolide_request *request);
  // Takes what has arrived of the body. The part is valid until the next call for a stream. Returns the bits
  // `BOLIDE_MORE_BODY` and following. With `BOLIDE_MORE_BODY` the host calls `client_event` when more has arrived.
  uint32_t (*take_body)(bolide_stream *stream, bolide_text *part);
  // Logs why a request failed, or what its application reports: as `log`, with the method, the path and the identifier of the
  // request in front of the first line. `request` is NULL outside of `call`.
  void (*log_error)(bolide_request *request, const char *lines, size_t size);
  // Asks for a worker to replace this one, which goes on serving until the other one is ready. In the prototype, and in a
  // process that the application has forked, it does nothing.
  void (*retire)(void);
  // Names a file that the application consists of. A change of it reloads the application, with `develop` and with the
  // `auto-reload` of the language. `load` calls it.
  void (*watch)(const char *path, size_t size);
} bolide_host;

// The instance, for `start`. All of it stays valid as long as the process.
typedef struct {
  uint32_t size;
  // The number of worker processes, and of threads in each.
  uint32_t processes;
  uint32_t threads;
  // How often the instance has loaded the application, this time included.
  uint32_t generation;
  // The server and its version: `bolide/1.0`.
  bolide_text software;
  // The options of the plugin in the order of the configuration. `lua-path = /srv` is `path` and `/srv` for `plugin = lua`.
  const bolide_pair *options;
  size_t option_count;
} bolide_instance;

// The functions of an adapter. The table is valid as long as the process. Each function but `call` and `load` may be NULL.
// Functions that return an int return 0, or another number after `explain`. None may unwind.
typedef struct {
  // `BOLIDE_ABI_VERSION` of the header that the adapter was compiled with.
  uint32_t version;
  // `sizeof(bolide_adapter)` of that header.
  uint32_t size;
  // The language and its version, for people: `Lua 5.4`. It ends with a 0.
  const char *name;
  // `BOLIDE_LOADS_AFTER_FORK` and following.
  uint32_t flags;
  // Loads the application that the configuration names, in the prototype, or in each worker with `lazy-apps`. `number` counts
  // applications from 0. `mount` is the path at which it answers, or empty.
  int (*load)(uint32_t number, bolide_text source, bolide_text mount);
  // Serves a request in this thread. Returns `BOLIDE_FINISHED` or another outcome. `*pending` is NULL, and may be set to what
  // the adapter needs to continue.
  uint32_t (*call)(void *thread, bolide_request *request, bolide_answer *answer, void **pending);
  // Continues a suspended answer. `*pending` is what it was, and may be changed. This may be another thread than that of
  // `call`.
  uint32_t (*resume)(void *thread, bolide_answer *answer, void **pending);
  // The client of a suspended answer is gone, the answer has failed, or an exchange that was kept is over: frees `pending`.
  void (*abandon)(void *thread, void *pending);
  // Is called once in the prototype, before `load`.
  int (*start)(const bolide_instance *instance);
  // Everything is loaded and about to be forked: a garbage collector should leave it alone from now on.
  void (*freeze)(void);
  // Is called in the prototype before each fork, and after it.
  void (*before_fork)(void);
  void (*after_fork_in_parent)(void);
  // This process is the worker of this number from now on.
  int (*after_fork_in_child)(uint32_t worker);
  // Prepares a thread. Returns what is passed to the calls of this thread, or NULL after `explain`. Without this function it
  // is NULL. Thread 0 is the one that has loaded the application.
  void *(*enter)(uint32_t thread);
  // The thread has stopped serving.
  void (*leave)(void *thread);
  // Makes a thread of the language's kind, which calls `body(argument)`. Without this function it is one of the system.
  int (*spawn)(void (*body)(void*), void *argument);
  // Releases the language's lock before this thread waits, and takes it again.
  void (*release)(void *thread);
  void (*acquire)(void *thread);
  // Calls `body(argument)` without the language's lock. Some languages, such as Ruby, offer this instead of a pair of calls.
  // The host then serves in `body`, so that all calls of the adapter come without the lock, and `release` and `acquire` are
  // not called.
  void (*without_lock)(void (*body)(void*), void *argument);
  // Runs the handler of one of uWSGI's signals.
  int (*signal)(void *thread, uint8_t number);
  // A signal of the kernel has interrupted the wait of this thread: handlers of the application may run now. A number other
  // than 0 ends the worker in good order.
  int (*interrupted)(void *thread);
  // The request of this thread takes too long. The call comes from a signal handler in this thread, so it may only set a
  // flag or a hook that has the language log where it is.
  void (*show_stack)(void *thread);
  // Runs the event loop of the language, in which the host serves: `call` comes when the head of a request is complete, and
  // may return `BOLIDE_ONGOING`. It returns when `turn` has returned `BOLIDE_DRAINED`.
  int (*run)(bolide_loop *worker);
  // Something has changed for an exchange that the adapter keeps: a part of its body has arrived, or the client has read, or
  // it is gone. The answer may be continued here.
  void (*client_event)(void *thread, bolide_answer *answer, bolide_stream *stream, void *pending);
  // An exchange that the adapter keeps takes longer than `harakiri`, and the host answers 504. The adapter ends its work, and
  // `abandon` follows.
  void (*overdue)(void *thread, void *pending, uint64_t milliseconds);
  // Forks the prototype: returns as fork(2), with its errno. A language that has threads of its own needs it, such as Ruby,
  // whose `Process._fork` stops and restarts them. Without this function the host forks.
  int (*fork)(void);
} bolide_adapter;

#endif  /* BOLIDE_APP_H */


#ifdef __cplusplus
extern "C"
#endif
const bolide_adapter *bolide_adapter_v1(const bolide_host *host);
