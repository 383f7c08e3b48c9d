//! A memory file that several processes map, with a head that says what it holds. It does not know the structures that stand
//! behind the head. The master creates mappings, every process that has the application attaches them.

use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{fmt, io};

use bolide_contract::boot::MemoryKind;
use bolide_scoreboard::sealed_memory;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::region::Region;

/// Bytes before the structure of a memory: a page, so that the structure is aligned to anything.
pub const HEAD_BYTES: usize = 4096;
/// The first bytes of each memory, as text `BolideMM`.
const MAGIC: u64 = u64::from_le_bytes(*b"BolideMM");
/// Bytes of the name that the kernel shows for a memory, at most: its limit is 249.
const MAX_NAME_BYTES: usize = 200;

/// What a memory holds. Two processes understand each other only if all of it is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub kind: MemoryKind,
    /// The version of the structure's layout: it changes with each change of the layout.
    pub version: u32,
    /// A digest of the settings that determine the layout (`fingerprint`).
    pub shape: u64,
    /// Bytes of the structure, without the head.
    pub bytes: usize,
}

/// Why a memory is not the expected one.
#[derive(Debug)]
pub enum Mismatch {
    /// It can't be mapped.
    Unmapped(io::Error),
    /// It has another size.
    Bytes { found: u64, expected: u64 },
    /// It has not the head of a memory of Bolide, or was not finished.
    NoHead,
    /// It holds another structure, or is of another version of Bolide.
    Version,
    /// Its settings were others.
    Shape,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Unmapped(error) => write!(formatter, "it can't be mapped: {error}"),
            Mismatch::Bytes { found, expected } => write!(formatter, "it has {found} bytes, not {expected}"),
            Mismatch::NoHead => formatter.write_str("it is not a memory of Bolide, or was never finished"),
            Mismatch::Version => formatter.write_str("it is from another version of Bolide"),
            Mismatch::Shape => formatter.write_str("it was created with other settings"),
        }
    }
}

/// A mapping of a memory file. It is unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: NonZeroUsize,
}

#[repr(C)]
struct Head {
    /// Written last: zero while the structure is not complete.
    magic: AtomicU64,
    version: AtomicU32,
    kind: AtomicU32,
    shape: AtomicU64,
    bytes: AtomicU64,
}

impl Head {
    fn check(&self, identity: &Identity) -> Result<(), Mismatch> {
        // Everything that was written before the magic number is visible after it was read.
        if self.magic.load(Ordering::Acquire) != MAGIC {
            return Err(Mismatch::NoHead);
        }
        let read = |number: &AtomicU32| number.load(Ordering::Relaxed);
        if (read(&self.version), read(&self.kind)) != (identity.version, identity.kind.code()) {
            return Err(Mismatch::Version);
        }
        let bytes = self.bytes.load(Ordering::Relaxed);
        if (self.shape.load(Ordering::Relaxed), bytes) != (identity.shape, identity.bytes as u64) {
            return Err(Mismatch::Shape);
        }
        Ok(())
    }
}

// SAFETY: a mapping is plain memory of the process, not bound to a thread; structures in it synchronize by atomics and locks.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates zeroed memory that children inherit by its descriptor. [`Mapping::finish`] must follow when the structure stands.
    ///
    /// # Errors
    /// No memory, or no descriptor left.
    pub fn create(name: &str, identity: &Identity) -> io::Result<(Mapping, OwnedFd)> {
        let name: String =
            format!("bolide-{name}").chars().filter(|&character| character != '\0').take(MAX_NAME_BYTES / 4).collect();
        let memory = sealed_memory::create(name.as_str(), whole_bytes(identity) as u64)?;
        Ok((Mapping::of(&memory, identity)?, memory))
    }

    /// Maps memory without a look at its head: for a structure that is about to be made in it.
    ///
    /// # Errors
    /// The memory can't be mapped.
    pub fn of(memory: &impl AsFd, identity: &Identity) -> io::Result<Mapping> {
        let length = NonZeroUsize::new(whole_bytes(identity)).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address chosen by the kernel. The callers have set or checked the length of the file.
        let start = unsafe { mmap(None, length, protection, flags, memory.as_fd(), 0)? };
        Ok(Mapping { start: start.cast(), length })
    }

    /// Maps finished memory of exactly this identity.
    ///
    /// # Errors
    /// Why it is not that memory.
    pub fn attach(memory: &impl AsFd, identity: &Identity) -> Result<Mapping, Mismatch> {
        check_size(memory, identity)?;
        let mapping = Mapping::of(memory, identity).map_err(Mismatch::Unmapped)?;
        mapping.head().check(identity)?;
        Ok(mapping)
    }

    /// Returns whether the head still matches: another process may have written anything there.
    pub fn is_of(&self, identity: &Identity) -> bool {
        self.head().check(identity).is_ok()
    }

    /// Writes the head: the structure is complete from now on.
    pub fn finish(&self, identity: &Identity) {
        let head = self.head();
        head.version.store(identity.version, Ordering::Relaxed);
        head.kind.store(identity.kind.code(), Ordering::Relaxed);
        head.shape.store(identity.shape, Ordering::Relaxed);
        head.bytes.store(identity.bytes as u64, Ordering::Relaxed);
        head.magic.store(MAGIC, Ordering::Release);
    }

    /// The beginning of the structure. It is aligned to a page.
    pub fn body(&self) -> NonNull<u8> {
        // SAFETY: every mapping is longer than its head (`whole_bytes`).
        unsafe { self.start.add(HEAD_BYTES) }
    }

    /// Bytes of the structure from `at`. `None`: there are fewer.
    ///
    /// # Safety
    /// The mapping lives as long as the region and all copies of it, and no reference to the bytes exists.
    pub unsafe fn region(&self, at: usize, bytes: usize) -> Option<Region> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.body_bytes());
        // SAFETY: the bytes are in the mapping (checked), and the caller vouches for the rest.
        fits.then(|| unsafe { Region::new(self.body().add(at), bytes) })
    }

    /// Bytes of the structure.
    pub fn body_bytes(&self) -> usize {
        self.length.get() - HEAD_BYTES
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is page-aligned, at least a head long, zeroed or written as a head before (any bits are valid for
        // atomics), and only accessed by atomics.
        unsafe { self.start.cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of `of`, which nothing refers to any more: references into it borrow it.
        // The call fails for no mapping that was made so.
        let _ = unsafe { munmap(self.start.cast(), self.length.get()) };
    }
}

/// Returns whether a file is finished memory of exactly this identity. It maps nothing: another process may cut the file
/// in the meantime, which is then an error, and not the end of this process.
///
/// # Errors
/// Why it is not that memory.
pub fn check_file(file: &std::fs::File, identity: &Identity) -> Result<(), Mismatch> {
    check_size(file, identity)?;
    let mut bytes = [0; size_of::<Head>()];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).map_err(Mismatch::Unmapped)?;
    let word = |place: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[place + byte]));
    let half = |place: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[place + byte]));
    let head = Head {
        magic: AtomicU64::new(word(offset_of!(Head, magic))),
        version: AtomicU32::new(half(offset_of!(Head, version))),
        kind: AtomicU32::new(half(offset_of!(Head, kind))),
        shape: AtomicU64::new(word(offset_of!(Head, shape))),
        bytes: AtomicU64::new(word(offset_of!(Head, bytes))),
    };
    head.check(identity)
}

