//! The one wait of a supervising process: on descriptors, each with a token of the caller's that names its owner, and on the clock. It
//! knows no owner of a descriptor. The master runs it.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The token of a server's descriptors, for the modules that have a listening socket and clients of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerToken {
    /// The listening socket.
    Listener,
    /// The client of this number, which the server gave it.
    Client(u64),
}

/// A descriptor that is waited on.
#[derive(Debug)]
pub struct Source<'a, T> {
    /// The owner of the descriptor, in the caller's terms.
    pub token: T,
    /// The descriptor.
    pub descriptor: BorrowedFd<'a>,
    /// The events that are waited for. Errors and the end of the other side are always reported.
    pub wants: PollFlags,
}

impl<'a, T> Source<'a, T> {
    /// Waits until there is something to read, or the other side has gone.
    pub fn readable(token: T, descriptor: BorrowedFd<'a>) -> Source<'a, T> {
        Source { token, descriptor, wants: PollFlags::POLLIN }
    }

    /// The same source under a token of the caller's.
    pub fn map<U>(self, token: impl FnOnce(T) -> U) -> Source<'a, U> {
        Source { token: token(self.token), descriptor: self.descriptor, wants: self.wants }
    }
}

/// Waits until a source has news, for `milliseconds` at the most. Returns the tokens of those that have, in the order of `sources`; none
/// after a signal that interrupted the wait.
///
/// # Errors
/// What poll(2) says.
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
        // Not closed: a program that another test starts holds a copy of it until it runs.
        end.shutdown(Shutdown::Both).expect("its end");
        let sources = [(1, quiet.as_fd()), (2, talking.as_fd()), (3, ended.as_fd())];
        let sources = sources.map(|(number, reader)| Source::readable(number, reader));
        assert_eq!(wait(&sources, 1000), Ok(vec![2, 3]));
        assert_eq!(wait(&sources[..1], 0), Ok(Vec::new()));
    }
}
