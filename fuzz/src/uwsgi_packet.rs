//! uwsgi packets: the header and the block of variables after it.

use bolide_protocol::Progress;
use bolide_protocol::uwsgi::{PACKET_HEAD_BYTES, packet_head, variables};

use crate::{Kind, Target, cases, ensure, variables as plain};

pub const TARGET: Target = Target {
    name: "uwsgi_packet",
    check,
    seeds,
    words: &[
        b"\x0e\0CONTENT_LENGTH\x01\x005",
        b"\x0e\0REQUEST_METHOD\x04\0HEAD",
        b"\x01\0A\x01\0b",
        b"\x01\0A\0\0",
        b"\0\0",
        b"\xff\xff",
        b"\x01\0",
        b"\0\x01",
        b"REQUEST_URI",
        b"SERVER_PROTOCOL",
    ],
};

fn check(input: &[u8]) -> Result<Kind, String> {
    let Progress::Complete(head) = packet_head(input) else {
        ensure!(input.len() < PACKET_HEAD_BYTES, "a whole head is not read");
        return Ok(Kind::of("partial"));
    };
    let [low, high] = head.vars_bytes.to_le_bytes();
    ensure!(input.starts_with(&[head.modifier1, low, high, head.modifier2]), "the head is not made of its parts");
    // The length field is seldom correct after a mutation: the whole rest is read as a block, and also the stated length if that
    // differs.
    let block = &input[PACKET_HEAD_BYTES..];
    let kind = check_block(block)?;
    match block.get(..usize::from(head.vars_bytes)) {
        Some(said) if said.len() != block.len() => check_block(said),
        _ => Ok(kind),
    }
}

fn check_block(block: &[u8]) -> Result<Kind, String> {
    let mut found = Vec::new();
    let facts = match variables(block, &mut found) {
        Ok(facts) => facts,
        Err(fault) => {
            ensure!(matches!(fault.status, 400 | 431) && !fault.reason.is_empty(), "a fault without a status or a reason");
            return Ok(Kind::of((fault.status, fault.reason)));
        }
    };
    let mut again = Vec::with_capacity(block.len());
    for span in found.iter().flat_map(|variable| [variable.name, variable.value]) {
        let length = u16::try_from(span.len()).map_err(|_| "a span of more than 64 KiB".to_owned())?;
        again.extend(length.to_le_bytes());
        again.extend(span.of(block));
    }
    ensure!(again == block, "the variables are written as something else");
    plain::check(block, &found, facts)?;
    Ok(Kind::of((
        found.len().min(16),
        facts.content_length.is_some(),
        facts.method.is_some(),
        facts.uri.is_some(),
        facts.head_request,
    )))
}

fn seeds() -> Vec<Vec<u8>> {
    let packet = |block: &[u8]| {
        let [low, high] = (block.len() as u16).to_le_bytes();
        [&[0, low, high, 0], block].concat()
    };
    cases::uwsgi::CASES.iter().map(|case| packet(case.bytes)).collect()
}
