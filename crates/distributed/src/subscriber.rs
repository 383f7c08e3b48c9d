//! Messages of channels that instances of other machines publish: a connection that listens, as long as a process wants it.
//!
//! The caller's thread runs it. It subscribes to the channels that are wanted at the moment, connects again with pauses, and says
//! when messages may be missing: a server does not keep any for a connection that is gone. What other threads want is in
//! [`WantedChannels`], whose lock is held briefly, never during a wait.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};

use crate::channel::{Waited, time_until};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::publication::{MAX_CHANNEL_BYTES, MAX_DATA_BYTES, PublishedMessage, channel_prefix};
use crate::wire::{Command, Value};

/// Seconds without any message after which the server is asked whether it is there. It has the engine's `answer-ms` to answer.
const PING_SECONDS: u64 = 10;
/// Seconds that a message may take from its first byte to its last one.
const MESSAGE_SECONDS: u64 = 10;
/// Milliseconds before the next try after a connection that did not last for [`LASTING_SECONDS`]; each more doubles them.
const MIN_PAUSE_MS: u64 = 100;
const MAX_PAUSE_MS: u64 = 5_000;
const LASTING_SECONDS: u64 = 10;
/// Milliseconds between two looks whether the server may be tried. Another process that tries it may take its whole time limit,
/// or find it back in a moment.
const LOOK_MS: u64 = 250;
/// Bytes of a message, with the name of its channel.
const MESSAGE_BYTES: u64 = (MAX_DATA_BYTES + MAX_CHANNEL_BYTES + (64 << 10)) as u64;

/// What a subscriber hears.
#[derive(Debug)]
pub enum Received {
    Message(PublishedMessage),
    /// The connection has ended, for this reason. Messages are missed from now on.
    Interrupted(String),
    /// It listens again, or for the first time after the server was away. Messages may be missing before this one.
    Resumed,
    /// Another program has published on a channel.
    Foreign,
}

/// The channels that a process listens to at the moment, and the bell that rings when they change.
pub struct WantedChannels {
    wish: Mutex<Wish>,
    bell: UnixStream,
    ringer: UnixStream,
}

#[derive(Default)]
struct Wish {
    channels: BTreeSet<String>,
    /// How often the channels have changed.
    version: u64,
    is_over: bool,
}

impl Wish {
    fn note_change(&mut self, has_changed: bool) -> bool {
        self.version += u64::from(has_changed);
        has_changed
    }
}

impl WantedChannels {
    /// # Errors
    /// The bell can't be created: out of descriptors.
    pub fn new() -> io::Result<WantedChannels> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        Ok(WantedChannels { wish: Mutex::default(), bell, ringer })
    }

    pub fn add(&self, channel: &str) {
        let mut wish = self.wish();
        let is_new = wish.channels.insert(channel.to_owned());
        if wish.note_change(is_new) {
            self.ring();
        }
    }

    pub fn remove(&self, channel: &str) {
        let mut wish = self.wish();
        let was_there = wish.channels.remove(channel);
        if wish.note_change(was_there) {
            self.ring();
        }
    }

    /// Has the subscriber return.
    pub fn end(&self) {
        self.wish().is_over = true;
        self.ring();
    }

    fn ring(&self) {
        // A bell without room rings already.
        let _ = (&self.ringer).write(b"!");
    }

    fn silence(&self) {
        let mut rung = [0; 64];
        while matches!((&self.bell).read(&mut rung), Ok(1..)) {}
    }

    fn wish(&self) -> MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listening half of a process.
pub struct Subscriber {
    engine: &'static Engine,
    prefix: Vec<u8>,
    /// Messages may be missing: the next time that it listens is told.
    has_gap: bool,
    /// Connections in a row that did not last.
    short_ones: u32,
    pause_until: Instant,
}

/// A connection that listens.
struct Line {
    connection: Connection,
    subscribed: BTreeSet<String>,
    /// The version of the wish that was looked at last.
    version: u64,
    opened_at: Instant,
    heard_at: Instant,
    /// Questions that the server has not answered yet.
    pings: u32,
}

impl Subscriber {
    pub fn new(engine: &'static Engine) -> Subscriber {
        let prefix = channel_prefix(engine);
        Subscriber { engine, prefix, has_gap: false, short_ones: 0, pause_until: Instant::now() }
    }

    /// Listens until [`WantedChannels::end`].
    pub fn run(mut self, wanted: &WantedChannels, mut hear: impl FnMut(Received)) {
        while !wanted.wish().is_over {
            self.pause(wanted);
            if wanted.wish().is_over {
                return;
            }
            let Some(mut line) = self.open() else { continue };
            let ended = self.listen(&mut line, wanted, &mut hear);
            let lasted = line.opened_at.elapsed() >= Duration::from_secs(LASTING_SECONDS);
            line.connection.end();
            let Err(fault) = ended else { return };
            self.has_gap = true;
            self.short_ones = if lasted { 0 } else { self.short_ones.saturating_add(1) };
            if let Some(doublings) = self.short_ones.checked_sub(1) {
                let pause_ms = (MIN_PAUSE_MS << doublings.min(16)).min(MAX_PAUSE_MS);
                self.pause_until = Instant::now() + Duration::from_millis(pause_ms);
            }
            hear(Received::Interrupted(fault.cleaned(self.engine.address().password.as_deref()).to_string()));
        }
    }

