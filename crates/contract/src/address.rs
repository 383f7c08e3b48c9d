//! Where a socket listens, as every process writes it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Address {
    /// `host:port`; an empty host is every IPv4 address. Port 0 is any free one.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    /// A name in Linux' abstract space, without its `@`.
    Abstract(String),
    /// `fd://N`: a listening socket that somebody else opened.
    Descriptor(i32),
    /// A listening socket that whoever started us has opened, and told by `LISTEN_FDS`.
    Passed(i32),
}
