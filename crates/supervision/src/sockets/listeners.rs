//! The listening sockets: bound by the master, and inherited by every prototype. A reload keeps those that stay, binds new ones
//! and closes those that are no longer wanted. It does not know protocols. The master runs it, at startup, at each reload, and at
//! the end for `vacuum`.
//!
//! `[::]:80` accepts IPv4 connections too, unless the system says otherwise (net.ipv6.bindv6only), as under uWSGI, which leaves
//! IPV6_V6ONLY alone. nginx sets it since 1.3.4, so that `:80` and `[::]:80` can be used together. If a configuration has both,
//! it is set here as well, since without it the second bind could only fail.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bolide_contract::boot::ListenerDescriptor;
use bolide_contract::settings::{Address, Listener};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{
    AcceptConn, IpFreebind, Ipv6V6Only, KeepAlive, RcvBuf, ReuseAddr, ReusePort, SndBuf, SockType as SocketType, TcpNoDelay,
};
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, accept4, bind, getsockname,
    getsockopt, listen, setsockopt, shutdown, socket,
};
use nix::unistd::{Gid, Uid, getegid, geteuid};

use crate::error::StartError;
use crate::files::guarded_files::{self, KnownFile, SocketNode};
use crate::polling::Source;
use crate::privileges::{self, Privileges};
use crate::sockets::endpoint::Bound;
pub use crate::sockets::endpoint::Endpoint;
use crate::sockets::port_owner;

/// Bytes of a UNIX socket's path, at most: `sun_path` holds 108 with the terminating NUL (unix(7)).
const MAX_PATH_BYTES: usize = 107;

/// Connections that are taken from the accept queues when listening ends, at most; the rest is reset.
const MAX_WAITING: usize = 4096;

/// Time that startup waits for an address in use, in milliseconds: the rest of an instance whose master was killed is gone by
/// then, so a supervisor that restarts it immediately succeeds at the first attempt.
const ADDRESS_WAIT_MS: u64 = 2_500;
/// Time between two attempts to bind, in milliseconds.
const ADDRESS_LOOK_MS: u64 = 50;

/// The listening sockets of an instance, in the order of its settings.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Sockets that stay are shared with the list of the next generation.
    sockets: Vec<Rc<OwnedFd>>,
    endpoints: Vec<Endpoint>,
}

impl Listeners {
    /// Binds them all, except for those that the previous master has handed over, which are not ours before [`Listeners::own`].
    /// If one fails, the files of those before it are removed.
    ///
    /// # Errors
    /// An address that can't be bound. The message says where it was asked for and what to do.
    pub fn bind(
        wanted: &[Listener],
        mut handed: Vec<(Address, OwnedFd)>,
        owner: Option<&Privileges>,
    ) -> Result<Listeners, StartError> {
        let mut listeners = Listeners::default();
        let mut wait = AddressWait::default();
        for listener in wanted {
            let position = handed.iter().position(|(address, _)| *address == listener.address);
            let bound = match position.map(|position| handed.swap_remove(position).1) {
                Some(socket) => taken_over(&socket, listener).map(|endpoint| (socket, endpoint)),
                None => bind_when_free(listener, wanted, owner, &mut wait),
            };
            match bound {
                Ok((descriptor, endpoint)) => {
                    listeners.sockets.push(Rc::new(descriptor));
                    listeners.endpoints.push(endpoint);
                }
                Err(message) => {
                    listeners.remove_files();
                    return Err(StartError::new(format!("{}: {message}", listener.origin)));
                }
            }
        }
        Ok(listeners)
    }

    fn has(&self, socket: &Rc<OwnedFd>) -> bool {
        self.sockets.iter().any(|own| Rc::ptr_eq(own, socket))
    }

    /// The sockets, as a prototype inherits them.
    pub fn descriptors(&self) -> Vec<ListenerDescriptor> {
        let pairs = self.sockets.iter().zip(&self.endpoints);
        let descriptor = |(socket, endpoint): (&Rc<OwnedFd>, &Endpoint)| ListenerDescriptor {
            descriptor: socket.as_raw_fd(),
            bound: endpoint.bound.clone(),
            is_ours: endpoint.is_ours,
        };
        pairs.map(descriptor).collect()
    }

