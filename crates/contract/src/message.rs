//! Orders and reports between master, prototype and workers: one fixed-size packet each, over a SOCK_SEQPACKET pair. End of file
//! on the pair means that the other side is gone.
//!
//! A packet is [`PACKET_BYTES`] long: a kind (u32) and five u32 of content, little-endian. Some carry a descriptor: `Fork` the
//! worker's end of its own pair with the master, `Succeed` the new prototype's, `Serve` a connection, `TakeLog` a file.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::sockopt::Linger;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, setsockopt, socketpair,
};

use crate::children::ChildKind;
use crate::uwsgi_signals::Pool;

/// Length of every packet in bytes.
pub const PACKET_BYTES: usize = 24;

/// The messages of one direction: the kind of a packet, and the contents in their order.
macro_rules! messages {
    (
        $(#[$about:meta])* pub enum $name:ident {
            $($(#[$says:meta])* $kind:literal => $message:ident $({ $($content:ident: $type:ty),+ })?,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$says])* $message $({ $($content: $type),+ })?,)+
        }

        impl Packet for $name {
            fn fields(&self) -> [u32; 6] {
                let mut fields = [0; 6];
                let numbers: &[u32] = match *self {
                    $($name::$message $({ $($content),+ })? => &[$kind $(, $($content.number()),+)?],)+
                };
                fields[..numbers.len()].copy_from_slice(numbers);
                fields
            }

            fn from_fields(fields: [u32; 6]) -> io::Result<$name> {
                let [kind, contents @ ..] = fields;
                let mut contents = contents.into_iter();
                let mut read = || -> Option<$name> {
                    Some(match kind {
                        $($kind => $name::$message $({ $($content: Content::of(contents.next()?)?),+ })?,)+
                        _ => return None,
                    })
                };
                read().ok_or_else(|| unknown_packet(kind))
            }
        }
    };
}

messages! {
    /// A message from the master to a prototype or a worker.
    pub enum Order {
        /// To a prototype: fork the worker or helper of this number for this scoreboard row. The packet carries a descriptor. A
        /// worker on trial sends `reload-probe` to its application before it serves. `is_first`: it does not replace another one
        /// of its generation.
        1 => Fork { row: u32, number: u32, is_on_trial: bool, is_first: bool, kind: ChildKind },
        /// To a prototype: do not fork any more, and exit after the last worker has exited.
        2 => Retire,
        /// To a worker whose successor serves: accept no more connections, answer more requests on open connections with
        /// `Connection: close`, and end when these are closed. No request is lost. With `has_successors`, other workers of the
        /// instance keep running: they take over the connections that can move, and these are not closed.
        3 => Drain { has_successors: bool },
        /// To a worker at an ordered stop: like `Drain`, but connections without a request in flight are closed immediately. To a
        /// helper: exit.
        4 => Stop,
        /// To a worker, just before `Stop`: serve the connection that the packet carries. It was queued at the listening socket
        /// of this number when that socket was closed. Its request is answered like those of connections that the worker has
        /// accepted itself.
        5 => Serve { listener: u32 },
        /// To a worker that has reported `Passed`: all workers of its generation have passed, and it serves from now on.
        7 => Admit,
        /// To a prototype or a worker: write the log of this number to the file that the packet carries.
        6 => TakeLog { log: u32 },
        /// To a worker: begin no request, neither on new nor on open connections, until `Resume`. Requests in flight are
        /// completed.
        8 => Pause,
        /// To a paused worker: continue. An order to end implies it.
        9 => Resume,
        /// To a worker that will be killed: give its idle connections, and connections with unread input, to the queue of
        /// connections that other workers take from, close in order those that can't move, and report `HandedOver`. Without
        /// `has_takers` the instance exits, and idle connections are closed.
        11 => HandOver { has_takers: bool },
        /// To a worker that was ordered to hand over: it is not killed, and accepts connections again.
        12 => Spare,
        /// To a worker of an instance that will be stopped: load balancers may not know it yet. It accepts connections and serves
        /// them, and its answers close the connections, so that clients come back through their load balancer.
        13 => LeaveBalancer,
        /// To a worker: check the listening sockets. The kernel may have announced a connection only to a worker that no longer
        /// watches them.
        10 => Look,
        /// To a worker: like `Drain` with successors. When it has drained, it forks a process that becomes another prototype of
        /// its generation, at the other end of the socket that the packet carries, and exits.
        14 => Succeed,
        /// To a worker or a helper: run the handler of this signal (uWSGI's), between two requests.
        20 => Signal { number: u8 },
        /// To a worker or a helper: take signals of this pool, one byte each, from the pipe that the packet carries, whenever it
        /// is free.
        21 => JoinPool { pool: Pool },
    }
}

messages! {
    /// A message from a prototype or a worker to the master.
    pub enum Report {
        /// Prototype: the application is loaded (or, with `lazy-apps`, will be by each worker).
        101 => Loaded { milliseconds: u32 },
        /// Prototype: the application can't be loaded; the reason is in the log.
        102 => LoadFailed,
        /// Prototype, with `fork-safety = lazy`: the application has opened resources that workers can't share, as logged. This
        /// prototype exits; the next one of its generation leaves loading to the workers.
        111 => Unshared,
        /// Prototype that a worker has forked (`Succeed`): it takes orders. The master is its parent.
        112 => Succeeded { pid: u32 },
        /// Worker, at the socket of `Succeed`: the application has opened what forked workers can't share, as logged. The worker
        /// exits.
        113 => Refused,
        /// Prototype: the worker or helper of this row was forked.
        103 => Forked { row: u32, pid: u32 },
        /// Prototype: fork failed with this errno.
        104 => ForkFailed { row: u32, errno: u32 },
        /// Prototype: the worker or helper of this row has ended; `status` is the raw wait status.
        105 => Ended { row: u32, pid: u32, status: u32 },
        /// Worker on trial: its application has answered `reload-probe`. It does not accept connections until `Admit`.
        122 => Passed { row: u32, pid: u32 },
        /// Worker: it accepts connections. Helper: it is set up, and begins its work.
        106 => Serving { row: u32, pid: u32 },
        /// Worker: it has served `max-requests`, or is worn out for another reason, and requests its replacement. It continues to
        /// serve until `Drain`.
        107 => Worn { row: u32, pid: u32 },
        /// Worker: it was ordered to end, and accepts no more connections. `somebody_waits`: it read the order late
        /// ([`LATE_DRAIN_MS`]), and left connections in the queue.
        124 => Left { row: u32, somebody_waits: bool },
        /// Worker: it was ordered to drain, and every connection is closed. The application's own shutdown follows (a lifespan's
        /// shutdown, background tasks), within the rest of the mercy time. No request is in flight any more.
        108 => Drained { row: u32, pid: u32 },
        /// Worker: the application has ended too. The interpreter ends next, within [`INTERPRETER_END_MS`].
        109 => Leaving { row: u32, pid: u32 },
        /// Worker: the application requests an action of the instance (`uwsgi.reload()`).
        120 => Asked { row: u32, asked: Asked },
        /// Prototype or worker, with `py-autoreload`: the packet carries a sealed memory file with a list of [`ImportedFile`] as
        /// JSON. The master watches them for this generation, in addition to those reported before.
        110 => Imports,
        /// Worker: a request has a time limit that the settings don't contain (`uwsgi.set_user_harakiri`). The master must check
        /// requests at this interval.
        121 => Limited { row: u32, milliseconds: u32 },
        /// Worker, in development: a debugger has stopped it, or has resumed it.
        123 => Halted { row: u32, is_halted: bool },
        /// Worker, in development: the application listens for a debugger at a port (`debugpy.listen`), which one process can
        /// have.
        125 => HasDebuggerPort { row: u32 },
        /// Prototype, worker or helper: the packet carries a sealed memory file with
        /// [`Registrations`](crate::uwsgi_signals::Registrations) as JSON.
        130 => Registered,
        /// Prototype, worker or helper: the application raises this signal.
        131 => Signaled { number: u8 },
        /// Worker: it was ordered to hand over, and no connection is left that could move. On this many connections a request
        /// waits that is lost with the worker: unread input within TLS.
        126 => HandedOver { row: u32, waiting: u32 },
        /// Worker, with `crash-reports`: the packet carries a memory file with the state of the process at a fault, or at
        /// [`crash_signal`].
        132 => Crashed { row: u32, pid: u32 },
        /// Prototype, worker or helper: it got this signal, one of [`SINGLE_SIGNALS`], from the process `sender` (0: unknown).
        /// The master ignores it if it got the same signal, because that one was sent to the whole group. A prototype has no row.
        133 => GotSignal { row: u32, signal: u32, sender: u32 },
    }
}

impl Report {
    /// Whether a worker that is to become a prototype, or the process that it forks, may send it before the master knows the
    /// process.
    pub fn is_of_successor(self) -> bool {
        matches!(self, Report::Succeeded { .. } | Report::Refused | Report::GotSignal { .. })
    }
}

/// An action that an application can request from its master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Reload,
    Stop,
}

impl Asked {
    pub const ALL: [Asked; 2] = [Asked::Reload, Asked::Stop];

    pub const fn code(self) -> u32 {
        match self {
            Asked::Reload => 1,
            Asked::Stop => 2,
        }
    }

    /// Returns `None` for an unknown code.
    pub fn from_code(code: u32) -> Option<Asked> {
        Asked::ALL.into_iter().find(|asked| asked.code() == code)
    }
}

/// A file from which a module was loaded, or would be loaded if the file existed: its absolute path, and its modification time at
/// import in nanoseconds; `None` if unknown.
pub type ImportedFile = (String, Option<i64>);

/// The maximum size of a list of imported files.
pub const IMPORTS_BYTES: usize = 8 * 1024 * 1024;

/// A worker that reads the order to drain later than this, in milliseconds, accepts no more queued connections: clients may have
/// connected after the master had announced that the new code serves.
pub const LATE_DRAIN_MS: u64 = 200;

/// The longest time between the order to hand over and the kill of a worker, in milliseconds. Other requests of the worker have
/// this long to end.
pub const HANDOVER_MS: u64 = 1_000;

/// A worker that is neither killed nor spared this many milliseconds after the order to hand over accepts connections again.
pub const DOOMED_MS: u64 = HANDOVER_MS + 500;

/// What a process logs when the kernel refuses a timer (EAGAIN). Each timer counts as one of its user's pending signals.
pub const TIMERS_REFUSED: &str =
    "no timer can be made: the user of this process may have no more pending signals (RLIMIT_SIGPENDING): raise `ulimit -i`";

/// Exit status of a worker or prototype whose application could not be loaded.
pub const EXIT_LOAD_FAILED: i32 = 22;

/// Exit status of a helper that has done as much as it may (`spooler-max-tasks`): its successor follows immediately.
pub const EXIT_RECYCLED: i32 = 23;

/// Maximum time for a worker's interpreter to end, in milliseconds, with non-daemon threads and exit handlers. A worker of
/// CPython stops waiting before that, and logs what it waited for (`bolide/shutdown.py`).
pub const INTERPRETER_END_MS: u64 = 7_000;

/// Signals that a service manager, an operator or a terminal sends to every process of an instance. Only the master acts
/// on them; it sends orders to prototypes and workers.
pub const GROUP_SIGNALS: [i32; 7] =
    [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGTSTP];

/// Those of [`GROUP_SIGNALS`] that a process reports, because they have an effect if it is the only one that got them.
pub const SINGLE_SIGNALS: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];

