//! Cases of FastCGI connections: the bytes and the expected events.

use super::Refusal;

pub struct FastCgiCase {
    pub bytes: Vec<u8>,
    /// The caller reports each request as answered as soon as its body is complete or it is aborted.
    pub is_answered: bool,
    pub events: Vec<TestEvent>,
    pub refusal: Option<Refusal>,
}

/// An event with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestEvent {
    Head {
        variables: Vec<(Vec<u8>, Vec<u8>)>,
        keep_connection: bool,
    },
    /// All data between two other events.
    Data(Vec<u8>),
    End,
    Aborted,
    Send {
        bytes: Vec<u8>,
        close: bool,
    },
}

/// Maximum size of parameters in the cases, in bytes.
pub const MAX_PARAMETER_BYTES: usize = 300;

/// The number of connections that the cases' peers get.
pub const CONNECTIONS: u32 = 1024;

/// The record types, with the numbers of section 8 of the specification.
pub const BEGIN: u8 = 1;
pub const ABORT: u8 = 2;
pub const END: u8 = 3;
pub const PARAMS: u8 = 4;
pub const STDIN: u8 = 5;
pub const STDOUT: u8 = 6;
pub const DATA: u8 = 8;
pub const GET_VALUES: u8 = 9;
pub const GET_VALUES_RESULT: u8 = 10;
pub const UNKNOWN: u8 = 11;

const KEEP: u8 = 1;

pub fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    padded(kind, id, content, 0)
}

pub fn padded(kind: u8, id: u16, content: &[u8], padding_bytes: u8) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a test's record is short").to_be_bytes();
    let [high, low] = id.to_be_bytes();
    [&[1, kind, high, low, length[0], length[1], padding_bytes, 0xee], content, &vec![0xff; usize::from(padding_bytes)]].concat()
}

/// A record as we write it: reserved bytes are zero.
pub fn record_written(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = record(kind, id, content);
    bytes[7] = 0;
    bytes
}

pub fn begin(id: u16, role: u16, flags: u8) -> Vec<u8> {
    let [high, low] = role.to_be_bytes();
    record(BEGIN, id, &[high, low, flags, 9, 9, 9, 9, 9])
}

/// Parameters in the encoding of section 3.4, with the shorter lengths where they fit.
pub fn pairs(list: &[(&[u8], &[u8])]) -> Vec<u8> {
    let length = |text: &[u8]| match u8::try_from(text.len()) {
        Ok(short @ ..0x80) => vec![short],
        _ => (text.len() as u32 | 0x8000_0000).to_be_bytes().to_vec(),
    };
    list.iter().flat_map(|(name, value)| [length(name), length(value), name.to_vec(), value.to_vec()].concat()).collect()
}

/// Begins request 1 with these parameters and ends them.
fn opened(flags: u8, list: &[(&[u8], &[u8])]) -> Vec<u8> {
    [begin(1, 1, flags), record(PARAMS, 1, &pairs(list)), record(PARAMS, 1, b"")].concat()
}

fn head(keep_connection: bool, list: &[(&[u8], &[u8])]) -> TestEvent {
    let variables = list.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    TestEvent::Head { variables, keep_connection }
}

fn data(bytes: &[u8]) -> TestEvent {
    TestEvent::Data(bytes.to_vec())
}

fn send(kind: u8, id: u16, content: &[u8], close: bool) -> TestEvent {
    TestEvent::Send { bytes: record_written(kind, id, content), close }
}

fn ended(id: u16, status: u8, close: bool) -> TestEvent {
    send(END, id, &[0, 0, 0, 0, status, 0, 0, 0], close)
}

fn read(parts: &[&[u8]], events: Vec<TestEvent>) -> FastCgiCase {
    FastCgiCase { bytes: parts.concat(), is_answered: true, events, refusal: None }
}

fn refused(parts: &[&[u8]], events: Vec<TestEvent>, words: &'static str) -> FastCgiCase {
    FastCgiCase { bytes: parts.concat(), is_answered: true, events, refusal: Some((400, words)) }
}

fn too_large(parts: &[&[u8]], words: &'static str) -> FastCgiCase {
    FastCgiCase { bytes: parts.concat(), is_answered: true, events: Vec::new(), refusal: Some((431, words)) }
}

/// While the request has no answer yet.
fn unanswered(case: FastCgiCase) -> FastCgiCase {
    FastCgiCase { is_answered: false, ..case }
}

const NO_LIST: &[(&[u8], &[u8])] = &[];
const GET: &[(&[u8], &[u8])] = &[(b"REQUEST_METHOD", b"GET"), (b"CONTENT_LENGTH", b""), (b"REQUEST_URI", b"/a?b")];
const OF_FIVE: &[(&[u8], &[u8])] = &[(b"CONTENT_LENGTH", b"5")];
const OUT_OF_ORDER: &str = "is out of order";
const BEYOND: &str = "ends beyond the parameters";

