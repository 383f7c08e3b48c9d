//! Settings of hooks: actions at the phases of an instance's life. Plain data: the crate `options` builds it, the crate `hooks`
//! runs it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A phase in the life of an instance, in chronological order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookPhase {
    // In the master, with its initial privileges.
    Asap,
    PreJail,
    PostJail,
    InJail,
    AsRoot,
    /// In a child of the master, as the application's user.
    MasterStart,
    // In each generation's prototype, as the application's user.
    AsUser,
    PreApp,
    PostApp,
    // In each worker.
    PostFork,
    /// In each mule, before its work.
    AsMule,
    Accepting,
    AcceptingOnce,
    Accepting1,
    Accepting1Once,
    /// In a child of the master, as the application's user, whenever a file has changed.
    Touch,
    /// At exit, in a child of the master, as the application's user.
    AsUserAtExit,
}

impl HookPhase {
    /// The phases with the suffixes of their option names.
    pub const NAMES: [(HookPhase, &'static str); 17] = [
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
        (HookPhase::AsMule, "as-mule"),
        (HookPhase::Accepting, "accepting"),
        (HookPhase::AcceptingOnce, "accepting-once"),
        (HookPhase::Accepting1, "accepting1"),
        (HookPhase::Accepting1Once, "accepting1-once"),
        (HookPhase::Touch, "touch"),
        (HookPhase::AsUserAtExit, "as-user-atexit"),
    ];

    /// The phases of the master before it serves, in this order.
    pub const OF_START: [HookPhase; 5] =
        [HookPhase::Asap, HookPhase::PreJail, HookPhase::PostJail, HookPhase::InJail, HookPhase::AsRoot];

    pub fn name(self) -> &'static str {
        HookPhase::NAMES.iter().find(|(phase, _)| *phase == self).map_or("", |(_, name)| *name)
    }
}

/// An action at a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    pub phase: HookPhase,
    pub action: HookAction,
    /// As written, for the log; empty if it must not be logged (`!` before it).
    pub text: String,
    /// Where it was configured: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookAction {
    /// A shell command that must exit with status 0.
    Exec(String),
    /// A shell command with any exit status.
    SafeExec(String),
    Print(String),
    ChangeDirectory(PathBuf),
    MakeDirectory(PathBuf),
    RemoveDirectory(PathBuf),
    /// Overwrites a file with this text.
    Write(PathBuf, String),
    Append(PathBuf, String),
    /// Writes to a pipe if it has a reader.
    WriteFifo(PathBuf, String),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    ChangeMode(PathBuf, u32),
    Sticky(PathBuf),
    /// A user and a group, names or numbers.
    ChangeOwner(PathBuf, String, String),
    WaitFor(WaitSubject, String),
    /// Raises the alarm of this name with this message.
    Alarm(String, String),
    /// Ends the process with this status.
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

/// The condition to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitSubject {
    Anything,
    File,
    Directory,
    /// An address that accepts connections.
    Socket,
}
