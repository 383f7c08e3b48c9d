//! The scoreboard: one shared mapping, created by the master, written by workers, read by the master and by tools. It has a row
//! for each worker, a slot, meters and a ring of requests for each thread of a worker, and no locks.
//!
//! Workers write with atomics and wait for no reader: values of a row may be out of date when they are read, so check them again
//! before acting on them. A read of a slot is consistent for one request (`slot`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::coarse_histogram::GroupDurations;
pub use crate::counters::add;
use crate::counters::{Shared, Summed, counters};
pub use crate::meters::{Measured, Meters};
use crate::sealed_memory;
pub use crate::slot::{
    End, Entry, IDENTIFIER_BYTES, Phase, REMEMBERED, Recorder, Remembered, Slot, TEXT_BYTES, TRACE_BYTES, entries_of_thread,
};
pub use crate::work::{ApplicationWork, Cancelled, MAX_APPLICATIONS, SessionResult, Tally, Work};
use bolide_contract::children::ChildKind;
pub use bolide_contract::clock::now_ms;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

counters! {
    /// A worker's row. It has 256 bytes, so that two workers never share a cache line.
    #[repr(C, align(128))]
    pub struct Row {
        /// 0 while the row is free. Written by the worker when it starts and by the master when it has ended.
        pub pid: AtomicU32,
        /// The worker's number, from 1, as in uWSGI. In a helper's row, the helper's number.
        pub worker: AtomicU32,
        /// Connections that the worker holds open.
        pub connections: AtomicU32,
        /// Whether the worker accepts new connections ([`Accepting::code`]).
        pub accepting: AtomicU32,
        /// 1 while the worker sleeps in its poll, idle.
        pub waiting: AtomicU32,
        /// 1 while workers should share connections in turn, even if these arrive one at a time. The master writes it.
        pub takes_turns: AtomicU32,
        /// Connections that the worker has accepted in turn. The master starts a new worker with the count of the existing ones.
        pub turns: AtomicU32,
        /// 1 while the worker is paused: it has processed the order, and begins no request.
        pub paused: AtomicU32,
        /// Share of time in which the worker is busy, in thousandths, over about the last second.
        pub work: AtomicU32,
        /// The kind of process in the row ([`ChildKind::code`]). The master writes it before it orders the fork.
        pub kind: AtomicU32,
        /// Monotonic time of the last iteration of the event loop, in milliseconds.
        pub turned_ms: AtomicU64,
        /// Monotonic time of the worker's start, in milliseconds.
        pub started_ms: AtomicU64,
        /// Requests answered since the worker's start.
        pub requests: AtomicU64,
        /// Average response time in microseconds, computed as in uWSGI: the mean of the last response time and the previous
        /// average. If threads finish at the same moment, one of their values may be lost, which does not matter for an average.
        pub average_us: AtomicU64,
        /// Monotonic time of the order to stop, in milliseconds; 0 before that. The master writes it, for threads that are in an
        /// application's iterator and do not read orders in the meantime.
        pub stopped_ms: AtomicU64,
        /// Messages for mules that this process could not send because their queue was full.
        pub refused_messages: AtomicU64,
        /// Monotonic time of the order to drain, like `stopped_ms`, for threads that wait for the next message of a WebSocket.
        pub drained_ms: AtomicU64,
        /// Handlers of uWSGI's signals that were called since the process' start.
        pub signals: AtomicU64,
        /// Orders `Signal` that the process has carried out or begun to. The master counts those that it has sent.
        pub signals_taken: AtomicU32,
        /// Signals that the process has raised, and those of them that the master has heard of, which writes the latter.
        pub signals_raised: AtomicU32,
        pub signals_heard: AtomicU32,
        /// Signals that the process has dropped because the master has not heard of too many before them.
        pub signals_dropped: AtomicU32,
        /// Requests that the worker's greenlets serve (`gevent`).
        pub greenlets: AtomicU32,
        /// 1 if the worker serves inside an event loop of the language (asyncio, gevent), which lets requests wait side by side.
        pub is_embedded: AtomicU32,
        /// Monotonic time of the last arrival, in milliseconds, while the worker leaves its load balancer: the first request of a
        /// connection. 0: none has arrived since then.
        pub arrived_ms: AtomicU64,
        /// How long the worker takes to close WebSockets and streams when it leaves (`drain-spread`), in milliseconds. It is for
        /// threads that close their own.
        pub spread_ms: AtomicU64,
        /// Which of the two generations that may serve at the same time the worker is of (0 or 1), for `sticky`.
        pub side: AtomicU32,
        /// With `admission`: moving averages over few and over many requests of the time that each keeps a thread busy, as the
        /// bits of a number of microseconds, and the number of requests in them.
        pub service_us: AtomicU32,
        pub service_long_us: AtomicU32,
        pub service_samples: AtomicU32,
        /// Requests that the worker serves at the same time if its threads do not say that: its greenlets. 0: its threads.
        pub service_places: AtomicU32,
        /// Monotonic time of the last service time in the averages, in milliseconds.
        pub serviced_ms: AtomicU64,
        /// Requests that wait on connections of this worker, as its companion has counted them last; 0 if a thread was free
        /// since.
        pub waiting_requests: AtomicU32,
    }
}

