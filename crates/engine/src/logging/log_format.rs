//! `log-format`: compiled once, and written for each request. It does not know about connections. Worker threads run it, if the
//! settings have a format.
//!
//! Variables have uWSGI's names and meanings; an empty one is `-`. Unknown names are the application's own variables
//! (`uwsgi.set_logvar`). A client's quotation mark must not end a field. If the format is a JSON object, values are escaped for
//! JSON; if it contains quotes, values are escaped as in Apache (similar to gunicorn and nginx), with `\x27` if there are values
//! between single quotes; otherwise they are written unescaped, as in uWSGI.

use bolide_log::{dates, json};
use bolide_protocol::trace_context::text_of;

use crate::logging::log_line::{LogLine, RequestNotes, URI_BYTES, memory_bytes, quotable, visible};

/// The format of `%(ltime)`, and the default of `%(ftime)`.
const APACHE_TIME: &str = "%d/%b/%Y:%H:%M:%S %z";

/// A compiled format.
#[derive(Debug, PartialEq, Eq)]
pub struct LogFormat {
    pieces: Vec<Piece>,
    /// CGI names of the request's variables in the format.
    names: Vec<Vec<u8>>,
    time: String,
    escapes: Escapes,
}

/// The escaping of client text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escapes {
    /// Control characters are replaced by `?`.
    Visible,
    /// For a format with double quotes.
    Quotes,
    /// For a format with values between single quotes.
    SingleQuotes,
    /// For a JSON object.
    Json,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    /// A value that the server knows itself, by its index in [`KNOWN`].
    Known(usize),
    /// A variable of the request, by its index in the names.
    Request(usize),
    /// A variable of the application.
    Application(Vec<u8>),
    /// A part of the request's identity, unless the application has a variable of this name.
    Identity(IdentityPart),
    /// A metric, which is always empty.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdentityPart {
    Request,
    Trace,
    Span,
}

/// Names of these parts.
const OF_IDENTITY: &[(&str, IdentityPart)] =
    &[("request_id", IdentityPart::Request), ("trace_id", IdentityPart::Trace), ("span_id", IdentityPart::Span)];

/// What a variable is taken from.
struct Sources<'a> {
    format: &'a LogFormat,
    line: &'a LogLine<'a>,
    notes: &'a RequestNotes<'a>,
    now_us: u64,
}

impl Sources<'_> {
    fn began_us(&self) -> u64 {
        self.now_us.saturating_sub(self.line.microseconds)
    }

    /// Returns the length of the request's body, as the client has stated it.
    fn body_length(&self) -> &[u8] {
        let place = self.format.names.iter().position(|name| name == LENGTH);
        place.map(|place| self.notes.request(place)).filter(|length| !length.is_empty()).unwrap_or(b"0")
    }

    fn write_time(&self, format: &str, buffer: &mut Vec<u8>) {
        dates::strftime(buffer, format, (self.began_us() / 1_000_000) as i64);
    }
}

