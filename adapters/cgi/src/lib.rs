//! CGI (RFC 3875): a program is executed for each request. It reads the request's body from standard input and writes the answer
//! to standard output.
//!
//! One thread of a worker serves requests and attends to the pipes of the running programs, in one loop. The parts:
//!
//! * [`prototype`]: checks the configured places, and starts a worker.
//! * [`worker`]: the loop.
//! * [`app`]: what the engine calls.
//! * [`tools`]: what all requests share, and the engine's counters.
//! * [`state`]: the requests of a worker, those that wait for their turn, and the running programs.
//! * [`run`]: one request and its program.
//! * [`input`], [`output`], [`head`], [`error_lines`]: the body, the answer, its header block, and standard error.
//! * [`place`], [`environment`], [`spawn`]: which program, with which variables, and how it is executed.
//!
//! It does not know configuration files or the master. The program `bolide` runs it as a prototype, which forks workers.

mod app;
mod environment;
mod error_lines;
pub mod head;
mod input;
mod output;
mod place;
mod prototype;
mod run;
mod spawn;
mod state;
mod tools;
mod worker;

pub use prototype::run;