/// The signal that the kernel sends to a worker when its parent has died.
pub fn orphan_signal() -> i32 {
    libc::SIGRTMIN() + 11
}

/// The signal by which the master requests a thread's Python stack before it kills the thread's worker. A real-time signal, far
/// from those that applications use.
pub fn stack_signal() -> i32 {
    libc::SIGRTMIN() + 10
}

/// The signal by which the master requests the state of a worker with `crash-reports` before it kills it: the stacks of all
/// threads. The next signal is the worker's own, by which it has Python write them.
pub fn crash_signal() -> i32 {
    libc::SIGRTMIN() + 14
}

/// The signal by which the master tells a helper to read its orders: code of the application may keep it from its control
/// socket for as long as it likes.
pub fn helper_signal() -> i32 {
    libc::SIGRTMIN() + 12
}

/// The signal by which the master asks a process to let a reader read its memory (`bolide trace`). Its value has the instance's
/// secret and the reader's pid.
pub fn reader_signal() -> i32 {
    libc::SIGRTMIN() + 13
}

/// The outcome of [`receive`].
#[derive(Debug)]
pub enum Received<Message> {
    Message(Message, Option<OwnedFd>),
    /// The other side is gone.
    End,
    /// No message at present (the socket is non-blocking, or a signal interrupted the call).
    Nothing,
}