pub fn cases() -> Vec<FastCgiCase> {
    [whole_requests(), streams(), several_requests(), aborted(), managed(), malformed(), ill_ordered()]
        .into_iter()
        .flatten()
        .collect()
}

fn whole_requests() -> Vec<FastCgiCase> {
    let end = record(STDIN, 1, b"");
    let long = vec![b'v'; 130];
    vec![
        read(&[], vec![]),
        read(&[&opened(0, GET), &end], vec![head(false, GET), TestEvent::End]),
        read(&[&opened(KEEP, GET), &end], vec![head(true, GET), TestEvent::End]),
        // Other flags are ignored.
        read(&[&opened(0xfe, GET), &end], vec![head(false, GET), TestEvent::End]),
        read(&[&begin(1, 1, 0), &record(PARAMS, 1, b""), &end], vec![head(false, NO_LIST), TestEvent::End]),
        read(
            &[&opened(0, OF_FIVE), &record(STDIN, 1, b"hello"), &end],
            vec![head(false, OF_FIVE), data(b"hello"), TestEvent::End],
        ),
        // Without a CONTENT_LENGTH the end of the stream ends the body.
        read(&[&opened(0, GET), &record(STDIN, 1, b"hello"), &end], vec![head(false, GET), data(b"hello"), TestEvent::End]),
        read(
            &[&opened(0, &[(b"A", &long), (b"B", b"\0\r\n")]), &end],
            vec![head(false, &[(b"A", &long), (b"B", b"\0\r\n")]), TestEvent::End],
        ),
        // A short length may be written in four bytes.
        read(
            &[&begin(1, 1, 0), &record(PARAMS, 1, b"\x80\0\0\x01\x80\0\0\x02Abc"), &record(PARAMS, 1, b""), &end],
            vec![head(false, &[(b"A", b"bc")]), TestEvent::End],
        ),
        read(
            &[&begin(0xffff, 1, KEEP), &record(PARAMS, 0xffff, b""), &record(STDIN, 0xffff, b"")],
            vec![head(true, NO_LIST), TestEvent::End],
        ),
    ]
}

fn streams() -> Vec<FastCgiCase> {
    let end = record(STDIN, 1, b"");
    let list = pairs(OF_FIVE);
    let split: Vec<u8> = list.iter().flat_map(|byte| record(PARAMS, 1, &[*byte])).collect();
    vec![
        // Parameters in any number of records, cut anywhere, with padding.
        read(
            &[&begin(1, 1, 0), &split, &record(PARAMS, 1, b""), &record(STDIN, 1, b"hello"), &end],
            vec![head(false, OF_FIVE), data(b"hello"), TestEvent::End],
        ),
        read(
            &[
                &begin(1, 1, 0),
                &padded(PARAMS, 1, &list[..1], 7),
                &padded(PARAMS, 1, &list[1..], 255),
                &padded(PARAMS, 1, b"", 3),
                &padded(STDIN, 1, b"he", 6),
                &padded(STDIN, 1, b"llo", 5),
                &padded(STDIN, 1, b"", 8),
            ],
            vec![head(false, OF_FIVE), data(b"hello"), TestEvent::End],
        ),
        // An incomplete body, and incomplete parameters.
        read(&[&opened(0, OF_FIVE), &record(STDIN, 1, b"hel")], vec![head(false, OF_FIVE), data(b"hel")]),
        read(&[&opened(0, OF_FIVE), &record(STDIN, 1, b"hello")[..9]], vec![head(false, OF_FIVE), data(b"h")]),
        read(&[&begin(1, 1, 0), &record(PARAMS, 1, &list)], vec![]),
        refused(
            &[&opened(0, OF_FIVE), &record(STDIN, 1, b"hell"), &end],
            vec![head(false, OF_FIVE), data(b"hell")],
            "shorter than its CONTENT_LENGTH",
        ),
        refused(&[&opened(0, OF_FIVE), &end], vec![head(false, OF_FIVE)], "shorter than its CONTENT_LENGTH"),
        refused(
            &[&opened(0, OF_FIVE), &record(STDIN, 1, b"hello"), &record(STDIN, 1, b"!")],
            vec![head(false, OF_FIVE), data(b"hello")],
            "longer than its CONTENT_LENGTH",
        ),
    ]
}

