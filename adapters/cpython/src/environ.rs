//! `environ`: a copy of a template with all constant keys, then the few keys that differ (PEP 3333, "environ Variables").
//!
//! There is a template for each listener, and for a kept-alive connection that repeats its header block one that also has the
//! header fields. It knows nothing of the call that follows. Worker threads run it while they hold the interpreter.

use bolide_engine::request::{
    Forwarded, FrontTls, HeaderMemory, HttpRequest, Identity, LogFacts, Peer, Request, RequestParts, VariablesRequest, Version,
    joint,
};
use pyo3::ffi;

use crate::names::{EnvironKeys, EnvironNames, Methods};
use crate::object::{Object, latin1};

/// The variables that a uwsgi packet would carry for the request line and the connection, counted like uWSGI does:
/// REQUEST_METHOD, REQUEST_URI, PATH_INFO, QUERY_STRING, SERVER_PROTOCOL, SCRIPT_NAME, SERVER_NAME, SERVER_PORT, REMOTE_ADDR,
/// REMOTE_PORT: their number, the bytes of their names and of their two lengths.
const OWN_VARIABLES: u32 = 10;
const OWN_VARIABLE_BYTES: u32 = 14 + 11 + 9 + 12 + 15 + 11 + 11 + 11 + 11 + 11 + 4 * OWN_VARIABLES;

/// The origin of a request, according to its connection and its header block.
#[derive(Clone, Copy)]
struct RequestOrigin<'a> {
    peer: &'a Peer,
    forwarded: Option<&'a Forwarded>,
    script_name: &'a [u8],
}

/// A header block of a connection, as a template for its next request.
pub struct EnvironMemo {
    template: Object,
    log_facts: LogFacts,
}

/// A dictionary under construction. A failure (out of memory) leaves a Python exception set and is reported once, at the end.
pub struct Dictionary {
    pub object: Object,
    failed: bool,
}

impl Dictionary {
    pub fn new() -> Option<Dictionary> {
        // SAFETY: the result is new.
        let object = unsafe { Object::owned(ffi::PyDict_New())? };
        Some(Dictionary { object, failed: false })
    }

    /// A copy of another dictionary.
    pub fn copy_of(template: &Object) -> Option<Dictionary> {
        // SAFETY: the template is a dictionary of ours; the copy is new.
        let object = unsafe { Object::owned(ffi::PyDict_Copy(template.as_ptr()))? };
        Some(Dictionary { object, failed: false })
    }

    pub fn set(&mut self, key: &Object, value: &Object) {
        // SAFETY: all three live; the dictionary takes references of its own.
        self.failed |= unsafe { ffi::PyDict_SetItem(self.object.as_ptr(), key.as_ptr(), value.as_ptr()) } != 0;
    }

    pub fn set_text(&mut self, key: &Object, bytes: &[u8]) {
        match latin1(bytes) {
            Some(value) => self.set(key, &value),
            None => self.failed = true,
        }
    }

    pub fn get(&self, key: &Object) -> Option<Object> {
        // SAFETY: both live; the result is borrowed from the dictionary, and we take a reference of our own.
        unsafe { Object::borrowed(ffi::PyDict_GetItem(self.object.as_ptr(), key.as_ptr())) }
    }

    pub fn remove(&mut self, key: &Object) {
        if self.get(key).is_some() {
            // SAFETY: both live, and the key is there.
            self.failed |= unsafe { ffi::PyDict_DelItem(self.object.as_ptr(), key.as_ptr()) } != 0;
        }
    }

    /// `None`: an item could not be added, and an exception is set.
    pub fn done(self) -> Option<Object> {
        (!self.failed).then_some(self.object)
    }
}

/// Creates environs. Each thread has one.
pub struct Environs {
    pub names: EnvironNames,
    methods: Methods,
    keys: EnvironKeys,
    /// One for each listener.
    templates: Vec<Object>,
}

impl Environs {
    pub fn new(names: EnvironNames, methods: Methods, keys: EnvironKeys, templates: Vec<Object>) -> Environs {
        Environs { names, methods, keys, templates }
    }

