//! What a master hands to the one that takes its place at an upgrade: it travels as JSON in an environment variable, with the numbers of the
//! descriptors that are inherited. And what the two tell each other afterwards, by a pair of sockets.

use serde::{Deserialize, Serialize};

use crate::settings::Address;

/// The variable. It has no prefix of ours, because those are options.
pub const VARIABLE: &str = "SUCCESSION_OF_BOLIDE";

/// A master's place, for its successor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Succession {
    /// Whose place it is. A process whose parent is another one has found the variable by accident.
    pub master_pid: u32,
    /// The successor's end of the pair.
    pub channel: i32,
    /// Descriptors that are only kept: the locks of pidfiles.
    pub locks: Vec<i32>,
    pub sockets: Vec<HandedSocket>,
    /// The socket of `stats`.
    pub statistics: Option<HandedSocket>,
}

/// A listening socket, and what its address was called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandedSocket {
    pub address: Address,
    pub descriptor: i32,
}

/// A byte by which two masters tell each other how far the upgrade is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// From the successor: its workers serve.
    Serves,
    /// From the successor: it does not come to serve. Its reason follows, up to the end.
    Failed,
    /// From the master before: it serves no more, and speaks to nobody any more.
    HandedOver,
    /// From the master before: its daemons are gone.
    DaemonsGone,
}

impl Step {
    const ALL: [Step; 4] = [Step::Serves, Step::Failed, Step::HandedOver, Step::DaemonsGone];

    pub fn byte(self) -> u8 {
        match self {
            Step::Serves => b's',
            Step::Failed => b'f',
            Step::HandedOver => b'p',
            Step::DaemonsGone => b'd',
        }
    }

    pub fn of(byte: u8) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.byte() == byte)
    }
}
