//! The server at the address of `stats` or `metrics`: it sends an answer to each client that connects, and closes the connection,
//! unless the answer is a stream of events. It never waits: it sends as much as the client's socket accepts, and the rest
//! when there is room, within a time limit. It does not know paths or numbers. Its caller makes the answers. The master runs it.

mod answer;
mod request;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use bolide_contract::settings::{Listener, Protocol};
use bolide_contract::statistics::StatisticsServer;
use bolide_contract::succession::HandedSocket;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, Shutdown, SockFlag, accept4, recv, send, shutdown};

pub use answer::{Answer, Page};
pub use request::Request;

use crate::error::StartError;
use crate::log_sink;
use crate::polling::{ServerToken, Source};
use crate::privileges::Privileges;
use crate::sockets::listeners::{AddressWait, Endpoint, bind_when_free, taken_over};

/// Clients at the same time; another one replaces the oldest.
const MAX_CLIENTS: usize = 64;
/// Clients accepted in a turn: a flood of them must not keep the master from its workers.
const MAX_ACCEPTED_TURN: usize = 16;
/// Time for the request and the answer of a client, in milliseconds.
const CLIENT_MS: u64 = 4000;
/// Bytes of a request.
const REQUEST_BYTES: usize = 8192;
/// Bytes that a client may still send after its answer: closing with unread bytes would reset the connection and could discard
/// the answer.
const LEFTOVER_BYTES: usize = 64 * 1024;
/// Time for which no client is accepted after descriptors ran out, in milliseconds.
const EXHAUSTED_MS: u64 = 1000;

/// Clients with a stream of events at the same time; another one is refused.
const MAX_STREAMS: usize = 16;

/// Makes the answer to a request; `None`: the client has only connected, and gets its answer without HTTP.
pub type Answering<'a> = &'a mut dyn FnMut(Option<&Request>) -> Answer;

/// The listening socket and its clients.
#[derive(Debug)]
pub struct StatsServer {
    /// `None` if another master has it.
    socket: Option<OwnedFd>,
    endpoint: Endpoint,
    is_http: bool,
    clients: VecDeque<StatsClient>,
    next_id: u64,
    /// Until when no client is accepted.
    paused_until_ms: Option<u64>,
}

#[derive(Debug)]
struct StatsClient {
    id: u64,
    socket: OwnedFd,
    stage: Stage,
    deadline_ms: u64,
}

#[derive(Debug)]
enum Stage {
    /// Its request is arriving.
    Asking(Vec<u8>),
    /// `sent` bytes of the answer were sent.
    Answering { answer: Answer, sent: usize },
    /// `sent` bytes of an event were sent; all of them, until there is another.
    Streaming { event: Page, sent: usize },
    /// The whole answer was sent; `swallowed` bytes were read and discarded since.
    Leaving { swallowed: usize },
}

/// Whether a client stays.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Close,
}

impl StatsServer {
    /// A server for this socket, which listens already.
    pub fn new(settings: &StatisticsServer, socket: OwnedFd, endpoint: Endpoint) -> StatsServer {
        let is_http = settings.is_http;
        StatsServer { socket: Some(socket), endpoint, is_http, clients: VecDeque::new(), next_id: 0, paused_until_ms: None }
    }

    /// The endpoint at which it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The endpoint, to take ownership of its file.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// The socket, for the master that takes over.
    pub fn handed_socket(&self) -> Option<HandedSocket> {
        let descriptor = self.socket.as_ref()?.as_raw_fd();
        Some(HandedSocket { address: self.endpoint.asked.clone(), descriptor })
    }

    /// Another master owns the address from now on. Connected clients still get their answer.
    pub fn give_place(&mut self) {
        (self.socket, self.endpoint.file) = (None, None);
    }

