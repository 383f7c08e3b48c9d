//! The lives of a process' image: a worker's fork may become a prototype (`refork-after`), and its workers have everything that
//! the first worker knew of itself. What a process may set once is set again in the next life.
//!
//! Adapters and the engine use it. It does not know what the values are.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of lives that an image may have: the first, and one for each time that it became a prototype (`refork-max`).
pub const MAX_LIVES: usize = 8;

static LIFE: AtomicUsize = AtomicUsize::new(0);

/// This process has just become a prototype: its children set their values again. Returns `false`, and changes nothing, if it
/// has had [`MAX_LIVES`].
pub fn begin_next() -> bool {
    let next = LIFE.load(Relaxed) + 1;
    if next < MAX_LIVES {
        LIFE.store(next, Relaxed);
    }
    next < MAX_LIVES
}

/// Whether [`begin_next`] would return `false`.
pub fn is_last() -> bool {
    LIFE.load(Relaxed) + 1 >= MAX_LIVES
}

/// Number of the present life, from 0.
#[inline]
fn present() -> usize {
    LIFE.load(Relaxed)
}

/// A value that is set once in each life, and that threads then read without a lock.
pub struct PerLife<T>([OnceLock<T>; MAX_LIVES]);

impl<T> PerLife<T> {
    #[expect(clippy::new_without_default, reason = "it is made in constants only")]
    pub const fn new() -> PerLife<T> {
        PerLife([const { OnceLock::new() }; MAX_LIVES])
    }

    /// The value of the present life.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.get(present())?.get()
    }

    /// Sets the value of the present life.
    ///
    /// # Errors
    /// It was set in this life; returns the new value.
    pub fn set(&self, value: T) -> Result<(), T> {
        match self.0.get(present()) {
            Some(place) => place.set(value),
            None => Err(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The lives are those of the process, so one test has them all.
    #[test]
    fn a_value_is_set_once_in_each_life_and_lives_have_an_end() {
        static VALUE: PerLife<usize> = PerLife::new();
        for life in 0..MAX_LIVES {
            assert_eq!(VALUE.get(), None);
            assert_eq!(VALUE.set(life), Ok(()));
            assert_eq!(VALUE.set(100), Err(100));
            assert_eq!(VALUE.get(), Some(&life));
            assert_eq!(is_last(), life + 1 == MAX_LIVES);
            assert_eq!(begin_next(), life + 1 < MAX_LIVES);
        }
        assert_eq!(VALUE.get(), Some(&(MAX_LIVES - 1)));
    }
}
