//! The chunked transfer coding (RFC 9112 section 7.1): finds a body's bytes and its end in a client's data.
//!
//! The decoder copies nothing and stores only numbers, however the bytes are split. It must not know sockets or what happens to
//! the body; the caller limits the body's size. Workers run it.

use super::scan::is_token_byte;
use super::target::hexadecimal;
use crate::fault::{Fault, Span};

/// Bounds of the bytes of a chunked body besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkedLimits {
    /// Bytes of one chunk-size line, without its CRLF.
    pub size_line_bytes: usize,
    /// Bytes of chunk extensions in the whole body. Without this bound a client could send a hundred bytes for each byte of data.
    pub extension_bytes: usize,
    /// Bytes of the trailer section, without its last CRLF.
    pub trailer_bytes: usize,
    /// Fields of the trailer section.
    pub trailer_count: usize,
}

impl ChunkedLimits {
    pub const DEFAULT: ChunkedLimits =
        ChunkedLimits { size_line_bytes: 256, extension_bytes: 16 * 1024, trailer_bytes: 8 * 1024, trailer_count: 64 };
}

impl Default for ChunkedLimits {
    fn default() -> ChunkedLimits {
        ChunkedLimits::DEFAULT
    }
}

/// Decodes one chunked body.
#[derive(Debug, Clone)]
pub struct ChunkedDecoder {
    limits: ChunkedLimits,
    state: State,
    /// Bytes that are left of the current chunk; while its size is being parsed, the size so far.
    remaining: u64,
    /// Bytes of the current chunk-size line so far.
    size_line_bytes: usize,
    extension_bytes: usize,
    trailer_bytes: usize,
    trailer_count: usize,
    /// The body is complete with its last chunk, and the caller reads the trailer section.
    leaves_trailers: bool,
}

/// The result of [`ChunkedDecoder::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkedStep {
    /// `data` of the input belongs to the body and is never empty; `used` bytes of input are consumed.
    Data { data: Span, used: usize },
    /// All of the input was consumed; more is needed.
    More { used: usize },
    /// The body is complete; `used` bytes are consumed, and the rest belongs to the next request.
    Done { used: usize },
}

/// The expected meaning of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The first digit of a chunk's size.
    SizeStart,
    /// Another digit, or the end of the size.
    Size,
    Extension(Extension),
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    /// The first byte of a trailer field, or of the empty line that ends the body.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    Done,
    /// A fault was found. The bytes after it cannot be trusted, so every later call returns it.
    Failed(Fault),
}

/// The last byte of a chunk extension (RFC 9112 section 7.1.1): `*( BWS ";" BWS name [ BWS "=" BWS value ] )`, where a value is a
/// token or a quoted string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// The semicolon, or a blank after it.
    Semicolon,
    Name,
    /// A blank after a name: blanks may stand before a semicolon or an equals sign, but not at the end of a line.
    NameBlank,
    /// The equals sign, or a blank after it.
    Equals,
    Value,
    /// The opening quote, or a byte after it.
    Quoted,
    /// A backslash in quotes.
    Escape,
    ClosingQuote,
    /// A blank after a value, or after the size itself.
    Blank,
}

