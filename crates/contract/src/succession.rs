//! What a master hands to the one that takes its place at an upgrade: it travels as JSON in an environment variable, with the numbers of the
//! descriptors that are inherited.

use serde::{Deserialize, Serialize};

use crate::settings::Address;

/// The variable. It has no prefix of ours, because those are options.
pub const VARIABLE: &str = "SUCCESSION_OF_BOLIDE";

/// A master's place, for its successor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Succession {
    /// Whose place it is. A process whose parent is another one has found the variable by accident.
    pub master_pid: u32,
    /// The successor writes a byte here when its workers serve.
    pub ready: i32,
    /// Descriptors that are only kept: the locks of pidfiles.
    pub locks: Vec<i32>,
    pub sockets: Vec<HandedSocket>,
}

/// A listening socket, and what its address was called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandedSocket {
    pub address: Address,
    pub descriptor: i32,
}
