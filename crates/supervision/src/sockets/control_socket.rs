//! The control socket of a running master: a question is one line of JSON, and so is its answer. It knows which peers may ask,
//! and no question: its caller answers. The master runs it.
//!
//! The name is in the abstract namespace unless `control-socket` says otherwise: a master that is killed leaves nothing behind,
//! and no directory has to exist. Any process can connect to such a name. Peers that are neither root nor our own user are
//! rejected, and so are peers from another container that shares our network namespace.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use bolide_contract::control::Channel;
use nix::poll::PollFlags;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, getsockopt, listen, socket, sockopt};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use crate::error::StartError;
use crate::files::guarded_files::{self, KnownFile, SocketNode};
use crate::log_sink;
use crate::polling::{ServerToken, Source};
use crate::privileges::Privileges;

/// Connections at the same time. Another one replaces the oldest that has not asked anything.
const MAX_CLIENTS: usize = 16;
/// Connections accepted in a turn.
const MAX_ACCEPTED_TURN: usize = 8;
/// Bytes of a question.
const QUESTION_BYTES: usize = 4096;
/// Time that a client has to send its question, and to read the answer, in milliseconds.
const CLIENT_MS: u64 = 5000;
/// Time for which no client is accepted after descriptors ran out, in milliseconds.
const EXHAUSTED_MS: u64 = 1000;
/// Length of the kernel's accept queue.
const BACKLOG: i32 = 128;
/// Mode of a socket file.
const FILE_MODE: u32 = 0o600;

/// The listening socket and its clients.
#[derive(Debug, Default)]
pub struct ControlSocket {
    listener: Option<UnixListener>,
    /// The socket's file, with its identity.
    file: Option<KnownFile>,
    clients: Vec<Client>,
    next_id: u64,
    /// Until when no client is accepted.
    paused_until_ms: Option<u64>,
}

#[derive(Debug)]
struct Client {
    id: u64,
    stream: UnixStream,
    state: ClientState,
    /// Its deadline.
    until_ms: Option<u64>,
}

#[derive(Debug)]
enum ClientState {
    /// Sends its question, of which this part has arrived.
    Asks(Vec<u8>),
    /// Waits for an outcome.
    Waits,
    /// Waits for the outcome after the next: that of a reload which follows one that is under way.
    WaitsForNext,
    /// The outcome that it waits for is known, and is sent in a moment.
    OutcomeNoted,
    /// Reads its answer, of which this part is left.
    Takes(Vec<u8>),
}

impl ControlSocket {
    /// Opens the socket. Failing to bind the abstract name is logged only; failing to create a configured file is an error.
    ///
    /// # Errors
    /// The socket file can't be created.
    pub fn open(channel: &Channel, privileges: Option<&Privileges>) -> Result<ControlSocket, StartError> {
        let (listener, file) = match channel {
            Channel::Off => (None, None),
            Channel::Named => match bind_name() {
                Ok(listener) => (Some(listener), None),
                Err(error) => {
                    log_sink::line(&format!(
                        "no control socket: {error}; `bolide status` and the related commands can't \
                        connect"
                    ));
                    (None, None)
                }
            },
            Channel::File(path) => {
                let trouble = |error| {
                    let shown = path.display();
                    StartError::new(format!("control-socket = {shown}: {error}; create its directory, or choose another file"))
                };
                let (listener, file) = bind_file(path, privileges).map_err(trouble)?;
                (Some(listener), Some(file))
            }
        };
        Ok(ControlSocket { listener, file, clients: Vec::new(), next_id: 1, paused_until_ms: None })
    }

