//! A body that an application has framed in chunks itself, with `Transfer-Encoding: chunked`. Under uWSGI such a body goes to the
//! client as it is, so its application relies on that. Here the chunks are decoded, and the session's encoder frames the data for
//! the protocol of the client. It does not know about responses. Worker threads run it.

use bolide_protocol::http1::chunked::{ChunkedDecoder, ChunkedStep};

/// How an application violated its own framing, as the rest of a sentence.
pub const NO_CHUNKS: &str = "has `Transfer-Encoding: chunked`, but its body does not consist of chunks; closing the connection";
pub const MORE_BEHIND: &str = "has data after its last chunk; the rest was cut";

/// The decoder of an application's own chunks.
#[derive(Default)]
pub struct OwnChunks {
    decoder: ChunkedDecoder,
    /// The state before the data that [`OwnChunks::next`] returned last.
    before: ChunkedDecoder,
}

/// What comes next in a part of the body.
pub enum OwnChunk<'a> {
    /// Data, and the number of bytes up to its end.
    Data { data: &'a [u8], used: usize },
    /// The part is used up.
    More,
    /// The body is complete. `is_exact`: nothing follows it.
    End { is_exact: bool },
    /// This is not a chunk.
    Malformed,
}

impl OwnChunks {
    pub fn next<'a>(&mut self, part: &'a [u8]) -> OwnChunk<'a> {
        self.before = self.decoder.clone();
        match self.decoder.step(part) {
            Ok(ChunkedStep::Data { data, used }) => OwnChunk::Data { data: data.of(part), used },
            Ok(ChunkedStep::More { .. }) => OwnChunk::More,
            Ok(ChunkedStep::Done { used }) => OwnChunk::End { is_exact: used == part.len() },
            Err(_) => OwnChunk::Malformed,
        }
    }

    /// Only this many bytes of a part were taken, in the data that was returned last: the others will come again.
    pub fn take_only(&mut self, part: &[u8], taken: usize) {
        self.decoder = self.before.clone();
        // These bytes have been decoded before, so this can't fail.
        let _ = self.decoder.step(&part[..taken]);
    }

    /// The last chunk has come.
    pub fn is_complete(&mut self) -> bool {
        matches!(self.decoder.step(b""), Ok(ChunkedStep::Done { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a body of which each push takes at most `most` bytes of data.
    fn decoded(body: &[u8], most: usize) -> (Vec<u8>, bool) {
        let (mut own, mut found, mut rest) = (OwnChunks::default(), Vec::new(), body);
        loop {
            match own.next(rest) {
                OwnChunk::Data { data, used } => {
                    let taken = data.len().min(most);
                    found.extend_from_slice(&data[..taken]);
                    let used = used - (data.len() - taken);
                    if taken < data.len() {
                        own.take_only(rest, used);
                    }
                    rest = &rest[used..];
                }
                OwnChunk::More | OwnChunk::Malformed => return (found, false),
                OwnChunk::End { .. } => return (found, own.is_complete()),
            }
        }
    }

    #[test]
    fn data_that_was_not_taken_comes_again() {
        for most in 1..8 {
            let body = b"4\r\none \r\n9;a=b\r\ntwo three\r\n0\r\n\r\n";
            assert_eq!(decoded(body, most), (b"one two three".to_vec(), true), "{most}");
            assert_eq!(decoded(&body[..body.len() - 2], most), (b"one two three".to_vec(), false), "{most}");
        }
        assert_eq!(decoded(b"one", 8), (Vec::new(), false));
    }
}