    /// The sockets, to wait on for connections.
    pub fn sources<T: Copy>(&self, token: T) -> impl Iterator<Item = Source<'_, T>> {
        self.sockets.iter().map(move |socket| Source::readable(token, socket.as_fd()))
    }

    /// Whether a connection waits that no worker has accepted yet.
    pub fn have_waiting(&self) -> bool {
        let mut watched: Vec<PollFd<'_>> =
            self.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut watched, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// The sockets, in the same order; none after listening has ended.
    pub fn sockets(&self) -> &[Rc<OwnedFd>] {
        &self.sockets
    }

    /// The endpoints, in the same order. They outlive the sockets.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Stops listening, for all processes that share the sockets: new clients are refused immediately, and the addresses are
    /// free. Returns the connections of the accept queues, each with the number of its socket, so that no earlier client is lost.
    /// A socket that we inherited belongs to its owner, which may go on using it: only our copy is closed.
    pub fn end(&mut self) -> Vec<(u32, OwnedFd)> {
        self.end_where(|_| true)
    }

    fn end_where(&mut self, is_over: impl Fn(&Rc<OwnedFd>) -> bool) -> Vec<(u32, OwnedFd)> {
        let mut waiting = Vec::new();
        for (number, (socket, _)) in (0u32..)
            .zip(self.sockets.drain(..).zip(&self.endpoints))
            .filter(|(_, (socket, endpoint))| endpoint.is_ours && is_over(socket))
        {
            while waiting.len() < MAX_WAITING
                && let Ok(connection) = accept4(socket.as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC)
                && let Ok(connection) = crate::system::adopt(connection)
            {
                waiting.push((number, connection));
            }
            // An orphaned worker may have shut it down before.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
        waiting
    }

    /// Removes the files of UNIX sockets, if they are still the ones that were bound.
    pub fn remove_files(&self) {
        self.remove_files_but(&Listeners::default());
    }

    /// Like [`Listeners::remove_files`], except for the files of another list.
    pub fn remove_files_but(&self, kept: &Listeners) {
        let is_kept = |file: &KnownFile| kept.endpoints.iter().any(|other| other.file.as_ref() == Some(file));
        let ours = self.endpoints.iter().filter(|endpoint| !endpoint.file.as_ref().is_some_and(is_kept));
        ours.for_each(Endpoint::remove_file);
    }
}

/// Why an address can't be bound, as a message for the user.
#[derive(Debug)]
enum Refusal {
    /// This path or name is in use, by a process that may be about to exit.
    InUse(String),
    /// This port is.
    Port(String, u16),
    Other(String),
}

impl Refusal {
    fn message(self) -> String {
        match self {
            Refusal::Port(what, port) => port_owner::in_use(&what, port_owner::find(port).as_ref()),
            Refusal::InUse(what) => {
                format!("{what} is in use by another program; choose another one, or stop it: `ss -lxp` shows the process")
            }
            Refusal::Other(message) => message,
        }
    }
}

impl From<String> for Refusal {
    fn from(message: String) -> Refusal {
        Refusal::Other(message)
    }
}

/// Says which address is waited for.
fn tell_wait(what: &str) {
    let most = crate::text::duration(ADDRESS_WAIT_MS);
    crate::log_sink::line(&format!("waiting up to {most} for {what}, which is in use"));
}

/// The one wait of startup for addresses in use. It begins when the first has been found to be in use by a process that may be
/// about to exit: finding that takes long on a machine that is busy.
#[derive(Debug, Default)]
pub struct AddressWait {
    until: Option<Instant>,
}

impl AddressWait {
    /// A wait that is over: an address in use is an error.
    pub fn over() -> AddressWait {
        AddressWait { until: Some(Instant::now()) }
    }

    fn begin(&mut self) {
        self.until.get_or_insert_with(|| Instant::now() + Duration::from_millis(ADDRESS_WAIT_MS));
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Binds one socket. An address in use is tried again until the wait is over.
pub fn bind_when_free(
    listener: &Listener,
    all: &[Listener],
    owner: Option<&Privileges>,
    wait: &mut AddressWait,
) -> Result<(OwnedFd, Endpoint), String> {
    let mut is_told = false;
    loop {
        let (what, port) = match bind_one(listener, all, owner) {
            Ok(bound) => return Ok(bound),
            Err(Refusal::InUse(what)) if !wait.is_over() => (what, None),
            Err(Refusal::Port(what, port)) if !wait.is_over() => (what, Some(port)),
            Err(refusal) => return Err(refusal.message()),
        };
        if is_told {
            std::thread::sleep(Duration::from_millis(ADDRESS_LOOK_MS));
            continue;
        }
        let owner = port.and_then(port_owner::find);
        // Another program does not end because a server wants its port.
        if owner.as_ref().is_some_and(|owner| !owner.may_end()) {
            return Err(port_owner::in_use(&what, owner.as_ref()));
        }
        tell_wait(&what);
        is_told = true;
        wait.begin();
    }
}

fn bind_one(listener: &Listener, all: &[Listener], owner: Option<&Privileges>) -> Result<(OwnedFd, Endpoint), Refusal> {
    let (descriptor, file) = match &listener.address {
        Address::Tcp { host, port } => (bind_tcp(host, *port, listener, all)?, None),
        Address::Unix(path) => bind_path(path, listener, owner).map(|(socket, file)| (socket, Some(file)))?,
        Address::Abstract(name) => (bind_abstract(name, listener)?, None),
        Address::Descriptor(number) => (take_descriptor(*number)?, None),
        Address::Passed(number) => {
            (take_descriptor(*number).map_err(|message| message.replace("fd://", "LISTEN_FDS: descriptor "))?, None)
        }
    };
    let endpoint = endpoint_of(&descriptor, listener, file)?;
    Ok((descriptor, endpoint))
}

/// The endpoint of a socket that the previous master still owns.
///
/// # Errors
/// The descriptor is not a socket.
pub fn taken_over(socket: &OwnedFd, listener: &Listener) -> Result<Endpoint, String> {
    endpoint_of(socket, listener, None).map(|endpoint| Endpoint { is_ours: false, ..endpoint })
}

fn endpoint_of(descriptor: &OwnedFd, listener: &Listener, file: Option<KnownFile>) -> Result<Endpoint, String> {
    let name =
        getsockname::<SockaddrStorage>(descriptor.as_raw_fd()).map_err(|error| format!("the socket has no name: {error}"))?;
    let address = to_std(&name).map_or(Bound::Local, Bound::Tcp);
    let bound = match (&listener.address, address) {
        (Address::Unix(path), _) => path.display().to_string(),
        (_, Bound::Tcp(address)) => address.to_string(),
        (_, Bound::Local) => local_name(&name),
    };
    let is_ours = !matches!(listener.address, Address::Descriptor(_) | Address::Passed(_));
    let (protocol, is_tls, asked) = (listener.protocol, listener.tls.is_some(), listener.address.clone());
    Ok(Endpoint { protocol, is_tls, bound, asked, address, file, is_ours })
}

fn bind_tcp(host: &str, port: u16, listener: &Listener, all: &[Listener]) -> Result<OwnedFd, Refusal> {
    let address = resolve(host, port)?;
    let storage = SockaddrStorage::from(address);
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let descriptor = new_socket(family)?;
    let set = |answer: nix::Result<()>| answer.map_err(|error| format!("{address}: the socket can't be configured: {error}"));
    tune(&descriptor, listener, family).map_err(|error| format!("{address}: {error}"))?;
    // A restart can bind immediately, even if connections of the last run are in TIME_WAIT.
    set(setsockopt(&descriptor, ReuseAddr, &true))?;
    // Accepted sockets inherit it on Linux. Without it the second small write of an answer can be delayed by 40 ms.
    set(setsockopt(&descriptor, TcpNoDelay, &true))?;
    let beside_ipv4 = address.ip().is_unspecified() && all.iter().any(|other| is_every_ipv4(&other.address, address.port()));
    if address.is_ipv6() && beside_ipv4 {
        set(setsockopt(&descriptor, Ipv6V6Only, &true))?;
    }
    bind(descriptor.as_raw_fd(), &storage).map_err(|error| bind_trouble(error, address))?;
    start_listening(&descriptor, listener.backlog).map_err(|error| bind_trouble(error, address))?;
    Ok(descriptor)
}

/// Sets the socket options, which apply to accepted sockets too.
fn tune(socket: &OwnedFd, listener: &Listener, family: AddressFamily) -> Result<(), String> {
    let tuning = &listener.tuning;
    let said = |option: &'static str| move |error: Errno| format!("the system refuses `{option}`: {error}");
    if let Some(bytes) = tuning.send_buffer_bytes {
        setsockopt(socket, SndBuf, &(bytes as usize)).map_err(said("socket-sndbuf"))?;
    }
    if let Some(bytes) = tuning.receive_buffer_bytes {
        setsockopt(socket, RcvBuf, &(bytes as usize)).map_err(said("socket-rcvbuf"))?;
    }
    if family == AddressFamily::Unix {
        return Ok(());
    }
    if tuning.keepalive {
        setsockopt(socket, KeepAlive, &true).map_err(said("so-keepalive"))?;
    }
    if tuning.reuse_port {
        setsockopt(socket, ReusePort, &true).map_err(said("reuse-port"))?;
    }
    // The IPv4 option applies to IPv6 too (ip(7), ipv6(7)).
    if tuning.free_bind {
        setsockopt(socket, IpFreebind, &true).map_err(said("freebind"))?;
    }
    if let Some(queue) = tuning.fast_open_queue {
        crate::system::set_fast_open(socket, queue).map_err(|error| format!("the system refuses `tcp-fast-open`: {error}"))?;
    }
    Ok(())
}

fn is_every_ipv4(address: &Address, wanted: u16) -> bool {
    matches!(address, Address::Tcp { host, port } if *port == wanted && (host.is_empty() || host == "0.0.0.0" || host == "*"))
}

/// `172.*` is the address of the first interface whose address begins with `172.`, as in uWSGI.
fn address_beginning(beginning: &str) -> Option<IpAddr> {
    nix::ifaddrs::getifaddrs()
        .ok()?
        .filter_map(|interface| to_std(&interface.address?))
        .map(|address| address.ip())
        .find(|address| address.is_ipv4() && address.to_string().starts_with(beginning))
}

/// Resolves a host. A name with several addresses is bound at one, IPv4 first, as in uWSGI.
pub fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() || bare == "*" {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    }
    if let Some((beginning, _)) = bare.split_once('*') {
        return address_beginning(beginning)
            .map(|address| SocketAddr::new(address, port))
            .ok_or_else(|| format!("`{host}`: no interface of this machine has an address that begins with `{beginning}`"));
    }
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let found: Vec<SocketAddr> = (bare, port)
        .to_socket_addrs()
        .map_err(|error| format!("`{host}` is not an address of this machine: the name can't be resolved ({error})"))?
        .collect();
    let first = found.iter().find(|address| address.is_ipv4()).or_else(|| found.first());
    first.copied().ok_or_else(|| format!("`{host}` is not an address of this machine: the name has no address"))
}

fn bind_trouble(error: Errno, address: SocketAddr) -> Refusal {
    let port = address.port();
    Refusal::Other(match error {
        Errno::EADDRINUSE => {
            return Refusal::Port(format!("port {port} of {}", address.ip()), port);
        }
        Errno::EACCES => format!(
            "port {port} needs more rights than an ordinary user has; choose one above 1023, or start Bolide as root (with uid \
                set)"
        ),
        Errno::EADDRNOTAVAIL => format!("{} is not an address of this machine: `ip address` lists them", address.ip()),
        Errno::EAFNOSUPPORT => format!("{address}: this system has no IPv6"),
        other => format!("{address} can't be bound: {other}"),
    })
}

fn bind_path(path: &Path, listener: &Listener, owner: Option<&Privileges>) -> Result<(OwnedFd, KnownFile), Refusal> {
    let shown = path.display();
    let length = path.as_os_str().len();
    if length > MAX_PATH_BYTES {
        return Err(format!("{shown}: the path of a socket may have {MAX_PATH_BYTES} bytes, but this one has {length}").into());
    }
    remove_stale(path, owner)?;
    let descriptor = new_socket(AddressFamily::Unix)?;
    tune(&descriptor, listener, AddressFamily::Unix)?;
    guarded_files::bind_at(&descriptor, path, owner).map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => format!("{shown}: its directory does not exist; create it first"),
        Some(Errno::EACCES) => format!(
            "{shown}: this user may not create files in its directory; change the directory's owner or \
            mode"
        ),
        _ => format!("{shown} can't be bound: {error}"),
    })?;
    let file = apply_ownership(path, listener, owner, None)
        .and_then(|file| {
            start_listening(&descriptor, listener.backlog).map_err(|error| format!("{shown} can't be listened on: {error}"))?;
            Ok(file)
        })
        .inspect_err(|_| {
            // Startup fails with the first error; a file left behind would only be replaced at the next startup.
            if let Ok(node) = SocketNode::find(path, owner) {
                node.known(path, owner).remove().unwrap_or_default();
            }
        })?;
    Ok((descriptor, file))
}

