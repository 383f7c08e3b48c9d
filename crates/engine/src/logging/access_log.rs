//! Request lines, formatted into a buffer and written once per iteration of the event loop.
//!
//! Without `log-format` the format is that of uWSGI 2.0, byte for byte; other formats are in `log_format` and `log_styles`. The
//! crate `log` writes the lines without blocking. Worker threads run it.

use std::io::Write;

use bolide_contract::logging::{LogDate, LogStyle, Logging};
use bolide_log::{Level, json};

use crate::logging::log_format::LogFormat;
use crate::logging::log_line::{ADDRESS_BYTES, LogLine, RequestNotes, URI_BYTES, memory_bytes, visible};
use crate::logging::log_styles;

/// The buffer is written early when it has reached this size.
const BUFFER_BYTES: usize = 64 * 1024;

/// The format of request lines.
pub enum LineStyle {
    Uwsgi { microseconds: bool },
    Format(LogFormat),
    Short { colored: bool },
    Json { names: Vec<Vec<u8>>, slow_ms: Option<u64> },
}

impl LineStyle {
    /// The format that the settings select. It checks whether the log is a terminal.
    pub fn of(logging: &Logging) -> LineStyle {
        let date = match &logging.date {
            LogDate::Strftime(format) if logging.dates_format => Some(format.as_str()),
            _ => None,
        };
        let at_terminal = logging.style == LogStyle::ShortAtTerminal && bolide_log::is_terminal();
        match (&logging.format, logging.style) {
            (Some(format), _) => LineStyle::Format(LogFormat::compile(format, date)),
            (None, LogStyle::Json) => {
                let names = log_styles::JSON_NAMES.map(|(_, name)| name.as_bytes().to_vec()).to_vec();
                LineStyle::Json { names, slow_ms: slowest_usual_ms(logging) }
            }
            (None, LogStyle::Short) => LineStyle::Short { colored: bolide_log::is_colored() },
            (None, LogStyle::ShortAtTerminal) if at_terminal => LineStyle::Short { colored: bolide_log::is_colored() },
            (None, LogStyle::Uwsgi | LogStyle::ShortAtTerminal) => LineStyle::Uwsgi { microseconds: logging.microseconds },
        }
    }

    /// Whether lines have the identity of their request.
    pub fn has_identities(&self) -> bool {
        match self {
            LineStyle::Format(format) => format.has_identities(),
            LineStyle::Json { .. } => true,
            LineStyle::Uwsgi { .. } | LineStyle::Short { .. } => false,
        }
    }

    /// Names of the request's variables in the lines.
    pub fn names(&self) -> &[Vec<u8>] {
        match self {
            LineStyle::Format(format) => format.names(),
            LineStyle::Json { names, .. } => names,
            LineStyle::Uwsgi { .. } | LineStyle::Short { .. } => &[],
        }
    }
}

/// The milliseconds from which a request of the JSON log is a warning: those of `log-slow` or of `slow-request`.
fn slowest_usual_ms(logging: &Logging) -> Option<u64> {
    [logging.always.slow_ms, logging.slow_request_ms].into_iter().flatten().min()
}

pub struct AccessLog {
    buffer: Vec<u8>,
    /// What is constant near the begin of lines: `[pid: 42|app: `, or what follows the time in JSON.
    start: Vec<u8>,
    style: &'static LineStyle,
    memory_report: bool,
}

impl AccessLog {
    pub fn new(style: &'static LineStyle, memory_report: bool) -> AccessLog {
        let start = match style {
            LineStyle::Json { .. } => json::after_time(Level::Info, log_styles::REQUEST),
            _ => format!("[pid: {}|app: ", std::process::id()).into_bytes(),
        };
        AccessLog { buffer: Vec::new(), start, style, memory_report }
    }

