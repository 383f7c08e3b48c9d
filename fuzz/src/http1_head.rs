//! Request heads: the request line and the header block after it.

use bolide_protocol::http1::head::{
    Field, Framing, HeadLimits, HeaderFacts, RequestLine, Version, header_block, leading_blank, request_line,
};
use bolide_protocol::{Fault, Progress, Span};

use crate::{Kind, Target, cases, ensure};

pub const TARGET: Target = Target {
    name: "http1_head",
    check,
    seeds,
    words: &[
        b"\r\n",
        b"\r",
        b"\n",
        b"\r\n\r\n",
        b" ",
        b"\t",
        b":",
        b",",
        b"\0",
        b"_",
        b"\x80",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: a\r\n",
        b"chunked",
        b"keep-alive",
        b"upgrade",
        b"18446744073709551615",
    ],
};

/// Low enough for small inputs to reach them, in bytes and fields.
const LIMITS: HeadLimits = HeadLimits::of(300, 600, 20);

/// Inputs up to this many bytes are tried with each of their prefixes, longer ones with some.
const EVERY_PREFIX_BYTES: usize = 256;
const SOME_PREFIXES: usize = 32;

/// The result of reading a head.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Head {
    start: usize,
    line: RequestLine,
    facts: HeaderFacts,
    fields: Vec<Field>,
}

fn check(input: &[u8]) -> Result<Kind, String> {
    let whole = read(input);
    check_prefixes(input, &whole)?;
    if whole != Ok(Progress::Partial) {
        for trailing in [b"\0".as_slice(), b"\r\n", b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"] {
            ensure!(read(&[input, trailing].concat()) == whole, "what follows the head changes it");
        }
    }
    match whole {
        Ok(Progress::Partial) => Ok(Kind::of("partial")),
        Err(fault) => {
            ensure!((400..600).contains(&fault.status) && !fault.reason.is_empty(), "a fault without a status or a reason");
            Ok(Kind::of((fault.status, fault.reason)))
        }
        Ok(Progress::Complete(head)) => {
            check_line(input, &head)?;
            check_fields(input, &head)?;
            let facts = head.facts;
            let framing = std::mem::discriminant(&facts.framing);
            Ok(Kind::of((
                framing,
                facts.keep_alive,
                facts.expect_continue,
                facts.upgrade,
                head.fields.len(),
                facts.host.is_some(),
            )))
        }
    }
}

fn read(input: &[u8]) -> Result<Progress<Head>, Fault> {
    let start = leading_blank(input);
    let Progress::Complete(line) = request_line(&input[start..], &LIMITS)? else { return Ok(Progress::Partial) };
    let mut fields = Vec::new();
    let block = &input[start + line.length as usize..];
    match header_block(block, line.version, &LIMITS, &mut fields)? {
        Progress::Complete(facts) => Ok(Progress::Complete(Head { start, line, facts, fields })),
        Progress::Partial => Ok(Progress::Partial),
    }
}

/// A prefix of a head is never complete before the whole would be, and a fault stays the same once it is found.
fn check_prefixes(input: &[u8], whole: &Result<Progress<Head>, Fault>) -> Result<(), String> {
    let step = if input.len() <= EVERY_PREFIX_BYTES { 1 } else { input.len().div_ceil(SOME_PREFIXES) };
    let mut settled = false;
    for end in (0..input.len()).step_by(step) {
        let part = read(&input[..end]);
        if part == Ok(Progress::Partial) {
            ensure!(!settled, "after {end} bytes what was settled is open again");
        } else {
            ensure!(part == *whole, "after {end} bytes: {part:?}, and in the end: {whole:?}");
            settled = true;
        }
    }
    Ok(())
}

/// The line consists of its parts, and no part contains a byte that could end it.
fn check_line(input: &[u8], head: &Head) -> Result<(), String> {
    let line = &input[head.start..][..head.line.length as usize];
    let (method, target) = (head.line.method.of(line), head.line.target.of(line));
    ensure!(!method.is_empty() && !target.is_empty(), "an empty method or target");
    ensure!(
        method.iter().chain(target).all(|&byte| byte.is_ascii_graphic() && byte != b'\\'),
        "a byte in method or target that is none of a URI's"
    );
    let again = [method, b" ", target, b" HTTP/1."].concat();
    ensure!(
        line.starts_with(&again) && line.len() == again.len() + 3 && line.ends_with(b"\r\n"),
        "the line is not made of its parts"
    );
    let minor = line[again.len()];
    let version = if minor == b'0' { Version::Http10 } else { Version::Http11 };
    ensure!(minor.is_ascii_digit() && version == head.line.version, "the version is another one");
    Ok(())
}

/// Another parser finds the same fields, and a plain reading of them gives the same framing.
fn check_fields(input: &[u8], head: &Head) -> Result<(), String> {
    let block = &input[head.start + head.line.length as usize..];
    let mut room = [httparse::EMPTY_HEADER; 64];
    let Ok(httparse::Status::Complete((length, theirs))) = httparse::parse_headers(block, &mut room) else {
        return Err("httparse refuses the header block".to_owned());
    };
    ensure!(length == head.facts.length as usize, "httparse ends the block after {length} bytes");
    let lines = block[..length].iter().filter(|&&byte| byte == b'\n').count();
    let returns = block[..length].iter().filter(|&&byte| byte == b'\r').count();
    ensure!(lines == theirs.len() + 1 && returns == lines, "the block has a line end that does not end a field");
    let kept: Vec<_> = theirs.iter().filter(|header| !header.name.contains('_')).collect();
    ensure!(kept.len() == head.fields.len(), "httparse finds {} fields", kept.len());
    for (header, field) in kept.iter().zip(&head.fields) {
        let same = header.name.as_bytes() == field.name.of(block) && header.value == field.value.of(block);
        ensure!(same, "httparse reads a field differently: {field:?}");
    }
    let values = |name: &str| -> Vec<&[u8]> {
        theirs.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value).collect()
    };
    let text = |span: Option<Span>| span.map(|span| span.of(block));
    match (head.facts.framing, values("content-length").as_slice(), values("transfer-encoding").as_slice()) {
        (Framing::None, [], []) => {}
        (Framing::Chunked, [], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => {
            ensure!(head.line.version == Version::Http11, "chunked in HTTP/1.0");
        }
        (Framing::Length(length), [number], []) if number.iter().all(u8::is_ascii_digit) => {
            let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
            ensure!(number == Some(length), "Content-Length is {number:?}");
        }
        (framing, lengths, codings) => {
            return Err(format!("{framing:?} from {} lengths and {} codings", lengths.len(), codings.len()));
        }
    }
    let hosts = values("host");
    ensure!(hosts.first().copied() == text(head.facts.host) && hosts.len() <= 1, "the host is another one");
    ensure!(head.line.version == Version::Http10 || hosts.len() == 1, "HTTP/1.1 without a host");
    Ok(())
}

fn seeds() -> Vec<Vec<u8>> {
    let lines = cases::http1_line::CASES.iter().map(|case| [case.bytes, b"Host: a\r\n\r\n"].concat());
    let blocks = cases::http1_block::CASES.iter().map(|case| {
        let line: &[u8] = if case.version == Version::Http11 { b"GET / HTTP/1.1\r\n" } else { b"GET / HTTP/1.0\r\n" };
        [line, case.bytes].concat()
    });
    let blank = [b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()];
    lines.chain(blocks).chain(blank).collect()
}
