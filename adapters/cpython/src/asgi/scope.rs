//! The scope of a connection (ASGI, "HTTP Connection Scope" and "WebSocket Connection Scope"): a copy of a template with all
//! constant keys, then the few keys that differ. If a kept-alive connection repeats its header block, the Python objects of the
//! first one are used again. It knows nothing of the call that follows. The event loop's thread runs it.

use bolide_engine::request::{
    Forwarded, HeaderMemory, HttpRequest, Identity, LogFacts, Peer, Request, RequestParts, TlsFacts, VariablesRequest, Version,
};
use std::ptr::null_mut;

use pyo3::ffi;

use super::names::AsgiNames;
use crate::environ::Dictionary;
use crate::names::{Methods, NameCache};
use crate::object::{Object, bytes_of, latin1, new_bytes, none, utf8_lossy};

/// A header block of a connection, as a template for its next request.
pub struct ScopeMemo {
    template: Object,
    headers: Object,
    /// The extension `tls`, on a TLS connection.
    tls: Option<Object>,
    log_facts: LogFacts,
}

/// A request as a dictionary under construction, and its extension `tls`, if any.
struct Begun {
    scope: Dictionary,
    tls: Option<Object>,
}

/// The constant parts of the scopes.
pub struct Templates {
    /// For each listener: the scope of a plain request, without `state`.
    pub http: Vec<Object>,
    /// For each listener: the scope of a WebSocket.
    pub websocket: Vec<Object>,
    /// The values of each scope under these names.
    pub asgi: Object,
    pub http_extensions: Object,
    pub websocket_extensions: Object,
    /// For each application: the `state` of its lifespan, if it has one.
    pub states: Vec<Option<Object>>,
}

/// Makes scopes.
pub struct Scopes {
    pub names: AsgiNames,
    methods: Methods,
    templates: Templates,
    /// Names of header fields as bytes, in lower case.
    header_names: NameCache,
}

/// The origin of an HTTP request, and the place of its application.
#[derive(Clone, Copy)]
struct ScopeOrigin<'a> {
    peer: &'a Peer,
    forwarded: Option<&'a Forwarded>,
    /// The root path of the application, and the part of the path that a reverse proxy has removed.
    root_path: &'a [u8],
    taken_away: &'a [u8],
    is_websocket: bool,
}

/// The request line, of any protocol.
struct RequestLine<'a> {
    method: &'a [u8],
    path: &'a [u8],
    raw_path: &'a [u8],
    query: &'a [u8],
    root_path: &'a [u8],
}

impl Scopes {
    /// `None`: out of memory, an exception is set.
    pub fn new(names: AsgiNames, methods: Methods, templates: Templates) -> Option<Scopes> {
        let header_names = NameCache::of_usual_headers(|name| new_bytes(&name.to_ascii_lowercase()))?;
        Some(Scopes { names, methods, templates, header_names })
    }

    /// Returns the scope of a request to the application of this number, which is mounted at `root_path`. `None`: an exception is
    /// set.
    pub fn make(&mut self, request: &mut Request<'_, ScopeMemo>, application: usize, root_path: &[u8]) -> Option<Object> {
        let is_websocket = request.handshake.is_some();
        let templates = if is_websocket { &self.templates.websocket } else { &self.templates.http };
        let template = templates.get(request.listener).or(templates.first())?.clone();
        let Begun { mut scope, tls } = match &mut request.parts {
            RequestParts::Http(http) => {
                let (peer, forwarded, taken_away) = (request.peer, request.forwarded, request.script_name);
                let origin = ScopeOrigin { peer, forwarded, root_path, taken_away, is_websocket };
                self.http(&template, http, origin, &mut request.log_facts)?
            }
            RequestParts::Variables(variables) => {
                let scope = self.reverse_proxy(&template, variables, root_path, is_websocket, &mut request.log_facts)?;
                Begun { scope, tls: None }
            }
        };
        request.log_facts.application = application as u32;
        // An application may write into its scope, and the next request must not see that.
        let extensions = if is_websocket { &self.templates.websocket_extensions } else { &self.templates.http_extensions };
        let mut extensions = Dictionary::copy_of(extensions)?;
        if let Some(tls) = tls {
            extensions.set(&self.names.tls, &Dictionary::copy_of(&tls)?.done()?);
        }
        if let Some(identity) = &request.identity {
            let mut own = Dictionary::new()?;
            own.set_text(&self.names.id, identity.id.as_bytes());
            extensions.set(&self.names.request_id, &own.done()?);
            self.set_identity(&scope.get(&self.names.headers)?, identity)?;
        }
        scope.set(&self.names.extensions, &extensions.done()?);
        scope.set(&self.names.asgi, &Dictionary::copy_of(&self.templates.asgi)?.done()?);
        match self.templates.states.get(application) {
            // "A shallow copy of the namespace" for each request (ASGI, "Lifespan State").
            Some(Some(state)) => scope.set(&self.names.state, &Dictionary::copy_of(state)?.done()?),
            _ => scope.remove(&self.names.state),
        }
        scope.done()
    }

