//! Tests of the listening sockets: real sockets, on 127.0.0.1 and in directories of the tests' own.

use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};

use bolide_contract::settings::Protocol;
use nix::sys::socket::SockaddrIn;

use super::*;
use crate::testing::Directory;
use bolide_contract::tls::Http2;

fn listener(address: Address) -> Listener {
    Listener {
        address,
        protocol: Protocol::Http,
        backlog: 0,
        mode: None,
        owner: None,
        timeout_ms: 1000,
        tls: None,
        redirects_to_https: None,
        http2: Http2::Off,
        has_proxy_header: false,
        may_lack_proxy_header: false,
        tuning: Default::default(),
        origin: "app.ini:3".to_owned(),
    }
}

fn tcp(host: &str, port: u16) -> Listener {
    listener(Address::Tcp { host: host.to_owned(), port })
}

fn refused(wanted: Listener) -> String {
    let error = Listeners::bind(&[wanted], Vec::new(), None).expect_err("refused").to_string();
    assert!(error.starts_with("app.ini:3: "), "an error contains its origin: {error}");
    error
}

#[test]
fn tcp_listeners_are_bound_in_order_and_port_0_becomes_a_real_one() {
    let wanted = [tcp("127.0.0.1", 0), tcp("localhost", 0)];
    let listeners = Listeners::bind(&wanted, Vec::new(), None).expect("bound");
    let descriptors = listeners.descriptors();
    assert_eq!(descriptors.len(), 2);
    for (described, socket) in descriptors.iter().zip(&listeners.sockets) {
        TcpStream::connect(&described.bound).expect("a process listens");
        assert_eq!(getsockopt(socket, TcpNoDelay), Ok(true));
        assert_eq!(getsockopt(socket, ReuseAddr), Ok(true));
        assert!(fcntl(socket, FcntlArg::F_GETFL).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0));
        assert!(fcntl(socket, FcntlArg::F_GETFD).is_ok_and(|flags| flags & libc::FD_CLOEXEC != 0));
    }
    assert_eq!(listeners.endpoints()[0].to_open(), format!("http://{}", descriptors[0].bound));
}

#[test]
fn a_host_is_an_address_a_name_or_nothing() {
    assert_eq!(resolve("", 80), Ok("0.0.0.0:80".parse().expect("address")));
    assert_eq!(resolve("[::1]", 80), Ok("[::1]:80".parse().expect("address")));
    assert_eq!(resolve("::1", 80), Ok("[::1]:80".parse().expect("address")));
    assert_eq!(resolve("127.*", 80), Ok("127.0.0.1:80".parse().expect("address")));
    assert!(resolve("999.*", 80).expect_err("refused").contains("begins with `999.`"));
    assert!(resolve("localhost", 80).is_ok_and(|address| address.ip().is_loopback()));
    assert!(resolve("no such host!", 80).expect_err("refused").contains("can't be resolved"));
}

#[test]
fn every_address_is_shown_as_one_that_opens() {
    let endpoint = |text: &str, protocol| Endpoint {
        asked: Address::Tcp { host: String::new(), port: 0 },
        protocol,
        is_tls: false,
        bound: text.to_owned(),
        address: text.parse().map_or(Bound::Local, Bound::Tcp),
        file: None,
        is_ours: true,
    };
    let shown = |text, protocol| endpoint(text, protocol).to_open();
    let encrypted = |text, protocol| Endpoint { is_tls: true, ..endpoint(text, protocol) }.to_open();
    assert_eq!(encrypted("127.0.0.1:8443", Protocol::Http), "https://127.0.0.1:8443");
    assert_eq!(encrypted("127.0.0.1:3032", Protocol::Uwsgi), "suwsgi://127.0.0.1:3032");
    assert_eq!(shown("0.0.0.0:8080", Protocol::Http), "http://127.0.0.1:8080");
    assert_eq!(shown("[::]:8080", Protocol::Http), "http://[::1]:8080");
    assert_eq!(shown("192.0.2.1:80", Protocol::Uwsgi), "uwsgi://192.0.2.1:80");
    assert_eq!(shown("/run/app.sock", Protocol::Uwsgi), "uwsgi unix:/run/app.sock");
    assert_eq!(encrypted("/run/app.sock", Protocol::Http), "https unix:/run/app.sock");
    assert!(endpoint("0.0.0.0:80", Protocol::Http).is_everywhere() && !endpoint("127.0.0.1:80", Protocol::Http).is_everywhere());
    assert!(endpoint("127.0.0.1:80", Protocol::Http).is_web() && !endpoint("/run/app.sock", Protocol::Http).is_web());
}

