//! The owners of descriptors that the master's loop waits on. Pure data. The master runs it.

use bolide_supervision::polling::ServerToken;

/// The owner of a descriptor that has news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Signals,
    /// What applications print.
    Printed,
    /// The order socket of the child of this number.
    Child(u64),
    /// A connection waits at a listening socket.
    Listeners,
    /// A file that is watched has changed.
    Watches,
    /// The attendant of this pid.
    Attendant(i32),
    /// The address of `stats`, and its clients.
    Stats(ServerToken),
    /// The master that is to take our place.
    Successor,
    /// The master whose place is ours, or is to be.
    Place,
    /// The open pipe of `master-fifo`.
    Fifo,
    /// The control socket, and its clients.
    Control(ServerToken),
}
