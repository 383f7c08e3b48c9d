//! The end of a connection whose client may still send: we say that we send no more, and read on for a moment.

use super::{After, Connection, Stage};
use crate::app::App;
use crate::house::Kit;
use crate::socket::{self, Read};

/// A connection that is ended by us with unread input lingers this long, in milliseconds, so that the peer
/// can read the answer before a reset destroys it (RFC 9112 section 9.6).
const LINGER_MS: u64 = 2_000;

/// Bytes that a lingering connection swallows at the most.
pub(super) const LINGER_BYTES: usize = 1024 * 1024;

impl<A: App> Connection<A> {
    pub(super) fn close_or_linger(&mut self, kit: &mut Kit) -> After {
        if self.input.is_empty() { After::Close } else { self.begin_linger(kit) }
    }

    pub(super) fn begin_linger(&mut self, kit: &mut Kit) -> After {
        socket::end_sending(self.reply.socket());
        self.input = Vec::new();
        self.deadline_ms = kit.clock.now_ms + LINGER_MS;
        self.linger(kit, 0)
    }

    pub(super) fn linger(&mut self, kit: &mut Kit, mut swallowed: usize) -> After {
        while swallowed < LINGER_BYTES {
            match socket::read(self.reply.socket(), &mut kit.read) {
                Read::Bytes(count) => swallowed += count,
                Read::Nothing => {
                    self.stage = Stage::Linger { swallowed };
                    return After::Wait;
                }
                Read::End | Read::Broken => break,
            }
        }
        After::Close
    }
}
