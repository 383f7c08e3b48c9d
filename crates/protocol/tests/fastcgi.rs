//! FastCGI records: the case list whole, byte by byte and with a tail, the limits, the written records, and properties.

mod cases;

use bolide_protocol::Fault;
use bolide_protocol::fastcgi::{
    Decoder, END_OF_ANSWER_BYTES, FastCgiEvent, FastCgiLimits, MAX_CONTENT_BYTES, MAX_IGNORED_BYTES, RECORD_HEAD_BYTES,
    end_of_answer, stdout_head,
};
use bolide_protocol::variables::MAX_VARIABLE_COUNT;
use cases::fastcgi::{
    CONNECTIONS, FastCgiCase, GET_VALUES, MAX_PARAMETER_BYTES, PARAMS, STDIN, TestEvent, UNKNOWN, begin, cases, padded, pairs,
    record, record_written,
};
use proptest::prelude::*;

const LIMITS: FastCgiLimits = FastCgiLimits { parameter_bytes: MAX_PARAMETER_BYTES, connections: CONNECTIONS };

/// Feeds bytes in pieces, and answers each request immediately.
struct Fed {
    decoder: Decoder,
    is_answered: bool,
    told: Vec<TestEvent>,
    fault: Option<Fault>,
}

impl Fed {
    fn new(limits: FastCgiLimits, is_answered: bool) -> Fed {
        Fed { decoder: Decoder::new(limits), is_answered, told: Vec::new(), fault: None }
    }

    fn feed(&mut self, mut piece: &[u8]) {
        loop {
            // Variables of an earlier request must not be found again.
            let mut variables = Vec::new();
            match self.decoder.next(piece, &mut variables) {
                Ok((used, None)) => {
                    assert_eq!(used, piece.len(), "more is wanted before all was used");
                    return;
                }
                Ok((used, Some(event))) => {
                    assert!(0 < used && used <= piece.len(), "{event:?} of {used} bytes, where {} are", piece.len());
                    self.note(event, piece, &variables);
                    piece = &piece[used..];
                }
                Err(fault) => {
                    assert_eq!(self.decoder.next(b"", &mut variables), Err(fault), "a decoder reads on after its fault");
                    self.fault = Some(fault);
                    return;
                }
            }
        }
    }

    fn note(&mut self, event: FastCgiEvent, piece: &[u8], variables: &[bolide_protocol::variables::Variable]) {
        let is_over = matches!(event, FastCgiEvent::End | FastCgiEvent::Aborted { .. });
        match event {
            FastCgiEvent::Head { facts, keep_connection } => {
                assert!(self.decoder.is_body_open() && self.decoder.request_id().is_some());
                let bytes = self.decoder.take_parameters();
                let list: Vec<_> = variables
                    .iter()
                    .map(|variable| (variable.name.of(&bytes).to_vec(), variable.value.of(&bytes).to_vec()))
                    .collect();
                let last = |name: &[u8]| list.iter().rfind(|(found, _)| found == name).map(|(_, value)| value.as_slice());
                assert_eq!(facts.method.map(|span| span.of(&bytes)), last(b"REQUEST_METHOD"));
                assert_eq!(facts.uri.map(|span| span.of(&bytes)), last(b"REQUEST_URI"));
                let length = last(b"CONTENT_LENGTH").filter(|text| !text.is_empty());
                assert_eq!(facts.content_length.map(|number| number.to_string().into_bytes()).as_deref(), length);
                self.told.push(TestEvent::Head { variables: list, keep_connection });
            }
            FastCgiEvent::Data(range) => {
                assert!(!range.is_empty());
                match self.told.last_mut() {
                    Some(TestEvent::Data(bytes)) => bytes.extend(&piece[range]),
                    _ => self.told.push(TestEvent::Data(piece[range].to_vec())),
                }
            }
            FastCgiEvent::End => self.told.push(TestEvent::End),
            FastCgiEvent::Aborted { .. } => self.told.push(TestEvent::Aborted),
            FastCgiEvent::Send { answer, close } => self.told.push(TestEvent::Send { bytes: answer.as_bytes().to_vec(), close }),
        }
        if is_over && self.is_answered {
            self.decoder.note_answered();
        }
    }
}

