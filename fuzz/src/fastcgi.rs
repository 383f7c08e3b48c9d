//! The input of a FastCGI connection. The first byte says whether requests are answered as soon as they have arrived.

use bolide_protocol::fastcgi::{Decoder, FastCgiEvent, FastCgiLimits};
use bolide_protocol::variables::Variable;

use crate::cases::fastcgi::{CONNECTIONS, MAX_PARAMETER_BYTES, TestEvent, cases};
use crate::{Kind, Target, ensure, variables};

pub const TARGET: Target = Target {
    name: "fastcgi",
    check,
    seeds,
    words: &[
        b"\x01\x01\0\x01\0\x08\0\0\0\x01\0\0\0\0\0\0",
        b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0",
        b"\x01\x01\0\x02\0\x08\0\0\0\x01\x01\0\0\0\0\0",
        b"\x01\x01\0\x01\0\x08\0\0\0\x03\x01\0\0\0\0\0",
        b"\x01\x02\0\x01\0\0\0\0",
        b"\x01\x04\0\x01\0\x04\0\0\x01\x01Ab",
        b"\x01\x04\0\x01\0\x11\0\0\x0e\x01CONTENT_LENGTH1",
        b"\x01\x04\0\x01\0\0\0\0",
        b"\x01\x05\0\x01\0\x01\x01\0x\0",
        b"\x01\x05\0\x01\0\0\0\0",
        b"\x01\x05\0\x02\0\x02\0\0xy",
        b"\x01\x09\0\0\0\x11\0\0\x0f\0FCGI_MPXS_CONNS",
        b"\x01\x2a\0\0\0\0\0\0",
    ],
};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    told: Vec<TestEvent>,
    fault: Option<&'static str>,
}

fn check(input: &[u8]) -> Result<Kind, String> {
    let Some((&first, sent)) = input.split_first() else { return Ok(Kind::of("nothing")) };
    let is_answered = first & 1 == 1;
    let whole = found(sent, is_answered, usize::MAX)?;
    for piece_bytes in [1, 2, 3, 7] {
        let split = found(sent, is_answered, piece_bytes)?;
        ensure!(split == whole, "in pieces of {piece_bytes}: {split:?}, and whole: {whole:?}");
    }
    let plain = plainly_told(sent, is_answered);
    // The plain reader does not know the refusals within a record, or records that are incomplete.
    let is_same = match whole.fault {
        Some(_) => plain.starts_with(without_data(&whole.told)),
        None => whole.told.starts_with(without_data(&plain)) && without_data(&whole.told).len() <= plain.len(),
    };
    ensure!(is_same, "{whole:?}, and read plainly {plain:?}");
    let last = whole.told.last().map(std::mem::discriminant);
    Ok(Kind::of((whole.fault, whole.told.len().min(6), last)))
}

/// Feeds the input in pieces. The error is a broken invariant.
fn found(sent: &[u8], is_answered: bool, piece_bytes: usize) -> Result<Found, String> {
    let mut decoder = Decoder::new(FastCgiLimits { parameter_bytes: MAX_PARAMETER_BYTES, connections: CONNECTIONS });
    let mut told = Vec::new();
    let mut variables = Vec::new();
    for mut piece in sent.chunks(piece_bytes.min(sent.len().max(1))) {
        loop {
            match decoder.next(piece, &mut variables) {
                Ok((used, None)) => {
                    ensure!(used == piece.len(), "more is wanted before all was used");
                    break;
                }
                Ok((used, Some(event))) => {
                    ensure!(0 < used && used <= piece.len(), "an event of {used} bytes, where {} are", piece.len());
                    note(event, piece, &variables, &mut decoder, is_answered, &mut told)?;
                    piece = &piece[used..];
                }
                Err(fault) => {
                    ensure!(matches!(fault.status, 400 | 431) && !fault.reason.is_empty(), "a fault without a reason");
                    ensure!(decoder.next(b"", &mut variables) == Err(fault), "a decoder reads on after its fault");
                    return Ok(Found { told, fault: Some(fault.reason) });
                }
            }
        }
    }
    Ok(Found { told, fault: None })
}

fn note(
    event: FastCgiEvent,
    piece: &[u8],
    found: &[Variable],
    decoder: &mut Decoder,
    is_answered: bool,
    told: &mut Vec<TestEvent>,
) -> Result<(), String> {
    let is_over = matches!(event, FastCgiEvent::End | FastCgiEvent::Aborted { .. });
    match event {
        FastCgiEvent::Head { facts, keep_connection } => {
            let bytes = decoder.take_parameters();
            ensure!(bytes.len() <= MAX_PARAMETER_BYTES, "parameters beyond the limit");
            variables::check(&bytes, found, facts)?;
            let variables = found.iter().map(|one| (one.name.of(&bytes).to_vec(), one.value.of(&bytes).to_vec())).collect();
            told.push(TestEvent::Head { variables, keep_connection });
        }
        FastCgiEvent::Data(range) => {
            ensure!(!range.is_empty() && range.end <= piece.len(), "a part of a body that is nothing, or not here");
            match told.last_mut() {
                Some(TestEvent::Data(bytes)) => bytes.extend(&piece[range]),
                _ => told.push(TestEvent::Data(piece[range].to_vec())),
            }
        }
        FastCgiEvent::End => told.push(TestEvent::End),
        FastCgiEvent::Aborted { .. } => told.push(TestEvent::Aborted),
        FastCgiEvent::Send { answer, close } => told.push(TestEvent::Send { bytes: answer.as_bytes().to_vec(), close }),
    }
    if is_over && is_answered {
        decoder.note_answered();
    }
    Ok(())
}