/// A message that fits in one packet.
pub trait Packet: Sized {
    fn fields(&self) -> [u32; 6];
    /// # Errors
    /// The kind of the packet is unknown: the two sides come from different builds.
    fn from_fields(fields: [u32; 6]) -> io::Result<Self>;
}

/// A number of a packet's content.
trait Content: Sized {
    fn number(self) -> u32;

    /// Returns `None` for a number that the other side does not send.
    fn of(number: u32) -> Option<Self>;
}

impl Content for u32 {
    fn number(self) -> u32 {
        self
    }

    fn of(number: u32) -> Option<u32> {
        Some(number)
    }
}

impl Content for u8 {
    fn number(self) -> u32 {
        self.into()
    }

    fn of(number: u32) -> Option<u8> {
        number.try_into().ok()
    }
}

impl Content for bool {
    fn number(self) -> u32 {
        self.into()
    }

    fn of(number: u32) -> Option<bool> {
        Some(number != 0)
    }
}

/// Contents that have a code.
macro_rules! coded {
    ($($kind:ty),+) => {
        $(impl Content for $kind {
            fn number(self) -> u32 {
                self.code()
            }

            fn of(number: u32) -> Option<$kind> {
                <$kind>::from_code(number)
            }
        })+
    };
}

coded!(ChildKind, Pool, Asked);

