//! Chunked bodies.

use bolide_protocol::Fault;
use bolide_protocol::http1::chunked::{ChunkedDecoder, ChunkedStep};

use crate::cases::http1_chunked::LIMITS;
use crate::{Kind, Target, cases, ensure};

pub const TARGET: Target = Target {
    name: "http1_chunked",
    check,
    seeds,
    words: &[
        b"\r\n",
        b"\r",
        b"\n",
        b"0\r\n\r\n",
        b"0\r\n",
        b"5\r\nhello\r\n",
        b";a=b",
        b" ",
        b"\t",
        b":",
        b"A: b\r\n",
        b"\0",
        b"\xff",
        b"ffffffffffffffff",
        b"0000000000",
    ],
};

#[derive(Debug, PartialEq, Eq)]
struct Read {
    body: Vec<u8>,
    used: usize,
    done: bool,
}

fn check(input: &[u8]) -> Result<Kind, String> {
    let whole = read(input, usize::MAX)?;
    for piece_bytes in [1, 2, 3, 7] {
        let split = read(input, piece_bytes)?;
        ensure!(split == whole, "in pieces of {piece_bytes}: {split:?}, and whole: {whole:?}");
    }
    match whole {
        Err(fault) => {
            ensure!(matches!(fault.status, 400 | 431) && !fault.reason.is_empty(), "a fault without a status or a reason");
            Ok(Kind::of((fault.status, fault.reason)))
        }
        Ok(found) => {
            ensure!(found.done || found.used == input.len(), "input was left, and nothing said about it");
            if found.done {
                let plain = plain_body(&input[..found.used]);
                ensure!(plain.as_ref() == Some(&found.body), "a plain reader finds {plain:?}");
            }
            Ok(Kind::of((found.done, found.body.len().min(8), found.used == input.len())))
        }
    }
}

/// The outer error is a broken invariant, the inner one the decoder's.
fn read(input: &[u8], piece_bytes: usize) -> Result<Result<Read, Fault>, String> {
    let mut decoder = ChunkedDecoder::new(LIMITS);
    let mut found = Read { body: Vec::new(), used: 0, done: false };
    for piece in input.chunks(piece_bytes.min(input.len().max(1))) {
        let mut rest = piece;
        loop {
            let step = match decoder.step(rest) {
                Ok(step) => step,
                Err(fault) => {
                    ensure!(decoder.step(b"0\r\n\r\n") == Err(fault), "a decoder reads on after its fault");
                    return Ok(Err(fault));
                }
            };
            match step {
                ChunkedStep::Data { data, used } => {
                    ensure!(
                        !data.is_empty() && data.end as usize == used && used <= rest.len(),
                        "a step outside its input: {step:?}"
                    );
                    found.body.extend(data.of(rest));
                    found.used += used;
                    rest = &rest[used..];
                }
                ChunkedStep::More { used } => {
                    ensure!(used == rest.len(), "more is wanted before all was used");
                    found.used += used;
                    break;
                }
                ChunkedStep::Done { used } => {
                    ensure!(used <= rest.len(), "more was used than there is");
                    found.used += used;
                    found.done = true;
                    return Ok(Ok(found));
                }
            }
        }
    }
    Ok(Ok(found))
}

/// The body in bytes that are known to be valid, read with the whole available.
fn plain_body(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let digits = bytes[..end].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..digits]).ok()?, 16).ok()?;
        bytes = &bytes[end + 2..];
        if size == 0 {
            let trailer_is_good = bytes == b"\r\n" || bytes.ends_with(b"\r\n\r\n");
            return trailer_is_good.then_some(body);
        }
        body.extend(bytes.get(..size)?);
        bytes = bytes[size..].strip_prefix(b"\r\n")?;
    }
}

fn seeds() -> Vec<Vec<u8>> {
    cases::http1_chunked::CASES.iter().map(|case| case.bytes.to_vec()).collect()
}