    fn http(
        &mut self,
        template: &Object,
        http: &mut HttpRequest<'_, ScopeMemo>,
        origin: ScopeOrigin<'_>,
        log_facts: &mut LogFacts,
    ) -> Option<Begun> {
        let is_websocket = origin.is_websocket;
        let Begun { mut scope, tls } = match &mut http.memo {
            HeaderMemory::Same(memo) => {
                *log_facts = memo.log_facts;
                let mut scope = Dictionary::copy_of(&memo.template)?;
                scope.set(&self.names.headers, &list_copy(&memo.headers)?);
                Begun { scope, tls: memo.tls.clone() }
            }
            memory => {
                let remembers = matches!(memory, HeaderMemory::Fill(_));
                let (template, headers, count) = self.with_headers(template, http, origin)?;
                *log_facts = count;
                let tls = match &origin.peer.tls {
                    Some(facts) => Some(self.tls(facts)?),
                    None => None,
                };
                let template = template.done()?;
                let mut scope = Dictionary::copy_of(&template)?;
                scope.set(&self.names.headers, &if remembers { list_copy(&headers)? } else { headers.clone() });
                if let HeaderMemory::Fill(memo) = &mut http.memo {
                    **memo = Some(ScopeMemo { template, headers, tls: tls.clone(), log_facts: count });
                }
                Begun { scope, tls }
            }
        };
        if !http.authority.is_empty() {
            self.set_host(&scope.get(&self.names.headers)?, http.authority)?;
        }
        let raw_path = http.uri.split(|byte| *byte == b'?').next().unwrap_or_default();
        // A route may have set it.
        let script_name = http.variables.iter().rfind(|(name, _)| name == b"SCRIPT_NAME").map(|(_, value)| value.as_slice());
        let path = match (script_name, origin.taken_away) {
            (None, b"") => None,
            (None, taken_away) => Some([taken_away, http.path].concat()),
            (Some(script_name), _) => Some(whole_path(script_name, http.path)),
        };
        let line = RequestLine {
            method: http.method,
            path: path.as_deref().unwrap_or(http.path),
            raw_path,
            query: http.query,
            root_path: script_name.unwrap_or(origin.root_path),
        };
        self.set_line(&mut scope, &line, is_websocket)?;
        self.set_routed(&mut scope, http, origin.peer, is_websocket)?;
        // No key of ASGI has the scheme and the host of a target. The bridge to WSGI applications needs them for RAW_URI.
        if http.raw_uri != http.uri {
            scope.set(&self.names.raw_uri, &new_bytes(http.raw_uri)?);
        }
        log_facts.variable_bytes += (http.method.len() + http.uri.len() + http.path.len() + http.query.len()) as u32;
        Some(Begun { scope, tls })
    }

