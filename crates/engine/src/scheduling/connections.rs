//! A worker's connections: the table of them, the queue of those with events, and their time limits.
//!
//! Connections and listening sockets have their turns in the order of their events, so neither open connections nor new ones can
//! starve the others. The streams of an HTTP/2 connection share one place in that order, so a client with many requests waits as
//! long as one with few. The worker's own events (orders, the heartbeat) come first.
//!
//! In a worker with several threads the table is locked for moments only. A connection that is attended to is *away*, and belongs
//! to its thread alone. The table does not know about sockets or the application. Workers run it.

use std::collections::VecDeque;

use crate::scheduling::deadlines::{Deadlines, NEVER_MS};
use crate::scheduling::turn::StreamsTurn;

/// Names a slot of the table and the connection in it: an event of a connection that is gone does not reach its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(pub u64);

/// Names one request and its answer: the connection, and the number of the stream on it. On protocols other than HTTP/2, where
/// requests follow one another, they are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeId {
    pub connection: Key,
    pub stream: u32,
}

impl ExchangeId {
    /// The same as numbers, for a language that keeps it as such.
    pub fn parts(self) -> (u64, u32) {
        (self.connection.0, self.stream)
    }

    /// Numbers that are of no exchange find none.
    pub fn of_parts(connection: u64, stream: u32) -> ExchangeId {
        ExchangeId { connection: Key(connection), stream }
    }
}

/// The source of a poll's event.
#[derive(Debug, PartialEq, Eq)]
pub enum EventSource {
    Control,
    Listener(usize),
    /// A thread asks whether the loop still turns.
    Heartbeat,
    /// A thread that does not lead has left work for the leader.
    Bell,
    /// Connections in the queue need a worker.
    Queue,
    /// Connections of this worker's sessions have come from other workers.
    Sessions,
    /// uWSGI's signals wait for a handler.
    Signals,
    /// A permit of a bulkhead was given back.
    Bulkheads,
    Connection(Key),
    /// The other end of the exchange that this connection relays.
    Relay(Key),
}

/// In a key, the bit that says that an event is one of a relay. No table is that large.
const OF_RELAY: u64 = 1 << 31;

/// Keys from here on are not connections: the heartbeat, the bell, the queue of connections, the signals, the connections of
/// sessions, the bells of bulkheads, and from the other end the control socket, then listeners counted downwards.
const FIRST_SPECIAL: u64 = 0xffff_ffff_0000_0000;
const BELL: u64 = FIRST_SPECIAL + 1;
const QUEUE: u64 = FIRST_SPECIAL + 2;
const SIGNALS: u64 = FIRST_SPECIAL + 3;
const SESSIONS: u64 = FIRST_SPECIAL + 4;
const BULKHEADS: u64 = FIRST_SPECIAL + 5;
const CONTROL: u64 = u64::MAX;

impl Key {
    pub const CONTROL: Key = Key(CONTROL);
    pub const HEARTBEAT: Key = Key(FIRST_SPECIAL);
    pub const BELL: Key = Key(BELL);
    pub const QUEUE: Key = Key(QUEUE);
    pub const SIGNALS: Key = Key(SIGNALS);
    pub const SESSIONS: Key = Key(SESSIONS);
    pub const BULKHEADS: Key = Key(BULKHEADS);

    pub fn listener(number: usize) -> Key {
        Key(CONTROL - 1 - number as u64)
    }

    pub fn source(self) -> EventSource {
        match self.0 {
            CONTROL => EventSource::Control,
            FIRST_SPECIAL => EventSource::Heartbeat,
            BELL => EventSource::Bell,
            QUEUE => EventSource::Queue,
            SIGNALS => EventSource::Signals,
            SESSIONS => EventSource::Sessions,
            BULKHEADS => EventSource::Bulkheads,
            special if special >= FIRST_SPECIAL => EventSource::Listener((CONTROL - 1 - special) as usize),
            _ if self.0 & OF_RELAY != 0 => EventSource::Relay(Key(self.0 & !OF_RELAY)),
            _ => EventSource::Connection(self),
        }
    }

    /// Names the other end of the exchange that this connection relays.
    pub fn of_relay(self) -> Key {
        Key(self.0 | OF_RELAY)
    }

