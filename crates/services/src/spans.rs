//! A request as a span of OpenTelemetry: the message `Span` of OTLP, and the request of an export around many of them. Field
//! numbers are those of opentelemetry-proto 1.x (trace.proto, common.proto, resource.proto), names those of the semantic
//! conventions for HTTP servers. It does not know the engine's requests, clocks or sockets. Workers encode a span, the exporter
//! the export.

use crate::protobuf::{Message, fields};

/// Most bytes of an encoded span; a longer one loses its attributes from the last one on.
pub const MAX_SPAN_BYTES: usize = 4096;
/// Most bytes of the text of an attribute.
pub const MAX_TEXT_BYTES: usize = 512;

/// The methods of RFC 9110 and RFC 5789; the semantic conventions have one word for all others.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
const OTHER_METHOD: &str = "_OTHER";

/// `SPAN_KIND_SERVER`.
const SERVER: u64 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// A finished request.
#[derive(Debug, Default)]
pub struct Span<'a> {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// `None`: the trace begins here.
    pub parent: Option<[u8; 8]>,
    pub state: &'a [u8],
    /// `GET /orders/:id`, or the method alone if the route is not known.
    pub name: &'a str,
    /// Begin and end, in nanoseconds since 1970.
    pub begin_ns: u64,
    pub end_ns: u64,
    pub attributes: &'a [(&'static str, Value<'a>)],
    /// Name and time of each event, in nanoseconds since 1970.
    pub events: &'a [(&'static str, u64)],
    /// The request has failed; the text says how, and may be empty.
    pub error: Option<&'a str>,
}

/// The value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Text(&'a str),
    Whole(i64),
}

/// A method as spans have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method<'a> {
    /// `http.request.method`.
    pub word: &'a str,
    /// `http.request.method_original`, of a method without a word of its own; otherwise empty.
    pub original: &'a str,
    /// The name of a span without a route.
    pub name: &'a str,
}

impl Method<'_> {
    pub fn of(method: &str) -> Method<'_> {
        match METHODS.contains(&method) {
            true => Method { word: method, original: "", name: method },
            false => Method { word: OTHER_METHOD, original: method, name: "HTTP" },
        }
    }
}

impl Span<'_> {
    /// Returns the message `Span`, at most [`MAX_SPAN_BYTES`] long.
    pub fn encoded(&self) -> Vec<u8> {
        let mut attributes = self.attributes;
        loop {
            let message = self.with(attributes);
            match attributes.split_last() {
                Some((_, fewer)) if message.0.len() > MAX_SPAN_BYTES => attributes = fewer,
                _ => return message.0,
            }
        }
    }

    fn with(&self, attributes: &[(&'static str, Value<'_>)]) -> Message {
        let mut message = Message::default();
        message.bytes(1, &self.trace);
        message.bytes(2, &self.span);
        if !self.state.is_empty() {
            message.bytes(3, self.state);
        }
        if let Some(parent) = &self.parent {
            message.bytes(4, parent);
        }
        message.bytes(5, cut(self.name).as_bytes());
        message.number(6, SERVER);
        message.fixed(7, self.begin_ns);
        message.fixed(8, self.end_ns);
        for (name, value) in attributes {
            message.message(9, &attribute(name, *value));
        }
        message.number(10, (self.attributes.len() - attributes.len()) as u64);
        for (name, at_ns) in self.events {
            let mut event = Message::default();
            event.fixed(1, *at_ns);
            event.bytes(2, name.as_bytes());
            message.message(11, &event);
        }
        if let Some(words) = self.error {
            let mut status = Message::default();
            status.bytes(2, cut(words).as_bytes());
            status.number(3, ERROR);
            message.message(15, &status);
        }
        message
    }
}

/// Most bytes of a [`packet`].
pub const MAX_PACKET_BYTES: usize = MAX_SPAN_BYTES + 4;

/// A worker's message to the process that sends spans: how many its socket had no room for before, then a span.
pub fn packet(lost: u32, span: &[u8]) -> Vec<u8> {
    [&lost.to_le_bytes(), span].concat()
}

/// Reads a [`packet`]. `None`: it is none.
pub fn of_packet(packet: &[u8]) -> Option<(u32, &[u8])> {
    let (lost, span) = packet.split_first_chunk()?;
    Some((u32::from_le_bytes(*lost), span))
}

/// The message `ExportTraceServiceRequest`, of spans that were encoded before.
pub fn export(resource: &[(String, String)], version: &str, spans: &[Vec<u8>]) -> Vec<u8> {
    let mut described = Message::default();
    for (name, value) in resource {
        described.message(1, &attribute(name, Value::Text(value)));
    }
    let mut scope = Message::default();
    scope.bytes(1, b"bolide");
    scope.bytes(2, version.as_bytes());
    let mut scoped = Message::default();
    scoped.message(1, &scope);
    for span in spans {
        scoped.bytes(2, span);
    }
    let mut of_resource = Message::default();
    of_resource.message(1, &described);
    of_resource.message(2, &scoped);
    let mut request = Message::default();
    request.message(1, &of_resource);
    request.0
}

