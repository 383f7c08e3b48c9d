//! The vassal's end of the connection to its emperor (`UWSGI_EMPEROR_FD`): reports that it serves, is alive or is idle, and
//! orders from there. A vassal of a Bolide emperor waits for the next one when its emperor has exited. It does not know what an
//! order means for the instance. Without that variable nothing is opened or sent. The master runs it.

use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use bolide_contract::loyalty::{self, COURT_VARIABLE, EmperorOrder, Greeting, VARIABLE, VassalReport};
use bolide_contract::message::first_descriptor;
use nix::sys::socket::{MsgFlags, getsockopt, recvmsg, sockopt};
use nix::unistd::{Pid, geteuid};

use crate::log_sink;
use crate::polling::Source;
use crate::system;

/// Connections that are accepted in a turn: other users, who are not heard, must not fill the queue.
const MAX_ACCEPTED_TURN: usize = 256;
/// Bytes that are read in a turn: an emperor sends one for each order.
const MAX_ORDERS_TURN: usize = 64;
/// Descriptors that a read has room for: an emperor sends one.
const MAX_DESCRIPTORS_READ: usize = 1;

/// What has come from the emperor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmperorEvent {
    /// An order. [`EmperorLink::take_log`] is the file of one to take a log.
    Ordered(EmperorOrder),
    /// It has ended, and nothing governs this instance.
    Lost,
    /// It has ended, and another may come.
    Left,
    /// Another emperor, with this pid, governs this instance.
    Governed(i32),
}

/// The connection to the emperor, if there is one.
#[derive(Debug, Default)]
pub struct EmperorLink {
    socket: Option<UnixStream>,
    /// Where the next emperor connects; `None` if there will be none.
    listener: Option<UnixListener>,
    /// The name by which the emperor knows this vassal.
    name: String,
    /// When the configuration was last read, in seconds since 1970.
    read_s: u64,
    has_served: bool,
    /// `heartbeat`
    every_ms: Option<u64>,
    next_ms: u64,
    /// The newest log of the emperor until it is taken.
    log: Option<OwnedFd>,
}

impl EmperorLink {
    /// The link of this process' environment. A socket that is unusable is logged, and does not prevent startup.
    pub fn from_environment(heartbeat_ms: Option<u64>) -> EmperorLink {
        let Some(number) = std::env::var_os(VARIABLE) else { return EmperorLink::default() };
        match socket_of(&number.to_string_lossy()) {
            Ok(socket) => {
                let (listener, name) = await_next();
                let read_s = system::seconds_since_1970();
                EmperorLink { socket: Some(socket), listener, name, read_s, every_ms: heartbeat_ms, ..EmperorLink::default() }
            }
            Err(error) => {
                log_sink::line(&format!("{VARIABLE} = {}: {error}; there is no emperor", number.to_string_lossy()));
                EmperorLink::default()
            }
        }
    }

    /// Whether an emperor governs this instance, or may do so again.
    pub fn is_of_vassal(&self) -> bool {
        self.socket.is_some() || self.listener.is_some()
    }

    /// The sockets, which are readable when there is an order or another emperor.
    pub fn sources<T: Copy>(&self, token: T) -> impl Iterator<Item = Source<'_, T>> {
        let socket = self.socket.iter().map(AsFd::as_fd);
        socket.chain(self.listener.iter().map(AsFd::as_fd)).map(move |descriptor| Source::readable(token, descriptor))
    }

    /// When the next heartbeat is due.
    pub fn wake_ms(&self) -> Option<u64> {
        self.every_ms.filter(|_| self.socket.is_some()).map(|_| self.next_ms)
    }

    /// Sends a heartbeat, if it is time.
    pub fn beat_if_due(&mut self, now_ms: u64) {
        let Some(every_ms) = self.every_ms.filter(|_| self.socket.is_some() && now_ms >= self.next_ms) else { return };
        self.next_ms = now_ms.saturating_add(every_ms);
        self.report(VassalReport::Heartbeat);
    }

    /// Workers serve, after startup or after a reload. uWSGI calls itself loyal after the first request. Workers that serve have
    /// loaded the application, so its emperor need not wait for more.
    pub fn serves(&mut self) {
        self.has_served = true;
        for report in [VassalReport::Spawned, VassalReport::Accepting, VassalReport::Loyal] {
            self.report(report);
        }
    }

    /// Sends a report. An emperor that does not read loses it, because a vassal must not wait for its emperor. One that has ended
    /// is noticed by [`EmperorLink::take`].
    pub fn report(&mut self, report: VassalReport) {
        if let Some(socket) = &mut self.socket {
            let _ = socket.write(&[report.byte()]);
        }
    }

    /// Returns what has come.
    pub fn take(&mut self) -> Vec<EmperorEvent> {
        let mut events = self.read();
        if self.socket.is_none()
            && let Some(pid) = self.accept()
        {
            events.push(EmperorEvent::Governed(pid));
        }
        events
    }

    /// The file that the emperor has sent last.
    pub fn take_log(&mut self) -> Option<OwnedFd> {
        self.log.take()
    }

    /// Reads orders. After the end of the emperor there are none.
    fn read(&mut self) -> Vec<EmperorEvent> {
        let Some(socket) = &mut self.socket else { return Vec::new() };
        let mut bytes = [0; MAX_ORDERS_TURN];
        match receive(socket, &mut bytes) {
            Ok((count, log)) if count > 0 => {
                self.log = log.or(self.log.take());
                let orders: Vec<EmperorOrder> = bytes[..count].iter().filter_map(|byte| EmperorOrder::of(*byte)).collect();
                if orders.contains(&EmperorOrder::Reload) {
                    self.read_s = system::seconds_since_1970();
                }
                orders.into_iter().map(EmperorEvent::Ordered).collect()
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Vec::new(),
            Ok(_) | Err(_) => {
                self.socket = None;
                vec![if self.listener.is_some() { EmperorEvent::Left } else { EmperorEvent::Lost }]
            }
        }
    }

    /// Accepts the next emperor, which must be root's or of this user. Returns its pid.
    fn accept(&mut self) -> Option<i32> {
        for _ in 0..MAX_ACCEPTED_TURN {
            let (stream, _) = self.listener.as_ref()?.accept().ok()?;
            let Ok(peer) = getsockopt(&stream, sockopt::PeerCredentials) else { continue };
            let is_known = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
            if !is_known || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let greeting = Greeting { name: self.name.clone(), read_s: self.read_s };
            if (&stream).write_all(greeting.line().as_bytes()).is_err() {
                continue;
            }
            self.socket = Some(stream);
            if self.has_served {
                self.serves();
            }
            return Some(peer.pid());
        }
        None
    }
}