    /// The extension `tls` (ASGI, "TLS Extension").
    fn tls(&self, facts: &TlsFacts) -> Option<Object> {
        let names = &self.names;
        let mut tls = Dictionary::new()?;
        let text = |text: Option<&str>| text.map_or_else(|| Some(none()), |text| utf8_lossy(text.as_bytes()));
        let client = facts.client.as_ref();
        tls.set(&names.server_cert, &text(facts.certificate.as_deref())?);
        let chain = self.new_list()?;
        for certificate in client.map_or(&[][..], |client| &client.chain) {
            let certificate = utf8_lossy(certificate.as_bytes())?;
            // SAFETY: both live; the list takes a reference of its own.
            if unsafe { ffi::PyList_Append(chain.as_ptr(), certificate.as_ptr()) } != 0 {
                return None;
            }
        }
        tls.set(&names.client_cert_chain, &chain);
        tls.set(&names.client_cert_name, &text(client.map(|client| client.subject.as_str()))?);
        // A client whose certificate is wrong has not come so far.
        tls.set(&names.client_cert_error, &none());
        tls.set(&names.tls_version, &number(facts.version_number)?);
        tls.set(&names.cipher_suite, &number(facts.cipher_number)?);
        tls.done()
    }

    /// Sets the values of routes that a scope has a key for: the client, the scheme, header fields.
    fn set_routed(
        &mut self,
        scope: &mut Dictionary,
        http: &HttpRequest<'_, ScopeMemo>,
        peer: &Peer,
        is_websocket: bool,
    ) -> Option<()> {
        for (name, value) in http.variables {
            match name.as_slice() {
                b"REMOTE_ADDR" => scope.set(&self.names.client, &address(value, peer.port.parse().unwrap_or(0))?),
                b"UWSGI_SCHEME" => self.set_scheme(scope, value, is_websocket),
                b"HTTPS" if value == b"1" || value.eq_ignore_ascii_case(b"on") => {
                    self.set_scheme(scope, b"https", is_websocket);
                }
                name => {
                    if let Some(header) = header_of(name) {
                        let headers = scope.get(&self.names.headers)?;
                        self.append(&headers, &header, value)?;
                    }
                }
            }
        }
        Some(())
    }

    /// Makes a template with a connection's address and a request's header fields, and the list of those.
    fn with_headers(
        &mut self,
        template: &Object,
        http: &HttpRequest<'_, ScopeMemo>,
        ScopeOrigin { peer, forwarded, is_websocket, .. }: ScopeOrigin<'_>,
    ) -> Option<(Dictionary, Object, LogFacts)> {
        let mut scope = Dictionary::copy_of(template)?;
        let headers = self.new_list()?;
        let mut log_facts = LogFacts::default();
        match http.version {
            Version::Http10 => scope.set(&self.names.http_version, &self.names.version_1_0),
            Version::Http11 => {}
            Version::Http2 => scope.set(&self.names.http_version, &self.names.version_2),
        }
        if let (false, Ok(port)) = (peer.address.is_empty(), peer.port.parse::<u16>()) {
            scope.set(&self.names.client, &address(peer.address.as_bytes(), port)?);
        }
        for (name, value) in http.fields() {
            log_facts.variables += 1;
            log_facts.variable_bytes += (4 + "HTTP_".len() + name.len() + value.len()) as u32;
            self.append(&headers, name, value)?;
        }
        if is_websocket && http.version == Version::Http2 {
            // RFC 8441 section 5: ":protocol" replaces both fields, which an extended CONNECT must not have. Applications read
            // them (Engine.IO refuses a WebSocket without them), so they are at the place where a proxy that translates to
            // HTTP/1.1 would put them.
            self.append(&headers, b"upgrade", b"websocket")?;
            self.append(&headers, b"connection", b"Upgrade")?;
        }
        let said = forwarded.and_then(|forwarded| forwarded.is_https);
        if let Some(is_https) = said.or(peer.front_tls.as_ref().map(|_| true)) {
            self.set_scheme(&mut scope, if is_https { b"https" } else { b"http" }, is_websocket);
        }
        Some((scope, headers, log_facts))
    }