/// Whether a worker accepts new connections, in [`Row::accepting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepting {
    /// It does not serve yet, or drains.
    No,
    Yes,
    /// It has no free descriptor for another connection.
    NoDescriptor,
}

impl Accepting {
    pub const fn code(self) -> u32 {
        match self {
            Accepting::No => 0,
            Accepting::Yes => 1,
            Accepting::NoDescriptor => 2,
        }
    }
}

impl Row {
    /// The worker is in service, whether or not it has a descriptor for another connection.
    pub fn is_accepting(&self) -> bool {
        self.accepting.load(Relaxed) != Accepting::No.code()
    }

    /// The worker could take another connection.
    pub fn has_room(&self) -> bool {
        self.accepting.load(Relaxed) == Accepting::Yes.code()
    }

    /// True for a request worker's row, false for a helper's row, which does not serve requests.
    pub fn is_of_request_worker(&self) -> bool {
        self.kind.load(Relaxed) == ChildKind::RequestWorker.code()
    }

    /// Counts a request, and returns its number. With a single counting thread, no locked instruction is needed.
    #[inline(always)]
    pub fn count_request(&self, has_one_thread: bool) -> u64 {
        if has_one_thread {
            add(&self.requests, 1);
            return self.requests.load(Relaxed);
        }
        self.requests.fetch_add(1, Relaxed) + 1
    }

    /// Adds a response time to the average.
    #[inline(always)]
    pub fn note_answer_time(&self, microseconds: u64) {
        self.average_us.store((self.average_us.load(Relaxed) + microseconds) / 2, Relaxed);
    }
}

/// A snapshot of a request in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    pub slot: u32,
    pub thread: u32,
    pub began_ms: u64,
    pub count: u64,
    /// 0 is the limit of the settings.
    pub limit_ms: u32,
    /// `GET /path`, truncated to [`TEXT_BYTES`].
    pub text: String,
    /// Empty if the request has none.
    pub identifier: String,
}

/// The mapping. It is never unmapped, so rows are `'static`.
#[derive(Debug, Clone, Copy)]
pub struct Scoreboard {
    rows: &'static [Row],
    slots: &'static [Slot],
    meters: &'static [Meters],
    entries: &'static [Entry],
    /// Empty where no groups of routes are configured.
    group_durations: &'static [GroupDurations],
    slots_per_row: u32,
    /// Rows and slots of a row that are in use: the mapping may have room for more, for a later generation.
    rows_in_use: u32,
    slots_in_use: u32,
}

impl Scoreboard {
    /// Creates a scoreboard in memory that a child can inherit. The master calls it.
    ///
    /// # Errors
    /// No memory, or no descriptor left.
    pub fn create(rows: u32, slots_per_row: u32) -> io::Result<(Scoreboard, OwnedFd)> {
        Scoreboard::create_of_size(Scoreboard::bytes(rows, slots_per_row), rows, slots_per_row)
    }