    /// Appends a line.
    pub fn line(&mut self, line: &LogLine<'_>, notes: &RequestNotes<'_>) {
        match self.style {
            LineStyle::Uwsgi { microseconds } => self.uwsgi(line, *microseconds),
            LineStyle::Format(format) => format.write(&mut self.buffer, line, notes),
            LineStyle::Short { colored } => log_styles::short(&mut self.buffer, line, *colored),
            LineStyle::Json { slow_ms, .. } => log_styles::json(&mut self.buffer, line, notes, *slow_ms, &self.start),
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    fn uwsgi(&mut self, line: &LogLine<'_>, microseconds: bool) {
        if self.memory_report {
            self.report_memory();
        }
        self.buffer.extend_from_slice(&self.start);
        let mut digits = itoa::Buffer::new();
        let mut number = |buffer: &mut Vec<u8>, value: u64, after: &[u8]| {
            buffer.extend_from_slice(digits.format(value).as_bytes());
            buffer.extend_from_slice(after);
        };
        let buffer = &mut self.buffer;
        number(buffer, u64::from(line.application), b"|req: ");
        number(buffer, line.request, b"/");
        number(buffer, line.request_of_all, b"] ");
        visible(buffer, &line.address[..line.address.len().min(ADDRESS_BYTES)]);
        buffer.extend_from_slice(b" (");
        visible(buffer, line.user);
        buffer.extend_from_slice(b") {");
        number(buffer, u64::from(line.variables), b" vars in ");
        number(buffer, u64::from(line.variable_bytes), b" bytes} [");
        buffer.extend_from_slice(line.ctime);
        buffer.extend_from_slice(b"] ");
        visible(buffer, line.method);
        buffer.push(b' ');
        visible(buffer, &line.uri[..line.uri.len().min(URI_BYTES)]);
        buffer.extend_from_slice(b" => generated ");
        number(buffer, line.body_bytes, b" bytes in ");
        if microseconds {
            number(buffer, line.microseconds, if line.via_sendfile { b" micros via sendfile() (" } else { b" micros (" });
        } else {
            number(buffer, line.microseconds / 1000, if line.via_sendfile { b" msecs via sendfile() (" } else { b" msecs (" });
        }
        visible(buffer, line.protocol);
        buffer.push(b' ');
        number(buffer, u64::from(line.status), b") ");
        number(buffer, u64::from(line.header_count), b" headers in ");
        // A synchronous application is entered once: uWSGI counts one switch.
        number(buffer, line.head_bytes, b" bytes (1 switches on core ");
        number(buffer, u64::from(line.core), b")\n");
    }

    /// Writes the buffer, and lines that are still pending in the log.
    pub fn flush(&mut self) {
        if self.buffer.is_empty() {
            return bolide_log::flush();
        }
        bolide_log::write_requests(&self.buffer);
        self.buffer.clear();
    }

    fn report_memory(&mut self) {
        let (address_space, resident) = memory_bytes();
        let mebibyte = 1024 * 1024;
        // Writing to a Vec can't fail.
        let _ = write!(
            self.buffer,
            "{{address space usage: {address_space} bytes/{}MB}} {{rss usage: {resident} bytes/{}MB}} ",
            address_space / mebibyte,
            resident / mebibyte
        );
    }
}

/// Logs a message of a worker, immediately, with the worker's number.
pub fn complain(worker: u32, message: &str) {
    bolide_log::line(&format!("worker {worker}: {message}"));
}

/// Writes a line of a route's `log:`, with control characters replaced, because it may contain a client's bytes.
pub fn tell(line: &[u8]) {
    let mut text = Vec::with_capacity(line.len() + 1);
    visible(&mut text, line);
    if let Some(own) = text.strip_prefix(b"bolide: ") {
        return bolide_log::line(&String::from_utf8_lossy(own));
    }
    text.push(b'\n');
    bolide_log::write(&text);
}

/// Writes several such lines, and removes them from the list.
pub fn tell_all(lines: &mut Vec<Vec<u8>>) {
    for line in lines.drain(..) {
        tell(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::log_line::tests::line;

    #[test]
    fn the_line_is_uwsgis_own() {
        let mut log = AccessLog::new(&LineStyle::Uwsgi { microseconds: false }, false);
        log.line(&line(), &RequestNotes::default());
        let expected = format!(
            "[pid: {}|app: 0|req: 3/7] 127.0.0.1 () {{28 vars in 317 bytes}} [Sun Nov  6 08:49:37 1994] GET /x?y \
             => generated 12 bytes in 1 msecs (HTTP/1.1 200) 2 headers in 79 bytes (1 switches on core 0)\n",
            std::process::id()
        );
        assert_eq!(String::from_utf8_lossy(&log.buffer), expected);
    }
}