    /// Sets the scheme that a reverse proxy names, as for WSGI. Anything but http and https is ignored.
    fn set_scheme(&self, scope: &mut Dictionary, value: &[u8], is_websocket: bool) {
        let names = &self.names;
        if value.eq_ignore_ascii_case(b"https") || value.eq_ignore_ascii_case(b"wss") {
            scope.set(&names.scheme, if is_websocket { &names.wss } else { &names.https });
        } else if value.eq_ignore_ascii_case(b"http") || value.eq_ignore_ascii_case(b"ws") {
            scope.set(&names.scheme, if is_websocket { &names.ws } else { &names.http });
        }
    }

    fn reverse_proxy(
        &mut self,
        template: &Object,
        variables: &VariablesRequest<'_>,
        root_path: &[u8],
        is_websocket: bool,
        log_facts: &mut LogFacts,
    ) -> Option<Dictionary> {
        let mut scope = Dictionary::copy_of(template)?;
        let headers = self.new_list()?;
        let mut found = UwsgiVariables::default();
        for (name, value) in variables.pairs() {
            if let Some(header) = header_of(name) {
                // nginx sends an empty Content-Length or Content-Type if there is none.
                if name.starts_with(b"HTTP_") || !value.is_empty() {
                    self.append(&headers, &header, value)?;
                }
            }
            found.note(name, value);
        }
        if !found.has_content_type && !found.client_content_type.is_empty() {
            self.append(&headers, b"content-type", found.client_content_type)?;
        }
        match found.scheme {
            Some(scheme) => self.set_scheme(&mut scope, scheme, is_websocket),
            None if found.is_https => self.set_scheme(&mut scope, b"https", is_websocket),
            None => {}
        }
        if found.protocol == b"HTTP/1.0" {
            scope.set(&self.names.http_version, &self.names.version_1_0);
        } else if found.protocol.starts_with(b"HTTP/2") {
            scope.set(&self.names.http_version, &self.names.version_2);
        }
        if let Some(port) = port_of(found.remote_port).filter(|_| !found.remote_address.is_empty()) {
            scope.set(&self.names.client, &address(found.remote_address, port)?);
        }
        if let Some(port) = port_of(found.server_port).filter(|_| !found.server_name.is_empty()) {
            scope.set(&self.names.server, &address(found.server_name, port)?);
        }
        scope.set(&self.names.headers, &headers);
        let root_path = if found.script_name.is_empty() { root_path } else { found.script_name };
        let path = whole_path(root_path, found.path);
        let (raw_path, query) = match found.uri.iter().position(|byte| *byte == b'?') {
            Some(mark) => (&found.uri[..mark], &found.uri[mark + 1..]),
            None => (found.uri, &b""[..]),
        };
        let query = if found.query.is_empty() { query } else { found.query };
        let raw_path = if raw_path.is_empty() { &path } else { raw_path };
        let line = RequestLine { method: found.method, path: &path, raw_path, query, root_path };
        self.set_line(&mut scope, &line, is_websocket)?;
        log_facts.variables = variables.variables.len() as u32;
        log_facts.variable_bytes = variables.bytes.len() as u32;
        Some(scope)
    }

    fn set_line(&self, scope: &mut Dictionary, line: &RequestLine<'_>, is_websocket: bool) -> Option<()> {
        let names = &self.names;
        // The templates are for `GET /`.
        if !is_websocket && line.method != b"GET" {
            // "Uppercased" (ASGI, "HTTP connection scope").
            scope.set(&names.method, &self.methods.of(&line.method.to_ascii_uppercase())?);
        }
        if line.path != b"/" {
            scope.set(&names.path, &utf8_lossy(line.path)?);
        }
        if line.raw_path != b"/" {
            scope.set(&names.raw_path, &new_bytes(line.raw_path)?);
        }
        if !line.query.is_empty() {
            scope.set(&names.query_string, &new_bytes(line.query)?);
        }
        if !line.root_path.is_empty() {
            scope.set(&names.root_path, &utf8_lossy(line.root_path)?);
        }
        if is_websocket {
            let headers = scope.get(&names.headers)?;
            scope.set(&names.subprotocols, &subprotocols(&headers)?);
        }
        Some(())
    }

