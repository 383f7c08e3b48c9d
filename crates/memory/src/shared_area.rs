//! A memory area of the application (`sharedarea`): bytes that processes read and write in place, a lock that no dead process
//! holds up, and a count of changes that can be waited for. It knows neither configurations nor languages. Every process of an
//! instance runs it.
//!
//! One robust mutex guards the bytes. `rlock` may be held by several processes at a time, and no count of readers would survive a
//! reader that is killed: each holder has a mutex of its own, and a writer waits for all of these.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use bolide_contract::boot::MemoryKind;
use bolide_contract::sharing::{Area, AreaSource};

use crate::mapping::{Identity, Mapping, fingerprint};
use crate::region::{Number, Region};
use crate::robust_lock::{Guard, Left, Recovery, RobustLock, own_pid};

/// The version of the layout.
const VERSION: u32 = 1;
/// The place of the bytes in the memory, behind the control. Those of a file are in the file instead.
const DATA_AT: usize = 4096;

/// How many threads of an instance may hold the `rlock` of an area at a time. Others wait.
pub const MAX_READERS: usize = 16;
/// The longest sleep in a wait for a change, in milliseconds: the application may have an interrupt to handle.
pub const SLEEP_MS: u64 = 1000;

/// The locks and counts of an area, in memory of their own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct AreaControl {
    /// Held while bytes are read or written, and by `wlock`.
    lock: RobustLock,
    /// One for each holder of `rlock`.
    readers: [RobustLock; MAX_READERS],
    /// Not 0: there may be a holder of `rlock`. A reader that was killed leaves it, and the next writer corrects it.
    has_readers: AtomicU32,
    updates: AtomicU64,
    /// The count of changes that the latest sleeper wants to see.
    wanted: AtomicU64,
    hits: AtomicU64,
}

/// A process's view of an area.
#[derive(Debug, Clone, Copy)]
pub struct SharedArea {
    control: &'static AreaControl,
    data: Region,
    /// False: a lock that is not free is [`AreaError::Busy`].
    waits: bool,
}

/// Why an area could not be used.
#[derive(Debug)]
pub enum AreaError {
    /// Another thread or process has the lock, and the caller does not wait.
    Busy,
    /// The bytes are not all in the area.
    Outside,
    /// The thread itself holds a lock that this needs to be free.
    OwnLock,
    /// The thread does not hold locks of the area.
    NotLocked,
    Broken(io::Error),
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    Changed,
    /// [`SLEEP_MS`] passed, or a signal arrived: look around and wait again.
    StillWaiting,
}

/// A lock of an area that this thread holds, beyond one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Read { reader: usize, depth: u32 },
    Write,
}

thread_local! {
    /// The areas that this thread has locked, by the address of their control.
    static HOLDS: RefCell<Vec<(usize, Hold)>> = const { RefCell::new(Vec::new()) };
}

/// What the memory of an area holds.
pub fn identity(settings: &Area) -> Identity {
    let is_memory = settings.source == AreaSource::Memory;
    let bytes = if is_memory { usize::try_from(settings.bytes).unwrap_or(usize::MAX) } else { 0 };
    // Other bytes of a file are another area.
    let source: Vec<u64> = match &settings.source {
        AreaSource::Memory => Vec::new(),
        AreaSource::File { path, offset } => {
            path.as_os_str().as_encoded_bytes().iter().map(|byte| u64::from(*byte)).chain([*offset]).collect()
        }
        AreaSource::Descriptor { number, offset } => vec![number.unsigned_abs().into(), *offset],
    };
    let shape = fingerprint(&[&[settings.bytes, is_memory.into()], source.as_slice()].concat());
    Identity { kind: MemoryKind::SharedArea, version: VERSION, shape, bytes: DATA_AT.saturating_add(bytes) }
}

/// Makes the locks.
///
/// # Errors
/// The system has no robust mutexes.
pub fn begin(mapping: &Mapping) -> io::Result<()> {
    control(mapping).begin()
}

/// Frees the locks of an exited process.
pub fn recover(number: &str, mapping: &Mapping, pid: u32) -> Vec<Recovery> {
    let control = control(mapping);
    // Each lock is visited, so that none stays with the dead process.
    let left = std::iter::once(&control.lock)
        .chain(&control.readers)
        .filter(|lock| matches!(lock.recover(pid), Ok(Left::Held(_) | Left::Recovered)));
    if left.count() == 0 {
        return Vec::new();
    }
    vec![Recovery { what: format!("sharedarea {number}"), lost: String::new() }]
}

fn control(mapping: &Mapping) -> &AreaControl {
    // SAFETY: the memory is aligned and longer than the control (`identity`), and is zeroed or holds one: atomics and mutexes.
    unsafe { mapping.body().cast().as_ref() }
}

impl AreaControl {
    /// Makes the locks. The memory is zeroed, and no other process knows it.
    ///
    /// # Errors
    /// The system has no robust mutexes.
    pub fn begin(&self) -> io::Result<()> {
        self.lock.begin()?;
        self.readers.iter().try_for_each(RobustLock::begin)
    }
}