/// New files of a directory with this bit have its group (inode(7), S_ISGID).
const SETGID: u32 = 0o2000;

/// Sets the mode and owner of this file, before any client can connect. The descriptor keeps referring to it, even if another
/// user with write access to the directory replaces it. `known` is the file's identity, if it was created before.
fn apply_ownership(
    path: &Path,
    listener: &Listener,
    identity: Option<&Privileges>,
    known: Option<&KnownFile>,
) -> Result<KnownFile, String> {
    let shown = path.display();
    let node = SocketNode::find(path, identity).map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOTSOCK) => {
            format!("{shown} is no longer a socket: another user writes to its directory; choose a directory of your own")
        }
        _ => format!("{shown}: {error}"),
    })?;
    node.check(known, identity).map_err(|error| error.to_string())?;
    let file = node.known(path, identity);
    if let Some(mode) = listener.mode {
        node.set_mode(mode).map_err(|error| format!("{shown}: its mode can't be set (chmod-socket): {error}"))?;
    }
    let (uid, gid): (Option<Uid>, Option<Gid>) = match (&listener.owner, identity) {
        (Some(owner), _) => {
            let (uid, gid) = privileges::owner(owner).map_err(|error| format!("chown-socket = {owner}: {error}"))?;
            // The socket may have been made with the rights of `uid`. uWSGI makes it as root, whose group stays.
            let has_own_group = path
                .parent()
                .and_then(|directory| directory.metadata().ok())
                .is_some_and(|directory| directory.mode() & SETGID != 0);
            (uid, gid.or_else(|| identity.filter(|_| geteuid().is_root() && !has_own_group).map(|_| getegid())))
        }
        (None, Some(identity)) => (Some(identity.uid), Some(identity.gid)),
        (None, None) => return Ok(file),
    };
    node.set_owner(uid, gid).map_err(|error| {
        format!("{shown}: its owner can't be set (chown-socket, uid): {error}; only root may give files away")
    })?;
    Ok(file)
}

