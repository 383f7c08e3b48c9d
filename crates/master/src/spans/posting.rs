//! One request to a collector: OTLP over HTTP/1.1, with TLS if its address asks for it, on a connection of its own. Every wait
//! ends within one time limit. It knows neither queues nor masters. The exporter runs it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bolide_contract::logging::SpanCollector;
use bolide_services::spans::rejected;
use bolide_tls::rustls::pki_types::ServerName;
use bolide_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};
use bolide_tls::{read_authorities, system_authorities};

/// Bytes that are read of an answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Bytes of an answer's text that an error repeats.
const MAX_SAID_BYTES: usize = 200;
/// Statuses after which OTLP asks for another attempt.
const AGAIN: [u16; 4] = [429, 502, 503, 504];
/// The longest wait that a collector may ask for, in seconds.
const MAX_RETRY_AFTER_S: u64 = 30;

/// What has become of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Posted {
    /// The collector has it, except for this many spans, and says why.
    Taken { rejected: u64, why: String },
    /// Another attempt may succeed, after this time if the collector gives one.
    Later { why: String, after: Option<Duration> },
    /// No attempt will.
    Refused { why: String },
}

/// Everything that requests to a collector have in common.
pub struct Poster {
    collector: SpanCollector,
    tls: Option<Arc<ClientConfig>>,
    /// The head of a request, up to the number of its bytes.
    head: String,
}

impl Poster {
    /// Reads the certificates that it needs.
    ///
    /// # Errors
    /// There are none that can be read.
    pub fn new(collector: &SpanCollector, headers: &[(String, String)], version: &str) -> io::Result<Poster> {
        let SpanCollector { host, port, target, is_https, .. } = collector;
        let name = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = match (is_https, port) {
            (true, 443) | (false, 80) => name,
            _ => format!("{name}:{port}"),
        };
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: Bolide/{version}\r\nConnection: close\r\n\
             Content-Type: application/x-protobuf\r\n{more}Content-Length: "
        );
        let tls = if *is_https { Some(Arc::new(client_config()?)) } else { None };
        Ok(Poster { collector: collector.clone(), tls, head })
    }

    /// Sends this request, within `most`.
    pub fn post(&self, body: &[u8], most: Duration) -> Posted {
        let ends = Instant::now() + most;
        match self.exchange(body, ends) {
            Ok(answer) => judged(&answer),
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::TimedOut | ErrorKind::WouldBlock => format!("no answer within {} s", most.as_secs_f32().round()),
                    _ => error.to_string(),
                };
                Posted::Later { why, after: None }
            }
        }
    }

    fn exchange(&self, body: &[u8], ends: Instant) -> io::Result<Vec<u8>> {
        let stream = connect(&self.collector, ends)?;
        let request = [self.head.as_bytes(), body.len().to_string().as_bytes(), b"\r\n\r\n", body].concat();
        match &self.tls {
            None => told(stream, &request),
            Some(config) => {
                let name = ServerName::try_from(self.collector.host.clone()).map_err(io::Error::other)?;
                let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                told(StreamOwned::new(session, stream), &request)
            }
        }
    }
}

fn client_config() -> io::Result<ClientConfig> {
    let path = system_authorities().ok_or_else(|| {
        io::Error::other("no trusted certificates are installed: install ca-certificates, or set SSL_CERT_FILE")
    })?;
    let versions = ClientConfig::builder_with_provider(Arc::clone(bolide_tls::provider())).with_safe_default_protocol_versions();
    Ok(versions.map_err(io::Error::other)?.with_root_certificates(read_authorities(&path)?).with_no_client_auth())
}

/// Connects to the first address of the host that answers.
fn connect(collector: &SpanCollector, ends: Instant) -> io::Result<Limited> {
    let mut last = io::Error::other(format!("the name {} has no address", collector.host));
    for address in (collector.host.as_str(), collector.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(ends)?) {
            Ok(stream) => return Ok(Limited { stream, ends }),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends a request, and returns the beginning of its answer.
fn told(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while answer.len() < MAX_ANSWER_BYTES && !is_whole(&answer) {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Servers may end TLS without saying so.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && !answer.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    if answer.is_empty() {
        return Err(io::Error::other("the connection was closed without an answer"));
    }
    Ok(answer)
}

/// Splits an answer into its head and its body, as far as they are there.
fn parts(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}

fn field<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim()).next()
}

fn is_whole(answer: &[u8]) -> bool {
    let length = |head: &str| field(head, "content-length")?.parse::<usize>().ok();
    parts(answer).is_some_and(|(head, body)| length(head).is_some_and(|length| body.len() >= length))
}

fn judged(answer: &[u8]) -> Posted {
    let status = |head: &str| head.strip_prefix("HTTP/1.")?.get(2..5)?.parse::<u16>().ok();
    let Some((status, head, body)) = parts(answer).and_then(|(head, body)| Some((status(head)?, head, body))) else {
        return Posted::Refused { why: "its response is not HTTP".to_owned() };
    };
    if (200..300).contains(&status) {
        let (rejected, why) = rejected(body);
        return Posted::Taken { rejected, why: printable(why.as_bytes()) };
    }
    let said = printable(body);
    let why = if said.is_empty() { format!("status {status}") } else { format!("status {status}: {said}") };
    if AGAIN.contains(&status) {
        let seconds = field(head, "retry-after").and_then(|value| value.parse::<u64>().ok());
        let after = seconds.map(|seconds| Duration::from_secs(seconds.min(MAX_RETRY_AFTER_S)));
        return Posted::Later { why, after };
    }
    Posted::Refused { why }
}

/// What an answer says, fit for a line of the log. An error of OTLP is a message whose text is readable as it is.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SAID_BYTES)]);
    text.chars().filter(|sign| !sign.is_control() && *sign != '\u{fffd}').collect::<String>().trim().to_owned()
}

fn left(ends: Instant) -> io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A connection all of whose waits end at the same time.
struct Limited {
    stream: TcpStream,
    ends: Instant,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.ends)?))?;
        self.stream.read(buffer)
    }
}

impl Write for Limited {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.ends)?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whether_another_attempt_makes_sense() {
        let refused = |why: &str| Posted::Refused { why: why.to_owned() };
        for (answer, posted) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Posted::Taken { rejected: 0, why: String::new() }),
            ("HTTP/1.1 200 OK\r\n\r\n\x0a\x08\x08\x03\x12\x04full", Posted::Taken { rejected: 3, why: "full".to_owned() }),
            (
                "HTTP/1.0 503 Busy\r\nretry-after: 7\r\n\r\nlater\n",
                Posted::Later { why: "status 503: later".to_owned(), after: Some(Duration::from_secs(7)) },
            ),
            (
                "HTTP/1.1 429 Slow\r\nRetry-After: 9999\r\n\r\n",
                Posted::Later { why: "status 429".to_owned(), after: Some(Duration::from_secs(MAX_RETRY_AFTER_S)) },
            ),
            ("HTTP/1.1 401 No\r\n\r\n", refused("status 401")),
            ("HTTP/1.1 301 Moved\r\n\r\n", refused("status 301")),
            ("SSH-2.0\r\n\r\n", refused("its response is not HTTP")),
            ("HTTP/1.1 2", refused("its response is not HTTP")),
        ] {
            assert_eq!(judged(answer.as_bytes()), posted, "{answer}");
        }
        assert!(is_whole(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx") && !is_whole(b"HTTP/1.1 200 OK\r\n\r\nx"));
    }
}
