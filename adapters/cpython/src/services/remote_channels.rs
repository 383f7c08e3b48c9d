//! Messages of channels between this instance and those of other machines (`publish` with `engine`): two threads of a process, of
//! which one sends what it publishes, and the other puts what others have published into its inbox. It does not know Python.
//!
//! Neither thread exists before its first message or subscription, and a fork begins without them. A publisher only puts its
//! message into a bounded queue, so it never waits for the network. A child that the application forks never takes a lock that
//! these threads hold: the locks of a process are in objects of its own, which its first publication or subscription makes.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use bolide_contract::clock;
use bolide_distributed::{Engine, PublishedMessage, Publisher, Received, Subscriber, WantedChannels};
use bolide_memory::inboxes::{ChannelBit, InboxTable, SharedLine};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow};

use super::engines::engine;
use super::inbox_packets::{Outgoing, Put, wake};
use super::inbox_places::{miss, put, table};

/// Messages that wait for the server in a process, and their bytes. A single message of any size does.
const MAX_QUEUED_MESSAGES: usize = 10_000;
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// Messages that are sent together, and their bytes, unless the first one has more.
const MAX_SENT_MESSAGES: usize = 256;
const MAX_SENT_BYTES: usize = 256 << 10;
/// Milliseconds that a message of another machine waits for room in the inbox, while the inbox is being read.
const ROOM_MS: u16 = 100;

static ENGINE: OnceLock<&'static Engine> = OnceLock::new();
/// The queue of this process. Only threads that hold the interpreter take this lock, as the one that forks does.
static SENDER: Mutex<Option<Arc<RemoteSender>>> = Mutex::new(None);
/// How often this process may have missed messages, because its connection was interrupted.
static GAPS: AtomicU64 = AtomicU64::new(0);

/// Called once in the prototype, with the number of the engine in the settings.
pub fn attach(number: Option<usize>) {
    if let Some(engine) = number.and_then(engine) {
        ENGINE.get_or_init(|| engine);
    }
}

/// Whether messages go to other machines.
pub fn is_used() -> bool {
    ENGINE.get().is_some()
}

/// How often messages of other machines may be missing so far.
pub fn gaps() -> u64 {
    GAPS.load(Relaxed)
}

/// The number of this instance, which its messages carry.
fn origin(table: &InboxTable<'_>) -> Result<u64, String> {
    match table.origin() {
        Some(origin) => Ok(origin),
        None => Ok(table.choose_origin(bolide_distributed::new_origin().map_err(|fault| fault.to_string())?)),
    }
}

// Sending.

/// A message that is ready for the queue. Making it copies the data.
pub fn packed(channel: &str, data: &[u8], is_text: bool) -> Result<Option<PublishedMessage>, String> {
    let Some(table) = table().filter(|_| is_used()) else { return Ok(None) };
    Ok(Some(PublishedMessage::new(channel, data, is_text, origin(table)?)))
}

/// Puts a message into the queue, without waiting. One that does not fit is counted. The caller holds the interpreter.
pub fn send(message: PublishedMessage) {
    let Some((engine, table)) = ENGINE.get().zip(table()) else { return };
    let pid = std::process::id();
    let mut slot = SENDER.lock().unwrap_or_else(PoisonError::into_inner);
    let sender = match slot.as_ref().filter(|sender| sender.pid == pid) {
        Some(sender) => sender.clone(),
        // The first message of this process. A thread that can't be started is tried again with the next one.
        None => match RemoteSender::start(engine, pid) {
            Some(sender) => slot.insert(sender).clone(),
            None => return note_unsent(table, engine, 1, "the thread that sends them can't be started"),
        },
    };
    drop(slot);
    if !sender.push(message) {
        note_unsent(table, engine, 1, "the queue is full");
    }
}

/// The queue of this process, if it has one. The caller holds the interpreter.
pub fn own_sender() -> Option<Arc<RemoteSender>> {
    let sender = SENDER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    sender.filter(|sender| sender.pid == std::process::id())
}

fn note_unsent(table: &InboxTable<'_>, engine: &Engine, count: u64, why: &str) {
    table.note_unsent(count);
    if let Some(count) = table.take_line(SharedLine::Unsent, count, clock::now_ms()) {
        let engine = engine.address();
        bolide_log::line(&format!("publish: messages did not get to engine {engine} ({count} since the last line): {why}"));
    }
}

/// The messages of a process that wait for the server.
pub struct RemoteSender {
    engine: &'static Engine,
    pid: u32,
    queue: Mutex<WaitingMessages>,
    bell: Condvar,
}

#[derive(Default)]
struct WaitingMessages {
    messages: VecDeque<PublishedMessage>,
    bytes: usize,
    /// The thread sends messages that it has taken out.
    is_sending: bool,
}

impl RemoteSender {
    fn start(engine: &'static Engine, pid: u32) -> Option<Arc<RemoteSender>> {
        let sender = Arc::new(RemoteSender { engine, pid, queue: Mutex::default(), bell: Condvar::new() });
        let running = sender.clone();
        start_thread("publish", move || running.run()).then_some(sender)
    }

    fn push(&self, message: PublishedMessage) -> bool {
        let mut queue = self.queue();
        let fits = queue.messages.len() < MAX_QUEUED_MESSAGES && queue.bytes + message.bytes() <= MAX_QUEUED_BYTES;
        if !fits && !queue.messages.is_empty() {
            return false;
        }
        queue.bytes += message.bytes();
        queue.messages.push_back(message);
        drop(queue);
        self.bell.notify_all();
        true
    }

