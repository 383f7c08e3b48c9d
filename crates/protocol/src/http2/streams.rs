//! The streams of a connection: the open ones, and how recent ones were closed. Workers run it.

use super::frame::DEFAULT_WINDOW_BYTES;
use super::priority::Priority;

/// Maximum number of closed streams that are remembered, to tell frames that crossed the end on the wire from violations.
const MAX_CLOSED: usize = 32;

/// Streams that an idle connection keeps capacity for: most open one after the other.
const IDLE_CAPACITY_STREAMS: usize = 4;

/// A request that is being read, answered, or both.
#[derive(Debug)]
pub(super) struct Stream {
    pub id: u32,
    /// The peer's END_STREAM has not come.
    pub is_body_open: bool,
    /// The rest of the body is dropped without events.
    pub is_refused: bool,
    /// Bytes that the peer may still send. Below 0 only after the window was reduced, which is never done here.
    pub receive_window: i64,
    /// Bytes of the body that were handed out and not consumed. They return to the connection's window at the end of the stream
    /// at the latest.
    pub in_flight: u32,
    /// Bytes that were consumed and not yet returned to the window.
    pub due: u32,
    /// Bytes that may be sent; below 0 if the peer has reduced its windows.
    pub send_window: i64,
    /// Bytes of the body that Content-Length has announced and that have not come yet.
    pub announced: Option<u64>,
    pub priority: Priority,
}

/// How a stream was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// Both sides have ended it.
    Complete,
    ResetByPeer,
    /// The peer may not know yet: later frames are dropped.
    ResetHere,
}

/// The state of a stream id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    Idle,
    /// At this index of the table.
    Open(usize),
    Closed(Closing),
    /// Closed so long ago that the reason is no longer known.
    Forgotten,
    /// The id was skipped, and can no longer be opened (RFC 9113 section 5.1.1).
    Skipped,
}

#[derive(Debug)]
pub(super) struct Streams {
    /// Ordered by id.
    open: Vec<Stream>,
    /// The highest id that the peer has used.
    pub last: u32,
    /// A client's stream ids are odd, so the lowest bit is dropped: the remaining bits, followed by two bits for how the stream
    /// closed.
    closed: [u32; MAX_CLOSED],
    closed_next: usize,
    /// The highest id whose end is no longer remembered.
    forgotten: u32,
    /// The initial windows of a new stream.
    pub receive_window: u32,
    pub send_window: u32,
}

impl Streams {
    pub fn new(receive_window: u32) -> Streams {
        let send_window = DEFAULT_WINDOW_BYTES;
        let closed = [0; MAX_CLOSED];
        Streams { open: Vec::new(), last: 0, closed, closed_next: 0, forgotten: 0, receive_window, send_window }
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    #[inline]
    pub fn get(&self, id: u32) -> Option<&Stream> {
        self.place(id).and_then(|place| self.open.get(place))
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.place(id).and_then(|place| self.open.get_mut(place))
    }

    /// Returns the body bytes of all streams that were handed out and not consumed.
    pub fn in_flight(&self) -> i64 {
        self.open.iter().map(|stream| i64::from(stream.in_flight)).sum()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    #[inline]
    fn place(&self, id: u32) -> Option<usize> {
        // Most calls are about the stream that was opened last.
        match self.open.last() {
            Some(last) if last.id == id => Some(self.open.len() - 1),
            _ => self.open.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    /// `id` must not be 0.
    #[inline]
    pub fn state(&self, id: u32) -> StreamState {
        if id > self.last || id.is_multiple_of(2) {
            return StreamState::Idle;
        }
        match self.place(id) {
            Some(place) => StreamState::Open(place),
            None => self.closed_state(id),
        }
    }

    fn closed_state(&self, id: u32) -> StreamState {
        match self.closed.iter().find(|entry| **entry != 0 && **entry >> 2 == id >> 1) {
            Some(entry) => StreamState::Closed(match entry & 3 {
                1 => Closing::Complete,
                2 => Closing::ResetByPeer,
                _ => Closing::ResetHere,
            }),
            None if id <= self.forgotten => StreamState::Forgotten,
            None => StreamState::Skipped,
        }
    }

    /// Opens the next stream: its id must be above all before it.
    pub fn open(&mut self, id: u32) -> &mut Stream {
        self.last = id;
        let place = self.open.len();
        self.open.push(Stream {
            id,
            is_body_open: true,
            is_refused: false,
            receive_window: i64::from(self.receive_window),
            in_flight: 0,
            due: 0,
            send_window: i64::from(self.send_window),
            announced: None,
            priority: Priority::default(),
        });
        &mut self.open[place]
    }

    /// Removes an open stream; `None` if it is not open. Returns the bytes in flight, which return to the connection's window.
    #[must_use]
    pub fn close(&mut self, id: u32, closing: Closing) -> Option<u32> {
        let place = self.place(id)?;
        let stream = self.open.remove(place);
        self.note_closed(id, closing);
        Some(stream.in_flight)
    }

    /// Remembers how a stream was closed, also if it was never opened.
    pub fn note_closed(&mut self, id: u32, closing: Closing) {
        let entry = (id >> 1) << 2
            | match closing {
                Closing::Complete => 1,
                Closing::ResetByPeer => 2,
                Closing::ResetHere => 3,
            };
        let before = std::mem::replace(&mut self.closed[self.closed_next], entry);
        if before != 0 {
            self.forgotten = self.forgotten.max((before >> 2) << 1 | 1);
        }
        self.closed_next = (self.closed_next + 1) % MAX_CLOSED;
    }

    /// Frees the capacity of an empty table that was large.
    pub fn rest(&mut self) {
        if self.open.is_empty() && self.open.capacity() > IDLE_CAPACITY_STREAMS {
            self.open = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_large_is_small_again_when_it_rests() {
        let mut streams = Streams::new(1 << 16);
        for (count, is_kept) in [(100, false), (1, true)] {
            let first = (streams.last + 2) | 1;
            let ids = (first..).step_by(2).take(count);
            for id in ids.clone() {
                streams.open(id);
            }
            streams.rest();
            assert_eq!(streams.len(), count);
            ids.for_each(|id| assert_eq!(streams.close(id, Closing::Complete), Some(0)));
            streams.rest();
            assert_eq!(streams.open.capacity() > 0, is_kept);
            assert!(streams.open.capacity() <= IDLE_CAPACITY_STREAMS);
        }
    }
}