/// Creates a socket pair for orders and reports. Our end is non-blocking. Executed programs inherit neither end, unless the
/// close-on-exec flag is cleared for that one child.
pub fn order_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    fcntl(&near, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    Ok((near, far))
}

/// Encodes a message. Does not allocate, so a signal handler may call it.
pub fn packet<Message: Packet>(message: &Message) -> [u8; PACKET_BYTES] {
    let mut packet = [0u8; PACKET_BYTES];
    for (place, field) in packet.chunks_exact_mut(4).zip(message.fields()) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    packet
}

/// Sends one message, with an optional descriptor. Never raises SIGPIPE.
///
/// # Errors
/// Errors of `sendmsg`; `BrokenPipe` or `ConnectionReset` when the other side is gone.
pub fn send<Message: Packet>(socket: BorrowedFd<'_>, message: &Message, descriptor: Option<RawFd>) -> io::Result<()> {
    let packet = packet(message);
    let descriptors: Vec<RawFd> = descriptor.into_iter().collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() { &rights[..0] } else { &rights[..] };
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&packet)], control, MsgFlags::MSG_NOSIGNAL, None) {
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives one message.
///
/// # Errors
/// Errors of `recvmsg`, or a packet that is not of this contract.
pub fn receive<Message: Packet>(socket: BorrowedFd<'_>) -> io::Result<Received<Message>> {
    let mut packet = [0u8; PACKET_BYTES];
    let mut slices = [IoSliceMut::new(&mut packet)];
    let mut space = cmsg_space!([RawFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let (length, descriptor) = match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags) {
        Ok(received) => (received.bytes, first_descriptor(&received)?),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(Received::Nothing),
        Err(nix::errno::Errno::ECONNRESET) => return Ok(Received::End),
        Err(errno) => return Err(errno.into()),
    };
    if length == 0 {
        return Ok(Received::End);
    }
    if length != PACKET_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a packet of {length} bytes, not {PACKET_BYTES}")));
    }
    let mut fields = [0u32; 6];
    for (field, place) in fields.iter_mut().zip(packet.chunks_exact(4)) {
        *field = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
    }
    Ok(Received::Message(Message::from_fields(fields)?, descriptor))
}

/// Returns the first descriptor of a packet, and closes the others.
///
/// # Errors
/// The packet had more than its receiver had room for.
pub fn first_descriptor(received: &nix::sys::socket::RecvMsg<'_, '_, ()>) -> io::Result<Option<OwnedFd>> {
    let mut first = None;
    for control in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            for descriptor in descriptors {
                // SAFETY: the kernel has just created this descriptor for this process, and no other code knows its number.
                let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
                never_linger(&owned);
                first.get_or_insert(owned);
            }
        }
    }
    Ok(first)
}

/// Has the close of a socket not wait for its peer. The process that has passed it may have asked for that (socket(7),
/// SO_LINGER), and a receiver closes what it does not expect.
pub fn never_linger(descriptor: &OwnedFd) {
    // Only sockets have the option, and only they wait.
    let _may_be_no_socket = setsockopt(descriptor, Linger, &libc::linger { l_onoff: 0, l_linger: 0 });
}

