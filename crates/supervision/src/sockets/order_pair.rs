//! Pairs of sockets between the master and one of its children. It knows no message. The master runs it.

use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

/// Creates a socket pair for orders and reports. Our end is non-blocking. Executed programs inherit neither end, unless the
/// close-on-exec flag is cleared for that one child.
pub fn order_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    fcntl(&near, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    Ok((near, far))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::message::{self, Order};
    use std::os::fd::AsFd;

    #[test]
    fn neither_end_of_an_order_pair_is_inherited_and_ours_never_waits() {
        let (near, far) = order_pair().expect("made");
        for end in [&near, &far] {
            assert_eq!(fcntl(end, FcntlArg::F_GETFD), Ok(libc::FD_CLOEXEC));
        }
        assert!(matches!(message::receive::<Order>(near.as_fd()), Ok(message::Received::Nothing)));
    }
}
