//! The atomics of memory that processes share. `models` compiles the same files with its own atomics, to run them under every
//! order of reads and writes.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
pub use std::hint::spin_loop;
use std::mem::MaybeUninit;
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes from which on a string instruction is quicker than a loop of words: it needs some 30 ns to begin.
#[cfg(target_arch = "x86_64")]
const MIN_STRING_BYTES: usize = 512;

/// Copies bytes out of shared words with one instruction. False: it was not done, and a loop over the words is to do it.
///
/// Like loads with `Relaxed`, it may see a mixture of values if others write at the same time.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn load_string(words: &[AtomicU64], to: &mut [MaybeUninit<u8>]) -> bool {
    if to.len() < MIN_STRING_BYTES || size_of_val(words) < to.len() {
        return false;
    }
    // SAFETY: both ranges have the bytes that are copied, and they do not overlap, since `to` is borrowed alone. Other processes
    // may write to the words in the meantime: to the compiler an instruction of assembly is not a data race. The direction flag
    // is clear, as the ABI requires.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") to.len() => _,
            inout("rsi") words.as_ptr() => _,
            inout("rdi") to.as_mut_ptr() => _,
            options(nostack, preserves_flags)
        );
    }
    true
}

/// Copies bytes into shared words with one instruction. False: it was not done, and a loop over the words is to do it.
///
/// Its stores are not reordered with those before and after it (Intel SDM, volume 3, "Fast-String Operation and
/// Out-of-Order Stores").
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn store_string(words: &[AtomicU64], bytes: &[u8]) -> bool {
    if bytes.len() < MIN_STRING_BYTES || size_of_val(words) < bytes.len() {
        return false;
    }
    // SAFETY: both ranges have the bytes that are copied. An atomic may be written through a shared reference, and the words are
    // those of the caller's lock. The ranges do not overlap: no application can name the memory of a cache. As above for the
    // rest.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") bytes.len() => _,
            inout("rsi") bytes.as_ptr() => _,
            inout("rdi") words.as_ptr() => _,
            options(nostack, preserves_flags)
        );
    }
    true
}

#[cfg(not(target_arch = "x86_64"))]
pub fn load_string(_: &[AtomicU64], _: &mut [MaybeUninit<u8>]) -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
pub fn store_string(_: &[AtomicU64], _: &[u8]) -> bool {
    false
}
