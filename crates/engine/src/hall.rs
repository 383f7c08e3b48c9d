//! Where a worker's connections wait for their turn: a table of them, and the queue of those with news.
//!
//! In a worker with several threads the hall is locked for moments only; a connection that is attended to is
//! *away*, and belongs to its thread alone. It knows no sockets and no application.

use std::collections::VecDeque;

/// Names a connection's place, and which connection it was: news of one that is gone finds nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(pub u64);

/// What a poll's news is about.
#[derive(Debug, PartialEq, Eq)]
pub enum Subject {
    Control,
    Listener(usize),
    /// Somebody asks whether the loop still turns.
    Pulse,
    /// A thread that does not lead has left something for the one that does.
    Bell,
    Connection(Key),
}

/// Keys from here on are not connections: the pulse, the bell, and from the other end the control socket, then listeners counted
/// downwards.
const FIRST_SPECIAL: u64 = 0xffff_ffff_0000_0000;
const BELL: u64 = FIRST_SPECIAL + 1;
const CONTROL: u64 = u64::MAX;

impl Key {
    pub const CONTROL: Key = Key(CONTROL);
    pub const PULSE: Key = Key(FIRST_SPECIAL);
    pub const BELL: Key = Key(BELL);

    pub fn listener(number: usize) -> Key {
        Key(CONTROL - 1 - number as u64)
    }

