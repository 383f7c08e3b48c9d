//! The boot record that the master hands to a prototype when it execs one: the settings and the numbers of the
//! descriptors that the prototype inherits. It travels as JSON in a sealed memory file whose
//! descriptor number is the prototype's only argument.

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    pub settings: Settings,
    /// 1 for the first prototype of an instance, one more for each reload.
    pub generation: u32,
    /// Pid of the master: a prototype whose parent is another one was orphaned before it woke.
    pub master_pid: u32,
    /// Somebody at the terminal may debug the application: ^C and the terminal's end stay blocked, since a debugger sets handlers of its own.
    pub at_terminal: bool,
    /// The prototype's end of its order socket.
    pub control: i32,
    /// The scoreboard's memory file, and the rows and slots that it has room for.
    pub scoreboard: i32,
    pub scoreboard_rows: u32,
    pub scoreboard_slots: u32,
    /// Rows and slots that this generation looks at.
    pub rows_in_use: u32,
    pub slots_in_use: u32,
    /// The memory of the session tickets' keys, where a listener speaks TLS.
    pub ticket_keys: Option<i32>,
    /// The log, opened by the master: the prototype's user may not be allowed to.
    pub log: Option<i32>,
    /// Further logs, in the order of `settings.logging.targets`.
    pub log_targets: Vec<i32>,
    /// A memory file, empty at first: whoever can't load the application writes there why, in one line.
    pub reason: i32,
    /// In development: a memory file in which whoever can't load the application leaves the page that says why.
    pub error_page: Option<i32>,
    /// No generation serves: in development something has to stand in for an application that can't be loaded.
    pub no_generation_serves: bool,
    /// The ends of the queue of connections that look for a worker, where there may be several: to put into, and to take from.
    pub connection_queue: Option<[i32; 2]>,
    /// Listening sockets, in the order of `settings.listeners`. They are non-blocking.
    pub listeners: Vec<ListenerDescriptor>,
    /// Folder that holds the Python package `bolide`, for an interpreter that does not find it itself.
    pub package_folder: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerDescriptor {
    pub descriptor: i32,
    /// The address as bound, for the log and for SERVER_NAME/SERVER_PORT: `127.0.0.1:8080`, `/run/app.sock`.
    pub bound: String,
    /// The master has bound it itself; it was not handed down by whoever started the master.
    pub is_ours: bool,
}