    /// Replaces the field Host, or inserts it before all fields if there is none.
    fn set_host(&mut self, headers: &Object, host: &[u8]) -> Option<()> {
        let name = self.header_names.get_or_make(b"host", new_bytes)?;
        let value = new_bytes(host)?;
        // SAFETY: the list is ours, and holds tuples of two bytes objects that live as long as it does; it takes references of
        // its own.
        unsafe {
            let pair = Object::owned(ffi::PyTuple_Pack(2, name.as_ptr(), value.as_ptr()))?;
            let is_host =
                |index: &isize| bytes_of(ffi::PyTuple_GetItem(ffi::PyList_GetItem(headers.as_ptr(), *index), 0)) == b"host";
            let result = match (0..ffi::PyList_Size(headers.as_ptr())).find(is_host) {
                Some(index) => ffi::PyList_SetSlice(headers.as_ptr(), index, index + 1, list_of(&pair)?.as_ptr()),
                None => ffi::PyList_Insert(headers.as_ptr(), 0, pair.as_ptr()),
            };
            (result == 0).then_some(())
        }
    }

    /// Sets the identity of the request in place of the one that the client may have sent.
    fn set_identity(&mut self, headers: &Object, identity: &Identity) -> Option<()> {
        remove_fields(headers, b"x-request-id")?;
        self.append(headers, b"x-request-id", identity.id.as_bytes())?;
        if let Some(trace) = &identity.trace {
            remove_fields(headers, b"traceparent")?;
            self.append(headers, b"traceparent", trace.context.text().as_bytes())?;
            if trace.state.is_empty() {
                remove_fields(headers, b"tracestate")?;
            }
        }
        Some(())
    }

    fn new_list(&self) -> Option<Object> {
        // SAFETY: the result is new.
        unsafe { Object::owned(ffi::PyList_New(0)) }
    }

    /// Appends `(name, value)`, the name in lower case.
    fn append(&mut self, headers: &Object, name: &[u8], value: &[u8]) -> Option<()> {
        let name = self.header_names.get_or_make(name, |name| new_bytes(&name.to_ascii_lowercase()))?;
        let value = new_bytes(value)?;
        // SAFETY: both live; the tuple and the list take references of their own.
        unsafe {
            let pair = Object::owned(ffi::PyTuple_Pack(2, name.as_ptr(), value.as_ptr()))?;
            (ffi::PyList_Append(headers.as_ptr(), pair.as_ptr()) == 0).then_some(())
        }
    }
}

/// The variables of a uwsgi packet that are not header fields.
#[derive(Default)]
struct UwsgiVariables<'a> {
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
    /// CONTENT_TYPE has a value; HTTP_CONTENT_TYPE counts only if it has none.
    has_content_type: bool,
    client_content_type: &'a [u8],
}

impl<'a> UwsgiVariables<'a> {
    fn note(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b"REQUEST_METHOD" => self.method = value,
            b"REQUEST_URI" => self.uri = value,
            b"PATH_INFO" => self.path = value,
            b"QUERY_STRING" => self.query = value,
            b"SERVER_PROTOCOL" => self.protocol = value,
            b"SCRIPT_NAME" => self.script_name = value,
            b"REMOTE_ADDR" => self.remote_address = value,
            b"REMOTE_PORT" => self.remote_port = value,
            b"SERVER_NAME" => self.server_name = value,
            b"SERVER_PORT" => self.server_port = value,
            b"CONTENT_TYPE" => self.has_content_type |= !value.is_empty(),
            b"HTTP_CONTENT_TYPE" => self.client_content_type = value,
            b"HTTPS" => self.is_https = value == b"1" || value.eq_ignore_ascii_case(b"on"),
            b"UWSGI_SCHEME" | b"HTTP_X_FORWARDED_PROTO" if !value.is_empty() => self.scheme = Some(value),
            b"REQUEST_SCHEME" if self.scheme.is_none() && !value.is_empty() => self.scheme = Some(value),
            _ => {}
        }
    }
}

