//! A language of the tests. Its applications are Rust, so engine, prototype and master run with it as they do under any adapter, without an
//! interpreter; and what the engine promises to an adapter is checked at each step.
//!
//! It serves nobody but tests and fuzz targets. What it is made of:
//!
//! * [`language::TestLanguage`]: an application that is called, one request a thread, as WSGI's are; [`streaming::TestStreams`]: one that
//!   keeps what it is given, as ASGI's are.
//! * [`gates`]: where applications wait until they are told to go on.
//! * [`harness`]: a worker in the hands of a test, turn by turn, with clients over socket pairs.
//! * [`helper_tasks`]: helpers, which work beside the workers.
//! * [`http2`]: a client of that protocol, frame by frame.
//! * [`replies`]: what a client reads of their answers.
//! * [`prototype`]: the same applications under a real master.

pub mod answers;
pub mod gates;
pub mod harness;
pub mod helper_tasks;
pub mod http2;
pub mod interpreter;
pub mod language;
pub mod prototype;
pub mod replies;
pub mod streaming;