    /// The descriptors to wait on. `accepts` says whether new clients are accepted.
    pub fn sources(&self, accepts: bool) -> impl Iterator<Item = Source<'_, ServerToken>> {
        let listener = self.socket.as_ref().filter(|_| accepts && self.paused_until_ms.is_none());
        let listener = listener.map(|socket| Source::readable(ServerToken::Listener, socket.as_fd()));
        let clients = self.clients.iter().map(|client| {
            let wants = match client.stage {
                Stage::Asking(_) | Stage::Leaving { .. } => PollFlags::POLLIN,
                Stage::Answering { .. } => PollFlags::POLLOUT,
                Stage::Streaming { .. } if client.is_idle_stream() => PollFlags::POLLIN,
                Stage::Streaming { .. } => PollFlags::POLLOUT,
            };
            Source { token: ServerToken::Client(client.id), descriptor: client.socket.as_fd(), wants }
        });
        listener.into_iter().chain(clients)
    }

    /// The next deadline of a client.
    pub fn wake_ms(&self) -> Option<u64> {
        let deadlines = self.clients.iter().map(|client| client.deadline_ms).filter(|deadline| *deadline != u64::MAX);
        deadlines.chain(self.paused_until_ms).min()
    }

    /// Drops clients whose deadline has passed.
    pub fn look_after_time(&mut self, now_ms: u64) {
        self.clients.retain(|client| now_ms < client.deadline_ms);
        self.paused_until_ms = self.paused_until_ms.filter(|until| now_ms < *until);
    }

    /// Handles an event of a descriptor.
    pub fn take_news(&mut self, token: ServerToken, answering: Answering<'_>, now_ms: u64) {
        match token {
            ServerToken::Listener => self.accept(answering, now_ms),
            ServerToken::Client(id) => {
                // A new client may have replaced it in this very turn.
                let Some(place) = self.clients.iter().position(|client| client.id == id) else { return };
                let may_stream = self.streams() < MAX_STREAMS;
                if self.clients[place].advance(answering, may_stream, now_ms) == Next::Close {
                    self.clients.remove(place);
                }
            }
        }
    }

    /// Whether anybody listens to events.
    pub fn has_streams(&self) -> bool {
        self.streams() > 0
    }

    /// Sends an event to each client with a stream. One that has not taken the event before misses this one.
    pub fn publish(&mut self, event: &Page, now_ms: u64) {
        let mut answering = |_: Option<&Request>| Answer::bare(Page::from(Vec::new()));
        self.clients.retain_mut(|client| {
            if !client.is_idle_stream() {
                return true;
            }
            client.stage = Stage::Streaming { event: event.clone(), sent: 0 };
            client.deadline_ms = now_ms + CLIENT_MS;
            client.advance(&mut answering, true, now_ms) != Next::Close
        });
    }

    fn streams(&self) -> usize {
        self.clients.iter().filter(|client| client.is_stream()).count()
    }

    fn accept(&mut self, answering: Answering<'_>, now_ms: u64) {
        for _ in 0..MAX_ACCEPTED_TURN {
            let Some(listener) = &self.socket else { return };
            let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC);
            let socket = match accepted {
                Ok(descriptor) => crate::system::adopt(descriptor),
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                    // The oldest client makes room. If there is none, poll(2) would report the new one forever.
                    if !self.make_room() {
                        self.paused_until_ms = Some(now_ms + EXHAUSTED_MS);
                    }
                    return;
                }
                // No client is left, or this one has closed already.
                Err(_) => return,
            };
            let Ok(socket) = socket else { return };
            let stage = match self.is_http {
                true => Stage::Asking(Vec::new()),
                false => Stage::Answering { answer: answering(None), sent: 0 },
            };
            self.next_id += 1;
            let mut client = StatsClient { id: self.next_id, socket, stage, deadline_ms: now_ms + CLIENT_MS };
            if client.advance(answering, self.streams() < MAX_STREAMS, now_ms) == Next::Close {
                continue;
            }
            if self.clients.len() >= MAX_CLIENTS {
                self.make_room();
            }
            self.clients.push_back(client);
        }
    }

    /// Lets the oldest client go. Streams stay, unless there is nothing else: their number has a bound of its own.
    fn make_room(&mut self) -> bool {
        let oldest = self.clients.iter().position(|client| !client.is_stream()).unwrap_or(0);
        self.clients.remove(oldest).is_some()
    }
}

impl StatsClient {
    fn is_stream(&self) -> bool {
        match &self.stage {
            Stage::Streaming { .. } => true,
            Stage::Answering { answer, .. } => answer.is_stream,
            Stage::Asking(_) | Stage::Leaving { .. } => false,
        }
    }

    /// A stream that has sent all of its last event.
    fn is_idle_stream(&self) -> bool {
        matches!(&self.stage, Stage::Streaming { event, sent } if *sent == event.len())
    }