    pub fn subject(self) -> Subject {
        match self.0 {
            CONTROL => Subject::Control,
            FIRST_SPECIAL => Subject::Pulse,
            BELL => Subject::Bell,
            special if special >= FIRST_SPECIAL => Subject::Listener((CONTROL - 1 - special) as usize),
            _ => Subject::Connection(self),
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

enum Content<C> {
    Free,
    Here(Box<C>),
    /// A thread attends to it; `news` came meanwhile.
    Away {
        news: bool,
    },
}

struct Place<C> {
    generation: u32,
    /// The poll has told that the peer says no more, which it does once.
    has_ended: bool,
    content: Content<C>,
}

pub struct Hall<C> {
    places: Vec<Place<C>>,
    free: Vec<u32>,
    ready: VecDeque<Key>,
    /// Listening sockets with news: theirs is the end of the turn, when this thread is free to serve whom they let in.
    ready_listeners: VecDeque<Key>,
    count: usize,
}

impl<C> Hall<C> {
    pub fn new() -> Hall<C> {
        Hall { places: Vec::new(), free: Vec::new(), ready: VecDeque::new(), ready_listeners: VecDeque::new(), count: 0 }
    }

    /// Connections, those that are away included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Lets a connection in and queues it: a new one often has its request with it.
    pub fn enter(&mut self, connection: Box<C>) -> Key {
        self.count += 1;
        let key = match self.free.pop() {
            Some(index) => Key::new(index as usize, self.places[index as usize].generation),
            None => {
                self.places.push(Place { generation: 0, has_ended: false, content: Content::Free });
                Key::new(self.places.len() - 1, 0)
            }
        };
        self.places[key.index()].content = Content::Here(connection);
        self.ready.push_back(key);
        key
    }

    /// Queues what has news.
    pub fn news(&mut self, key: Key) {
        if key.0 < FIRST_SPECIAL {
            match self.find(key) {
                None => return,
                Some(Place { content: Content::Away { news }, .. }) => {
                    *news = true;
                    return;
                }
                Some(_) => {}
            }
        }
        match key.subject() {
            Subject::Listener(_) => self.ready_listeners.push_back(key),
            Subject::Connection(_) | Subject::Control | Subject::Pulse | Subject::Bell => self.ready.push_back(key),
        }
    }

    /// The peer says no more. That is told only once, perhaps together with the last bytes.
    pub fn note_end(&mut self, key: Key) {
        if key.0 < FIRST_SPECIAL
            && let Some(place) = self.find(key)
        {
            place.has_ended = true;
        }
    }

    /// Whether [`Hall::note_end`] was called for the connection.
    pub fn has_ended(&mut self, key: Key) -> bool {
        self.find(key).is_some_and(|place| place.has_ended)
    }

    pub fn next_ready(&mut self) -> Option<Key> {
        self.ready.pop_front().or_else(|| self.ready_listeners.pop_front())
    }

    /// Connections that wait for a thread.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Takes a connection out to attend to it. `None` if it is away or gone.
    pub fn take(&mut self, key: Key) -> Option<Box<C>> {
        let place = self.find(key)?;
        match std::mem::replace(&mut place.content, Content::Away { news: false }) {
            Content::Here(connection) => Some(connection),
            other => {
                place.content = other;
                None
            }
        }
    }

    /// It is attended to at present.
    pub fn is_away(&mut self, key: Key) -> bool {
        matches!(self.find(key), Some(Place { content: Content::Away { .. }, .. }))
    }

    /// A look at a connection that is here.
    pub fn look(&mut self, key: Key) -> Option<&C> {
        match &self.find(key)?.content {
            Content::Here(connection) => Some(connection),
            _ => None,
        }
    }

    /// Brings it back; what had news meanwhile is queued again.
    pub fn bring_back(&mut self, key: Key, connection: Box<C>) {
        let Some(place) = self.find(key) else { return };
        let had_news = matches!(place.content, Content::Away { news: true });
        place.content = Content::Here(connection);
        if had_news {
            self.ready.push_back(key);
        }
    }

    /// Its place is free again.
    pub fn leave(&mut self, key: Key) {
        let Some(place) = self.find(key) else { return };
        place.content = Content::Free;
        place.has_ended = false;
        // The highest generation is left out: with it, a key would be taken for a special one.
        place.generation = (place.generation + 1) % (u32::MAX - 1);
        self.free.push(key.index() as u32);
        self.count -= 1;
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.ready_listeners.is_empty()
    }

    /// Keys of those that are here and for which `wanted` holds.
    pub fn keys(&mut self, mut wanted: impl FnMut(&mut C) -> bool) -> Vec<Key> {
        let mut found = Vec::new();
        for (index, place) in self.places.iter_mut().enumerate() {
            if let Content::Here(connection) = &mut place.content
                && wanted(connection)
            {
                found.push(Key::new(index, place.generation));
            }
        }
        found
    }

    pub fn for_each(&mut self, mut act: impl FnMut(&mut C)) {
        for place in &mut self.places {
            if let Content::Here(connection) = &mut place.content {
                act(connection);
            }
        }
    }

    fn find(&mut self, key: Key) -> Option<&mut Place<C>> {
        self.places.get_mut(key.index()).filter(|place| place.generation == key.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_a_connection_that_is_gone_finds_nobody() {
        let mut hall: Hall<&str> = Hall::new();
        let first = hall.enter(Box::new("first"));
        assert_eq!(hall.next_ready(), Some(first));
        assert!(hall.take(first).is_some());
        hall.leave(first);
        let second = hall.enter(Box::new("second"));
        assert_eq!(hall.next_ready(), Some(second));
        hall.news(first);
        assert_eq!(hall.next_ready(), None);
        assert!(hall.take(first).is_none() && hall.take(second).is_some());
    }

    #[test]
    fn news_that_comes_while_a_connection_is_away_is_not_lost() {
        let mut hall: Hall<&str> = Hall::new();
        let key = hall.enter(Box::new("one"));
        assert_eq!(hall.next_ready(), Some(key));
        let connection = hall.take(key).expect("here");
        hall.news(key);
        assert_eq!(hall.next_ready(), None);
        assert!(hall.take(key).is_none());
        hall.bring_back(key, connection);
        assert_eq!(hall.next_ready(), Some(key));
    }

    #[test]
    fn listening_sockets_have_their_turn_after_connections() {
        let mut hall: Hall<&str> = Hall::new();
        let key = hall.enter(Box::new("one"));
        assert_eq!(hall.next_ready(), Some(key));
        hall.news(Key::listener(0));
        hall.news(key);
        assert!(hall.has_ready());
        assert_eq!([hall.next_ready(), hall.next_ready(), hall.next_ready()], [Some(key), Some(Key::listener(0)), None]);
    }

    #[test]
    fn the_end_of_a_peer_is_remembered_for_its_connection_alone() {
        let mut hall: Hall<&str> = Hall::new();
        let first = hall.enter(Box::new("first"));
        assert!(hall.take(first).is_some());
        hall.note_end(first);
        assert!(hall.has_ended(first), "also while it is away");
        hall.leave(first);
        let second = hall.enter(Box::new("second"));
        hall.note_end(first);
        assert!(!hall.has_ended(second));
    }

    #[test]
    fn special_keys_are_told_apart() {
        assert_eq!(Key::CONTROL.subject(), Subject::Control);
        assert_eq!(Key::PULSE.subject(), Subject::Pulse);
        assert_eq!(Key::BELL.subject(), Subject::Bell);
        assert_eq!(Key::listener(3).subject(), Subject::Listener(3));
        assert_eq!(Key::new(7, 9).subject(), Subject::Connection(Key::new(7, 9)));
        assert_eq!(Key::new(7, u32::MAX - 2).subject(), Subject::Connection(Key::new(7, u32::MAX - 2)));
    }
}
