//! The variables of a request, whichever protocol it came by: those of CGI/1.1 (RFC 3875 section 4.1), with the names that uWSGI
//! and mod_ssl add. Languages whose applications get a table of strings make it from these: WSGI's `environ`, and the tables of
//! CGI, PSGI, Rack and PHP.
//!
//! The variables of a header block that a connection repeats are separate from the rest, so that a language can keep them. It
//! does not know about languages. Worker threads run it.

use crate::logging::identity::Identity;
use crate::request::{HttpRequest, LogFacts, Parts, Request, VariablesRequest, joint};
use crate::sockets::client::Forwarded;
use crate::sockets::listener::FrontTls;

/// The variables that a uwsgi packet would carry for the request line and the connection, counted like uWSGI does:
/// REQUEST_METHOD, REQUEST_URI, PATH_INFO, QUERY_STRING, SERVER_PROTOCOL, SCRIPT_NAME, SERVER_NAME, SERVER_PORT, REMOTE_ADDR,
/// REMOTE_PORT: their number, the bytes of their names and of their two lengths.
const OWN_VARIABLES: u32 = 10;
const OWN_VARIABLE_BYTES: u32 = 14 + 11 + 9 + 12 + 15 + 11 + 11 + 11 + 11 + 11 + 4 * OWN_VARIABLES;

/// Makes an enum of variables with their names.
macro_rules! known {
    ($($variant:ident = $name:literal,)*) => {
        /// A variable of the server's own, for which a language may keep objects.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum OwnVariable { $($variant,)* }

        impl OwnVariable {
            pub const fn name(self) -> &'static str {
                match self { $(OwnVariable::$variant => $name,)* }
            }
        }
    };
}

known! {
    RequestMethod = "REQUEST_METHOD",
    RequestUri = "REQUEST_URI",
    RawUri = "RAW_URI",
    PathInfo = "PATH_INFO",
    QueryString = "QUERY_STRING",
    ScriptName = "SCRIPT_NAME",
    ServerProtocol = "SERVER_PROTOCOL",
    ServerName = "SERVER_NAME",
    ServerPort = "SERVER_PORT",
    RemoteAddr = "REMOTE_ADDR",
    RemotePort = "REMOTE_PORT",
    ContentLength = "CONTENT_LENGTH",
    TransferEncoding = "HTTP_TRANSFER_ENCODING",
    Host = "HTTP_HOST",
    Https = "HTTPS",
    RequestId = "HTTP_X_REQUEST_ID",
    Traceparent = "HTTP_TRACEPARENT",
    Tracestate = "HTTP_TRACESTATE",
    RequestStart = "HTTP_X_REQUEST_START",
}

/// The table that the variables go into. A later value replaces an earlier one.
pub trait Variables {
    fn set(&mut self, name: OwnVariable, value: &[u8]);

    /// Sets a variable to the value that REQUEST_URI has, which most paths have: one object may serve for both.
    fn set_uri_again(&mut self, name: OwnVariable, uri: &[u8]) {
        self.set(name, uri);
    }

    /// Sets a variable by its name, as a reverse proxy, a route or TLS gives it.
    fn set_named(&mut self, name: &[u8], value: &[u8]);

    /// Adds a header field by its own name: `Accept` is HTTP_ACCEPT. Values of the same name are joined by `joint`.
    fn add_field(&mut self, name: &[u8], value: &[u8], joint: &'static [u8]);

    fn remove(&mut self, name: OwnVariable);

    /// The scheme of the client's connection.
    fn set_scheme(&mut self, is_https: bool);

    /// The identity that the server has given the request.
    fn set_identifier(&mut self, id: &[u8]);

    /// The length of a variable that is set, in bytes; 0: it is not.
    fn length_of(&self, name: OwnVariable) -> u32;
}

impl<Memo> Request<'_, Memo> {
    /// Sets the variables of the connection and its header block. A connection that repeats the block has the same ones again.
    pub fn set_connection_variables(&self, variables: &mut impl Variables) -> LogFacts {
        let Parts::Http(http) = &self.parts.0 else { return self.parts.block_facts() };
        variables.set(OwnVariable::ServerProtocol, http.version.name().as_bytes());
        variables.set(OwnVariable::RemoteAddr, self.peer.address.as_bytes());
        variables.set(OwnVariable::RemotePort, self.peer.port.as_bytes());
        if !self.script_name.is_empty() {
            variables.set(OwnVariable::ScriptName, self.script_name);
        }
        if let Some(facts) = &self.peer.tls {
            for (name, value) in facts.variables() {
                variables.set_named(name.as_bytes(), value.as_bytes());
            }
        }
        let mut log_facts = self.parts.block_facts();
        log_facts.variables += OWN_VARIABLES;
        let own_bytes = self.peer.address.len() + self.peer.port.len() + "HTTP/1.1".len();
        log_facts.variable_bytes += OWN_VARIABLE_BYTES + own_bytes as u32;
        log_facts.variable_bytes += variables.length_of(OwnVariable::ServerName) + variables.length_of(OwnVariable::ServerPort);
        for (name, value) in http.fields() {
            // A client's Proxy header would become HTTP_PROXY, which HTTP libraries take for the machine's setting
            // (CVE-2016-5385).
            if !name.eq_ignore_ascii_case(b"proxy") {
                variables.add_field(name, value, joint(name));
            }
        }
        if let Some(facts) = &self.peer.front_tls {
            set_front_tls(variables, facts);
        }
        if let Some(forwarded) = self.forwarded {
            set_forwarded(variables, forwarded);
        }
        log_facts
    }

