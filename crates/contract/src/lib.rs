//! The contract between the processes of Bolide: settings and messages.
//!
//! It has no logic, and nothing that belongs to a single process: a master and a worker built from the same contract understand
//! each other, whatever else they do. Every process uses it.

pub mod alarm_message;
pub mod boot;
pub mod children;
pub mod clock;

pub mod engine_row;
pub mod life;
pub mod loyalty;
pub mod message;
pub mod metric_list;
pub mod rate;
pub mod settings;
pub mod succession;
mod tables;
pub mod uwsgi_signals;

pub use settings::{
    alarms, answering, attendant, clients, confinement, control, developing, distributed, emperor, files, hooks, logging, mules,
    python_module, recycling, reloading, scaling, services, sharing, signals, sockets, spooling, statistics, tls, watching,
};
