//! One connection: what it waits for, what it has read, how long it may take.
//!
//! Its life is the table [`Stage`]. It is attended to by one thread at a time, whenever its socket has news;
//! it knows no poll and no other connection.

mod header_cache;
mod late;
mod linger;
mod open;

use std::os::fd::OwnedFd;

use bolide_contract::settings::Protocol;
use bolide_protocol::http1::head::{Field, HeaderFacts, header_block, leading_blank, request_line};
use bolide_protocol::uwsgi::{PACKET_HEAD_BYTES, Variable, not_a_request, packet_head, variables};
use bolide_protocol::{Fault, Progress as Parsed};

use crate::access_log::complain;
use crate::app::App;
use crate::body::{Body, Collector, Refusal, Share};
use crate::exchange::{Answered, Delivery, Head, Place, Suspended, give_up, go_on, serve};
use crate::hall::Key;
use crate::house::{House, Kit};
use crate::inflow::BodyFlow;
use crate::listener::Peer;
use crate::patience::Patience;
use crate::reply::{Progress, Reply, Style, Terms, reason_phrase};
use crate::socket::{self, Read};
use crate::turn::Turn;
use header_cache::HeaderCache;
use open::Open;

/// What a connection does next.
#[derive(Debug, PartialEq, Eq)]
pub enum After {
    /// It waits for news of its socket.
    Wait,
    /// The same, but there is more to do, be it to send or to serve: its next turn comes after those of others.
    Again,
    Close,
}

/// What a connection waits for.
enum Stage<A: App> {
    /// The next head, or the rest of one.
    Head,
    /// The rest of a body.
    Body(Box<Incoming>),
    /// Its client, to take the answer.
    Reply(Box<Suspended<A::Pending>>),
    /// The application, which has the request in its hands.
    Open(Box<Open<A>>),
    /// The rest of a body that the application did not want.
    Swallow { flow: Box<BodyFlow>, swallowed: usize },
    /// The client's end of the connection; we have said all.
    Linger { swallowed: usize },
}

/// A request whose body is coming: its head in memory of its own.
struct Incoming {
    head: Head,
    bytes: Vec<u8>,
    fields: Vec<Field>,
    variables: Vec<Variable>,
    /// The head's fields are those that the connection remembers.
    same: bool,
    collector: Collector,
    patience: Patience,
}

pub struct Connection<A: App> {
    reply: Reply,
    peer: Peer,
    listener: usize,
    stage: Stage<A>,
    /// Bytes that were read and not understood yet.
    input: Vec<u8>,
    /// How much of `input` was already searched for the end of a head.
    searched: usize,
    cache: HeaderCache<A::Memo>,
    /// What was answered before all of it had come.
    unread: Option<Box<BodyFlow>>,
    /// The room that the body of the request in work has of the worker's.
    share: Option<Share>,
    served: u32,
    /// Its name in the hall.
    pub key: Key,
    /// Monotonic milliseconds at which it is given up.
    pub deadline_ms: u64,
    is_overdue: bool,
    /// The poll knows it.
    pub is_polled: bool,
    /// The poll has told that the peer sends no more: what is left to read ends with the end itself.
    pub peer_has_ended: bool,
}

/// What serving the bytes at hand came to.
enum Step {
    /// More bytes are needed.
    More,
    /// It has had its turn; there is more to serve.
    Yield,
    /// A request was answered; the next may follow.
    Next,
    Blocked,
    /// The stage says what comes next: the application's turn, or the rest of an unwanted body.
    Parked,
    Close,
    Linger,
}

impl<A: App> Connection<A> {
    pub fn new(socket: OwnedFd, peer: Peer, listener: usize, house: &House, now_ms: u64) -> Connection<A> {
        let timeout_ms = house.listeners.get(listener).map_or(0, |listener| listener.timeout_ms);
        Connection {
            reply: Reply::new(socket),
            peer,
            listener,
            stage: Stage::Head,
            input: Vec::new(),
            searched: 0,
            cache: HeaderCache::new(),
            unread: None,
            share: None,
            served: 0,
            key: Key::CONTROL,
            deadline_ms: now_ms + timeout_ms,
            is_overdue: false,
            is_polled: false,
            peer_has_ended: false,
        }
    }

