//! Settings of hooks: what is done at the steps of an instance's life. Plain data; the options room makes them, the room `hooks` does them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A step in the life of an instance, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookPhase {
    // In the master, with the rights that it was started with.
    Asap,
    PreJail,
    PostJail,
    InJail,
    AsRoot,
    /// In the master's place, as the user of the application.
    MasterStart,
    // In each generation's prototype, as the user of the application.
    AsUser,
    PreApp,
    PostApp,
    // In each worker.
    PostFork,
    Accepting,
    AcceptingOnce,
    Accepting1,
    Accepting1Once,
    /// In a child of the master's, as the user of the application, whenever a file has changed.
    Touch,
    /// At the end, in the master's place, as the user of the application.
    AsUserAtExit,
}

impl HookPhase {
    /// The phases, as the ends of their options' names.
    pub const NAMES: [(HookPhase, &'static str); 16] = [
        (HookPhase::Asap, "asap"),
        (HookPhase::PreJail, "pre-jail"),
        (HookPhase::PostJail, "post-jail"),
        (HookPhase::InJail, "in-jail"),
        (HookPhase::AsRoot, "as-root"),
        (HookPhase::MasterStart, "master-start"),
        (HookPhase::AsUser, "as-user"),
        (HookPhase::PreApp, "pre-app"),
        (HookPhase::PostApp, "post-app"),
        (HookPhase::PostFork, "post-fork"),
        (HookPhase::Accepting, "accepting"),
        (HookPhase::AcceptingOnce, "accepting-once"),
        (HookPhase::Accepting1, "accepting1"),
        (HookPhase::Accepting1Once, "accepting1-once"),
        (HookPhase::Touch, "touch"),
        (HookPhase::AsUserAtExit, "as-user-atexit"),
    ];

    /// What the master does before it serves, in this order.
    pub const OF_START: [HookPhase; 5] =
        [HookPhase::Asap, HookPhase::PreJail, HookPhase::PostJail, HookPhase::InJail, HookPhase::AsRoot];

    pub fn name(self) -> &'static str {
        HookPhase::NAMES.iter().find(|(phase, _)| *phase == self).map_or("", |(_, name)| *name)
    }
}

/// Something that is done at a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    pub phase: HookPhase,
    pub action: HookAction,
    /// As written, for the log; empty for one that is not to be shown (`!` before it).
    pub text: String,
    /// Where it was asked for: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookAction {
    /// A command of the shell, whose status has to be 0.
    Exec(String),
    /// A command of the shell, whatever its status.
    SafeExec(String),
    Print(String),
    ChangeFolder(PathBuf),
    MakeFolder(PathBuf),
    RemoveFolder(PathBuf),
    /// Put this text into a file, in place of what it had.
    Write(PathBuf, String),
    Append(PathBuf, String),
    /// Write to a pipe, if somebody reads it.
    WriteFifo(PathBuf, String),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    ChangeMode(PathBuf, u32),
    Sticky(PathBuf),
    /// A user and a group, names or numbers.
    ChangeOwner(PathBuf, String, String),
    WaitFor(WaitSubject, String),
    /// End this process with this status.
    Exit(i32),
    /// A function of the application's language, with its argument.
    Call {
        function: String,
        argument: Option<CallArgument>,
        counts_answer: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallArgument {
    Text(String),
    Number(i64),
}

/// What has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitSubject {
    Anything,
    File,
    Folder,
    /// An address that accepts connections.
    Socket,
}
