//! How many connections a worker has, by state and protocol: a count that the worker takes from time to time, in shared memory.
//! It is not a counter that requests move, so it costs them nothing.
//!
//! One thread at a time writes; others read. It knows neither row nor memory.

use crate::atomics::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::counters::Shared;

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// Nothing of its first request is here. A handshake of TLS may be on its way.
    New,
    /// A part of a request is here.
    Reading,
    /// The application, or a route, has a request.
    Request,
    /// The application is done, or waits; the client has not read all of the answer.
    Writing,
    /// Kept alive between two requests.
    Idle,
    /// This side has ended it, and the client's end is awaited.
    Closing,
}

/// The names of the states, in their order.
pub const STATES: [&str; 6] = ["new", "reading", "request", "writing", "idle", "closing"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionProtocol {
    Http1,
    Http2,
    WebSocket,
    Uwsgi,
    Scgi,
    FastCgi,
}

/// The names of the protocols, in their order.
pub const PROTOCOLS: [&str; 6] = ["http/1.1", "h2", "websocket", "uwsgi", "scgi", "fastcgi"];

/// A protocol, within TLS or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionKind(u8);

const KINDS: usize = PROTOCOLS.len() * 2;

impl ConnectionKind {
    pub fn new(protocol: ConnectionProtocol, is_tls: bool) -> ConnectionKind {
        ConnectionKind(protocol as u8 * 2 + u8::from(is_tls))
    }

    pub fn all() -> impl Iterator<Item = ConnectionKind> {
        (0..KINDS as u8).map(ConnectionKind)
    }

    /// Its number, for tables that know nothing of kinds.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The kind with this number; the first one if there is none.
    pub fn of_number(number: u8) -> ConnectionKind {
        if usize::from(number) < KINDS { ConnectionKind(number) } else { ConnectionKind::default() }
    }

    pub fn protocol(self) -> &'static str {
        PROTOCOLS[usize::from(self.0 / 2)]
    }

    pub fn is_tls(self) -> bool {
        self.0 % 2 == 1
    }
}

/// The count in shared memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Census {
    /// When it was taken, in monotonic milliseconds.
    taken_ms: AtomicU64,
    counts: [[AtomicU32; STATES.len()]; KINDS],
}

/// A copy of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// When it was taken, in monotonic milliseconds; 0: never.
    pub taken_ms: u64,
    counts: [[u32; STATES.len()]; KINDS],
}

impl Census {
    /// Only one thread at a time may call it.
    pub fn publish(&self, counted: &Counted) {
        self.taken_ms.store(counted.taken_ms, Relaxed);
        for (place, count) in self.counts.iter().flatten().zip(counted.counts.iter().flatten()) {
            place.store(*count, Relaxed);
        }
    }

    /// Adds a connection to the count before the next one is taken. Only one thread at a time may call it.
    pub fn add(&self, kind: ConnectionKind, state: ConnectionState) {
        let count = &self.counts[usize::from(kind.0)][state as usize];
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// It says what there is at present.
impl Shared for Census {
    type Copied = ();

    fn read(&self) {}

    fn clear(&self) {
        self.publish(&Counted::default());
    }
}

impl Counted {
    /// An empty count that is taken at this monotonic time, in milliseconds.
    pub fn at(taken_ms: u64) -> Counted {
        Counted { taken_ms, ..Counted::default() }
    }

    /// Reads a count. Each number is read separately: they may be of two counts.
    pub fn of(census: &Census) -> Counted {
        let counts = census.counts.each_ref().map(|kind| kind.each_ref().map(|count| count.load(Relaxed)));
        Counted { taken_ms: census.taken_ms.load(Relaxed), counts }
    }

    pub fn add(&mut self, kind: ConnectionKind, state: ConnectionState) {
        self.counts[usize::from(kind.0)][state as usize] += 1;
    }

    /// Returns the numbers of connections of a kind, by state in the order of [`STATES`].
    pub fn of_kind(&self, kind: ConnectionKind) -> [u32; STATES.len()] {
        self.counts[usize::from(kind.0)]
    }

    /// Forgets connections that were accepted since, and have ended: no more than these are open.
    pub fn limit_new(&mut self, open: u32) {
        let mut beyond = self.counts.iter().flatten().fold(0, |sum: u32, count| sum.saturating_add(*count)).saturating_sub(open);
        for kind in &mut self.counts {
            let new = &mut kind[ConnectionState::New as usize];
            let forgotten = beyond.min(*new);
            (*new, beyond) = (*new - forgotten, beyond - forgotten);
        }
    }

    /// Notes calls that have begun since: a worker does not count inside a call, which may last. Their connections were idle or
    /// new, of the kind that has most of these.
    pub fn note_calls(&mut self, calls: usize) {
        for _ in 0..calls {
            let waiting = [ConnectionState::Idle, ConnectionState::New, ConnectionState::Reading];
            let most = |state: ConnectionState| (0..KINDS).max_by_key(|kind| self.counts[*kind][state as usize]);
            let mut found = waiting.into_iter().filter_map(|state| Some((most(state)?, state as usize)));
            let Some((kind, state)) = found.find(|(kind, state)| self.counts[*kind][*state] > 0) else { return };
            self.counts[kind][state] -= 1;
            self.counts[kind][ConnectionState::Request as usize] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_as_it_was_published_and_calls_since_are_requests() {
        let (plain, tls) =
            (ConnectionKind::new(ConnectionProtocol::Http1, false), ConnectionKind::new(ConnectionProtocol::Http2, true));
        assert_eq!((tls.protocol(), tls.is_tls(), plain.protocol(), plain.is_tls()), ("h2", true, "http/1.1", false));
        assert_eq!(ConnectionKind::all().count(), KINDS);
        assert_eq!([tls.number(), 200].map(ConnectionKind::of_number), [tls, ConnectionKind::default()]);
        let census = Census::default();
        let mut counted = Counted::at(7);
        for state in [ConnectionState::New, ConnectionState::Idle, ConnectionState::Idle] {
            counted.add(tls, state);
        }
        counted.add(plain, ConnectionState::Idle);
        counted.add(plain, ConnectionState::Closing);
        census.publish(&counted);
        census.add(plain, ConnectionState::Closing);
        counted.add(plain, ConnectionState::Closing);
        let mut read = Counted::of(&census);
        assert_eq!(read, counted);
        assert_eq!((read.of_kind(tls), read.of_kind(plain)), ([1, 0, 0, 0, 2, 0], [0, 0, 0, 0, 1, 2]));
        read.note_calls(2);
        read.note_calls(9);
        assert_eq!((read.of_kind(tls), read.of_kind(plain)), ([0, 0, 3, 0, 0, 0], [0, 0, 1, 0, 0, 2]));
        let mut some = counted;
        some.limit_new(7);
        assert_eq!(some, counted);
        some.limit_new(2);
        assert_eq!((some.of_kind(tls), some.of_kind(plain)), ([0, 0, 0, 0, 2, 0], [0, 0, 0, 0, 1, 2]));
        census.clear();
        assert_eq!(Counted::of(&census), Counted::default());
    }
}
