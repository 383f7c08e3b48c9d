//! An answer of a Redis server is read as the same value whole and byte by byte, or refused; an address is shown as one that
//! means the same.

use std::io::{self, Read};

use bolide_distributed::wire::{Reader, Unread, Value};
use bolide_distributed::{Address, Purpose};

use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target {
    name: "redis_answer",
    check,
    seeds,
    words: &[
        b"*2\r\n",
        b"$3\r\nabc\r\n",
        b":-7\r\n",
        b"+OK\r\n",
        b"-ERR no\r\n",
        b"$-1\r\n",
        b"*1\r\n*1\r\n",
        b"\r\n",
        b"redis://",
        b"?db=",
    ],
};

/// Bytes of an answer.
const BOUND: u64 = 300;

fn check(input: &[u8]) -> Result<Kind, String> {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(address) = Address::parse(text, Purpose::Jobs)
    {
        let shown = address.to_string();
        ensure!(
            Address::parse(&shown, Purpose::Jobs)
                .is_ok_and(|again| again.to_string() == shown && again.database == address.database),
            "an address is shown as something else: {shown}"
        );
    }
    let whole = Reader::default().read(&mut &input[..], BOUND);
    let slow = Reader::default().read(&mut Slow(input), BOUND);
    ensure!(format!("{whole:?}") == format!("{slow:?}"), "bytes one by one are read as something else: {whole:?} and {slow:?}");
    let value = match whole {
        Ok(value) => value,
        Err(Unread::Source(error)) => {
            ensure!(error.kind() == io::ErrorKind::UnexpectedEof, "the source has not failed");
            return Ok(Kind::of("unfinished"));
        }
        Err(Unread::TooLarge) => return Ok(Kind::of("large")),
        Err(Unread::Malformed) => return Ok(Kind::of("malformed")),
    };
    let mut source = input;
    let mut reader = Reader::default();
    let mut values = 0;
    while reader.read(&mut source, BOUND).is_ok() {
        values += 1;
    }
    ensure!(values > 0, "a value is not there for a second reader");
    Ok(Kind::of((shape(&value), values.min(5))))
}

fn shape(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Integer(number) => format!("integer {}", number.signum()),
        Value::Bytes(bytes) => format!("bytes {}", bytes.len().min(3)),
        Value::Status(_) => "status".to_owned(),
        Value::Error(_) => "error".to_owned(),
        Value::List(list) => format!("list of {:?}", list.iter().take(3).map(shape).collect::<Vec<_>>()),
    }
}

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

fn seeds() -> Vec<Vec<u8>> {
    [
        "*2\r\n*1\r\n:1\r\n$3\r\nabc\r\n",
        ":5\r\n:6\r\n+OK\r\n",
        "-WRONGTYPE no\r\n",
        "$-1\r\n*-1\r\n*0\r\n",
        "redis://me:word@[::1]:7000/3?connect-ms=20",
        "rediss://host.example/1?ca=/etc/ca.pem&prefix=a%20b",
        "redis+unix:///run/redis%20s?db=2",
        "redis://",
        "redis://127.0.0.1",
        "redis://:word@127.0.0.1:6379",
        "redis://127.0.0.1:0/0",
        "redis://127.0.0.1/0?answer-ms=0",
        "http://127.0.0.1",
        "+OK\r\n",
        ":-9223372036854775808\r\n",
        ":9223372036854775808\r\n",
        "$0\r\n\r\n",
        "$5\r\nab",
        "$3\r\nabcd\r\n",
        "$-2\r\n",
        "$999999999999\r\n",
        "*3\r\n$1\r\na\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        "*-2\r\n",
        "%1\r\n+a\r\n:1\r\n",
        "\r\n",
    ]
    .map(|seed| seed.as_bytes().to_vec())
    .to_vec()
}
