//! Files in a spooler's directory.

use bolide_spool::format::{Layout, Reading, head, push_variable, read};

use crate::spool_cases::{CASES, JobCase};
use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target {
    name: "spool_job",
    check,
    seeds,
    words: &[b"\x11\x00\x00\x00", b"\x11\x06\x00\x00\x01\x00a\x01\x00b", b"\x01\x00a\x00\x00", b"\xff\xff", b"\x00\x00", b"body"],
};

fn check(input: &[u8]) -> Result<Kind, String> {
    let layout = match read(input) {
        Reading::Job(layout) => layout,
        Reading::Unfinished => return Ok(Kind::of(("unfinished", input.len().min(5)))),
        Reading::Junk(reason) => {
            ensure!(!reason.is_empty(), "refused without a reason");
            ensure!(read(&[input, b"\0"].concat()) == Reading::Junk(reason), "more bytes change a refusal");
            return Ok(Kind::of(reason));
        }
    };
    let packet = layout.body.start;
    for end in 0..packet {
        ensure!(read(&input[..end]) == Reading::Unfinished, "the packet is judged without its last bytes");
    }
    let alone = Layout { body: packet..packet, ..layout.clone() };
    ensure!(read(&input[..packet]) == Reading::Job(alone), "the body changes the packet");
    ensure!(layout.body.end == input.len(), "the body is not what follows the packet");
    let mut block = Vec::new();
    for (name, value) in &layout.variables {
        let pushed = push_variable(&mut block, &input[name.clone()], &input[value.clone()]);
        ensure!(pushed.is_ok(), "a variable was read that can't be written: {pushed:?}");
    }
    let mut again = head(block.len()).ok_or("a packet that is too large was read")?.to_vec();
    // The format has no meaning for modifier2.
    again[3] = input[3];
    again.extend(block);
    ensure!(again == input[..packet], "the packet is written as something else");
    Ok(Kind::of((layout.variables.len().min(20), packet.min(80), layout.body.len().min(3))))
}

fn seeds() -> Vec<Vec<u8>> {
    CASES.iter().map(|case: &JobCase| case.bytes.to_vec()).collect()
}
