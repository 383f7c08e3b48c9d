//! The one blocking wait of a supervising process: on descriptors, each with a token of the caller's that identifies its owner,
//! and on the clock. It does not know the owners of descriptors. The master runs it.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The token of a server's descriptors, for modules that have a listening socket and clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerToken {
    /// The listening socket.
    Listener,
    /// The client with this number, which the server assigned.
    Client(u64),
}

/// A descriptor to wait on.
#[derive(Debug)]
pub struct Source<'a, T> {
    /// The owner of the descriptor, in the caller's terms.
    pub token: T,
    /// The descriptor.
    pub descriptor: BorrowedFd<'a>,
    /// The events to wait for. Errors and a hang-up of the peer are always reported.
    pub wants: PollFlags,
}

impl<'a, T> Source<'a, T> {
    /// Waits until the descriptor is readable, or the peer has closed it.
    pub fn readable(token: T, descriptor: BorrowedFd<'a>) -> Source<'a, T> {
        Source { token, descriptor, wants: PollFlags::POLLIN }
    }

    /// Waits until the descriptor can be written to.
    pub fn writable(token: T, descriptor: BorrowedFd<'a>) -> Source<'a, T> {
        Source { token, descriptor, wants: PollFlags::POLLOUT }
    }

    /// The same source under a token of the caller's.
    pub fn map<U>(self, token: impl FnOnce(T) -> U) -> Source<'a, U> {
        Source { token: token(self.token), descriptor: self.descriptor, wants: self.wants }
    }
}

/// Waits until a source has events, for `milliseconds` at most. Returns the tokens of the sources that have, in the order of
/// `sources`; none if a signal interrupted the wait.
///
/// # Errors
/// The error of poll(2).
pub fn wait<T: Copy>(sources: &[Source<'_, T>], milliseconds: u16) -> Result<Vec<T>, Errno> {
    let mut poll_fds: Vec<PollFd<'_>> = sources.iter().map(|source| PollFd::new(source.descriptor, source.wants)).collect();
    match poll(&mut poll_fds, PollTimeout::from(milliseconds)) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    let told = sources.iter().zip(&poll_fds);
    Ok(told.filter(|(_, poll_fd)| poll_fd.any().unwrap_or(true)).map(|(source, _)| source.token).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_sources_with_events_are_returned() {
        let (quiet, _writer) = std::io::pipe().expect("made");
        let (talking, mut writer) = std::io::pipe().expect("made");
        let (ended, end) = UnixStream::pair().expect("made");
        writer.write_all(b"x").expect("written");
        // Not closed: a program that another test starts holds a copy of it until its exec.
        end.shutdown(Shutdown::Both).expect("its end");
        let sources = [(1, quiet.as_fd()), (2, talking.as_fd()), (3, ended.as_fd())];
        let sources = sources.map(|(number, reader)| Source::readable(number, reader));
        assert_eq!(wait(&sources, 1000), Ok(vec![2, 3]));
        assert_eq!(wait(&sources[..1], 0), Ok(Vec::new()));
    }
}
