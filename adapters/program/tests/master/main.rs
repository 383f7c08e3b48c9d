//! The master's promises, tested with the program `bolide` and a fake prototype: it knows neither engines nor interpreters. The
//! test process runs it.

mod reloads;
mod supervisor;
mod support;