    /// Advances as far as possible without waiting.
    fn advance(&mut self, answering: Answering<'_>, may_stream: bool, now_ms: u64) -> Next {
        loop {
            let stage = match &mut self.stage {
                Stage::Asking(request) => match receive(&self.socket, request) {
                    Received::All => Stage::Answering { answer: answer_to(request, answering, may_stream), sent: 0 },
                    Received::Part => return Next::Wait,
                    Received::Nothing => return Next::Close,
                },
                Stage::Answering { answer, sent } => {
                    if let Err(next) = send_from(&self.socket, answer.head.as_bytes(), &answer.page, sent) {
                        return next;
                    }
                    if answer.is_stream {
                        // All was sent: the event of the answer is idle from here on.
                        Stage::Streaming { event: answer.page.clone(), sent: answer.page.len() }
                    } else {
                        if shutdown(self.socket.as_raw_fd(), Shutdown::Write).is_err() {
                            return Next::Close;
                        }
                        Stage::Leaving { swallowed: 0 }
                    }
                }
                Stage::Streaming { event, sent } => {
                    if *sent == event.len() {
                        self.deadline_ms = u64::MAX;
                        return swallow(&self.socket);
                    }
                    if let Err(next) = send_from(&self.socket, b"", event, sent) {
                        return next;
                    }
                    self.deadline_ms = now_ms + CLIENT_MS;
                    continue;
                }
                Stage::Leaving { swallowed } => {
                    let mut buffer = [0u8; 4096];
                    match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                        Ok(count) if count > 0 && *swallowed + count <= LEFTOVER_BYTES => {
                            Stage::Leaving { swallowed: *swallowed + count }
                        }
                        Err(Errno::EAGAIN) => return Next::Wait,
                        _ => return Next::Close,
                    }
                }
            };
            self.stage = stage;
        }
    }
}

/// Sends what of two pieces follows the first `sent` bytes. An error is what is to become of the client.
fn send_from(socket: &OwnedFd, head: &[u8], page: &[u8], sent: &mut usize) -> Result<(), Next> {
    while *sent < head.len() + page.len() {
        let rest = match head.get(*sent..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => &page[*sent - head.len()..],
        };
        match send(socket.as_raw_fd(), rest, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(count) => *sent += count,
            Err(Errno::EAGAIN) => return Err(Next::Wait),
            Err(Errno::EINTR) => {}
            Err(_) => return Err(Next::Close),
        }
    }
    Ok(())
}

/// A client with a stream has nothing to say: whatever comes ends it.
fn swallow(socket: &OwnedFd) -> Next {
    match recv(socket.as_raw_fd(), &mut [0u8; 1], MsgFlags::MSG_DONTWAIT) {
        Err(Errno::EAGAIN | Errno::EINTR) => Next::Wait,
        _ => Next::Close,
    }
}

/// How much of a request has come.
enum Received {
    All,
    Part,
    /// The client has closed, or its request is too long.
    Nothing,
}

fn receive(socket: &OwnedFd, request: &mut Vec<u8>) -> Received {
    let mut buffer = [0u8; 4096];
    loop {
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Received::Nothing,
            Ok(count) => request.extend_from_slice(&buffer[..count]),
            Err(Errno::EAGAIN) => return Received::Part,
            Err(Errno::EINTR) => {}
            Err(_) => return Received::Nothing,
        }
        if request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n") {
            return Received::All;
        }
        if request.len() > REQUEST_BYTES {
            return Received::Nothing;
        }
    }
}

fn answer_to(request: &[u8], answering: Answering<'_>, may_stream: bool) -> Answer {
    let request = Request::of(request);
    let answer = answering(Some(&request));
    match answer.is_stream {
        _ if request.is_head() => answer.without_page(),
        true if !may_stream => Answer::text(503, &format!("{MAX_STREAMS} clients already receive events; try again later.\n")),
        _ => answer,
    }
}

/// The log line when it listens, with what it serves.
pub fn announce(server: &StatsServer, what: &str) {
    let form = if server.is_http { ", over HTTP" } else { "" };
    log_sink::line(&format!("{what} at {}{form}", server.endpoint.bound));
}

/// Length of the kernel's accept queue.
const BACKLOG: u32 = 100;

/// Binds the address.
///
/// # Errors
/// An address that can't be bound.
pub fn bind(server: &StatisticsServer, owner: Option<&Privileges>) -> Result<(OwnedFd, Endpoint), StartError> {
    let listener = listener(server);
    bind_when_free(&listener, &[], owner, &mut AddressWait::default()).map_err(|message| trouble(&listener, &message))
}

/// Takes the socket that the previous master has handed over, which is not ours yet.
///
/// # Errors
/// The descriptor is not a socket.
pub fn take(server: &StatisticsServer, socket: OwnedFd) -> Result<(OwnedFd, Endpoint), StartError> {
    let listener = listener(server);
    let endpoint = taken_over(&socket, &listener).map_err(|message| trouble(&listener, &message))?;
    Ok((socket, endpoint))
}

fn trouble(listener: &Listener, message: &str) -> StartError {
    StartError::new(format!("{}: stats: {message}", listener.origin))
}

fn listener(server: &StatisticsServer) -> Listener {
    Listener::unread(server.address.clone(), Protocol::Http, BACKLOG, server.mode, server.origin.clone())
}

#[cfg(test)]
mod tests;