    /// The same with room for the durations in groups of routes.
    ///
    /// # Errors
    /// As `create`.
    pub fn create_with_groups(rows: u32, slots_per_row: u32) -> io::Result<(Scoreboard, OwnedFd)> {
        Scoreboard::create_of_size(Scoreboard::bytes_with_groups(rows, slots_per_row), rows, slots_per_row)
    }

    fn create_of_size(bytes: usize, rows: u32, slots_per_row: u32) -> io::Result<(Scoreboard, OwnedFd)> {
        let memory = sealed_memory::create(c"bolide-scoreboard", bytes as u64)?;
        let scoreboard = Scoreboard::attach(&memory, rows, slots_per_row)?;
        Ok((scoreboard, memory))
    }

    /// The size of the memory.
    pub fn bytes(rows: u32, slots_per_row: u32) -> usize {
        mapping_bytes(rows, slots_per_row)
    }

    /// The same with room for the durations in groups of routes.
    pub fn bytes_with_groups(rows: u32, slots_per_row: u32) -> usize {
        mapping_bytes(rows, slots_per_row) + rows as usize * slots_per_row as usize * size_of::<GroupDurations>()
    }

    /// Maps an inherited scoreboard. Its size says whether it has room for the durations in groups of routes.
    ///
    /// # Errors
    /// The memory file is shorter than `rows` and `slots_per_row` need, or can't be mapped.
    pub fn attach(memory: &OwnedFd, rows: u32, slots_per_row: u32) -> io::Result<Scoreboard> {
        Scoreboard::map(memory, rows, slots_per_row, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)
    }

    /// Maps the scoreboard of another instance, for a tool that only looks: a write would end this process.
    ///
    /// # Errors
    /// As `attach`.
    pub fn watch(memory: &OwnedFd, rows: u32, slots_per_row: u32) -> io::Result<Scoreboard> {
        Scoreboard::map(memory, rows, slots_per_row, ProtFlags::PROT_READ)
    }

