//! The address of `stats`: whoever connects is given the statistics, and the connection ends. Nothing here waits: a client takes what its
//! socket takes at once, and the rest when it has room, within a time. It knows nothing of the numbers. The master runs it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bolide_contract::settings::{Listener, Protocol};
use bolide_contract::sockets::SocketTuning;
use bolide_contract::statistics::StatisticsServer;
use bolide_contract::succession::HandedSocket;
use bolide_contract::tls::Http2;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, Shutdown, SockFlag, accept4, recv, send, shutdown};

use crate::error::StartError;
use crate::logs::log_sink;
use crate::polling::{ServerToken, Source};
use crate::processes::privileges::Privileges;
use crate::sockets::listeners::{ADDRESS_WAIT_MS, Endpoint, bind_when_free, taken_over};

/// Clients that are served at the same time; a further one takes the place of the oldest.
const CLIENTS_MOST: usize = 64;
/// Clients that are accepted in a turn: a flood of them does not keep the workers waiting for their master.
const ACCEPTED_TURN_MOST: usize = 16;
/// Time that a client may take to ask and to be answered, in milliseconds.
const CLIENT_MS: u64 = 4000;
/// Bytes of a request.
const REQUEST_BYTES: usize = 8192;
/// Bytes that a client may still send when it has its answer: closing before they are read could take the answer back.
const LEFTOVER_BYTES: usize = 64 * 1024;
/// Time for which no client is accepted when there is no descriptor for one, in milliseconds.
const EXHAUSTED_MS: u64 = 1000;

/// The text that clients of a turn share.
pub type Page = Rc<str>;

/// The listening socket, and who is being served.
#[derive(Debug)]
pub struct StatsServer {
    /// `None`: another master has it.
    socket: Option<OwnedFd>,
    endpoint: Endpoint,
    is_http: bool,
    clients: VecDeque<StatsClient>,
    next_id: u64,
    /// Until when nobody is accepted.
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
    /// Its request is coming.
    Asking(Vec<u8>),
    /// It has so many bytes of its answer.
    Answering { head: String, page: Page, sent: usize },
    /// It has all of it; so many bytes that nobody wants came since.
    Leaving { swallowed: usize },
}

/// What becomes of a client.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Close,
}

impl StatsServer {
    /// A server at this socket, which listens already.
    pub fn new(settings: &StatisticsServer, socket: OwnedFd, endpoint: Endpoint) -> StatsServer {
        let is_http = settings.is_http;
        StatsServer { socket: Some(socket), endpoint, is_http, clients: VecDeque::new(), next_id: 0, paused_until_ms: None }
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The same, to take its file over.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// The socket, for the master that is to take our place.
    pub fn handed_socket(&self) -> Option<HandedSocket> {
        let descriptor = self.socket.as_ref()?.as_raw_fd();
        Some(HandedSocket { address: self.endpoint.asked.clone(), descriptor })
    }

    /// Another master has the address from here on; who is connected is answered.
    pub fn give_place(&mut self) {
        (self.socket, self.endpoint.file) = (None, None);
    }

    /// `accepts` says whether somebody is let in.
    pub fn sources(&self, accepts: bool) -> impl Iterator<Item = Source<'_, ServerToken>> {
        let listener = self.socket.as_ref().filter(|_| accepts && self.paused_until_ms.is_none());
        let listener = listener.map(|socket| Source::readable(ServerToken::Listener, socket.as_fd()));
        let clients = self.clients.iter().map(|client| {
            let wants = match client.stage {
                Stage::Asking(_) | Stage::Leaving { .. } => PollFlags::POLLIN,
                Stage::Answering { .. } => PollFlags::POLLOUT,
            };
            Source { token: ServerToken::Client(client.id), descriptor: client.socket.as_fd(), wants }
        });
        listener.into_iter().chain(clients)
    }

    /// When somebody's time is over.
    pub fn wake_ms(&self) -> Option<u64> {
        self.clients.iter().map(|client| client.deadline_ms).chain(self.paused_until_ms).min()
    }

    /// Ends clients whose time is over.
    pub fn look_after_time(&mut self, now_ms: u64) {
        self.clients.retain(|client| now_ms < client.deadline_ms);
        self.paused_until_ms = self.paused_until_ms.filter(|until| now_ms < *until);
    }

    /// Does what news of a descriptor ask for. `page` makes the answer.
    pub fn take_news(&mut self, token: ServerToken, page: &mut dyn FnMut() -> Page, now_ms: u64) {
        match token {
            ServerToken::Listener => self.accept(page, now_ms),
            ServerToken::Client(id) => {
                // It may have given its place to another in this very turn.
                let Some(place) = self.clients.iter().position(|client| client.id == id) else { return };
                if self.clients[place].advance(page) == Next::Close {
                    self.clients.remove(place);
                }
            }
        }
    }