/// The message `KeyValue`.
fn attribute(name: &str, value: Value<'_>) -> Message {
    let mut any = Message::default();
    match value {
        Value::Text(text) => any.bytes(1, cut(text).as_bytes()),
        Value::Whole(number) => any.number(3, number.cast_unsigned()),
    }
    let mut pair = Message::default();
    pair.bytes(1, name.as_bytes());
    pair.message(2, &any);
    pair
}

/// Cuts a text, between two characters.
fn cut(text: &str) -> &str {
    let most = text.len().min(MAX_TEXT_BYTES);
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Reads an answer to an export: how many spans the collector does not want, and why. (The message `ExportTraceServiceResponse`,
/// whose only field is one `partial_success`.)
pub fn rejected(answer: &[u8]) -> (u64, String) {
    let (mut count, mut why) = (0, String::new());
    let partial = fields(answer).into_iter().find(|(field, ..)| *field == 1);
    for (field, number, bytes) in partial.map(|(.., bytes)| fields(bytes)).unwrap_or_default() {
        match field {
            1 => count = number,
            2 => why = String::from_utf8_lossy(bytes).into_owned(),
            _ => {}
        }
    }
    (count, why)
}

/// Whether a trace is sampled that begins here: the same share of all traces in each process, without a state, from the trace's
/// last seven bytes (the rule of OpenTelemetry's sampler `traceidratio`, which other servers of the trace may use too).
pub fn is_sampled(trace: &[u8; 16], share: f64) -> bool {
    let random = trace[9..].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    random < (share.clamp(0.0, 1.0) * (1u64 << 56) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_fields_of_the_format() {
        let span = Span {
            trace: [1; 16],
            span: [2; 8],
            parent: Some([3; 8]),
            name: "GET",
            begin_ns: 1,
            end_ns: 2,
            attributes: &[("a", Value::Text("b")), ("n", Value::Whole(300))],
            events: &[("body", 1)],
            error: Some(""),
            ..Span::default()
        };
        let expected = [
            &[10, 16][..],
            &[1; 16],
            &[18, 8],
            &[2; 8],
            &[34, 8],
            &[3; 8],
            &[42, 3, b'G', b'E', b'T', 48, 2, 57, 1, 0, 0, 0, 0, 0, 0, 0, 65, 2, 0, 0, 0, 0, 0, 0, 0],
            &[74, 8, 10, 1, b'a', 18, 3, 10, 1, b'b', 74, 8, 10, 1, b'n', 18, 3, 24, 0xac, 2, 80, 0],
            &[90, 15, 9, 1, 0, 0, 0, 0, 0, 0, 0, 18, 4, b'b', b'o', b'd', b'y', 122, 4, 18, 0, 24, 2],
        ];
        assert_eq!(span.encoded(), expected.concat());
    }

    #[test]
    fn a_long_span_loses_its_last_attributes_and_says_how_many() {
        let text = "x".repeat(MAX_TEXT_BYTES + 9);
        let attributes = [("a", Value::Text(text.as_str())); 10];
        let encoded = Span { attributes: &attributes, ..Span::default() }.encoded();
        assert!(encoded.len() <= MAX_SPAN_BYTES);
        // An attribute has more than 512 bytes, so seven of the ten fit.
        assert!(encoded.len() > 7 * MAX_TEXT_BYTES && encoded.ends_with(&[80, 3]), "{}", encoded.len());
    }

    #[test]
    fn a_packet_is_read_as_it_was_made() {
        assert_eq!(of_packet(&packet(7, b"span")), Some((7, &b"span"[..])));
        assert_eq!(of_packet(b"abc"), None);
    }

    #[test]
    fn an_export_has_the_spans_as_they_are() {
        let made = export(&[("service.name".to_owned(), "shop".to_owned())], "0.1.0", &[vec![1, 2], vec![3]]);
        assert!(made.windows(7).any(|part| part == [18, 2, 1, 2, 18, 1, 3]));
        assert!(made.windows(4).any(|part| part == b"shop"));
    }

    #[test]
    fn an_answer_says_how_many_spans_are_not_wanted() {
        assert_eq!(rejected(b""), (0, String::new()));
        assert_eq!(rejected(b"\x0a\x08\x08\x03\x12\x04full"), (3, "full".to_owned()));
        assert_eq!(rejected(b"<html>no message</html>").0, 0);
    }

    #[test]
    fn the_share_of_traces_is_that_of_all_numbers() {
        assert!(is_sampled(&[0xff; 16], 1.0) && is_sampled(&[0; 16], 0.001) && !is_sampled(&[0; 16], 0.0));
        let half = |first: u8| is_sampled(&[0, 0, 0, 0, 0, 0, 0, 0, 0, first, 0, 0, 0, 0, 0, 0], 0.5);
        assert!(half(0x7f) && !half(0x80));
    }
}