#[test]
fn ipv6_stands_beside_ipv4_on_one_port() {
    // A bound socket keeps the port from other programs, and without listening it leaves the port to ours.
    let probe = new_socket(AddressFamily::Inet).expect("made");
    setsockopt(&probe, ReuseAddr, &true).expect("set");
    bind(probe.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, 0)).expect("bound");
    let port = getsockname::<SockaddrIn>(probe.as_raw_fd()).expect("a name").port();
    let both = [tcp("", port), tcp("[::]", port)];
    if new_socket(AddressFamily::Inet6).is_err() {
        // A kernel without IPv6: then the error must report it.
        assert!(Listeners::bind(&both, Vec::new(), None).expect_err("refused").to_string().contains("no IPv6"));
        return;
    }
    let listeners = Listeners::bind(&both, Vec::new(), None).expect("both are bound");
    assert_eq!(getsockopt(&listeners.sockets[1], Ipv6V6Only), Ok(true));
    drop(listeners);
    let alone = Listeners::bind(&[tcp("[::]", 0)], Vec::new(), None).expect("bound");
    let system = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only").is_ok_and(|text| text.trim() == "1");
    assert_eq!(getsockopt(&alone.sockets[0], Ipv6V6Only), Ok(system));
}

#[test]
fn a_port_in_use_is_an_error_that_says_what_to_do() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = holder.local_addr().expect("a name").port();
    let error = refused(tcp("127.0.0.1", port));
    assert!(
        error.contains(&format!("port {port}")) && error.contains("in use") && error.contains("contains the port twice"),
        "{error}"
    );
    assert!(refused(tcp("192.0.2.77", 0)).contains("not an address of this machine"));
}

#[test]
fn the_wait_for_an_address_begins_when_its_owner_has_been_looked_for() {
    // The look may take longer than the whole wait, and the owner may have gone in the meantime.
    let holder = TcpListener::bind("127.0.0.1:0").expect("bound");
    let wanted = tcp("127.0.0.1", holder.local_addr().expect("a name").port());
    let mut wait = AddressWait::default();
    assert!(!wait.is_over() && wait.until.is_none());
    assert!(bind_when_free(&wanted, &[], None, &mut wait).is_err());
    assert!(wait.until.is_none(), "nothing is waited for if the owner does not exit");
    wait.begin();
    let first = wait.until;
    wait.begin();
    assert!(first.is_some() && wait.until == first && !wait.is_over());
}

#[test]
fn a_unix_socket_gets_its_mode_and_vacuum_removes_it() {
    let directory = Directory::new("unix");
    let path = directory.path().join("app.sock");
    let mut wanted = listener(Address::Unix(path.clone()));
    wanted.mode = Some(0o660);
    let listeners = Listeners::bind(&[wanted], Vec::new(), None).expect("bound");
    UnixStream::connect(&path).expect("a process listens");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o660);
    assert_eq!(listeners.descriptors()[0].bound, path.display().to_string());
    listeners.remove_files();
    assert!(!path.exists());
}

#[test]
fn vacuum_leaves_the_socket_of_another_program() {
    let directory = Directory::new("vacuum");
    let path = directory.path().join("app.sock");
    let listeners = Listeners::bind(&[listener(Address::Unix(path.clone()))], Vec::new(), None).expect("bound");
    std::fs::remove_file(&path).expect("removed");
    // Keep the inode of ours in use, so that the other file gets another one.
    let _other = UnixListener::bind(&path).expect("another program binds there");
    listeners.remove_files();
    assert!(path.exists());
}

#[test]
fn a_stale_unix_socket_is_replaced_and_a_used_one_is_not() {
    let directory = Directory::new("stale");
    let path = directory.path().join("app.sock");
    // A socket that does not listen refuses connections, as the file of a dead listener does. Closing a listener here would not
    // be reliable: a program that another test starts holds a copy of it until its exec.
    let dead = new_socket(AddressFamily::Unix).expect("made");
    bind(dead.as_raw_fd(), &UnixAddr::new(&path).expect("short")).expect("bound");
    let living = Listeners::bind(&[listener(Address::Unix(path.clone()))], Vec::new(), None).expect("replaced");
    let error = refused(listener(Address::Unix(path.clone())));
    assert!(error.contains("in use by another program"), "{error}");
    UnixStream::connect(&path).expect("the first one is untouched");
    drop(living);
}

#[test]
fn a_file_in_the_way_is_never_removed() {
    let directory = Directory::new("file");
    let path = directory.path().join("precious");
    std::fs::write(&path, "data").expect("written");
    assert!(refused(listener(Address::Unix(path.clone()))).contains("is not a socket"));
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "data");
}

