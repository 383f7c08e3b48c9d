//! `http-to-https`: redirects each request of a listener to the same path with HTTPS. It does not use the application or routes.
//! Workers run it, for listeners with this setting.

use bolide_routes::Answer;

use crate::exchange::routing::header_of;
use crate::request::{Parts, Request};

/// The default port of `https` (RFC 9110 section 4.2.2).
const DEFAULT_PORT: u16 = 443;

/// Returns the redirect to this HTTPS port for a request.
pub fn https_redirect<Memo>(request: &Request<'_, Memo>, port: u16) -> Answer {
    let Parts::Http(http) = &request.parts.0 else { return refusal() };
    let host = match http.authority {
        [] => header_of(http.header_bytes, b"HOST").unwrap_or_default(),
        authority => authority.into(),
    };
    let name = without_port(&host);
    if name.is_empty() {
        return refusal();
    }
    let port = if port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
    // `OPTIONS *` concerns the server, not a path.
    let uri = if http.uri.starts_with(b"/") { http.uri } else { b"/" };
    let location = [b"https://", name, port.as_bytes(), uri].concat();
    // RFC 9110 section 15.4.2: clients may change a redirected POST to GET with 301, and must not with 308.
    let (status, reason) = match http.method {
        b"GET" | b"HEAD" => (301, "Moved Permanently"),
        _ => (308, "Permanent Redirect"),
    };
    answer(status, reason, vec![("Location", location)], b"")
}

/// Refuses a request without a host, which HTTP/1.0 allows: there is no redirect target.
fn refusal() -> Answer {
    let text: &[u8] = b"This address only speaks HTTPS, and the request has no host to redirect to.\n";
    answer(400, "Bad Request", vec![("Content-Type", b"text/plain".to_vec())], text)
}

fn answer(status: u16, reason: &'static str, fields: Vec<(&'static str, Vec<u8>)>, body: &[u8]) -> Answer {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
    Answer { status, reason: reason.into(), fields, body: body.to_vec(), closes: false, is_in_own_words: !body.is_empty() }
}

/// Returns the name of `name:port` and of `[address]:port`.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|&byte| byte == b':') {
        // Colons within brackets belong to the address.
        Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_host_is_taken_off_and_an_address_of_ipv6_stays_whole() {
        for (host, name) in [
            ("example.com", "example.com"),
            ("example.com:8080", "example.com"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("[::1]:8080", "[::1]"),
            (":80", ""),
            ("", ""),
        ] {
            assert_eq!(without_port(host.as_bytes()), name.as_bytes(), "{host}");
        }
    }
}
