//! The head of a request as the worker reads it that serves it over a relay: in HTTP/1.1, whichever version its client speaks.
//!
//! It does not know sockets or workers. Worker threads run it.

use bolide_protocol::http1::Framing;
use bolide_protocol::http1::head::{HeaderFacts, RequestLine, Version};

/// A WebSocket begins in HTTP/1.1 with this, which a client of HTTP/2 does not send (RFC 8441 section 5). No peer checks the key:
/// it proves to a browser that the server knows WebSocket, and here both ends are ours.
const UPGRADE: &[u8] = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

/// `bytes` are those of the head. `None`: the version can't be relayed, as the end of an answer of HTTP/1.0 does not show whether
/// it is complete.
pub fn relayed_head(line: &RequestLine, facts: &HeaderFacts, bytes: &[u8]) -> Option<Vec<u8>> {
    let block_start = line.length as usize;
    let block = bytes.get(block_start..block_start + facts.length as usize)?;
    match line.version {
        Version::Http10 => None,
        Version::Http11 => Some([&bytes[..block_start], block].concat()),
        Version::Http2 => {
            let is_websocket = facts.upgrade;
            let method = if is_websocket { b"GET" } else { line.method.of(bytes) };
            // In HTTP/2 the end of the stream ends a body without a length.
            let more: &[u8] = match facts.framing {
                _ if is_websocket => UPGRADE,
                Framing::Chunked => b"Transfer-Encoding: chunked\r\n",
                Framing::None | Framing::Length(_) => b"",
            };
            Some([method, b" ", line.target.of(bytes), b" HTTP/1.1\r\n", more, block].concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_protocol::Progress;
    use bolide_protocol::http1::head::{HeadLimits, header_block, request_line};

    const LIMITS: HeadLimits = HeadLimits::of(1000, 1000, 100);

    /// The head of a request, with what `change` says of its facts.
    fn relayed(text: &str, version: Version, change: impl FnOnce(&mut HeaderFacts)) -> Option<String> {
        let Ok(Progress::Complete(line)) = request_line(text.as_bytes(), &LIMITS) else { panic!("no line") };
        let (block, mut fields) = (&text.as_bytes()[line.length as usize..], Vec::new());
        let Ok(Progress::Complete(mut facts)) = header_block(block, version, &LIMITS, &mut fields) else { panic!("no fields") };
        change(&mut facts);
        let head = relayed_head(&RequestLine { version, ..line }, &facts, text.as_bytes());
        head.map(|head| String::from_utf8(head).expect("text"))
    }

    #[test]
    fn a_head_of_http_1_stays_as_it_came() {
        let head = "POST /a?b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(relayed(&format!("{head}5\r\nhello"), Version::Http11, |_| {}).as_deref(), Some(head));
        assert_eq!(relayed("GET / HTTP/1.0\r\n\r\n", Version::Http10, |_| {}), None);
    }

    #[test]
    fn a_head_of_http_2_tells_what_its_frames_did() {
        let head = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
        assert_eq!(relayed(head, Version::Http2, |_| {}).as_deref(), Some(head));
        let chunked = |facts: &mut HeaderFacts| facts.framing = Framing::Chunked;
        let expected = "GET /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nhost: a\r\n\r\n";
        assert_eq!(relayed(head, Version::Http2, chunked).as_deref(), Some(expected));
        let connect = relayed("CONNECT /a HTTP/1.1\r\nhost: a\r\n\r\n", Version::Http2, |facts| facts.upgrade = true);
        assert_eq!(
            connect.as_deref(),
            Some(
                "GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
                    host: a\r\n\r\n"
            )
        );
    }
}