/// A value that the server knows itself.
enum ServerFact {
    Number(fn(&Sources<'_>) -> u64),
    /// Text of the client's, which is escaped.
    Text(for<'a> fn(&'a Sources<'_>) -> &'a [u8]),
    /// Text of the server's own.
    Written(fn(&Sources<'_>, &mut Vec<u8>)),
}

const MEBIBYTE: u64 = 1024 * 1024;

/// uWSGI's names for these values.
const KNOWN: &[(&str, ServerFact)] = {
    use ServerFact::{Number, Text, Written};
    &[
        ("uri", Text(|of| of.line.uri)),
        ("method", Text(|of| of.line.method)),
        ("user", Text(|of| of.line.user)),
        ("addr", Text(|of| of.line.address)),
        ("proto", Text(|of| of.line.protocol)),
        ("status", Number(|of| of.line.status.into())),
        ("rsize", Number(|of| of.line.body_bytes)),
        ("hsize", Number(|of| of.line.head_bytes)),
        ("size", Number(|of| of.line.head_bytes + of.line.body_bytes)),
        ("cl", Text(|of| of.body_length())),
        ("micros", Number(|of| of.line.microseconds)),
        ("msecs", Number(|of| of.line.microseconds / 1000)),
        ("secs", Written(write_seconds)),
        ("tmsecs", Number(|of| of.began_us() / 1000)),
        ("tmicros", Number(|of| of.began_us())),
        ("time", Number(|of| of.began_us() / 1_000_000)),
        ("ltime", Written(|of, buffer| of.write_time(APACHE_TIME, buffer))),
        ("ftime", Written(|of, buffer| of.write_time(&of.format.time, buffer))),
        ("ctime", Written(|of, buffer| buffer.extend_from_slice(of.line.ctime))),
        ("epoch", Number(|of| of.now_us / 1_000_000)),
        ("pid", Number(|_| std::process::id().into())),
        ("wid", Number(|of| of.line.worker.into())),
        // A synchronous application is entered once.
        ("switches", Number(|_| 1)),
        ("vars", Number(|of| of.line.variables.into())),
        ("core", Number(|of| of.line.core.into())),
        ("vsz", Number(|_| memory_bytes().0)),
        ("rss", Number(|_| memory_bytes().1)),
        ("vszM", Number(|_| memory_bytes().0 / MEBIBYTE)),
        ("rssM", Number(|_| memory_bytes().1 / MEBIBYTE)),
        ("pktsize", Number(|of| of.line.variable_bytes.into())),
        // There is a single plugin, with number 0, and no application is called for a body that can't be read.
        ("modifier1", Number(|_| 0)),
        ("modifier2", Number(|_| 0)),
        ("rerr", Number(|_| 0)),
        ("headers", Number(|of| of.line.header_count.into())),
        ("werr", Number(|of| of.line.is_broken.into())),
        ("ioerr", Number(|of| of.line.is_broken.into())),
    ]
};

fn write_seconds(of: &Sources<'_>, buffer: &mut Vec<u8>) {
    let text = format!("{}.{:06}", of.line.microseconds / 1_000_000, of.line.microseconds % 1_000_000);
    buffer.extend_from_slice(text.as_bytes());
}

/// Names of values that are variables of the request.
const OF_REQUEST: &[(&str, &str)] = &[("host", "HTTP_HOST"), ("uagent", "HTTP_USER_AGENT"), ("referer", "HTTP_REFERER")];

/// The variable of `%(cl)`.
const LENGTH: &[u8] = b"CONTENT_LENGTH";

impl LogFormat {
    /// Any text is a valid format. `time` is the strftime(3) format of `%(ftime)`.
    pub fn compile(format: &str, time: Option<&str>) -> LogFormat {
        let escapes = match format.trim() {
            text if text.starts_with('{') && text.ends_with('}') => Escapes::Json,
            text if has_values_in_single_quotes(text) => Escapes::SingleQuotes,
            // Applies to fields outside of quotes too: a quote in such a field would begin a quoted field.
            text if text.contains('"') => Escapes::Quotes,
            _ => Escapes::Visible,
        };
        let time = time.unwrap_or(APACHE_TIME).to_owned();
        let mut made = LogFormat { pieces: Vec::new(), names: Vec::new(), time, escapes };
        let mut text = String::new();
        let mut rest = format;
        while let Some(start) = rest.find("%(") {
            let after = &rest[start + 2..];
            let Some(end) = after.find(')').filter(|end| *end > 0) else {
                text.push_str(&rest[..start + 2]);
                rest = after;
                continue;
            };
            text.push_str(&rest[..start]);
            made.add_text(&mut text);
            made.add_variable(&after[..end]);
            rest = &after[end + 1..];
        }
        text.push_str(rest);
        made.add_text(&mut text);
        made
    }

    /// Whether lines have a part of the request's identity.
    pub fn has_identities(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Identity(_)))
    }

    /// The names whose values must be copied while the request's bytes are at hand.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Appends a line.
    pub fn write(&self, buffer: &mut Vec<u8>, line: &LogLine<'_>, notes: &RequestNotes<'_>) {
        let sources = Sources { format: self, line, notes, now_us: dates::now_us() };
        for piece in &self.pieces {
            let value: &[u8] = match piece {
                Piece::Text(text) => {
                    buffer.extend_from_slice(text);
                    continue;
                }
                Piece::Known(place) => match &KNOWN[*place].1 {
                    ServerFact::Text(text) => text(&sources),
                    ServerFact::Number(number) => {
                        buffer.extend_from_slice(itoa::Buffer::new().format(number(&sources)).as_bytes());
                        continue;
                    }
                    ServerFact::Written(write) => {
                        write(&sources, buffer);
                        continue;
                    }
                },
                // A field of the response that `collect-header` has made a variable is not among those of the request.
                Piece::Request(place) => match notes.request(*place) {
                    b"" => notes.of_application(&self.names[*place]),
                    value => value,
                },
                Piece::Application(name) => notes.of_application(name),
                Piece::Identity(part) => {
                    self.identity(*part, buffer, notes);
                    continue;
                }
                Piece::Nothing => b"",
            };
            self.text(buffer, value);
        }
        buffer.push(b'\n');
    }

    fn add_text(&mut self, text: &mut String) {
        if !text.is_empty() {
            self.pieces.push(Piece::Text(std::mem::take(text).into_bytes()));
        }
    }

    fn add_variable(&mut self, name: &str) {
        let piece = if let Some(place) = KNOWN.iter().position(|(known, _)| *known == name) {
            if name == "cl" {
                self.place(LENGTH);
            }
            Piece::Known(place)
        } else if let Some((_, variable)) = OF_REQUEST.iter().find(|(known, _)| *known == name) {
            Piece::Request(self.place(variable.as_bytes()))
        } else if let Some((_, part)) = OF_IDENTITY.iter().find(|(known, _)| *known == name) {
            Piece::Identity(*part)
        } else if let Some(variable) = name.strip_prefix("var.") {
            Piece::Request(self.place(variable.as_bytes()))
        } else if name.starts_with("metric.") {
            Piece::Nothing
        } else {
            Piece::Application(name.as_bytes().to_vec())
        };
        self.pieces.push(piece);
    }

    fn place(&mut self, name: &[u8]) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_vec());
            self.names.len() - 1
        })
    }

    fn identity(&self, part: IdentityPart, buffer: &mut Vec<u8>, notes: &RequestNotes<'_>) {
        let name = OF_IDENTITY.iter().find(|(_, known)| *known == part).map_or("", |(name, _)| *name);
        let own = notes.of_application(name.as_bytes());
        let trace = || notes.identity.and_then(|identity| identity.trace.as_ref());
        let said = match part {
            _ if !own.is_empty() => return self.text(buffer, own),
            IdentityPart::Request => notes.identity.map(|identity| String::from(&*identity.id)),
            IdentityPart::Trace => trace().map(|trace| text_of(&trace.context.trace)),
            IdentityPart::Span => trace().map(|trace| text_of(&trace.context.span)),
        };
        self.text(buffer, said.unwrap_or_default().as_bytes());
    }

    fn text(&self, buffer: &mut Vec<u8>, value: &[u8]) {
        let value = if value.is_empty() { b"-" } else { &value[..value.len().min(URI_BYTES)] };
        match self.escapes {
            Escapes::Visible => visible(buffer, value),
            Escapes::Quotes => quotable(buffer, value),
            Escapes::SingleQuotes => single_quotable(buffer, value),
            Escapes::Json => json::escaped(buffer, value),
        }
    }
}