    fn new(index: usize, generation: u32) -> Key {
        Key(u64::from(generation) << 32 | index as u64)
    }

    fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

enum Occupancy<C> {
    Free,
    Present(Box<C>),
    /// A thread attends to it; `has_event` says whether an event came in the meantime.
    CheckedOut {
        has_event: bool,
    },
}

/// A place in the queue.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The place of a connection, of a stream whose connection is gone, or of another event source.
    One(Key),
    /// The place of the streams of this connection.
    Streams(Key),
}

/// How an entry shares its place in the queue.
enum Sharing {
    /// It has a place for itself.
    Alone,
    /// It has a place for itself, and its streams share another one.
    Streams(Box<Streams>),
    /// It is a stream, and shares the place of this connection's streams.
    Of(Key),
}

/// Streams of a connection.
#[derive(Default)]
struct Streams {
    /// Streams that wait for their turn.
    waiting: VecDeque<Key>,
    /// They have a place in the queue.
    are_queued: bool,
    turn: StreamsTurn,
    /// Other keys have their turn first, including those whose events the poll has not reported yet.
    is_over: bool,
}

struct Entry<C> {
    generation: u32,
    /// The poll has reported that the peer does not send more, which it does once.
    has_ended: bool,
    /// The time of its entry among the deadlines, in monotonic milliseconds; [`NEVER_MS`] if it has none.
    looked_at_ms: u64,
    sharing: Sharing,
    occupancy: Occupancy<C>,
    /// A number that the caller keeps for a connection, also while it is away.
    kind: u8,
}

/// The result of checking a connection whose time has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// It has its turn now.
    Now,
    /// Its limit was moved to this time, in monotonic milliseconds.
    At(u64),
}

/// The number of connections in the table, including those that are away. An HTTP/2 connection and its streams are counted
/// separately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Population {
    pub sockets: usize,
    pub streams: usize,
}

impl Population {
    pub fn all(self) -> usize {
        self.sockets + self.streams
    }
}

pub struct ConnectionTable<C> {
    entries: Vec<Entry<C>>,
    free: Vec<u32>,
    ready: VecDeque<Place>,
    /// Number of streams that wait for their turn.
    ready_streams: usize,
    /// Listening sockets in `ready`, and other level-triggered sources: each poll reports them again, and each is queued once.
    queued_listeners: Vec<Key>,
    deadlines: Deadlines,
    population: Population,
    /// Number of connections that are attended to.
    away: usize,
}

impl<C> ConnectionTable<C> {
    pub fn new() -> ConnectionTable<C> {
        ConnectionTable {
            entries: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            ready_streams: 0,
            queued_listeners: Vec::new(),
            deadlines: Deadlines::default(),
            population: Population::default(),
            away: 0,
        }
    }

    pub fn population(&self) -> Population {
        self.population
    }

    /// Inserts a connection and queues it, as a new one often has its request with it. Its time limit is `due_ms`.
    pub fn insert(&mut self, connection: Box<C>, due_ms: u64) -> Key {
        self.population.sockets += 1;
        self.enter(connection, Sharing::Alone, due_ms)
    }

    /// The same with a stream of `connection`, which is here or away.
    pub fn insert_stream(&mut self, connection: Key, stream: Box<C>, due_ms: u64) -> Key {
        if let Some(entry @ Entry { sharing: Sharing::Alone, .. }) = self.find(connection) {
            entry.sharing = Sharing::Streams(Box::default());
        }
        self.population.streams += 1;
        self.enter(stream, Sharing::Of(connection), due_ms)
    }

    fn enter(&mut self, connection: Box<C>, sharing: Sharing, due_ms: u64) -> Key {
        let key = match self.free.pop() {
            Some(index) => Key::new(index as usize, self.entries[index as usize].generation),
            None => {
                let (sharing, occupancy) = (Sharing::Alone, Occupancy::Free);
                let (looked_at_ms, kind) = (NEVER_MS, 0);
                self.entries.push(Entry { generation: 0, has_ended: false, looked_at_ms, sharing, occupancy, kind });
                Key::new(self.entries.len() - 1, 0)
            }
        };
        let entry = &mut self.entries[key.index()];
        (entry.sharing, entry.occupancy) = (sharing, Occupancy::Present(connection));
        self.look_at(key, due_ms);
        self.queue(key);
        key
    }

