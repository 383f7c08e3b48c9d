//! Where a worker's connections wait for their turn: a table of them, and the queue of those with news.
//!
//! In a worker with several threads the connection table is locked for moments only; a connection that is attended to is
//! *away*, and belongs to its thread alone. It knows no sockets and no application.

use std::collections::VecDeque;

/// Names a connection's place, and which connection it was: news of one that is gone finds nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(pub u64);

/// Names one request and its answer: the connection, and the number of the stream on it. Where requests follow one another (all protocols
/// but HTTP/2), they are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeId {
    pub connection: Key,
    pub stream: u32,
}

/// The subject of a poll's news.
#[derive(Debug, PartialEq, Eq)]
pub enum EventSource {
    Control,
    Listener(usize),
    /// Somebody asks whether the loop still turns.
    Heartbeat,
    /// A thread that does not lead has left something for the one that does.
    Bell,
    Connection(Key),
}

/// Keys from here on are not connections: the heartbeat, the bell, and from the other end the control socket, then listeners counted
/// downwards.
const FIRST_SPECIAL: u64 = 0xffff_ffff_0000_0000;
const BELL: u64 = FIRST_SPECIAL + 1;
const CONTROL: u64 = u64::MAX;

impl Key {
    pub const CONTROL: Key = Key(CONTROL);
    pub const HEARTBEAT: Key = Key(FIRST_SPECIAL);
    pub const BELL: Key = Key(BELL);

    pub fn listener(number: usize) -> Key {
        Key(CONTROL - 1 - number as u64)
    }

    pub fn source(self) -> EventSource {
        match self.0 {
            CONTROL => EventSource::Control,
            FIRST_SPECIAL => EventSource::Heartbeat,
            BELL => EventSource::Bell,
            special if special >= FIRST_SPECIAL => EventSource::Listener((CONTROL - 1 - special) as usize),
            _ => EventSource::Connection(self),
        }
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
    /// A thread attends to it; `news` came meanwhile.
    CheckedOut {
        news: bool,
    },
}

struct Entry<C> {
    generation: u32,
    /// The poll has told that the peer says no more, which it does once.
    has_ended: bool,
    occupancy: Occupancy<C>,
}

pub struct ConnectionTable<C> {
    entries: Vec<Entry<C>>,
    free: Vec<u32>,
    ready: VecDeque<Key>,
    /// Listening sockets with news: theirs is the end of the turn, when this thread is free to serve whom they let in.
    ready_listeners: VecDeque<Key>,
    count: usize,
}

impl<C> ConnectionTable<C> {
    pub fn new() -> ConnectionTable<C> {
        ConnectionTable {
            entries: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            ready_listeners: VecDeque::new(),
            count: 0,
        }
    }

    /// Connections, those that are away included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Lets a connection in and queues it: a new one often has its request with it.
    pub fn insert(&mut self, connection: Box<C>) -> Key {
        self.count += 1;
        let key = match self.free.pop() {
            Some(index) => Key::new(index as usize, self.entries[index as usize].generation),
            None => {
                self.entries.push(Entry { generation: 0, has_ended: false, occupancy: Occupancy::Free });
                Key::new(self.entries.len() - 1, 0)
            }
        };
        self.entries[key.index()].occupancy = Occupancy::Present(connection);
        self.ready.push_back(key);
        key
    }

    /// Queues what has news.
    pub fn news(&mut self, key: Key) {
        if key.0 < FIRST_SPECIAL {
            match self.find(key) {
                None => return,
                Some(Entry { occupancy: Occupancy::CheckedOut { news }, .. }) => {
                    *news = true;
                    return;
                }
                Some(_) => {}
            }
        }
        match key.source() {
            EventSource::Listener(_) => self.ready_listeners.push_back(key),
            EventSource::Connection(_) | EventSource::Control | EventSource::Heartbeat | EventSource::Bell => {
                self.ready.push_back(key)
            }
        }
    }

    /// The peer says no more. That is told only once, perhaps together with the last bytes.
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

    pub fn next_ready(&mut self) -> Option<Key> {
        self.ready.pop_front().or_else(|| self.ready_listeners.pop_front())
    }

    /// Connections that wait for a thread.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Takes a connection out to attend to it. `None` if it is away or gone.
    pub fn check_out(&mut self, key: Key) -> Option<Box<C>> {
        let entry = self.find(key)?;
        match std::mem::replace(&mut entry.occupancy, Occupancy::CheckedOut { news: false }) {
            Occupancy::Present(connection) => Some(connection),
            other => {
                entry.occupancy = other;
                None
            }
        }
    }

