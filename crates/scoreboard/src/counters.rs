//! Numbers in shared memory, which one thread counts without a lock, and their copies, which can be added up. One table makes
//! both structs, so a new number is a row of it. It does not know numbers. `models` runs it with the slot.

use crate::atomics::{AtomicU64, Ordering::Relaxed};

/// Numbers in shared memory, or one of them.
pub trait Shared {
    /// `()` for numbers that are not part of a sum.
    type Copied: Summed;

    /// Reads them. Each is read separately: a request that ends in the meantime may be in one and not in another.
    fn read(&self) -> Self::Copied;

    /// Sets them to zero, after their writer has ended. A number that is zero is not written, so that pages that were never used
    /// do not use memory.
    fn clear(&self);
}

/// A copy of numbers, or the sum of several.
pub trait Summed {
    fn zero() -> Self;

    /// Wraps around: a worker writes the memory, so the numbers may be anything.
    fn add(&mut self, more: &Self);
}

/// Adds to a counter that only the calling thread writes.
#[inline(always)]
pub fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// How many there are at present. It also falls, so it is not part of a sum over processes, of which some have ended.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl std::ops::Deref for Gauge {
    type Target = AtomicU64;

    #[inline(always)]
    fn deref(&self) -> &AtomicU64 {
        &self.0
    }
}

/// A struct of numbers in shared memory, and the struct of their copies: the same fields (`..`) and others, which come from
/// elsewhere. A struct without copies can only be cleared.
macro_rules! counters {
    (
        $(#[$about:meta])* pub struct $shared:ident {
            $($(#[$says:meta])* $visible:vis $field:ident: $kind:ty,)*
        }
        $(#[$about_copy:meta])* pub struct $copy:ident { .. $($(#[$adds:meta])* pub $further:ident: $summed:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $shared {
            $($(#[$says])* $visible $field: $kind,)*
        }

        $(#[$about_copy])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $copy {
            $($(#[$says])* pub $field: <$kind as Shared>::Copied,)*
            $($(#[$adds])* pub $further: $summed,)*
        }

        impl Shared for $shared {
            type Copied = $copy;

            fn read(&self) -> $copy {
                $copy { $($field: self.$field.read(),)* $($further: Summed::zero(),)* }
            }

            fn clear(&self) {
                $(self.$field.clear();)*
            }
        }

        impl Summed for $copy {
            fn zero() -> $copy {
                $copy { $($field: Summed::zero(),)* $($further: Summed::zero(),)* }
            }

            fn add(&mut self, more: &$copy) {
                $(self.$field.add(&more.$field);)*
                $(self.$further.add(&more.$further);)*
            }
        }

        impl Default for $copy {
            fn default() -> $copy {
                Summed::zero()
            }
        }

        impl std::ops::AddAssign<&$copy> for $copy {
            fn add_assign(&mut self, more: &$copy) {
                self.add(more);
            }
        }
    };
    ($(#[$about:meta])* pub struct $shared:ident { $($(#[$says:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $shared { $($(#[$says])* pub $field: $kind,)* }

        impl $shared {
            /// Sets all of its numbers to zero.
            pub fn clear(&self) {
                $(self.$field.store(0, Relaxed);)*
            }
        }
    };
}
pub(crate) use counters;

impl Shared for AtomicU64 {
    type Copied = u64;

    fn read(&self) -> u64 {
        self.load(Relaxed)
    }

    fn clear(&self) {
        if self.load(Relaxed) != 0 {
            self.store(0, Relaxed);
        }
    }
}

impl<T: Shared, const N: usize> Shared for [T; N] {
    type Copied = [T::Copied; N];

    fn read(&self) -> [T::Copied; N] {
        self.each_ref().map(T::read)
    }

    fn clear(&self) {
        self.iter().for_each(T::clear);
    }
}

impl Shared for Gauge {
    type Copied = ();

    fn read(&self) {}

    fn clear(&self) {
        self.0.clear();
    }
}

impl Summed for () {
    fn zero() {}

    fn add(&mut self, (): &()) {}
}

impl Summed for u64 {
    fn zero() -> u64 {
        0
    }

    fn add(&mut self, more: &u64) {
        *self = self.wrapping_add(*more);
    }
}

impl<T: Summed, const N: usize> Summed for [T; N] {
    fn zero() -> [T; N] {
        std::array::from_fn(|_| T::zero())
    }

    fn add(&mut self, more: &[T; N]) {
        self.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
    }
}

/// The sum is as long as the longer one.
impl<T: Summed> Summed for Vec<T> {
    fn zero() -> Vec<T> {
        Vec::new()
    }

    fn add(&mut self, more: &Vec<T>) {
        if self.len() < more.len() {
            self.resize_with(more.len(), T::zero);
        }
        self.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
    }
}