    /// Queues a connection or stream.
    fn queue(&mut self, key: Key) {
        match self.find(key) {
            Some(Entry { sharing: Sharing::Of(connection), .. }) => {
                let connection = *connection;
                self.queue_stream(connection, key);
            }
            _ => self.ready.push_back(Place::One(key)),
        }
    }

    #[inline(never)]
    fn queue_stream(&mut self, connection: Key, key: Key) {
        let Some(streams) = Self::streams_of(&mut self.entries, connection) else {
            return self.ready.push_back(Place::One(key));
        };
        streams.waiting.push_back(key);
        self.ready_streams += 1;
        if !std::mem::replace(&mut streams.are_queued, true) {
            self.ready.push_back(Place::Streams(connection));
        }
    }

    /// Orders the streams of a connection that wait for their turn.
    pub fn order_streams<R: Ord>(&mut self, connection: Key, mut rank: impl FnMut(Key) -> R) {
        if let Some(streams) = Self::streams_of(&mut self.entries, connection)
            && streams.waiting.len() > 1
        {
            streams.waiting.make_contiguous().sort_by_cached_key(|key| rank(*key));
        }
    }

    /// Moves the last `count` keys of the queue to its front: they have waited elsewhere, for example in the listen queue.
    pub fn bring_forward(&mut self, count: usize) {
        self.ready.rotate_right(count.min(self.ready.len()));
    }

    /// Sets a deadline for the connection, unless it has an earlier one.
    fn look_at(&mut self, key: Key, due_ms: u64) {
        let entry = &mut self.entries[key.index()];
        if due_ms < entry.looked_at_ms {
            entry.looked_at_ms = due_ms;
            self.deadlines.add(due_ms, key.0);
            if self.deadlines.is_crowded(self.population.all()) {
                self.tidy_deadlines();
            }
        }
    }