fn several_requests() -> Vec<FastCgiCase> {
    let end = record(STDIN, 1, b"");
    let one = [opened(KEEP, GET), end.clone()].concat();
    let other_values =
        [record(PARAMS, 2, &pairs(GET)), record(PARAMS, 2, b""), record(STDIN, 2, b"x"), record(STDIN, 2, b"")].concat();
    vec![
        read(&[&one, &one], vec![head(true, GET), TestEvent::End, head(true, GET), TestEvent::End]),
        // Later records of an answered request are ignored.
        read(&[&one, &end, &record(ABORT, 1, b""), &one], vec![head(true, GET), TestEvent::End, head(true, GET), TestEvent::End]),
        // Records of a request that has not begun.
        read(&[&other_values, &one], vec![head(true, GET), TestEvent::End]),
        // A second request while one is active is refused, and its records are ignored (FCGI_CANT_MPX_CONN).
        read(
            &[&opened(0, OF_FIVE), &begin(2, 1, 0), &other_values, &record(STDIN, 1, b"hello"), &end],
            vec![head(false, OF_FIVE), ended(2, 1, false), data(b"hello"), TestEvent::End],
        ),
        unanswered(read(&[&one, &begin(2, 1, KEEP)], vec![head(true, GET), TestEvent::End, ended(2, 1, false)])),
        refused(&[&begin(1, 1, 0), &begin(1, 1, 0)], vec![], "is for a request that is already in progress"),
        unanswered(refused(&[&one, &one], vec![head(true, GET), TestEvent::End], "is for a request that is already in progress")),
        // Authorizers and filters are not supported (FCGI_UNKNOWN_ROLE).
        read(&[&begin(7, 2, 0)], vec![ended(7, 3, true)]),
        read(&[&begin(7, 3, KEEP), &one], vec![ended(7, 3, false), head(true, GET), TestEvent::End]),
        read(&[&begin(7, 0x101, KEEP)], vec![ended(7, 3, false)]),
    ]
}

fn aborted() -> Vec<FastCgiCase> {
    let abort = record(ABORT, 1, b"");
    vec![
        read(&[&begin(1, 1, 0), &abort], vec![ended(1, 0, true)]),
        read(&[&begin(1, 1, KEEP), &record(PARAMS, 1, &pairs(GET)), &abort], vec![ended(1, 0, false)]),
        read(
            &[&begin(1, 1, KEEP), &abort, &opened(KEEP, GET), &record(STDIN, 1, b"")],
            vec![ended(1, 0, false), head(true, GET), TestEvent::End],
        ),
        read(
            &[&opened(0, OF_FIVE), &record(STDIN, 1, b"he"), &abort],
            vec![head(false, OF_FIVE), data(b"he"), TestEvent::Aborted],
        ),
        unanswered(read(
            &[&opened(0, OF_FIVE), &abort, &record(STDIN, 1, b"hello, and more"), &record(STDIN, 1, b""), &abort],
            vec![head(false, OF_FIVE), TestEvent::Aborted],
        )),
        unanswered(read(
            &[&opened(KEEP, GET), &record(STDIN, 1, b""), &padded(ABORT, 1, b"12345", 3)],
            vec![head(true, GET), TestEvent::End, TestEvent::Aborted],
        )),
        read(&[&abort, &record(ABORT, 2, b"")], vec![]),
    ]
}

fn managed() -> Vec<FastCgiCase> {
    let asked = |names: &[&[u8]]| record(GET_VALUES, 0, &pairs(&names.iter().map(|name| (*name, &b""[..])).collect::<Vec<_>>()));
    let told = |list: &[(&[u8], &[u8])]| send(GET_VALUES_RESULT, 0, &pairs(list), false);
    let all: &[(&[u8], &[u8])] = &[(b"FCGI_MAX_CONNS", b"1024"), (b"FCGI_MAX_REQS", b"1024"), (b"FCGI_MPXS_CONNS", b"0")];
    vec![
        read(&[&asked(&[b"FCGI_MPXS_CONNS", b"FCGI_MAX_CONNS", b"FCGI_MAX_REQS"])], vec![told(all)]),
        read(&[&asked(&[b"FCGI_MPXS_CONNS"]), &asked(&[b"FCGI_MAX_REQS"])], vec![told(&all[2..]), told(&all[1..2])]),
        // An unknown name is not answered, and a name with a value is still a question.
        read(&[&asked(&[b"FCGI_MAX_WISHES"]), &asked(&[])], vec![told(&[]), told(&[])]),
        read(&[&padded(GET_VALUES, 0, &pairs(&[(b"FCGI_MAX_CONNS", b"7")]), 9)], vec![told(&all[..1])]),
        read(
            &[&opened(0, OF_FIVE), &asked(&[b"FCGI_MPXS_CONNS"]), &record(STDIN, 1, b"hello"), &record(STDIN, 1, b"")],
            vec![head(false, OF_FIVE), told(&all[2..]), data(b"hello"), TestEvent::End],
        ),
        read(&[&record(42, 0, b"what?")], vec![send(UNKNOWN, 0, &[42, 0, 0, 0, 0, 0, 0, 0], false)]),
        read(&[&padded(BEGIN, 0, &[0, 1, 0, 0, 0, 0, 0, 0], 1)], vec![send(UNKNOWN, 0, &[1, 0, 0, 0, 0, 0, 0, 0], false)]),
        // Records of a request that a responder does not use.
        read(
            &[&opened(0, GET), &record(DATA, 1, b"x"), &record(42, 1, b"y"), &record(STDOUT, 1, b"z"), &record(STDIN, 1, b"")],
            vec![head(false, GET), TestEvent::End],
        ),
        read(&[&record(GET_VALUES, 3, b"\xff")], vec![]),
        refused(&[&record(GET_VALUES, 0, b"\x05")], vec![], BEYOND),
        refused(&[&record(GET_VALUES, 0, &[b'x'; 513])[..8]], vec![], "GET_VALUES is larger than the limit"),
    ]
}