impl SharedArea {
    /// The area in memory that stays mapped. `None`: the memory has not the size of the settings.
    pub fn attach(settings: &Area, mapping: &'static Mapping, file: Option<&Region>) -> Option<SharedArea> {
        let bytes = usize::try_from(settings.bytes).ok()?;
        let data = match file {
            Some(file) => *file,
            // SAFETY: the bytes behind the control of a mapping that is never dropped.
            None => unsafe { mapping.region(DATA_AT, bytes)? },
        };
        (data.bytes() == bytes).then(|| SharedArea::new(control(mapping), data))
    }

    pub fn new(control: &'static AreaControl, data: Region) -> SharedArea {
        SharedArea { control, data, waits: true }
    }

    /// The same area for a thread that must not wait now.
    pub fn without_waiting(self) -> SharedArea {
        SharedArea { waits: false, ..self }
    }

    pub fn bytes(&self) -> usize {
        self.data.bytes()
    }

    /// The first byte, for a view of the application.
    pub fn start(&self) -> *mut u8 {
        self.data.start()
    }

    /// The changes since the area was made.
    pub fn updates(&self) -> u64 {
        self.control.updates.load(SeqCst)
    }

    /// The reads since the area was made.
    pub fn hits(&self) -> u64 {
        self.control.hits.load(Relaxed)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), AreaError> {
        self.reading(|data| if data.copy_out(at, into) { Ok(()) } else { Err(AreaError::Outside) })
    }

    /// Copies bytes in. A process that is killed in the middle leaves a part of them.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), AreaError> {
        self.changing(|data| if data.copy_in(at, bytes) { Ok(()) } else { Err(AreaError::Outside) })
    }

    /// Reads a number, in the order of bytes of the machine.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn get<T: Number>(&self, at: usize) -> Result<T, AreaError> {
        self.reading(|data| data.get(at).ok_or(AreaError::Outside))
    }

    /// Writes a number, whole or not at all.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn set<T: Number>(&self, at: usize, number: T) -> Result<(), AreaError> {
        self.changing(|data| data.set(at, number).ok_or(AreaError::Outside))
    }

    /// Adds to a number, and wraps around.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn add<T: Number>(&self, at: usize, amount: T) -> Result<(), AreaError> {
        self.changing(|data| {
            let number: T = data.get(at).ok_or(AreaError::Outside)?;
            data.set(at, number.plus(amount)).ok_or(AreaError::Outside)
        })
    }

    /// Counts a change that was made through a view, and wakes those that wait for one.
    pub fn note_change(&self) {
        let before = self.control.updates.fetch_add(1, SeqCst);
        // A sleeper that was killed wants a count that passes by, so it costs one needless wake-up.
        if self.control.wanted.load(SeqCst) > before {
            wake_all(&self.control.updates);
        }
    }

    /// Sleeps until there is another count of changes than `seen`, for [`SLEEP_MS`] at most.
    pub fn wait(&self, seen: u64, most: Duration) -> Waited {
        // From here on the change after `seen` rings. The largest wish counts: smaller ones are fulfilled already.
        self.control.wanted.fetch_max(seen.saturating_add(1), SeqCst);
        if self.updates() == seen {
            sleep_while(&self.control.updates, seen, most.min(Duration::from_millis(SLEEP_MS)));
        }
        if self.updates() == seen { Waited::StillWaiting } else { Waited::Changed }
    }

    /// Locks the area for reading, beyond this call: other readers may hold it too.
    ///
    /// # Errors
    /// The thread has locked it for writing.
    pub fn lock_for_reading(&self) -> Result<(), AreaError> {
        match self.own_hold() {
            Some(Hold::Write) => return Err(AreaError::OwnLock),
            Some(Hold::Read { reader, depth }) => {
                self.note_hold(Some(Hold::Read { reader, depth: depth.saturating_add(1) }));
                return Ok(());
            }
            None => {}
        }
        let guard = self.take()?;
        let first = nix::unistd::gettid().as_raw().unsigned_abs() as usize;
        let mut places = (0..MAX_READERS).map(|number| (first + number) % MAX_READERS);
        let free = places.find_map(|reader| Some((reader, self.control.readers[reader].try_lock().ok().flatten()?)));
        let (reader, held) = match free {
            Some(found) => found,
            // All places are taken: the last one will be free when its reader has ended.
            None => (first % MAX_READERS, self.taken(&self.control.readers[first % MAX_READERS])?),
        };
        self.control.has_readers.store(1, SeqCst);
        held.keep();
        drop(guard);
        self.note_hold(Some(Hold::Read { reader, depth: 1 }));
        Ok(())
    }

    /// Locks the area for writing, beyond this call.
    ///
    /// # Errors
    /// The thread has locked it already.
    pub fn lock_for_writing(&self) -> Result<(), AreaError> {
        if self.own_hold().is_some() {
            return Err(AreaError::OwnLock);
        }
        let guard = self.take()?;
        self.await_readers()?;
        guard.keep();
        self.note_hold(Some(Hold::Write));
        Ok(())
    }

    /// Releases the lock of this thread.
    ///
    /// # Errors
    /// It has none.
    pub fn unlock(&self) -> Result<(), AreaError> {
        match self.own_hold() {
            None => Err(AreaError::NotLocked),
            Some(Hold::Write) => {
                self.note_hold(None);
                self.control.lock.release().map_err(of_lock)
            }
            Some(Hold::Read { reader, depth: 0 | 1 }) => {
                self.note_hold(None);
                self.control.readers[reader].release().map_err(of_lock)
            }
            Some(Hold::Read { reader, depth }) => {
                self.note_hold(Some(Hold::Read { reader, depth: depth - 1 }));
                Ok(())
            }
        }
    }

    fn reading<R>(&self, read: impl FnOnce(Region) -> Result<R, AreaError>) -> Result<R, AreaError> {
        // A thread that has locked the area reads immediately: no other thread writes.
        let _guard = match self.own_hold() {
            Some(_) => None,
            None => Some(self.take()?),
        };
        self.control.hits.fetch_add(1, Relaxed);
        read(self.data)
    }

    fn changing<R>(&self, change: impl FnOnce(Region) -> Result<R, AreaError>) -> Result<R, AreaError> {
        let _guard = match self.own_hold() {
            Some(Hold::Write) => None,
            // It would wait for itself.
            Some(Hold::Read { .. }) => return Err(AreaError::OwnLock),
            None => {
                let guard = self.take()?;
                self.await_readers()?;
                Some(guard)
            }
        };
        let changed = change(self.data)?;
        self.note_change();
        Ok(changed)
    }

    fn take(&self) -> Result<Guard<'static>, AreaError> {
        // A dead holder leaves nothing to repair: numbers are written whole, and texts are the application's.
        self.taken(&self.control.lock)
    }

    fn taken(&self, lock: &'static RobustLock) -> Result<Guard<'static>, AreaError> {
        if self.waits {
            return lock.lock().map_err(of_lock);
        }
        lock.try_lock().map_err(of_lock)?.ok_or(AreaError::Busy)
    }

    /// Waits for each holder of `rlock`. The caller has the lock, so that no other one comes.
    fn await_readers(&self) -> Result<(), AreaError> {
        if self.control.has_readers.load(SeqCst) == 0 {
            return Ok(());
        }
        for reader in &self.control.readers {
            drop(self.taken(reader)?);
        }
        self.control.has_readers.store(0, SeqCst);
        Ok(())
    }

    fn own_hold(&self) -> Option<Hold> {
        let key = std::ptr::from_ref(self.control).addr();
        let hold = HOLDS.with_borrow(|holds| holds.iter().find(|(known, _)| *known == key).map(|(_, hold)| *hold))?;
        let lock = match hold {
            Hold::Write => &self.control.lock,
            Hold::Read { reader, .. } => &self.control.readers[reader],
        };
        // After a fork the child has the note of its parent, and not its lock.
        (lock.owner() == own_pid()).then_some(hold)
    }

    fn note_hold(&self, hold: Option<Hold>) {
        let key = std::ptr::from_ref(self.control).addr();
        HOLDS.with_borrow_mut(|holds| {
            holds.retain(|(known, _)| *known != key);
            holds.extend(hold.map(|hold| (key, hold)));
        });
    }
}