    fn run(&self) {
        let publisher = Publisher::new(self.engine);
        loop {
            let batch = self.next_batch();
            let count = batch.len() as u64;
            // The engine's own lines in the log say why messages are not sent.
            let sent = publisher.send(&batch).map_or(0, |sent| sent as u64);
            if let Some(table) = table() {
                table.note_sent(sent);
                table.note_unsent(count.saturating_sub(sent));
            }
        }
    }

    /// Waits for messages, and takes as many as are sent together.
    fn next_batch(&self) -> Vec<PublishedMessage> {
        let mut queue = self.queue();
        queue.is_sending = false;
        self.bell.notify_all();
        while queue.messages.is_empty() {
            queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(message) = queue.messages.pop_front() {
            bytes += message.bytes();
            queue.bytes -= message.bytes();
            batch.push(message);
            let fits_more = queue.messages.front().is_some_and(|next| bytes + next.bytes() <= MAX_SENT_BYTES);
            if !fits_more || batch.len() >= MAX_SENT_MESSAGES {
                break;
            }
        }
        queue.is_sending = true;
        batch
    }

    /// Waits until all messages are sent, for at most the time limits of the engine.
    pub fn finish(&self) {
        let until = Instant::now() + self.engine.address().connect + self.engine.address().answer;
        let mut queue = self.queue();
        while queue.is_sending || !queue.messages.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = self.bell.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn queue(&self) -> MutexGuard<'_, WaitingMessages> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Listening.

/// The listening thread of a process, from its first channel to the end of its inbox.
pub struct RemoteListener {
    wanted: Arc<WantedChannels>,
}

impl RemoteListener {
    /// Starts to listen for the inbox of this number. Returns `Ok(None)` if `publish` does not use an engine.
    pub fn start(number: usize, inbox: RawFd) -> Result<Option<RemoteListener>, String> {
        let Some((engine, table)) = ENGINE.get().zip(table()) else { return Ok(None) };
        let own = origin(table)?;
        let wanted = WantedChannels::new().map_err(|error| format!("no descriptors for a listening thread: {error}"))?;
        let wanted = Arc::new(wanted);
        let (seen, mut receiver) = (wanted.clone(), Receiver { engine, table, own, number, inbox, is_read: true });
        let is_started = start_thread("subscribe", move || {
            Subscriber::new(engine).run(&seen, |heard| receiver.hear(heard));
        });
        if is_started { Ok(Some(RemoteListener { wanted })) } else { Err("no thread to listen".to_owned()) }
    }

    pub fn listen(&self, channel: &str) {
        self.wanted.add(channel);
    }

    pub fn ignore(&self, channel: &str) {
        self.wanted.remove(channel);
    }

    pub fn end(&self) {
        self.wanted.end();
    }
}

/// What the listening thread does with what it hears.
struct Receiver {
    engine: &'static Engine,
    table: &'static InboxTable<'static>,
    own: u64,
    number: usize,
    inbox: RawFd,
    /// The last message had room: the inbox is read.
    is_read: bool,
}

impl Receiver {
    fn hear(&mut self, heard: Received) {
        let engine = self.engine.address();
        match heard {
            // The process has it already.
            Received::Message(message) if message.origin() == self.own => {}
            Received::Message(message) => self.deliver(&message),
            Received::Interrupted(reason) => {
                self.table.note_interruption();
                if let Some(count) = self.table.take_line(SharedLine::Interrupted, 1, clock::now_ms()) {
                    bolide_log::line(&format!(
                        "publish: a connection to engine {engine} has ended: {reason}; messages of other machines may be missed \
                         ({count} since the last line)"
                    ));
                }
            }
            Received::Resumed => {
                GAPS.fetch_add(1, Relaxed);
                wake(self.inbox);
            }
            Received::Foreign => {
                if let Some(count) = self.table.take_line(SharedLine::Foreign, 1, clock::now_ms()) {
                    bolide_log::line(&format!(
                        "publish: a message of engine {engine} was not sent by Bolide, or by another version; use \
                         another `prefix` ({count} since the last line)"
                    ));
                }
            }
        }
    }

    fn deliver(&mut self, message: &PublishedMessage) {
        self.table.note_received();
        let bit = ChannelBit::of(message.channel.as_bytes());
        let done = Outgoing::new(message.channel.as_bytes(), message.data(), message.is_text()).and_then(|outgoing| {
            let first = put(self.table, self.number, self.inbox, &outgoing)?;
            if first == Put::Done || !self.is_read {
                return Ok(first);
            }
            // No caller waits for this thread, so it may wait for a reader that is only busy.
            // SAFETY: no code closes the inbox.
            let inbox = unsafe { BorrowedFd::borrow_raw(self.inbox) };
            let _ = poll(&mut [PollFd::new(inbox, PollFlags::POLLOUT)], PollTimeout::from(ROOM_MS));
            put(self.table, self.number, self.inbox, &outgoing)
        });
        // Without memory or a descriptor for it a message is missed too.
        self.is_read = matches!(done, Ok(Put::Done));
        if !self.is_read {
            miss(self.table, self.number, self.inbox, bit);
        }
    }
}

/// Starts a thread without the signals of the process, which are for the thread that runs Python.
fn start_thread(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    let _ = mask.map(|mask| mask.thread_set_mask());
    thread.is_ok()
}