    /// Waits until the server may be tried, or until nothing is wanted any longer.
    fn pause(&self, wanted: &WantedChannels) {
        loop {
            let own = self.pause_until.saturating_duration_since(Instant::now());
            let left = self.engine.rest().map_or(own, |rest| rest.max(own));
            if left.is_zero() || wanted.wish().is_over {
                return;
            }
            let mut polled = [PollFd::new(wanted.bell.as_fd(), PollFlags::POLLIN)];
            // Any outcome leads to another look.
            let _ = poll(&mut polled, time_until(Instant::now() + left.min(Duration::from_millis(LOOK_MS))));
            wanted.silence();
        }
    }

    fn open(&mut self) -> Option<Line> {
        match self.engine.open() {
            Ok(connection) => {
                let now = Instant::now();
                Some(Line { connection, subscribed: BTreeSet::new(), version: 0, opened_at: now, heard_at: now, pings: 0 })
            }
            Err(_) => {
                // The engine's own lines in the log say why. If another process tries it, its outcome is known soon.
                self.has_gap = true;
                if self.engine.rest().is_none() {
                    self.pause_until = Instant::now() + Duration::from_millis(MIN_PAUSE_MS);
                }
                None
            }
        }
    }

    /// Returns when nothing is wanted any longer.
    fn listen(&mut self, line: &mut Line, wanted: &WantedChannels, hear: &mut impl FnMut(Received)) -> Result<(), Fault> {
        let answer = self.engine.address().answer;
        loop {
            let channels = {
                let wish = wanted.wish();
                if wish.is_over {
                    return Ok(());
                }
                (std::mem::replace(&mut line.version, wish.version) != wish.version).then(|| wish.channels.clone())
            };
            if let Some(channels) = channels {
                self.subscribe(line, channels)?;
            }
            let until = line.heard_at + if line.pings > 0 { answer } else { Duration::from_secs(PING_SECONDS) };
            match line.connection.wait(wanted.bell.as_fd(), until)? {
                Waited::Bell => wanted.silence(),
                Waited::Time if line.pings > 0 => return Err(Fault::Away("no answer to PING in time".to_owned())),
                Waited::Time => line.send(&Command::new("PING").packed(), answer)?,
                Waited::Bytes => {
                    let deadline = Instant::now() + Duration::from_secs(MESSAGE_SECONDS);
                    let value = line.connection.receive(deadline, MESSAGE_BYTES)?;
                    if let Some(heard) = self.understand(line, value)? {
                        hear(heard);
                    }
                    line.heard_at = Instant::now();
                }
            }
        }
    }

    /// Subscribes to new channels, and unsubscribes from those without listeners. The answer to the question that follows says
    /// that the server has done it.
    fn subscribe(&self, line: &mut Line, channels: BTreeSet<String>) -> Result<(), Fault> {
        let mut packed = Vec::new();
        for (name, which) in [
            ("UNSUBSCRIBE", line.subscribed.difference(&channels).collect::<Vec<&String>>()),
            ("SUBSCRIBE", channels.difference(&line.subscribed).collect()),
        ] {
            if !which.is_empty() {
                let mut command = Command::new(name);
                for channel in which {
                    command.arg([&self.prefix, channel.as_bytes()].concat());
                }
                packed.extend(command.packed());
            }
        }
        packed.extend(Command::new("PING").packed());
        line.subscribed = channels;
        line.send(&packed, self.engine.address().answer)
    }

    fn understand(&mut self, line: &mut Line, value: Value) -> Result<Option<Received>, Fault> {
        let unexpected = || Fault::unexpected("SUBSCRIBE");
        let parts = match value {
            // Without subscriptions the server answers as usual.
            Value::Status(status) if status == "PONG" => return self.pong(line),
            Value::Error(error) => return Err(self.engine.note_refusal_of(error)),
            Value::List(parts) => parts,
            _ => return Err(unexpected()),
        };
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(Value::Bytes(kind)), Some(Value::Bytes(_)), None) if kind == b"pong" => self.pong(line),
            (Some(Value::Bytes(kind)), Some(_), Some(Value::Integer(_))) if kind == b"subscribe" || kind == b"unsubscribe" => {
                Ok(None)
            }
            (Some(Value::Bytes(kind)), Some(Value::Bytes(channel)), Some(Value::Bytes(packed))) if kind == b"message" => {
                let name = channel.strip_prefix(self.prefix.as_slice()).map(|name| String::from_utf8(name.to_vec()));
                let message = match name {
                    Some(Ok(name)) => PublishedMessage::read(name, packed),
                    _ => None,
                };
                Ok(Some(message.map_or(Received::Foreign, Received::Message)))
            }
            _ => Err(unexpected()),
        }
    }

    fn pong(&mut self, line: &mut Line) -> Result<Option<Received>, Fault> {
        line.pings = line.pings.checked_sub(1).ok_or_else(|| Fault::unexpected("no PING"))?;
        let is_resumed = line.pings == 0 && std::mem::take(&mut self.has_gap);
        Ok(is_resumed.then_some(Received::Resumed))
    }
}

impl Line {
    /// Sends commands of which the last one is a PING.
    fn send(&mut self, packed: &[u8], limit: Duration) -> Result<(), Fault> {
        let now = Instant::now();
        if self.pings == 0 {
            self.heard_at = now;
        }
        self.pings = self.pings.saturating_add(1);
        self.connection.send(packed, now + limit)
    }
}
