//! A connection whose request the application has in its hands: it goes on by itself, takes what the client sends as it
//! comes, and answers when it likes, through [`Connection::visit`].
//!
//! Only asynchronous applications have such connections; the thread that runs the worker's loop attends to them.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::now_ms;
use bolide_protocol::Fault;

use super::linger::LINGER_BYTES;
use super::{After, Connection, Place, Stage, Step};
use crate::app::App;
use crate::exchange::{Answered, Delivery, Head, Suspended, give_up, serve};
use crate::house::{House, Kit};
use crate::inflow::{BodyFlow, Inflow};
use crate::reply::{Progress, Reply, reason_phrase};
use crate::socket::{self, Read};

/// No time limit, in monotonic milliseconds.
const NEVER_MS: u64 = u64::MAX;

/// An exchange that the application has in its hands.
pub struct Open<A: App> {
    pub inflow: Inflow,
    suspended: Box<Suspended<A::Pending>>,
    began_ms: u64,
    /// Monotonic milliseconds at which `harakiri` strikes.
    overdue_ms: u64,
    /// Monotonic milliseconds at which the draining worker gives it up.
    mercy_ends_ms: u64,
    /// The same where the answer is a stream.
    stream_ends_ms: u64,
}

impl<A: App> Connection<A> {
    /// Gives a request to a streaming application. `rest` is what followed the head; returns the bytes of it that were used.
    pub(super) fn open(
        &mut self,
        (head, bytes, same): (&Head, &[u8], bool),
        mut flow: BodyFlow,
        rest: &[u8],
        kit: &mut Kit,
        app: &mut A,
        house: &House,
    ) -> Result<(usize, Step), Fault> {
        let used = flow.feed(rest)?;
        let mut inflow = Inflow::Body(flow);
        let memory = self.cache.memory(same);
        let (listener, connection) = (self.listener, self.key);
        let mut place = Place { house, kit, app, reply: &mut self.reply, peer: &self.peer, listener, connection };
        let answered = serve(&mut place, head, bytes, memory, Delivery::Streamed(&mut inflow))?;
        let Answered::Ongoing(suspended) = answered else {
            self.keep_unread(inflow);
            return Ok((used, self.after_answer(answered, kit, house)));
        };
        inflow.keep_time();
        let began_ms = kit.clock.now_ms;
        let of_route = self.reply.harakiri_ms.map(u64::from);
        let most_ms = house.settings.lifecycle.harakiri_ms.into_iter().chain(of_route).min();
        let overdue_ms = most_ms.map_or(NEVER_MS, |most| began_ms + most);
        let mercy_ends_ms = house.mercy_ends_ms.load(Relaxed);
        let stream_ends_ms = house.streams_end_ms.load(Relaxed);
        let open = Box::new(Open { inflow, suspended, began_ms, overdue_ms, mercy_ends_ms, stream_ends_ms });
        self.deadline_ms = self.open_until_ms(&open, self.timeout_ms(house));
        self.stage = Stage::Open(open);
        Ok((used, Step::Parked))
    }

