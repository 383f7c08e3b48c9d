//! The scope of a connection (ASGI, "HTTP Connection Scope" and "WebSocket Connection Scope"): a copy of a template with all
//! constant keys, then the few keys that differ. If a kept-alive connection repeats its header block, the Python objects of the
//! first one are used again. It knows nothing of the call that follows. The event loop's thread runs it.

use bolide_engine::request::description::{Change, Line, Origin, field_of};
use bolide_engine::request::{HeaderMemory, Identity, LogFacts, Peer, Request, TlsFacts, Version};
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

/// The part of a scope that a connection repeats with its header block.
struct Block {
    template: Object,
    headers: Object,
    tls: Option<Object>,
    log_facts: LogFacts,
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
        let (mut scope, tls, of_block) = match request.parts.memory() {
            Some(HeaderMemory::Same(memo)) => {
                let mut scope = Dictionary::copy_of(&memo.template)?;
                scope.set(&self.names.headers, &list_copy(&memo.headers)?);
                (scope, memo.tls.clone(), memo.log_facts)
            }
            None | Some(HeaderMemory::Off) => {
                let Block { template, headers, tls, log_facts } = self.block(&template, request, is_websocket)?;
                let mut scope = Dictionary::copy_of(&template)?;
                scope.set(&self.names.headers, &headers);
                (scope, tls, log_facts)
            }
            Some(HeaderMemory::Fill(_)) => {
                let Block { template, headers, tls, log_facts } = self.block(&template, request, is_websocket)?;
                let mut scope = Dictionary::copy_of(&template)?;
                scope.set(&self.names.headers, &list_copy(&headers)?);
                if let Some(HeaderMemory::Fill(memo)) = request.parts.memory() {
                    **memo = Some(ScopeMemo { template, headers, tls: tls.clone(), log_facts });
                }
                (scope, tls, log_facts)
            }
        };
        request.log_facts = of_block;
        request.log_facts.variable_bytes += request.parts.line_bytes();
        if !request.authority().is_empty() {
            self.set_host(&scope.get(&self.names.headers)?, request.authority())?;
        }
        let line = request.line(root_path);
        self.set_line(&mut scope, &line, is_websocket)?;
        self.set_changes(&mut scope, request, is_websocket)?;
        // No key of ASGI has the scheme and the host of a target. The bridge to WSGI applications needs them for RAW_URI.
        if let Some(raw_target) = line.raw_target {
            scope.set(&self.names.raw_uri, &new_bytes(raw_target)?);
        }
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
        if let Some(start) = request.start {
            // In place of those that the client may have sent.
            let headers = scope.get(&self.names.headers)?;
            remove_fields(&headers, b"x-request-start")?;
            self.append(&headers, b"x-request-start", &start.text())?;
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
    fn set_changes(&mut self, scope: &mut Dictionary, request: &Request<'_, ScopeMemo>, is_websocket: bool) -> Option<()> {
        let mut done = Some(());
        request.each_change(|change| {
            if done.is_some() {
                done = self.set_change(scope, change, request.peer, is_websocket);
            }
        });
        done
    }

    fn set_change(&mut self, scope: &mut Dictionary, change: Change<'_>, peer: &Peer, is_websocket: bool) -> Option<()> {
        match change {
            Change::Client(host) => scope.set(&self.names.client, &address(host, peer.port.parse().unwrap_or(0))?),
            Change::Https(is_https) => self.set_scheme(scope, is_https, is_websocket),
            Change::Variable(name, value) => {
                if let Some(field) = field_of(name) {
                    let headers = scope.get(&self.names.headers)?;
                    self.append(&headers, &field, value)?;
                }
            }
        }
        Some(())
    }

    /// Makes a template with a connection's address and a request's header fields, and the list of those.
    fn block(&mut self, template: &Object, request: &Request<'_, ScopeMemo>, is_websocket: bool) -> Option<Block> {
        let mut scope = Dictionary::copy_of(template)?;
        let headers = self.new_list()?;
        let Origin { version, client, server, is_https } = request.origin();
        match version {
            Version::Http10 => scope.set(&self.names.http_version, &self.names.version_1_0),
            Version::Http11 => {}
            Version::Http2 => scope.set(&self.names.http_version, &self.names.version_2),
        }
        for (key, place) in [(&self.names.client, client), (&self.names.server, server)] {
            if let Some((host, port)) = place {
                scope.set(key, &address(host, port)?);
            }
        }
        if let Some(is_https) = is_https {
            self.set_scheme(&mut scope, is_https, is_websocket);
        }
        let mut has_all = true;
        request.each_field(|name, value| has_all = has_all && self.append(&headers, name, value).is_some());
        if !has_all {
            return None;
        }
        let tls = match &request.peer.tls {
            Some(facts) if request.parts.is_http() => Some(self.tls(facts)?),
            _ => None,
        };
        Some(Block { template: scope.done()?, headers, tls, log_facts: request.parts.block_facts() })
    }

    fn set_scheme(&self, scope: &mut Dictionary, is_https: bool, is_websocket: bool) {
        let names = &self.names;
        let scheme = match (is_websocket, is_https) {
            (false, false) => &names.http,
            (false, true) => &names.https,
            (true, false) => &names.ws,
            (true, true) => &names.wss,
        };
        scope.set(&names.scheme, scheme);
    }

    fn set_line(&self, scope: &mut Dictionary, line: &Line<'_>, is_websocket: bool) -> Option<()> {
        let names = &self.names;
        // The templates are for `GET /`.
        if !is_websocket && line.method != b"GET" {
            // "Uppercased" (ASGI, "HTTP connection scope").
            scope.set(&names.method, &self.methods.of(&line.method.to_ascii_uppercase())?);
        }
        if *line.path != *b"/" {
            scope.set(&names.path, &utf8_lossy(&line.path)?);
        }
        if *line.raw_path != *b"/" {
            scope.set(&names.raw_path, &new_bytes(&line.raw_path)?);
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
