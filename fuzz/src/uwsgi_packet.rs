//! uwsgi packets: the head and the block of variables behind it.

use bolide_protocol::uwsgi::{PACKET_HEAD_BYTES, UwsgiFacts, VARIABLE_COUNT_MOST, Variable, packet_head, variables};
use bolide_protocol::{Progress, Span};

use crate::{Kind, Target, cases, ensure};

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
    // What an input says of its length is seldom true after a change: the block is read as long as it is and, if that is another
    // length, as long as it says.
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
    ensure!(found.len() <= VARIABLE_COUNT_MOST, "more variables than the limit");
    let mut again = Vec::with_capacity(block.len());
    for span in found.iter().flat_map(|variable| [variable.name, variable.value]) {
        let length = u16::try_from(span.len()).map_err(|_| "a span of more than 64 KiB".to_owned())?;
        again.extend(length.to_le_bytes());
        again.extend(span.of(block));
    }
    ensure!(again == block, "the variables are written as something else");
    ensure!(found.iter().all(|variable| !variable.name.is_empty()), "a variable without a name");
    ensure!(facts == plain_facts(block, &found)?, "the facts are not those of the variables");
    Ok(Kind::of((found.len().min(16), facts.content_length > 0, facts.method.is_some(), facts.uri.is_some(), facts.head_request)))
}

fn plain_facts(block: &[u8], found: &[Variable]) -> Result<UwsgiFacts, String> {
    let values = |name: &[u8]| -> Vec<Span> {
        found.iter().filter(|variable| variable.name.of(block) == name).map(|variable| variable.value).collect()
    };
    let content_length = match values(b"CONTENT_LENGTH").as_slice() {
        [] => 0,
        [value] if value.is_empty() => 0,
        [value] if value.of(block).iter().all(u8::is_ascii_digit) => {
            let text = std::str::from_utf8(value.of(block)).map_err(|error| error.to_string())?;
            text.parse().map_err(|_| "a CONTENT_LENGTH beyond 64 bits was accepted".to_owned())?
        }
        _ => return Err("a malformed or doubled CONTENT_LENGTH was accepted".to_owned()),
    };
    let method = values(b"REQUEST_METHOD").last().copied();
    Ok(UwsgiFacts {
        content_length,
        method,
        uri: values(b"REQUEST_URI").last().copied(),
        protocol: values(b"SERVER_PROTOCOL").last().copied(),
        head_request: method.is_some_and(|method| method.of(block) == b"HEAD"),
    })
}

fn seeds() -> Vec<Vec<u8>> {
    let packet = |block: &[u8]| {
        let [low, high] = (block.len() as u16).to_le_bytes();
        [&[0, low, high, 0], block].concat()
    };
    cases::uwsgi::CASES.iter().map(|case| packet(case.bytes)).collect()
}