/// Removes the part of a body at the end: the plain reader sees it only when its record is complete.
fn without_data(told: &[TestEvent]) -> &[TestEvent] {
    match told {
        [before @ .., TestEvent::Data(_)] => before,
        _ => told,
    }
}

/// The events of the complete records, each read by itself; nothing is refused.
fn plainly_told(sent: &[u8], is_answered: bool) -> Vec<TestEvent> {
    let mut told = Vec::new();
    let mut active: Option<(u16, bool, Vec<u8>, Received)> = None;
    let mut rest = sent;
    while let [1, kind, id_high, id_low, high, low, padding, _, tail @ ..] = rest {
        let (id, length) = (u16::from_be_bytes([*id_high, *id_low]), usize::from(u16::from_be_bytes([*high, *low])));
        let Some(content) = tail.get(..length) else { break };
        rest = tail.get(length + usize::from(*padding)..).unwrap_or_default();
        let mut send = |kind: u8, id: u16, content: &[u8], close| {
            let [id_high, id_low] = id.to_be_bytes();
            let head = [1, kind, id_high, id_low, 0, content.len() as u8, 0, 0];
            told.push(TestEvent::Send { bytes: [&head, content].concat(), close });
        };
        match (kind, content, &mut active) {
            (9, _, _) if id == 0 => {
                let asked: Vec<Vec<u8>> = pairs(content).into_iter().map(|(name, _)| name).collect();
                let number = CONNECTIONS.to_string();
                let known = [("FCGI_MAX_CONNS", number.as_str()), ("FCGI_MAX_REQS", number.as_str()), ("FCGI_MPXS_CONNS", "0")];
                let values = known.iter().filter(|(name, _)| asked.contains(&name.as_bytes().to_vec()));
                let text = values
                    .map(|(name, value)| [&[name.len() as u8, value.len() as u8], name.as_bytes(), value.as_bytes()].concat());
                send(10, 0, &text.collect::<Vec<_>>().concat(), false);
            }
            (kind, _, _) if id == 0 => send(11, 0, &[*kind, 0, 0, 0, 0, 0, 0, 0], false),
            (1, [_, _, _, ..], Some(_)) => send(3, id, &[0, 0, 0, 0, 1, 0, 0, 0], false),
            (1, [0, 1, flags, ..], None) => active = Some((id, flags & 1 == 1, Vec::new(), Received::Nothing)),
            (1, [_, _, flags, ..], None) => send(3, id, &[0, 0, 0, 0, 3, 0, 0, 0], flags & 1 == 0),
            (2, _, Some((of, keep, _, Received::Nothing))) if *of == id => {
                send(3, id, &[0; 8], !*keep);
                active = None;
            }
            (2, _, Some((of, _, _, heard))) if *of == id && *heard != Received::Abort => {
                told.push(TestEvent::Aborted);
                *heard = Received::Abort;
                active = active.filter(|_| !is_answered);
            }
            (4, [], Some((of, keep, list, heard))) if *of == id && *heard != Received::Abort => {
                told.push(TestEvent::Head { variables: pairs(list), keep_connection: *keep });
                *heard = Received::Head;
            }
            (4, part, Some((of, _, list, _))) if *of == id => list.extend(part),
            (5, [], Some((of, _, _, heard))) if *of == id && *heard != Received::Abort => {
                told.push(TestEvent::End);
                active = active.filter(|_| !is_answered);
            }
            (5, part, Some((of, _, _, heard))) if *of == id && *heard != Received::Abort => match told.last_mut() {
                Some(TestEvent::Data(bytes)) => bytes.extend(part),
                _ => told.push(TestEvent::Data(part.to_vec())),
            },
            _ => {}
        }
    }
    told
}

/// The state of a request in the plain reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Received {
    Nothing,
    Head,
    Abort,
}

/// The complete names and values.
fn pairs(list: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((name, next)) = length(list, at)
        && let Some((value, start)) = length(list, next)
        && let Some(both) = list.get(start..start + name + value)
    {
        found.push((both[..name].to_vec(), both[name..].to_vec()));
        at = start + name + value;
    }
    found
}

fn length(list: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = *list.get(at)?;
    if first < 0x80 {
        return Some((usize::from(first), at + 1));
    }
    let four: [u8; 4] = list.get(at..at + 4)?.try_into().ok()?;
    Some(((u32::from_be_bytes(four) & 0x7fff_ffff) as usize, at + 4))
}

fn seeds() -> Vec<Vec<u8>> {
    cases().iter().map(|case| [&[u8::from(case.is_answered)], case.bytes.as_slice()].concat()).collect()
}
