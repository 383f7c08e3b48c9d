//! The master's promises, kept by the program `bolide` with a fake prototype: no engine, no interpreter at work.

mod reloads;
mod supervisor;
mod support;
