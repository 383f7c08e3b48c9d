//! The keys of session tickets, in one page of shared memory that workers can't write. The master creates and rotates them; every
//! worker of every generation reads them, so that a client can resume its session at any worker.
//!
//! The engine defines what a ticket is and how it is sealed, and bounds the lifetime of sessions: a key only says who sealed the
//! ticket.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::{fmt, io};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap};

use crate::published::Published;
use crate::sealed_memory;

/// Bytes of a key's name, which is at the start of a ticket (RFC 5077 section 4).
pub const NAME_BYTES: usize = 16;
/// Bytes of a key's secret.
pub const SECRET_BYTES: usize = 32;

const KEY_WORDS: usize = (NAME_BYTES + SECRET_BYTES) / 8;
/// The next key, the current one, and the previous one.
const KEYS: usize = 3;
const WORDS: usize = KEYS * KEY_WORDS;
/// The index of the key that seals tickets, in the order of [`KEYS`]. Readers already know the next key while it becomes the
/// current one.
const IN_USE: usize = 1;

type Table = Published<WORDS>;

/// A session ticket key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TicketKey {
    pub name: [u8; NAME_BYTES],
    pub secret: [u8; SECRET_BYTES],
}

/// Hides the name as well as the secret, to be safe.
impl fmt::Debug for TicketKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TicketKey(not shown)")
    }
}

impl TicketKey {
    /// Makes a key of these random bytes.
    pub fn from_random(bytes: &[u8; NAME_BYTES + SECRET_BYTES]) -> TicketKey {
        let mut key = TicketKey { name: [0; NAME_BYTES], secret: [0; SECRET_BYTES] };
        key.name.copy_from_slice(&bytes[..NAME_BYTES]);
        key.secret.copy_from_slice(&bytes[NAME_BYTES..]);
        key
    }

    fn of_words(words: &[u64]) -> TicketKey {
        let mut bytes = [0; NAME_BYTES + SECRET_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        TicketKey::from_random(&bytes)
    }

    fn words(&self) -> [u64; KEY_WORDS] {
        let mut words = [0; KEY_WORDS];
        let bytes = self.name.iter().chain(&self.secret).copied();
        for (index, byte) in bytes.enumerate() {
            words[index / 8] |= u64::from(byte) << (index % 8 * 8);
        }
        words.map(u64::from_le)
    }
}

/// A worker's view of the keys.
#[derive(Debug, Clone, Copy)]
pub struct TicketKeys {
    table: &'static Table,
}

impl TicketKeys {
    /// Maps the master's memory for reading.
    ///
    /// # Errors
    /// The memory is of another kind, or can't be mapped.
    pub fn attach(memory: &OwnedFd) -> io::Result<TicketKeys> {
        Ok(TicketKeys { table: map(memory, ProtFlags::PROT_READ)? })
    }

    /// Returns the key that seals new tickets. `None`: the master has created none, and no ticket can be issued.
    pub fn encrypting(&self) -> Option<TicketKey> {
        self.table.read().map(|words| key_at(&words, IN_USE))
    }

    /// Returns the key of this name, if it is still valid. The master is responsible for expiry: it removes old keys from the
    /// table.
    pub fn named(&self, name: &[u8; NAME_BYTES]) -> Option<TicketKey> {
        let words = self.table.read()?;
        (0..KEYS).map(|index| key_at(&words, index)).find(|key| key.name == *name)
    }
}

/// The master's end of the same memory.
#[derive(Debug)]
pub struct TicketKeyring {
    table: &'static Table,
    memory: OwnedFd,
}

impl TicketKeyring {
    /// Creates the memory with these three keys: the current one, the next one, and the previous one.
    ///
    /// # Errors
    /// No memory, or no descriptor left.
    pub fn create(keys: [TicketKey; KEYS]) -> io::Result<TicketKeyring> {
        let memory = sealed_memory::create_unsealed(c"bolide-ticket-keys", size_of::<Table>() as u64)?;
        let table = map(&memory, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        // The master's own mapping stays writable; no other writable mapping can be made. Kernels before 5.1 do not support this
        // seal: the other processes of the instance are then trusted to only read, as they do.
        let _ = fcntl(memory.as_fd(), FcntlArg::F_ADD_SEALS(SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE)));
        sealed_memory::seal(&memory)?;
        let ring = TicketKeyring { table, memory };
        let [in_use, next, previous] = keys;
        ring.publish([next, in_use, previous]);
        Ok(ring)
    }

