//! The program `bolide`: the master, or the prototype of a language that does not bring a program of its own. The master executes
//! itself with a hidden argument for that.
//!
//! It knows which adapters there are, and does not look into them. The process becomes one or the other.

use std::io::Write;
use std::os::fd::RawFd;
use std::path::Path;

use bolide_master::{Invocation, OwnPrototype};

/// The exit status of a prototype that can't work.
const PROTOTYPE_FAILED: i32 = 1;

/// Runs this process. Returns its exit status. `invocation` is called for a master only.
pub fn main(invocation: impl FnOnce() -> Invocation) -> i32 {
    if let Some(library) = bolide_master::checked_library() {
        return check(&library);
    }
    match OwnPrototype::of_process() {
        None => bolide_master::main(invocation()),
        Some((language, boot)) => {
            let status = become_prototype(&language, boot).unwrap_or_else(|error| {
                bolide_log::line(&format!("the prototype can't work: {error}"));
                PROTOTYPE_FAILED
            });
            bolide_log::finish();
            status
        }
    }
}

fn become_prototype(language: &OwnPrototype, boot: RawFd) -> std::io::Result<i32> {
    match language {
        OwnPrototype::Cgi => bolide_cgi::run(boot),
        OwnPrototype::Plugin(library) => bolide_plugin::run(library, boot),
    }
}

/// Loads the library of an adapter and prints its language, or what is wrong with it. Returns the exit status.
fn check(library: &Path) -> i32 {
    let (text, status) = match bolide_plugin::language_of(library) {
        Ok(language) => (language, 0),
        Err(reason) => (reason, PROTOTYPE_FAILED),
    };
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => status,
        Err(_) => PROTOTYPE_FAILED,
    }
}
