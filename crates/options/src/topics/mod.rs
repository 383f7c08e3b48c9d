//! The topics of the options, one file or directory for each: the rows, the values so far, and their completion. A topic does not
//! read files of the configuration. Runs in the process that reads the configuration.

pub mod answering;
pub mod application;
pub mod asynchronous;
pub mod attendant;
pub mod clients;
pub mod control;
pub mod developing;
pub mod emperor;
pub mod files;
pub mod gevent;
pub mod gunicorn_hooks;
pub mod hooks;
pub mod identity;
pub mod interpreter;
pub mod language;
pub mod languages;
pub mod listeners;
pub mod logging;
pub mod mules;
pub mod platform;
pub mod processes;
pub mod program;
pub mod recycling;
pub mod scaling;
pub mod services;
pub mod sockets;
pub mod spooler;
pub mod statistics;
pub mod tls;
pub mod watching;
