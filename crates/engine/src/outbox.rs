//! Bytes on their way to a client: a buffer, then perhaps a part of a file, and what the socket said last.
//!
//! It knows no HTTP. Worker threads run it, each for the connection that it attends to.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bolide_files::roots::FileVersion;

use crate::socket::{self, Written};

/// Bytes that are sent to one client before others have their turn; those of files have a measure of their own.
pub const SEND_TURN_BYTES: usize = 256 * 1024;

/// Outputs up to this many bytes may be held by the kernel, to leave together with others.
const HELD_BYTES: usize = 16 * 1024;

/// Bytes that may wait for slow clients, all connections of a worker together. Beyond it nothing more is kept for a client whose socket
/// is full: its application is suspended at once.
const WAITING_MOST_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that wait for slow clients in this process, which is one worker.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

pub struct Outbox {
    pub socket: OwnedFd,
    pub bytes: Vec<u8>,
    /// How many of `bytes` have left.
    pub sent: usize,
    /// What is sent after `bytes`.
    pub file: Option<FilePart>,
    /// What is sent after `file`.
    pub later: VecDeque<Later>,
    /// The socket takes nothing at present.
    pub is_full: bool,
    /// The client is gone.
    pub is_broken: bool,
    /// The application has taken the socket: nothing more is sent or read here.
    pub is_given_away: bool,
    /// The kernel keeps the last bytes until they are pushed.
    pub is_corked: bool,
    /// What [`WAITING_BYTES`] has of ours.
    counted: usize,
    /// Bytes that may leave in this turn.
    turn_left: usize,
}

pub struct FilePart {
    pub file: Arc<File>,
    pub offset: i64,
    pub left: u64,
    /// The state of the file that the answer's head is about: when it has changed before the end, the answer is broken off.
    pub promised: Option<FileVersion>,
    /// Something of the answer was sent earlier than now.
    pub has_begun: bool,
}

/// Bytes, and the file that follows them.
pub struct Later {
    pub before: Vec<u8>,
    pub file: Option<FilePart>,
}

impl FilePart {
    pub fn promised(file: Arc<File>, bytes: Range<u64>, version: FileVersion) -> FilePart {
        let left = bytes.end - bytes.start;
        FilePart { file, offset: bytes.start.cast_signed(), left, promised: Some(version), has_begun: false }
    }

    /// Whether the last byte must not leave, because those before it were of another content.
    pub fn has_changed(&self) -> bool {
        self.has_begun
            && self.promised.is_some_and(|version| !FileVersion::now(&self.file).is_ok_and(|now| now.is_same_content(&version)))
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        WAITING_BYTES.fetch_sub(self.counted, Relaxed);
    }
}

impl Outbox {
    pub fn new(socket: OwnedFd) -> Outbox {
        Outbox {
            socket,
            bytes: Vec::new(),
            sent: 0,
            file: None,
            later: VecDeque::new(),
            is_full: false,
            is_broken: false,
            is_given_away: false,
            is_corked: false,
            turn_left: SEND_TURN_BYTES,
            counted: 0,
        }
    }

    /// Whether so many bytes more may be kept here, beside those that wait, for `most_bytes` at the most.
    pub fn has_room(&self, bytes: usize, most_bytes: usize) -> bool {
        let worker_has_room = || WAITING_BYTES.load(Relaxed) <= WAITING_MOST_BYTES;
        self.unsent() + bytes <= most_bytes && (!self.is_full || worker_has_room())
    }

    /// Counts what waits among what waits in the worker.
    pub fn count_waiting(&mut self) {
        let waiting = self.unsent();
        if waiting != self.counted {
            WAITING_BYTES.fetch_add(waiting, Relaxed);
            WAITING_BYTES.fetch_sub(self.counted, Relaxed);
            self.counted = waiting;
        }
    }

    pub fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Bytes that follow the buffer.
    pub fn to_come(&self) -> u64 {
        let of_file = |part: &Option<FilePart>| part.as_ref().map_or(0, |part| part.left);
        of_file(&self.file) + self.later.iter().map(|later| later.before.len() as u64 + of_file(&later.file)).sum::<u64>()
    }

    /// Nothing follows the buffer any more.
    pub fn drop_files(&mut self) {
        self.file = None;
        self.later.clear();
    }

