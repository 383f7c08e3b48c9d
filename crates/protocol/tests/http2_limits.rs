//! The limits of an HTTP/2 session: windows, streams, and the flood budget.

mod cases;

use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http2::{
    ErrorCode, Http2, Http2Error, Http2Event, Http2Limits, MAX_CONTINUATIONS, MAX_CONTROL_BYTES, MAX_IDLE_FRAMES, MAX_RESETS,
};
use bolide_protocol::session::HeadParts;
use cases::http2::*;

const LIMITS: HeadLimits = HeadLimits::of(4096, 8192, 100);

/// A connection whose settings were exchanged.
struct Connection {
    session: Http2,
    parts: HeadParts,
}

impl Connection {
    fn new(limits: Http2Limits) -> Connection {
        Connection { session: Http2::new(limits), parts: HeadParts::default() }.begun()
    }

    fn begun(mut self) -> Connection {
        assert!(self.read(BEGINNING).expect("a good beginning").is_empty());
        self.session.output().clear();
        self
    }

    /// Returns the events of these bytes, all of which must be used.
    fn read(&mut self, mut bytes: &[u8]) -> Result<Vec<Http2Event>, Http2Error> {
        let mut events = Vec::new();
        loop {
            let (used, event) = self.session.next(bytes, &LIMITS, &mut self.parts)?;
            bytes = &bytes[used..];
            match event {
                Http2Event::More => {
                    assert!(bytes.is_empty(), "{} bytes are left", bytes.len());
                    return Ok(events);
                }
                event => events.push(event),
            }
        }
    }

    /// Returns how many times, up to `most`, these bytes are accepted before the connection ends, and its error.
    fn repeat_until_error(&mut self, most: u32, mut bytes: impl FnMut(u32) -> Vec<u8>) -> (u32, Option<ErrorCode>) {
        for count in 0..most {
            if let Err(error) = self.read(&bytes(count)) {
                return (count, Some(error.code));
            }
            self.session.output().clear();
        }
        (most, None)
    }
}

fn connection() -> Connection {
    Connection::new(Http2Limits::default())
}

fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, POST)
}

fn data(stream: u32, bytes: usize) -> Vec<u8> {
    let whole = frame(DATA, 0, stream, &[b'x'; 16_384]).repeat(bytes / 16_384);
    [whole, frame(DATA, 0, stream, &vec![b'x'; bytes % 16_384])].concat()
}

fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

const CANCEL: &[u8] = &[0, 0, 0, 8];

#[test]
fn it_begins_with_its_settings_and_the_window_of_the_connection() {
    let limits = Http2Limits { has_extended_connect: true, ..Http2Limits::default() };
    let settings =
        [&[0, 3, 0, 0, 0, 100][..], &[0, 4, 0, 4, 0, 0], &[0, 6, 0, 1, 0, 0], &[0, 9, 0, 0, 0, 1], &[0, 8, 0, 0, 0, 1]];
    let more = 1024 * 1024 - 65_535;
    let written = |count: usize| [frame(SETTINGS, 0, 0, &settings[..count].concat()), window_update(0, more)].concat();
    assert_eq!(*Http2::new(limits).output(), written(5));
    assert_eq!(*Http2::new(Http2Limits::default()).output(), written(4));
}

#[test]
fn useless_frames_end_the_connection_when_the_budget_is_spent() {
    let setting = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]);
    let floods: [(&str, Vec<u8>, u32); 9] = [
        ("SETTINGS", setting, MAX_IDLE_FRAMES / 10),
        ("acknowledgments", frame(SETTINGS, 1, 0, b""), MAX_IDLE_FRAMES),
        ("PING", frame(PING, 0, 0, &[0; 8]), MAX_IDLE_FRAMES),
        ("PRIORITY", frame(PRIORITY, 0, 9, &[0, 0, 0, 1, 7]), MAX_IDLE_FRAMES),
        ("PRIORITY_UPDATE", frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 99, b'u']), MAX_IDLE_FRAMES),
        ("unknown frames", frame(0xee, 0, 0, b""), MAX_IDLE_FRAMES),
        ("empty DATA", frame(DATA, 0, 1, b""), MAX_IDLE_FRAMES),
        ("WINDOW_UPDATE", window_update(1, 1), MAX_IDLE_FRAMES),
        ("padding alone", frame(DATA, PADDED, 1, b"\x02\0\0"), MAX_IDLE_FRAMES),
    ];
    for (name, bytes, most) in floods {
        let mut connection = connection();
        connection.session.note_time(5);
        // The initial settings count as well.
        connection.read(&post(1)).expect("a request");
        let (count, code) = connection.repeat_until_error(10_000, |_| bytes.clone());
        assert_eq!(
            (count, code),
            (most - if most == MAX_IDLE_FRAMES { 10 } else { 1 }, Some(ErrorCode::ENHANCE_YOUR_CALM)),
            "{name}"
        );
        let error = connection.read(&get(3)).expect_err("nothing is read any more");
        assert!(!error.reason.is_empty());
    }
}

