//! The test language. Its applications are Rust code, so engine, prototype and master run with it as under any adapter, without
//! an interpreter, and each step checks the engine's promises to an adapter.
//!
//! It serves tests and fuzz targets only. Its parts:
//!
//! * [`language::TestLanguage`]: an application that is called, one request a thread, as in WSGI; [`streaming::TestStreams`]: one
//!   that keeps its exchanges, as in ASGI.
//! * [`gates`]: where applications wait until the test lets them continue.
//! * [`harness`]: a worker under the control of a test, turn by turn, with clients over socket pairs.
//! * [`helper_tasks`]: helpers, which work beside the workers.
//! * [`http2`]: a client of that protocol, frame by frame.
//! * [`replies`]: parses answers as a client does.
//! * [`variables`]: the table of a language that gets CGI's variables.
//! * [`prototype`]: the same applications under a real master.

pub mod gates;
pub mod harness;
pub mod helper_tasks;
pub mod http2;
pub mod interpreter;
pub mod language;
pub mod pages;
pub mod prototype;
pub mod replies;
pub mod streaming;
pub mod variables;
