//! The decisions of an instance beyond serving and supervising: statistics, due jobs, the number of workers, limits. Each file is
//! one service, a pure function of its input, without I/O, clocks or processes.

pub mod admission;
pub mod canary;
pub mod cheaper;
pub mod cron;
mod family;
mod json;
pub mod leaks;
pub mod memory;
pub mod metrics;
pub mod openmetrics;
pub mod protobuf;
pub mod recent_routes;
pub mod reloads;
pub mod route_names;
pub mod spans;
pub mod statistics;
pub mod tuning;
pub mod uwsgi_json;
mod uwsgi_numbers;
pub mod uwsgi_signals;
