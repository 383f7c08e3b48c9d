//! The address of a listening socket, in the form that every process uses. It does no I/O.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Address {
    /// `host:port`; an empty host means all IPv4 addresses. Port 0 is any free port.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    /// A name in Linux' abstract space, without its `@`.
    Abstract(String),
    /// `fd://N`: a listening socket opened by another program.
    Descriptor(i32),
    /// A listening socket opened by the process that started the instance, and announced by `LISTEN_FDS`.
    Passed(i32),
}
