//! A connection as a session reads it: its events do not depend on how its bytes are split.

use bolide_protocol::fastcgi::FastCgiLimits;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::session::{HeadBytes, HeadParts, RequestHead, Session, SessionEvent};

use crate::{Kind, Target, cases, ensure};

pub const TARGET: Target = Target {
    name: "session",
    check,
    seeds,
    words: &[
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.0",
        b"\x0e\0CONTENT_LENGTH\x01\x005",
    ],
};

/// Number of protocols.
const PROTOCOLS: u8 = 4;

const LIMITS: HeadLimits = HeadLimits::of(4096, 8192, 100);

/// The events of a connection. Parts of a body are joined.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Head(Vec<u8>),
    Body(Vec<u8>),
    End,
    Aborted,
    Own(Vec<u8>),
    Fault,
}

/// The first byte selects the protocol, the second how the bytes are split.
fn check(input: &[u8]) -> Result<Kind, String> {
    let [protocol, cut, bytes @ ..] = input else { return Ok(Kind::of("none")) };
    let session = || match protocol % PROTOCOLS {
        0 => Session::http1(),
        1 => Session::uwsgi(true),
        2 => Session::scgi(false),
        _ => Session::fastcgi(FastCgiLimits { parameter_bytes: LIMITS.head_bytes, connections: 1 }, false),
    };
    let whole = told(session(), bytes, bytes.len().max(1))?;
    let cut = usize::from(*cut).max(1);
    let pieces = told(session(), bytes, cut)?;
    // A fault that is certain before the end of its head may be reported only at that end: the decoder looks for the end first.
    let still_waits = whole.split_last() == Some((&Told::Fault, &pieces[..]));
    ensure!(whole == pieces || still_waits, "in pieces of {cut} bytes it means {pieces:?}, and whole {whole:?}");
    let count = |wanted: fn(&Told) -> bool| whole.iter().filter(|told| wanted(told)).count().min(4);
    Ok(Kind::of((
        protocol % PROTOCOLS,
        count(|told| matches!(told, Told::Head(_))),
        count(|told| matches!(told, Told::Body(_))),
        count(|told| *told == Told::End),
        count(|told| *told == Told::Fault),
    )))
}

fn told(mut session: Session, bytes: &[u8], piece_bytes: usize) -> Result<Vec<Told>, String> {
    let is_uwsgi = matches!(session, Session::Uwsgi(_));
    let (mut told, mut waiting, mut parts) = (Vec::new(), Vec::new(), HeadParts::default());
    for piece in bytes.chunks(piece_bytes) {
        waiting.extend_from_slice(piece);
        loop {
            let Ok((used, event)) = session.next(&waiting, &LIMITS, &mut parts) else {
                told.push(Told::Fault);
                return Ok(told);
            };
            ensure!(used <= waiting.len(), "more bytes are used than there are");
            let is_waiting = matches!(event, SessionEvent::More);
            let goes_on = used > 0 || is_waiting || matches!(event, SessionEvent::End);
            ensure!(goes_on, "an event of no bytes, again and again");
            match event {
                SessionEvent::Head(head) => {
                    if let HeadBytes::Input(range) = &head.bytes {
                        ensure!(waiting.get(range.clone()).is_some(), "a head that is not in the input");
                    }
                    let text = head.bytes.of(&waiting);
                    match head.head {
                        RequestHead::Http { line, facts } => {
                            ensure!(line.length + facts.length == text.len() as u32, "a head of another length than its parts");
                            let block = text.get(line.length as usize..).ok_or("a line longer than its head")?;
                            let is_left_out = |name: &[u8]| name.contains(&b'_');
                            ensure!(
                                !parts.fields.iter().any(|field| is_left_out(field.name.of(block))),
                                "a name with an underscore"
                            );
                        }
                        RequestHead::Variables { facts, .. } => {
                            let has_method = facts.method.is_some_and(|method| !method.of(text).is_empty());
                            ensure!(has_method || is_uwsgi, "a request of CGI without a method");
                            ensure!(!text.is_empty(), "a request without variables");
                        }
                    }
                    told.push(Told::Head(text.to_vec()));
                }
                SessionEvent::Data(range) => {
                    let part = waiting.get(range).ok_or("a part of a body that is not in the input")?;
                    match told.last_mut() {
                        Some(Told::Body(body)) => body.extend_from_slice(part),
                        _ => told.push(Told::Body(part.to_vec())),
                    }
                }
                SessionEvent::End => {
                    told.push(Told::End);
                    session.note_answered();
                }
                SessionEvent::Aborted { .. } => {
                    told.push(Told::Aborted);
                    session.note_answered();
                }
                SessionEvent::Send { answer, .. } => told.push(Told::Own(answer.as_bytes().to_vec())),
                SessionEvent::More => {}
            }
            waiting.drain(..used);
            if is_waiting {
                break;
            }
        }
    }
    Ok(told)
}

fn seeds() -> Vec<Vec<u8>> {
    let http: &[&[u8]] = &[
        b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.0\r\n\r\n",
        b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n0\r\nTrailer: 1\r\n\r\nGET /b HTTP/1.1\r\n\
        Host: x\r\n\r\n",
    ];
    let http = http.iter().flat_map(|bytes| [1, 3, 7, 50].map(|cut| [&[0, cut], *bytes].concat()));
    let more: &[&[u8]] = &[
        b"\x00\x05GET / HTTP/1.1\r\nHost: x\r\n\r\nBAD\x01 / HTTP/1.1\r\n\r\n",
        b"\x00\x05PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nhZ",
        b"\x01\x05\0\x16\0\0\x0e\0CONTENT_LENGTH\x04\x003333abc",
        b"\x01\x02\0\0\0\0\0\0\0\0",
    ];
    let more = more.iter().map(|bytes| bytes.to_vec());
    let packets = cases::uwsgi::CASES.iter().map(|case| {
        let [low, high] = (case.bytes.len() as u16).to_le_bytes();
        [&[1, 3, 0, low, high, 0], case.bytes].concat()
    });
    let netstrings = cases::scgi::CASES.iter().map(|case| [&[2, 3], case.bytes].concat());
    let records = cases::fastcgi::cases().into_iter().map(|case| [&[3, 3], case.bytes.as_slice()].concat());
    http.chain(more).chain(packets).chain(netstrings).chain(records).collect()
}