/// `HTTP_ACCEPT_ENCODING` -> `accept-encoding`; `None` for variables that are not header fields.
///
/// nginx and lighttpd send these two by CGI's names and once more as fields of their client. CONTENT_LENGTH determines the end of
/// the body, so it counts; Django would read a repeated field as a list.
fn header_of(name: &[u8]) -> Option<Vec<u8>> {
    let rest = match name {
        b"HTTP_CONTENT_TYPE" | b"HTTP_CONTENT_LENGTH" => return None,
        b"CONTENT_TYPE" | b"CONTENT_LENGTH" => name,
        _ => name.strip_prefix(b"HTTP_")?,
    };
    Some(rest.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect())
}

/// In ASGI, the path begins with the root path (ASGI 3, "root_path").
fn whole_path(root_path: &[u8], path: &[u8]) -> Vec<u8> {
    let is_whole = path.starts_with(root_path) && matches!(path.get(root_path.len()), None | Some(b'/'));
    if root_path.is_empty() || is_whole { path.to_vec() } else { [root_path, path].concat() }
}

fn port_of(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn address(host: &[u8], port: u16) -> Option<Object> {
    let host = latin1(host)?;
    // SAFETY: the number is new; the tuple takes references of its own.
    unsafe {
        let port = Object::owned(ffi::PyLong_FromLong(port.into()))?;
        Object::owned(ffi::PyTuple_Pack(2, host.as_ptr(), port.as_ptr()))
    }
}

fn number(number: u16) -> Option<Object> {
    // SAFETY: the result is new.
    unsafe { Object::owned(ffi::PyLong_FromLong(number.into())) }
}

fn list_of(object: &Object) -> Option<Object> {
    // SAFETY: the list is new, and takes a reference of its own.
    unsafe {
        let list = Object::owned(ffi::PyList_New(0))?;
        (ffi::PyList_Append(list.as_ptr(), object.as_ptr()) == 0).then_some(list)
    }
}

/// Removes the fields with this name from a list of pairs.
fn remove_fields(headers: &Object, name: &[u8]) -> Option<()> {
    // SAFETY: the list is ours, and holds tuples of two bytes objects that live as long as it does.
    unsafe {
        for index in (0..ffi::PyList_Size(headers.as_ptr())).rev() {
            if bytes_of(ffi::PyTuple_GetItem(ffi::PyList_GetItem(headers.as_ptr(), index), 0)) == name
                && ffi::PyList_SetSlice(headers.as_ptr(), index, index + 1, null_mut()) != 0
            {
                return None;
            }
        }
    }
    Some(())
}

fn list_copy(list: &Object) -> Option<Object> {
    // SAFETY: the object is a list of ours; the copy is new.
    unsafe { Object::owned(ffi::PyList_GetSlice(list.as_ptr(), 0, isize::MAX)) }
}

/// The names in all Sec-WebSocket-Protocol fields, in their order.
fn subprotocols(headers: &Object) -> Option<Object> {
    // SAFETY: the list is ours, and holds tuples of two bytes objects that live as long as it does.
    unsafe {
        let found = Object::owned(ffi::PyList_New(0))?;
        for index in 0..ffi::PyList_Size(headers.as_ptr()) {
            let pair = ffi::PyList_GetItem(headers.as_ptr(), index);
            if bytes_of(ffi::PyTuple_GetItem(pair, 0)) != b"sec-websocket-protocol" {
                continue;
            }
            for name in bytes_of(ffi::PyTuple_GetItem(pair, 1)).split(|byte| *byte == b',') {
                let text = latin1(name.trim_ascii())?;
                if !name.trim_ascii().is_empty() && ffi::PyList_Append(found.as_ptr(), text.as_ptr()) != 0 {
                    return None;
                }
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{header_of, whole_path};

    #[test]
    fn variables_become_the_header_fields_that_they_were() {
        assert_eq!(header_of(b"HTTP_ACCEPT_ENCODING").as_deref(), Some(&b"accept-encoding"[..]));
        assert_eq!(header_of(b"CONTENT_TYPE").as_deref(), Some(&b"content-type"[..]));
        for name in [&b"REQUEST_METHOD"[..], b"HTTP_CONTENT_TYPE", b"HTTP_CONTENT_LENGTH"] {
            assert_eq!(header_of(name), None);
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
            assert_eq!(whole_path(root, path), whole);
        }
    }
}
