//! Listening sockets that our parent has opened already (`LISTEN_FDS`, sd_listen_fds(3)). If the configuration names the address
//! of such a socket, that socket is served with the configured options, because a second one could not be bound. It opens and
//! closes nothing. The master runs it, before the listeners are bound.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use bolide_contract::settings::{Address, Listener};
use nix::sys::socket::{SockaddrStorage, getsockname};

use crate::sockets::listeners;

/// The variables of socket activation. Only the master has them: prototypes and workers do not.
pub const VARIABLES: [&str; 3] = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// The address at which a socket listens.
#[derive(Debug, PartialEq)]
enum Name {
    Tcp(SocketAddr),
    Path(PathBuf),
    Abstract(Vec<u8>),
}

/// Assigns the passed sockets to the configured listeners with the same address. A socket that matches none of them becomes a
/// listener of its own.
pub fn merge(wanted: Vec<Listener>) -> Vec<Listener> {
    let (passed, mut named): (Vec<Listener>, Vec<Listener>) =
        wanted.into_iter().partition(|listener| matches!(listener.address, Address::Passed(_)));
    for listener in passed {
        let Address::Passed(descriptor) = listener.address else { continue };
        match named.iter_mut().find(|known| is_at(&known.address, descriptor)) {
            Some(known) => known.address = listener.address,
            None => named.push(listener),
        }
    }
    named
}

/// Whether an address of the configuration is the address of an open socket.
fn is_at(address: &Address, descriptor: RawFd) -> bool {
    if let Address::Descriptor(number) = address {
        return *number == descriptor;
    }
    let Some(found) = name_of(descriptor) else { return false };
    match address {
        // Port 0 asks for any free port, so it never matches an existing socket.
        Address::Tcp { port: 0, .. } | Address::Descriptor(_) | Address::Passed(_) => false,
        Address::Tcp { host, port } => listeners::resolve(host, *port).is_ok_and(|asked| found == Name::Tcp(asked)),
        Address::Unix(path) => found == Name::Path(path.clone()),
        Address::Abstract(name) => found == Name::Abstract(name.as_bytes().to_owned()),
    }
}

fn name_of(descriptor: RawFd) -> Option<Name> {
    let name = getsockname::<SockaddrStorage>(descriptor).ok()?;
    if let Some(address) = listeners::to_std(&name) {
        return Some(Name::Tcp(address));
    }
    let local = name.as_unix_addr()?;
    local.path().map(Path::to_owned).map(Name::Path).or_else(|| local.as_abstract().map(|name| Name::Abstract(name.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    fn listener(address: Address, origin: &str) -> Listener {
        let mut listener = crate::testing::settings().listeners.remove(0);
        listener.address = address;
        listener.origin = origin.to_owned();
        listener
    }

    #[test]
    fn a_socket_that_is_there_is_taken_for_the_address_that_names_it_and_else_added() {
        let directory = crate::testing::Directory::new("passed");
        let path = directory.path().join("app.sock");
        let (tcp, local) = (TcpListener::bind("127.0.0.1:0").expect("bound"), UnixListener::bind(&path).expect("bound"));
        let port = tcp.local_addr().expect("named").port();
        let (first, second) = (Address::Passed(tcp.as_raw_fd()), Address::Passed(local.as_raw_fd()));
        let merged = merge(vec![
            listener(Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }, "any port"),
            listener(Address::Tcp { host: "127.0.0.1".to_owned(), port }, "named"),
            listener(first.clone(), "passed"),
            listener(second.clone(), "passed too"),
        ]);
        let found: Vec<(&str, &Address)> = merged.iter().map(|one| (one.origin.as_str(), &one.address)).collect();
        let any = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        assert_eq!(found, [("any port", &any), ("named", &first), ("passed too", &second)]);
        let merged = merge(vec![listener(Address::Unix(path), "named"), listener(second.clone(), "passed")]);
        assert_eq!((merged.len(), &merged[0].address), (1, &second));
        let by_number = Address::Descriptor(tcp.as_raw_fd());
        assert_eq!(merge(vec![listener(by_number, "named"), listener(first.clone(), "passed")]).len(), 1);
    }
}