/// Whether a variable is between two single quotes, not only next to apostrophes of plain text.
fn has_values_in_single_quotes(format: &str) -> bool {
    let parts: Vec<&str> = format.split('\'').collect();
    let ends = parts.len().saturating_sub(1);
    parts.iter().take(ends).skip(1).step_by(2).any(|part| part.contains("%("))
}

/// Like [`quotable`], but also escapes single quotes as `\x27`.
fn single_quotable(buffer: &mut Vec<u8>, text: &[u8]) {
    for (number, part) in text.split(|byte| *byte == b'\'').enumerate() {
        if number > 0 {
            buffer.extend_from_slice(b"\\x27");
        }
        quotable(buffer, part);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::logging::log_line::Texts;
    use crate::logging::log_line::tests::line;

    fn written(format: &str) -> String {
        let format = LogFormat::compile(format, None);
        let value = |name: &Vec<u8>| match name.as_slice() {
            b"HTTP_REFERER" => &b"a\"b\n\xff"[..],
            b"HTTP_USER_AGENT" => b"it's \"\\",
            _ => b"",
        };
        let values = Texts::of(format.names().iter().map(|name| Cow::Borrowed(value(name))));
        let own = vec![(b"mine".to_vec(), b"1".to_vec()), (b"mine".to_vec(), b"2".to_vec())];
        let mut buffer = Vec::new();
        format.write(&mut buffer, &line(), &RequestNotes { values: Some(&values), application: &own, identity: None });
        String::from_utf8_lossy(&buffer).into_owned()
    }

    #[test]
    fn each_format_produces_its_line() {
        for (format, expected) in [
            ("", "\n"),
            ("plain", "plain\n"),
            ("%(method) %(uri) %(proto)", "GET /x?y HTTP/1.1\n"),
            ("%%(status)%", "%200%\n"),
            ("%() %(", "%() %(\n"),
            ("%(rsize)+%(hsize)=%(size)", "12+79=91\n"),
            ("%(micros) %(msecs) %(secs)", "1999 1 0.001999\n"),
            ("%(user) %(host) %(metric.x) %(var.X) %(unknown)", "- - - - -\n"),
            ("%(mine)", "2\n"),
            ("%(cl) %(modifier1) %(werr) %(ioerr) %(rerr)", "0 0 0 0 0\n"),
            ("%(referer)", "a\"b?\u{fffd}\n"),
            ("\"%(referer)\" %(status)", "\"a\\\"b\\n\u{fffd}\" 200\n"),
            ("%(referer) \"%(status)\"", "a\\\"b\\n\u{fffd} \"200\"\n"),
            ("'%(uagent)' %(status)", "'it\\x27s \\\"\\\\' 200\n"),
            ("'%(method) %(uagent) %(uri)' %(referer)", "'GET it\\x27s \\\"\\\\ /x?y' a\\\"b\\n\u{fffd}\n"),
            ("\"%(status)\" '%(uagent)'", "\"200\" 'it\\x27s \\\"\\\\'\n"),
            ("\"%(uagent)\"", "\"it's \\\"\\\\\"\n"),
            ("it's %(uagent)", "it's it's \"\\\n"),
            ("it's %(status), and %(uagent)'s", "it's 200, and it\\x27s \\\"\\\\'s\n"),
            ("{\"r\": \"%(referer)\"}", "{\"r\": \"a\\\"b\\n\u{fffd}\"}\n"),
        ] {
            assert_eq!(written(format), expected, "{format}");
        }
    }

    #[test]
    fn a_variable_used_twice_is_looked_up_once() {
        assert_eq!(LogFormat::compile("%(host) %(var.HTTP_HOST) %(cl)", None).names(), [&b"HTTP_HOST"[..], LENGTH]);
    }
}
