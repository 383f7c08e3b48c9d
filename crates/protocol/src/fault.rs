//! Types that every codec returns: a span of the bytes, a need for more of them, or a peer's mistake.
//!
//! Must not know any protocol. Workers run it.

/// A peer's mistake: the status of the answer and a sentence that describes it.
///
/// The sentence is fixed text and never quotes the bytes: it goes to the log, and the bytes may be a secret header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub status: u16,
    pub reason: &'static str,
    /// The bytes are of another protocol than the socket's: the peer or the socket is misconfigured, and so is each later
    /// request.
    pub is_mixup: bool,
}

impl Fault {
    pub const fn new(status: u16, reason: &'static str) -> Fault {
        Fault { status, reason, is_mixup: false }
    }

    /// 400: the bytes violate the protocol, or two parsers could read them differently.
    pub const fn bad_request(reason: &'static str) -> Fault {
        Fault::new(400, reason)
    }

    /// 400: the bytes are of another protocol than the socket's.
    pub const fn mixup(reason: &'static str) -> Fault {
        Fault { is_mixup: true, ..Fault::bad_request(reason) }
    }
}

/// A span of a buffer, in bytes, relative to the slice that was parsed.
///
/// It does not hold a reference, so it can be stored next to the buffer that it refers to, and it is half the size of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// The part of a slice that spans can address, in bytes. Codecs stop parsing here, whatever their limits are.
    pub const REACH_BYTES: usize = u32::MAX as usize;

    /// Returns the bytes of the span; empty if they do not lie in `bytes`.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns the same span relative to a buffer that has `by` more bytes before it.
    #[inline]
    #[must_use]
    pub fn shifted(self, by: u32) -> Span {
        Span { start: self.start.saturating_add(by), end: self.end.saturating_add(by) }
    }

    /// Codecs cut their input to [`Span::REACH_BYTES`] first, so neither number is ever truncated here.
    #[inline]
    pub(crate) fn between(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= Span::REACH_BYTES);
        Span { start: start as u32, end: end as u32 }
    }
}

/// A codec's result so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<T> {
    Complete(T),
    /// More bytes are needed.
    Partial,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_span_of_other_bytes_is_empty_and_no_panic() {
        assert_eq!(Span { start: 1, end: 3 }.of(b"abcd"), b"bc");
        for span in [Span { start: 1, end: 5 }, Span { start: 3, end: 1 }, Span { start: u32::MAX, end: u32::MAX }] {
            assert_eq!(span.of(b"abcd"), b"");
        }
        assert_eq!(Span { start: 3, end: 1 }.len(), 0);
        assert!(Span { start: 3, end: 1 }.is_empty());
        assert_eq!(Span { start: 1, end: 3 }.shifted(10), Span { start: 11, end: 13 });
    }
}