/// Removes a socket file without a listener that is in the way, and no other file.
fn remove_stale(path: &Path, owner: Option<&Privileges>) -> Result<(), Refusal> {
    let shown = path.display();
    let node = match SocketNode::find(path, owner) {
        Ok(node) => node,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOTSOCK)) => {
            return Err(
                format!("{shown} exists and is not a socket, and is not removed: choose another path, or remove it").into()
            );
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(format!("{shown}: this user may not enter its directory; change the directory's owner or mode").into());
        }
        Err(error) => return Err(format!("{shown}: {error}").into()),
    };
    let probe = new_socket(AddressFamily::Unix)?;
    let Err(error) = guarded_files::connect_at(&probe, path, owner) else { return Err(in_use(path)) };
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => node
            .known(path, owner)
            .remove()
            .map_err(|error| format!("{shown} is a leftover and can't be removed: {error}").into()),
        Some(Errno::ENOENT) => Ok(()),
        // It has a listener, with a full queue.
        Some(Errno::EAGAIN) => Err(in_use(path)),
        _ => Err(Refusal::Other(format!(
            "{shown} exists, and it can't be determined whether a process listens on it ({error}); remove it if none does"
        ))),
    }
}

fn in_use(path: &Path) -> Refusal {
    Refusal::InUse(path.display().to_string())
}