    fn map(memory: &OwnedFd, rows: u32, slots_per_row: u32, protection: ProtFlags) -> io::Result<Scoreboard> {
        let bytes = mapping_bytes(rows, slots_per_row);
        let found = nix::sys::stat::fstat(memory)?.st_size;
        if bytes == 0 || found < bytes as i64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the scoreboard has {found} bytes, not {bytes}")));
        }
        let with_groups = Scoreboard::bytes_with_groups(rows, slots_per_row);
        let has_groups = found >= with_groups as i64;
        let length =
            std::num::NonZeroUsize::new(if has_groups { with_groups } else { bytes }).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, at an address chosen by the kernel, of a file that is long enough (checked above).
        let start: NonNull<libc::c_void> = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, memory.as_fd(), 0)? };
        let rows_length = rows as usize;
        // SAFETY: the mapping is page-aligned, zeroed (valid for these types, which are atomics only), long enough for `rows`
        // rows, never unmapped, and only accessed through atomics.
        let row_slice = unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<Row>(), rows_length) };
        let threads = rows_length * slots_per_row as usize;
        // SAFETY: as above; the slots follow the rows, and a row's size is a multiple of a slot's alignment.
        let slot_slice = unsafe {
            let first = start.as_ptr().cast::<Row>().add(rows_length).cast::<Slot>();
            std::slice::from_raw_parts(first, threads)
        };
        // SAFETY: as above; the meters follow the slots, and a slot's size is a multiple of their alignment.
        let meters = unsafe {
            let first = start.as_ptr().cast::<Row>().add(rows_length).cast::<Slot>().add(threads).cast::<Meters>();
            std::slice::from_raw_parts(first, threads)
        };
        // SAFETY: as above; the entries follow the meters, and the size of meters is a multiple of their alignment.
        let entries = unsafe {
            let after = start.as_ptr().cast::<Row>().add(rows_length).cast::<Slot>().add(threads).cast::<Meters>().add(threads);
            std::slice::from_raw_parts(after.cast::<Entry>(), rows_length * entries_of_row(slots_per_row))
        };
        // SAFETY: as above; the durations follow all others, whose sizes are multiples of their alignment, and are there if the
        // mapping is long enough for them.
        let group_durations = unsafe {
            let first = start.as_ptr().cast::<u8>().add(bytes).cast::<GroupDurations>();
            if has_groups { std::slice::from_raw_parts(first, threads) } else { &[] }
        };
        let (rows, slots) = (row_slice, slot_slice);
        let (rows_in_use, slots_in_use) = (rows.len() as u32, slots_per_row);
        Ok(Scoreboard { rows, slots, meters, entries, group_durations, slots_per_row, rows_in_use, slots_in_use })
    }

    /// The same mapping, limited to this many rows, and slots of a row.
    pub fn within(self, rows: u32, slots_per_row: u32) -> Scoreboard {
        let (rows_in_use, slots_in_use) = (rows.min(self.rows.len() as u32), slots_per_row.min(self.slots_per_row));
        Scoreboard { rows_in_use, slots_in_use, ..self }
    }

    /// The rows in use.
    pub fn rows(&self) -> &'static [Row] {
        &self.rows[..self.rows_in_use as usize]
    }

    /// Returns the row of this number, or `None` if there is none.
    pub fn row(&self, row: u32) -> Option<&'static Row> {
        self.rows.get(row as usize)
    }

    /// Returns a row's slots in use, one for each thread that its worker may have; empty if there is no such row.
    pub fn slots(&self, row: u32) -> &'static [Slot] {
        let first = row as usize * self.slots_per_row as usize;
        self.slots.get(first..first + self.slots_in_use as usize).unwrap_or(&[])
    }

    /// Returns the meters of a row's threads, in the order of [`Scoreboard::slots`].
    pub fn meters(&self, row: u32) -> &'static [Meters] {
        let first = row as usize * self.slots_per_row as usize;
        self.meters.get(first..first + self.slots_in_use as usize).unwrap_or(&[])
    }

    /// Returns the sum of what the threads of the worker of this row have measured. The memory of threads that measure nothing is
    /// not touched, since a look would allocate it.
    pub fn measured(&self, row: u32) -> Measured {
        let mut sum = Measured::default();
        for meters in self.meters_in_use(row) {
            sum += &meters.read();
        }
        for durations in self.in_use(row, self.group_durations(row)) {
            sum.group_durations.add(&durations.counts());
        }
        sum
    }

    /// Returns the durations in groups of routes of a row's threads; empty if the scoreboard has no room for them.
    pub fn group_durations(&self, row: u32) -> &'static [GroupDurations] {
        let first = row as usize * self.slots_per_row as usize;
        self.group_durations.get(first..first + self.slots_in_use as usize).unwrap_or(&[])
    }

    fn meters_in_use(&self, row: u32) -> impl Iterator<Item = &'static Meters> {
        self.in_use(row, self.meters(row))
    }

    /// Returns the part of each thread that measures.
    fn in_use<T>(&self, row: u32, of_threads: &'static [T]) -> impl Iterator<Item = &'static T> {
        let in_use = self.slots(row).iter().zip(of_threads).filter(|(slot, _)| slot.measures.load(Relaxed) != 0);
        in_use.map(|(_, of_thread)| of_thread)
    }

    /// Returns a slot of a row with its ring. `None`: there is no such slot in use.
    pub fn recorder(&self, row: u32, slot: u32) -> Option<Recorder<'static>> {
        let slots = self.slots(row);
        let found = slots.get(slot as usize)?;
        // The thread's own number counts: a generation with another number of threads shares the ring in another way.
        let entries = match found.entries.load(Relaxed) {
            0 => entries_of_thread(slots.len() as u32),
            taken => taken,
        };
        let of_row = entries_of_row(self.slots_per_row);
        let ring = self.entries.get(row as usize * of_row..(row as usize + 1) * of_row)?;
        let first = slot as usize * entries as usize;
        Recorder::new(found, ring.get(first..first + entries as usize)?)
    }

    /// Returns the requests that the worker of this row remembers, in the order of their begin, each with its thread's kernel id.
    pub fn remembered(&self, row: u32) -> Vec<(u32, Remembered)> {
        let recorders = (0..self.slots_in_use).filter_map(|slot| self.recorder(row, slot));
        let of_thread = |recorder: Recorder<'static>| {
            let thread = recorder.thread.load(Relaxed);
            recorder.remembered().into_iter().map(move |request| (thread, request))
        };
        let mut found: Vec<(u32, Remembered)> = recorders.flat_map(of_thread).collect();
        found.sort_by_key(|(_, request)| request.began_ms);
        found
    }

    /// Returns the requests in progress in the worker of this row, the oldest first.
    pub fn in_flight(&self, row: u32) -> Vec<InFlight> {
        let mut found: Vec<InFlight> = (0..self.slots_in_use)
            .filter_map(|number| {
                let slot = self.recorder(row, number)?;
                let seen = slot.look()?;
                Some(InFlight {
                    slot: number,
                    thread: slot.thread.load(Relaxed),
                    began_ms: seen.began_ms,
                    count: seen.count,
                    limit_ms: seen.limit_ms,
                    text: seen.text,
                    identifier: seen.identifier,
                })
            })
            .collect();
        found.sort_by_key(|request| request.began_ms);
        found
    }

    /// Returns the counters of each thread of the worker of this row, since the worker's start.
    pub fn work(&self, row: u32) -> impl Iterator<Item = Work> {
        self.slots(row).iter().map(|slot| slot.tally.read())
    }

    /// Whether the worker of this row has received a request, answered or not.
    pub fn has_begun_requests(&self, row: u32) -> bool {
        self.row(row).is_some_and(|row| row.requests.load(Relaxed) > 0)
            || self.slots(row).iter().any(|slot| slot.began_ms.load(Relaxed) > 0)
    }

    /// Clears a row for its next worker. The master calls it after the last worker has exited.
    pub fn clear(&self, row: u32) {
        let Some(found) = self.row(row) else { return };
        found.clear();
        self.meters_in_use(row).for_each(Meters::clear);
        self.in_use(row, self.group_durations(row)).for_each(GroupDurations::clear);
        for slot in self.slots(row) {
            slot.clear();
            slot.tally.clear();
        }
    }
}