    /// It is attended to at present.
    pub fn is_checked_out(&mut self, key: Key) -> bool {
        matches!(self.find(key), Some(Entry { occupancy: Occupancy::CheckedOut { .. }, .. }))
    }

    /// A peek at a connection that is here.
    pub fn peek(&mut self, key: Key) -> Option<&C> {
        match &self.find(key)?.occupancy {
            Occupancy::Present(connection) => Some(connection),
            _ => None,
        }
    }

    /// Brings it back; what had news meanwhile is queued again.
    pub fn check_in(&mut self, key: Key, connection: Box<C>) {
        let Some(entry) = self.find(key) else { return };
        let had_news = matches!(entry.occupancy, Occupancy::CheckedOut { news: true });
        entry.occupancy = Occupancy::Present(connection);
        if had_news {
            self.ready.push_back(key);
        }
    }

    /// Its place is free again.
    pub fn remove(&mut self, key: Key) {
        let Some(entry) = self.find(key) else { return };
        entry.occupancy = Occupancy::Free;
        entry.has_ended = false;
        // The highest generation is left out: with it, a key would be taken for a special one.
        entry.generation = (entry.generation + 1) % (u32::MAX - 1);
        self.free.push(key.index() as u32);
        self.count -= 1;
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.ready_listeners.is_empty()
    }

    /// Keys of those that are here and for which `wanted` holds.
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

    fn find(&mut self, key: Key) -> Option<&mut Entry<C>> {
        self.entries.get_mut(key.index()).filter(|entry| entry.generation == key.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_a_connection_that_is_gone_finds_nobody() {
        let mut connections: ConnectionTable<&str> = ConnectionTable::new();
        let first = connections.insert(Box::new("first"));
        assert_eq!(connections.next_ready(), Some(first));
        assert!(connections.check_out(first).is_some());
        connections.remove(first);
        let second = connections.insert(Box::new("second"));
        assert_eq!(connections.next_ready(), Some(second));
        connections.news(first);
        assert_eq!(connections.next_ready(), None);
        assert!(connections.check_out(first).is_none() && connections.check_out(second).is_some());
    }

    #[test]
    fn news_that_comes_while_a_connection_is_away_is_not_lost() {
        let mut connections: ConnectionTable<&str> = ConnectionTable::new();
        let key = connections.insert(Box::new("one"));
        assert_eq!(connections.next_ready(), Some(key));
        let connection = connections.check_out(key).expect("here");
        connections.news(key);
        assert_eq!(connections.next_ready(), None);
        assert!(connections.check_out(key).is_none());
        connections.check_in(key, connection);
        assert_eq!(connections.next_ready(), Some(key));
    }

    #[test]
    fn listening_sockets_have_their_turn_after_connections() {
        let mut connections: ConnectionTable<&str> = ConnectionTable::new();
        let key = connections.insert(Box::new("one"));
        assert_eq!(connections.next_ready(), Some(key));
        connections.news(Key::listener(0));
        connections.news(key);
        assert!(connections.has_ready());
        assert_eq!(
            [connections.next_ready(), connections.next_ready(), connections.next_ready()],
            [Some(key), Some(Key::listener(0)), None]
        );
    }

    #[test]
    fn the_end_of_a_peer_is_remembered_for_its_connection_alone() {
        let mut connections: ConnectionTable<&str> = ConnectionTable::new();
        let first = connections.insert(Box::new("first"));
        assert!(connections.check_out(first).is_some());
        connections.note_end(first);
        assert!(connections.has_ended(first), "also while it is away");
        connections.remove(first);
        let second = connections.insert(Box::new("second"));
        connections.note_end(first);
        assert!(!connections.has_ended(second));
    }

    #[test]
    fn special_keys_are_told_apart() {
        assert_eq!(Key::CONTROL.source(), EventSource::Control);
        assert_eq!(Key::HEARTBEAT.source(), EventSource::Heartbeat);
        assert_eq!(Key::BELL.source(), EventSource::Bell);
        assert_eq!(Key::listener(3).source(), EventSource::Listener(3));
        assert_eq!(Key::new(7, 9).source(), EventSource::Connection(Key::new(7, 9)));
        assert_eq!(Key::new(7, u32::MAX - 2).source(), EventSource::Connection(Key::new(7, u32::MAX - 2)));
    }
}
