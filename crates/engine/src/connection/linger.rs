//! The end of a connection whose client may still send: we say that we send no more, and read on for a moment.

use super::{Connection, NextAction, Stage};
use crate::app::App;
use crate::socket::Read;
use crate::worker::ThreadContext;

/// A connection that is ended by us with unread input lingers this long, in milliseconds, so that the peer
/// can read the answer before a reset destroys it (RFC 9112 section 9.6).
const LINGER_MS: u64 = 2_000;

/// Bytes that a lingering connection swallows at the most.
pub(super) const LINGER_BYTES: usize = 1024 * 1024;

impl<A: App> Connection<A> {
    pub(super) fn close_or_linger(&mut self, thread: &mut ThreadContext) -> NextAction {
        if self.input.is_empty() { NextAction::Close } else { self.begin_linger(thread) }
    }

    pub(super) fn begin_linger(&mut self, thread: &mut ThreadContext) -> NextAction {
        self.transport.end_sending();
        self.input = Vec::new();
        self.deadline_ms = thread.clock.now_ms + LINGER_MS;
        self.linger(thread, 0)
    }

    pub(super) fn linger(&mut self, thread: &mut ThreadContext, mut swallowed: usize) -> NextAction {
        while swallowed < LINGER_BYTES {
            match self.transport.read(&mut thread.read) {
                Read::Bytes(count) => swallowed += count,
                Read::Nothing => {
                    self.stage = Stage::Linger { swallowed };
                    return NextAction::Wait;
                }
                Read::End | Read::Broken => break,
            }
        }
        NextAction::Close
    }
}