/// Binds an abstract name as it is, without the NUL that uWSGI appends: so `socat`, Python and clients of other servers find it.
fn bind_abstract(name: &str, listener: &Listener) -> Result<OwnedFd, Refusal> {
    let address = UnixAddr::new_abstract(name.as_bytes())
        .map_err(|_| format!("@{name}: the name of a socket may have {MAX_PATH_BYTES} bytes"))?;
    let descriptor = new_socket(AddressFamily::Unix)?;
    tune(&descriptor, listener, AddressFamily::Unix)?;
    let trouble = |error| match error {
        Errno::EADDRINUSE => Refusal::InUse(format!("@{name}")),
        other => Refusal::Other(format!("@{name} can't be bound: {other}")),
    };
    bind(descriptor.as_raw_fd(), &address).map_err(trouble)?;
    start_listening(&descriptor, listener.backlog).map_err(trouble)?;
    Ok(descriptor)
}

fn take_descriptor(number: i32) -> Result<OwnedFd, String> {
    if (0..=2).contains(&number) {
        // They remain the standard descriptors of the processes that we start: a copy is served.
        let standard = match number {
            0 => fcntl(io::stdin(), FcntlArg::F_DUPFD_CLOEXEC(3)),
            1 => fcntl(io::stdout(), FcntlArg::F_DUPFD_CLOEXEC(3)),
            _ => fcntl(io::stderr(), FcntlArg::F_DUPFD_CLOEXEC(3)),
        };
        let copy = standard.map_err(|error| format!("fd://{number} can't be duplicated: {error}"))?;
        return take_descriptor(copy).map_err(|message| message.replace(&format!("fd://{copy}"), &format!("fd://{number}")));
    }
    let descriptor = crate::system::adopt(number).map_err(|_| {
        format!(
            "fd://{number}: no descriptor of that number is open; the process that starts Bolide must pass it \
            on"
        )
    })?;
    let stream = matches!(getsockopt(&descriptor, SocketType), Ok(SockType::Stream));
    if !stream || !matches!(getsockopt(&descriptor, AcceptConn), Ok(true)) {
        return Err(format!("fd://{number} is not a listening socket; bind it and listen on it before Bolide is started"));
    }
    let trouble = |error: Errno| format!("fd://{number} can't be made non-blocking: {error}");
    let flags = fcntl(&descriptor, FcntlArg::F_GETFL).map_err(trouble)?;
    fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::from_bits_truncate(flags) | OFlag::O_NONBLOCK)).map_err(trouble)?;
    // A UNIX socket refuses the option, and has no such delay.
    setsockopt(&descriptor, TcpNoDelay, &true).unwrap_or_default();
    Ok(descriptor)
}

