//! Answers of HTTP/1.1 as a client reads them: the case list, whole, in pieces and with bytes behind them.

mod cases;

use bolide_protocol::Fault;
use bolide_protocol::http1::response::{
    AnswerTo, MAX_RESPONSE_FIELDS, MAX_RESPONSE_HEAD_BYTES, ResponseDecoder, ResponsePart, StatusLine,
};
use cases::http1_response::{BEHIND, CASES};

/// An answer as the cases write it, and how many bytes it has used.
fn read(to: AnswerTo, bytes: &[u8], piece_bytes: usize) -> Result<(String, usize), Fault> {
    let mut decoder = ResponseDecoder::new(to);
    let (mut fields, mut text, mut used) = (Vec::new(), String::new(), 0);
    let mut available = piece_bytes.min(bytes.len());
    loop {
        let input = &bytes[used..available];
        let (count, part) = decoder.next(input, &mut fields)?;
        let of = |span: bolide_protocol::Span| String::from_utf8_lossy(span.of(input)).into_owned();
        let all = |open: char, close: char| {
            let pairs: Vec<String> = fields.iter().map(|field| format!("{}={}", of(field.name), of(field.value))).collect();
            format!("{open}{}{close}", pairs.join("|"))
        };
        let head = |line: StatusLine| {
            assert!(of(line.text).starts_with(&format!("{:03} ", line.status)), "{line:?}");
            of(line.text) + &all('[', ']')
        };
        match part {
            ResponsePart::Interim(line) => text += &format!("~{}", head(line)),
            ResponsePart::Head(line) => text += &head(line),
            ResponsePart::Data(range) => {
                assert!(!range.is_empty() && range.end <= count, "{range:?} of {count}");
                text += &String::from_utf8_lossy(&input[range]);
            }
            ResponsePart::Trailers => text += &all('{', '}'),
            ResponsePart::Switched => text.push('!'),
            ResponsePart::End => return Ok((text + ".", used + count)),
            ResponsePart::More if available < bytes.len() => available = (available + piece_bytes).min(bytes.len()),
            ResponsePart::More => {
                let has_ended = text.contains('!');
                let end = if decoder.is_complete_at_end() && !has_ended { ">" } else { "?" };
                return Ok((if has_ended { text } else { text + end }, used + count));
            }
        }
        used += count;
    }
}

#[test]
fn every_case_is_read_the_same_however_it_is_split() {
    for case in CASES {
        let shown = case.bytes.escape_ascii();
        for piece_bytes in [usize::MAX, 1, 2, 3, 7] {
            match (read(case.to, case.bytes, piece_bytes), case.outcome) {
                (Ok((answer, _)), Ok(expected)) => assert_eq!(answer, expected, "{shown}, {piece_bytes}"),
                (Err(fault), Err((status, words))) => {
                    assert!(fault.status == status && fault.reason.contains(words), "{shown}: {fault:?}");
                }
                (got, expected) => panic!("{shown}, {piece_bytes}: {got:?}, not {expected:?}"),
            }
        }
    }
}

#[test]
fn bytes_behind_a_complete_answer_are_not_used() {
    for case in CASES.iter().filter(|case| case.outcome.is_ok_and(|answer| answer.ends_with('.'))) {
        let bytes = [case.bytes, BEHIND].concat();
        for piece_bytes in [usize::MAX, 1, 5] {
            let (answer, used) = read(case.to, &bytes, piece_bytes).expect("an answer");
            assert_eq!((answer.as_str(), used), (case.outcome.unwrap_or_default(), case.bytes.len()), "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn a_fault_stays_and_heads_have_bounds() {
    let mut decoder = ResponseDecoder::new(AnswerTo::Request);
    let fault = decoder.next(b"no answer", &mut Vec::new()).expect_err("refused");
    assert_eq!(decoder.next(b"HTTP/1.1 200 OK\r\n\r\n", &mut Vec::new()), Err(fault));
    let long = [b"HTTP/1.1 200 OK\r\nA: ", &vec![b'a'; MAX_RESPONSE_HEAD_BYTES][..]].concat();
    assert_eq!(read(AnswerTo::Request, &long, usize::MAX).expect_err("too long").status, 502);
    let many = [b"HTTP/1.1 200 OK\r\n".to_vec(), b"A: b\r\n".repeat(MAX_RESPONSE_FIELDS + 1)].concat();
    assert_eq!(read(AnswerTo::Request, &many, usize::MAX).expect_err("too many").reason, "The answer contains too many fields.");
}