    /// Returns the dictionary of a request, without `wsgi.input` and without a mount's SCRIPT_NAME. `None`: an exception is set.
    pub fn make(&mut self, request: &mut Request<'_, EnvironMemo>) -> Option<Dictionary> {
        let template = self.templates.get(request.listener).or(self.templates.first())?.clone();
        let Request { peer, forwarded, script_name, .. } = *request;
        let origin = RequestOrigin { peer, forwarded, script_name };
        let length = request.body.length();
        let mut environ = match &mut request.parts {
            RequestParts::Http(http) => self.http(&template, http, origin, length, &mut request.log_facts),
            RequestParts::Variables(variables) => self.reverse_proxy(&template, variables, script_name, &mut request.log_facts),
        }?;
        if let Some(identity) = &request.identity {
            self.set_identity(&mut environ, identity)?;
        }
        Some(environ)
    }

    /// Sets the identity of the request in place of the one that the client may have sent.
    fn set_identity(&mut self, environ: &mut Dictionary, identity: &Identity) -> Option<()> {
        let id = latin1(identity.id.as_bytes())?;
        environ.set(&self.names.request_id_field, &id);
        environ.set(&self.names.request_id, &id);
        if let Some(trace) = &identity.trace {
            environ.set_text(&self.names.traceparent, trace.context.text().as_bytes());
            if trace.state.is_empty() {
                environ.remove(&self.names.tracestate);
            }
        }
        Some(())
    }

    fn http(
        &mut self,
        template: &Object,
        http: &mut HttpRequest<'_, EnvironMemo>,
        origin: RequestOrigin<'_>,
        body_length: u64,
        log_facts: &mut LogFacts,
    ) -> Option<Dictionary> {
        let mut environ = match &mut http.memo {
            HeaderMemory::Same(memo) => {
                *log_facts = memo.log_facts;
                Dictionary::copy_of(&memo.template)?
            }
            HeaderMemory::Off => {
                let (environ, count) = self.with_headers(template, http, origin)?;
                *log_facts = count;
                environ
            }
            HeaderMemory::Fill(_) => {
                let (base, count) = self.with_headers(template, http, origin)?;
                *log_facts = count;
                let base = base.done()?;
                let environ = Dictionary::copy_of(&base)?;
                if let HeaderMemory::Fill(memo) = &mut http.memo {
                    **memo = Some(EnvironMemo { template: base, log_facts: count });
                }
                environ
            }
        };
        let names = &self.names;
        environ.set(&names.request_method, &self.methods.of(http.method)?);
        let uri = if http.uri == b"/" { names.slash.clone() } else { latin1(http.uri)? };
        environ.set(&names.request_uri, &uri);
        // They differ only if the target has an absolute form, or a route has set REQUEST_URI.
        if http.raw_uri == http.uri {
            environ.set(&names.raw_uri, &uri);
        } else {
            environ.set_text(&names.raw_uri, http.raw_uri);
        }
        // Most paths equal the target: then one string serves for both.
        if http.path == http.uri {
            environ.set(&names.path_info, &uri);
        } else {
            environ.set_text(&names.path_info, http.path);
        }
        if !http.query.is_empty() {
            environ.set_text(&names.query_string, http.query);
        }
        if !http.authority.is_empty() {
            environ.set_text(&self.keys.header(b"host")?, http.authority);
        }
        if http.chunked {
            // RFC 9112 section 7.1.3: a decoded body has a length, and is no longer chunked.
            environ.set_text(&names.content_length, body_length.to_string().as_bytes());
            if let Some(key) = self.keys.header(b"transfer-encoding") {
                environ.remove(&key);
            }
        }
        // Last, so that they override the request's own variables.
        for (name, value) in http.variables {
            self.variable(&mut environ, name, value)?;
        }
        log_facts.variable_bytes += (http.method.len() + http.uri.len() + http.path.len() + http.query.len()) as u32;
        Some(environ)
    }