fn fed(bytes: &[u8], piece_bytes: usize, is_answered: bool) -> Fed {
    let mut fed = Fed::new(LIMITS, is_answered);
    for piece in bytes.chunks(piece_bytes) {
        if fed.fault.is_none() {
            fed.feed(piece);
        }
    }
    fed
}

fn check(case: &FastCgiCase, found: &Fed, expected: &[TestEvent]) {
    let text = case.bytes.escape_ascii();
    assert_eq!(found.told, [&case.events[..], expected].concat(), "{text}");
    match (found.fault, case.refusal) {
        (None, None) => {}
        (Some(fault), Some((status, words))) => {
            assert_eq!(fault.status, status, "{text}: {}", fault.reason);
            assert!(fault.reason.contains(words), "{text}: {}", fault.reason);
        }
        (fault, _) => panic!("{text}: {fault:?}"),
    }
}

#[test]
fn test_each_connection_is_read_or_refused_as_listed_whole_and_in_pieces_of_any_size() {
    for case in cases() {
        for piece_bytes in 1..=case.bytes.len().max(1) {
            check(&case, &fed(&case.bytes, piece_bytes, case.is_answered), &[]);
        }
    }
}

#[test]
fn test_what_follows_is_the_next_record_and_after_a_fault_nothing() {
    let question = record(42, 0, b"");
    let answer = TestEvent::Send { bytes: record_written(UNKNOWN, 0, &[42, 0, 0, 0, 0, 0, 0, 0]), close: false };
    for case in cases() {
        let bytes = [case.bytes.as_slice(), &question].concat();
        // If the case ends within a record, the following bytes belong to that record.
        let is_between = case.bytes.is_empty() || whole_records(&case.bytes) == case.bytes.len();
        if case.refusal.is_some() || is_between {
            let expected: &[TestEvent] = if case.refusal.is_some() { &[] } else { std::slice::from_ref(&answer) };
            check(&case, &fed(&bytes, usize::MAX, case.is_answered), expected);
            check(&case, &fed(&bytes, 1, case.is_answered), expected);
        }
    }
}

/// Returns the bytes of the whole records at the beginning of `bytes`.
fn whole_records(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + RECORD_HEAD_BYTES) {
        let length = RECORD_HEAD_BYTES + usize::from(u16::from_be_bytes([head[4], head[5]])) + usize::from(head[6]);
        if bytes.len() < at + length {
            break;
        }
        at += length;
    }
    at
}

#[test]
fn test_a_decoder_is_idle_between_requests_and_only_there() {
    let mut found = Fed::new(LIMITS, true);
    assert!(found.decoder.is_idle());
    let bytes = [begin(1, 1, 1), record(PARAMS, 1, b""), padded(STDIN, 1, b"", 3)].concat();
    for byte in &bytes {
        found.feed(std::slice::from_ref(byte));
        assert_eq!(found.decoder.is_idle(), found.told.len() == 2 && std::ptr::eq(byte, &bytes[bytes.len() - 1]));
    }
    assert_eq!(found.told.len(), 2);
    assert_eq!(found.decoder.request_id(), None);
}

#[test]
fn test_parameters_as_large_as_the_limit_are_read() {
    let value = vec![b'v'; MAX_PARAMETER_BYTES - 6];
    let list = pairs(&[(b"A", &value)]);
    assert_eq!(list.len(), MAX_PARAMETER_BYTES);
    let bytes = [begin(1, 1, 0), record(PARAMS, 1, &list), record(PARAMS, 1, b"")].concat();
    assert!(matches!(fed(&bytes, usize::MAX, true).told.as_slice(), [TestEvent::Head { .. }]));
}

