//! The number of connections in the accept queue of a listening socket, as the kernel reports it, and a check of all queues each
//! second, as in uWSGI: a full queue is counted, and logged once a minute. It does not make decisions and does not wait. The
//! master runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, recv, send, socket};

use crate::sockets::listeners::{Endpoint, Listeners};

/// An accept queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenQueue {
    /// Connections in it.
    pub length: u32,
    /// Its capacity; 0 if the kernel does not report it.
    pub most: u32,
}

impl ListenQueue {
    /// Whether there is no room for another connection.
    pub fn is_full(self) -> bool {
        self.length > 0 && self.length >= self.most
    }
}

/// Reads queues from the kernel. For UNIX sockets it needs a netlink socket, which is opened at the first use.
#[derive(Debug, Default)]
pub struct QueueWatch {
    diagnosis: Option<OwnedFd>,
}

/// Bytes of an answer about one socket.
const ANSWER_BYTES: usize = 1024;

impl QueueWatch {
    /// The queue of a listening socket. One that the kernel does not report counts as empty, as in uWSGI.
    pub fn look(&mut self, listener: BorrowedFd<'_>) -> ListenQueue {
        let name = nix::sys::socket::getsockname::<nix::sys::socket::SockaddrStorage>(listener.as_raw_fd());
        let found = match name.ok().and_then(|name| name.family()) {
            Some(AddressFamily::Inet | AddressFamily::Inet6) => of_tcp(listener),
            Some(AddressFamily::Unix) => self.of_local(listener),
            _ => None,
        };
        found.unwrap_or_default()
    }

    /// By sock_diag(7): `UNIX_DIAG_RQLEN` of a listening socket is the length of its queue, and the capacity.
    fn of_local(&mut self, listener: BorrowedFd<'_>) -> Option<ListenQueue> {
        let inode = u32::try_from(nix::sys::stat::fstat(listener).ok()?.st_ino).ok()?;
        if self.diagnosis.is_none() {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            self.diagnosis = socket(AddressFamily::Netlink, SockType::Datagram, flags, SockProtocol::NetlinkSockDiag).ok();
        }
        let diagnosis = self.diagnosis.as_ref()?.as_raw_fd();
        send(diagnosis, &question(inode), MsgFlags::MSG_DONTWAIT).ok()?;
        let mut answer = [0u8; ANSWER_BYTES];
        // The kernel answers within the call that sends the request.
        let length = recv(diagnosis, &mut answer, MsgFlags::MSG_DONTWAIT).ok()?;
        queue_of_answer(answer.get(..length)?, inode)
    }
}