    /// The others have had theirs.
    pub fn begin_turn(&mut self) {
        self.turn_left = SEND_TURN_BYTES;
    }

    /// Nothing more is sent before the next [`Outbox::begin_turn`], whatever room the socket has.
    pub fn turn_is_over(&self) -> bool {
        self.turn_left == 0
    }

    fn may_send(&self) -> bool {
        !self.is_full && !self.is_broken && !self.turn_is_over()
    }

    /// So many bytes of the turn are used up.
    pub fn note_sent(&mut self, count: usize) {
        self.turn_left = self.turn_left.saturating_sub(count);
    }

    /// Sends what the socket takes, as far as the turn goes.
    pub fn send(&mut self) {
        // A head leaves in one packet with the start of the file that follows.
        if self.unsent() > 0
            && self.file.as_ref().is_some_and(|part| part.left > 0)
            && let Written::Bytes(count) = socket::write_corked(self.socket.as_fd(), &self.bytes[self.sent..])
        {
            self.sent += count;
            self.note_sent(count);
        }
        while self.unsent() > 0 && self.may_send() {
            let piece = self.unsent().min(self.turn_left);
            match socket::write(self.socket.as_fd(), &self.bytes[self.sent..self.sent + piece], &[]) {
                Written::Bytes(count) => {
                    self.sent += count;
                    self.note_sent(count);
                }
                Written::Full => self.is_full = true,
                Written::Broken => self.is_broken = true,
            }
        }
        self.recycle();
    }

    /// As [`Outbox::send`], but what is small is kept by the kernel until it is pushed.
    pub fn hold(&mut self) {
        if (1..=HELD_BYTES).contains(&self.unsent()) && !self.is_broken {
            match socket::write_corked(self.socket.as_fd(), &self.bytes[self.sent..]) {
                Written::Bytes(count) => {
                    self.sent += count;
                    self.note_sent(count);
                    self.is_corked = true;
                }
                Written::Full => {}
                Written::Broken => self.is_broken = true,
            }
        }
        self.send();
    }

    /// Sends what waits and then `part`, from where they are, as far as the turn goes. Returns the bytes of `part` that were taken.
    pub fn send_through(&mut self, part: &[u8]) -> usize {
        let mut taken = 0;
        while taken < part.len() && self.may_send() {
            let piece = &part[taken..part.len().min(taken + self.turn_left)];
            match socket::write(self.socket.as_fd(), &self.bytes[self.sent..], piece) {
                Written::Bytes(count) => {
                    self.note_sent(count);
                    let of_buffer = count.min(self.unsent());
                    self.sent += of_buffer;
                    taken += count - of_buffer;
                    self.recycle();
                }
                Written::Full => self.is_full = true,
                Written::Broken => self.is_broken = true,
            }
        }
        taken
    }

    /// Sends the next piece of the file, `most` bytes at the most; returns its bytes.
    pub fn send_file(&mut self, most: u64) -> u64 {
        let Some(part) = &mut self.file else { return 0 };
        if part.left <= most && part.has_changed() {
            self.is_broken = true;
            return 0;
        }
        part.has_begun = true;
        let count = usize::try_from(part.left.min(most)).unwrap_or(usize::MAX);
        match socket::send_file(self.socket.as_fd(), &part.file, &mut part.offset, count) {
            // The file is shorter than it was when its length was announced: nothing can mend this answer.
            Written::Bytes(0) | Written::Broken => self.is_broken = true,
            Written::Bytes(sent) => {
                part.left -= sent as u64;
                return sent as u64;
            }
            Written::Full => self.is_full = true,
        }
        0
    }

    /// Something waits for the client. A large part is sent from where it is: then the socket may be full while the buffer is empty.
    pub fn wants_room(&self) -> bool {
        (self.unsent() > 0 || self.is_full) && !self.is_broken
    }

    /// Goes on after a wait for the socket. `has_room` is false where the client took nothing within the time.
    pub fn room_came(&mut self, has_room: bool) {
        self.is_full = false;
        self.is_broken |= !has_room;
        self.begin_turn();
        self.send();
    }

    /// What has left is forgotten.
    pub fn recycle(&mut self) {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}