#[test]
fn requests_and_time_refill_the_budget_without_end() {
    let ping = || frame(PING, 0, 0, &[0; 8]).repeat(20);
    let mut answered = self::connection();
    for count in 0..1000 {
        assert_eq!(answered.repeat_until_error(1, |_| [get(2 * count + 1), ping()].concat()).1, None);
        answered.session.note_answered(2 * count + 1);
    }
    let mut idle = self::connection();
    for minute in 0..1000u64 {
        idle.session.note_time(minute * 60_000);
        assert_eq!(idle.repeat_until_error(20, |_| frame(PING, 0, 0, &[0; 8])).1, None);
    }
    let mut body = self::connection();
    body.read(&post(1)).expect("a request");
    for _ in 0..1000 {
        assert_eq!(
            body.repeat_until_error(1, |_| [data(1, 16_384), window_update(0, 1), frame(PING, 0, 0, &[0; 8])].concat()).1,
            None
        );
        body.session.note_taken(1, 16_384);
    }
    // A client that returns the window of each small part of an answer.
    let mut answer = self::connection();
    answer.read(&get(1)).expect("a request");
    for _ in 0..5000 {
        answer.session.note_sent(1, 10);
        assert_eq!(answer.repeat_until_error(1, |_| [window_update(0, 10), window_update(1, 10)].concat()).1, None);
    }
}

/// CVE-2023-44487.
#[test]
fn rapid_resets_end_the_connection() {
    let begun_and_reset = |count: u32| [get(2 * count + 1), frame(RST_STREAM, 0, 2 * count + 1, CANCEL)].concat();
    assert_eq!(connection().repeat_until_error(10_000, begun_and_reset), (MAX_RESETS, Some(ErrorCode::ENHANCE_YOUR_CALM)));
    // Answers make up for resets: every second request is answered, so only half of them are reset.
    let mut fair = connection();
    for count in 0..2000 {
        let answered = 4 * count + 1;
        fair.read(&get(answered)).expect("a request");
        fair.session.note_answered(answered);
        fair.read(&[get(answered + 2), frame(RST_STREAM, 0, answered + 2, CANCEL)].concat())
            .expect("a request that is taken back");
        fair.session.output().clear();
    }
    // Time makes up for them as well.
    let mut slow = connection();
    for count in 0..2000u32 {
        slow.session.note_time(u64::from(count) * 100);
        slow.read(&begun_and_reset(count)).expect("one reset in a tenth of a second");
    }
}

/// CVE-2025-8671: the peer's violations make the server reset streams.
#[test]
fn resets_that_the_server_is_made_to_do_count_as_well() {
    type Mistake = fn(u32) -> Vec<u8>;
    let kinds: [(&str, Mistake); 5] = [
        ("malformed heads", |id| frame(HEADERS, WHOLE, id, b"\x82")),
        ("windows that grow by nothing", |id| [get(id), window_update(id, 0)].concat()),
        ("windows that grow too large", |id| [get(id), window_update(id, 0x7fff_ffff)].concat()),
        ("DATA behind the end", |id| [get(id), frame(DATA, 0, id, b"x")].concat()),
        ("HEADERS behind the end", |id| [get(id), get(id)].concat()),
    ];
    for (name, bytes) in kinds {
        let mut connection = connection();
        let (count, code) = connection.repeat_until_error(10_000, |count| bytes(2 * count + 1));
        assert_eq!((count, code), (MAX_RESETS, Some(ErrorCode::ENHANCE_YOUR_CALM)), "{name}");
        assert_eq!(connection.session.open_streams(), 0);
    }
}

#[test]
fn a_header_block_has_an_end() {
    let open = frame(HEADERS, END_STREAM, 1, b"");
    let count_of = |payload: &[u8]| {
        let mut connection = connection();
        connection.read(&open).expect("the beginning of a head");
        assert!(connection.session.has_part_of_head());
        connection.repeat_until_error(10_000, |_| frame(CONTINUATION, 0, 1, payload))
    };
    assert_eq!(count_of(b""), (MAX_CONTINUATIONS, Some(ErrorCode::ENHANCE_YOUR_CALM)));
    assert_eq!(count_of(&[0; 16_384]), (1, Some(ErrorCode::ENHANCE_YOUR_CALM)));
    assert_eq!(count_of(&[0; 1000]), (24, Some(ErrorCode::ENHANCE_YOUR_CALM)));
}