    /// Does all for an ongoing exchange that can be done without waiting. `None`: its answer is complete, go on.
    pub(super) fn go_on_open(&mut self, mut open: Box<Open<A>>, kit: &mut Kit, app: &mut A, house: &House) -> Option<After> {
        if open.overdue_ms <= kit.clock.now_ms && matches!(open.inflow, Inflow::Body(_)) {
            return self.end_overdue(open, kit, app);
        }
        let progress = if self.reply.has_file() { app.aside(|| self.reply.advance()) } else { self.reply.advance() };
        if progress == Progress::Broken || self.given_up_ms(&open) <= kit.clock.now_ms {
            // What the client said before it went is the application's; a fault in it changes nothing any more.
            let _ = self.take_in(&mut open.inflow, kit);
            self.give_up_open(*open, kit, app, house);
            return Some(After::Close);
        }
        if let Err(fault) = self.take_in(&mut open.inflow, kit) {
            return Some(self.end_faulty(*open, fault, kit, app, house));
        }
        let timeout_ms = self.timeout_ms(house);
        if let Inflow::Messages(line) = &mut open.inflow {
            line.tend(&mut self.reply, now_ms(), timeout_ms, house.is_draining());
        }
        if let Some(pending) = &mut open.suspended.pending {
            app.news(pending, &mut self.reply, &mut open.inflow);
        }
        // Nothing happens unless there is one that has not left: the application takes its time, see `holds_its_head`.
        self.reply.send_head();
        if self.reply.client_is_gone() {
            self.give_up_open(*open, kit, app, house);
            return Some(After::Close);
        }
        let after = self.settle(open, timeout_ms);
        let is_cut_short = after == Some(After::Wait) && !kit.turn.may_read();
        if is_cut_short { Some(After::Again) } else { after }
    }

    /// Lets the application act on an exchange that it has in its hands. `None`: it has none here any more. The second part
    /// says whether the connection is to be attended to soon.
    pub fn visit<R>(&mut self, house: &House, act: impl FnOnce(&mut Reply, &mut Inflow) -> R) -> Option<(R, bool)> {
        let Stage::Open(open) = &self.stage else { return None };
        let waited_for_client = self.waits_for_client(open);
        let Stage::Open(open) = &mut self.stage else { return None };
        let had_room = open.inflow.room() > 0;
        if house.is_draining() && !self.reply.head_has_left() {
            // RFC 9112 section 9.6: the request was taken before the drain began, and the answer is the last one all the same.
            self.reply.close_after();
        }
        let result = act(&mut self.reply, &mut open.inflow);
        open.inflow.keep_time();
        let resumes = !had_room && open.inflow.room() > 0;
        let wants_turn = self.reply.is_finished() || self.reply.client_is_gone() || self.may_go_on_sending();
        let Stage::Open(open) = &self.stage else { return None };
        let until_ms = self.open_until_ms(open, self.timeout_ms(house));
        // What the application does is no sign of life of a client that it waits for.
        let goes_on_waiting = waited_for_client && self.waits_for_client(open);
        self.deadline_ms = if goes_on_waiting { self.deadline_ms.min(until_ms) } else { until_ms };
        Some((result, resumes || wants_turn))
    }

    /// The application will not be told of the client any more: it has gone, or was slow for too long.
    pub(super) fn give_up_open(&mut self, mut open: Open<A>, kit: &mut Kit, app: &mut A, house: &House) {
        open.inflow.hang_up();
        if let Some(pending) = &mut open.suspended.pending {
            // What came before the end is the application's.
            app.news(pending, &mut self.reply, &mut open.inflow);
        }
        give_up(&mut self.place(kit, app, house), *open.suspended);
    }

    /// Reads what is left of a body that nobody wants, up to [`LINGER_BYTES`]. `None`: it is done, go on.
    pub(super) fn swallow(&mut self, mut flow: Box<BodyFlow>, mut swallowed: usize, kit: &mut Kit) -> Option<After> {
        flow.patience.wait(true, kit.clock.now_ms);
        while swallowed < LINGER_BYTES {
            if !kit.turn.may_read() {
                self.deadline_ms = flow.patience.until_ms();
                self.stage = Stage::Swallow { flow, swallowed };
                return Some(After::Again);
            }
            flow.drop_waiting();
            let Ok(read) = self.take_in_body(&mut flow, kit) else { break };
            if flow.is_complete() {
                return None;
            }
            match read {
                // All that came: chunks may be more frame than body.
                Read::Bytes(count) => swallowed += count,
                Read::Nothing => {
                    self.deadline_ms = flow.patience.until_ms();
                    self.stage = Stage::Swallow { flow, swallowed };
                    return Some(After::Wait);
                }
                Read::End | Read::Broken => return Some(After::Close),
            }
        }
        Some(self.begin_linger(kit))
    }