    /// The listening socket, if there is room for a client, and the clients.
    pub fn sources(&self) -> impl Iterator<Item = Source<'_, ServerToken>> {
        let has_room = self.clients.len() < MAX_CLIENTS || self.oldest_to_drop().is_some();
        let has_room = has_room && self.paused_until_ms.is_none();
        let listener = self.listener.iter().filter(move |_| has_room);
        let clients = self.clients.iter().map(|client| {
            let wants = if matches!(client.state, ClientState::Takes(_)) { PollFlags::POLLOUT } else { PollFlags::POLLIN };
            Source { token: ServerToken::Client(client.id), descriptor: client.stream.as_fd(), wants }
        });
        listener.map(|listener| Source::readable(ServerToken::Listener, listener.as_fd())).chain(clients)
    }

    /// The next deadline of a client.
    pub fn wake_ms(&self) -> Option<u64> {
        self.clients.iter().filter_map(|client| client.until_ms).chain(self.paused_until_ms).min()
    }

    /// Accepts pending connections.
    pub fn accept(&mut self, now_ms: u64) {
        let Some(listener) = &self.listener else { return };
        for _ in 0..MAX_ACCEPTED_TURN {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // No descriptor or memory is left: poll(2) would report this client forever.
                Err(_) => {
                    self.paused_until_ms = Some(now_ms + EXHAUSTED_MS);
                    return;
                }
            };
            if !may_ask(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() >= MAX_CLIENTS {
                // The clients that this turn has accepted are last in the list: their questions are read before they can be
                // replaced.
                let Some(oldest) = self.oldest_to_drop() else { continue };
                self.clients.remove(oldest);
            }
            let (id, until_ms) = (self.next_id, Some(now_ms + CLIENT_MS));
            self.next_id += 1;
            self.clients.push(Client { id, stream, state: ClientState::Asks(Vec::new()), until_ms });
        }
    }

    /// The position of the client to drop for a new one: the oldest that has not asked anything, and else the oldest that does
    /// not read its answer. Clients that wait for an outcome are kept.
    fn oldest_to_drop(&self) -> Option<usize> {
        let is_silent = |client: &Client| matches!(client.state, ClientState::Asks(_));
        let is_slow = |client: &Client| matches!(client.state, ClientState::Takes(_));
        self.clients.iter().position(is_silent).or_else(|| self.clients.iter().position(is_slow))
    }

    /// Handles an event of a client. Returns its question, if it is complete.
    pub fn take(&mut self, id: u64) -> Option<Value> {
        let client = self.clients.iter_mut().find(|client| client.id == id)?;
        let question = match &mut client.state {
            ClientState::Asks(received) => read_question(&mut client.stream, received),
            // It has nothing more to send, so this is its end.
            ClientState::Waits | ClientState::WaitsForNext | ClientState::OutcomeNoted => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            ClientState::Takes(answer) => send(&mut client.stream, answer),
        };
        match question {
            Ok(question) => question,
            Err(_) => {
                self.drop_client(id);
                None
            }
        }
    }

    /// The pid of a client, as the kernel states it.
    pub fn pid_of(&self, id: u64) -> Option<i32> {
        let client = self.clients.iter().find(|client| client.id == id)?;
        getsockopt(&client.stream, sockopt::PeerCredentials).ok().map(|peer| peer.pid()).filter(|pid| *pid > 0)
    }

    /// The client waits for an outcome, without a deadline.
    pub fn keep_waiting(&mut self, id: u64) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            (client.state, client.until_ms) = (ClientState::Waits, None);
        }
    }

    /// The client waits for the outcome after the next, without a deadline.
    pub fn keep_waiting_for_next(&mut self, id: u64) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            (client.state, client.until_ms) = (ClientState::WaitsForNext, None);
        }
    }

    /// What comes next is the outcome of the reload that has followed another one.
    pub fn begin_next_wait(&mut self) {
        for client in self.clients.iter_mut().filter(|client| matches!(client.state, ClientState::WaitsForNext)) {
            client.state = ClientState::Waits;
        }
    }

    /// Answers a client. A client gets one answer only.
    pub fn answer(&mut self, id: u64, answer: &Value, now_ms: u64) {
        let is_open = |client: &&mut Client| client.id == id && !matches!(client.state, ClientState::Takes(_));
        let Some(client) = self.clients.iter_mut().find(is_open) else { return };
        let mut line = answer.to_string().into_bytes();
        line.push(b'\n');
        let sent = send(&mut client.stream, &mut line);
        (client.state, client.until_ms) = (ClientState::Takes(line), Some(now_ms + CLIENT_MS));
        if sent.is_err() {
            self.drop_client(id);
        }
    }

    /// Answers all clients that wait for an outcome.
    pub fn answer_waiting(&mut self, answer: &Value, now_ms: u64) {
        self.answer_all(|state| matches!(state, ClientState::Waits), answer, now_ms);
    }

    /// An outcome is known: the clients that wait now get this one. Clients that come later wait for the next.
    pub fn note_outcome(&mut self) {
        for client in self.clients.iter_mut().filter(|client| matches!(client.state, ClientState::Waits)) {
            client.state = ClientState::OutcomeNoted;
        }
    }

    /// Answers the clients that have waited for the noted outcome.
    pub fn answer_noted(&mut self, answer: &Value, now_ms: u64) {
        self.answer_all(|state| matches!(state, ClientState::OutcomeNoted), answer, now_ms);
    }

    fn answer_all(&mut self, which: impl Fn(&ClientState) -> bool, answer: &Value, now_ms: u64) {
        let waiting: Vec<u64> = self.clients.iter().filter(|client| which(&client.state)).map(|client| client.id).collect();
        for id in waiting {
            self.answer(id, answer, now_ms);
        }
    }

    /// Drops clients whose deadline has passed, and resumes accepting.
    pub fn drop_late(&mut self, now_ms: u64) {
        self.paused_until_ms = self.paused_until_ms.filter(|until| now_ms < *until);
        self.clients.retain(|client| client.until_ms.is_none_or(|until| now_ms < until));
    }

    /// Removes the socket's file at the end of the instance.
    pub fn remove_file(&self) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.remove() {
            log_sink::line(&format!("the control socket {} can't be removed: {error}", file.path.display()));
        }
    }

    /// Stops accepting. The file now belongs to another master.
    pub fn close(&mut self) {
        (self.listener, self.file) = (None, None);
    }

    fn drop_client(&mut self, id: u64) {
        self.clients.retain(|client| client.id != id);
    }
}