fn mapping_bytes(rows: u32, slots_per_row: u32) -> usize {
    let rows = rows as usize;
    let of_slots = slots_per_row as usize * (size_of::<Slot>() + size_of::<Meters>());
    rows * (size_of::<Row>() + of_slots + entries_of_row(slots_per_row) * size_of::<Entry>())
}

/// The entries of a row: enough for workers of any number of threads, up to this one. The share of a thread is rounded up to a
/// power of two, so that a few threads together have up to twice as many as a worker remembers.
fn entries_of_row(slots_per_row: u32) -> usize {
    (slots_per_row * entries_of_thread(slots_per_row)).max(2 * REMEMBERED) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_mapping_sees_what_the_first_wrote() {
        let (master, memory) = Scoreboard::create(2, 3).expect("made");
        let worker = Scoreboard::attach(&memory, 2, 3).expect("attached");
        worker.slots(1)[2].thread.store(42, Relaxed);
        worker.recorder(1, 2).expect("a slot").begin(1234, &[b"GET", b" ", b"/a/path"]);
        let seen = master.in_flight(1);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].slot, seen[0].thread, seen[0].began_ms, seen[0].text.as_str()), (2, 42, 1234, "GET /a/path"));
        assert!(master.has_begun_requests(1) && !master.has_begun_requests(0));
        worker.recorder(1, 2).expect("a slot").end();
        worker.row(0).expect("a row").requests.store(1, Relaxed);
        assert!(master.has_begun_requests(0));
        assert!(master.in_flight(1).is_empty());
        assert!(master.in_flight(0).is_empty());
    }

    #[test]
    fn counters_of_threads_are_read_and_cleared_with_the_worker() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        for (slot, requests) in board.slots(1).iter().zip([3, 4]) {
            add(&slot.tally.requests, requests);
            add(&slot.tally.application(9).exceptions, 1);
        }
        let row = board.row(1).expect("a row");
        assert_eq!((row.count_request(true), row.count_request(false)), (1, 2));
        row.note_answer_time(1000);
        row.note_answer_time(100);
        assert_eq!(row.average_us.load(Relaxed), 300);
        let works: Vec<Work> = board.work(1).collect();
        assert_eq!(works.iter().map(|work| work.requests).collect::<Vec<u64>>(), [3, 4]);
        // More applications are counted together with the last one that has a counter.
        assert_eq!(works[0].applications[MAX_APPLICATIONS - 1].exceptions, 1);
        let mut sum = works[0];
        sum += &works[1];
        assert_eq!((sum.requests, sum.exceptions()), (7, 2));
        assert_eq!(board.measured(1).latency.count(), 0);
        for (slot, meters) in board.slots(1).iter().zip(board.meters(1)) {
            slot.measures.store(1, Relaxed);
            meters.latency.note(20);
        }
        assert_eq!((board.measured(1).latency.count(), board.measured(0).latency.count()), (2, 0));
        board.clear(1);
        assert!(board.work(1).all(|work| work == Work::default()));
        board.slots(1)[0].measures.store(1, Relaxed);
        assert_eq!(board.measured(1), Measured::default());
        assert_eq!(row.average_us.load(Relaxed), 0);
    }

    #[test]
    fn the_last_requests_of_a_worker_are_remembered_with_their_ends_and_those_of_its_predecessor_are_not() {
        let (board, _memory) = Scoreboard::create(2, 16).expect("made");
        let [first, second] = [0, 1].map(|slot| board.recorder(1, slot).expect("a slot"));
        first.take(41);
        second.take(42);
        for number in 1..=70u64 {
            assert_eq!(first.begin(100 + number, &[b"GET /", number.to_string().as_bytes()]), number);
            first.leave();
            first.complete(number, End { status: 200, microseconds: 5 });
        }
        let open = second.begin(110, &[b"GET /open"]);
        second.leave();
        let seen = board.remembered(1);
        assert_eq!(seen.len(), 5, "each of 16 threads has four entries");
        assert_eq!((seen[0].0, seen[0].1.text.as_str(), seen[0].1.end), (42, "GET /open", None));
        let last = &seen[4].1;
        assert_eq!((last.text.as_str(), last.end), ("GET /70", Some(End { status: 200, microseconds: 5 })));
        // A request that has lasted longer than its entry can neither end another one nor continue in its entry.
        first.complete(66, End { status: 500, microseconds: 5 });
        assert!(!first.resume(66, 300) && first.resume(67, 300));
        second.complete(open, End { status: 404, microseconds: u64::MAX });
        assert!(board.remembered(1).iter().all(|(_, request)| request.end.is_some_and(|end| end.status != 500)));
        board.clear(1);
        assert_eq!(board.remembered(1), []);
        assert_eq!(first.begin(900, &[b"GET /new"]), 71);
        assert_eq!(board.remembered(1).len(), 1);
        assert_eq!(board.remembered(0), []);
    }

    #[test]
    fn an_identifier_is_that_of_one_call_alone() {
        let (board, _memory) = Scoreboard::create(1, 1).expect("made");
        let recorder = board.recorder(0, 0).expect("a slot");
        let seen = || recorder.look().expect("a call").identifier;
        recorder.begin(100, &[b"GET /"]);
        assert_eq!(seen(), "");
        recorder.leave();
        recorder.identify(&[b'x'; 100]);
        let number = recorder.begin(100, &[b"GET /"]);
        assert_eq!(seen(), "x".repeat(IDENTIFIER_BYTES));
        recorder.leave();
        recorder.identify(b"a1");
        assert!(recorder.resume(number, 110));
        assert_eq!(seen(), "a1");
        recorder.leave();
        recorder.begin(120, &[b"signal 7"]);
        assert_eq!(seen(), "");
    }

    #[test]
    fn a_request_in_flight_is_remembered_with_what_it_waits_for() {
        let (board, _memory) = Scoreboard::create(1, 1).expect("made");
        let recorder = board.recorder(0, 0).expect("a slot");
        let seen = || board.remembered(0).pop().map(|(_, request)| (request.phase, request.is_called, request.end)).expect("one");
        let number = recorder.await_call(100, &[b"PUT /file"], Phase::Body);
        assert_eq!((seen(), recorder.look()), ((Phase::Body, false, None), None));
        assert_eq!((recorder.in_call(), recorder.phase(number)), (None, Some(Phase::Body)));
        assert!(recorder.resume(number, 110));
        assert_eq!(seen(), (Phase::Application, true, None));
        assert_eq!((recorder.in_call(), recorder.phase(number)), (Some((number, 100)), Some(Phase::Application)));
        recorder.leave();
        recorder.enter_phase(number, Phase::Sending);
        // Work that has ended without a call of its own does not end the request of the last call.
        recorder.end();
        assert_eq!(seen(), (Phase::Sending, false, None));
        let end = End { status: 999, microseconds: 5 };
        recorder.complete(number, end);
        assert_eq!(seen(), (Phase::Application, false, Some(end)));
        assert_eq!((recorder.in_call(), recorder.phase(number), recorder.phase(0)), (None, None, None));
        // One without another phase is in the application, also after a round of the ring, and 0 means that there is none.
        for _ in 0..=REMEMBERED {
            let number = recorder.begin(200, &[b"GET /"]);
            assert_eq!(seen(), (Phase::Application, true, None));
            recorder.enter_phase(number, Phase::Sending);
        }
        recorder.enter_phase(number, Phase::Body);
        recorder.enter_phase(0, Phase::Body);
        assert!(board.remembered(0).iter().all(|(_, request)| request.phase == Phase::Sending));
    }

    #[test]
    fn threads_share_the_entries_of_a_worker_within_its_row() {
        for threads in 0..=300 {
            let entries = entries_of_thread(threads);
            assert!(entries.is_power_of_two() && entries >= 4 && entries * threads.max(1) >= REMEMBERED, "{threads}");
            for capacity in [threads, 64, 300] {
                assert!(capacity < threads || (entries * threads) as usize <= entries_of_row(capacity), "{threads} {capacity}");
            }
        }
    }

    #[test]
    fn a_long_request_line_is_cut_and_not_spilled() {
        let (board, _memory) = Scoreboard::create(1, 2).expect("made");
        board.recorder(0, 0).expect("a slot").begin(1, &[b"GET ", &[b'x'; 5000]]);
        assert_eq!(board.in_flight(0)[0].text.len(), TEXT_BYTES);
        assert_eq!(board.slots(0)[1].began_ms.load(Relaxed), 0);
    }

    #[test]
    fn a_generation_with_fewer_threads_finds_its_slots_where_one_with_more_does() {
        let (master, memory) = Scoreboard::create(4, 8).expect("made");
        let (small, large) = (master.within(2, 1), Scoreboard::attach(&memory, 4, 8).expect("attached").within(9, 9));
        large.recorder(1, 0).expect("a slot").begin(5, &[b"GET /"]);
        assert_eq!((small.rows().len(), small.slots(1).len(), small.in_flight(1).len()), (2, 1, 1));
        assert_eq!((large.rows().len(), large.slots(3).len()), (4, 8));
        // A row outside of those in use still belongs to its worker.
        assert!(small.row(3).is_some());
    }

    #[test]
    fn a_row_is_a_request_workers_unless_the_master_marks_it_as_a_helpers() {
        let (board, _memory) = Scoreboard::create(1, 1).expect("made");
        let row = board.row(0).expect("a row");
        assert!(row.is_of_request_worker());
        row.kind.store(ChildKind::Helper.code(), Relaxed);
        assert!(!row.is_of_request_worker());
        board.clear(0);
        assert!(row.is_of_request_worker());
        assert_eq!(size_of::<Row>(), 256);
    }

    #[test]
    fn rows_that_do_not_exist_are_none() {
        let (board, memory) = Scoreboard::create(1, 1).expect("made");
        assert!(board.row(1).is_none() && board.slots(9).is_empty());
        assert!(Scoreboard::attach(&memory, 100, 1).is_err());
    }
}