    /// A template with a connection's address and a request's header fields.
    fn with_headers(
        &mut self,
        template: &Object,
        http: &HttpRequest<'_, EnvironMemo>,
        origin: RequestOrigin<'_>,
    ) -> Option<(Dictionary, LogFacts)> {
        let mut environ = Dictionary::copy_of(template)?;
        let protocol = match http.version {
            Version::Http10 => &self.names.http_1_0,
            Version::Http11 => &self.names.http_1_1,
            Version::Http2 => &self.names.http_2,
        };
        environ.set(&self.names.server_protocol, protocol);
        environ.set_text(&self.names.remote_addr, origin.peer.address.as_bytes());
        environ.set_text(&self.names.remote_port, origin.peer.port.as_bytes());
        if !origin.script_name.is_empty() {
            environ.set_text(&self.names.script_name, origin.script_name);
        }
        if let Some(facts) = &origin.peer.tls {
            for (name, value) in facts.variables() {
                environ.set_text(&self.keys.variable(name.as_bytes())?, value.as_bytes());
            }
        }
        let mut log_facts = LogFacts {
            variables: OWN_VARIABLES,
            variable_bytes: OWN_VARIABLE_BYTES + (origin.peer.address.len() + origin.peer.port.len() + "HTTP/1.1".len()) as u32,
            application: 0,
        };
        for name in [&self.names.server_name, &self.names.server_port] {
            log_facts.variable_bytes += environ.get(name).map_or(0, |text| length_of(&text));
        }
        for (name, value) in http.fields() {
            self.header(&mut environ, name, value)?;
            log_facts.variables += 1;
            log_facts.variable_bytes += (4 + "HTTP_".len() + name.len() + value.len()) as u32;
        }
        if let Some(facts) = &origin.peer.front_tls {
            self.set_front_tls(&mut environ, facts)?;
        }
        if let Some(forwarded) = origin.forwarded {
            self.set_forwarded(&mut environ, forwarded);
        }
        Some((environ, log_facts))
    }

    /// Returns `HOST|SCRIPT_NAME`, which is UWSGI_APPID from here on unless a reverse proxy has set it.
    pub fn application_id(&self, environ: &mut Dictionary, log_facts: &mut LogFacts) -> Option<Vec<u8>> {
        if let Some(given) = environ.get(&self.names.uwsgi_appid).filter(|given| length_of(given) > 0) {
            return Some(utf8_of(&given));
        }
        let text = |environ: &Dictionary, name: &Object| environ.get(name).filter(|text| length_of(text) > 0);
        let host = text(environ, &self.names.http_host).or_else(|| text(environ, &self.names.server_name));
        let host = host.map_or_else(|| latin1(b""), Some)?;
        let below = text(environ, &self.names.script_name).map_or_else(|| latin1(b""), Some)?;
        let id = joined(&host, b"|", &below)?;
        environ.set(&self.names.uwsgi_appid, &id);
        log_facts.variables += 1;
        log_facts.variable_bytes += (4 + "UWSGI_APPID".len()) as u32 + length_of(&id);
        Some(utf8_of(&id))
    }

    fn header(&mut self, environ: &mut Dictionary, name: &[u8], value: &[u8]) -> Option<()> {
        // A client's Proxy header would become HTTP_PROXY, which HTTP libraries take for the machine's setting (CVE-2016-5385).
        if name.eq_ignore_ascii_case(b"proxy") {
            return Some(());
        }
        let key = self.keys.header(name)?;
        let text = latin1(value)?;
        if let Some(before) = environ.get(&key) {
            let both = joined(&before, joint(name), &text)?;
            environ.set(&key, &both);
        } else {
            environ.set(&key, &text);
        }
        Some(())
    }

    /// The TLS between a reverse proxy and the client, from the PROXY header, with the names of mod_ssl.
    fn set_front_tls(&mut self, environ: &mut Dictionary, facts: &FrontTls) -> Option<()> {
        environ.set(&self.names.wsgi_url_scheme, &self.names.https);
        environ.set(&self.names.https_variable, &self.names.on);
        for (name, value) in [
            ("SSL_PROTOCOL", facts.version.as_slice()),
            ("SSL_CIPHER", &facts.cipher),
            ("SSL_CLIENT_VERIFY", facts.client_verify.as_bytes()),
            ("SSL_CLIENT_S_DN_CN", &facts.common_name),
        ] {
            if !value.is_empty() {
                environ.set(&self.keys.variable(name.as_bytes())?, &latin1(value)?);
            }
        }
        Some(())
    }

