//! The end of a connection whose client may still send: we say that we send no more, and read on for a moment.

use super::{Connection, ConnectionStage, Link, NextAction};
use crate::app::App;
use crate::exchange::context::Context;
use crate::exchange::{ExchangeState, UnreadBody};
use crate::sockets::socket::Read;

/// A connection that is ended by us with unread input lingers this long, in milliseconds, so that the peer
/// can read the answer before a reset destroys it (RFC 9112 section 9.6).
const LINGER_MS: u64 = 2_000;

/// Bytes that are thrown away at the most: of a body that nobody wants, and of a connection that lingers.
const LINGER_BYTES: usize = 1024 * 1024;

impl<A: App> Connection<A> {
    pub(super) fn close_or_linger(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if self.input.is_empty() { NextAction::Close } else { self.begin_linger(context) }
    }

    /// The end of an idle connection. Its client may ask at this very moment: that gets no answer any more, but an end in place of a reset.
    pub(super) fn part_when_idle(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if !matches!(self.link, Link::Socket { .. }) {
            return NextAction::Close;
        }
        self.transport.end_sending();
        if self.transport.has_input() { self.begin_linger(context) } else { NextAction::Close }
    }

    pub(super) fn begin_linger(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if matches!(self.link, Link::Stream { .. }) {
            // What is still to come of a request says nothing, and its connection goes on.
            return NextAction::Close;
        }
        self.transport.end_sending();
        self.input = Vec::new();
        self.deadline_ms = context.thread.clock.now_ms + LINGER_MS;
        self.linger(context, 0)
    }

    pub(super) fn linger(&mut self, context: &mut Context<'_, A>, mut swallowed: usize) -> NextAction {
        while swallowed < LINGER_BYTES {
            self.stage = ConnectionStage::Lingers { swallowed };
            if !context.thread.turn.may_read() {
                return NextAction::Again;
            }
            match self.transport.read(&mut context.thread.read) {
                Read::Bytes(count) => {
                    context.thread.turn.note_read(self.transport.read_cost(count));
                    swallowed += count;
                }
                Read::Nothing => return NextAction::Wait,
                Read::End | Read::Broken => break,
            }
        }
        NextAction::Close
    }

    /// Reads what is left of a body that nobody wants, up to [`LINGER_BYTES`]. `None`: it is done, go on.
    pub(super) fn swallow(
        &mut self,
        mut body: Box<UnreadBody>,
        mut swallowed: usize,
        context: &mut Context<'_, A>,
    ) -> Option<NextAction> {
        body.patience.wait(true, context.thread.clock.now_ms);
        while swallowed < LINGER_BYTES {
            let read = match context.thread.turn.may_read() {
                true => self.read_body(&mut body.patience, context, |_| Ok(())),
                false => return Some(self.swallow_later(body, swallowed, NextAction::Again)),
            };
            let Ok((read, _)) = read else { break };
            if !self.session.is_body_open() {
                return None;
            }
            match read {
                // All that came: chunks may be more frame than body.
                Read::Bytes(count) => swallowed += count,
                Read::Nothing => return Some(self.swallow_later(body, swallowed, NextAction::Wait)),
                Read::End | Read::Broken => return Some(NextAction::Close),
            }
        }
        Some(self.begin_linger(context))
    }

    fn swallow_later(&mut self, body: Box<UnreadBody>, swallowed: usize, next: NextAction) -> NextAction {
        self.deadline_ms = body.patience.until_ms();
        self.exchange.state = ExchangeState::Draining { body, swallowed };
        next
    }
}
