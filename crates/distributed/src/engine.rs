//! An engine as the calls of a process see it: a connection when one is needed, time limits, and lines for the log.
//!
//! Any thread may call it. No lock is held while a call waits, and none is waited for: after a fork in the middle of a call, the
//! child only makes a connection of its own.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bolide_contract::clock;
use bolide_contract::engine_row::{EngineRow, EngineState};

use crate::address::{Address, Place};
use crate::breaker::{admit, note_answer, note_away, note_miss, note_refusal, rest_ms};
use crate::connection::Connection;
use crate::fault::Fault;
use crate::wire::{Command, Value};

/// Connections of a process that wait for the next call. A process with more threads makes more connections, and closes them.
const MAX_IDLE: usize = 8;
/// Bytes that an answer may have beside its values.
const ANSWER_BYTES_BESIDE: u64 = 64 << 10;
/// Seconds for which the addresses of a host are used. Resolving has the time limits of /etc/resolv.conf alone, so a host that
/// does not answer is not resolved again before [`MIN_RESOLVED_SECONDS`] have passed.
const RESOLVED_SECONDS: u64 = 60;
const MIN_RESOLVED_SECONDS: u64 = 10;

/// The kinds of errors by which a server says that it does not serve: it reads its data, it is a replica, or its primary is away.
const NOT_SERVING: [&str; 3] = ["LOADING ", "READONLY ", "MASTERDOWN "];

pub struct Engine {
    address: Address,
    name: String,
    row: &'static EngineRow,
    report: fn(&str),
    idle: Mutex<Vec<Connection>>,
    host: Mutex<Option<Host>>,
}

#[derive(Clone)]
struct Host {
    addresses: Vec<SocketAddr>,
    resolved_at: Instant,
    /// A connection to these addresses has failed.
    has_failed: bool,
}