/// A HPACK bomb: a field of the table is repeated by index, so a few bytes stand for many.
#[test]
fn a_head_that_is_a_bomb_ends_its_connection() {
    // A host that is not added to the table: it would evict the field.
    let get = &b"\x82\x86\x84\x01\x01x"[..];
    let name = fields(&[("x", &"v".repeat(4000))]);
    let big = [get, b"\x40", &name[1..]].concat();
    let mut connection = connection();
    assert!(matches!(connection.read(&frame(HEADERS, WHOLE, 1, &big)).as_deref(), Ok([Http2Event::Head { .. }])));
    let twice = [get, b"\xbe\xbe"].concat();
    assert!(matches!(connection.read(&frame(HEADERS, WHOLE, 3, &twice)).as_deref(), Ok([Http2Event::Head { .. }])));
    let thrice = [get, b"\xbe\xbe\xbe"].concat();
    let refused = connection.read(&frame(HEADERS, WHOLE, 5, &thrice)).expect("it is answered");
    assert!(matches!(refused[..], [Http2Event::Refused { stream: 5, fault }] if fault.status == 431));
    let bomb = [get, &[0xbe; 10_000]].concat();
    assert_eq!(connection.read(&frame(HEADERS, WHOLE, 7, &bomb)).expect_err("a bomb").code, ErrorCode::ENHANCE_YOUR_CALM);
    assert!(connection.parts.bytes.capacity() < 64 * 1024);
}

#[test]
fn a_peer_that_takes_no_answers_to_its_frames_is_left() {
    let mut connection = connection();
    let mut count = 0;
    let code = loop {
        count += 1;
        connection.session.note_time(count * 100_000);
        match connection.read(&frame(PING, 0, 0, &[0; 8]).repeat(500)) {
            Ok(_) => assert!(connection.session.output().len() <= MAX_CONTROL_BYTES),
            Err(error) => break error.code,
        }
    };
    assert_eq!(code, ErrorCode::ENHANCE_YOUR_CALM);
    assert!(connection.session.output().len() <= MAX_CONTROL_BYTES + 1000);
}

#[test]
fn streams_beyond_the_limit_are_refused_and_their_heads_still_read() {
    let mut connection = Connection::new(Http2Limits { streams: 2, ..Http2Limits::default() });
    // The third one adds a field to the table, and the fourth one refers to it.
    let third = frame(HEADERS, END_HEADERS, 5, &[POST, b"\x40\x01x\x01y"].concat());
    let events = connection.read(&[get(1), get(3), third, data(5, 100)].concat()).expect("nothing is wrong");
    assert_eq!(events.len(), 2);
    assert_eq!(*connection.session.output(), frame(RST_STREAM, 0, 5, &[0, 0, 0, 7]));
    connection.session.note_answered(1);
    connection.read(&frame(HEADERS, WHOLE, 7, b"\x82\x86\x84\x41\x01x\xbf")).expect("it is in the table");
    assert!(connection.parts.fields.iter().any(|field| field.name.len() == 1));
    assert_eq!(connection.session.open_streams(), 2);
}

#[test]
fn bytes_beyond_a_window_are_an_error_and_consumed_bytes_are_returned_by_halves() {
    let limits = Http2Limits { stream_window_bytes: 65_536, connection_window_bytes: 131_072, ..Http2Limits::default() };
    let mut connection = Connection::new(limits);
    let mut given = Vec::new();
    connection.read(&post(1)).expect("a request");
    for _ in 0..100 {
        for event in connection.read(&data(1, 16_384)).expect("within the windows") {
            let Http2Event::Data { stream, range } = event else { panic!("{event:?}") };
            connection.session.note_taken(stream, range.len() as u64);
        }
        given.append(connection.session.output());
    }
    // 25 of the connection, 50 of the stream.
    assert_eq!(given.len(), (25 + 50) * 13);
    let mut greedy = Connection::new(limits);
    greedy.read(&[post(1), post(3), post(5), post(7), data(1, 65_536)].concat()).expect("within the windows");
    let reset = greedy.read(&data(1, 1)).expect("an error of the stream");
    assert!(
        matches!(reset[..], [Http2Event::Reset { stream: 1, code: ErrorCode::FLOW_CONTROL_ERROR, is_by_peer: false }]),
        "{reset:?}"
    );
    // The bytes that the stream held are available to the others again.
    greedy.read(&[data(3, 65_536), data(5, 65_536)].concat()).expect("within the windows");
    assert_eq!(greedy.read(&data(7, 1)).expect_err("beyond the connection's").code, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn the_smaller_of_two_windows_limits_the_bytes_to_send() {
    let mut connection = connection();
    connection.read(&[get(1), get(3)].concat()).expect("requests");
    assert_eq!((connection.session.room(1), connection.session.room(5)), (65_535, 0));
    connection.session.note_sent(1, 60_000);
    assert_eq!((connection.session.room(1), connection.session.room(3)), (5535, 5535));
    assert!(connection.read(&window_update(0, 100_000)).expect("room").is_empty(), "nothing was closed");
    assert_eq!((connection.session.room(1), connection.session.room(3)), (5535, 65_535));
    connection.session.note_sent(1, 5535);
    assert_eq!(connection.session.room(1), 0);
    let events = connection.read(&window_update(1, 7)).expect("room");
    assert!(matches!(events[..], [Http2Event::Room { stream: 1 }]), "{events:?}");
    assert_eq!(connection.session.room(1), 7);
    connection.session.reset(1, ErrorCode::INTERNAL_ERROR);
    assert_eq!((connection.session.room(1), connection.session.is_open(1)), (0, false));
    assert_eq!(*connection.session.output(), frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]));
}

