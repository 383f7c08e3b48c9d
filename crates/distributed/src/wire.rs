//! Redis' protocol, RESP2 (redis.io/docs/latest/develop/reference/protocol-spec): commands as bytes, and answers read from bytes.
//!
//! The reader bounds the bytes, the depth and the length of lines, so that no answer of a server can take the process' memory or
//! stack. It does not know sockets. It reads from anything.

use std::io::{self, Read};

/// Arrays in arrays. The deepest answer that this crate asks for is a list of lists.
const MAX_DEPTH: u32 = 4;
/// Bytes of a line: a number, a status, or the text of an error.
const MAX_LINE_BYTES: usize = 4096;
/// Bytes that are read at a time, apart from those of a long value.
const PIECE_BYTES: usize = 4096;
/// Bytes of a value for which there is room before they have come.
const TRUSTED_BYTES: usize = 64 << 10;

/// A command with its arguments.
#[derive(Debug)]
pub struct Command {
    parts: u32,
    bytes: Vec<u8>,
}

impl Command {
    pub fn new(name: &str) -> Command {
        let mut command = Command { parts: 0, bytes: Vec::with_capacity(128) };
        command.arg(name);
        command
    }

    pub fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Command {
        let argument = argument.as_ref();
        self.parts += 1;
        self.bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        self.bytes.extend_from_slice(argument);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    pub fn number(&mut self, number: u64) -> &mut Command {
        self.arg(number.to_string())
    }

    pub fn packed(&self) -> Vec<u8> {
        [format!("*{}\r\n", self.parts).as_bytes(), &self.bytes].concat()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Nil,
    Integer(i64),
    Bytes(Vec<u8>),
    Status(String),
    /// The text begins with a word in capitals that says the kind: `WRONGTYPE …`.
    Error(String),
    List(Vec<Value>),
}

impl Value {
    pub fn is_ok(&self) -> bool {
        matches!(self, Value::Status(status) if status == "OK")
    }
}

/// Why there is no value.
#[derive(Debug)]
pub enum Unread {
    /// The source has failed, or has ended too early.
    Source(io::Error),
    TooLarge,
    /// The bytes are not of this protocol.
    Malformed,
}

/// Reads values from a source, one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes that have come, of which those from `at` on are not used yet.
    buffer: Vec<u8>,
    at: usize,
}

impl Reader {
    /// Adds bytes that the caller has read itself.
    pub fn give(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether bytes have come that no value has used yet.
    pub fn has_bytes(&self) -> bool {
        self.at < self.buffer.len()
    }

    /// Reads a value of at most `bytes_most` bytes. After an error nothing more can be read.
    pub fn read(&mut self, source: &mut impl Read, bytes_most: u64) -> Result<Value, Unread> {
        let mut reading = Reading { reader: self, source, left: bytes_most };
        reading.value(MAX_DEPTH)
    }
}

struct Reading<'a, S> {
    reader: &'a mut Reader,
    source: &'a mut S,
    left: u64,
}

impl<S: Read> Reading<'_, S> {
    fn value(&mut self, depth: u32) -> Result<Value, Unread> {
        let line = self.line()?;
        let (kind, rest) = line.split_first().ok_or(Unread::Malformed)?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        match kind {
            b'+' => Ok(Value::Status(text())),
            b'-' => Ok(Value::Error(text())),
            b':' => Ok(Value::Integer(number(rest)?)),
            b'$' => match number(rest)? {
                -1 => Ok(Value::Nil),
                length => self.bytes(u64::try_from(length).map_err(|_| Unread::Malformed)?),
            },
            b'*' => match number(rest)? {
                -1 => Ok(Value::Nil),
                length => {
                    let depth = depth.checked_sub(1).ok_or(Unread::Malformed)?;
                    let length = u64::try_from(length).map_err(|_| Unread::Malformed)?;
                    // No room is made for members that have not come: each one uses up bytes of the bound.
                    let mut list = Vec::new();
                    for _ in 0..length {
                        list.push(self.value(depth)?);
                    }
                    Ok(Value::List(list))
                }
            },
            _ => Err(Unread::Malformed),
        }
    }

    /// A line without its end.
    fn line(&mut self) -> Result<Vec<u8>, Unread> {
        let mut searched = 0;
        loop {
            let come = &self.reader.buffer[self.reader.at..];
            if let Some(end) = come[searched..].windows(2).position(|pair| pair == b"\r\n") {
                let line = come[..searched + end].to_vec();
                self.use_up(line.len() + 2)?;
                return Ok(line);
            }
            if come.len() > MAX_LINE_BYTES {
                return Err(Unread::Malformed);
            }
            searched = come.len().saturating_sub(1);
            self.fill(PIECE_BYTES)?;
        }
    }

    fn bytes(&mut self, length: u64) -> Result<Value, Unread> {
        if length > self.left {
            return Err(Unread::TooLarge);
        }
        let length = usize::try_from(length).map_err(|_| Unread::TooLarge)?;
        let mut value = Vec::with_capacity(length.min(TRUSTED_BYTES));
        let come = &self.reader.buffer[self.reader.at..];
        let first = come.len().min(length);
        value.extend_from_slice(&come[..first]);
        self.use_up(first)?;
        let rest = (length - first) as u64;
        let read = self.source.by_ref().take(rest).read_to_end(&mut value).map_err(Unread::Source)?;
        if (read as u64) < rest {
            return Err(Unread::Source(io::ErrorKind::UnexpectedEof.into()));
        }
        self.left = self.left.checked_sub(rest).ok_or(Unread::TooLarge)?;
        match self.line()?.as_slice() {
            [] => Ok(Value::Bytes(value)),
            _ => Err(Unread::Malformed),
        }
    }

