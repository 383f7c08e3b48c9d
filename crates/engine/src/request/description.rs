//! A request in the words of HTTP, whichever protocol it came by: its line, its fields, its client and its server. An application
//! that gets these, as in ASGI, has its request made from them. One that gets a table of variables has it made from
//! [`crate::request::variables`].
//!
//! It does not know about languages. Worker threads run it.

use std::borrow::Cow;

use crate::request::{Parts, Request, VariablesRequest, Version};

/// The line of a request. A path begins with its root path, as in ASGI ("root_path").
pub struct Line<'a> {
    pub method: &'a [u8],
    /// Percent-decoded.
    pub path: Cow<'a, [u8]>,
    /// As the client sent it.
    pub raw_path: Cow<'a, [u8]>,
    pub query: &'a [u8],
    pub root_path: &'a [u8],
    /// The target exactly as the client sent it, if it is not path and query: it had an absolute form, or a route has changed it.
    pub raw_target: Option<&'a [u8]>,
}

/// The connection of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    pub version: Version,
    /// Address and port; `None`: it has none.
    pub client: Option<(&'a [u8], u16)>,
    /// The server that the client has connected to, if it is not the listener.
    pub server: Option<(&'a [u8], u16)>,
    /// Whether the client speaks TLS, if it is not as the listener says.
    pub is_https: Option<bool>,
}

/// What a route has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// The client's address.
    Client(&'a [u8]),
    Https(bool),
    /// A header field by the name of its variable.
    Variable(&'a [u8], &'a [u8]),
}

impl<Memo> Request<'_, Memo> {
    /// Returns the connection, which is the same for all requests that repeat a header block.
    pub fn origin(&self) -> Origin<'_> {
        match &self.parts.0 {
            Parts::Http(http) => {
                let said = self.forwarded.and_then(|forwarded| forwarded.is_https);
                let port = self.peer.port.parse().ok().filter(|_| !self.peer.address.is_empty());
                Origin {
                    version: http.version,
                    client: port.map(|port| (self.peer.address.as_bytes(), port)),
                    server: None,
                    is_https: said.or(self.peer.front_tls.as_ref().map(|_| true)),
                }
            }
            Parts::Variables(given) => Values::of(given).origin(),
        }
    }

    /// Returns the line. `root_path` is that of the application.
    pub fn line<'a>(&'a self, root_path: &'a [u8]) -> Line<'a> {
        let http = match &self.parts.0 {
            Parts::Http(http) => http,
            Parts::Variables(given) => return Values::of(given).line(root_path),
        };
        // A route may have set it.
        let script_name = http.variables.iter().rfind(|(name, _)| name == b"SCRIPT_NAME").map(|(_, value)| value.as_slice());
        let path = match (script_name, self.script_name) {
            (None, b"") => Cow::Borrowed(http.path),
            (None, taken_away) => Cow::Owned([taken_away, http.path].concat()),
            (Some(script_name), _) => whole_path(script_name, http.path),
        };
        Line {
            method: http.method,
            path,
            raw_path: Cow::Borrowed(http.uri.split(|byte| *byte == b'?').next().unwrap_or_default()),
            query: http.query,
            root_path: script_name.unwrap_or(root_path),
            raw_target: (http.raw_uri != http.uri).then_some(http.raw_uri),
        }
    }

    /// Host and port that override the field Host; empty: nothing does.
    pub fn authority(&self) -> &[u8] {
        match &self.parts.0 {
            Parts::Http(http) => http.authority,
            Parts::Variables(_) => b"",
        }
    }

    /// Calls `act` with name and value of each header field, in their order. Names that the client sent are as it wrote them.
    pub fn each_field(&self, mut act: impl FnMut(&[u8], &[u8])) {
        match &self.parts.0 {
            Parts::Http(http) => {
                http.fields().for_each(|(name, value)| act(name, value));
                if self.handshake.is_some() && http.version == Version::Http2 {
                    // RFC 8441 section 5: ":protocol" replaces both fields, which an extended CONNECT must not have. Applications
                    // read them (Engine.IO refuses a WebSocket without them), so they are at the place where a proxy that
                    // translates to HTTP/1.1 would put them.
                    act(b"upgrade", b"websocket");
                    act(b"connection", b"Upgrade");
                }
            }
            Parts::Variables(given) => each_field_of(given, act),
        }
    }

    /// Calls `act` with each change of a route that is not in the line.
    pub fn each_change(&self, mut act: impl FnMut(Change<'_>)) {
        let Parts::Http(http) = &self.parts.0 else { return };
        for (name, value) in http.variables {
            match name.as_slice() {
                b"REMOTE_ADDR" => act(Change::Client(value)),
                b"UWSGI_SCHEME" => scheme(value).into_iter().for_each(|is_https| act(Change::Https(is_https))),
                b"HTTPS" => {
                    if is_on(value) {
                        act(Change::Https(true));
                    }
                }
                name => act(Change::Variable(name, value)),
            }
        }
    }
}

fn each_field_of(given: &VariablesRequest<'_>, mut act: impl FnMut(&[u8], &[u8])) {
    // CONTENT_TYPE has a value; HTTP_CONTENT_TYPE counts only if it has none.
    let (mut has_content_type, mut of_client) = (false, &b""[..]);
    for (name, value) in given.pairs() {
        match name {
            b"CONTENT_TYPE" => has_content_type |= !value.is_empty(),
            b"HTTP_CONTENT_TYPE" => of_client = value,
            _ => {}
        }
        // nginx sends an empty Content-Length or Content-Type if there is none.
        if let Some(field) = field_of(name).filter(|_| name.starts_with(b"HTTP_") || !value.is_empty()) {
            act(&field, value);
        }
    }
    if !has_content_type && !of_client.is_empty() {
        act(b"content-type", of_client);
    }
}