/// Reads bytes, and the descriptor that comes with one of them. A read ends with the bytes that have one (unix(7)).
fn receive(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut slices = [IoSliceMut::new(bytes)];
    let mut space = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS_READ]);
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let descriptor = first_descriptor(&received)?;
    Ok((received.bytes, descriptor))
}

/// Opens the socket at which a vassal of a Bolide emperor waits for the next. Returns it, and the vassal's name.
fn await_next() -> (Option<UnixListener>, String) {
    let Some((court, name)) = std::env::var(COURT_VARIABLE).ok().and_then(|text| {
        let (court, name) = text.split_once(':')?;
        Some((court.to_owned(), name.to_owned()))
    }) else {
        return (None, String::new());
    };
    let address = SocketAddr::from_abstract_name(loyalty::name_of_vassal(&court, Pid::this().as_raw()));
    let listener = address.and_then(|address| UnixListener::bind_addr(&address));
    let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    if let Err(error) = &listener {
        log_sink::line(&format!("no socket for the next emperor: {error}; this instance stops with its emperor"));
    }
    (listener.ok(), name)
}

fn socket_of(number: &str) -> io::Result<UnixStream> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let number = number.parse().map_err(|_| wrong("it is not the number of a descriptor"))?;
    if number <= libc::STDERR_FILENO {
        return Err(wrong("it is a standard stream"));
    }
    let socket = UnixStream::from(system::adopt(number)?);
    // An error here is that of a descriptor that is not a UNIX socket.
    socket.peer_addr().map_err(|_| wrong("it is not a connected UNIX socket"))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::IntoRawFd;

    fn link() -> (EmperorLink, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair");
        let link =
            EmperorLink { socket: Some(socket_of(&near.into_raw_fd().to_string()).expect("opened")), ..EmperorLink::default() };
        (link, far)
    }

    #[test]
    fn orders_are_read_whatever_else_an_emperor_sends_and_its_end_comes_once() {
        let (mut link, mut far) = link();
        assert_eq!(link.take(), []);
        far.write_all(&[1, 77, 2, 0]).expect("written");
        let orders = [EmperorOrder::Reload, EmperorOrder::StopGracefully, EmperorOrder::Stop].map(EmperorEvent::Ordered);
        assert_eq!(link.take(), orders);
        drop(far);
        assert_eq!((link.take(), link.take(), link.is_of_vassal()), (vec![EmperorEvent::Lost], Vec::new(), false));
        link.serves();
    }

    #[test]
    fn a_heartbeat_comes_once_in_its_interval_and_without_one_never() {
        let (mut link, mut far) = link();
        link.beat_if_due(0);
        assert_eq!(link.wake_ms(), None);
        link.every_ms = Some(1000);
        [5000, 5999, 6000].into_iter().for_each(|now_ms| link.beat_if_due(now_ms));
        assert_eq!(link.wake_ms(), Some(7000));
        let mut bytes = [0; 8];
        assert_eq!((far.read(&mut bytes).expect("read"), &bytes[..2]), (2, &[26, 26][..]));
    }

    #[test]
    fn what_is_no_socket_of_an_emperor_is_refused() {
        let file = std::fs::File::open("/dev/null").expect("opened");
        let of_file = file.as_raw_fd();
        for number in ["", "x", "-1", "2", "1000000"] {
            assert!(socket_of(number).is_err(), "{number}");
        }
        // Taken over, and closed.
        std::mem::forget(file);
        assert!(socket_of(&of_file.to_string()).is_err());
    }
}
