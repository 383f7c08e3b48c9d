//! The memory of another process, as a trait with one method, so that everything above it is tested on made-up memory. Nothing is
//! ever written, the process is not stopped, and no ptrace is used: a reader that is killed leaves nothing behind. The
//! command-line process runs it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// A page, in bytes: what one read fetches.
const PAGE: u64 = 4096;
/// Pages that a snapshot keeps at most: 64 MiB.
const MAX_PAGES: usize = 16 * 1024;
/// Pages of a rolling snapshot: 8 MiB.
const MAX_ROLLING_PAGES: usize = 2 * 1024;
/// Reads that one snapshot makes at most. A structure that is torn or made up can't keep the reader busy.
const MAX_READS: u32 = 400_000;
/// A string's bytes that are read at most.
const MAX_BYTES: usize = 64 * 1024;

/// Why an address can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// Nothing is there, or the structure that is read has changed in the meantime.
    Nothing,
    /// The kernel does not let this process read that one.
    Forbidden,
    /// The process has exited.
    Ended,
    /// The bound on the reads of one snapshot is reached.
    TooMuch,
}

pub type Read<T> = Result<T, Unreadable>;

/// Memory that can be read by address.
pub trait Memory {
    /// Fills the buffer with the bytes at the address.
    ///
    /// # Errors
    /// Not all of them can be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Read<()>;