#[test]
fn test_as_many_parameters_as_the_limit_are_read_and_one_more_is_431() {
    let limits = FastCgiLimits { parameter_bytes: 1 << 20, ..LIMITS };
    for (count, fault) in [(MAX_VARIABLE_COUNT, None), (MAX_VARIABLE_COUNT + 1, Some(431))] {
        let list = pairs(&vec![(&b"A"[..], &b""[..]); count]);
        let mut found = Fed::new(limits, true);
        found.feed(&[begin(1, 1, 0), record(PARAMS, 1, &list), record(PARAMS, 1, b"")].concat());
        assert_eq!(found.fault.map(|fault| fault.status), fault);
    }
}

#[test]
fn test_values_as_many_as_the_limit_are_understood() {
    let mut list = pairs(&[(b"FCGI_MPXS_CONNS", b"")]);
    while list.len() + 3 <= 512 {
        list.extend(pairs(&[(b"X", b"")]));
    }
    let found = fed(&record(GET_VALUES, 0, &list), 5, true);
    assert!(matches!(found.told.as_slice(), [TestEvent::Send { close: false, .. }]), "{:?}", found.told);
}

#[test]
fn test_records_of_no_request_are_ignored_up_to_the_limit_and_from_each_request_anew() {
    let large = record(STDIN, 9, &vec![0; 65_000]);
    let mut found = Fed::new(LIMITS, true);
    for _ in 0..2 {
        for _ in 0..MAX_IGNORED_BYTES / large.len() {
            found.feed(&large);
        }
        found.feed(&[begin(1, 1, 1), record(PARAMS, 1, b""), record(STDIN, 1, b"")].concat());
        assert_eq!(found.fault, None);
    }
    for _ in 0..=MAX_IGNORED_BYTES / large.len() {
        if found.fault.is_none() {
            found.feed(&large);
        }
    }
    assert_eq!(found.fault.map(|fault| fault.status), Some(400));
}

#[test]
fn test_an_answer_is_framed_as_the_specification_has_it() {
    assert_eq!(stdout_head(0x0102, 0x0304), [1, 6, 1, 2, 3, 4, 0, 0]);
    assert_eq!(stdout_head(1, MAX_CONTENT_BYTES as u16)[4..6], [0xff, 0xf8]);
    let end: [u8; END_OF_ANSWER_BYTES] = end_of_answer(0x0102);
    assert_eq!(end, *b"\x01\x06\x01\x02\0\0\0\0\x01\x03\x01\x02\0\x08\0\0\0\0\0\0\0\0\0\0");
}

proptest! {
    #[test]
    fn test_every_request_is_read_back_however_it_is_cut(
        list in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..200), proptest::collection::vec(any::<u8>(), 0..200)), 0..8,
        ),
        body in proptest::collection::vec(any::<u8>(), 0..600),
        record_bytes in 1..300usize,
        piece_bytes in 1..300usize,
        padding: u8,
    ) {
        let wanted: Vec<(&[u8], &[u8])> = list.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        let mut bytes = begin(9, 1, 1);
        for part in pairs(&wanted).chunks(record_bytes) {
            bytes.extend(padded(PARAMS, 9, part, padding));
        }
        bytes.extend(record(PARAMS, 9, b""));
        for part in body.chunks(record_bytes) {
            bytes.extend(padded(STDIN, 9, part, padding));
        }
        bytes.extend(record(STDIN, 9, b""));
        let mut found = Fed::new(FastCgiLimits { parameter_bytes: 1 << 20, ..LIMITS }, true);
        for piece in bytes.chunks(piece_bytes) {
            found.feed(piece);
        }
        let mut expected = vec![TestEvent::Head { variables: list, keep_connection: true }];
        if !body.is_empty() {
            expected.push(TestEvent::Data(body));
        }
        expected.push(TestEvent::End);
        prop_assert_eq!(found.told, expected);
        prop_assert!(found.decoder.is_idle());
    }
}
