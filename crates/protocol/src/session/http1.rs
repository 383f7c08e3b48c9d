//! HTTP/1 as events: heads, and bodies by their framing. A repeated header block is not parsed again. Workers run it.
//!
//! Clients that keep their connection open send the same fields with each request: comparing them costs a tenth of parsing them.

use super::body::BodyDecoder;
use super::event::{HeadBytes, HeadEvent, HeadParts, NextEvent, RequestHead, SessionEvent};
use super::last_block::LastBlock;
use crate::fault::{Fault, Progress};
use crate::http1::head::{HeadLimits, header_block, leading_blank, request_line};
use crate::response::Wire;

#[derive(Debug, Default)]
pub struct Http1 {
    pub(super) body: BodyDecoder,
    /// How much of the input was already searched for the end of a head.
    searched: usize,
    last: LastBlock,
}

impl Http1 {
    /// Returns the next request's head, while no body is open.
    pub(super) fn head(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> NextEvent {
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
                // The list still has the fields of another connection's block.
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
            is_remembered: self.last.is_known(),
        };
        Ok((blank + length, SessionEvent::Head(head)))
    }
}

/// Whether `bytes` may contain the end of a head; `searched` of them were searched before. A bare LF counts too: it is an error,
/// and better reported immediately.
fn has_head_end(bytes: &[u8], searched: usize) -> bool {
    let fresh = &bytes[searched.saturating_sub(3).min(bytes.len())..];
    memchr::memmem::find(fresh, b"\n\r\n").is_some() || memchr::memmem::find(fresh, b"\n\n").is_some()
}

#[cfg(test)]
mod tests {
    use super::super::last_block::{MEMORY_MISSES, REMEMBERED_BYTES};
    use super::*;

    const LIMITS: HeadLimits = HeadLimits::of(1 << 16, 1 << 16, 100);

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
    fn a_repeated_block_is_recognized_up_to_its_bound() {
        for (bytes, known) in [(100, true), (REMEMBERED_BYTES, true), (REMEMBERED_BYTES + 1, false), (60_000, false)] {
            let mut session = Http1::default();
            let first = head_of(&mut session, &request(bytes, "1.1"));
            assert_eq!((first.is_repeated, first.is_remembered), (false, known), "{bytes} bytes");
            assert_eq!(head_of(&mut session, &request(bytes, "1.1")).is_repeated, known, "{bytes} bytes");
            assert!(session.last.capacity() <= REMEMBERED_BYTES);
            assert!(!head_of(&mut session, &request(bytes, "1.0")).is_repeated);
        }
    }

    #[test]
    fn blocks_of_a_client_that_never_repeats_them_are_soon_not_remembered() {
        let mut session = Http1::default();
        let remembered = (100..120).filter(|bytes| head_of(&mut session, &request(*bytes, "1.1")).is_remembered).count();
        assert_eq!(remembered, usize::from(MEMORY_MISSES));
    }
}
