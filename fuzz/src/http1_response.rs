//! Answers of HTTP/1.1 as a client reads them.

use bolide_protocol::Fault;
use bolide_protocol::http1::response::{AnswerTo, MAX_RESPONSE_FIELDS, ResponseDecoder, ResponsePart};

use crate::{Kind, Target, cases, ensure};

pub const TARGET: Target = Target {
    name: "http1_response",
    check,
    seeds,
    words: &[
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 103 \r\n\r\n",
        b"HTTP/1.1 101 \r\n\r\n",
        b"HTTP/1.1 304 \r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n\r\n",
        b"0\r\n",
        b"0\r\n\r\n",
        b"1\r\na\r\n",
        b"A: b\r\n",
        b"\r",
        b"\n",
        b"\0",
    ],
};

#[derive(Debug, PartialEq, Eq, Default)]
struct Answer {
    /// Status texts and fields of heads, and trailer fields, in their order.
    texts: Vec<Vec<u8>>,
    body: Vec<u8>,
    used: usize,
    is_complete: bool,
    has_switched: bool,
}

fn check(input: &[u8]) -> Result<Kind, String> {
    let Some((to, input)) = input.split_first() else { return Ok(Kind::of(0)) };
    let to = if *to == 0 { AnswerTo::Head } else { AnswerTo::Request };
    let whole = read(to, input, usize::MAX)?;
    for piece_bytes in [1, 2, 3, 7] {
        let split = read(to, input, piece_bytes)?;
        ensure!(split == whole, "in pieces of {piece_bytes}: {split:?}, and whole: {whole:?}");
    }
    match whole {
        Err(fault) => {
            ensure!(fault.status == 502 && !fault.reason.is_empty(), "a fault without its status or a reason");
            Ok(Kind::of(fault.reason))
        }
        Ok(answer) => {
            ensure!(to != AnswerTo::Head || answer.has_switched || answer.body.is_empty(), "the answer to HEAD has a body");
            Ok(Kind::of((answer.texts.len().min(8), answer.body.len().min(8), answer.is_complete, answer.has_switched)))
        }
    }
}

/// The outer error is a broken invariant, the inner one the decoder's.
fn read(to: AnswerTo, input: &[u8], piece_bytes: usize) -> Result<Result<Answer, Fault>, String> {
    let mut decoder = ResponseDecoder::new(to);
    let (mut answer, mut fields) = (Answer::default(), Vec::new());
    let mut available = piece_bytes.min(input.len());
    loop {
        let rest = &input[answer.used..available];
        let (used, part) = match decoder.next(rest, &mut fields) {
            Ok(read) => read,
            Err(fault) => {
                ensure!(
                    decoder.next(b"HTTP/1.1 200 OK\r\n\r\n", &mut fields) == Err(fault),
                    "a decoder reads on after its fault"
                );
                return Ok(Err(fault));
            }
        };
        ensure!(used <= rest.len(), "more was used than there is");
        ensure!(fields.len() <= MAX_RESPONSE_FIELDS, "more fields than the limit");
        let mut texts = || {
            for field in &fields {
                answer.texts.push(field.name.of(rest).to_vec());
                answer.texts.push(field.value.of(rest).to_vec());
            }
        };
        match part {
            ResponsePart::Interim(line) | ResponsePart::Head(line) => {
                texts();
                ensure!((100..=999).contains(&line.status), "a status out of range");
                answer.texts.push(line.text.of(rest).to_vec());
            }
            ResponsePart::Trailers => texts(),
            ResponsePart::Data(range) => {
                ensure!(!range.is_empty() && range.end <= used, "a part outside its input");
                answer.body.extend(&rest[range]);
            }
            ResponsePart::Switched => answer.has_switched = true,
            ResponsePart::End => {
                answer.used += used;
                answer.is_complete = true;
                return Ok(Ok(answer));
            }
            ResponsePart::More if available == input.len() => {
                answer.used += used;
                return Ok(Ok(answer));
            }
            ResponsePart::More => available = (available + piece_bytes).min(input.len()),
        }
        answer.used += used;
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let to = |to| if to == AnswerTo::Head { 0 } else { 1 };
    cases::http1_response::CASES.iter().map(|case| [&[to(case.to)], case.bytes].concat()).collect()
}
