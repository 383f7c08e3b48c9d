//! Request heads of SCGI.

use bolide_protocol::scgi::{ScgiHead, request_head};
use bolide_protocol::{Fault, Progress};

use crate::cases::scgi::{CASES, MAX_BLOCK_BYTES};
use crate::{Kind, Target, ensure, variables};

pub const TARGET: Target = Target {
    name: "scgi",
    check,
    seeds,
    words: &[
        b"24:CONTENT_LENGTH\x000\0SCGI\x001\0,",
        b"CONTENT_LENGTH\x005\0",
        b"SCGI\x001\0",
        b"REQUEST_METHOD\0HEAD\0",
        b"REQUEST_URI\0/\0",
        b"SERVER_PROTOCOL\0HTTP/1.1\0",
        b"A\0b\0",
        b"A\0\0",
        b"\0\0",
        b"\0,",
        b"999999999:",
        b"0:,",
    ],
};

fn check(input: &[u8]) -> Result<Kind, String> {
    let head = match read(input)? {
        Ok(Progress::Complete(head)) => head,
        Ok(Progress::Partial) => return Ok(Kind::of("partial")),
        Err(fault) => {
            ensure!(matches!(fault.status, 400 | 431) && !fault.reason.is_empty(), "a fault without a status or a reason");
            return Ok(Kind::of((fault.status, fault.reason)));
        }
    };
    // Fuzzers make small inputs, so every prefix can be tried.
    for end in 0..head.length {
        ensure!(read(&input[..end])? == Ok(Progress::Partial), "the head is whole, or wrong, without its last bytes");
    }
    ensure!(read(&input[..head.length])? == Ok(Progress::Complete(head)), "what follows a head changes it");
    let facts = head.facts;
    Ok(Kind::of((head.length.min(80), facts.content_length, facts.method.is_some(), facts.uri.is_some(), facts.head_request)))
}

/// Reads a head. The outer error is a broken invariant.
fn read(input: &[u8]) -> Result<Result<Progress<ScgiHead>, Fault>, String> {
    let mut found = Vec::new();
    let outcome = request_head(input, MAX_BLOCK_BYTES, &mut found);
    if let Ok(Progress::Complete(head)) = outcome {
        let block = head.block.of(input);
        ensure!(block.len() <= MAX_BLOCK_BYTES, "a block beyond the limit");
        let mut again = format!("{}:", block.len()).into_bytes();
        for span in found.iter().flat_map(|variable| [variable.name, variable.value]) {
            again.extend(span.of(block));
            again.push(0);
        }
        again.push(b',');
        ensure!(input.get(..head.length) == Some(&again), "the variables are written as something else");
        variables::check(block, &found, head.facts)?;
        ensure!(found.first().is_some_and(|first| first.name.of(block) == b"CONTENT_LENGTH"), "no CONTENT_LENGTH at startup");
        ensure!(head.facts.content_length.is_some(), "no length of the body");
    }
    Ok(outcome)
}

fn seeds() -> Vec<Vec<u8>> {
    CASES.iter().map(|case| case.bytes.to_vec()).collect()
}