    /// What follows an answer whose request has not come to its end.
    pub(super) fn after_unread(&mut self, flow: Box<BodyFlow>, keep: bool) -> Step {
        // RFC 9110 section 10.1.1: a client that was not told to continue may send the body or not; nobody can tell.
        if !keep || flow.owes_continue {
            return Step::Linger;
        }
        self.stage = Stage::Swallow { flow, swallowed: 0 };
        Step::Parked
    }

    /// An ongoing exchange that looks after time by itself: a WebSocket, or one that is over its time.
    pub(super) fn keeps_its_own_time(&self) -> bool {
        match &self.stage {
            Stage::Open(open) => matches!(open.inflow, Inflow::Messages(_)) || self.is_over_its_time(now_ms()),
            _ => false,
        }
    }

    /// The application has begun its response, and the first part of the body has not come. A head that waits for it leaves in
    /// the same packet, and if the application fails meanwhile the answer is 500 (ASGI, "Response Start": it "need not" be sent
    /// earlier). But clients wait for the head alone, as an EventSource does, so it waits for the next look at the clock only.
    pub(super) fn holds_its_head(&self) -> bool {
        matches!(self.stage, Stage::Open(_)) && self.reply.has_head() && !self.reply.head_has_left()
    }

    pub(super) fn is_over_its_time(&self, now_ms: u64) -> bool {
        matches!(&self.stage, Stage::Open(open) if open.overdue_ms.min(self.given_up_ms(open)) <= now_ms)
    }

    /// When a worker that ends gives it up, in monotonic milliseconds.
    fn given_up_ms(&self, open: &Open<A>) -> u64 {
        let is_stream = matches!(open.inflow, Inflow::Body(_)) && self.reply.is_stream();
        if is_stream { open.mercy_ends_ms.min(open.stream_ends_ms) } else { open.mercy_ends_ms }
    }

    /// A stream is cut off then, and what becomes one: the worker stops.
    pub fn end_stream_at(&mut self, when_ms: u64) {
        if let Stage::Open(open) = &mut self.stage {
            open.stream_ends_ms = when_ms;
        }
    }

    /// A WebSocket, which will not end by itself when the worker drains: it is closed at this time, in monotonic milliseconds.
    pub fn leave_at(&mut self, when_ms: u64, for_good: bool) {
        if let Stage::Open(open) = &mut self.stage
            && let Inflow::Messages(line) = &mut open.inflow
        {
            line.leave_at(when_ms, for_good);
            self.deadline_ms = self.deadline_ms.min(when_ms);
        }
    }

    /// A request that the application still has in its hands then is cut off: the worker drains. A WebSocket has a close of its
    /// own, see [`Connection::leave_at`].
    pub fn give_up_at(&mut self, when_ms: u64) {
        if let Stage::Open(open) = &mut self.stage {
            open.mercy_ends_ms = when_ms;
        }
    }

    /// One whose answer's end nobody can tell.
    pub fn is_endless(&self) -> bool {
        self.is_streaming() && self.reply.is_stream()
    }

    /// A request that the application has in its hands.
    pub fn is_streaming(&self) -> bool {
        matches!(&self.stage, Stage::Open(open) if matches!(open.inflow, Inflow::Body(_)))
    }

    pub fn is_websocket(&self) -> bool {
        matches!(&self.stage, Stage::Open(open) if matches!(open.inflow, Inflow::Messages(_)))
    }

    fn settle(&mut self, mut open: Box<Open<A>>, timeout_ms: u64) -> Option<After> {
        if self.reply.is_finished() {
            let Open { inflow, mut suspended, .. } = *open;
            suspended.pending = None;
            self.keep_unread(inflow);
            self.stage = Stage::Reply(suspended);
            return None;
        }
        open.inflow.keep_time();
        self.deadline_ms = self.open_until_ms(&open, timeout_ms);
        self.stage = Stage::Open(open);
        // What is sent in turns has nothing but our own queue to tell, between two of them, that there is more to do.
        Some(if self.may_go_on_sending() { After::Again } else { After::Wait })
    }