    /// Removes stale entries.
    fn tidy_deadlines(&mut self) {
        self.deadlines.clear();
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.looked_at_ms != NEVER_MS {
                self.deadlines.add(entry.looked_at_ms, Key::new(index, entry.generation).0);
            }
        }
    }

    /// Returns the time of the next deadline, in monotonic milliseconds.
    pub fn next_look_ms(&self) -> u64 {
        self.deadlines.earliest_ms()
    }

    /// Checks the connections whose time has come, and queues those that `look` finds due.
    pub fn look(&mut self, now_ms: u64, mut look: impl FnMut(&mut C) -> Due) {
        while let Some((when_ms, key)) = self.deadlines.take(now_ms) {
            let key = Key(key);
            let Some(entry) = self.find(key).filter(|entry| entry.looked_at_ms == when_ms) else { continue };
            entry.looked_at_ms = NEVER_MS;
            // A connection that is away brings its limit with it when it comes back.
            let Occupancy::Present(connection) = &mut entry.occupancy else { continue };
            match look(connection) {
                Due::Now => self.queue(key),
                Due::At(due_ms) => self.look_at(key, due_ms.max(now_ms + 1)),
            }
        }
    }

    /// Changes the limits of all connections that are here: `change` returns the new ones.
    pub fn change_all(&mut self, mut change: impl FnMut(&mut C) -> u64) {
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if let Occupancy::Present(connection) = &mut entry.occupancy {
                let (due_ms, key) = (change(connection), Key::new(index, entry.generation));
                self.look_at(key, due_ms);
            }
        }
    }

    /// Changes the limit of a connection. Returns `false` if it is away: it brings its limit with it when it comes back.
    pub fn change(&mut self, key: Key, change: impl FnOnce(&mut C) -> u64) -> bool {
        let Some(Entry { occupancy: Occupancy::Present(connection), .. }) = self.find(key) else { return false };
        let due_ms = change(connection);
        self.look_at(key, due_ms);
        true
    }

    /// Queues the source of an event.
    pub fn note_event(&mut self, key: Key) {
        match key.source() {
            EventSource::Connection(key) | EventSource::Relay(key) => match self.find(key) {
                Some(Entry { occupancy: Occupancy::CheckedOut { has_event }, .. }) => *has_event = true,
                Some(Entry { sharing: Sharing::Of(connection), .. }) => {
                    let connection = *connection;
                    self.queue_stream(connection, key);
                }
                Some(_) => self.ready.push_back(Place::One(key)),
                None => {}
            },
            EventSource::Listener(_)
            | EventSource::Queue
            | EventSource::Sessions
            | EventSource::Signals
            | EventSource::Bulkheads
                if self.queued_listeners.contains(&key) => {}
            EventSource::Listener(_)
            | EventSource::Queue
            | EventSource::Sessions
            | EventSource::Signals
            | EventSource::Bulkheads => {
                self.queued_listeners.push(key);
                self.ready.push_back(Place::One(key));
            }
            EventSource::Control | EventSource::Heartbeat | EventSource::Bell => self.ready.push_front(Place::One(key)),
        }
    }

    /// The peer does not send more. The poll reports that only once, possibly together with the last bytes.
    pub fn note_end(&mut self, key: Key) {
        if key.0 < FIRST_SPECIAL
            && let Some(entry) = self.find(key)
        {
            entry.has_ended = true;
        }
    }

    /// Whether [`ConnectionTable::note_end`] was called for the connection.
    pub fn has_ended(&mut self, key: Key) -> bool {
        self.find(key).is_some_and(|entry| entry.has_ended)
    }

    /// Returns the key whose turn it is. `None`: the queue is empty, or the streams of a connection have had their turn, and the
    /// poll must be asked for more events, which come before their next turn.
    pub fn next_ready(&mut self) -> Option<Key> {
        loop {
            match self.ready.pop_front()? {
                Place::One(key) => {
                    if key.0 >= FIRST_SPECIAL {
                        self.queued_listeners.retain(|queued| *queued != key);
                    }
                    return Some(key);
                }
                Place::Streams(connection) => {
                    if let Some(next) = self.next_stream(connection) {
                        return next;
                    }
                }
            }
        }
    }

    /// Returns what [`ConnectionTable::next_ready`] returns if the place of these streams is first in the queue, or nothing if
    /// that place is to be skipped.
    #[inline(never)]
    fn next_stream(&mut self, connection: Key) -> Option<Option<Key>> {
        let streams = Self::streams_of(&mut self.entries, connection)?;
        if streams.is_over {
            (streams.is_over, streams.turn) = (false, StreamsTurn::default());
            self.ready.push_back(Place::Streams(connection));
            return None;
        }
        if !streams.turn.may_begin() {
            streams.is_over = true;
            self.ready.push_front(Place::Streams(connection));
            return Some(None);
        }
        let key = streams.waiting.pop_front();
        self.ready_streams -= usize::from(key.is_some());
        if streams.waiting.is_empty() {
            (streams.are_queued, streams.turn) = (false, StreamsTurn::default());
        } else {
            streams.turn.note_begun();
            self.ready.push_front(Place::Streams(connection));
        }
        Some(key)
    }

    /// Returns the queued keys in order, without streams. Some of them may be gone or away.
    pub fn ready(&self) -> impl Iterator<Item = Key> {
        self.ready.iter().filter_map(|turn| match turn {
            Place::One(key) => Some(*key),
            Place::Streams(_) => None,
        })
    }

    /// Takes a connection that is gone out of the queue. It need not be, but during a long call many may come and go.
    pub fn forget_events(&mut self, key: Key) {
        self.ready.retain(|place| !matches!(place, Place::One(queued) if *queued == key));
    }

    /// Whether no connection is attended to.
    pub fn is_none_away(&self) -> bool {
        self.away == 0
    }

    /// Number of connections and streams that wait for a thread.
    pub fn ready_count(&self) -> usize {
        self.ready.len() + self.ready_streams
    }

    /// Checks a connection out to attend to it. `None` if it is away or gone.
    pub fn check_out(&mut self, key: Key) -> Option<Box<C>> {
        let entry = self.find(key)?;
        match std::mem::replace(&mut entry.occupancy, Occupancy::CheckedOut { has_event: false }) {
            Occupancy::Present(connection) => {
                self.away += 1;
                Some(connection)
            }
            other => {
                entry.occupancy = other;
                None
            }
        }
    }

    /// Whether a thread is attending to it.
    pub fn is_checked_out(&mut self, key: Key) -> bool {
        matches!(self.find(key), Some(Entry { occupancy: Occupancy::CheckedOut { .. }, .. }))
    }

    /// Returns a connection that is here.
    pub fn peek(&mut self, key: Key) -> Option<&C> {
        match &self.find(key)?.occupancy {
            Occupancy::Present(connection) => Some(connection),
            _ => None,
        }
    }

    /// Brings a connection back. It is queued again if it had an event in the meantime. Its time limit is `due_ms`.
    pub fn check_in(&mut self, key: Key, connection: Box<C>, due_ms: u64) {
        let Some(entry) = self.find(key) else { return };
        let had_event = matches!(entry.occupancy, Occupancy::CheckedOut { has_event: true });
        entry.occupancy = Occupancy::Present(connection);
        self.away -= 1;
        self.look_at(key, due_ms);
        if had_event {
            self.queue(key);
        }
    }

    /// Removes a connection and frees its slot.
    pub fn remove(&mut self, key: Key) {
        let Some(entry) = self.find(key) else { return };
        let was_away = matches!(entry.occupancy, Occupancy::CheckedOut { .. });
        let sharing = std::mem::replace(&mut entry.sharing, Sharing::Alone);
        entry.occupancy = Occupancy::Free;
        entry.has_ended = false;
        entry.looked_at_ms = NEVER_MS;
        // The highest generation is left out: a key with it would look like a special one.
        entry.generation = (entry.generation + 1) % (u32::MAX - 1);
        self.free.push(key.index() as u32);
        self.away -= usize::from(was_away);
        match sharing {
            Sharing::Alone => self.population.sockets -= 1,
            Sharing::Of(_) => self.population.streams -= 1,
            Sharing::Streams(streams) => {
                self.population.sockets -= 1;
                // The remaining streams get single places, so that they learn of the end.
                self.ready_streams -= streams.waiting.len();
                self.ready.extend(streams.waiting.into_iter().map(Place::One));
            }
        }
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the keys of those connections that are here and satisfy `wanted`.
    pub fn keys(&mut self, mut wanted: impl FnMut(&mut C) -> bool) -> Vec<Key> {
        let mut found = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if let Occupancy::Present(connection) = &mut entry.occupancy
                && wanted(connection)
            {
                found.push(Key::new(index, entry.generation));
            }
        }
        found
    }

    pub fn for_each(&mut self, mut act: impl FnMut(&mut C)) {
        for entry in &mut self.entries {
            if let Occupancy::Present(connection) = &mut entry.occupancy {
                act(connection);
            }
        }
    }

    /// Notes the kind of a connection, and returns it. `None`: it is not here.
    pub fn note_kind(&mut self, key: Key, kind_of: impl FnOnce(&C) -> u8) -> Option<u8> {
        let Some(Entry { occupancy: Occupancy::Present(connection), kind, .. }) = self.find(key) else { return None };
        *kind = kind_of(connection);
        Some(*kind)
    }

    /// Visits each connection, but no stream, with the kind that was noted for it; `None`: it is away.
    pub fn for_each_socket(&mut self, mut act: impl FnMut(Option<&C>, &mut u8)) {
        for entry in self.entries.iter_mut().filter(|entry| !matches!(entry.sharing, Sharing::Of(_))) {
            match &entry.occupancy {
                Occupancy::Free => {}
                Occupancy::Present(connection) => act(Some(connection), &mut entry.kind),
                Occupancy::CheckedOut { .. } => act(None, &mut entry.kind),
            }
        }
    }

    fn find(&mut self, key: Key) -> Option<&mut Entry<C>> {
        Self::find_in(&mut self.entries, key)
    }

    fn find_in(entries: &mut [Entry<C>], key: Key) -> Option<&mut Entry<C>> {
        entries.get_mut(key.index()).filter(|entry| entry.generation == key.generation())
    }

    fn streams_of(entries: &mut [Entry<C>], connection: Key) -> Option<&mut Streams> {
        match &mut Self::find_in(entries, connection)?.sharing {
            Sharing::Streams(streams) => Some(streams),
            Sharing::Alone | Sharing::Of(_) => None,
        }
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
