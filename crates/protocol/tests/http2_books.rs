//! Flow control of an HTTP/2 connection, over random sequences of frames: bytes that came and were not returned to a window
//! belong to an open stream, the session never sends more than the peer has granted, and nothing is left after all streams have
//! ended.
//!
//! The windows are computed here from the frames alone, as a peer does.

mod cases;

use std::collections::BTreeMap;

use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http2::{ErrorCode, Http2, Http2Event, Http2Limits};
use bolide_protocol::session::HeadParts;
use cases::http2::*;
use proptest::prelude::*;
use proptest::sample::Index;

const HEAD_LIMITS: HeadLimits = HeadLimits::of(4096, 8192, 100);

const STREAM_WINDOW: u32 = 65_535;
const CONNECTION_WINDOW: u32 = 100_000;

/// Few streams at a time, so that some are refused.
const LIMITS: Http2Limits = Http2Limits {
    streams: 4,
    header_list_bytes: 64 * 1024,
    stream_window_bytes: STREAM_WINDOW,
    connection_window_bytes: CONNECTION_WINDOW,
    has_extended_connect: false,
};

/// Bytes of a DATA frame that come before another action: its head, and the pad length.
const BEGUN_BYTES: usize = 10;

#[derive(Debug, Clone)]
enum Step {
    Open {
        is_complete: bool,
        announced: Option<u16>,
    },
    /// DATA, of which a part comes before an action of the server.
    Data {
        on: Index,
        bytes: u16,
        padding: Option<u8>,
        is_last: bool,
        meanwhile: Option<Own>,
    },
    Trailers {
        on: Index,
    },
    ResetByPeer {
        on: Index,
    },
    Grant {
        on: Option<Index>,
        bytes: u16,
    },
    InitialWindow {
        bytes: u16,
    },
    Own(Own),
}

/// The server's own actions.
#[derive(Debug, Clone)]
enum Own {
    Take { on: Index, bytes: u16 },
    Send { on: Index, bytes: u16 },
    Answer { on: Index },
    Reset { on: Index },
    GoAway { is_final: bool },
}

/// A stream as its peer knows it.
#[derive(Debug, Default)]
struct PeerStream {
    receive_window: i64,
    send_window: i64,
    /// Bytes that were handed out and not consumed.
    in_flight: i64,
}

/// Both ends of a connection.
struct Ends {
    session: Http2,
    parts: HeadParts,
    /// Bytes that the peer may send, and that the server may send.
    receive_window: i64,
    send_window: i64,
    initial_send_window: i64,
    streams: BTreeMap<u32, PeerStream>,
    next: u32,
}

impl Ends {
    fn new() -> Ends {
        let mut ends = Ends {
            session: Http2::new(LIMITS),
            parts: HeadParts::default(),
            receive_window: 65_535,
            send_window: 65_535,
            initial_send_window: 65_535,
            streams: BTreeMap::new(),
            next: 1,
        };
        assert!(ends.read(BEGINNING));
        ends
    }