    /// There is more to send, which waits for nothing but its turn.
    pub(super) fn may_go_on_sending(&self) -> bool {
        (self.reply.has_file() || self.reply.turn_is_over()) && !self.reply.is_full()
    }

    fn keep_unread(&mut self, inflow: Inflow) {
        if let Inflow::Body(mut flow) = inflow
            && !flow.is_complete()
        {
            flow.drop_waiting();
            self.unread = Some(Box::new(flow));
        }
    }

    /// Until when the peer may let an ongoing exchange wait. The application itself may take its time.
    fn open_until_ms(&self, open: &Open<A>, timeout_ms: u64) -> u64 {
        match &open.inflow {
            Inflow::Messages(line) => line.next_ms(&self.reply, timeout_ms),
            Inflow::Body(flow) if self.reply.has_unsent() => (now_ms() + timeout_ms).min(flow.patience.until_ms()),
            Inflow::Body(flow) => flow.patience.until_ms(),
        }
    }

    /// Whether it is the client's turn: to take what was sent, or to send of the body what the application waits for.
    fn waits_for_client(&self, open: &Open<A>) -> bool {
        let owes_body = match &open.inflow {
            Inflow::Messages(_) => false,
            Inflow::Body(flow) => flow.is_owed(),
        };
        owes_body || self.reply.has_unsent()
    }

    /// Reads as much as the application has room for.
    fn take_in(&mut self, inflow: &mut Inflow, kit: &mut Kit) -> Result<(), Fault> {
        match inflow {
            Inflow::Body(flow) => {
                let mut read = Read::Nothing;
                while flow.room() > 0 && kit.turn.may_read() {
                    read = self.take_in_body(flow, kit)?;
                    if !matches!(read, Read::Bytes(_)) {
                        break;
                    }
                }
                let ended = matches!(read, Read::End | Read::Broken) || self.peer_has_ended && flow.is_complete();
                flow.is_gone |= ended;
            }
            Inflow::Messages(line) => line.take_in(&mut self.reply, &mut self.input, kit, self.peer_has_ended),
        }
        Ok(())
    }

    /// Reads once. What follows the body stays for later.
    fn take_in_body(&mut self, flow: &mut BodyFlow, kit: &mut Kit) -> Result<Read, Fault> {
        let buffer = &mut kit.read;
        let read = socket::read(self.reply.socket(), buffer);
        if let Read::Bytes(count) = read {
            kit.turn.note_read(count);
            flow.patience.note(count, kit.clock.now_ms);
            let used = flow.feed(&buffer[..count])?;
            self.input.extend_from_slice(&buffer[used..count]);
        }
        Ok(read)
    }

    /// The client's body is not what HTTP allows, or too large: the application is told that the client has gone.
    fn end_faulty(&mut self, open: Open<A>, fault: Fault, kit: &mut Kit, app: &mut A, house: &House) -> After {
        let head_has_left = self.reply.head_has_left();
        self.give_up_open(open, kit, app, house);
        if !head_has_left {
            self.refuse(fault, kit, house);
        }
        self.begin_linger(kit)
    }

    /// `harakiri`: the application is told, and the client gets 504 if it got nothing yet.
    fn end_overdue(&mut self, mut open: Box<Open<A>>, kit: &mut Kit, app: &mut A) -> Option<After> {
        if let Some(pending) = open.suspended.pending.take() {
            app.overdue(pending, kit.clock.now_ms.saturating_sub(open.began_ms));
        }
        if self.reply.head_has_left() {
            self.reply.cut_off();
        } else {
            self.reply.answer(504, reason_phrase(504), "The application took too long.");
        }
        self.settle(open, 0)
    }
}