impl Engine {
    /// `report` gets the lines for the log.
    pub fn new(address: Address, row: &'static EngineRow, report: fn(&str)) -> Engine {
        let (idle, host) = (Mutex::new(Vec::new()), Mutex::new(None));
        Engine { name: address.to_string(), address, row, report, idle, host }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    pub fn state(&self) -> EngineState {
        self.row.state(clock::now_ms())
    }

    /// Sends one command, which is answered by at most `answer_bytes` bytes of values.
    pub(crate) fn call(&self, command: &Command, answer_bytes: u64) -> Result<Value, Fault> {
        let longest = self.address.connect + self.address.answer;
        if !admit(self.row, clock::now_ms(), longest.as_millis() as u64) {
            self.tell(note_miss(self.row, clock::now_ms(), &self.name, "it is not tried again yet"));
            return Err(Fault::Resting);
        }
        self.noted(self.attempt(command, answer_bytes.saturating_add(ANSWER_BYTES_BESIDE)))
    }

    /// Sends several commands together, each with a short answer. They have the time limit of one call together. Returns how many
    /// of them the server has carried out.
    pub(crate) fn call_all(&self, commands: &[Command]) -> Result<usize, Fault> {
        let longest = self.address.connect + self.address.answer;
        if !admit(self.row, clock::now_ms(), longest.as_millis() as u64) {
            self.tell(note_miss(self.row, clock::now_ms(), &self.name, "it is not tried again yet"));
            return Err(Fault::Resting);
        }
        let (done, refusal) = self.noted(self.attempt_all(commands))?;
        if let Some(refusal) = refusal {
            // Only the outcome's words are for the log: the others were carried out.
            let _: Result<(), Fault> = self.noted(Err(Fault::Refused(refusal)));
        }
        Ok(done)
    }

    /// Opens a connection for messages of channels. `Resting`: it is too early, or another process tries it.
    pub(crate) fn open(&self) -> Result<Connection, Fault> {
        let longest = self.address.connect + self.address.answer;
        if self.rest().is_some() || !admit(self.row, clock::now_ms(), longest.as_millis() as u64) {
            return Err(Fault::Resting);
        }
        self.noted(self.new_connection())
    }

    /// How long no call is sent, because the server is away. `None`: a call may be sent.
    pub(crate) fn rest(&self) -> Option<Duration> {
        rest_ms(self.row, clock::now_ms()).map(Duration::from_millis)
    }

    /// Words of the server that refuse something outside of a call.
    pub(crate) fn note_refusal_of(&self, words: String) -> Fault {
        let fault = Fault::Refused(words).cleaned(self.address.password.as_deref());
        self.tell(note_refusal(self.row, clock::now_ms(), &self.name, &fault.to_string()));
        fault
    }

    /// Tells what the outcome of a call says of the server.
    fn noted<T>(&self, answer: Result<T, Fault>) -> Result<T, Fault> {
        let answer = answer.map_err(|fault| fault.cleaned(self.address.password.as_deref()));
        let now_ms = clock::now_ms();
        match &answer {
            Err(Fault::Away(reason)) => self.tell(note_away(self.row, now_ms, &self.name, reason)),
            Err(fault) => {
                self.tell(note_answer(self.row, now_ms, &self.name));
                self.tell(note_refusal(self.row, now_ms, &self.name, &fault.to_string()));
            }
            Ok(_) => self.tell(note_answer(self.row, now_ms, &self.name)),
        }
        answer
    }

    /// Runs a script at the server, which no other command interrupts.
    pub(crate) fn run(&self, script: &Script<'_>) -> Result<Value, Fault> {
        let mut command = Command::new("EVAL");
        command.arg(script.text).number(script.keys.len() as u64);
        for part in script.keys.iter().chain(script.arguments) {
            command.arg(*part);
        }
        self.call(&command, script.answer_bytes)
    }

    /// The key of a part of this crate's data: `PREFIX:KIND:NAME:`.
    pub(crate) fn key(&self, kind: &str, name: &str) -> Vec<u8> {
        format!("{}:{kind}:{name}:", self.address.prefix).into_bytes()
    }

    /// As [`Engine::key`], with the braces by which a cluster keeps all keys of a name on one server.
    pub(crate) fn tagged_key(&self, kind: &str, name: &str) -> Vec<u8> {
        format!("{{{}:{kind}:{name}}}", self.address.prefix).into_bytes()
    }

    fn attempt(&self, command: &Command, answer_bytes_most: u64) -> Result<Value, Fault> {
        let mut connection = self.connection()?;
        let deadline = Instant::now() + self.address.answer;
        match connection.exchange(command, deadline, answer_bytes_most)? {
            // The server says that it can't serve now. A host that leads to another server is resolved again.
            Value::Error(error) if is_absence(&error) => {
                self.doubt_host();
                Err(Fault::Away(error))
            }
            Value::Error(error) => {
                self.keep(connection);
                Err(Fault::Refused(error))
            }
            value => {
                self.keep(connection);
                Ok(value)
            }
        }
    }

    /// Returns how many commands were carried out, and the words of the first one that was not.
    fn attempt_all(&self, commands: &[Command]) -> Result<(usize, Option<String>), Fault> {
        let mut connection = self.connection()?;
        let deadline = Instant::now() + self.address.answer;
        let packed: Vec<u8> = commands.iter().flat_map(Command::packed).collect();
        connection.send(&packed, deadline)?;
        let (mut done, mut refusal) = (0, None);
        for _ in commands {
            match connection.receive(deadline, ANSWER_BYTES_BESIDE)? {
                Value::Error(error) if is_absence(&error) => {
                    self.doubt_host();
                    return Err(Fault::Away(error));
                }
                Value::Error(error) => refusal = refusal.or(Some(error)),
                _ => done += 1,
            }
        }
        self.keep(connection);
        Ok((done, refusal))
    }

    /// A connection that waited, or a new one. Those that a fork has inherited are closed here, which the parent's ends survive.
    fn connection(&self) -> Result<Connection, Fault> {
        let mut idle = self.idle.try_lock().ok();
        while let Some(connection) = idle.as_mut().and_then(|idle| idle.pop()) {
            if connection.is_usable() {
                return Ok(connection);
            }
        }
        drop(idle);
        self.new_connection()
    }

    fn new_connection(&self) -> Result<Connection, Fault> {
        let addresses = self.host_addresses()?;
        let made = Connection::open(&self.address, &addresses, Instant::now() + self.address.connect);
        if made.is_err() {
            self.doubt_host();
        }
        made
    }

    /// Closes the connections that wait for the next call, before this process is forked into one that has none.
    pub fn close_idle(&self) {
        if let Ok(mut idle) = self.idle.try_lock() {
            idle.clear();
        }
    }

    fn keep(&self, connection: Connection) {
        if let Ok(mut idle) = self.idle.try_lock()
            && idle.len() < MAX_IDLE
        {
            idle.push(connection);
        }
    }

    fn host_addresses(&self) -> Result<Vec<SocketAddr>, Fault> {
        let (Place::Tcp { host, port } | Place::Tls { host, port, .. }) = &self.address.place else {
            return Ok(Vec::new());
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, *port)]);
        }
        let known = self.host.try_lock().ok().and_then(|host| host.clone());
        if let Some(known) = &known {
            let lasting = if known.has_failed { MIN_RESOLVED_SECONDS } else { RESOLVED_SECONDS };
            if known.resolved_at.elapsed() < Duration::from_secs(lasting) {
                return Ok(known.addresses.clone());
            }
        }
        let found = (host.as_str(), *port).to_socket_addrs();
        let addresses: Vec<SocketAddr> = match (found, known) {
            (Ok(found), _) => found.collect(),
            (Err(_), Some(known)) if !known.addresses.is_empty() => known.addresses,
            (Err(error), _) => return Err(Fault::Away(format!("its host {host}: {error}"))),
        };
        if let Ok(mut host) = self.host.try_lock() {
            *host = Some(Host { addresses: addresses.clone(), resolved_at: Instant::now(), has_failed: false });
        }
        Ok(addresses)
    }

    fn doubt_host(&self) {
        if let Ok(mut host) = self.host.try_lock()
            && let Some(host) = host.as_mut()
        {
            host.has_failed = true;
        }
    }

    fn tell(&self, line: Option<String>) {
        if let Some(line) = line {
            (self.report)(&line);
        }
    }
}

fn is_absence(error: &str) -> bool {
    NOT_SERVING.iter().any(|kind| error.starts_with(kind))
}

/// A script for the server, and its values.
pub(crate) struct Script<'a> {
    pub text: &'a str,
    pub keys: &'a [&'a [u8]],
    pub arguments: &'a [&'a [u8]],
    pub answer_bytes: u64,
}