fn malformed() -> Vec<FastCgiCase> {
    let with = |list: &[u8]| [begin(1, 1, 0), record(PARAMS, 1, list), record(PARAMS, 1, b"")].concat();
    let of_length = |length: &[u8]| with(&pairs(&[(b"CONTENT_LENGTH", length)]));
    let twice = with(&pairs(&[(b"CONTENT_LENGTH", b""), (b"CONTENT_LENGTH", b"5")]));
    let large = vec![b'v'; MAX_PARAMETER_BYTES];
    vec![
        refused(&[b"GET / HTTP/1.1\r\n"], vec![], "A FastCGI socket received HTTP"),
        refused(&[b"\x16\x03\x01\x02\0\x01\0\x01\xfc"], vec![], "TLS"),
        refused(&[b"\0\x10\0\0\x0e\0RE"], vec![], "does not have version 1"),
        refused(&[b"\x02\x01\0\x01\0\x08\0\0"], vec![], "does not have version 1"),
        refused(&[&opened(0, OF_FIVE), b"hello123"], vec![head(false, OF_FIVE)], "does not have version 1"),
        refused(&[&record(BEGIN, 1, &[0, 1, 0, 0, 0, 0, 0])[..8]], vec![], "is not eight bytes long"),
        refused(&[&record(BEGIN, 1, &[0, 1, 0, 0, 0, 0, 0, 0, 0])[..8]], vec![], "is not eight bytes long"),
        refused(&[&with(b"\0\x01b")], vec![], "has no name"),
        refused(&[&with(b"\x01")], vec![], BEYOND),
        refused(&[&with(b"\x01\x01A")], vec![], BEYOND),
        refused(&[&with(b"\x02\0A")], vec![], BEYOND),
        refused(&[&with(b"\x01\0A\x80")], vec![], BEYOND),
        refused(&[&with(b"\x01\x80\0\0")], vec![], BEYOND),
        refused(&[&with(b"\xff\xff\xff\xff\xff\xff\xff\xffA")], vec![], BEYOND),
        refused(&[&with(b"\x01\xff\xff\xff\xffA")], vec![], BEYOND),
        refused(&[&of_length(b"+5")], vec![], "is not a single number"),
        refused(&[&of_length(b"-1")], vec![], "is not a single number"),
        refused(&[&of_length(b"5, 5")], vec![], "is not a single number"),
        refused(&[&of_length(b"18446744073709551616")], vec![], "is not a single number"),
        refused(&[&twice], vec![], "more than one CONTENT_LENGTH"),
        too_large(&[&begin(1, 1, 0), &record(PARAMS, 1, &pairs(&[(b"A", &large)]))], "larger than buffer-size"),
        too_large(&[&begin(1, 1, 0), &record(PARAMS, 1, &large), &record(PARAMS, 1, b"v")], "larger than buffer-size"),
    ]
}

fn ill_ordered() -> Vec<FastCgiCase> {
    let end = record(STDIN, 1, b"");
    vec![
        refused(&[&begin(1, 1, 0), &record(STDIN, 1, b"x")], vec![], OUT_OF_ORDER),
        refused(&[&begin(1, 1, 0), &end], vec![], OUT_OF_ORDER),
        refused(&[&opened(0, GET), &record(PARAMS, 1, b"\x01\0A")], vec![head(false, GET)], OUT_OF_ORDER),
        refused(&[&opened(0, GET), &record(PARAMS, 1, b"")], vec![head(false, GET)], OUT_OF_ORDER),
        unanswered(refused(&[&opened(0, GET), &end, &end], vec![head(false, GET), TestEvent::End], OUT_OF_ORDER)),
        unanswered(refused(
            &[&opened(0, GET), &end, &record(STDIN, 1, b"x")],
            vec![head(false, GET), TestEvent::End],
            OUT_OF_ORDER,
        )),
        unanswered(refused(
            &[&opened(0, GET), &end, &record(PARAMS, 1, b"")],
            vec![head(false, GET), TestEvent::End],
            OUT_OF_ORDER,
        )),
    ]
}