    /// Returns false if the connection has ended.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let Ok((used, event)) = self.session.next(bytes, &HEAD_LIMITS, &mut self.parts) else { return false };
            bytes = &bytes[used..];
            match event {
                Http2Event::More => break,
                Http2Event::Data { stream, range } => {
                    let known = self.streams.get_mut(&stream).expect("a stream that was opened");
                    known.in_flight += range.len() as i64;
                }
                _ => {}
            }
        }
        assert!(bytes.is_empty());
        self.note_output();
        true
    }

    fn note_output(&mut self) {
        let output = std::mem::take(self.session.output());
        let mut rest = output.as_slice();
        while let [l2, l1, l0, kind, _, s3, s2, s1, s0, more @ ..] = rest {
            let (payload, behind) = more.split_at(u32::from_be_bytes([0, *l2, *l1, *l0]) as usize);
            let stream = u32::from_be_bytes([*s3, *s2, *s1, *s0]);
            if *kind == WINDOW_UPDATE {
                let more = i64::from(u32::from_be_bytes(payload.try_into().expect("four bytes")));
                assert!(more > 0);
                match stream {
                    0 => self.receive_window += more,
                    _ => self.streams.get_mut(&stream).expect("a stream that was opened").receive_window += more,
                }
            }
            rest = behind;
        }
    }

    fn pick(&self, on: &Index) -> Option<u32> {
        let numbers: Vec<u32> = self.streams.keys().copied().collect();
        (!numbers.is_empty()).then(|| numbers[on.index(numbers.len())])
    }

    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Open { is_complete, announced } => {
                let stream = self.next;
                self.next += 2;
                let known =
                    PeerStream { receive_window: STREAM_WINDOW.into(), send_window: self.initial_send_window, in_flight: 0 };
                self.streams.insert(stream, known);
                let length = announced.map(|bytes| fields(&[("content-length", &bytes.to_string())]));
                match is_complete {
                    true => self.read(&get(stream)),
                    false => self.read(&frame(HEADERS, END_HEADERS, stream, &[POST, &length.unwrap_or_default()].concat())),
                }
            }
            Step::Data { on, bytes, padding, is_last, meanwhile } => {
                let Some(stream) = self.pick(on) else { return true };
                let flags = u8::from(*is_last) * END_STREAM + u8::from(padding.is_some()) * PADDED;
                let start: Vec<u8> = padding.iter().copied().collect();
                let end = vec![0; padding.map_or(0, usize::from)];
                let bytes = usize::from(*bytes).min(16_384 - start.len() - end.len());
                let frame = frame(DATA, flags, stream, &[&start[..], &vec![b'x'; bytes], &end].concat());
                let length = frame.len() as i64 - 9;
                // The peer respects the connection's window: exceeding it would end the connection.
                if length > self.receive_window {
                    return true;
                }
                self.receive_window -= length;
                self.streams.get_mut(&stream).expect("it is known").receive_window -= length;
                let (begin, rest) = frame.split_at(BEGUN_BYTES.max(frame.len() / 2).min(frame.len()));
                self.read(begin) && meanwhile.as_ref().is_none_or(|own| self.own(own)) && self.read(rest)
            }
            Step::Trailers { on } => {
                let Some(stream) = self.pick(on) else { return true };
                self.read(&frame(HEADERS, WHOLE, stream, &fields(&[("x", "y")])))
            }
            Step::ResetByPeer { on } => {
                let Some(stream) = self.pick(on) else { return true };
                self.read(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]))
            }
            Step::Grant { on, bytes } => {
                let bytes = u32::from(*bytes) + 1;
                let stream = match on {
                    None => Some(0),
                    Some(on) => self.pick(on),
                };
                let Some(stream) = stream else { return true };
                match stream {
                    0 => self.send_window += i64::from(bytes),
                    _ => self.streams.get_mut(&stream).expect("it is known").send_window += i64::from(bytes),
                }
                self.read(&frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()))
            }
            Step::InitialWindow { bytes } => {
                let change = i64::from(*bytes) - self.initial_send_window;
                self.initial_send_window += change;
                self.streams.values_mut().for_each(|known| known.send_window += change);
                self.read(&frame(SETTINGS, 0, 0, &[&[0, 4, 0, 0][..], &bytes.to_be_bytes()].concat()))
            }
            Step::Own(own) => self.own(own),
        }
    }

    fn own(&mut self, own: &Own) -> bool {
        let on = match own {
            Own::Take { on, .. } | Own::Send { on, .. } | Own::Answer { on } | Own::Reset { on } => self.pick(on),
            Own::GoAway { is_final } => {
                self.session.go_away(*is_final);
                self.note_output();
                return true;
            }
        };
        let Some(stream) = on else { return true };
        let known = self.streams.get_mut(&stream).expect("it is known");
        match own {
            Own::Take { bytes, .. } => {
                self.session.note_taken(stream, (*bytes).into());
                known.in_flight = (known.in_flight - i64::from(*bytes)).max(0);
            }
            Own::Send { bytes, .. } => {
                let bytes = self.session.room(stream).min((*bytes).into());
                self.session.note_sent(stream, bytes);
                known.send_window -= bytes as i64;
                self.send_window -= bytes as i64;
                assert!(self.send_window >= 0, "more was sent than the connection's window has");
            }
            Own::Answer { .. } => self.session.note_answered(stream),
            Own::Reset { .. } => self.session.reset(stream, ErrorCode::INTERNAL_ERROR),
            Own::GoAway { .. } => {}
        }
        self.note_output();
        true
    }

    /// Checks the invariants between two frames.
    fn check(&mut self) {
        for (stream, known) in &mut self.streams {
            if !self.session.is_open(*stream) {
                known.in_flight = 0;
                assert_eq!(self.session.room(*stream), 0);
                continue;
            }
            let room = known.send_window.min(self.send_window).max(0) as u64;
            assert_eq!(self.session.room(*stream), room, "what may be sent on the stream {stream} is what was granted");
            let kept = i64::from(STREAM_WINDOW) - known.receive_window - known.in_flight;
            if self.session.is_body_open(*stream) {
                assert!((0..i64::from(STREAM_WINDOW / 2)).contains(&kept), "{kept} bytes of the stream {stream} are kept back");
            }
        }
        // Less than half of the window may be held back from WINDOW_UPDATE.
        let in_flight: i64 = self.streams.values().map(|known| known.in_flight).sum();
        assert_eq!(self.session.in_flight(), in_flight);
        let kept = i64::from(CONNECTION_WINDOW) - self.receive_window - in_flight;
        assert!((0..i64::from(CONNECTION_WINDOW / 2)).contains(&kept), "{kept} bytes of the connection are kept back");
        // And less than the rest of the peer's window: unread bytes of some streams must not block the others.
        let left = self.receive_window;
        assert!(kept == 0 || kept < left, "{kept} bytes of the connection are kept back from a peer that may send {left}");
    }
}

