//! The master's one wait: on descriptors, each with a token that says whose it is, and on the clock. It knows no kind of child and no
//! feature beyond its token. The master runs it.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::stats_token::StatsToken;

/// The owner of a descriptor that has news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Signals,
    /// What applications print.
    Printed,
    /// The order socket of the child of this number.
    Child(u64),
    /// A connection waits at a listening socket.
    Listeners,
    /// A file that is watched has changed.
    Watches,
    /// The attendant of this pid.
    Attendant(i32),
    /// The address of `stats`, and its clients.
    Stats(StatsToken),
    /// The master that is to take our place.
    Successor,
    /// The master whose place is ours, or is to be.
    Place,
    /// The open pipe of `master-fifo`.
    Fifo,
    /// The listening control socket, and one of its clients.
    Control,
    ControlClient(u64),
}

/// A descriptor that the master waits on.
#[derive(Debug)]
pub struct Source<'a> {
    pub token: Token,
    pub descriptor: BorrowedFd<'a>,
    /// What is waited for; errors and the other side's end are always told.
    pub wants: PollFlags,
}

impl<'a> Source<'a> {
    /// Waits until there is something to read, or the other side has gone.
    pub fn readable(token: Token, descriptor: BorrowedFd<'a>) -> Source<'a> {
        Source { token, descriptor, wants: PollFlags::POLLIN }
    }
}

/// Waits until a source has news, for so long at the most. Gives the owners of those that have, in the order of `sources`; none after a
/// signal that interrupted the wait.
///
/// # Errors
/// What poll(2) says.
pub fn wait(sources: &[Source<'_>], milliseconds: u16) -> Result<Vec<Token>, Errno> {
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
    fn who_has_news_is_told_and_nobody_else() {
        let (quiet, _writer) = std::io::pipe().expect("made");
        let (talking, mut writer) = std::io::pipe().expect("made");
        let (ended, end) = UnixStream::pair().expect("made");
        writer.write_all(b"x").expect("written");
        // Not closed: a program that another test starts holds a copy of it until it runs.
        end.shutdown(Shutdown::Both).expect("its end");
        let sources = [(1, quiet.as_fd()), (2, talking.as_fd()), (3, ended.as_fd())];
        let sources = sources.map(|(number, reader)| Source::readable(Token::Child(number), reader));
        assert_eq!(wait(&sources, 1000), Ok(vec![Token::Child(2), Token::Child(3)]));
        assert_eq!(wait(&sources[..1], 0), Ok(Vec::new()));
    }
}