/// `HTTP_ACCEPT_ENCODING` -> `accept-encoding`; `None` for variables that are not header fields.
///
/// nginx and lighttpd send these two by CGI's names and once more as fields of their client. CONTENT_LENGTH determines the end of
/// the body, so it counts; Django would read a repeated field as a list.
pub fn field_of(name: &[u8]) -> Option<Vec<u8>> {
    let rest = match name {
        b"HTTP_CONTENT_TYPE" | b"HTTP_CONTENT_LENGTH" => return None,
        b"CONTENT_TYPE" | b"CONTENT_LENGTH" => name,
        _ => name.strip_prefix(b"HTTP_")?,
    };
    Some(rest.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect())
}

/// The variables of a reverse proxy that are not header fields.
#[derive(Default)]
struct Values<'a> {
    method: &'a [u8],
    uri: &'a [u8],
    path: &'a [u8],
    query: &'a [u8],
    protocol: &'a [u8],
    script_name: &'a [u8],
    remote_address: &'a [u8],
    remote_port: &'a [u8],
    server_name: &'a [u8],
    server_port: &'a [u8],
    scheme: Option<&'a [u8]>,
    is_https: bool,
    raw_uri: &'a [u8],
}

impl<'a> Values<'a> {
    fn of(given: &VariablesRequest<'a>) -> Values<'a> {
        let mut values = Values { raw_uri: given.raw_uri, ..Values::default() };
        for (name, value) in given.pairs() {
            match name {
                b"REQUEST_METHOD" => values.method = value,
                b"REQUEST_URI" => values.uri = value,
                b"PATH_INFO" => values.path = value,
                b"QUERY_STRING" => values.query = value,
                b"SERVER_PROTOCOL" => values.protocol = value,
                b"SCRIPT_NAME" => values.script_name = value,
                b"REMOTE_ADDR" => values.remote_address = value,
                b"REMOTE_PORT" => values.remote_port = value,
                b"SERVER_NAME" => values.server_name = value,
                b"SERVER_PORT" => values.server_port = value,
                b"HTTPS" => values.is_https = is_on(value),
                b"UWSGI_SCHEME" | b"HTTP_X_FORWARDED_PROTO" if !value.is_empty() => values.scheme = Some(value),
                b"REQUEST_SCHEME" if values.scheme.is_none() && !value.is_empty() => values.scheme = Some(value),
                _ => {}
            }
        }
        values
    }

    fn origin(&self) -> Origin<'a> {
        let address = |host: &'a [u8], port: &[u8]| port_of(port).filter(|_| !host.is_empty()).map(|port| (host, port));
        Origin {
            version: match self.protocol {
                b"HTTP/1.0" => Version::Http10,
                protocol if protocol.starts_with(b"HTTP/2") => Version::Http2,
                _ => Version::Http11,
            },
            client: address(self.remote_address, self.remote_port),
            server: address(self.server_name, self.server_port),
            is_https: match self.scheme {
                Some(named) => scheme(named),
                None => self.is_https.then_some(true),
            },
        }
    }

    fn line(&self, root_path: &'a [u8]) -> Line<'a> {
        let root_path = if self.script_name.is_empty() { root_path } else { self.script_name };
        let path = whole_path(root_path, self.path);
        let (raw_path, query) = match self.uri.iter().position(|byte| *byte == b'?') {
            Some(mark) => (&self.uri[..mark], &self.uri[mark + 1..]),
            None => (self.uri, &b""[..]),
        };
        Line {
            method: self.method,
            raw_path: if raw_path.is_empty() { path.clone() } else { Cow::Borrowed(raw_path) },
            path,
            query: if self.query.is_empty() { query } else { self.query },
            root_path,
            raw_target: (self.raw_uri != self.uri).then_some(self.raw_uri),
        }
    }
}

/// Whether a scheme is that of TLS; `None`: it is not one of HTTP's. Applications put it into links.
fn scheme(value: &[u8]) -> Option<bool> {
    let is = |name: &[u8]| value.eq_ignore_ascii_case(name);
    if is(b"https") || is(b"wss") { Some(true) } else { (is(b"http") || is(b"ws")).then_some(false) }
}

fn is_on(value: &[u8]) -> bool {
    value == b"1" || value.eq_ignore_ascii_case(b"on")
}

/// In ASGI, the path begins with the root path (ASGI 3, "root_path").
fn whole_path<'a>(root_path: &[u8], path: &'a [u8]) -> Cow<'a, [u8]> {
    let is_whole = path.starts_with(root_path) && matches!(path.get(root_path.len()), None | Some(b'/'));
    if root_path.is_empty() || is_whole { Cow::Borrowed(path) } else { Cow::Owned([root_path, path].concat()) }
}

fn port_of(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_the_header_fields_that_they_were() {
        assert_eq!(field_of(b"HTTP_ACCEPT_ENCODING").as_deref(), Some(&b"accept-encoding"[..]));
        assert_eq!(field_of(b"CONTENT_TYPE").as_deref(), Some(&b"content-type"[..]));
        for name in [&b"REQUEST_METHOD"[..], b"HTTP_CONTENT_TYPE", b"HTTP_CONTENT_LENGTH"] {
            assert_eq!(field_of(name), None);
        }
    }

    #[test]
    fn a_path_has_its_root_path_once() {
        for (root, path, whole) in [
            (&b""[..], &b"/a"[..], &b"/a"[..]),
            (b"/app", b"/a", b"/app/a"),
            (b"/app", b"/app/a", b"/app/a"),
            (b"/app", b"/apple", b"/app/apple"),
        ] {
            assert_eq!(&*whole_path(root, path), whole);
        }
    }
}
