//! Content codings: which media types are compressed, and the encoders.
//!
//! It does not know about responses or heads: [`crate::response::filters`] calls it and passes the bytes. It runs on the thread
//! that serves the request.

use std::io::Write;

use bolide_contract::answering::{Coding, Compression};
use flate2::write::GzEncoder;

/// The window of brotli, as a power of two in bytes: larger windows only help large files, and each stream has its own.
const BROTLI_WINDOW: u32 = 19;

/// The size of brotli's output buffer.
const BROTLI_BUFFER_BYTES: usize = 4096;

/// The window of zstd, as a power of two in bytes. RFC 8878 section 3.1.1.1.2 recommends that decoders support at least 8 MiB; a
/// stream needs far less.
const ZSTD_WINDOW: u32 = 19;

/// Whether answers of this Content-Type are compressed. `text/event-stream` only matches if it is listed itself: a proxy may hold
/// back compressed data, and events are small and arrive one at a time.
pub fn is_wanted_type(compression: &Compression, content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|&byte| byte == b';').unwrap_or(content_type.len());
    let found = content_type[..end].trim_ascii().to_ascii_lowercase();
    compression.types.iter().any(|wanted| match wanted.split_once('*') {
        None => wanted.as_bytes() == found,
        Some(_) if found == b"text/event-stream" => false,
        Some((start, end)) => {
            found.len() >= start.len() + end.len() && found.starts_with(start.as_bytes()) && found.ends_with(end.as_bytes())
        }
    })
}

/// The encoder of a body.
pub enum Encoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl Encoder {
    /// `level` is 1 to 9, mapped to the levels of each coding.
    ///
    /// # Errors
    /// No memory for its tables.
    pub fn new(coding: Coding, level: u32) -> std::io::Result<Encoder> {
        Ok(match coding {
            Coding::Gzip => Encoder::Gzip(Box::new(GzEncoder::new(Vec::new(), flate2::Compression::new(level)))),
            Coding::Brotli => {
                Encoder::Brotli(Box::new(brotli::CompressorWriter::new(Vec::new(), BROTLI_BUFFER_BYTES, level, BROTLI_WINDOW)))
            }
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level as i32)?;
                encoder.window_log(ZSTD_WINDOW)?;
                Encoder::Zstd(Box::new(encoder))
            }
        })
    }

    /// Encodes a part of the body; available output is appended to `out`.
    ///
    /// # Errors
    /// An error of the encoder: the answer can't be completed.
    pub fn write(&mut self, part: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        self.writer().write_all(part)?;
        self.take(out);
        Ok(())
    }

    /// Flushes all input so far, so that the client can read it.
    ///
    /// # Errors
    /// As [`Encoder::write`].
    pub fn flush(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        self.writer().flush()?;
        self.take(out);
        Ok(())
    }

    /// Ends the body.
    ///
    /// # Errors
    /// As [`Encoder::write`].
    pub fn finish(self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let rest = match self {
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Brotli(encoder) => encoder.into_inner(),
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        out.extend_from_slice(&rest);
        Ok(())
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Encoder::Gzip(encoder) => encoder,
            Encoder::Brotli(encoder) => encoder,
            Encoder::Zstd(encoder) => encoder,
        }
    }

    fn take(&mut self, out: &mut Vec<u8>) {
        let made = match self {
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
            Encoder::Zstd(encoder) => encoder.get_mut(),
        };
        out.extend_from_slice(made);
        made.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_compared_without_their_parameters() {
        let usual = Compression::default();
        for (text, wanted) in [
            ("text/html", true),
            ("Text/HTML; charset=utf-8", true),
            ("application/json", true),
            ("application/problem+json ; x=y", true),
            ("image/svg+xml", true),
            ("text/event-stream", false),
            ("image/png", false),
            ("application/octet-stream", false),
            ("", false),
        ] {
            assert_eq!(is_wanted_type(&usual, text.as_bytes()), wanted, "{text}");
        }
        let events = Compression { types: vec!["text/event-stream".to_owned()], ..usual };
        assert!(is_wanted_type(&events, b"text/event-stream"));
    }

    #[test]
    fn flushed_data_can_be_decoded_at_once() {
        use std::io::Read;
        for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
            let mut encoder = Encoder::new(coding, 5).unwrap();
            let mut out = Vec::new();
            let read = |bytes: &[u8], most: u64| {
                let mut text = String::new();
                let decoder: Box<dyn Read + '_> = match coding {
                    Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
                    Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
                    Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
                };
                // Decoding exactly the flushed data must not need later bytes.
                decoder.take(most).read_to_string(&mut text).unwrap();
                text
            };
            encoder.write(b"first, ", &mut out).unwrap();
            encoder.flush(&mut out).unwrap();
            assert_eq!(read(&out, 7), "first, ", "{coding:?}");
            encoder.write(b"second", &mut out).unwrap();
            encoder.finish(&mut out).unwrap();
            assert_eq!(read(&out, 100), "first, second", "{coding:?}");
        }
    }
}