    fn use_up(&mut self, count: usize) -> Result<(), Unread> {
        self.left = self.left.checked_sub(count as u64).ok_or(Unread::TooLarge)?;
        self.reader.at += count;
        if self.reader.at == self.reader.buffer.len() {
            self.reader.buffer.clear();
            self.reader.at = 0;
        }
        Ok(())
    }

    /// Appends what the source has, at most `count` bytes.
    fn fill(&mut self, count: usize) -> Result<(), Unread> {
        let reader = &mut *self.reader;
        reader.buffer.drain(..reader.at);
        reader.at = 0;
        let before = reader.buffer.len();
        reader.buffer.resize(before + count, 0);
        let read = loop {
            match self.source.read(&mut reader.buffer[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => break read,
            }
        };
        reader.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(Unread::Source(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error) => Err(Unread::Source(error)),
        }
    }
}

fn number(digits: &[u8]) -> Result<i64, Unread> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Unread::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that gives one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(buffer.len()).min(1);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(bytes: &[u8], most: u64) -> Result<Value, Unread> {
        let whole = Reader::default().read(&mut &bytes[..], most);
        let slow = Reader::default().read(&mut Slow(bytes), most);
        assert_eq!(format!("{whole:?}"), format!("{slow:?}"), "one byte at a time");
        whole
    }

    fn value(bytes: &[u8]) -> Value {
        read(bytes, 1 << 20).expect("a value")
    }

    #[test]
    fn a_command_is_an_array_of_its_parts() {
        let mut command = Command::new("SET");
        command.arg(b"k\r\n").arg("").number(7);
        assert_eq!(command.packed(), b"*4\r\n$3\r\nSET\r\n$3\r\nk\r\n\r\n$0\r\n\r\n$1\r\n7\r\n");
    }

    #[test]
    fn every_kind_of_answer_is_read() {
        assert_eq!(value(b"+OK\r\n"), Value::Status("OK".to_owned()));
        assert_eq!(value(b"-ERR no\r\n"), Value::Error("ERR no".to_owned()));
        assert_eq!(value(b":-7\r\n"), Value::Integer(-7));
        assert_eq!((value(b"$-1\r\n"), value(b"*-1\r\n")), (Value::Nil, Value::Nil));
        assert_eq!(value(b"$4\r\na\r\nb\r\n"), Value::Bytes(b"a\r\nb".to_vec()));
        let nested = Value::List(vec![Value::List(vec![Value::Integer(1)]), Value::Bytes(Vec::new())]);
        assert_eq!(value(b"*2\r\n*1\r\n:1\r\n$0\r\n\r\n"), nested);
        let large = [b"$100000\r\n".as_slice(), &[b'x'; 100_000], b"\r\n"].concat();
        assert_eq!(value(&large), Value::Bytes(vec![b'x'; 100_000]));
    }

    #[test]
    fn answers_that_come_together_are_read_one_after_the_other() {
        let (mut reader, mut source) = (Reader::default(), b":1\r\n$2\r\nab\r\n:2\r\n".as_slice());
        let values: Vec<Value> = (0..3).map(|_| reader.read(&mut source, 100).expect("a value")).collect();
        assert_eq!(values, [Value::Integer(1), Value::Bytes(b"ab".to_vec()), Value::Integer(2)]);
    }

    #[test]
    fn answers_have_bounds() {
        let nested = "*1\r\n".repeat(1_000_000);
        assert!(matches!(read(nested.as_bytes(), u64::MAX), Err(Unread::Malformed)));
        assert!(matches!(read(b"*9223372036854775807\r\n", 100), Err(Unread::Source(_))));
        assert!(matches!(read(b"$9223372036854775807\r\n", u64::MAX), Err(Unread::Source(_))));
        assert!(matches!(read(b"$200\r\n", 100), Err(Unread::TooLarge)));
        assert!(matches!(read(":1\r\n".repeat(100).replacen(':', "*99\r\n:", 1).as_bytes(), 100), Err(Unread::TooLarge)));
        assert!(matches!(read(&[b'+'; 100_000], u64::MAX), Err(Unread::Malformed)));
    }

    #[test]
    fn other_bytes_are_no_answer() {
        for bytes in ["HTTP/1.1 400 Bad Request\r\n", "\r\n", ":\r\n", ":1 \r\n", "$-2\r\n", "*-2\r\n", "$1\r\nab\r\n", ",1\r\n"]
        {
            assert!(matches!(read(bytes.as_bytes(), 100), Err(Unread::Malformed)), "{bytes:?}");
        }
        for bytes in ["", ":1", ":1\r", "$3\r\nab", "*2\r\n:1\r\n"] {
            let Err(Unread::Source(error)) = read(bytes.as_bytes(), 100) else { panic!("{bytes:?}") };
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