    fn accept(&mut self, page: &mut dyn FnMut() -> Page, now_ms: u64) {
        for _ in 0..ACCEPTED_TURN_MOST {
            let Some(listener) = &self.socket else { return };
            let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC);
            let socket = match accepted {
                Ok(descriptor) => crate::processes::system::adopt(descriptor),
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                    // The oldest makes room; where there is none, the poll would tell of this one without end.
                    if self.clients.pop_front().is_none() {
                        self.paused_until_ms = Some(now_ms + EXHAUSTED_MS);
                    }
                    return;
                }
                // Nobody is left, or this one has gone already.
                Err(_) => return,
            };
            let Ok(socket) = socket else { return };
            let stage = match self.is_http {
                true => Stage::Asking(Vec::new()),
                false => Stage::Answering { head: String::new(), page: page(), sent: 0 },
            };
            self.next_id += 1;
            let mut client = StatsClient { id: self.next_id, socket, stage, deadline_ms: now_ms + CLIENT_MS };
            if client.advance(page) == Next::Close {
                continue;
            }
            if self.clients.len() >= CLIENTS_MOST {
                self.clients.pop_front();
            }
            self.clients.push_back(client);
        }
    }
}

impl StatsClient {
    /// Goes as far as it goes without waiting.
    fn advance(&mut self, page: &mut dyn FnMut() -> Page) -> Next {
        loop {
            let stage = match &mut self.stage {
                Stage::Asking(request) => match receive(&self.socket, request) {
                    Received::All => answer_to(request, page),
                    Received::Part => return Next::Wait,
                    Received::Nothing => return Next::Close,
                },
                Stage::Answering { head, page, sent } => {
                    while *sent < head.len() + page.len() {
                        let rest = match head.as_bytes().get(*sent..) {
                            Some(rest) if !rest.is_empty() => rest,
                            _ => &page.as_bytes()[*sent - head.len()..],
                        };
                        match send(self.socket.as_raw_fd(), rest, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                            Ok(count) => *sent += count,
                            Err(Errno::EAGAIN) => return Next::Wait,
                            Err(Errno::EINTR) => {}
                            Err(_) => return Next::Close,
                        }
                    }
                    if shutdown(self.socket.as_raw_fd(), Shutdown::Write).is_err() {
                        return Next::Close;
                    }
                    Stage::Leaving { swallowed: 0 }
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

/// How much of a request has come.
enum Received {
    All,
    Part,
    /// The client left, or says too much.
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

/// Every path is this page, as in uWSGI; the fields are its own, and the length, so that a page that was cut is known as such.
fn answer_to(request: &[u8], page: &mut dyn FnMut() -> Page) -> Stage {
    let page = page();
    let head = format!(
        "HTTP/1.0 200 OK\r\nConnection: close\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        page.len()
    );
    let page = if request.starts_with(b"HEAD ") { Page::from("") } else { page };
    Stage::Answering { head, page, sent: 0 }
}

/// The line of the log when it listens.
pub fn announce(server: &StatsServer) {
    let form = if server.is_http { ", by HTTP" } else { "" };
    log_sink::line(&format!("statistics at {}{form}", server.endpoint.bound));
}

/// Connections that the kernel keeps waiting there.
const BACKLOG: u32 = 100;

/// Binds it.
///
/// # Errors
/// An address that can't be had.
pub fn bind(server: &StatisticsServer, owner: Option<&Privileges>) -> Result<(OwnedFd, Endpoint), StartError> {
    let until = Instant::now() + Duration::from_millis(ADDRESS_WAIT_MS);
    let listener = listener(server);
    bind_when_free(&listener, &[], owner, until).map_err(|message| trouble(&listener, &message))
}

/// Takes the socket that the master before us has handed over, which is not ours yet.
///
/// # Errors
/// It is none.
pub fn take(server: &StatisticsServer, socket: OwnedFd) -> Result<(OwnedFd, Endpoint), StartError> {
    let listener = listener(server);
    let endpoint = taken_over(&socket, &listener).map_err(|message| trouble(&listener, &message))?;
    Ok((socket, endpoint))
}

fn trouble(listener: &Listener, message: &str) -> StartError {
    StartError::new(format!("{}: stats: {message}", listener.origin))
}

fn listener(server: &StatisticsServer) -> Listener {
    Listener {
        address: server.address.clone(),
        protocol: Protocol::Http,
        backlog: BACKLOG,
        mode: server.mode,
        owner: None,
        timeout_ms: 0,
        tls: None,
        http2: Http2::default(),
        redirects_to_https: None,
        has_proxy_header: false,
        tuning: SocketTuning::default(),
        origin: server.origin.clone(),
    }
}

#[cfg(test)]
#[path = "stats_server_tests.rs"]
mod tests;