#[test]
fn paths_that_can_not_hold_a_socket_are_errors() {
    assert!(refused(listener(Address::Unix(format!("/tmp/{}", "x".repeat(120)).into()))).contains("107 bytes"));
    assert!(refused(listener(Address::Unix("/nonexistent/directory/app.sock".into()))).contains("directory does not exist"));
}

#[test]
fn a_failed_start_leaves_no_socket_file() {
    let directory = Directory::new("failed");
    let path = directory.path().join("app.sock");
    let wanted = [listener(Address::Unix(path.clone())), tcp("192.0.2.77", 0)];
    Listeners::bind(&wanted, Vec::new(), None).expect_err("the second can't be bound");
    assert!(!path.exists());
    let mut unowned = listener(Address::Unix(path.clone()));
    unowned.owner = Some("no-such-user-here".to_owned());
    assert!(refused(unowned).contains("chown-socket = no-such-user-here"));
    assert!(!path.exists());
}

#[test]
fn the_owner_is_the_identity_unless_chown_socket_says_otherwise() {
    if !nix::unistd::geteuid().is_root() {
        // Only root can give files away: an ordinary user gets an error.
        let mut wanted = listener(Address::Unix(Directory::new("owner").path().join("app.sock")));
        wanted.owner = Some("root".to_owned());
        Listeners::bind(&[wanted], Vec::new(), None).expect_err("refused");
        return;
    }
    let directory = Directory::new("owner");
    let identity = Privileges { uid: Uid::from_raw(1234), gid: Gid::from_raw(1235), groups: Vec::new() };
    let owner_of = |path: &Path| std::fs::metadata(path).map(|found| (found.uid(), found.gid())).expect("there");
    let path = directory.path().join("a.sock");
    let _plain = Listeners::bind(&[listener(Address::Unix(path.clone()))], Vec::new(), Some(&identity)).expect("bound");
    assert_eq!(owner_of(&path), (1234, 1235));
    let path = directory.path().join("b.sock");
    let mut wanted = listener(Address::Unix(path.clone()));
    wanted.owner = Some("77:78".to_owned());
    let _owned = Listeners::bind(&[wanted], Vec::new(), Some(&identity)).expect("bound");
    assert_eq!(owner_of(&path), (77, 78));
}

#[test]
fn an_abstract_name_is_bound_as_it_is_written() {
    let name = format!("bolide-test-{}", std::process::id());
    let listeners = Listeners::bind(&[listener(Address::Abstract(name.clone()))], Vec::new(), None).expect("bound");
    assert_eq!(listeners.descriptors()[0].bound, format!("@{name}"));
    let address = UnixAddress::from_abstract_name(&name).expect("an address");
    UnixStream::connect_addr(&address).expect("a process listens");
    assert!(refused(listener(Address::Abstract(name))).contains("in use"));
}

#[test]
fn a_listening_descriptor_is_taken_over_and_others_are_refused() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bound");
    let bound = socket.local_addr().expect("a name").to_string();
    let listeners =
        Listeners::bind(&[listener(Address::Descriptor(socket.into_raw_fd()))], Vec::new(), None).expect("taken over");
    assert_eq!(listeners.descriptors()[0].bound, bound);
    assert!(fcntl(&listeners.sockets[0], FcntlArg::F_GETFL).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0));
    TcpStream::connect(&bound).expect("it still listens");
    let connected = TcpStream::connect(&bound).expect("connected").into_raw_fd();
    assert!(refused(listener(Address::Descriptor(connected))).contains(&format!("fd://{connected} is not a listening socket")));
    assert!(refused(listener(Address::Descriptor(987_654))).contains("no descriptor of that number is open"));
    assert!(refused(listener(Address::Descriptor(0))).contains("fd://0 is not a listening socket"));
}

#[test]
fn a_file_that_replaces_a_new_socket_keeps_its_mode_and_its_owner() {
    let directory = Directory::new("laid");
    let (victim, laid) = (directory.path().join("victim"), directory.path().join("app.sock"));
    std::fs::write(&victim, "secret").expect("written");
    std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o600)).expect("set");
    std::os::unix::fs::symlink(&victim, &laid).expect("laid");
    let mut wanted = listener(Address::Unix(laid.clone()));
    wanted.mode = Some(0o666);
    let said = apply_ownership(&laid, &wanted, None, None).map(|_| ()).expect_err("it is not socket");
    assert!(said.contains("is no longer a socket"), "{said}");
    std::fs::remove_file(&laid).expect("removed");
    std::fs::hard_link(&victim, &laid).expect("laid");
    assert!(apply_ownership(&laid, &wanted, None, None).is_err());
    assert_eq!(std::fs::metadata(&victim).expect("there").permissions().mode() & 0o777, 0o600);
}
