//! uWSGI's request line, formatted into a buffer and written once a turn of the loop.
//!
//! The format is that of uWSGI 2.0 without `log-format`, byte for byte. How it is written, and that nobody waits for it, is the
//! business of the room `log`.

use std::io::Write;

/// The buffer is written before its turn when it holds this many bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Bytes of a URI that a line shows.
const URI_BYTES: usize = 2048;

/// Bytes of an address that a line shows: `log-x-forwarded-for` may have a list of them.
const ADDRESS_BYTES: usize = 512;

/// What a line says of the request, in the order in which it says it.
pub struct LogLine<'a> {
    pub application: u32,
    /// Requests of this worker, and of all workers.
    pub request: u64,
    pub request_of_all: u64,
    pub address: &'a [u8],
    pub user: &'a [u8],
    pub variables: u32,
    pub variable_bytes: u32,
    pub ctime: &'a [u8],
    pub method: &'a [u8],
    pub uri: &'a [u8],
    pub body_bytes: u64,
    pub microseconds: u64,
    pub via_sendfile: bool,
    pub protocol: &'a [u8],
    pub status: u16,
    pub header_count: u32,
    pub head_bytes: u64,
    pub core: u32,
}

pub struct AccessLog {
    buffer: Vec<u8>,
    /// `[pid: 42|app: `, which never changes.
    start: Vec<u8>,
    memory_report: bool,
}

impl AccessLog {
    pub fn new(memory_report: bool) -> AccessLog {
        AccessLog { buffer: Vec::new(), start: format!("[pid: {}|app: ", std::process::id()).into_bytes(), memory_report }
    }

    /// Adds a line.
    pub fn line(&mut self, line: &LogLine<'_>) {
        if self.memory_report {
            self.report_memory();
        }
        self.text(0);
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
        number(buffer, line.microseconds / 1000, if line.via_sendfile { b" msecs via sendfile() (" } else { b" msecs (" });
        visible(buffer, line.protocol);
        buffer.push(b' ');
        number(buffer, u64::from(line.status), b") ");
        number(buffer, u64::from(line.header_count), b" headers in ");
        // A synchronous application is entered once: uWSGI counts one switch.
        number(buffer, line.head_bytes, b" bytes (1 switches on core ");
        number(buffer, u64::from(line.core), b")\n");
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Writes what there is, and what waited.
    pub fn flush(&mut self) {
        if self.buffer.is_empty() {
            return bolide_log::flush();
        }
        bolide_log::write(&self.buffer);
        self.buffer.clear();
    }

    fn text(&mut self, _: u32) {
        self.buffer.extend_from_slice(&self.start);
    }

    fn report_memory(&mut self) {
        let (address_space, resident) = memory_bytes();
        let mebibyte = 1024 * 1024;
        // Writing into a Vec can't fail.
        let _ = write!(
            self.buffer,
            "{{address space usage: {address_space} bytes/{}MB}} {{rss usage: {resident} bytes/{}MB}} ",
            address_space / mebibyte,
            resident / mebibyte
        );
    }
}

/// A message that is no request line: to the log at once, with the worker's number.
pub fn complain(worker: u32, message: &str) {
    bolide_log::line(&format!("worker {worker}: {message}"));
}

/// A line of a route's `log:`, as it is; it may have a client's bytes in it.
pub fn tell(line: &[u8]) {
    let mut text = Vec::with_capacity(line.len() + 1);
    visible(&mut text, line);
    text.push(b'\n');
    bolide_log::write(&text);
}

/// The same for several, which are forgotten then.
pub fn tell_all(lines: &mut Vec<Vec<u8>>) {
    for line in lines.drain(..) {
        tell(&line);
    }
}

/// What a client sent is shown without its control characters: a log line is one line.
fn visible(buffer: &mut Vec<u8>, text: &[u8]) {
    let start = buffer.len();
    buffer.extend_from_slice(text);
    for byte in &mut buffer[start..] {
        if *byte < 0x20 || *byte == 0x7f {
            *byte = b'?';
        }
    }
}

/// Address space and resident memory of this process in bytes; zeroes if /proc is not there.
fn memory_bytes() -> (u64, u64) {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return (0, 0) };
    let mut pages = text.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096) as u64;
    (pages.next().unwrap_or(0) * page, pages.next().unwrap_or(0) * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_uwsgis_own() {
        let mut log = AccessLog::new(false);
        log.line(&LogLine {
            application: 0,
            request: 3,
            request_of_all: 7,
            address: b"127.0.0.1",
            user: b"",
            variables: 28,
            variable_bytes: 317,
            ctime: b"Sun Nov  6 08:49:37 1994",
            method: b"GET",
            uri: b"/x?y",
            body_bytes: 12,
            microseconds: 1999,
            via_sendfile: false,
            protocol: b"HTTP/1.1",
            status: 200,
            header_count: 2,
            head_bytes: 79,
            core: 0,
        });
        let expected = format!(
            "[pid: {}|app: 0|req: 3/7] 127.0.0.1 () {{28 vars in 317 bytes}} [Sun Nov  6 08:49:37 1994] GET /x?y \
             => generated 12 bytes in 1 msecs (HTTP/1.1 200) 2 headers in 79 bytes (1 switches on core 0)\n",
            std::process::id()
        );
        assert_eq!(String::from_utf8_lossy(&log.buffer), expected);
    }

    #[test]
    fn what_a_client_sent_can_not_break_the_line() {
        let mut buffer = Vec::new();
        visible(&mut buffer, b"/a\nb\x1b[0m");
        assert_eq!(buffer, b"/a?b?[0m");
    }
}
