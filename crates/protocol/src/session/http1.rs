//! HTTP/1 as events: heads, and bodies by their framing. A header block that comes again is not parsed again.
//!
//! Clients that keep their connection send the same fields with each request: comparing them costs a tenth of reading them.

use super::body::BodyDecoder;
use super::event::{HeadBytes, HeadEvent, HeadParts, RequestHead, SessionEvent};
use crate::fault::{Fault, Progress};
use crate::http1::HeaderFacts;
use crate::http1::head::{HeadLimits, Version, header_block, leading_blank, request_line};
use crate::response::Wire;

/// Bytes of a header block that a connection remembers: an idle one has the block, and what was made of it, for as long as it lives.
const REMEMBERED_BYTES: usize = 4096;

/// After this many header blocks that were not the same as the one before, a connection stops to remember them.
const MEMORY_MISSES: u8 = 4;

#[derive(Debug, Default)]
pub struct Http1 {
    pub(super) body: BodyDecoder,
    /// How much of the input was already searched for the end of a head.
    searched: usize,
    last: LastBlock,
}

/// The header block that came last.
#[derive(Debug, Default)]
struct LastBlock {
    bytes: Vec<u8>,
    /// `None`: nothing is remembered.
    known: Option<(Version, HeaderFacts)>,
    misses: u8,
}

impl Http1 {
    /// The next request's head, while no body is open.
    pub(super) fn head(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        parts: &mut HeadParts,
    ) -> Result<(usize, SessionEvent), Fault> {
        let searched = std::mem::replace(&mut self.searched, input.len());
        if searched > 0 && searched <= input.len() && !has_head_end(input, searched) && input.len() < limits.head_bytes {
            return Ok((0, SessionEvent::More));
        }
        let blank = leading_blank(input);
        let bytes = &input[blank..];
        let Progress::Complete(line) = request_line(bytes, limits)? else { return Ok((0, SessionEvent::More)) };
        let block = &bytes[line.length as usize..];
        let repeated = self.last.facts_of(block, line.version);
        let facts = match repeated {
            Some(facts) => {
                // What is left there are the fields of another connection's block.
                parts.fields.clear();
                facts
            }
            None => match header_block(block, line.version, limits, &mut parts.fields)? {
                Progress::Complete(facts) => facts,
                Progress::Partial => return Ok((0, SessionEvent::More)),
            },
        };
        let length = line.length as usize + facts.length as usize;
        if length > limits.head_bytes {
            return Err(Fault::new(431, "The request's head is larger than buffer-size."));
        }
        if repeated.is_none() {
            self.last.remember(&block[..facts.length as usize], line.version, facts);
        }
        self.searched = 0;
        let head = HeadEvent {
            head: RequestHead::Http { line, facts },
            bytes: HeadBytes::Input(blank..blank + length),
            wire: Wire::Http11,
            body: self.body.begin(facts.framing),
            is_repeated: repeated.is_some(),
            is_remembered: self.last.known.is_some(),
        };
        Ok((blank + length, SessionEvent::Head(head)))
    }
}

impl LastBlock {
    /// What the block says, if it begins as the last one was. It ends with an empty line, so that it is the same then.
    #[inline]
    fn facts_of(&self, block: &[u8], version: Version) -> Option<HeaderFacts> {
        let (known, facts) = self.known?;
        (known == version && block.starts_with(&self.bytes)).then_some(facts)
    }

    /// Remembers a block whose connection goes on, unless this client never sends the same twice.
    fn remember(&mut self, block: &[u8], version: Version, facts: HeaderFacts) {
        if self.known.take().is_some() {
            self.misses = self.misses.saturating_add(1);
        }
        // A request to switch protocols is looked at field by field, and comes once.
        if facts.keep_alive && !facts.upgrade && self.misses < MEMORY_MISSES && block.len() <= REMEMBERED_BYTES {
            self.bytes.clear();
            self.bytes.extend_from_slice(block);
            self.known = Some((version, facts));
        } else {
            self.bytes = Vec::new();
        }
    }
}

/// Whether the end of a head may be in `bytes`, of which `searched` were looked at before. A bare LF counts too: it is
/// an error, and better said at once.
fn has_head_end(bytes: &[u8], searched: usize) -> bool {
    let fresh = &bytes[searched.saturating_sub(3).min(bytes.len())..];
    memchr::memmem::find(fresh, b"\n\r\n").is_some() || memchr::memmem::find(fresh, b"\n\n").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits =
        HeadLimits { request_line_bytes: 1 << 16, head_bytes: 1 << 16, header_count: 100, lenient_targets: false };

    fn request(bytes: usize, version: &str) -> Vec<u8> {
        let start = format!("GET / HTTP/{version}\r\n");
        let fields = "Host: localhost\r\nConnection: keep-alive\r\nX: ";
        [start.as_bytes(), fields.as_bytes(), &vec![b'x'; bytes - fields.len() - 4], b"\r\n\r\n"].concat()
    }

    fn head_of(session: &mut Http1, input: &[u8]) -> HeadEvent {
        match session.head(input, &LIMITS, &mut HeadParts::default()).expect("well-formed") {
            (used, SessionEvent::Head(head)) if used == input.len() => head,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_block_is_known_again_up_to_its_bound() {
        for (bytes, known) in [(100, true), (REMEMBERED_BYTES, true), (REMEMBERED_BYTES + 1, false), (60_000, false)] {
            let mut session = Http1::default();
            let first = head_of(&mut session, &request(bytes, "1.1"));
            assert_eq!((first.is_repeated, first.is_remembered), (false, known), "{bytes} bytes");
            assert_eq!(head_of(&mut session, &request(bytes, "1.1")).is_repeated, known, "{bytes} bytes");
            assert!(session.last.bytes.capacity() <= REMEMBERED_BYTES);
            assert!(!head_of(&mut session, &request(bytes, "1.0")).is_repeated);
        }
    }

    #[test]
    fn a_client_whose_blocks_differ_is_not_remembered_for_long() {
        let mut session = Http1::default();
        let remembered = (100..120).filter(|bytes| head_of(&mut session, &request(*bytes, "1.1")).is_remembered).count();
        assert_eq!(remembered, usize::from(MEMORY_MISSES));
    }
}