    fn array<const SIZE: usize>(&self, address: u64) -> Read<[u8; SIZE]> {
        let mut bytes = [0; SIZE];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    fn byte(&self, address: u64) -> Read<u8> {
        self.array::<1>(address).map(|[byte]| byte)
    }

    fn number(&self, address: u64) -> Read<u32> {
        self.array(address).map(u32::from_ne_bytes)
    }

    fn word(&self, address: u64) -> Read<u64> {
        self.array(address).map(u64::from_ne_bytes)
    }

    /// A pointer that is not null and is aligned as pointers to structures are.
    fn pointer(&self, address: u64) -> Read<u64> {
        let pointer = self.word(address)?;
        if is_plausible(pointer) { Ok(pointer) } else { Err(Unreadable::Nothing) }
    }

    fn bytes(&self, address: u64, length: u64) -> Read<Vec<u8>> {
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_BYTES).ok_or(Unreadable::Nothing)?;
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// A string that ends with a zero, or after `most` bytes.
    fn c_string(&self, address: u64, most: u64) -> Read<String> {
        let mut bytes = Vec::new();
        for place in 0..most.min(MAX_BYTES as u64) {
            match self.byte(address.wrapping_add(place))? {
                0 => break,
                byte => bytes.push(byte),
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Returns whether the number may be the address of a structure.
pub fn is_plausible(pointer: u64) -> bool {
    // The kernel maps nothing below the first pages, and user space ends below 2^56.
    (PAGE * 16..1 << 56).contains(&pointer) && pointer.is_multiple_of(8)
}

/// The memory of a process that runs on in the meantime.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: Pid,
}

impl ProcessMemory {
    pub fn of(pid: i32) -> ProcessMemory {
        ProcessMemory { pid: Pid::from_raw(pid) }
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Read<()> {
        let length = buffer.len();
        let base = usize::try_from(address).map_err(|_| Unreadable::Nothing)?;
        let remote = [RemoteIoVec { base, len: length }];
        match process_vm_readv(self.pid, &mut [IoSliceMut::new(buffer)], &remote) {
            Ok(read) if read == length => Ok(()),
            Ok(_) | Err(Errno::EFAULT) => Err(Unreadable::Nothing),
            Err(Errno::ESRCH) => Err(Unreadable::Ended),
            // A filter of system calls (seccomp) may answer with ENOSYS.
            Err(Errno::EPERM | Errno::EACCES | Errno::ENOSYS) => Err(Unreadable::Forbidden),
            Err(_) => Err(Unreadable::Nothing),
        }
    }
}

/// Memory that is read once, in pages, so that a walk takes few system calls and sees each page in one state only.
#[derive(Debug)]
pub struct Snapshot<M> {
    memory: M,
    pages: RefCell<HashMap<u64, Option<Box<[u8]>>>>,
    reads: Cell<u32>,
    /// It forgets pages that it has no room for, for walks with a bound of their own.
    is_rolling: bool,
}

impl<M: Memory> Snapshot<M> {
    pub fn new(memory: M) -> Snapshot<M> {
        Snapshot { memory, pages: RefCell::new(HashMap::new()), reads: Cell::new(0), is_rolling: false }
    }

    /// One for a long walk, which keeps no more than the last pages.
    pub fn rolling(memory: M) -> Snapshot<M> {
        Snapshot { is_rolling: true, ..Snapshot::new(memory) }
    }

    /// Forgets what was read: the next reads see the present.
    pub fn refresh(&self) {
        self.pages.borrow_mut().clear();
        self.reads.set(0);
    }

    fn read_in_page(&self, page: u64, start: usize, buffer: &mut [u8]) -> Read<()> {
        let mut pages = self.pages.borrow_mut();
        if self.is_rolling && pages.len() >= MAX_ROLLING_PAGES {
            pages.clear();
        }
        if pages.len() >= MAX_PAGES {
            return Err(Unreadable::TooMuch);
        }
        let kept = match pages.entry(page) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(place) => {
                let mut bytes = vec![0; PAGE as usize].into_boxed_slice();
                match self.memory.read(page, &mut bytes) {
                    Ok(()) => place.insert(Some(bytes)),
                    Err(Unreadable::Nothing) => place.insert(None),
                    Err(why) => return Err(why),
                }
            }
        };
        let found = kept.as_ref().and_then(|bytes| bytes.get(start..start + buffer.len()));
        buffer.copy_from_slice(found.ok_or(Unreadable::Nothing)?);
        Ok(())
    }
}

impl<M: Memory> Memory for Snapshot<M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Read<()> {
        self.reads.set(self.reads.get().saturating_add(1));
        if self.reads.get() > MAX_READS && !self.is_rolling {
            return Err(Unreadable::TooMuch);
        }
        let (mut address, mut rest) = (address, buffer);
        while !rest.is_empty() {
            let start = (address % PAGE) as usize;
            let length = rest.len().min(PAGE as usize - start);
            let (now, later) = rest.split_at_mut(length);
            self.read_in_page(address - start as u64, start, now)?;
            address = address.checked_add(length as u64).ok_or(Unreadable::Nothing)?;
            rest = later;
        }
        Ok(())
    }
}

/// Made-up memory for tests: pieces at addresses.
#[cfg(test)]
#[derive(Debug, Default)]
pub struct Pieces(pub std::collections::BTreeMap<u64, Vec<u8>>);

#[cfg(test)]
impl Pieces {
    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        self.0.insert(address, bytes.to_vec());
    }

    /// Puts words at these offsets into a structure of 4096 bytes.
    pub fn structure(&mut self, address: u64, words: &[(u64, u64)]) {
        let mut bytes = vec![0; 4096];
        for (offset, word) in words {
            bytes[*offset as usize..*offset as usize + 8].copy_from_slice(&word.to_ne_bytes());
        }
        self.put(address, &bytes);
    }
}

#[cfg(test)]
impl Memory for Pieces {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Read<()> {
        let (start, piece) = self.0.range(..=address).next_back().ok_or(Unreadable::Nothing)?;
        let from = (address - start) as usize;
        let found = piece.get(from..from.saturating_add(buffer.len())).ok_or(Unreadable::Nothing)?;
        buffer.copy_from_slice(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_reads_over_the_ends_of_pages_and_not_beyond_the_memory() {
        let mut pieces = Pieces::default();
        pieces.put(0x10000, &(0..=255).cycle().take(2 * PAGE as usize).collect::<Vec<u8>>());
        let snapshot = Snapshot::new(pieces);
        assert_eq!(snapshot.bytes(0x10000 + PAGE - 2, 4), Ok(vec![254, 255, 0, 1]));
        assert_eq!(snapshot.word(0x10000 + 2 * PAGE - 4), Err(Unreadable::Nothing));
        assert_eq!(snapshot.word(u64::MAX - 3), Err(Unreadable::Nothing));
        assert_eq!(snapshot.c_string(0x10001, 3).map(|text| text.len()), Ok(3));
    }

    #[test]
    fn a_snapshot_ends_a_walk_that_does_not_end_by_itself() {
        let mut pieces = Pieces::default();
        pieces.put(0x10000, &[0; PAGE as usize]);
        let snapshot = Snapshot::new(pieces);
        let end = (0..=MAX_READS).find_map(|_| snapshot.byte(0x10000).err());
        assert_eq!(end, Some(Unreadable::TooMuch));
        snapshot.refresh();
        assert_eq!(snapshot.byte(0x10000), Ok(0));
    }

    #[test]
    fn a_process_reads_itself_and_no_address_that_is_not_mapped() {
        let word = 0x1234_5678_9abc_def0_u64;
        let memory = ProcessMemory::of(std::process::id() as i32);
        assert_eq!(memory.word(&raw const word as u64), Ok(word));
        assert_eq!(memory.word(8), Err(Unreadable::Nothing));
    }
}