fn unknown_packet(kind: u32) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a packet of unknown kind {kind}: are two builds of Bolide mixed?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).expect("a socket pair")
    }

    #[test]
    fn no_descriptor_that_was_passed_makes_its_receiver_wait_at_the_close() {
        let (left, right) = pair();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        setsockopt(&client, Linger, &libc::linger { l_onoff: 1, l_linger: 30 }).expect("set");
        send(left.as_fd(), &Order::Retire, Some(client.as_raw_fd())).expect("sent");
        let Ok(Received::Message(_, Some(_got))) = receive::<Order>(right.as_fd()) else { panic!("it did not arrive") };
        assert_eq!(nix::sys::socket::getsockopt(&client, Linger).expect("asked").l_onoff, 0);
    }

    #[test]
    fn neither_end_of_an_order_pair_is_inherited_and_ours_never_waits() {
        let (near, far) = order_pair().expect("made");
        for end in [&near, &far] {
            assert_eq!(fcntl(end, FcntlArg::F_GETFD), Ok(libc::FD_CLOEXEC));
        }
        assert!(matches!(receive::<Order>(near.as_fd()), Ok(Received::Nothing)));
    }

    #[test]
    fn every_message_comes_out_as_it_went_in() {
        let (left, right) = pair();
        let serve = Order::Serve { listener: 1 };
        let fork = |kind, is_on_trial| Order::Fork { row: 7, kind, number: 3, is_on_trial, is_first: !is_on_trial };
        let drain = |has_successors| Order::Drain { has_successors };
        let others = [Order::Retire, drain(false), drain(true), Order::Stop, serve, Order::TakeLog { log: 2 }, Order::Admit];
        let hand_over = |has_takers| Order::HandOver { has_takers };
        let pauses = [Order::Pause, Order::Resume, Order::Look, hand_over(false), hand_over(true), Order::Spare, Order::Succeed];
        let signals = [Order::Signal { number: 255 }, Order::JoinPool { pool: Pool::Farm(2) }];
        let forks = ChildKind::ALL.into_iter().flat_map(|kind| [fork(kind, false), fork(kind, true)]);
        for order in forks.chain(others).chain(pauses).chain(signals) {
            send(left.as_fd(), &order, None).expect("sent");
            assert!(matches!(receive::<Order>(right.as_fd()), Ok(Received::Message(got, None)) if got == order));
        }
        for report in [
            Report::Loaded { milliseconds: 9 },
            Report::LoadFailed,
            Report::Succeeded { pid: 7 },
            Report::Refused,
            Report::Forked { row: 1, pid: 2 },
            Report::ForkFailed { row: 1, errno: 11 },
            Report::Ended { row: 1, pid: 2, status: 9 },
            Report::Serving { row: 1, pid: 2 },
            Report::Worn { row: 1, pid: 2 },
            Report::Drained { row: 1, pid: 2 },
            Report::Leaving { row: 1, pid: 2 },
            Report::HandedOver { row: 1, waiting: 3 },
            Report::Asked { row: 1, asked: Asked::Reload },
            Report::Asked { row: 1, asked: Asked::Stop },
            Report::Imports,
            Report::Unshared,
            Report::Limited { row: 1, milliseconds: 5000 },
            Report::Halted { row: 1, is_halted: true },
            Report::HasDebuggerPort { row: 1 },
            Report::Passed { row: 1, pid: 2 },
            Report::Left { row: 1, somebody_waits: true },
            Report::Registered,
            Report::Signaled { number: 17 },
            Report::GotSignal { row: 1, signal: 15, sender: 2 },
        ] {
            send(left.as_fd(), &report, None).expect("sent");
            assert!(matches!(receive::<Report>(right.as_fd()), Ok(Received::Message(got, None)) if got == report));
        }
    }

    #[test]
    fn a_descriptor_travels_with_its_order() {
        let (left, right) = pair();
        let (near, far) = pair();
        let fork = Order::Fork { row: 0, kind: ChildKind::RequestWorker, number: 1, is_on_trial: false, is_first: true };
        send(left.as_fd(), &fork, Some(far.as_raw_fd())).expect("sent");
        drop(far);
        let Ok(Received::Message(_, Some(descriptor))) = receive::<Order>(right.as_fd()) else {
            panic!("the descriptor did not arrive");
        };
        send(near.as_fd(), &Order::Drain { has_successors: false }, None).expect("sent");
        assert!(matches!(receive::<Order>(descriptor.as_fd()), Ok(Received::Message(Order::Drain { .. }, None))));
    }

    #[test]
    fn the_end_of_the_other_side_is_seen() {
        let (left, right) = pair();
        drop(left);
        assert!(matches!(receive::<Order>(right.as_fd()), Ok(Received::End)));
    }

    #[test]
    fn an_unknown_packet_is_an_error_and_not_a_guess() {
        let (left, right) = pair();
        send(left.as_fd(), &Report::LoadFailed, None).expect("sent");
        assert!(receive::<Order>(right.as_fd()).is_err());
    }
}