fn new_socket(family: AddressFamily) -> Result<OwnedFd, String> {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None).map_err(|error| match error {
        Errno::EAFNOSUPPORT => "this system has no IPv6".to_owned(),
        other => format!("no socket can be created: {other}"),
    })
}

/// A backlog of 0 is the kernel's maximum (net.core.somaxconn), and so is a number above the C library's SOMAXCONN.
fn start_listening(descriptor: &OwnedFd, backlog: u32) -> nix::Result<()> {
    let asked = i32::try_from(backlog).ok().filter(|number| *number > 0).and_then(|number| Backlog::new(number).ok());
    listen(descriptor, asked.unwrap_or(Backlog::MAXALLOWABLE))
}

/// The kernel's limit for the backlog, if it can be read.
pub fn backlog_limit() -> Option<u32> {
    let text = io::read_to_string(File::open("/proc/sys/net/core/somaxconn").ok()?).ok()?;
    text.trim().parse().ok()
}

/// The address, if it is IPv4 or IPv6.
pub fn to_std(name: &SockaddrStorage) -> Option<SocketAddr> {
    let four = name.as_sockaddr_in().map(|address| SocketAddr::from((address.ip(), address.port())));
    four.or_else(|| name.as_sockaddr_in6().map(|address| SocketAddr::from((address.ip(), address.port()))))
}

fn local_name(name: &SockaddrStorage) -> String {
    let Some(address) = name.as_unix_addr() else { return format!("family {:?}", name.family()) };
    match (address.path(), address.as_abstract()) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(name)) => format!("@{}", String::from_utf8_lossy(name)),
        (None, None) => "an unnamed socket".to_owned(),
    }
}

#[path = "listeners_renewal.rs"]
mod renewal;

#[cfg(test)]
#[path = "listeners_tests.rs"]
mod tests;