fn of_lock(error: io::Error) -> AreaError {
    if error.raw_os_error() == Some(libc::EDEADLK) { AreaError::OwnLock } else { AreaError::Broken(error) }
}

/// The half of a count that the kernel compares.
fn futex_word(count: &AtomicU64) -> *const u32 {
    let first = std::ptr::from_ref(count).cast::<u32>();
    // On a machine that begins with the high half, the low one follows it.
    if cfg!(target_endian = "little") { first } else { first.wrapping_add(1) }
}

fn sleep_while(count: &AtomicU64, seen: u64, most: Duration) {
    let time = libc::timespec { tv_sec: most.as_secs() as libc::time_t, tv_nsec: most.subsec_nanos() as libc::c_long };
    // SAFETY: the word and the time live through the call. Its result does not matter: the caller looks at the count.
    let _ = unsafe { libc::syscall(libc::SYS_futex, futex_word(count), libc::FUTEX_WAIT, seen as u32, &raw const time, 0, 0) };
}

fn wake_all(count: &AtomicU64) {
    // SAFETY: a system call on an address, which wakes sleepers and changes nothing. It can't fail for a mapped word.
    let _ = unsafe { libc::syscall(libc::SYS_futex, futex_word(count), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
}

/// Waits for a change until the time is over, without looking around: for tests and callers without interrupts.
pub fn wait_until(area: &SharedArea, seen: u64, time: Duration) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match area.wait(seen, left) {
            Waited::Changed => return true,
            Waited::StillWaiting if left.is_zero() => return false,
            Waited::StillWaiting => {}
        }
    }
}

#[cfg(test)]
#[path = "shared_area_tests.rs"]
mod tests;