    /// Makes the next key the current one. The former current key still opens its tickets, and the key before it is dropped.
    pub fn rotate(&self, next: TicketKey) {
        // Only this process publishes, so the first attempt reads the last version.
        if let Some(words) = self.table.read() {
            self.publish([next, key_at(&words, 0), key_at(&words, IN_USE)]);
        }
    }

    /// The memory that workers inherit.
    pub fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    fn publish(&self, keys: [TicketKey; KEYS]) {
        let mut words = [0; WORDS];
        for (place, key) in words.chunks_exact_mut(KEY_WORDS).zip(keys) {
            place.copy_from_slice(&key.words());
        }
        self.table.publish(&words);
    }
}

fn key_at(words: &[u64; WORDS], index: usize) -> TicketKey {
    TicketKey::of_words(&words[index * KEY_WORDS..][..KEY_WORDS])
}

fn map(memory: &OwnedFd, protection: ProtFlags) -> io::Result<&'static Table> {
    let found = nix::sys::stat::fstat(memory)?.st_size;
    let Some(length) = std::num::NonZeroUsize::new(size_of::<Table>()).filter(|bytes| found == bytes.get() as i64) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the memory of ticket keys has {found} bytes")));
    };
    // SAFETY: a new mapping, at an address chosen by the kernel, of a file that is long enough (checked above).
    let start: NonNull<libc::c_void> = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, memory.as_fd(), 0)? };
    // SAFETY: the mapping above, whose contents are not changed: this keeps secrets out of core dumps. A failure is harmless.
    let _ = unsafe { madvise(start, length.get(), MmapAdvise::MADV_DONTDUMP) };
    // SAFETY: the mapping is page-aligned, zeroed at creation (valid for the type, which is atomics only), as long as the type,
    // never unmapped, and only accessed through atomics; a read-only mapping is only read (`TicketKeys` never publishes).
    Ok(unsafe { start.cast::<Table>().as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> TicketKey {
        let mut bytes = [number; NAME_BYTES + SECRET_BYTES];
        bytes[NAME_BYTES..].iter_mut().zip(0u8..).for_each(|(byte, index)| *byte = number ^ index);
        TicketKey::from_random(&bytes)
    }

    #[test]
    fn a_worker_reads_the_keys_that_the_master_made_and_those_after_a_rotation() {
        let ring = TicketKeyring::create([key(1), key(2), key(3)]).expect("made");
        let keys = TicketKeys::attach(ring.memory()).expect("attached");
        assert_eq!(keys.encrypting(), Some(key(1)));
        assert_eq!(keys.named(&key(2).name), Some(key(2)), "a key that is taken into use this moment opens its tickets already");
        ring.rotate(key(4));
        assert_eq!(keys.encrypting(), Some(key(2)));
        assert_eq!(keys.named(&key(1).name), Some(key(1)), "what was sealed before opens still");
        assert_eq!(keys.named(&key(3).name), None, "the last but one is forgotten");
        ring.rotate(key(5));
        assert_eq!((keys.encrypting(), keys.named(&key(1).name)), (Some(key(4)), None));
    }

    #[test]
    fn a_worker_can_not_change_the_keys() {
        let ring = TicketKeyring::create([key(1), key(2), key(3)]).expect("made");
        assert!(map(ring.memory(), ProtFlags::PROT_READ | ProtFlags::PROT_WRITE).is_err());
        assert!(nix::unistd::write(ring.memory(), b"x").is_err());
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let memory = sealed_memory::create_unsealed(c"bolide-test", 0).expect("made");
        assert!(TicketKeys::attach(&memory).is_err());
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", key(7)), "TicketKey(not shown)");
    }
}
