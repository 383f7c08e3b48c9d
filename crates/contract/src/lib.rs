//! Agreements between processes of Bolide: settings, messages and the layout of the scoreboard.
//!
//! There is no logic here, and nothing of any process: a master and a worker that are built from
//! the same contract understand each other, whatever else they do.

mod address;
pub mod answering;
mod atomics;
pub mod attendant;
pub mod boot;
pub mod children;
pub mod clients;
pub mod clock;
pub mod confinement;
pub mod connection_queue;
pub mod control;
pub mod developing;
pub mod elastic;
pub mod exceptions;
pub mod files;
pub mod hooks;
pub mod logging;
pub mod message;
mod published;
pub mod python_module;
pub mod recycling;
pub mod reloading;
pub mod scoreboard;
pub mod settings;
mod slot;
pub mod sockets;
pub mod statistics;
pub mod succession;
pub mod ticket_keys;
pub mod tls;
pub mod watching;
mod work;
