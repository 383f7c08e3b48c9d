//! Cases of client bytes on a WebSocket: RFC 6455 sections 5 to 8, RFC 7692 sections 6 and 7.2. Most masks are zero, so that the
//! payloads are readable. The limits of the receiver are [`LIMITS`].

use std::borrow::Cow;

use bolide_protocol::websocket::{Deflate, Event, Limits, MessageKind, handshake};

use super::Refusal;

pub struct WebsocketCase {
    pub bytes: &'static [u8],
    pub has_deflate: bool,
    /// The events before the end.
    events: &'static [TestEvent],
    pub end: Ending,
}

/// An event that can be a constant.
#[derive(Debug, Clone, Copy)]
pub enum TestEvent {
    Text(&'static [u8]),
    Binary(&'static [u8]),
    Ping(&'static [u8]),
    Pong(&'static [u8]),
    Close(Option<u16>, &'static str),
}

impl WebsocketCase {
    pub fn events(&self) -> Vec<Event<'static>> {
        let event = |told: &TestEvent| match *told {
            TestEvent::Text(payload) => Event::Message { kind: MessageKind::Text, payload: Cow::Borrowed(payload) },
            TestEvent::Binary(payload) => Event::Message { kind: MessageKind::Binary, payload: Cow::Borrowed(payload) },
            TestEvent::Ping(payload) => Event::Ping(Cow::Borrowed(payload)),
            TestEvent::Pong(payload) => Event::Pong(Cow::Borrowed(payload)),
            TestEvent::Close(code, reason) => Event::Close { code, reason: Cow::Borrowed(reason) },
        };
        self.events.iter().map(event).collect()
    }
}

/// The state of the connection after the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Between two messages.
    Between,
    /// Within a frame or a message.
    Within,
    /// The last event was a close.
    Closed,
    Failed(Refusal),
}

/// Small enough for the cases to reach.
pub const LIMITS: Limits = Limits { message_bytes: 300 };

/// permessage-deflate for a client that does not send parameters.
pub fn plain_deflate() -> Deflate {
    handshake::negotiate(b"permessage-deflate").ok().flatten().expect("the plainest offer is accepted")
}

const fn case(bytes: &'static [u8], events: &'static [TestEvent], end: Ending) -> WebsocketCase {
    WebsocketCase { bytes, has_deflate: false, events, end }
}

const fn told(bytes: &'static [u8], events: &'static [TestEvent]) -> WebsocketCase {
    case(bytes, events, Ending::Between)
}

const fn amid(bytes: &'static [u8], events: &'static [TestEvent]) -> WebsocketCase {
    case(bytes, events, Ending::Within)
}

const fn closed(bytes: &'static [u8], events: &'static [TestEvent]) -> WebsocketCase {
    case(bytes, events, Ending::Closed)
}

const fn refused(bytes: &'static [u8], code: u16, words: &'static str) -> WebsocketCase {
    case(bytes, &[], Ending::Failed((code, words)))
}

const fn refused_after(events: &'static [TestEvent], bytes: &'static [u8], code: u16, words: &'static str) -> WebsocketCase {
    case(bytes, events, Ending::Failed((code, words)))
}

const fn deflated(case: WebsocketCase) -> WebsocketCase {
    WebsocketCase { has_deflate: true, ..case }
}

const fn text(payload: &'static str) -> TestEvent {
    TestEvent::Text(payload.as_bytes())
}

const fn binary(payload: &'static [u8]) -> TestEvent {
    TestEvent::Binary(payload)
}

const fn ping(payload: &'static [u8]) -> TestEvent {
    TestEvent::Ping(payload)
}

const fn pong(payload: &'static [u8]) -> TestEvent {
    TestEvent::Pong(payload)
}

const fn close(code: Option<u16>, reason: &'static str) -> TestEvent {
    TestEvent::Close(code, reason)
}

const RESERVED_BIT: &str = "reserved bit";
const OPCODE: &str = "opcode is reserved";
const UNMASKED: &str = "not masked";
const NOT_UTF8: &str = "A text message is not UTF-8";
const CODE: &str = "code is invalid";
const CORRUPT: &str = "compressed data is corrupt";
const TOO_LONG: &str = "longer than the limit";
const FRAGMENTED: &str = "control frame is fragmented";
const LONG_CONTROL: &str = "longer than 125";

const DIGITS_126: &[u8; 126] = &[b'5'; 126];
const DIGITS_300: &[u8; 300] = &[b'5'; 300];

/// Joins the parts of a constant case.
const fn joined<const LENGTH: usize>(head: &[u8], payload: &[u8]) -> [u8; LENGTH] {
    let mut whole = [0; LENGTH];
    whole.split_at_mut(head.len()).0.copy_from_slice(head);
    whole.split_at_mut(head.len()).1.copy_from_slice(payload);
    whole
}

pub const CASES: &[WebsocketCase] = &[
    told(b"", &[]),
    // RFC 6455 section 5.7: a masked text.
    told(b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", &[text("Hello")]),
    told(b"\x81\x80\0\0\0\0", &[text("")]),
    told(b"\x82\x80\x37\xfa\x21\x3d", &[binary(b"")]),
    told(b"\x82\x83\0\0\0\0\0\xff\x80", &[binary(b"\0\xff\x80")]),
    told(b"\x81\x8b\0\0\0\0\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5", &[text("κ\u{1f79}σμε")]),
    told(b"\x81\x81\0\0\0\0a\x82\x81\0\0\0\0b\x81\x81\0\0\0\0c", &[text("a"), binary(b"b"), text("c")]),
    // Lengths of two and eight bytes, necessary or not.
    told(&joined::<134>(b"\x81\xfe\0\x7e\0\0\0\0", DIGITS_126), &[text_of(DIGITS_126)]),
    told(&joined::<308>(b"\x82\xfe\x01\x2c\0\0\0\0", DIGITS_300), &[binary(DIGITS_300)]),
    told(b"\x81\xfe\0\x01\0\0\0\0a", &[text("a")]),
    told(b"\x81\xff\0\0\0\0\0\0\0\x01\0\0\0\0a", &[text("a")]),
    // Fragments, some of them empty, a character split between two, and control frames in between.
    told(b"\x01\x83\0\0\0\0Hel\x80\x82\0\0\0\0lo", &[text("Hello")]),
    told(b"\x02\x80\0\0\0\0\0\x80\0\0\0\0\x80\x80\0\0\0\0", &[binary(b"")]),
    told(b"\x01\x80\0\0\0\0\0\x81\0\0\0\0a\0\x80\0\0\0\0\x80\x80\0\0\0\0", &[text("a")]),
    told(b"\x01\x81\0\0\0\0\xce\x80\x81\0\0\0\0\xba", &[text("κ")]),
    told(b"\x01\x83\0\0\0\0Hel\x89\x81\0\0\0\0!\x8a\x80\0\0\0\0\x80\x82\0\0\0\0lo", &[ping(b"!"), pong(b""), text("Hello")]),
    told(b"\x02\x82\x01\x01\x01\x01\x01\x02\0\x82\x02\x02\x02\x02\x02\x03\x80\x80\0\0\0\0", &[binary(b"\0\x03\0\x01")]),
    amid(b"\x01\x83\0\0\0\0Hel", &[]),
    amid(b"\x01\x83\0\0\0\0Hel\x89\x81\0\0\0\0!", &[ping(b"!")]),
    amid(b"\x81\x85\0\0\0\0Hel", &[]),
    amid(b"\x81\x85\0\0", &[]),
    amid(b"\x81", &[]),
    amid(b"\x89\x85\0\0\0\0Hel", &[]),
    amid(b"\x81\x81\0\0\0\0a\x82\xfe\x01\x2c\0\0\0\0half", &[text("a")]),
    amid(b"\x81\x83\0\0\0\0\xf4\x8f", &[]),
    // Control frames.
    told(b"\x89\x80\0\0\0\0", &[ping(b"")]),
    told(b"\x89\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", &[ping(b"Hello")]),
    told(b"\x8a\x84\0\0\0\0\0\xff\x80\x01", &[pong(b"\0\xff\x80\x01")]),
    told(&joined::<131>(b"\x89\xfd\0\0\0\0", DIGITS_126.split_at(125).0), &[ping(DIGITS_126.split_at(125).0)]),
    refused(b"\x89\xfe\0\x7e\0\0\0\0", 1002, LONG_CONTROL),
    refused(b"\x8a\xfe\x01\0\0\0\0\0", 1002, LONG_CONTROL),
    refused(b"\x88\xff\0\0\0\0\0\0\0\x7e\0\0\0\0", 1002, LONG_CONTROL),
    refused(b"\x09\x80\0\0\0\0", 1002, FRAGMENTED),
    refused(b"\x0a\x80\0\0\0\0", 1002, FRAGMENTED),
    refused(b"\x08\x80\0\0\0\0", 1002, FRAGMENTED),
    // Close frames. Bytes after one are ignored.
    closed(b"\x88\x80\0\0\0\0", &[close(None, "")]),
    closed(b"\x88\x82\0\0\0\0\x03\xe8", &[close(Some(1000), "")]),
    closed(b"\x88\x87\0\0\0\0\x03\xe9leave", &[close(Some(1001), "leave")]),
    closed(b"\x88\x84\0\0\0\0\x0b\xb8\xce\xba", &[close(Some(3000), "κ")]),
    closed(b"\x88\x82\0\0\0\0\x03\xf6", &[close(Some(1014), "")]),
    closed(b"\x88\x82\0\0\0\0\x13\x87", &[close(Some(4999), "")]),
    closed(b"\x01\x83\0\0\0\0Hel\x88\x80\0\0\0\0", &[close(None, "")]),
    closed(b"\x81\x81\0\0\0\0a\x88\x80\0\0\0\0\x81\x81\0\0\0\0b\xff\xff", &[text("a"), close(None, "")]),
    refused(b"\x88\x81\0\0\0\0\x03", 1002, "code is incomplete"),
    refused(b"\x88\x82\0\0\0\0\0\0", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\x03\xe7", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\x03\xec", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\x03\xed", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\x03\xee", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\x03\xf7", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\x03\xf8", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\x0b\xb7", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\x13\x88", 1002, CODE),
    refused(b"\x88\x82\0\0\0\0\xff\xff", 1002, CODE),
    refused(b"\x88\x83\0\0\0\0\x03\xe8\xff", 1007, "reason is not UTF-8"),
    refused(b"\x88\x83\0\0\0\0\x03\xe8\xce", 1007, "reason is not UTF-8"),
    // Invalid headers. They are refused before the rest of the frame comes.
    refused(b"\x81\x05", 1002, UNMASKED),
    refused(b"\x89\0", 1002, UNMASKED),
    refused(b"\xc1\x85\0\0\0\0", 1002, RESERVED_BIT),
    refused(b"\xa1\x85\0\0\0\0", 1002, RESERVED_BIT),
    refused(b"\x91\x85\0\0\0\0", 1002, RESERVED_BIT),
    refused(b"\xc9\x80\0\0\0\0", 1002, RESERVED_BIT),
    refused(b"\x83\x80\0\0\0\0", 1002, OPCODE),
    refused(b"\x87\x80\0\0\0\0", 1002, OPCODE),
    refused(b"\x8b\x80\0\0\0\0", 1002, OPCODE),
    refused(b"\x8f\x80\0\0\0\0", 1002, OPCODE),
    refused(b"\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0", 1002, "most significant bit"),
    // Frames in the wrong place.
    refused(b"\x80\x80\0\0\0\0", 1002, "without a message to continue"),
    refused(b"\0\x81\0\0\0\0a", 1002, "without a message to continue"),
    refused_after(&[text("a")], b"\x81\x81\0\0\0\0a\x80\x80\0\0\0\0", 1002, "without a message to continue"),
    refused(b"\x01\x81\0\0\0\0a\x81\x81\0\0\0\0b", 1002, "before the previous one has ended"),
    refused_after(&[ping(b"")], b"\x01\x80\0\0\0\0\x89\x80\0\0\0\0\x02\x80\0\0\0\0", 1002, "before the previous one has ended"),
    // Invalid texts, found at the first bad byte.
    refused(b"\x81\x81\0\0\0\0\xff", 1007, NOT_UTF8),
    refused(b"\x81\x81\0\0\0\0\xce", 1007, NOT_UTF8),
    refused(b"\x81\x83\0\0\0\0\xed\xa0\x80", 1007, NOT_UTF8),
    refused(b"\x81\x84\0\0\0\0\xf4\x90\x80\x80", 1007, NOT_UTF8),
    refused(b"\x81\x82\0\0\0\0\xc0\x80", 1007, NOT_UTF8),
    refused(b"\x81\xfe\x01\0\0\0\0\0abc\xff", 1007, NOT_UTF8),
    refused(b"\x81\xfe\x01\0\0\0\0\0\xf4\x90", 1007, NOT_UTF8),
    refused(b"\x01\x82\0\0\0\0a\xff", 1007, NOT_UTF8),
    refused(b"\x01\x81\0\0\0\0\xce\0\x81\0\0\0\0a", 1007, NOT_UTF8),
    refused(b"\x01\x81\0\0\0\0\xce\x80\x80\0\0\0\0", 1007, NOT_UTF8),
    // Beyond the limit, by the announced length.
    refused(b"\x82\xfe\x01\x2d\0\0\0\0", 1009, TOO_LONG),
    refused(b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009, TOO_LONG),
    refused(b"\x02\x81\0\0\0\0a\x80\xfe\x01\x2c\0\0\0\0", 1009, TOO_LONG),
    // RFC 7692 section 7.2.3: one block, two fragments, no compression, a final block, two blocks.
    deflated(told(b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\0", &[text("Hello")])),
    deflated(told(b"\x41\x83\0\0\0\0\xf2\x48\xcd\x80\x84\0\0\0\0\xc9\xc9\x07\0", &[text("Hello")])),
    deflated(told(b"\xc1\x8b\0\0\0\0\0\x05\0\xfa\xffHello\0", &[text("Hello")])),
    deflated(told(b"\xc1\x88\0\0\0\0\xf3\x48\xcd\xc9\xc9\x07\0\0", &[text("Hello")])),
    deflated(told(b"\xc1\x8d\0\0\0\0\xf2\x48\x05\0\0\0\xff\xff\xca\xc9\xc9\x07\0", &[text("Hello")])),
    // A final block without the byte after it, and two of them.
    deflated(told(b"\xc1\x87\0\0\0\0\xf3\x48\xcd\xc9\xc9\x07\0", &[text("Hello")])),
    deflated(told(b"\xc1\x8f\0\0\0\0\xf3\x48\xcd\xc9\xc9\x07\0\xf3\x48\xcd\xc9\xc9\x07\0\0", &[text("HelloHello")])),
    // An empty message, in the specified form and in the form that some send.
    deflated(told(b"\xc2\x81\0\0\0\0\0", &[binary(b"")])),
    deflated(told(b"\xc2\x82\0\0\0\0\x02\0", &[binary(b"")])),
    deflated(told(b"\xc2\x80\0\0\0\0", &[binary(b"")])),
    // Compression is optional for each message, and no message uses the context of an earlier one.
    deflated(told(b"\x81\x85\0\0\0\0Hello\xc2\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\0", &[text("Hello"), binary(b"Hello")])),
    deflated(told(b"\x41\x83\0\0\0\0\xf2\x48\xcd\x89\x81\0\0\0\0!\x80\x84\0\0\0\0\xc9\xc9\x07\0", &[ping(b"!"), text("Hello")])),
    // Section 7.2.3.2: a second message that refers to the first one.
    deflated(refused_after(
        &[text("Hello")],
        b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\0\xc1\x85\0\0\0\0\xf2\0\x11\0\0",
        1007,
        CORRUPT,
    )),
    deflated(amid(b"\xc1\x87\0\0\0\0\xf2\x48\xcd", &[])),
    deflated(refused(b"\xc1\x81\0\0\0\0\xff", 1007, CORRUPT)),
    deflated(refused(b"\xc1\x85\0\0\0\0Hello", 1007, CORRUPT)),
    deflated(refused(b"\xc1\x84\0\0\0\0\xf2\x48\xcd\xc9", 1007, CORRUPT)),
    deflated(refused(b"\xc1\x88\0\0\0\0\0\x05\0\xfa\xffHel", 1007, CORRUPT)),
    // A block that would read the end of the message as its own bytes.
    deflated(refused(b"\xc1\x8a\0\0\0\0\0\x64\0\x9b\xffHello", 1007, CORRUPT)),
    // A stored block that contains the byte 0xff.
    deflated(refused(b"\xc1\x87\0\0\0\0\0\x01\0\xfe\xff\xff\0", 1007, NOT_UTF8)),
    // A thousand zeros in a few bytes.
    deflated(refused(b"\xc2\x8b\0\0\0\0\x62\x60\x18\x05\xa3\x60\x14\x0c\x77\0\0", 1009, TOO_LONG)),
    deflated(refused(b"\xc2\xfe\x05\xff\0\0\0\0", 1009, TOO_LONG)),
    deflated(refused(b"\xc9\x80\0\0\0\0", 1002, RESERVED_BIT)),
    deflated(refused(b"\xe1\x80\0\0\0\0", 1002, RESERVED_BIT)),
    deflated(refused(b"\x41\x80\0\0\0\0\xc0\x80\0\0\0\0", 1002, RESERVED_BIT)),
    deflated(refused(b"\x01\x80\0\0\0\0\xc0\x80\0\0\0\0", 1002, RESERVED_BIT)),
];

const fn text_of(payload: &'static [u8]) -> TestEvent {
    TestEvent::Text(payload)
}
