//! Who listens to which channels (`bolide.publish`, `bolide.subscribe`): a place for each process that may listen, with its pid
//! and a bit for each channel that it listens to. It knows neither sockets nor messages: the place of this number has the inbox
//! of this number, which the caller writes to.
//!
//! A channel has one of [`CHANNEL_BITS`] bits, by its digest. Channels that share a bit share their wake-ups, and the listener
//! looks at the name. Only the process that holds a place changes its bits, and each is changed by one instruction, so a process
//! that dies leaves nothing half done: its place is free as soon as its pid is gone from it. The next holder clears the bits and
//! empties the inbox.
//!
//! Messages to instances of other machines carry the number of this memory, so that its processes, which have them already, drop
//! them when they come back.
//!
//! The prototype releases the place of a process that has exited. If it was killed with its children, the next prototype does.
//! The application's processes do everything else, and the master reads the numbers. None of them trusts what another one has
//! written: any bits are valid.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use bolide_contract::boot::MemoryKind;
use bolide_contract::sharing::Inboxes;

use crate::mapping::{Identity, Mapping, fingerprint};

/// The version of the layout.
const VERSION: u32 = 2;
/// Bits of a process for the channels that it listens to.
pub const CHANNEL_BITS: usize = 65_536;
/// The words of these bits.
const WORDS: usize = CHANNEL_BITS / 64;
/// Messages that an inbox had no room for are counted in as many groups of channels, so that a listener of one channel seldom
/// learns of those of another.
pub const MISSED_GROUPS: usize = 64;

/// The bit of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelBit(u16);

impl ChannelBit {
    pub fn of(channel: &[u8]) -> ChannelBit {
        let digest = channel
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
        // All parts of the digest count (the last byte changes the lower bits most).
        ChannelBit((digest ^ (digest >> 16) ^ (digest >> 32) ^ (digest >> 48)) as u16)
    }

    /// The number of the bit, below [`CHANNEL_BITS`].
    pub fn number(self) -> u16 {
        self.0
    }

    /// The group in which its missed messages are counted.
    pub fn group(self) -> usize {
        usize::from(self.0) % MISSED_GROUPS
    }

    fn word(self) -> usize {
        usize::from(self.0) / 64
    }

    fn mask(self) -> u64 {
        1 << (self.0 % 64)
    }
}

/// What the processes have counted together since the memory was made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct InboxTotals {
    /// Messages that were published.
    pub published: u64,
    /// Messages put into inboxes.
    pub delivered: u64,
    /// Messages that an inbox had no room for.
    pub missed: u64,
    /// Processes that listen.
    pub listeners: u64,
    /// Messages that the server of `publish` with `engine` has taken, and those that it has not.
    pub sent: u64,
    pub unsent: u64,
    /// Messages of other instances, each for every process that has received it.
    pub received: u64,
    /// How often a process has lost its connection to that server.
    pub interruptions: u64,
}

/// A line of the log that all processes together write at most once in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedLine {
    Unsent,
    Interrupted,
    Foreign,
}

/// Milliseconds between two lines of a kind.
const LINE_MS: u64 = 60_000;

#[repr(C)]
struct InboxCounters {
    published: AtomicU64,
    delivered: AtomicU64,
    missed: AtomicU64,
    /// The number of this memory among those of other machines; 0 until a process needs it.
    origin: AtomicU64,
    sent: AtomicU64,
    unsent: AtomicU64,
    received: AtomicU64,
    interruptions: AtomicU64,
    lines: [SharedLineTurn; 3],
    spare: [AtomicU64; 2],
}

/// When the log had its last line of a kind, and what was not reported since.
#[repr(C)]
struct SharedLineTurn {
    at_ms: AtomicU64,
    unreported: AtomicU64,
}

/// The place of a process that listens.
#[repr(C)]
struct InboxPlace {
    /// The pid of its process; 0: it is free.
    holder: AtomicU32,
    spare: AtomicU32,
    /// Packets that publishers have put into the inbox for this holder.
    put: AtomicU64,
    /// Packets that carry a memory file: those put in, and those taken out.
    files_put: AtomicU64,
    files_taken: AtomicU64,
    more_spare: [AtomicU64; 4],
    missed: [AtomicU64; MISSED_GROUPS],
    channels: [AtomicU64; WORDS],
}