#[test]
fn an_answer_before_the_end_of_its_request_stops_it() {
    let mut connection = connection();
    connection.read(&[post(1), data(1, 100)].concat()).expect("a request");
    assert!(connection.session.is_body_open(1));
    connection.session.note_answered(1);
    assert_eq!(*connection.session.output(), frame(RST_STREAM, 0, 1, &[0; 4]));
    // Frames that were already on their way are dropped without an error, and their bytes returned to the connection's window.
    let late = [data(1, 100_000), frame(HEADERS, WHOLE, 1, &fields(&[("x", "y")]))].concat();
    connection.session.output().clear();
    assert!(connection.read(&late).expect("it crossed the reset").is_empty());
    connection.session.note_taken(1, 100);
    assert!(connection.session.output().is_empty());
}

#[test]
fn a_connection_that_goes_away_serves_requests_that_were_on_their_way() {
    let mut connection = connection();
    let go_away = |last: u32| frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat());
    connection.read(&get(1)).expect("a request");
    connection.session.go_away(false);
    connection.session.go_away(false);
    assert_eq!(*connection.session.output(), go_away(0x7fff_ffff));
    assert!(connection.session.is_draining());
    connection.session.output().clear();
    assert_eq!(connection.read(&get(3)).expect("it was on its way").len(), 1);
    connection.session.go_away(true);
    connection.session.go_away(true);
    assert_eq!(*connection.session.output(), go_away(3));
    connection.session.output().clear();
    assert!(connection.read(&get(5)).expect("it is refused").is_empty());
    assert_eq!(*connection.session.output(), frame(RST_STREAM, 0, 5, &[0, 0, 0, 7]));
    assert_eq!(connection.session.open_streams(), 2);
}

#[test]
fn an_upgraded_connection_has_its_first_stream() {
    let settings = [0, 4, 0, 0, 0, 9];
    let session = Http2::upgraded(Http2Limits::default(), &settings).expect("good settings");
    assert_eq!(
        (session.room(1), session.is_open(1), session.is_body_open(1), session.has_part_of_head()),
        (9, true, false, true)
    );
    let mut connection = Connection { session, parts: HeadParts::default() }.begun();
    assert!(!connection.session.has_part_of_head());
    connection.session.note_answered(1);
    assert_eq!(connection.read(&get(3)).expect("the next request").len(), 1);
    for bad in [&settings[..5], &[0, 4, 255, 0, 0, 0]] {
        assert!(Http2::upgraded(Http2Limits::default(), bad).is_err());
    }
}

#[test]
fn states_of_streams_are_distinguished_long_after_their_end() {
    let mut connection = connection();
    for number in 0..200u32 {
        let stream = 4 * number + 1;
        connection.read(&get(stream)).expect("a request");
        connection.session.note_answered(stream);
        connection.session.output().clear();
    }
    // The end of recent streams is known; that of the first ones is forgotten.
    connection.read(&frame(DATA, 0, 797, b"x")).expect("a stream error");
    connection.read(&frame(DATA, 0, 1, b"x")).expect("a stream error");
    let closed = |stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 5]);
    assert_eq!(*connection.session.output(), [closed(797), closed(1)].concat());
    assert_eq!(connection.read(&get(797)).expect_err("it has ended").code, ErrorCode::STREAM_CLOSED);
    let mut skipped = self::connection();
    skipped.read(&[get(1), get(5)].concat()).expect("requests");
    assert_eq!(skipped.read(&get(3)).expect_err("it was passed over").code, ErrorCode::PROTOCOL_ERROR);
}