    /// Sets the rest of the variables. `of_block` is what [`Request::set_connection_variables`] returned, for these or for an
    /// earlier request with the same block.
    pub fn set_variables(&mut self, variables: &mut impl Variables, of_block: LogFacts) {
        self.log_facts = of_block;
        self.log_facts.variable_bytes += self.parts.line_bytes();
        match &self.parts.0 {
            Parts::Http(http) => set_http(variables, http, self.body.length()),
            Parts::Variables(given) => set_given(variables, given, self.script_name),
        }
        if let Some(identity) = &self.identity {
            set_identity(variables, identity);
        }
        if let Some(start) = self.start {
            // In place of those that the client may have sent.
            variables.set(OwnVariable::RequestStart, &start.text());
        }
    }
}

#[inline]
fn set_http<Memo>(variables: &mut impl Variables, http: &HttpRequest<'_, Memo>, body_length: u64) {
    variables.set(OwnVariable::RequestMethod, http.method);
    variables.set(OwnVariable::RequestUri, http.uri);
    // They differ only if the target has an absolute form, or a route has set REQUEST_URI.
    match http.raw_uri == http.uri {
        true => variables.set_uri_again(OwnVariable::RawUri, http.uri),
        false => variables.set(OwnVariable::RawUri, http.raw_uri),
    }
    match http.path == http.uri {
        true => variables.set_uri_again(OwnVariable::PathInfo, http.uri),
        false => variables.set(OwnVariable::PathInfo, http.path),
    }
    if !http.query.is_empty() {
        variables.set(OwnVariable::QueryString, http.query);
    }
    if !http.authority.is_empty() {
        variables.set(OwnVariable::Host, http.authority);
    }
    if http.chunked {
        // RFC 9112 section 7.1.3: decoding gives the body a length, and removes the coding.
        variables.set(OwnVariable::ContentLength, body_length.to_string().as_bytes());
        variables.remove(OwnVariable::TransferEncoding);
    }
    // Last, so that they override the request's own variables.
    for (name, value) in http.variables {
        set_given_one(variables, name, value);
    }
}

fn set_given(variables: &mut impl Variables, given: &VariablesRequest<'_>, script_name: &[u8]) {
    if !script_name.is_empty() {
        variables.set(OwnVariable::ScriptName, script_name);
    }
    for (name, value) in given.pairs() {
        set_given_one(variables, name, value);
    }
    // RAW_URI is the REQUEST_URI that the reverse proxy sent, unless the reverse proxy or a route has set it itself.
    if variables.length_of(OwnVariable::RawUri) == 0 {
        match given.uri.is_some_and(|uri| uri.of(given.bytes) == given.raw_uri) {
            true => variables.set_uri_again(OwnVariable::RawUri, given.raw_uri),
            false => variables.set(OwnVariable::RawUri, given.raw_uri),
        }
    }
}

/// Sets a variable of a reverse proxy, or of a route. A scheme other than http and https is ignored, because applications put it
/// into links.
fn set_given_one(variables: &mut impl Variables, name: &[u8], value: &[u8]) {
    variables.set_named(name, value);
    match name {
        b"HTTPS" if value == b"1" || value.eq_ignore_ascii_case(b"on") => variables.set_scheme(true),
        b"UWSGI_SCHEME" | b"HTTP_X_FORWARDED_PROTO" if value.eq_ignore_ascii_case(b"https") => variables.set_scheme(true),
        b"UWSGI_SCHEME" | b"HTTP_X_FORWARDED_PROTO" if value.eq_ignore_ascii_case(b"http") => variables.set_scheme(false),
        _ => {}
    }
}

/// Sets the identity of the request in place of the one that the client may have sent.
fn set_identity(variables: &mut impl Variables, identity: &Identity) {
    variables.set(OwnVariable::RequestId, identity.id.as_bytes());
    variables.set_identifier(identity.id.as_bytes());
    if let Some(trace) = &identity.trace {
        variables.set(OwnVariable::Traceparent, trace.context.text().as_bytes());
        if trace.state.is_empty() {
            variables.remove(OwnVariable::Tracestate);
        }
    }
}

/// The TLS between a reverse proxy and the client, from the PROXY header, with the names of mod_ssl.
fn set_front_tls(variables: &mut impl Variables, facts: &FrontTls) {
    variables.set_scheme(true);
    variables.set(OwnVariable::Https, b"on");
    for (name, value) in [
        ("SSL_PROTOCOL", facts.version.as_slice()),
        ("SSL_CIPHER", &facts.cipher),
        ("SSL_CLIENT_VERIFY", facts.client_verify.as_bytes()),
        ("SSL_CLIENT_S_DN_CN", &facts.common_name),
    ] {
        if !value.is_empty() {
            variables.set_named(name.as_bytes(), value);
        }
    }
}

/// Sets what a trusted reverse proxy says beyond the client's address. The host is in each request's `authority`.
fn set_forwarded(variables: &mut impl Variables, forwarded: &Forwarded) {
    if let Some(is_https) = forwarded.is_https {
        variables.set_scheme(is_https);
        match is_https {
            true => variables.set(OwnVariable::Https, b"on"),
            false => variables.remove(OwnVariable::Https),
        }
    }
    if !forwarded.server_port.is_empty() {
        variables.set(OwnVariable::ServerPort, forwarded.server_port.as_bytes());
    }
}