    /// Sets what a trusted reverse proxy says beyond the client's address. The host is in each request's `authority`.
    fn set_forwarded(&self, environ: &mut Dictionary, forwarded: &Forwarded) {
        let names = &self.names;
        match forwarded.is_https {
            Some(true) => {
                environ.set(&names.wsgi_url_scheme, &names.https);
                environ.set(&names.https_variable, &names.on);
            }
            Some(false) => {
                environ.set(&names.wsgi_url_scheme, &names.http);
                environ.remove(&names.https_variable);
            }
            None => {}
        }
        if !forwarded.server_port.is_empty() {
            environ.set_text(&names.server_port, forwarded.server_port.as_bytes());
        }
    }

    fn reverse_proxy(
        &mut self,
        template: &Object,
        variables: &VariablesRequest<'_>,
        script_name: &[u8],
        log_facts: &mut LogFacts,
    ) -> Option<Dictionary> {
        let mut environ = Dictionary::copy_of(template)?;
        if !script_name.is_empty() {
            environ.set_text(&self.names.script_name, script_name);
        }
        for (name, value) in variables.pairs() {
            self.variable(&mut environ, name, value)?;
        }
        self.set_raw_uri(&mut environ, variables);
        log_facts.variables = variables.variables.len() as u32;
        log_facts.variable_bytes = variables.bytes.len() as u32;
        Some(environ)
    }

    /// Sets RAW_URI to the REQUEST_URI that the reverse proxy sent, unless the reverse proxy or a route has set RAW_URI itself.
    fn set_raw_uri(&self, environ: &mut Dictionary, variables: &VariablesRequest<'_>) {
        let names = &self.names;
        if environ.get(&names.raw_uri).is_some_and(|given| length_of(&given) > 0) {
            return;
        }
        let is_unchanged = variables.uri.is_some_and(|uri| uri.of(variables.bytes) == variables.raw_uri);
        match environ.get(&names.request_uri).filter(|_| is_unchanged) {
            Some(uri) => environ.set(&names.raw_uri, &uri),
            None => environ.set_text(&names.raw_uri, variables.raw_uri),
        }
    }

    /// Sets a variable of a reverse proxy, or of a route.
    fn variable(&mut self, environ: &mut Dictionary, name: &[u8], value: &[u8]) -> Option<()> {
        let key = self.keys.variable(name)?;
        let text = latin1(value)?;
        environ.set(&key, &text);
        match name {
            b"HTTPS" if value == b"1" || value.eq_ignore_ascii_case(b"on") => self.set_scheme(environ, b"https"),
            b"UWSGI_SCHEME" | b"HTTP_X_FORWARDED_PROTO" => self.set_scheme(environ, value),
            _ => {}
        }
        Some(())
    }

    /// Sets the scheme that a reverse proxy names. Anything but http and https is ignored, because applications put it into
    /// links.
    fn set_scheme(&self, environ: &mut Dictionary, value: &[u8]) {
        let names = &self.names;
        if value.eq_ignore_ascii_case(b"https") {
            environ.set(&names.wsgi_url_scheme, &names.https);
        } else if value.eq_ignore_ascii_case(b"http") {
            environ.set(&names.wsgi_url_scheme, &names.http);
        }
    }
}

fn length_of(text: &Object) -> u32 {
    // SAFETY: the object is a str that we put there.
    unsafe { ffi::PyUnicode_GetLength(text.as_ptr()) as u32 }
}

/// The UTF-8 of a text; empty if no memory is left.
fn utf8_of(text: &Object) -> Vec<u8> {
    let mut length = 0;
    // SAFETY: the object is a str, which keeps its UTF-8 while it lives.
    unsafe {
        let start = ffi::PyUnicode_AsUTF8AndSize(text.as_ptr(), &mut length);
        if start.is_null() {
            ffi::PyErr_Clear();
            return Vec::new();
        }
        std::slice::from_raw_parts(start.cast::<u8>(), length as usize).to_vec()
    }
}

fn joined(before: &Object, separator: &[u8], after: &Object) -> Option<Object> {
    let separator = latin1(separator)?;
    // SAFETY: all three are strs; the results are new.
    unsafe {
        let head = Object::owned(ffi::PyUnicode_Concat(before.as_ptr(), separator.as_ptr()))?;
        Object::owned(ffi::PyUnicode_Concat(head.as_ptr(), after.as_ptr()))
    }
}
