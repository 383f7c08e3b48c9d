//! Cases of HTTP/2 connections: the bytes and the expected events.

/// The beginning of a client's bytes: the preface and empty settings.
pub const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub struct Case {
    pub name: &'static str,
    /// After [`BEGINNING`], except for the cases that have their own beginning.
    pub bytes: Vec<u8>,
    pub has_own_beginning: bool,
    /// The session's events, followed by the frames that it sends besides its settings and their acknowledgment, each with `<`.
    pub told: &'static [&'static str],
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const PRIORITY_UPDATE: u8 = 16;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const HAS_PRIORITY: u8 = 0x20;
/// A request without a body.
pub const WHOLE: u8 = END_STREAM | END_HEADERS;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, l2, l1, l0] = (payload.len() as u32).to_be_bytes();
    let [s3, s2, s1, s0] = stream.to_be_bytes();
    [&[l2, l1, l0, kind, flags, s3, s2, s1, s0], payload].concat()
}

/// Fields as literals that are not added to the table.
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            match text.len() {
                length @ 0..127 => block.push(length as u8),
                length => {
                    block.push(127);
                    let rest = length - 127;
                    block.extend_from_slice(&[rest as u8 | 0x80, (rest >> 7) as u8 | 0x80, (rest >> 14) as u8]);
                }
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// `GET /` of http://x, by the static table.
pub const GET: &[u8] = b"\x82\x86\x84\x41\x01x";
pub const POST: &[u8] = b"\x83\x86\x84\x41\x01x";

pub fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, WHOLE, stream, GET)
}

fn with(start: &[u8], more: &[(&str, &str)]) -> Vec<u8> {
    [start, &fields(more)].concat()
}

/// A GET with these fields after its own.
fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, WHOLE, 1, &with(GET, more))
}

/// A GET with only these fields.
fn get_of(all: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, WHOLE, 1, &fields(all))
}

fn post_with(more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, &with(POST, more))
}

const NOT_A_REQUEST: &[&str] = &["<RST_STREAM 1 PROTOCOL_ERROR"];
const HEAD_1: &str = "head 1 GET / complete";
const FIVE: &str = "head 1 POST / length 5 content-length=5";
const BODY_1: &str = "head 1 POST / chunked";
const PROTOCOL_ERROR: &[&str] = &["error PROTOCOL_ERROR", "<GOAWAY 0 PROTOCOL_ERROR"];
const SIZE_ERROR: &[&str] = &["error FRAME_SIZE_ERROR", "<GOAWAY 0 FRAME_SIZE_ERROR"];
const COMPRESSION_ERROR: &[&str] = &["error COMPRESSION_ERROR", "<GOAWAY 0 COMPRESSION_ERROR"];
const PROTOCOL_ERROR_1: &[&str] = &[HEAD_1, "error PROTOCOL_ERROR", "<GOAWAY 1 PROTOCOL_ERROR"];
const PROTOCOL_ERROR_BODY: &[&str] = &[BODY_1, "error PROTOCOL_ERROR", "<GOAWAY 1 PROTOCOL_ERROR"];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for list in [beginnings, requests, malformed_heads, bodies, sizes, states, windows, controls, compression] {
        list(&mut |name, bytes: Vec<u8>, told| cases.push(Case { name, bytes, has_own_beginning: false, told }));
    }
    for case in &mut cases {
        case.has_own_beginning = case.name.starts_with("beginning: ");
    }
    cases
}

