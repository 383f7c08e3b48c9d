//! `environ`: a copy of a template with all constant keys, then the few keys that differ (PEP 3333, "environ Variables").
//!
//! There is a template for each listener, and for a kept-alive connection that repeats its header block one that also has the
//! header fields. It knows nothing of the call that follows. Worker threads run it while they hold the interpreter.

use bolide_engine::request::variables::{OwnVariable, Variables};
use bolide_engine::request::{HeaderMemory, LogFacts, Request};
use pyo3::ffi;

use crate::names::{EnvironKeys, EnvironNames, Methods};
use crate::object::{Object, latin1};

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
        let (environ, of_block) = match request.parts.memory() {
            Some(HeaderMemory::Same(memo)) => (Dictionary::copy_of(&memo.template)?, memo.log_facts),
            None | Some(HeaderMemory::Off) => self.of_block(request)?,
            Some(HeaderMemory::Fill(_)) => {
                let (base, of_block) = self.of_block(request)?;
                let template = base.done()?;
                let environ = Dictionary::copy_of(&template)?;
                if let Some(HeaderMemory::Fill(memo)) = request.parts.memory() {
                    **memo = Some(EnvironMemo { template, log_facts: of_block });
                }
                (environ, of_block)
            }
        };
        let mut variables = self.variables(environ);
        request.set_variables(&mut variables, of_block);
        Some(variables.environ)
    }

    /// The dictionary of a connection and its header block, and how the log counts it.
    fn of_block(&mut self, request: &Request<'_, EnvironMemo>) -> Option<(Dictionary, LogFacts)> {
        let template = self.templates.get(request.listener).or(self.templates.first())?;
        let environ = Dictionary::copy_of(template)?;
        let mut variables = self.variables(environ);
        let of_block = request.set_connection_variables(&mut variables);
        Some((variables.environ, of_block))
    }

    fn variables(&mut self, environ: Dictionary) -> EnvironVariables<'_> {
        EnvironVariables { environ, names: &self.names, methods: &self.methods, keys: &mut self.keys, uri: None }
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
}

/// A dictionary as the engine sets the variables of a request in it.
struct EnvironVariables<'a> {
    environ: Dictionary,
    names: &'a EnvironNames,
    methods: &'a Methods,
    keys: &'a mut EnvironKeys,
    /// REQUEST_URI
    uri: Option<Object>,
}

impl EnvironVariables<'_> {
    fn key(&self, name: OwnVariable) -> &Object {
        let names = self.names;
        match name {
            OwnVariable::RequestMethod => &names.request_method,
            OwnVariable::RequestUri => &names.request_uri,
            OwnVariable::RawUri => &names.raw_uri,
            OwnVariable::PathInfo => &names.path_info,
            OwnVariable::QueryString => &names.query_string,
            OwnVariable::ScriptName => &names.script_name,
            OwnVariable::ServerProtocol => &names.server_protocol,
            OwnVariable::ServerName => &names.server_name,
            OwnVariable::ServerPort => &names.server_port,
            OwnVariable::RemoteAddr => &names.remote_addr,
            OwnVariable::RemotePort => &names.remote_port,
            OwnVariable::ContentLength => &names.content_length,
            OwnVariable::TransferEncoding => &names.transfer_encoding,
            OwnVariable::Host => &names.http_host,
            OwnVariable::Https => &names.https_variable,
            OwnVariable::RequestId => &names.request_id_field,
            OwnVariable::Traceparent => &names.traceparent,
            OwnVariable::Tracestate => &names.tracestate,
            OwnVariable::RequestStart => &names.request_start,
        }
    }

    /// The object of a value; most of these are always the same.
    fn value(&self, name: OwnVariable, value: &[u8]) -> Option<Object> {
        let names = self.names;
        let kept = match (name, value) {
            (OwnVariable::RequestMethod, method) => return self.methods.of(method),
            (OwnVariable::RequestUri, b"/") => &names.slash,
            (OwnVariable::ServerProtocol, b"HTTP/1.1") => &names.http_1_1,
            (OwnVariable::ServerProtocol, b"HTTP/2.0") => &names.http_2,
            (OwnVariable::ServerProtocol, b"HTTP/1.0") => &names.http_1_0,
            (OwnVariable::Https, b"on") => &names.on,
            _ => return latin1(value),
        };
        Some(kept.clone())
    }

    /// Sets a value that could be made, under a key that could.
    fn put(&mut self, key: Option<&Object>, value: Option<&Object>) {
        match key.zip(value) {
            Some((key, value)) => self.environ.set(key, value),
            None => self.environ.failed = true,
        }
    }
}

impl Variables for EnvironVariables<'_> {
    #[inline]
    fn set(&mut self, name: OwnVariable, value: &[u8]) {
        let Some(value) = self.value(name, value) else {
            self.environ.failed = true;
            return;
        };
        let key = self.key(name).as_ptr();
        // SAFETY: the key and the value live; the dictionary takes references of its own.
        self.environ.failed |= unsafe { ffi::PyDict_SetItem(self.environ.object.as_ptr(), key, value.as_ptr()) } != 0;
        if name == OwnVariable::RequestUri {
            self.uri = Some(value);
        }
    }

    #[inline]
    fn set_uri_again(&mut self, name: OwnVariable, uri: &[u8]) {
        // A reverse proxy sets it by its name.
        let found = self.uri.take().or_else(|| self.environ.get(&self.names.request_uri));
        let Some(uri) = found else { return self.set(name, uri) };
        let key = self.key(name).clone();
        self.environ.set(&key, &uri);
        self.uri = Some(uri);
    }

    fn set_named(&mut self, name: &[u8], value: &[u8]) {
        let (key, value) = (self.keys.variable(name), latin1(value));
        self.put(key.as_ref(), value.as_ref());
    }

    fn add_field(&mut self, name: &[u8], value: &[u8], joint: &'static [u8]) {
        let (key, value) = (self.keys.header(name), latin1(value));
        let before = key.as_ref().and_then(|key| self.environ.get(key));
        let value = match (before, value) {
            (Some(before), Some(value)) => joined(&before, joint, &value),
            (_, value) => value,
        };
        self.put(key.as_ref(), value.as_ref());
    }

    fn remove(&mut self, name: OwnVariable) {
        let key = self.key(name).clone();
        self.environ.remove(&key);
    }

    fn set_scheme(&mut self, is_https: bool) {
        let names = self.names;
        self.environ.set(&names.wsgi_url_scheme, if is_https { &names.https } else { &names.http });
    }

    fn set_identifier(&mut self, id: &[u8]) {
        self.environ.set_text(&self.names.request_id, id);
    }

    fn length_of(&self, name: OwnVariable) -> u32 {
        self.environ.get(self.key(name)).map_or(0, |text| length_of(&text))
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
