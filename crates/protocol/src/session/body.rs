//! Finds the end of a request's body: by its length, or by its chunks.
//!
//! It stores no bytes: it returns which of them belong to the body. Workers run it.

use super::event::{NextEvent, SessionEvent};
use crate::http1::Framing;
use crate::http1::chunked::{ChunkedDecoder, ChunkedStep};

#[derive(Debug, Default)]
pub enum BodyDecoder {
    /// There is no body, or it has ended.
    #[default]
    Closed,
    /// Bytes that have not come yet.
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
}

impl BodyDecoder {
    /// Begins a body. Returns its framing, with `None` instead of an empty one.
    #[inline]
    pub fn begin(&mut self, framing: Framing) -> Framing {
        let framing = if framing == Framing::Length(0) { Framing::None } else { framing };
        *self = match framing {
            Framing::None => BodyDecoder::Closed,
            Framing::Length(length) => BodyDecoder::Length(length),
            Framing::Chunked => BodyDecoder::Chunked(Box::default()),
        };
        framing
    }

    #[inline]
    pub fn is_open(&self) -> bool {
        !matches!(self, BodyDecoder::Closed)
    }

    /// Returns the next part of the body, or its end. A body with a length ends with a separate event, which does not use any
    /// bytes.
    ///
    /// # Errors
    /// A malformed chunk.
    pub fn next(&mut self, input: &[u8]) -> NextEvent {
        match self {
            BodyDecoder::Closed | BodyDecoder::Length(0) => {
                *self = BodyDecoder::Closed;
                Ok((0, SessionEvent::End))
            }
            BodyDecoder::Length(_) if input.is_empty() => Ok((0, SessionEvent::More)),
            BodyDecoder::Length(left) => {
                let taken = (*left).min(input.len() as u64);
                *left -= taken;
                Ok((taken as usize, SessionEvent::Data(0..taken as usize)))
            }
            BodyDecoder::Chunked(decoder) => match decoder.step(input)? {
                ChunkedStep::Data { data, used } => Ok((used, SessionEvent::Data(data.start as usize..data.end as usize))),
                ChunkedStep::More { used } => Ok((used, SessionEvent::More)),
                ChunkedStep::Done { used } => {
                    *self = BodyDecoder::Closed;
                    Ok((used, SessionEvent::End))
                }
            },
        }
    }
}