pub fn identity(settings: &Inboxes) -> Identity {
    let count = settings.count as usize;
    let bytes = size_of::<InboxCounters>() + size_of::<InboxPlace>() * count;
    Identity { kind: MemoryKind::Inboxes, version: VERSION, shape: fingerprint(&[count as u64]), bytes }
}

/// The table in a mapping of [`identity`].
pub fn of(mapping: &Mapping) -> InboxTable<'_> {
    let count = (mapping.body_bytes() - size_of::<InboxCounters>()) / size_of::<InboxPlace>();
    // SAFETY: the memory begins with a head and has this many places after it (`identity`), is aligned to a page, is zeroed or
    // was written as atomics, which take any bits, and stays mapped as long as the mapping lives.
    unsafe {
        let head = mapping.body().cast::<InboxCounters>();
        InboxTable { head: head.as_ref(), places: std::slice::from_raw_parts(head.add(1).cast().as_ptr(), count) }
    }
}

/// All places, as a process of the instance sees them.
#[derive(Clone, Copy)]
pub struct InboxTable<'m> {
    head: &'m InboxCounters,
    places: &'m [InboxPlace],
}

impl std::fmt::Debug for InboxTable<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("InboxTable").field("totals", &self.totals()).finish()
    }
}

impl InboxTable<'_> {
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Takes a free place for a process, or one whose process is gone. `None`: there is none.
    ///
    /// The caller empties the inbox of this number before it listens: publishers may have written to the last holder.
    pub fn claim(&self, pid: u32, is_gone: impl Fn(u32) -> bool) -> Option<usize> {
        let takes = |place: &InboxPlace, from: u32| place.holder.compare_exchange(from, pid, AcqRel, Relaxed).is_ok();
        let free = self.places.iter().position(|place| place.holder.load(Relaxed) == 0 && takes(place, 0));
        let number = free.or_else(|| {
            self.places.iter().position(|place| {
                let holder = place.holder.load(Relaxed);
                holder != 0 && is_gone(holder) && takes(place, holder)
            })
        })?;
        let place = self.places.get(number)?;
        place.channels.iter().for_each(|word| word.store(0, Relaxed));
        place.files_taken.store(place.files_put.load(Relaxed), Relaxed);
        Some(number)
    }

    /// Frees the place of a process that has exited, if it had one.
    pub fn release(&self, pid: u32) {
        for place in self.places.iter().filter(|place| place.holder.load(Relaxed) == pid) {
            // Another process may have taken it over in the meantime.
            let _ = place.holder.compare_exchange(pid, 0, Release, Relaxed);
        }
    }

    /// Frees the place of this number if its process is gone.
    pub fn release_if_gone(&self, number: usize, is_gone: impl Fn(u32) -> bool) {
        let holder = self.places.get(number).map_or(0, |place| place.holder.load(Relaxed));
        if holder != 0 && is_gone(holder) {
            self.release(holder);
        }
    }

    /// Returns whether a process still holds its place.
    pub fn is_held_by(&self, number: usize, pid: u32) -> bool {
        self.places.get(number).is_some_and(|place| place.holder.load(Relaxed) == pid)
    }

    /// The holder of a place listens to this channel from now on, or no longer. When it returns, every later message of any
    /// process reaches it.
    pub fn listen(&self, number: usize, bit: ChannelBit, listens: bool) {
        let Some(word) = self.word(number, bit) else { return };
        if listens {
            word.fetch_or(bit.mask(), SeqCst);
        } else {
            word.fetch_and(!bit.mask(), SeqCst);
        }
    }

    /// Returns the places whose processes listen to this channel.
    pub fn listeners(&self, bit: ChannelBit) -> impl Iterator<Item = usize> {
        let listens = move |place: &InboxPlace| {
            place.holder.load(Acquire) != 0
                && place.channels.get(bit.word()).is_some_and(|word| word.load(SeqCst) & bit.mask() != 0)
        };
        self.places.iter().enumerate().filter(move |(_, place)| listens(place)).map(|(number, _)| number)
    }

    /// A message was published.
    pub fn note_published(&self) {
        self.head.published.fetch_add(1, Relaxed);
    }

    /// The number of this instance, which messages to other machines carry. `None`: no process has chosen it yet.
    pub fn origin(&self) -> Option<u64> {
        Some(self.head.origin.load(Acquire)).filter(|origin| *origin != 0)
    }

    /// Chooses the number, which is not 0. Returns that of another process if it was first.
    pub fn choose_origin(&self, random: u64) -> u64 {
        match self.head.origin.compare_exchange(0, random, AcqRel, Acquire) {
            Ok(_) => random,
            Err(chosen) => chosen,
        }
    }

    /// The server of `publish` with `engine` has taken messages.
    pub fn note_sent(&self, count: u64) {
        self.head.sent.fetch_add(count, Relaxed);
    }

    /// Messages did not reach that server.
    pub fn note_unsent(&self, count: u64) {
        self.head.unsent.fetch_add(count, Relaxed);
    }

    /// A message of another instance has come.
    pub fn note_received(&self) {
        self.head.received.fetch_add(1, Relaxed);
    }

    /// A process has lost its connection to that server.
    pub fn note_interruption(&self) {
        self.head.interruptions.fetch_add(1, Relaxed);
    }

    /// Counts what a line of the log reports. Returns the number since the last line if one is due, which the caller writes.
    pub fn take_line(&self, line: SharedLine, count: u64, now_ms: u64) -> Option<u64> {
        let turn = self.head.lines.get(line as usize)?;
        turn.unreported.fetch_add(count, Relaxed);
        let last = turn.at_ms.load(Relaxed);
        let is_due = last == 0 || now_ms.saturating_sub(last) >= LINE_MS;
        let is_taken = is_due && turn.at_ms.compare_exchange(last, now_ms.max(1), Relaxed, Relaxed).is_ok();
        is_taken.then(|| turn.unreported.swap(0, Relaxed))
    }

    /// A message is in the inbox of this number.
    pub fn note_put(&self, number: usize, with_file: bool) {
        self.head.delivered.fetch_add(1, Relaxed);
        if let Some(place) = self.places.get(number) {
            place.put.fetch_add(1, Relaxed);
            place.files_put.fetch_add(u64::from(with_file), Relaxed);
        }
    }

    /// The inbox of this number had no room for a message.
    pub fn note_missed(&self, number: usize, bit: ChannelBit) {
        self.head.missed.fetch_add(1, Relaxed);
        if let Some(missed) = self.places.get(number).and_then(|place| place.missed.get(bit.group())) {
            missed.fetch_add(1, Release);
        }
    }

    /// The holder has taken a packet with a memory file out.
    pub fn note_file_taken(&self, number: usize) {
        if let Some(place) = self.places.get(number) {
            place.files_taken.fetch_add(1, Relaxed);
        }
    }

    /// The number of memory files in an inbox, which may be off by the publishers that are at work.
    pub fn files(&self, number: usize) -> u64 {
        let files = |place: &InboxPlace| {
            let (put, taken) = (place.files_put.load(Relaxed), place.files_taken.load(Relaxed));
            // A file may be taken before it is counted.
            if put.wrapping_sub(taken) > u64::MAX / 2 { 0 } else { put.wrapping_sub(taken) }
        };
        self.places.get(number).map_or(0, files)
    }

    /// The same for all inboxes together.
    pub fn files_of_all(&self) -> u64 {
        (0..self.count()).map(|number| self.files(number)).fold(0, u64::saturating_add)
    }

    /// How many messages of a channel's group the inbox had no room for.
    pub fn missed(&self, number: usize, bit: ChannelBit) -> u64 {
        self.places.get(number).and_then(|place| place.missed.get(bit.group())).map_or(0, |missed| missed.load(Acquire))
    }

    /// How many messages the inbox had no room for, of all groups.
    pub fn missed_of_all(&self, number: usize) -> u64 {
        let sum = |place: &InboxPlace| place.missed.iter().fold(0, |sum, missed| missed.load(Acquire).wrapping_add(sum));
        self.places.get(number).map_or(0, sum)
    }

    /// The pid and the number of packets that were put into its inbox, of each process that listens.
    pub fn holders(&self) -> impl Iterator<Item = (u32, u64)> {
        let holder = |place: &InboxPlace| (place.holder.load(Relaxed), place.put.load(Relaxed));
        self.places.iter().map(holder).filter(|(pid, _)| *pid != 0)
    }

    pub fn totals(&self) -> InboxTotals {
        InboxTotals {
            published: self.head.published.load(Relaxed),
            delivered: self.head.delivered.load(Relaxed),
            missed: self.head.missed.load(Relaxed),
            listeners: self.holders().count() as u64,
            sent: self.head.sent.load(Relaxed),
            unsent: self.head.unsent.load(Relaxed),
            received: self.head.received.load(Relaxed),
            interruptions: self.head.interruptions.load(Relaxed),
        }
    }

    fn word(&self, number: usize, bit: ChannelBit) -> Option<&AtomicU64> {
        self.places.get(number)?.channels.get(bit.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(count: u32) -> Mapping {
        let identity = identity(&Inboxes { count, bytes: None });
        Mapping::create("inboxes", &identity).expect("made").0
    }

    fn listeners(table: &InboxTable<'_>, channel: &[u8]) -> Vec<usize> {
        table.listeners(ChannelBit::of(channel)).collect()
    }

    #[test]
    fn only_processes_that_listen_are_found() {
        let mapping = mapping(3);
        let table = of(&mapping);
        assert_eq!(table.count(), 3);
        let [first, second] = [7, 8].map(|pid| table.claim(pid, |_| false).expect("free"));
        let (news, weather) = (ChannelBit::of(b"news"), ChannelBit::of(b"weather"));
        table.listen(first, news, true);
        table.listen(second, news, true);
        table.listen(second, weather, true);
        assert_eq!((listeners(&table, b"news"), listeners(&table, b"weather")), (vec![first, second], vec![second]));
        table.listen(second, news, false);
        assert_eq!((listeners(&table, b"news"), listeners(&table, b"sport")), (vec![first], vec![]));
        assert_eq!(table.totals().listeners, 2);
    }

    #[test]
    fn the_place_of_a_process_that_has_ended_is_free_and_begins_without_channels() {
        let mapping = mapping(1);
        let table = of(&mapping);
        let bit = ChannelBit::of(b"news");
        let number = table.claim(7, |_| false).expect("free");
        table.listen(number, bit, true);
        table.note_put(number, true);
        assert_eq!((table.claim(8, |_| false), table.files(number), table.files_of_all()), (None, 1, 1));
        table.release(9);
        assert!(table.is_held_by(number, 7));
        table.release(7);
        assert_eq!(listeners(&table, b"news"), Vec::<usize>::new());
        assert_eq!((table.claim(8, |_| false), table.files(number)), (Some(number), 0));
        assert_eq!(listeners(&table, b"news"), Vec::<usize>::new());
        // Its prototype was killed with it, so no process has released the place.
        assert_eq!(table.claim(9, |pid| pid == 8), Some(number));
        table.release(8);
        assert!(table.is_held_by(number, 9));
        table.release_if_gone(number, |pid| pid == 8);
        assert!(table.is_held_by(number, 9));
        table.release_if_gone(number, |pid| pid == 9);
        assert!(!table.is_held_by(number, 9));
    }

    #[test]
    fn missed_messages_are_counted_by_groups_of_channels() {
        let mapping = mapping(2);
        let table = of(&mapping);
        let number = table.claim(7, |_| false).expect("free");
        let news = ChannelBit::of(b"news");
        let other = (0..).map(|number: u32| ChannelBit::of(&number.to_le_bytes())).find(|bit| bit.group() != news.group());
        table.note_missed(number, news);
        table.note_missed(number, news);
        assert_eq!((table.missed(number, news), table.missed_of_all(number), table.totals().missed), (2, 2, 2));
        assert_eq!(other.map(|bit| table.missed(number, bit)), Some(0));
        table.note_file_taken(number);
        assert_eq!(table.files(number), 0, "a file that was taken before it was counted");
    }

    #[test]
    fn all_processes_have_one_origin_and_write_a_line_once_a_minute() {
        let mapping = mapping(1);
        let (table, other) = (of(&mapping), of(&mapping));
        assert_eq!(table.origin(), None);
        assert_eq!((table.choose_origin(7), other.choose_origin(8), other.origin()), (7, 7, Some(7)));
        assert_eq!(table.take_line(SharedLine::Unsent, 3, 1_000), Some(3));
        assert_eq!(other.take_line(SharedLine::Unsent, 4, 1_000 + LINE_MS - 1), None);
        assert_eq!(other.take_line(SharedLine::Foreign, 1, 2_000), Some(1));
        assert_eq!(table.take_line(SharedLine::Unsent, 5, 1_000 + LINE_MS), Some(9));
    }

    #[test]
    fn short_names_have_different_bits() {
        let bits: std::collections::HashSet<u16> =
            (0..1000).map(|number| ChannelBit::of(format!("room:{number}").as_bytes()).0).collect();
        assert!(bits.len() > 980, "{}", bits.len());
    }
}
