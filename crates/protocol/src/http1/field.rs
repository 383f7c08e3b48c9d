//! A header field as spans. Plain data.

use crate::fault::Span;

/// One header field: spans relative to the bytes of the header block. The value is trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub name: Span,
    pub value: Span,
}
