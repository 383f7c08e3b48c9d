//! Fields whose names have an underscore. CGI's variables (and so `environ`) have underscores for dashes: there `X_Real_IP`
//! equals `X-Real-IP`, with which a reverse proxy says who the client is. It must not know connections. Workers run it, for
//! requests that have such fields.

use super::Field;
use crate::fault::Span;

/// What happens to such fields, in gunicorn's words (`header-map`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Underscores {
    /// They are left out.
    #[default]
    Drop,
    /// The request is refused.
    Refuse,
    /// `dangerous`: those that forge no other field are kept.
    Keep,
}

/// Why a request is refused.
pub const REFUSED: &str = "A header's name has an underscore, and `header-map` is `refuse`.";

/// Starts of names that the server or a trusted reverse proxy decides about, in small letters and with dashes.
const DECIDED_STARTS: [&[u8]; 8] =
    [b"x-forwarded-", b"forwarded-", b"remote-", b"x-remote-", b"sec-websocket-", b"proxy-", b"server-", b"x-real-"];

/// Such names. Those without a dash are here for spellings with an underscore at an end.
const DECIDED: [&[u8]; 25] = [
    b"forwarded",
    b"x-forwarded",
    b"host",
    b"content-length",
    b"content-type",
    b"transfer-encoding",
    b"connection",
    b"keep-alive",
    b"te",
    b"trailer",
    b"upgrade",
    b"expect",
    b"http2-settings",
    b"proxy",
    b"http-proxy",
    b"script-name",
    b"path-info",
    b"query-string",
    b"request-method",
    b"x-request-id",
    b"x-request-start",
    b"traceparent",
    b"tracestate",
    b"x-client-ip",
    b"x-forwarded",
];

/// Whether a field with this name could set or join what the server or a trusted reverse proxy decides about.
pub fn is_decided(name: &[u8]) -> bool {
    let name: Vec<u8> = name.iter().map(|&byte| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect();
    let bare = name.trim_ascii_start();
    let bare = bare.strip_suffix(b"-").unwrap_or(bare);
    DECIDED.contains(&bare) || DECIDED_STARTS.iter().any(|start| name.starts_with(start))
}

/// Leaves out the fields with an underscore that must not count: those whose name is decided about elsewhere, and those of which
/// the request has the spelling with dashes, too. Returns the name of the first one.
pub fn settle(fields: &mut Vec<Field>, block: &[u8]) -> Option<Span> {
    let is_underscored = |field: &Field| memchr::memchr(b'_', field.name.of(block)).is_some();
    let with_dashes: Vec<Span> = fields.iter().filter(|field| !is_underscored(field)).map(|field| field.name).collect();
    let mut first = None;
    fields.retain(|field| {
        let name = field.name.of(block);
        let is_kept =
            !is_underscored(field) || !is_decided(name) && !with_dashes.iter().any(|other| are_same(other.of(block), name));
        if !is_kept {
            first = first.or(Some(field.name));
        }
        is_kept
    });
    first
}

/// Whether two names are the same variable.
fn are_same(one: &[u8], other: &[u8]) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| plain(*one) == plain(*other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_decide_about_is_never_set_with_an_underscore() {
        for name in [
            "X_Forwarded_For",
            "x_forwarded-proto",
            "X-Forwarded_Host",
            "X_Forwarded_Anything",
            "X_Real_IP",
            "Remote_User",
            "remote_addr",
            "Content_Length",
            "CONTENT_TYPE",
            "Transfer_Encoding",
            "Proxy_Connection",
            "HTTP_PROXY",
            "Proxy_",
            "Host_",
            "Forwarded_",
            "SCRIPT_NAME",
            "PATH_INFO",
            "X_Request_ID",
            "X_Request_Start",
            "x-request_start",
            "Sec_WebSocket_Key",
            "Keep_Alive",
            "http2_settings",
        ] {
            assert!(is_decided(name.as_bytes()), "{name}");
        }
        for name in ["api_key", "OIDC_CLAIM_sub", "X_Api_Key", "user_agent", "x_forward", "remote"] {
            assert!(!is_decided(name.as_bytes()), "{name}");
        }
    }
}
