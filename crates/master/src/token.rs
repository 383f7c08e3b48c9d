//! The owners of descriptors that the master's event loop waits on. Pure data. The master runs it.

use bolide_supervision::polling::ServerToken;

/// The owner of a descriptor with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Signals,
    /// The captured output of applications.
    Printed,
    /// The order socket of the child with this id.
    Child(u64),
    /// A connection is pending at a listening socket.
    Listeners,
    /// The queue of open connections that need a worker.
    Connections,
    /// A watched file has changed.
    Watches,
    /// Raised alarms.
    Alarms,
    /// The descriptor with this number of `alarm-fd`.
    AlarmDescriptor(i32),
    /// The attendant with this pid.
    Attendant(i32),
    /// The exporter of spans with this pid.
    Exporter(i32),
    /// The address of `stats`, and its clients.
    Stats(ServerToken),
    /// The address of `metrics`, and its clients.
    Metrics(ServerToken),
    /// The master that is to replace us.
    Successor,
    /// The previous master, which we replace.
    Predecessor,
    /// The emperor that governs this instance.
    Emperor,
    /// The open pipe of `master-fifo`.
    Fifo,
    /// The control socket, and its clients.
    Control(ServerToken),
}
