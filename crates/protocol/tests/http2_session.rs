//! An HTTP/2 connection as events: the same whole, byte by byte, and with more bytes after it.

mod cases;

use bolide_protocol::http1::Framing;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http2::{ErrorCode, Http2, Http2Event, Http2Limits};
use bolide_protocol::session::{HeadParts, RequestHead};
use cases::http2::{BEGINNING, PING, cases, frame};

const LIMITS: HeadLimits = HeadLimits::of(4096, 8192, 100);

/// The result of some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Came {
    told: Vec<String>,
    sent: Vec<String>,
}

fn session() -> Http2 {
    let mut session = Http2::new(Http2Limits { has_extended_connect: true, ..Http2Limits::default() });
    session.output().clear();
    session
}

fn read(bytes: &[u8], piece_bytes: usize) -> Came {
    let (mut session, mut parts, mut waiting, mut came) = (session(), HeadParts::default(), Vec::new(), Came::default());
    'all: for piece in bytes.chunks(piece_bytes) {
        waiting.extend_from_slice(piece);
        loop {
            match session.next(&waiting, &LIMITS, &mut parts) {
                Ok((used, event)) => {
                    let is_more = matches!(event, Http2Event::More);
                    tell(&event, &waiting, &parts, &session, &mut came.told);
                    waiting.drain(..used);
                    if is_more {
                        break;
                    }
                }
                Err(error) => {
                    came.told.push(format!("error {}", error.code.name()));
                    assert_eq!(session.next(b"", &LIMITS, &mut parts).unwrap_err(), error);
                    break 'all;
                }
            }
        }
    }
    came.sent = sent(session.output());
    came
}

fn tell(event: &Http2Event, input: &[u8], parts: &HeadParts, session: &Http2, told: &mut Vec<String>) {
    match event {
        Http2Event::More => {}
        Http2Event::Head { stream, head, is_complete, protocol } => {
            let RequestHead::Http { line, facts } = head.head else { panic!("another protocol's head") };
            let bytes = head.bytes.of(&parts.bytes);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let mut said = format!("head {stream} {} {}", text(line.method.of(bytes)), text(line.target.of(bytes)));
            assert_eq!(*is_complete, head.body == Framing::None);
            match head.body {
                Framing::None => said.push_str(" complete"),
                Framing::Length(length) => said.push_str(&format!(" length {length}")),
                Framing::Chunked => said.push_str(" chunked"),
            }
            let block = &bytes[line.length as usize..][..facts.length as usize];
            assert!(block.ends_with(b"\r\n\r\n"));
            match facts.host.map(|host| text(host.of(block))).as_deref() {
                Some("x" | "x:443") => {}
                Some(host) => said.push_str(&format!(" of {host}")),
                None => panic!("a head without a host"),
            }
            if facts.expect_continue {
                said.push_str(" continue");
            }
            if let Some(protocol) = protocol {
                assert!(facts.upgrade);
                said.push_str(&format!(" for {}", text(protocol.of(bytes))));
            }
            let priority = session.priority(*stream);
            if priority.urgency != 3 {
                said.push_str(&format!(" u={}", priority.urgency));
            }
            if priority.incremental {
                said.push_str(" i");
            }
            for field in &parts.fields {
                if field.name.of(block) != b"host" {
                    said.push_str(&format!(" {}={}", text(field.name.of(block)), text(field.value.of(block))));
                }
            }
            told.push(said);
        }
        Http2Event::Refused { stream, fault } => told.push(format!("refused {stream} {}", fault.status)),
        Http2Event::Data { stream, range } => {
            let part = String::from_utf8_lossy(&input[range.clone()]).into_owned();
            match told.last_mut() {
                Some(last) if last.starts_with(&format!("data {stream} ")) => last.push_str(&part),
                _ => told.push(format!("data {stream} {part}")),
            }
        }
        Http2Event::End { stream } => told.push(format!("end {stream}")),
        Http2Event::Reset { stream, code, is_by_peer } => {
            assert!(!session.is_open(*stream));
            told.push(format!("reset {stream} {}{}", code.name(), if *is_by_peer { " by the peer" } else { "" }));
        }
        Http2Event::Room { stream } => told.push(format!("room {stream}")),
        Http2Event::Ended => told.push("ended".to_owned()),
    }
}

/// Returns the frames that a session sends, without the acknowledgments of settings.
fn sent(mut output: &[u8]) -> Vec<String> {
    let mut sent = Vec::new();
    while let [l2, l1, l0, kind, flags, stream @ ..] = output {
        let length = u32::from_be_bytes([0, *l2, *l1, *l0]) as usize;
        let stream_number = u32::from_be_bytes(*stream.first_chunk().expect("a whole head"));
        let payload = &output[9..9 + length];
        let number = |at: usize| u32::from_be_bytes(*payload[at..].first_chunk().expect("a number"));
        match (kind, flags) {
            (4, 1) => {}
            (3, 0) => sent.push(format!("<RST_STREAM {stream_number} {}", ErrorCode(number(0)).name())),
            (7, 0) => {
                let code = ErrorCode(number(4));
                assert_eq!(length > 8, code != ErrorCode::NO_ERROR, "what is wrong is said in words");
                sent.push(format!("<GOAWAY {} {}", number(0), code.name()));
            }
            (6, 1) => sent.push(format!("<PING ack {}", String::from_utf8_lossy(payload))),
            (8, 0) => sent.push(format!("<WINDOW_UPDATE {stream_number} {}", number(0))),
            (0, 1) if length == 0 => sent.push(format!("<END {stream_number}")),
            other => panic!("frame {other:?}"),
        }
        output = &output[9 + length..];
    }
    sent
}

#[test]
fn each_case_means_the_same_whole_in_pieces_and_with_more_behind() {
    let mut wrong = Vec::new();
    for case in cases() {
        let bytes = if case.has_own_beginning { case.bytes } else { [BEGINNING, &case.bytes].concat() };
        let expected: (Vec<&str>, Vec<&str>) = case.told.iter().partition(|line| !line.starts_with('<'));
        for piece_bytes in [bytes.len(), 1, 2, 7, 100] {
            let came = read(&bytes, piece_bytes);
            if (&came.told, &came.sent)
                != (&expected.0.iter().map(ToString::to_string).collect(), &expected.1.iter().map(ToString::to_string).collect())
            {
                wrong.push(format!("{} in pieces of {piece_bytes}: {came:?} and not {expected:?}", case.name));
            }
        }
        let whole = read(&bytes, bytes.len());
        let more = [&bytes[..], &frame(PING, 0, 0, b"the last")].concat();
        let with_more = read(&more, more.len());
        let has_failed = whole.told.last().is_some_and(|line| line.starts_with("error"));
        let mut sent = whole.sent;
        if !has_failed {
            sent.push("<PING ack the last".to_owned());
        }
        if (&with_more.told, &with_more.sent) != (&whole.told, &sent) {
            wrong.push(format!("{} with more behind: {with_more:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