/// Checks that a file is of the exact size of a memory.
///
/// # Errors
/// Its size, or why it can't be found out.
pub fn check_size(file: &impl AsFd, identity: &Identity) -> Result<(), Mismatch> {
    let found = nix::sys::stat::fstat(file).map_err(|errno| Mismatch::Unmapped(errno.into()))?.st_size.unsigned_abs();
    let expected = whole_bytes(identity) as u64;
    if found == expected { Ok(()) } else { Err(Mismatch::Bytes { found, expected }) }
}

/// Returns whether a file begins like a memory of Bolide, of any kind and version.
pub fn has_head(file: &std::fs::File) -> bool {
    let mut magic = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut magic, 0).is_ok() && u64::from_le_bytes(magic) == MAGIC
}

/// Starts to write the changed pages of a file to its disk, without waiting for their end. (msync(2) with MS_ASYNC does nothing
/// on Linux.)
///
/// # Errors
/// The error of sync_file_range(2).
pub fn begin_sync(file: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: a plain system call on an open descriptor.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a digest of numbers that determine a layout: FNV-1a over their bytes.
pub fn fingerprint(numbers: &[u64]) -> u64 {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Bytes of the memory file of a structure.
pub fn whole_bytes(identity: &Identity) -> usize {
    HEAD_BYTES.saturating_add(identity.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { kind: MemoryKind::Cache, version: 1, shape: fingerprint(&[1, 2]), bytes: 10_000 }
    }

    #[test]
    fn a_second_mapping_sees_what_the_first_wrote() {
        let (first, memory) = Mapping::create("test", &identity()).expect("made");
        assert!(matches!(Mapping::attach(&memory, &identity()), Err(Mismatch::NoHead)), "it is not finished");
        // SAFETY: the byte is in the structure, and only this thread uses it.
        unsafe { first.body().add(9_999).write(7) };
        first.finish(&identity());
        let second = Mapping::attach(&memory, &identity()).expect("attached");
        // SAFETY: as above.
        assert_eq!(unsafe { second.body().add(9_999).read() }, 7);
        assert_eq!(second.body_bytes(), 10_000);
        assert!(begin_sync(&memory).is_ok());
    }

    #[test]
    fn memory_of_another_kind_version_shape_or_size_is_told_apart() {
        let (mapping, memory) = Mapping::create("test", &identity()).expect("made");
        mapping.finish(&identity());
        let attach = |identity: &Identity| Mapping::attach(&memory, identity).err().map(|mismatch| mismatch.to_string());
        assert_eq!(attach(&identity()), None);
        let other = |change: &dyn Fn(&mut Identity)| {
            let mut other = identity();
            change(&mut other);
            attach(&other).unwrap_or_default()
        };
        assert_eq!(other(&|identity| identity.version = 2), "it is from another version of Bolide");
        assert_eq!(other(&|identity| identity.kind = MemoryKind::Queue), "it is from another version of Bolide");
        assert_eq!(other(&|identity| identity.shape = 3), "it was created with other settings");
        assert_eq!(other(&|identity| identity.bytes = 3), "it has 14096 bytes, not 4099");
    }
}