/// `struct nlmsghdr` and `struct unix_diag_req` (linux/unix_diag.h), in the machine's byte order.
fn question(inode: u32) -> [u8; 40] {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const SHOW_QUEUES: u32 = 0x10;
    const ANY_COOKIE: u32 = u32::MAX;
    let mut packet = [0u8; 40];
    packet[0..4].copy_from_slice(&40u32.to_ne_bytes());
    packet[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    packet[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    packet[16] = libc::AF_UNIX as u8;
    packet[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    packet[24..28].copy_from_slice(&inode.to_ne_bytes());
    packet[28..32].copy_from_slice(&SHOW_QUEUES.to_ne_bytes());
    packet[32..36].copy_from_slice(&ANY_COOKIE.to_ne_bytes());
    packet[36..40].copy_from_slice(&ANY_COOKIE.to_ne_bytes());
    packet
}

/// The attribute `UNIX_DIAG_RQLEN` of an answer, if it is about the socket with this inode.
fn queue_of_answer(answer: &[u8], inode: u32) -> Option<ListenQueue> {
    const QUEUES: u16 = 4;
    let long = |from: usize| Some(u32::from_ne_bytes(answer.get(from..from + 4)?.try_into().ok()?));
    let short = |from: usize| Some(u16::from_ne_bytes(answer.get(from..from + 2)?.try_into().ok()?));
    // The header of the message is followed by `struct unix_diag_msg`, of 16 bytes.
    if short(4)? != 20 || long(20)? != inode {
        return None;
    }
    let mut place = 32;
    loop {
        let length = usize::from(short(place)?);
        if short(place + 2)? == QUEUES {
            return Some(ListenQueue { length: long(place + 4)?, most: long(place + 8)? });
        }
        // Attributes begin at multiples of four bytes; a length of 0 would not advance.
        place += length.max(4).next_multiple_of(4);
    }
}

/// By tcp(7): for a listening socket, `TCP_INFO` reports the length of the queue in the field of unacknowledged segments, and the
/// capacity in the one of selective acknowledgments.
fn of_tcp(listener: BorrowedFd<'_>) -> Option<ListenQueue> {
    let info = tcp_info(listener).ok()?;
    Some(ListenQueue { length: info.tcpi_unacked, most: info.tcpi_sacked })
}

fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: both pointers are to locals that live through the call; the kernel writes `length` bytes at most.
    let answer = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    if answer == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

/// Time between two looks, in milliseconds.
const LOOK_MS: u64 = 1000;
/// Time between two lines about a full queue, in milliseconds.
const REPORT_EVERY_MS: u64 = 60_000;

/// The accept queues of the instance at the last look.
#[derive(Debug, Default)]
pub struct QueueAlarm {
    watch: QueueWatch,
    queues: Vec<ListenQueue>,
    errors: u64,
    next_ms: u64,
    reported_ms: Option<u64>,
}

impl QueueAlarm {
    /// The queues of all sockets, in the order of the settings.
    pub fn queues(&self) -> &[ListenQueue] {
        &self.queues
    }

    /// How many looks found a queue full.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// When to look again.
    pub fn wake_ms(&self) -> u64 {
        self.next_ms
    }

    /// Looks without counting, to answer a question.
    pub fn refresh(&mut self, listeners: &Listeners) {
        let sockets = listeners.sockets();
        self.queues = (0..listeners.endpoints().len())
            .map(|number| sockets.get(number).map_or(ListenQueue::default(), |socket| self.watch.look(socket.as_fd())))
            .collect();
    }

    /// A message for each queue that the last look found full, in uWSGI's words.
    pub fn messages(&self, listeners: &Listeners) -> Vec<String> {
        let sockets = listeners.sockets();
        let full = self.queues.iter().zip(listeners.endpoints()).enumerate().filter(|(_, (queue, _))| queue.is_full());
        let words = |(number, (queue, endpoint)): (usize, (&ListenQueue, &Endpoint))| {
            let descriptor = sockets.get(number).map_or(-1, AsRawFd::as_raw_fd);
            let ListenQueue { length, most } = queue;
            format!("listen queue of socket \"{}\" (fd: {descriptor}) full !!! ({length}/{most})", endpoint.bound)
        };
        full.map(words).collect()
    }

    /// Looks if it is time. Returns the line to log, if any.
    pub fn look(&mut self, listeners: &Listeners, now_ms: u64) -> Option<String> {
        if now_ms < self.next_ms {
            return None;
        }
        self.next_ms = now_ms + LOOK_MS;
        self.refresh(listeners);
        let full = self.queues.iter().zip(listeners.endpoints()).filter(|(queue, _)| queue.is_full());
        let full: Vec<(&ListenQueue, String)> = full.map(|(queue, endpoint)| (queue, endpoint.bound.clone())).collect();
        self.errors += full.len() as u64;
        let (queue, bound) = full.first()?;
        if self.reported_ms.is_some_and(|told| now_ms < told.saturating_add(REPORT_EVERY_MS)) {
            return None;
        }
        self.reported_ms = Some(now_ms);
        Some(format!(
            "listen queue of socket \"{bound}\" full ({}/{}): clients wait or are refused, because they arrive faster than the \
                workers accept them; more workers and threads (processes, threads) accept more, and a longer queue (listen, \
                net.core.somaxconn) absorbs a burst",
            queue.length, queue.most
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn connections_that_wait_at_a_tcp_socket_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let mut watch = QueueWatch::default();
        assert_eq!(watch.look(listener.as_fd()).length, 0);
        let address = listener.local_addr().expect("named");
        let _waiting = [TcpStream::connect(address), TcpStream::connect(address)].map(|stream| stream.expect("connected"));
        // A client is connected once it has an answer, and in the queue once its own acknowledgment has arrived.
        let queue = loop {
            let queue = watch.look(listener.as_fd());
            assert!(queue.length <= 2);
            if queue.length == 2 {
                break queue;
            }
            std::thread::yield_now();
        };
        assert!(queue.most >= 128 && !queue.is_full());
        drop(listener.accept().expect("accepted"));
        assert_eq!(watch.look(listener.as_fd()).length, 1);
    }

    #[test]
    fn connections_that_wait_at_a_local_socket_are_counted() {
        let directory = crate::testing::Directory::new("queue");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bound");
        let _waiting = [UnixStream::connect(&path), UnixStream::connect(&path)].map(|stream| stream.expect("connected"));
        let mut watch = QueueWatch::default();
        let queue = watch.look(listener.as_fd());
        // A kernel without unix_diag reports nothing.
        assert!(queue.length == 2 && queue.most >= 2 || queue == ListenQueue::default(), "{queue:?}");
    }

    #[test]
    fn an_answer_that_is_cut_or_about_another_socket_is_none() {
        let mut answer = Vec::new();
        for word in [44u32, 20, 0, 0, 0, 77, 0, 0, 12 | 4 << 16, 3, 9] {
            answer.extend_from_slice(&word.to_ne_bytes());
        }
        assert_eq!(queue_of_answer(&answer, 77), Some(ListenQueue { length: 3, most: 9 }));
        assert_eq!(queue_of_answer(&answer, 78), None);
        for length in 0..answer.len() {
            assert_eq!(queue_of_answer(&answer[..length], 77), None);
        }
        answer[32..36].copy_from_slice(&0u32.to_ne_bytes());
        assert_eq!(queue_of_answer(&answer, 77), None);
    }

    #[test]
    fn a_full_queue_is_counted_each_second_and_told_once_a_minute() {
        let mut settings = crate::testing::settings();
        settings.listeners[0].backlog = 1;
        let listeners = Listeners::bind(&settings.listeners, Vec::new(), None).expect("bound");
        let mut alarm = QueueAlarm::default();
        assert_eq!(alarm.look(&listeners, 5_000), None);
        let address = listeners.endpoints()[0].bound.clone();
        let _waiting = [TcpStream::connect(&address), TcpStream::connect(&address)].map(|stream| stream.expect("connected"));
        // A client is connected once it has an answer, and in the queue once its own acknowledgment has arrived.
        while alarm.queues().iter().all(|queue| queue.length < 2) {
            alarm.refresh(&listeners);
        }
        assert_eq!((alarm.look(&listeners, 5_500), alarm.errors()), (None, 0));
        let line = alarm.look(&listeners, 6_000).expect("it is full");
        assert!(line.starts_with(&format!("listen queue of socket \"{address}\" full (2/1): ")), "{line}");
        let messages = alarm.messages(&listeners);
        assert!(messages[0].starts_with(&format!("listen queue of socket \"{address}\" (fd: ")), "{messages:?}");
        assert!(messages[0].ends_with(") full !!! (2/1)") && messages.len() == 1, "{messages:?}");
        assert_eq!((alarm.look(&listeners, 7_000), alarm.errors()), (None, 2));
        assert!(alarm.look(&listeners, 66_000).is_some());
        assert_eq!((alarm.queues().len(), alarm.wake_ms()), (1, 67_000));
    }
}