impl Extension {
    /// Returns the state after one more byte; `None` if the byte is not allowed here.
    fn after(self, byte: u8) -> Option<Extension> {
        use Extension::{Blank, ClosingQuote, Equals, Escape, Name, NameBlank, Quoted, Semicolon, Value};
        Some(match (self, byte) {
            // RFC 9110 section 5.6.4.
            (Quoted, b'"') => ClosingQuote,
            (Quoted, b'\\') => Escape,
            (Quoted | Escape, b'\t' | b' '..=b'~' | 0x80..) => Quoted,
            (Semicolon, b' ' | b'\t') => Semicolon,
            (Semicolon | Name, _) if is_token_byte(byte) => Name,
            (Name | NameBlank, b' ' | b'\t') => NameBlank,
            (Name | NameBlank, b'=') => Equals,
            (Equals, b' ' | b'\t') => Equals,
            (Equals, b'"') => Quoted,
            (Equals | Value, _) if is_token_byte(byte) => Value,
            (Value | ClosingQuote | Blank, b' ' | b'\t') => Blank,
            (Name | NameBlank | Value | ClosingQuote | Blank, b';') => Semicolon,
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(self, Extension::Name | Extension::Value | Extension::ClosingQuote)
    }
}

impl Default for ChunkedDecoder {
    /// Uses [`ChunkedLimits::DEFAULT`].
    fn default() -> ChunkedDecoder {
        ChunkedDecoder::new(ChunkedLimits::DEFAULT)
    }
}

impl ChunkedDecoder {
    pub fn new(limits: ChunkedLimits) -> ChunkedDecoder {
        ChunkedDecoder {
            limits,
            state: State::SizeStart,
            remaining: 0,
            size_line_bytes: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            trailer_count: 0,
            leaves_trailers: false,
        }
    }

    /// As [`ChunkedDecoder::new`], but it is done after the line of the last chunk: the trailer section is left to the caller.
    pub fn without_trailers(limits: ChunkedLimits) -> ChunkedDecoder {
        ChunkedDecoder { leaves_trailers: true, ..ChunkedDecoder::new(limits) }
    }

    /// Continues after the last step. Call it again with the input after `used`, until it returns `More` or `Done`. For a
    /// complete body it returns `Done` again, with nothing used.
    ///
    /// # Errors
    /// 400 for anything that is not a chunk, 431 for trailer fields beyond a limit. Every later call returns the same error.
    pub fn step(&mut self, input: &[u8]) -> Result<ChunkedStep, Fault> {
        let mut used = 0;
        loop {
            match self.state {
                State::Done => return Ok(ChunkedStep::Done { used }),
                State::Failed(fault) => return Err(fault),
                _ => {}
            }
            let rest = &input[used..];
            let [byte, ..] = rest else { return Ok(ChunkedStep::More { used }) };
            if self.state == State::Data {
                return Ok(self.take_data(used, rest.len()));
            }
            used += 1;
            self.state = self.after(*byte).unwrap_or_else(State::Failed);
        }
    }

    fn take_data(&mut self, start: usize, available: usize) -> ChunkedStep {
        // The second bound only applies to inputs of more than 4 GiB, whose data is returned in several steps.
        let reach = Span::REACH_BYTES.saturating_sub(start);
        let taken = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(available).min(reach);
        self.remaining -= taken as u64;
        if self.remaining == 0 {
            self.state = State::DataReturn;
        }
        let used = start + taken;
        ChunkedStep::Data { data: Span::between(start, used), used }
    }

    /// Returns the state after one byte that is not data.
    fn after(&mut self, byte: u8) -> Result<State, Fault> {
        match self.state {
            State::SizeStart | State::Size | State::Extension(_) => self.after_size_line_byte(byte),
            State::SizeLineFeed => {
                line_feed(byte)?;
                self.size_line_bytes = 0;
                Ok(match self.remaining {
                    0 if self.leaves_trailers => State::Done,
                    0 => State::TrailerStart,
                    _ => State::Data,
                })
            }
            State::DataReturn if byte == b'\r' => Ok(State::DataLineFeed),
            State::DataReturn => Err(Fault::bad_request("A chunk's data is not followed by CRLF.")),
            State::DataLineFeed => line_feed(byte).map(|()| State::SizeStart),
            State::TrailerStart | State::TrailerName | State::TrailerValue => self.after_trailer_byte(byte),
            State::TrailerLineFeed => line_feed(byte).map(|()| State::TrailerStart),
            State::LastLineFeed => line_feed(byte).map(|()| State::Done),
            state @ (State::Data | State::Done | State::Failed(_)) => Ok(state),
        }
    }

    fn after_size_line_byte(&mut self, byte: u8) -> Result<State, Fault> {
        match self.state {
            State::Size if byte == b'\r' => return Ok(State::SizeLineFeed),
            State::Extension(extension) if byte == b'\r' && extension.may_end() => return Ok(State::SizeLineFeed),
            _ => {}
        }
        self.size_line_bytes += 1;
        if self.size_line_bytes > self.limits.size_line_bytes {
            return Err(Fault::bad_request("A chunk-size line is longer than the limit."));
        }
        match (self.state, byte) {
            (State::SizeStart | State::Size, _) if byte.is_ascii_hexdigit() => {
                let digit = hexadecimal(byte).unwrap_or(0);
                if self.remaining >> 60 != 0 {
                    return Err(Fault::bad_request("A chunk's size does not fit into 64 bits."));
                }
                self.remaining = self.remaining << 4 | u64::from(digit);
                Ok(State::Size)
            }
            (State::Size, b' ' | b'\t') => self.count_extension_byte(Extension::Blank),
            (State::Size, b';') => self.count_extension_byte(Extension::Semicolon),
            // The meaning of an extension does not matter here, but all parsers must agree on where it ends.
            (State::Extension(extension), _) => match extension.after(byte) {
                Some(next) => self.count_extension_byte(next),
                None => Err(Fault::bad_request("A chunk extension is malformed.")),
            },
            _ => Err(Fault::bad_request("A chunk's size is not a hexadecimal number.")),
        }
    }

    fn count_extension_byte(&mut self, next: Extension) -> Result<State, Fault> {
        self.extension_bytes += 1;
        if self.extension_bytes > self.limits.extension_bytes {
            return Err(Fault::bad_request("The body's chunk extensions are longer than the limit."));
        }
        Ok(State::Extension(next))
    }

    /// Trailer fields must follow the grammar of header fields, and are dropped.
    fn after_trailer_byte(&mut self, byte: u8) -> Result<State, Fault> {
        if self.state == State::TrailerStart {
            if byte == b'\r' {
                return Ok(State::LastLineFeed);
            }
            self.trailer_count += 1;
            if self.trailer_count > self.limits.trailer_count {
                return Err(Fault::new(431, "The body has more trailer fields than the limit."));
            }
        }
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.limits.trailer_bytes {
            return Err(Fault::new(431, "The body's trailer fields are longer than the limit."));
        }
        match (self.state, byte) {
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => Ok(State::TrailerName),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLineFeed),
            (State::TrailerValue, _) => Err(Fault::bad_request("A trailer field's value has a control character.")),
            _ => Err(Fault::bad_request("A trailer field's name is malformed.")),
        }
    }
}

fn line_feed(byte: u8) -> Result<(), Fault> {
    if byte == b'\n' { Ok(()) } else { Err(Fault::bad_request("A CR in a chunked body is not followed by LF.")) }
}
