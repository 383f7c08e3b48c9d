//! Request lines in other styles than uWSGI's: a short one for people, and a JSON object. It does not know about connections.
//! Worker threads run it, if the settings select such a style.

use bolide_log::Level;
use bolide_log::json::{begin_object, begin_object_with, escaped, number, string};
use bolide_protocol::trace_context::text_of;

use crate::logging::log_line::{LogLine, RequestNotes, URI_BYTES, visible};

/// An additional key of an object, up to its number: a copy of a constant costs least.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

/// JSON keys whose values are variables of the request; omitted if the request does not have them.
pub const JSON_NAMES: [(&str, &str); 3] =
    [(key!("host"), "HTTP_HOST"), (key!("referer"), "HTTP_REFERER"), (key!("user_agent"), "HTTP_USER_AGENT")];

/// The type of a request's object.
pub const REQUEST: &str = "request";

/// The position of the time in C's `ctime`.
const TIME_OF_DAY: std::ops::Range<usize> = 11..19;
/// The length of the longer of the usual methods.
const METHOD_COLUMNS: usize = 4;

/// `21:03:24 GET  /boom  500  19 ms  265 B`
pub fn short(buffer: &mut Vec<u8>, line: &LogLine<'_>, colored: bool) {
    let color: &[u8] = match line.status {
        _ if !colored => b"",
        500.. => b"\x1b[31m",
        400..=499 => b"\x1b[33m",
        300..=399 => b"\x1b[36m",
        _ => b"\x1b[32m",
    };
    buffer.extend_from_slice(line.ctime.get(TIME_OF_DAY).unwrap_or_default());
    buffer.push(b' ');
    visible(buffer, line.method);
    // The usual methods have three or four letters, so the following text is aligned.
    buffer.extend_from_slice(if line.method.len() < METHOD_COLUMNS { b"  " } else { b" " });
    visible(buffer, &line.uri[..line.uri.len().min(URI_BYTES)]);
    buffer.extend_from_slice(b"  ");
    buffer.extend_from_slice(color);
    buffer.extend_from_slice(itoa::Buffer::new().format(line.status).as_bytes());
    if !color.is_empty() {
        buffer.extend_from_slice(b"\x1b[0m");
    }
    let rest = format!("  {} ms  {} B\n", line.microseconds / 1000, line.body_bytes);
    buffer.extend_from_slice(rest.as_bytes());
}

/// `{"time":…,"type":"request",…}`. `slow_ms`: a request that took as long is a warning. `usual` follows the time of all others,
/// from [`bolide_log::json::after_time`].
pub fn json(buffer: &mut Vec<u8>, line: &LogLine<'_>, notes: &RequestNotes<'_>, slow_ms: Option<u64>, usual: &[u8]) {
    let is_slow = slow_ms.is_some_and(|slow_ms| line.microseconds / 1000 >= slow_ms);
    match Level::of_request(line.status, is_slow) {
        Level::Info => begin_object_with(buffer, usual),
        level => begin_object(buffer, level, REQUEST),
    }
    buffer.extend_from_slice(b",\"message\":\"");
    escaped(buffer, line.method);
    buffer.push(b' ');
    escaped(buffer, &line.uri[..line.uri.len().min(URI_BYTES)]);
    buffer.push(b'"');
    numbered(buffer, key!("core"), line.core.into());
    text(buffer, key!("address"), line.address);
    text(buffer, key!("user"), line.user);
    text(buffer, key!("method"), line.method);
    text(buffer, key!("uri"), line.uri);
    text(buffer, key!("protocol"), line.protocol);
    for (place, (key, _)) in JSON_NAMES.iter().enumerate() {
        text(buffer, key, notes.request(place));
    }
    numbered(buffer, key!("status"), line.status.into());
    numbered(buffer, key!("bytes"), line.body_bytes);
    numbered(buffer, key!("head_bytes"), line.head_bytes);
    numbered(buffer, key!("microseconds"), line.microseconds);
    if let Some(identity) = notes.identity {
        text(buffer, key!("request_id"), identity.id.as_bytes());
        if let Some(trace) = &identity.trace {
            text(buffer, key!("trace_id"), text_of(&trace.context.trace).as_bytes());
            text(buffer, key!("span_id"), text_of(&trace.context.span).as_bytes());
        }
    }
    if line.is_broken {
        buffer.extend_from_slice(b",\"broken\":true");
    }
    if !notes.application.is_empty() {
        buffer.extend_from_slice(b",\"variables\":{");
        for (number, (name, value)) in notes.application.iter().enumerate() {
            if number > 0 {
                buffer.push(b',');
            }
            string(buffer, name);
            buffer.push(b':');
            string(buffer, value);
        }
        buffer.push(b'}');
    }
    buffer.extend_from_slice(b"}\n");
}

fn numbered(buffer: &mut Vec<u8>, key: &str, value: u64) {
    buffer.extend_from_slice(key.as_bytes());
    number(buffer, value);
}

/// Adds a key with its text, if not empty.
fn text(buffer: &mut Vec<u8>, key: &str, value: &[u8]) {
    if !value.is_empty() {
        buffer.extend_from_slice(key.as_bytes());
        string(buffer, &value[..value.len().min(URI_BYTES)]);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::logging::log_line::Texts;
    use crate::logging::log_line::tests::line;

    #[test]
    fn a_short_line_has_time_request_status_and_duration() {
        let written = |status, colored| {
            let mut buffer = Vec::new();
            short(&mut buffer, &LogLine { status, ..line() }, colored);
            String::from_utf8_lossy(&buffer).into_owned()
        };
        assert_eq!(written(200, false), "08:49:37 GET  /x?y  200  1 ms  12 B\n");
        assert_eq!(written(500, true), "08:49:37 GET  /x?y  \x1b[31m500\x1b[0m  1 ms  12 B\n");
    }

    #[test]
    fn an_object_has_one_line_whatever_the_client_has_sent() {
        let values = Texts::of([&b"a\"\n"[..], b"", b"\xff"].into_iter().map(Cow::Borrowed));
        let own = vec![(b"k\"".to_vec(), b"v\\".to_vec())];
        let mut buffer = Vec::new();
        json(
            &mut buffer,
            &LogLine { uri: b"/\"\r\n", ..line() },
            &RequestNotes { values: Some(&values), application: &own, identity: None },
            None,
            b"",
        );
        let text = String::from_utf8(buffer).expect("UTF-8");
        let (_, rest) = text.split_once(",\"message\"").expect("a message");
        assert_eq!(
            rest,
            concat!(
                ":\"GET /\\\"\\r\\n\",\"core\":0,\"address\":\"127.0.0.1\",\"method\":\"GET\",\"uri\":\"/\\\"\\r\\n\",",
                "\"protocol\":\"HTTP/1.1\",",
                "\"host\":\"a\\\"\\n\",\"user_agent\":\"\u{fffd}\",\"status\":200,\"bytes\":12,\"head_bytes\":79,",
                "\"microseconds\":1999,",
                "\"variables\":{\"k\\\"\":\"v\\\\\"}}\n"
            )
        );
    }
}