type Add<'a> = &'a mut dyn FnMut(&'static str, Vec<u8>, &'static [&'static str]);

fn beginnings(add: Add<'_>) {
    let preface = &BEGINNING[..24];
    add("beginning: HTTP/1.1", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), PROTOCOL_ERROR);
    add("beginning: a preface with an error at its end", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r".to_vec(), PROTOCOL_ERROR);
    add("beginning: no settings", [preface, &get(1)].concat(), PROTOCOL_ERROR);
    add("beginning: settings that acknowledge", [preface, &frame(SETTINGS, 1, 0, b"")].concat(), PROTOCOL_ERROR);
    add("beginning: a request", [BEGINNING, &get(1)].concat(), &[HEAD_1]);
}

fn requests(add: Add<'_>) {
    add("a request", get(1), &[HEAD_1]);
    add("the same again is the same", [get(1), get(3)].concat(), &[HEAD_1, "head 3 GET / complete"]);
    let cookies = [("cookie", "a=b"), ("x", "y"), ("cookie", "c=d"), ("cookie", "e")];
    add("cookies are one field", get_with(&cookies), &["head 1 GET / complete x=y cookie=a=b; c=d; e"]);
    add("a host that is :authority", get_with(&[("host", "X")]), &[HEAD_1]);
    let host = [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("accept", "*/*"), ("host", "x")];
    add("a host without :authority", get_of(&host), &["head 1 GET / complete accept=*/*"]);
    add("an empty host", get_of(&[host[0], host[1], host[2], ("host", "")]), &["refused 1 400"]);
    add("an empty :authority", get_of(&[host[0], host[1], host[2], (":authority", "")]), &["refused 1 400"]);
    add("a port for a host", get_of(&[host[0], host[1], host[2], (":authority", ":80")]), &["refused 1 400"]);
    add("no host at all", get_of(&host[..4]), &["refused 1 400"]);
    let path = |path| get_of(&[(":method", "OPTIONS"), (":scheme", "https"), (":path", path), (":authority", "x")]);
    add("OPTIONS *", path("*"), &["head 1 OPTIONS * complete"]);
    add("a query", path("/a?b=%20&c"), &["head 1 OPTIONS /a?b=%20&c complete"]);
    let scheme = |scheme| get_of(&[(":method", "GET"), (":scheme", scheme), (":path", "/"), (":authority", "x")]);
    add("a scheme in large letters", scheme("HTTPS"), &[HEAD_1]);
    add("another scheme", scheme("javascript"), &["refused 1 400"]);
    add("a scheme that begins as one", scheme("httpss"), &["refused 1 400"]);
    add("a path beyond ASCII", path("/\u{e4}"), &["refused 1 400"]);
    add("a name with an underscore is left out", get_with(&[("x_y", "1"), ("x", "2")]), &["head 1 GET / complete x=2"]);
    let underscored = |stream| frame(HEADERS, WHOLE, stream, &with(GET, &[("x_forwarded_for", "6.6.6.6"), ("x", "2")]));
    let left_out = &["head 1 GET / complete x=2", "head 3 GET / complete x=2", "head 5 GET / complete x=2"];
    add("a name with an underscore is left out each time", [underscored(1), underscored(3), underscored(5)].concat(), left_out);
    let kept = frame(HEADERS, WHOLE, 1, &[GET, b"\x40\x03x_y\x01a"].concat());
    let named = |stream| frame(HEADERS, WHOLE, stream, b"\x82\x86\x84\xbf\xbe");
    let nothing = &["head 1 GET / complete", "head 3 GET / complete", "head 5 GET / complete"];
    add("a name with an underscore that is in the table is left out", [kept, named(3), named(5)].concat(), nothing);
    add("an underscored name with a malformed value", get_with(&[("x_y", "a\r\nb")]), NOT_A_REQUEST);
    add("an underscored name with a large letter", get_with(&[("X_y", "a")]), NOT_A_REQUEST);
    let many: Vec<(&str, &str)> = (0..101).map(|_| ("x_y", "y")).collect();
    add("more underscored fields than may be", get_with(&many), &["refused 1 431"]);
    add("te: trailers", get_with(&[("te", "trailers")]), &["head 1 GET / complete te=trailers"]);
    add("an expectation", post_with(&[("expect", "100-continue")]), &["head 1 POST / chunked continue expect=100-continue"]);
    add("an expectation without a body", get_with(&[("expect", "100-continue")]), &["head 1 GET / complete expect=100-continue"]);
    add("another expectation", get_with(&[("expect", "tea")]), &["refused 1 417"]);
    add("a Content-Length that is none", post_with(&[("content-length", "x")]), &["refused 1 400"]);
    add("a priority", get_with(&[("priority", "u=1, i")]), &["head 1 GET / complete u=1 i priority=u=1, i"]);
    let connect = fields(&[(":method", "CONNECT"), (":authority", "x:443")]);
    add("CONNECT", frame(HEADERS, END_HEADERS, 1, &connect), &["head 1 CONNECT x:443 chunked"]);
    let socket =
        [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":path", "/chat"), (":authority", "x")];
    add("extended CONNECT", frame(HEADERS, END_HEADERS, 1, &fields(&socket)), &["head 1 CONNECT /chat chunked for websocket"]);
    let pieces = [frame(HEADERS, END_STREAM, 1, &GET[..2]), frame(CONTINUATION, 0, 1, b""), frame(CONTINUATION, 4, 1, &GET[2..])];
    add("a head in three frames", pieces.concat(), &[HEAD_1]);
    let padded = [&[3], GET, &[0; 3][..]].concat();
    add("a padded head", frame(HEADERS, WHOLE | PADDED, 1, &padded), &[HEAD_1]);
    let depends = [&[0x80, 0, 0, 3, 255], GET].concat();
    add("a head with a priority of RFC 7540", frame(HEADERS, WHOLE | HAS_PRIORITY, 1, &depends), &[HEAD_1]);
    let long = "v".repeat(9000);
    add("more fields than fit", get_with(&[("x", &long)]), &["refused 1 431"]);
    let long = format!("/{}", "v".repeat(5000));
    add("a longer path than fits", path(&long), &["refused 1 414"]);
    let many: Vec<(&str, &str)> = (0..101).map(|_| ("x", "y")).collect();
    add("more fields than may be", get_with(&many), &["refused 1 431"]);
    add("the table is kept by what is too much", too_much_then_indexed(), &["refused 1 431", "head 3 GET / complete x=y"]);
}

/// A refused head adds a field to the table, and the next head refers to it.
fn too_much_then_indexed() -> Vec<u8> {
    let many = fields(&vec![("x", "y"); 101]);
    let first = frame(HEADERS, WHOLE, 1, &[GET, &many, b"\x40\x01x\x01y"].concat());
    [first, frame(HEADERS, WHOLE, 3, b"\x82\x86\x84\xbf\xbe")].concat()
}

fn malformed_heads(add: Add<'_>) {
    let method = (":method", "GET");
    let (scheme, path, authority) = ((":scheme", "http"), (":path", "/"), (":authority", "x"));
    let of: &[(&'static str, &[(&str, &str)])] = &[
        ("no method", &[scheme, path, authority]),
        ("no scheme", &[method, path, authority]),
        ("no path", &[method, scheme, authority]),
        ("an empty path", &[method, scheme, (":path", ""), authority]),
        ("a path without a slash", &[method, scheme, (":path", "a"), authority]),
        ("a path that is a URI", &[method, scheme, (":path", "http://x/"), authority]),
        ("a path with a blank", &[method, scheme, (":path", "/a b"), authority]),
        ("a path with a line end", &[method, scheme, (":path", "/ HTTP/2.0\r\nx: y"), authority]),
        ("* of GET", &[method, scheme, (":path", "*"), authority]),
        ("a method that is not a token", &[(":method", "G T"), scheme, path, authority]),
        ("a scheme that is none", &[method, (":scheme", "1"), path, authority]),
        ("a method twice", &[method, method, scheme, path, authority]),
        ("a path twice", &[method, scheme, path, path, authority]),
        ("a pseudo-header field of answers", &[method, scheme, path, authority, (":status", "200")]),
        ("an unknown pseudo-header field", &[method, scheme, path, authority, (":test", "ok")]),
        ("a pseudo-header field behind another field", &[method, scheme, path, ("x", "y"), authority]),
        ("CONNECT with a path", &[(":method", "CONNECT"), path, authority]),
        ("CONNECT of no host", &[(":method", "CONNECT")]),
        ("a protocol of GET", &[method, (":protocol", "websocket"), scheme, path, authority]),
        ("a protocol without a path", &[(":method", "CONNECT"), (":protocol", "websocket"), authority]),
    ];
    for (name, all) in of {
        add(name, get_of(all), NOT_A_REQUEST);
    }
    let more: &[(&'static str, (&str, &str))] = &[
        ("a name with a large letter", ("X-Test", "ok")),
        ("a name that is empty", ("", "ok")),
        ("a name with a blank", ("x y", "ok")),
        ("a name with a colon", ("x: y", "ok")),
        ("a name with a line end", ("x\r\ny", "ok")),
        ("a value with a line end", ("x", "a\r\nb: c")),
        ("a value with a line feed", ("x", "a\nb")),
        ("a value with a NUL", ("x", "a\0")),
        ("a value that begins with a blank", ("x", " a")),
        ("a value that ends with a tab", ("x", "a\t")),
        ("a crumb that ends with a blank", ("cookie", "a ")),
        ("connection", ("connection", "keep-alive")),
        ("keep-alive", ("keep-alive", "1")),
        ("proxy-connection", ("proxy-connection", "keep-alive")),
        ("upgrade", ("upgrade", "h2c")),
        ("transfer-encoding", ("transfer-encoding", "chunked")),
        ("te", ("te", "trailers, deflate;q=0.5")),
        ("another host", ("host", "y")),
        ("a body that is announced and does not come", ("content-length", "1")),
    ];
    for (name, field) in more {
        add(name, get_with(&[*field]), NOT_A_REQUEST);
    }
    // A value that makes the block's bytes equal to those of an accepted one does not make the blocks equal.
    let good = get_with(&[("a", "b"), ("c", "d")]);
    let forged = frame(HEADERS, WHOLE, 3, &with(GET, &[("a", "b\r\nc: d")]));
    add("a forged block", [good, forged].concat(), &["head 1 GET / complete a=b c=d", "<RST_STREAM 3 PROTOCOL_ERROR"]);
    // Nor does a name with a colon that is in the table.
    let good = get_with(&[("x", "a: b")]);
    let kept = frame(HEADERS, WHOLE, 3, &[GET, b"\x40\x04x: a\x01b"].concat());
    let named = frame(HEADERS, WHOLE, 5, b"\x82\x86\x84\xbf\xbe");
    add(
        "a forged block of the table",
        [good, kept, named].concat(),
        &["head 1 GET / complete x=a: b", "<RST_STREAM 3 PROTOCOL_ERROR", "<RST_STREAM 5 PROTOCOL_ERROR"],
    );
    let depends = [&[0, 0, 0, 1, 255], GET].concat();
    add("a stream that depends on itself", frame(HEADERS, WHOLE | HAS_PRIORITY, 1, &depends), NOT_A_REQUEST);
}

fn bodies(add: Add<'_>) {
    let data = |flags, bytes: &[u8]| frame(DATA, flags, 1, bytes);
    add("a body", [post_with(&[]), data(0, b"hel"), data(1, b"lo")].concat(), &[BODY_1, "data 1 hello", "end 1"]);
    let length = |length| post_with(&[("content-length", length)]);
    add("a body of a length", [length("5"), data(1, b"hello")].concat(), &[FIVE, "data 1 hello", "end 1"]);
    add("an empty body", [post_with(&[]), data(1, b"")].concat(), &[BODY_1, "end 1"]);
    add(
        "a body with padding",
        [length("5"), data(PADDED, b"\x03hel\0\0\0"), data(PADDED | 1, b"\x00lo")].concat(),
        &[FIVE, "data 1 hello", "end 1"],
    );
    add("nothing but padding", [post_with(&[]), data(PADDED | 1, b"\x03\0\0\0")].concat(), &[BODY_1, "end 1"]);
    add(
        "more than was announced",
        [length("5"), data(0, b"hello!")].concat(),
        &[FIVE, "reset 1 PROTOCOL_ERROR", "<RST_STREAM 1 PROTOCOL_ERROR"],
    );
    add(
        "less than was announced",
        [length("5"), data(1, b"hell")].concat(),
        &[FIVE, "data 1 hell", "reset 1 PROTOCOL_ERROR", "<RST_STREAM 1 PROTOCOL_ERROR"],
    );
    let trailers = |flags, all| frame(HEADERS, END_HEADERS | flags, 1, &fields(all));
    let good = [("x-trailer", "1")];
    add("trailers", [post_with(&[]), data(0, b"a"), trailers(1, &good)].concat(), &[BODY_1, "data 1 a", "end 1"]);
    let reset = &[BODY_1, "reset 1 PROTOCOL_ERROR", "<RST_STREAM 1 PROTOCOL_ERROR"];
    add("trailers that end nothing", [post_with(&[]), trailers(0, &good)].concat(), reset);
    add("trailers with a pseudo-header field", [post_with(&[]), trailers(1, &[(":path", "/")])].concat(), reset);
    add("trailers with a large letter", [post_with(&[]), trailers(1, &[("X", "/")])].concat(), reset);
    add("padding of all bytes", [post_with(&[]), data(PADDED, b"\x06hello")].concat(), PROTOCOL_ERROR_BODY);
    add("padding without a length", [post_with(&[]), data(PADDED, b"")].concat(), PROTOCOL_ERROR_BODY);
    add(
        "two bodies at the same time",
        [post_with(&[]), frame(HEADERS, END_HEADERS, 3, POST), data(0, b"a"), frame(DATA, 1, 3, b"b"), data(1, b"c")].concat(),
        &[BODY_1, "head 3 POST / chunked", "data 1 a", "data 3 b", "end 3", "data 1 c", "end 1"],
    );
    add(
        "the body of a refused request",
        [length("x"), data(1, b"hello"), get(3)].concat(),
        &["refused 1 400", "head 3 GET / complete"],
    );
}

fn sizes(add: Add<'_>) {
    add("a frame that is too large", frame(DATA, 0, 1, &[0; 16_385]), SIZE_ERROR);
    add("an unknown frame that is too large", frame(0xfe, 0, 1, &[0; 16_385]), SIZE_ERROR);
    add("RST_STREAM of another size", frame(RST_STREAM, 0, 1, &[0; 3]), SIZE_ERROR);
    add("WINDOW_UPDATE of another size", frame(WINDOW_UPDATE, 0, 0, &[0; 5]), SIZE_ERROR);
    add("PING of another size", frame(PING, 0, 0, &[0; 6]), SIZE_ERROR);
    add("SETTINGS of another size", frame(SETTINGS, 0, 0, &[0; 5]), SIZE_ERROR);
    add("an acknowledgment with settings", frame(SETTINGS, 1, 0, &[0; 6]), SIZE_ERROR);
    add("PRIORITY of another size", frame(PRIORITY, 0, 1, &[0; 4]), SIZE_ERROR);
    add("GOAWAY of another size", frame(GOAWAY, 0, 0, &[0; 7]), SIZE_ERROR);
    add("HEADERS without room for its priority", frame(HEADERS, WHOLE | HAS_PRIORITY, 1, &[0; 4]), SIZE_ERROR);
    add("padding of more than a head", frame(HEADERS, WHOLE | PADDED, 1, &[7, 0x82, 0x86]), PROTOCOL_ERROR);
}

fn states(add: Add<'_>) {
    let closed = &[HEAD_1, "reset 1 STREAM_CLOSED", "<RST_STREAM 1 STREAM_CLOSED"];
    let reset = |stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    add("DATA without a request", frame(DATA, 1, 1, b"a"), PROTOCOL_ERROR);
    add("DATA of no stream", frame(DATA, 1, 0, b"a"), PROTOCOL_ERROR);
    add("HEADERS of no stream", frame(HEADERS, WHOLE, 0, GET), PROTOCOL_ERROR);
    add("HEADERS of an even stream", frame(HEADERS, WHOLE, 2, GET), PROTOCOL_ERROR);
    add(
        "HEADERS below the last stream",
        [get(5), get(3)].concat(),
        &["head 5 GET / complete", "error PROTOCOL_ERROR", "<GOAWAY 5 PROTOCOL_ERROR"],
    );
    add("RST_STREAM without a request", reset(1), PROTOCOL_ERROR);
    add("RST_STREAM of no stream", reset(0), PROTOCOL_ERROR);
    add("WINDOW_UPDATE without a request", frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), PROTOCOL_ERROR);
    add("CONTINUATION without HEADERS", frame(CONTINUATION, 4, 1, GET), PROTOCOL_ERROR);
    add("CONTINUATION behind a whole head", [get(1), frame(CONTINUATION, 4, 1, GET)].concat(), PROTOCOL_ERROR_1);
    let open = frame(HEADERS, END_STREAM, 1, GET);
    for other in
        [frame(PING, 0, 0, &[0; 8]), frame(CONTINUATION, 4, 3, b""), get(3), frame(0xfe, 0, 0, b""), frame(DATA, 0, 1, b"")]
    {
        add("another frame within a head", [open.clone(), other].concat(), PROTOCOL_ERROR);
    }
    add("DATA behind the end", [get(1), frame(DATA, 1, 1, b"a")].concat(), closed);
    add("HEADERS behind the end", [get(1), get(1)].concat(), closed);
    add("a reset", [get(1), reset(1), get(3)].concat(), &[HEAD_1, "reset 1 CANCEL by the peer", "head 3 GET / complete"]);
    let late = &[HEAD_1, "reset 1 CANCEL by the peer", "<RST_STREAM 1 STREAM_CLOSED"];
    add("DATA behind a reset", [get(1), reset(1), frame(DATA, 1, 1, b"a")].concat(), late);
    add("HEADERS behind a reset", [get(1), reset(1), get(1)].concat(), late);
    let update = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    add("what may cross a reset", [get(1), reset(1), update, reset(1)].concat(), &[HEAD_1, "reset 1 CANCEL by the peer"]);
    add("PUSH_PROMISE", [get(1), frame(PUSH_PROMISE, 4, 1, &[0, 0, 0, 2])].concat(), PROTOCOL_ERROR_1);
}

fn windows(add: Add<'_>) {
    let update = |stream, by: u32| frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
    let setting = |name: u16, value: u32| frame(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
    let flow = &["error FLOW_CONTROL_ERROR", "<GOAWAY 0 FLOW_CONTROL_ERROR"];
    add("a window that grows by nothing", update(0, 0), PROTOCOL_ERROR);
    add(
        "a stream's window that grows by nothing",
        [get(1), update(1, 0)].concat(),
        &[HEAD_1, "reset 1 PROTOCOL_ERROR", "<RST_STREAM 1 PROTOCOL_ERROR"],
    );
    add("a window that grows too large", update(0, 0x7fff_ffff), flow);
    add(
        "a stream's window that grows too large",
        [get(1), update(1, 0x7fff_ffff)].concat(),
        &[HEAD_1, "reset 1 FLOW_CONTROL_ERROR", "<RST_STREAM 1 FLOW_CONTROL_ERROR"],
    );
    add("a first window that is too large", setting(4, 0x8000_0000), flow);
    let grown = [setting(4, 0x7fff_ffff), get(1), update(1, 1)].concat();
    add(
        "a window that is as large as may be",
        grown,
        &[HEAD_1, "reset 1 FLOW_CONTROL_ERROR", "<RST_STREAM 1 FLOW_CONTROL_ERROR"],
    );
    let both = [get(1), update(1, 1), setting(4, 0x7fff_ffff)].concat();
    add("settings make a window too large", both, &[HEAD_1, "error FLOW_CONTROL_ERROR", "<GOAWAY 1 FLOW_CONTROL_ERROR"]);
    let closed = [setting(4, 0), get(1), update(1, 5), update(1, 5)].concat();
    add("a closed window opens", closed, &[HEAD_1, "room 1"]);
    add("settings open a closed window", [setting(4, 0), get(1), setting(4, 1)].concat(), &[HEAD_1, "room 0"]);
    let below = [get(1), setting(4, 0), update(1, 1), setting(4, 1)].concat();
    add("a window of a stream that is open is changed", below, &[HEAD_1, "room 1"]);
}

fn controls(add: Add<'_>) {
    let setting = |name: u16, value: u32| frame(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
    add("PING", frame(PING, 0, 0, b"12345678"), &["<PING ack 12345678"]);
    add("PING that acknowledges", frame(PING, 1, 0, b"12345678"), &[]);
    add("PING of a stream", frame(PING, 0, 1, &[0; 8]), PROTOCOL_ERROR);
    add("SETTINGS of a stream", frame(SETTINGS, 0, 1, b""), PROTOCOL_ERROR);
    add("GOAWAY of a stream", frame(GOAWAY, 0, 1, &[0; 8]), PROTOCOL_ERROR);
    add("GOAWAY", [frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0bye"), get(1)].concat(), &["ended", HEAD_1]);
    add("ENABLE_PUSH of 2", setting(2, 2), PROTOCOL_ERROR);
    add("ENABLE_CONNECT_PROTOCOL of 2", setting(8, 2), PROTOCOL_ERROR);
    add("MAX_FRAME_SIZE of 16,383", setting(5, 16_383), PROTOCOL_ERROR);
    add("MAX_FRAME_SIZE of 2^24", setting(5, 1 << 24), PROTOCOL_ERROR);
    add("settings that are fine, and unknown", [setting(5, 16_384), setting(1, 0), setting(0xff, 7), get(1)].concat(), &[HEAD_1]);
    add("an unknown frame", [frame(0xfe, 0xff, 7, &[0; 300]), get(1)].concat(), &[HEAD_1]);
    add("a frame with unknown flags", frame(PING, 0xfe, 0, b"12345678"), &["<PING ack 12345678"]);
    add("PRIORITY", [frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 7]), get(1)].concat(), &[HEAD_1]);
    add("PRIORITY of no stream", frame(PRIORITY, 0, 0, &[0; 5]), PROTOCOL_ERROR);
    add("PRIORITY that depends on itself", frame(PRIORITY, 0, 3, &[0, 0, 0, 3, 7]), PROTOCOL_ERROR);
    let update = |stream: u32, value: &str| frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes(), value.as_bytes()].concat());
    add("PRIORITY_UPDATE before its stream", [update(1, "u=6"), get(1)].concat(), &["head 1 GET / complete u=6"]);
    add("PRIORITY_UPDATE of an even stream", update(2, "u=6"), PROTOCOL_ERROR);
    add("PRIORITY_UPDATE of a stream", frame(PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1]), PROTOCOL_ERROR);
    add("the reserved bit", frame(HEADERS, WHOLE, 0x8000_0001, GET), &[HEAD_1]);
}

fn compression(add: Add<'_>) {
    let head = |block: &[u8]| frame(HEADERS, WHOLE, 1, block);
    add("an index of 0", head(b"\x80"), COMPRESSION_ERROR);
    add("an index beyond the table", head(b"\x82\x86\x84\xc6"), COMPRESSION_ERROR);
    add("a name beyond the table", head(b"\x7f\x10\x01x"), COMPRESSION_ERROR);
    add("a block that is cut off", head(b"\x82\x86\x84\x41\x05x"), COMPRESSION_ERROR);
    add("a number without an end", head(b"\xff\xff\xff\xff\xff\xff\xff\xff\x01"), COMPRESSION_ERROR);
    add("a table larger than may be", head(b"\x3f\xe2\x1f\x82\x86\x84\x41\x01x"), COMPRESSION_ERROR);
    add("a table as large as may be", head(b"\x20\x3f\xe1\x1f\x82\x86\x84\x41\x01x"), &[HEAD_1]);
    add("a table's size behind a field", head(b"\x82\x86\x84\x41\x01x\x20"), COMPRESSION_ERROR);
    add("a table's size three times", head(b"\x20\x20\x20\x82\x86\x84\x41\x01x"), COMPRESSION_ERROR);
    add("Huffman code that is filled with zeros", head(b"\x82\x86\x84\x41\x81\x18"), COMPRESSION_ERROR);
    add("Huffman code that is filled with a byte", head(b"\x82\x86\x84\x41\x82\x1f\xff"), COMPRESSION_ERROR);
    add("Huffman code with the end of a string", head(b"\x82\x86\x84\x41\x84\xff\xff\xff\xff"), COMPRESSION_ERROR);
    add("Huffman code", head(b"\x82\x86\x84\x41\x81\x1f"), &["head 1 GET / complete of a"]);
    add("an empty head", head(b""), NOT_A_REQUEST);
}