    pub fn listener(&self) -> usize {
        self.listener
    }

    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.reply.socket()
    }

    /// The application has taken the socket: what becomes of the connection is its business.
    pub fn is_given_away(&self) -> bool {
        self.reply.is_given_away()
    }

    /// Whether its answer waits in the kernel. Asking forgets it.
    pub fn take_held(&mut self) -> bool {
        self.reply.take_held()
    }

    /// Lets go the answer that waits in the kernel.
    pub fn push(&self) {
        socket::push(self.reply.socket());
    }

    /// True while no request is begun or under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.input.is_empty()
    }

    /// Idle, and has been answered before: the client may have a next request on its way.
    pub fn has_served(&self) -> bool {
        self.served > 0
    }

    /// Does all that can be done without waiting: reads, serves, sends. After `Close` nothing of it is left with the application.
    pub fn attend(&mut self, kit: &mut Kit, app: &mut A, house: &House) -> After {
        kit.turn = Turn::default();
        self.reply.begin_turn();
        let is_over = std::mem::take(&mut self.is_overdue) && self.deadline_ms <= kit.clock.now_ms;
        // What drips into a worker that ends has always a byte more.
        let is_late = house.is_draining() && self.is_arriving();
        let after = if !is_over || self.keeps_its_own_time() {
            self.turn(kit, app, house)
        } else if self.has_news() && !is_late {
            let after = self.turn(kit, app, house);
            if self.is_too_slow(kit.clock.now_ms) { self.expire(kit, house) } else { after }
        } else {
            self.expire(kit, house)
        };
        if after == After::Close {
            self.give_up(kit, app, house);
        }
        after
    }

    /// Its time is over: the next `attend` ends it, unless a request has come at the last moment. Or its head waits to be sent.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        self.is_overdue |= self.deadline_ms <= now_ms || self.is_over_its_time(now_ms);
        self.is_overdue || self.holds_its_head()
    }

    fn turn(&mut self, kit: &mut Kit, app: &mut A, house: &House) -> After {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Head) {
                Stage::Reply(suspended) => {
                    let answered = go_on(&mut self.place(kit, app, house), suspended);
                    match self.after_answer(answered, kit, house) {
                        Step::Blocked => return self.wait_for_client(),
                        Step::Close => return self.close_or_linger(kit),
                        Step::Linger => return self.begin_linger(kit),
                        _ => {}
                    }
                }
                Stage::Open(open) => {
                    if let Some(after) = self.go_on_open(open, kit, app, house) {
                        return after;
                    }
                }
                Stage::Swallow { flow, swallowed } => {
                    if let Some(after) = self.swallow(flow, swallowed, kit) {
                        return after;
                    }
                }
                Stage::Linger { swallowed } => return self.linger(kit, swallowed),
                stage @ (Stage::Head | Stage::Body(_)) => {
                    self.stage = stage;
                    if let Some(after) = self.read(kit, app, house) {
                        return after;
                    }
                }
            }
        }
    }

    fn wait_for_client(&self) -> After {
        if self.reply.is_full() { After::Wait } else { After::Again }
    }

    /// An idle connection whose next request is already here is not closed under it, and what has come of a body while the worker was
    /// busy elsewhere came in time.
    fn has_news(&self) -> bool {
        (self.is_idle() || matches!(self.stage, Stage::Body(_))) && socket::has_input(self.reply.socket())
    }

    /// What has come of a body does not buy it more time.
    fn is_too_slow(&self, now_ms: u64) -> bool {
        matches!(self.stage, Stage::Body(_)) && self.deadline_ms <= now_ms
    }

    /// A suspended answer is given up, so that the application's `close()` runs.
    fn give_up(&mut self, kit: &mut Kit, app: &mut A, house: &House) {
        match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Reply(suspended) => give_up(&mut self.place(kit, app, house), *suspended),
            Stage::Open(open) => self.give_up_open(*open, kit, app, house),
            _ => {}
        }
    }

    fn is_http(&self, house: &House) -> bool {
        house.listeners.get(self.listener).is_some_and(|listener| listener.protocol == Protocol::Http)
    }

    fn patience(&self, house: &House) -> Patience {
        Patience::new(self.timeout_ms(house), house.settings.limits.body_bytes_per_second)
    }

    fn timeout_ms(&self, house: &House) -> u64 {
        house.listeners.get(self.listener).map_or(0, |listener| listener.timeout_ms)
    }

    fn place<'a>(&'a mut self, kit: &'a mut Kit, app: &'a mut A, house: &'a House) -> Place<'a, A> {
        let (listener, connection) = (self.listener, self.key);
        Place { house, kit, app, reply: &mut self.reply, peer: &self.peer, listener, connection }
    }

    /// Reads once and serves what is there. `None`: there may be more to do at once.
    fn read(&mut self, kit: &mut Kit, app: &mut A, house: &House) -> Option<After> {
        let mut buffer = std::mem::take(&mut kit.read);
        let held = self.input.len();
        buffer[..held].copy_from_slice(&self.input);
        self.input = Vec::new();
        // What was kept may fill the buffer; reading into nothing would look like the client's end.
        let full = held == buffer.len();
        let read = if full { Read::Nothing } else { socket::read(self.reply.socket(), &mut buffer[held..]) };
        let filled = held + if let Read::Bytes(count) = read { count } else { 0 };
        kit.turn.note_read(filled - held);
        let mut position = 0;
        let step = loop {
            if position == filled {
                break Step::More;
            }
            if !kit.turn.may_serve() {
                break Step::Yield;
            }
            match self.serve_next(&buffer[position..filled], kit, app, house) {
                (used, Step::Next) => {
                    position += used;
                    kit.turn.note_request();
                }
                (used, step) => {
                    position += used;
                    break step;
                }
            }
        };
        let rest = &buffer[position..filled];
        if !rest.is_empty() && !matches!(step, Step::Close | Step::Linger) {
            self.input = rest.to_vec();
        }
        self.searched = if matches!((&step, &self.stage), (Step::More, Stage::Head)) { self.input.len() } else { 0 };
        let has_rest = !rest.is_empty();
        let was_full = filled == buffer.len();
        kit.read = buffer;
        self.set_deadline(&step, held, kit, house);
        match step {
            Step::Close if has_rest => Some(self.begin_linger(kit)),
            Step::Close => Some(After::Close),
            Step::Linger => Some(self.begin_linger(kit)),
            Step::Blocked => Some(self.wait_for_client()),
            Step::Yield => Some(After::Again),
            Step::More | Step::Next | Step::Parked => match read {
                // A read that filled the buffer may have left something behind, and an edge-triggered poll won't tell.
                Read::Bytes(_) if was_full || self.peer_has_ended => Self::go_on_reading(kit),
                Read::Nothing if was_full && position > 0 => Self::go_on_reading(kit),
                _ if matches!(self.stage, Stage::Open(_)) && self.may_go_on_sending() => Some(After::Again),
                // A WebSocket's first frames may have come with its handshake.
                _ if has_rest && matches!(self.stage, Stage::Open(_)) => None,
                Read::Bytes(_) | Read::Nothing => Some(After::Wait),
                Read::End | Read::Broken => Some(After::Close),
            },
        }
    }

    /// `None`: at once; but a turn has an end.
    fn go_on_reading(kit: &Kit) -> Option<After> {
        if kit.turn.may_read() { None } else { Some(After::Again) }
    }

    /// How long the connection may now keep us waiting.
    fn set_deadline(&mut self, step: &Step, held: usize, kit: &Kit, house: &House) {
        let now = kit.clock.now_ms;
        match (step, &self.stage) {
            (_, Stage::Open(_)) => {}
            (_, Stage::Body(incoming)) => self.deadline_ms = incoming.patience.until_ms(),
            (Step::Blocked | Step::Yield, _) | (_, Stage::Swallow { .. }) => self.deadline_ms = now + self.timeout_ms(house),
            // A head has its time as a whole: a byte a second must not keep a connection for ever.
            (Step::More, _) if !self.input.is_empty() && held == 0 => self.deadline_ms = now + self.timeout_ms(house),
            (Step::More, _) if !self.input.is_empty() => {}
            _ if self.served > 0 => self.deadline_ms = now + house.settings.limits.keepalive_ms,
            _ => {}
        }
    }

    /// Serves the request at the start of `bytes`, or a part of it. Returns the bytes used.
    fn serve_next(&mut self, bytes: &[u8], kit: &mut Kit, app: &mut A, house: &House) -> (usize, Step) {
        let result = match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Body(incoming) => self.feed(incoming, bytes, kit, app, house),
            _ if self.is_http(house) => self.http_head(bytes, kit, app, house),
            _ => self.uwsgi_head(bytes, kit, app, house),
        };
        result.unwrap_or_else(|fault| {
            self.refuse(fault, kit, house);
            (bytes.len(), Step::Linger)
        })
    }

    fn http_head(&mut self, bytes: &[u8], kit: &mut Kit, app: &mut A, house: &House) -> Result<(usize, Step), Fault> {
        if self.searched > 0 && !has_head_end(bytes, self.searched) && bytes.len() < house.head_limits.head_bytes {
            return Ok((0, Step::More));
        }
        self.searched = 0;
        let blank = leading_blank(bytes);
        let bytes = &bytes[blank..];
        let Parsed::Complete(line) = request_line(bytes, &house.head_limits)? else { return Ok((0, Step::More)) };
        let block = &bytes[line.length as usize..];
        let same = self.cache.is_same(block, line.version);
        if same {
            // What is left there are the spans of another connection's block.
            kit.fields.clear();
        }
        let facts = match self.cache.facts.filter(|_| same) {
            Some(facts) => facts,
            None => match header_block(block, line.version, &house.head_limits, &mut kit.fields)? {
                Parsed::Complete(facts) => facts,
                Parsed::Partial => return Ok((0, Step::More)),
            },
        };
        let length = line.length as usize + facts.length as usize;
        if length > house.head_limits.head_bytes {
            return Err(Fault::new(431, "The request's head is larger than buffer-size."));
        }
        if !same {
            self.cache.remember(&block[..facts.length as usize], line.version, facts);
        }
        let head = Head::Http { line, facts };
        if A::STREAMS {
            let flow = BodyFlow::new(facts.framing, house.body_limits.bytes, facts.expect_continue, self.patience(house))?;
            let (used, step) = self.open((&head, &bytes[..length], same), flow, &bytes[length..], kit, app, house)?;
            return Ok((blank + length + used, step));
        }
        let collector = Collector::new(facts.framing, house.body_limits)?;
        let (used, step) = match collector {
            None => {
                // What the client sent behind a request for another protocol would be lost to an application that takes the socket.
                let facts = HeaderFacts { upgrade: facts.upgrade && bytes.len() == length, ..facts };
                let head = Head::Http { line, facts };
                (length, self.answer(&head, &bytes[..length], same, Body::Empty, kit, app, house)?)
            }
            Some(collector) => {
                let head = Head::Http { line, facts: HeaderFacts { upgrade: false, ..facts } };
                let incoming = Incoming {
                    head,
                    bytes: bytes[..length].to_vec(),
                    fields: kit.fields.clone(),
                    variables: Vec::new(),
                    same,
                    collector,
                    patience: self.patience(house),
                };
                if facts.expect_continue && bytes.len() == length {
                    self.reply.send_continue();
                }
                let (used, step) = self.feed(Box::new(incoming), &bytes[length..], kit, app, house)?;
                (length + used, step)
            }
        };
        Ok((blank + used, step))
    }

    fn uwsgi_head(&mut self, bytes: &[u8], kit: &mut Kit, app: &mut A, house: &House) -> Result<(usize, Step), Fault> {
        let Parsed::Complete(packet) = packet_head(bytes) else { return Ok((0, Step::More)) };
        if packet.modifier1 != 0 {
            return Err(not_a_request(bytes));
        }
        let length = usize::from(packet.vars_bytes);
        if length > house.head_limits.head_bytes {
            return Err(Fault::new(431, "The uwsgi packet is larger than buffer-size."));
        }
        let Some(block) = bytes.get(PACKET_HEAD_BYTES..PACKET_HEAD_BYTES + length) else { return Ok((0, Step::More)) };
        let facts = variables(block, &mut kit.variables)?;
        let head = Head::Uwsgi { facts, bytes: length };
        let framing = bolide_protocol::http1::head::Framing::Length(facts.content_length);
        let whole = PACKET_HEAD_BYTES + length;
        if A::STREAMS {
            let flow = BodyFlow::new(framing, house.body_limits.bytes, false, self.patience(house))?;
            let (used, step) = self.open((&head, block, false), flow, &bytes[whole..], kit, app, house)?;
            return Ok((whole + used, step));
        }
        match Collector::new(framing, house.body_limits)? {
            None => Ok((whole, self.answer(&head, block, false, Body::Empty, kit, app, house)?)),
            Some(collector) => {
                let variables = kit.variables.clone();
                let patience = self.patience(house);
                let (bytes_of_head, fields) = (block.to_vec(), Vec::new());
                let incoming = Incoming { head, bytes: bytes_of_head, fields, variables, same: false, collector, patience };
                let (used, step) = self.feed(Box::new(incoming), &bytes[whole..], kit, app, house)?;
                Ok((whole + used, step))
            }
        }
    }

    /// Hands bytes to the body that is coming, and serves the request when it is complete.
    fn feed(
        &mut self,
        mut incoming: Box<Incoming>,
        bytes: &[u8],
        kit: &mut Kit,
        app: &mut A,
        house: &House,
    ) -> Result<(usize, Step), Fault> {
        let fault = |refusal| match refusal {
            Refusal::Fault(fault) => fault,
            Refusal::Spill(error) => {
                let problem = format!("a request's body can't be kept in a temporary file: {error}; is the disk full?");
                complain(house.worker, &problem);
                Fault::new(507, "The body could not be stored.")
            }
        };
        let is_long = incoming.collector.will_spill(bytes.len());
        let fed = if is_long { app.aside(|| incoming.collector.feed(bytes)) } else { incoming.collector.feed(bytes) };
        let (used, complete) = fed.map_err(fault)?;
        if !complete {
            if incoming.patience.is_waiting() {
                incoming.patience.note(used, kit.clock.now_ms);
            } else {
                incoming.patience.wait(true, kit.clock.now_ms);
            }
            self.stage = Stage::Body(incoming);
            return Ok((used, Step::More));
        }
        let Incoming { head, bytes, fields, variables, same, collector, .. } = *incoming;
        let finished = if collector.has_file() { app.aside(|| collector.finish()) } else { collector.finish() };
        let (body, share) = finished.map_err(fault)?;
        self.share = Some(share);
        kit.fields = fields;
        kit.variables = variables;
        Ok((used, self.answer(&head, &bytes, same, body, kit, app, house)?))
    }

    #[expect(clippy::too_many_arguments, reason = "the request in its parts, and the place where it is served")]
    fn answer(
        &mut self,
        head: &Head,
        bytes: &[u8],
        same: bool,
        body: Body,
        kit: &mut Kit,
        app: &mut A,
        house: &House,
    ) -> Result<Step, Fault> {
        let memory = self.cache.memory(same);
        let (listener, connection) = (self.listener, self.key);
        let mut place = Place { house, kit, app, reply: &mut self.reply, peer: &self.peer, listener, connection };
        let answered = serve(&mut place, head, bytes, memory, Delivery::Whole(body))?;
        Ok(self.after_answer(answered, kit, house))
    }

    fn after_answer(&mut self, answered: Answered<A::Pending>, kit: &Kit, house: &House) -> Step {
        match answered {
            Answered::Blocked(suspended) => {
                self.stage = Stage::Reply(suspended);
                self.deadline_ms = kit.clock.now_ms + self.timeout_ms(house);
                Step::Blocked
            }
            Answered::Ongoing(suspended) => {
                // Only a streaming application goes on by itself, and `open` takes that case.
                self.stage = Stage::Reply(suspended);
                Step::Close
            }
            Answered::Done { keep } => {
                self.served = self.served.saturating_add(1);
                self.share = None;
                match self.unread.take() {
                    Some(flow) => self.after_unread(flow, keep),
                    None if keep => Step::Next,
                    // What the client sends is not for us to read.
                    None if self.is_given_away() => Step::Close,
                    // RFC 6455 section 7.1.1: the client is to read our last frame, whatever it still sends.
                    None if self.reply.status_code() == 101 => Step::Linger,
                    None => Step::Close,
                }
            }
        }
    }

    /// Answers a peer's mistake and logs it: the fault, never the bytes.
    fn refuse(&mut self, fault: Fault, kit: &mut Kit, house: &House) {
        let who = if self.peer.address.is_empty() { "a local client" } else { self.peer.address.as_str() };
        complain(house.worker, &format!("refused a request of {who} with {}: {}", fault.status, fault.reason));
        let style = if self.is_http(house) { Style::Http { version_1_0: false } } else { Style::Uwsgi };
        let date_line = kit.clock.date_line();
        let terms = Terms { style, chunks: false, head_only: false, keep_alive: false, may_hold: false, date_line };
        self.reply.begin(terms, std::mem::take(&mut kit.spare_output));
        if fault.status == 426 {
            self.reply.answer_upgrade_required(fault.reason);
        } else {
            self.reply.answer(fault.status, reason_phrase(fault.status), fault.reason);
        }
        // Few bytes, and the last ones: they leave whatever was sent before them.
        self.reply.begin_turn();
        if self.reply.advance() != Progress::Done {
            return;
        }
        let buffer = self.reply.buffer_back();
        kit.keep_output(buffer);
    }
}

/// Whether the end of a head may be in `bytes`, of which `searched` were looked at before. A bare LF counts too: it is
/// an error, and better said at once.
fn has_head_end(bytes: &[u8], searched: usize) -> bool {
    let fresh = &bytes[searched.saturating_sub(3).min(bytes.len())..];
    memchr::memmem::find(fresh, b"\n\r\n").is_some() || memchr::memmem::find(fresh, b"\n\n").is_some()
}
