//! Passes received bytes through the session, as far as they belong to the current request: its body, and other messages of its
//! reverse proxy. It does not know about sockets. Workers run it.

use bolide_protocol::Fault;
use bolide_protocol::fastcgi::Answer;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::session::{HeadParts, Session, SessionEvent};

use crate::exchange::worker::Worker;
use crate::response::ResponseWriter;

/// The result of passing bytes to a body.
pub(super) struct Pulled {
    pub used: usize,
    pub end: PullEnd,
}

pub(super) enum PullEnd {
    /// More of the body will come.
    More,
    Complete,
    /// The client has cancelled the request; if nothing was answered yet, `end` ends it.
    Aborted {
        end: Answer,
        keep_alive: bool,
    },
}

/// Passes the body's part of `bytes` to `sink`.
pub(super) fn pull(
    (session, writer): (&mut Session, &mut ResponseWriter<'_>),
    bytes: &[u8],
    worker: &Worker,
    parts: &mut HeadParts,
    mut sink: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<Pulled, Fault> {
    let mut used = 0;
    while session.is_body_open() {
        let rest = &bytes[used..];
        let (count, event) = session.next(rest, &worker.head_limits, parts)?;
        used += count;
        match event {
            SessionEvent::Data(range) => sink(&rest[range])?,
            SessionEvent::End => break,
            SessionEvent::Send { answer, .. } => writer.say_aside(answer.as_bytes()),
            SessionEvent::Aborted { end, keep_alive } => return Ok(Pulled { used, end: PullEnd::Aborted { end, keep_alive } }),
            SessionEvent::More | SessionEvent::Head(_) => return Ok(Pulled { used, end: PullEnd::More }),
        }
    }
    Ok(Pulled { used, end: PullEnd::Complete })
}

/// Looks for an abort in the bytes behind a request. Returns whether there is one; bytes behind it are ignored.
pub(super) fn find_abort(
    session: &mut Session,
    writer: &mut ResponseWriter<'_>,
    mut bytes: &[u8],
    limits: &HeadLimits,
    parts: &mut HeadParts,
) -> Result<bool, Fault> {
    loop {
        let (used, event) = session.next(bytes, limits, parts)?;
        bytes = &bytes[used..];
        match event {
            SessionEvent::Aborted { .. } => return Ok(true),
            SessionEvent::Send { answer, .. } => writer.say_aside(answer.as_bytes()),
            SessionEvent::More | SessionEvent::Head(_) | SessionEvent::Data(_) | SessionEvent::End => return Ok(false),
        }
    }
}
