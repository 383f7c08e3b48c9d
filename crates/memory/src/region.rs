//! Bytes of a shared mapping, read and written in place. It checks bounds, and knows neither files nor the meaning of bytes.
//! Every process of an instance runs it.
//!
//! Other processes see the same bytes, so no reference to them exists: they are copied, or moved as whole words.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap};

/// A part of a mapping that is never unmapped.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is an address and a length. The bytes are shared between processes anyway, and their users take the lock that
// belongs to them.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    /// The bytes are mapped for reading and writing, stay mapped for the life of the process, and no reference to them exists.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Region {
        Region { start, bytes }
    }

    /// Maps bytes of a file, which stay mapped for the life of the process.
    ///
    /// # Errors
    /// The file is shorter, or can't be mapped.
    pub fn map(file: &impl AsFd, offset: u64, bytes: usize) -> io::Result<Region> {
        /// The start of a mapping is a multiple of it; larger pages are not rounded here, so mmap(2) refuses other offsets.
        const PAGE_BYTES: u64 = 4096;
        let before = usize::try_from(offset % PAGE_BYTES).unwrap_or(0);
        let end = offset.checked_add(bytes as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let found = nix::sys::stat::fstat(file)?.st_size.unsigned_abs();
        // A read behind the end of a file would be a SIGBUS.
        if end > found {
            return Err(io::Error::other(format!("it has {found} bytes, and {end} are needed")));
        }
        let length = bytes.checked_add(before).and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let from = i64::try_from(offset - before as u64).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, at an address chosen by the kernel, of a file that is long enough (checked above).
        let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file.as_fd(), from)? };
        // SAFETY: the bytes are in the mapping, which is never unmapped, and no reference to them exists.
        Ok(unsafe { Region::new(start.cast::<u8>().add(before), bytes) })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the first byte, for an object of the language that shows the bytes.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns whether `count` bytes from `at` are in the region.
    pub fn holds(&self, at: usize, count: usize) -> bool {
        at.checked_add(count).is_some_and(|end| end <= self.bytes)
    }

    /// Copies bytes out. False: they are not in the region, and nothing was copied.
    #[must_use]
    pub fn copy_out(&self, at: usize, into: &mut [u8]) -> bool {
        let fits = self.holds(at, into.len());
        if fits {
            // SAFETY: the bytes are in the region (checked above), and a mapping does not overlap an exclusive reference.
            unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), into.as_mut_ptr(), into.len()) };
        }
        fits
    }

    /// Copies bytes in. False: there is no room for them, and nothing was copied.
    #[must_use]
    pub fn copy_in(&self, at: usize, bytes: &[u8]) -> bool {
        let fits = self.holds(at, bytes.len());
        if fits {
            // SAFETY: the bytes are in the region (checked above). The source may be in the region too, if it is a view that the
            // application has made, so the copy allows an overlap.
            unsafe { std::ptr::copy(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
        }
        fits
    }

    /// Reads a number of any alignment. `None`: it is not in the region.
    pub fn get<T: Number>(&self, at: usize) -> Option<T> {
        // SAFETY: the bytes are in the region (checked), and each pattern of bytes is a number.
        self.holds(at, size_of::<T>()).then(|| unsafe { self.start.as_ptr().add(at).cast::<T>().read_unaligned() })
    }

    /// Writes a number at any alignment, by one instruction. `None`: it is not in the region.
    #[must_use]
    pub fn set<T: Number>(&self, at: usize, number: T) -> Option<()> {
        // SAFETY: as above.
        self.holds(at, size_of::<T>()).then(|| unsafe { self.start.as_ptr().add(at).cast::<T>().write_unaligned(number) })
    }
}

/// A whole number of 1 to 8 bytes.
pub trait Number: Copy + private::Sealed {
    /// Adds, and wraps around at the end of the type, as uWSGI does.
    fn plus(self, other: Self) -> Self;
}

mod private {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($name:ty),*) => {
        $(
            impl private::Sealed for $name {}
            impl Number for $name {
                fn plus(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }
            }
        )*
    };
}
numbers!(i8, i16, i32, i64, u64);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A region of zeroed bytes for a test.
    pub fn region(bytes: usize) -> Region {
        let words = vec![0u64; bytes.div_ceil(8)].leak();
        // SAFETY: the words are leaked, and no other reference to them exists.
        unsafe { Region::new(NonNull::from(words).cast(), bytes) }
    }

    #[test]
    fn nothing_outside_of_a_region_is_touched() {
        let region = region(16);
        assert!(region.copy_in(8, b"12345678") && !region.copy_in(9, b"12345678") && !region.copy_in(usize::MAX, b"1"));
        let mut out = [0; 8];
        assert!(region.copy_out(8, &mut out) && !region.copy_out(9, &mut out) && !region.copy_out(usize::MAX, &mut out));
        assert_eq!(&out, b"12345678");
        assert_eq!((region.set(3, -5i64), region.get::<i64>(3)), (Some(()), Some(-5)));
        assert_eq!((region.set(15, 1i8), region.get::<i8>(15)), (Some(()), Some(1)));
        assert_eq!((region.set(15, 1i16), region.get::<i16>(15), region.get::<i64>(usize::MAX)), (None, None, None));
    }
}