fn own() -> impl Strategy<Value = Own> {
    let on = any::<Index>;
    prop_oneof![
        4 => (on(), any::<u16>()).prop_map(|(on, bytes)| Own::Take { on, bytes }),
        3 => (on(), any::<u16>()).prop_map(|(on, bytes)| Own::Send { on, bytes }),
        2 => on().prop_map(|on| Own::Answer { on }),
        2 => on().prop_map(|on| Own::Reset { on }),
        1 => Just(Own::GoAway { is_final: false }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let on = any::<Index>;
    let data = (on(), any::<u16>(), proptest::option::weighted(0.3, any::<u8>()), any::<bool>(), proptest::option::of(own()));
    prop_oneof![
        4 => (any::<bool>(), proptest::option::weighted(0.2, any::<u16>()))
            .prop_map(|(is_complete, announced)| Step::Open { is_complete, announced }),
        8 => data.prop_map(|(on, bytes, padding, is_last, meanwhile)| Step::Data { on, bytes, padding, is_last, meanwhile }),
        1 => on().prop_map(|on| Step::Trailers { on }),
        2 => on().prop_map(|on| Step::ResetByPeer { on }),
        3 => (proptest::option::of(on()), any::<u16>()).prop_map(|(on, bytes)| Step::Grant { on, bytes }),
        1 => any::<u16>().prop_map(|bytes| Step::InitialWindow { bytes }),
        5 => own().prop_map(Step::Own),
    ]
}

proptest! {
    #[test]
    fn windows_sum_up_after_each_frame_and_an_end_of_all_streams_leaves_nothing(
        steps in proptest::collection::vec(step(), 1..120),
        ends in proptest::collection::vec(0..3u8, 4),
    ) {
        let mut ends_of_connection = Ends::new();
        for step in &steps {
            if !ends_of_connection.step(step) {
                // A connection error: no more input is read.
                return Ok(());
            }
            ends_of_connection.check();
        }
        let open: Vec<u32> = ends_of_connection.streams.keys().copied().collect();
        let open = open.into_iter().filter(|stream| ends_of_connection.session.is_open(*stream)).collect::<Vec<u32>>();
        for (stream, end) in open.into_iter().zip(ends) {
            match end {
                0 => ends_of_connection.session.note_answered(stream),
                1 => ends_of_connection.session.reset(stream, ErrorCode::CANCEL),
                _ if !ends_of_connection.read(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])) => return Ok(()),
                _ => {}
            }
            ends_of_connection.note_output();
            ends_of_connection.check();
        }
        prop_assert_eq!(ends_of_connection.session.open_streams(), 0);
        prop_assert!(ends_of_connection.streams.values().all(|known| known.in_flight == 0));
    }
}

/// Uploads that a client cancels do not use up the connection's window.
#[test]
fn cancelled_uploads_return_their_bytes_to_the_window() {
    let mut ends = Ends::new();
    for round in 0..100u32 {
        let stream = 2 * round + 1;
        let known = PeerStream { receive_window: STREAM_WINDOW.into(), send_window: 65_535, in_flight: 0 };
        ends.streams.insert(stream, known);
        ends.receive_window -= 16_384;
        ends.streams.get_mut(&stream).expect("just inserted").receive_window -= 16_384;
        let post = frame(HEADERS, END_HEADERS, stream, POST);
        let reset = frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        assert!(ends.read(&[post, frame(DATA, 0, stream, &[b'x'; 16_384]), reset].concat()));
        ends.check();
    }
}
