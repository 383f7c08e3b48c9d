//! Generations of the application: how one forms, takes over and ends, and what it is made with. The master runs it.

pub mod canary;
pub mod changes;
pub mod configuration;
pub mod error_report;
pub mod generation;
pub mod helpers;
pub mod imports;
pub mod interpreter;
pub mod load_check;
pub mod packaged;
pub mod reading_as_user;
pub mod reload;
pub mod renewing;
pub mod stop_first;
pub mod unshared;