fn bind_name() -> io::Result<UnixListener> {
    let pid = Pid::this().as_raw();
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for attempt in 0..Channel::MAX_ATTEMPTS {
        let address = SocketAddr::from_abstract_name(Channel::name_of(pid, attempt))?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return listener.set_nonblocking(true).map(|()| listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Binds a socket file. A stale file without a listener is removed; a file of another kind, or with a listener, stays.
fn bind_file(path: &Path, privileges: Option<&Privileges>) -> io::Result<(UnixListener, KnownFile)> {
    let taken = |kind, words: &str| Err(io::Error::new(kind, words));
    let new_socket = || {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        socket(AddressFamily::Unix, SockType::Stream, flags, None)
    };
    match SocketNode::find(path, privileges) {
        Ok(node) => {
            let probe = new_socket()?;
            // At an upgrade, the listener is the previous master, which has started us.
            let listens = match guarded_files::connect_at(&probe, path, privileges) {
                Ok(()) => getsockopt(&probe, sockopt::PeerCredentials).map_or(true, |peer| peer.pid() != Pid::parent().as_raw()),
                Err(error) => error.raw_os_error() == Some(libc::EAGAIN),
            };
            if listens {
                return taken(io::ErrorKind::AddrInUse, "another instance is listening there");
            }
            node.known(path, privileges).remove()?;
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOTSOCK) => {
            return taken(io::ErrorKind::AlreadyExists, "a file of this name exists and is not a socket");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = new_socket()?;
    guarded_files::bind_at(&listener, path, privileges)?;
    let made = SocketNode::find(path, privileges).and_then(|node| {
        node.check(None, privileges)?;
        node.set_mode(FILE_MODE)?;
        Ok(node.known(path, privileges))
    })?;
    listen(&listener, Backlog::new(BACKLOG)?)?;
    Ok((UnixListener::from(listener), made))
}

/// Root and our own user may ask, but not from another container (a PID namespace) that shares our network namespace and so sees
/// our name.
fn may_ask(stream: &UnixStream) -> bool {
    let Ok(peer) = getsockopt(stream, sockopt::PeerCredentials) else { return false };
    let is_known = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
    let space = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let theirs = space(&peer.pid().to_string());
    // Only root can read root's link, and without /proc no process can read any.
    is_known && peer.pid() > 0 && (theirs.is_none() || theirs == space("self"))
}

/// Reads on. Returns the question when its line is complete.
fn read_question(stream: &mut UnixStream, received: &mut Vec<u8>) -> io::Result<Option<Value>> {
    let mut bytes = [0; QUESTION_BYTES];
    match stream.read(&mut bytes[received.len()..]) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            received.extend_from_slice(&bytes[received.len()..][..count]);
            let Some(end) = received.iter().position(|byte| *byte == b'\n') else {
                let is_full = received.len() >= QUESTION_BYTES;
                return if is_full { Err(io::ErrorKind::InvalidData.into()) } else { Ok(None) };
            };
            serde_json::from_slice(&received[..end]).map(Some).map_err(|_| io::ErrorKind::InvalidData.into())
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends as much as the client's socket accepts. A client that has all of its answer is dropped, by an error.
fn send(stream: &mut UnixStream, answer: &mut Vec<u8>) -> io::Result<Option<Value>> {
    match stream.write(answer) {
        Ok(count) => {
            answer.drain(..count);
            if answer.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(None) }
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use std::io::{BufRead, BufReader};
    use std::path::PathBuf;

    fn channel(directory: &Directory) -> (ControlSocket, PathBuf) {
        let path = directory.path().join("control.sock");
        (ControlSocket::open(&Channel::File(path.clone()), None).expect("opened"), path)
    }

    #[test]
    fn a_question_in_parts_is_answered_once_and_the_client_let_go_of() {
        let directory = Directory::new("control");
        let (mut channel, path) = channel(&directory);
        let mut client = UnixStream::connect(&path).expect("connected");
        channel.accept(0);
        client.write_all(b"{\"ask\":").expect("written");
        assert_eq!(channel.take(1), None);
        client.write_all(b"\"status\"}\nmore").expect("written");
        assert_eq!(channel.take(1), Some(serde_json::json!({"ask": "status"})));
        channel.answer(1, &serde_json::json!({"ok": true}), 0);
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).expect("read");
        assert_eq!((line.as_str(), channel.clients.len()), ("{\"ok\":true}\n", 0));
        channel.remove_file();
        assert!(!path.exists());
    }

    #[test]
    fn junk_endless_questions_and_slow_clients_are_let_go_of() {
        let directory = Directory::new("control");
        let (mut channel, path) = channel(&directory);
        let long = vec![b'x'; QUESTION_BYTES];
        for (id, said) in (1u64..).zip([b"junk\n".as_slice(), long.as_slice(), b""]) {
            let mut client = UnixStream::connect(&path).expect("connected");
            channel.accept(0);
            client.write_all(said).expect("written");
            if said.is_empty() {
                channel.drop_late(CLIENT_MS);
            }
            assert_eq!((channel.take(id), channel.clients.len()), (None, 0));
        }
        let clients: Vec<UnixStream> = (0..2 * MAX_CLIENTS).map(|_| UnixStream::connect(&path).expect("connected")).collect();
        for _ in 0..clients.len() {
            channel.accept(0);
        }
        assert!(channel.clients.len() <= MAX_CLIENTS);
    }

    #[test]
    fn a_client_that_asks_is_accepted_past_any_number_of_silent_ones_and_waiting_clients_stay() {
        let directory = Directory::new("control-silent");
        let (mut channel, path) = channel(&directory);
        let connect = || UnixStream::connect(&path).expect("connected");
        let mut waiting = connect();
        channel.accept(0);
        waiting.write_all(b"{\"ask\":\"reload\"}\n").expect("written");
        assert!(channel.take(1).is_some());
        channel.keep_waiting(1);
        let silent: Vec<UnixStream> = (0..5 * MAX_CLIENTS).map(|_| connect()).collect();
        let mut asking = connect();
        asking.write_all(b"{\"ask\":\"status\"}\n").expect("written");
        let mut asked = None;
        for _ in 0..=silent.len() / MAX_ACCEPTED_TURN {
            assert!(channel.sources().any(|source| source.token == ServerToken::Listener));
            channel.accept(0);
            let ids: Vec<u64> = channel.clients.iter().map(|client| client.id).filter(|id| *id > 1).collect();
            asked = asked.or(ids.into_iter().find_map(|id| channel.take(id)));
        }
        assert_eq!(asked, Some(serde_json::json!({"ask": "status"})));
        assert!(channel.clients.iter().any(|client| client.id == 1));
        assert!(channel.clients.len() <= MAX_CLIENTS);
    }
}
