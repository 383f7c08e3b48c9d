//! The contract between the processes of Bolide: settings, messages and the layout of the scoreboard.
//!
//! It has no logic, and nothing that belongs to a single process: a master and a worker built from the same contract understand
//! each other, whatever else they do. Every process uses it.

mod address;
pub mod alarm_message;
mod atomics;
pub mod boot;
pub mod census;
pub mod children;
pub mod clock;
pub mod coarse_histogram;
pub mod connection_queue;
pub mod engine_row;
pub mod histogram;
pub mod log_losses;
pub mod message;
pub mod meters;
pub mod metric_list;
mod published;
pub mod scoreboard;
pub mod sealed_memory;
pub mod settings;
mod slot;
pub mod succession;
pub mod ticket_keys;
pub mod uwsgi_signals;
mod work;

pub use settings::{
    alarms, answering, attendant, clients, confinement, control, developing, distributed, exceptions, files, hooks, logging,
    mules, python_module, recycling, reloading, scaling, services, sharing, signals, sockets, spooling, statistics, tls,
    watching,
};
