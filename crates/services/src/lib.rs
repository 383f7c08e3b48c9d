//! What an instance does beside serving and supervising, as far as it is a question with an answer: what the numbers say, whose time has come,
//! how many workers there should be. Each file is one such service, a function of what it is given. No I/O, no clock, no process.

pub mod canary;
pub mod cheaper;
pub mod cron;
mod json;
pub mod memory;
pub mod metrics;
pub mod statistics;
