//! Internal routing in a worker: presents requests to the rules, and executes their decisions.
//!
//! The rules themselves are in the crate `routes`. It runs on the thread that read the request, before the application is called,
//! and only if the settings have rules for requests or answers.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use bolide_contract::settings::Settings;
use bolide_files::{AcceptedCodings, Files};
use bolide_protocol::Span;
use bolide_protocol::variables::{Variable, VariableFacts};
use bolide_routes::{
    Answer, Cached, Caches, Network, Overrides, Routes, ServerValue, Services, Values, Verdict, reason, whole_response,
};

use crate::logging::access_log::{tell, tell_all};
use crate::request::{Version, joint};
use crate::response::ResponseWriter;
use crate::response::filters::{FilterRules, ResponseFilter};
use crate::services::SharedServices;
use crate::sockets::listener::{ListeningSocket, Peer};

/// Maximum size of an error page in bytes.
const PAGE_BYTES: u64 = 1024 * 1024;

/// The worker's rules for requests and answers, resolved at its start.
pub struct Rules {
    routes: Routes,
    answers: FilterRules,
    error_pages: Vec<(u16, std::path::PathBuf)>,
    services: SharedServices,
    /// `check-cache`: items of this cache that are named after a request's URI are its answers.
    checked_cache: Option<Vec<u8>>,
    /// A request may be answered or changed, or its answer.
    needs_walk: bool,
}

/// A request after the rules.
pub struct Routed {
    /// `None`: the application is called.
    verdict: Option<Verdict>,
    overrides: Overrides,
}

impl Rules {
    /// Returns the rules of an instance, which live as long as the process. `None` if there are none.
    ///
    /// # Errors
    /// A rule that the options accepted and this build does not know.
    pub fn of(settings: &Settings, services: SharedServices) -> io::Result<Option<&'static Rules>> {
        let (routes, mistakes) = Routes::compile(&settings.routes, Path::new(""));
        let routes = routes.ok_or_else(|| {
            let first = mistakes.into_iter().find(|mistake| mistake.is_fatal).map(|mistake| mistake.message);
            io::Error::new(io::ErrorKind::InvalidInput, first.unwrap_or_default())
        })?;
        let answers = FilterRules::new(&settings.answering, &routes.responses);
        let error_pages = settings.answering.error_pages.clone();
        let checked_cache = settings.answering.checked_cache.clone().map(String::into_bytes);
        let needs_walk =
            !routes.limits.is_empty() || !routes.requests.is_empty() || !answers.is_empty() || checked_cache.is_some();
        if routes.is_empty() && !needs_walk && error_pages.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::leak(Box::new(Rules { routes, answers, error_pages, services, checked_cache, needs_walk }))))
    }

    /// Counts a request in the limits that come before all rules, by the client's network and by its path. Returns the answer if
    /// one of them refuses it.
    #[inline]
    pub fn refusal<'r>(&self, limited: impl FnOnce() -> (Network<'r>, Cow<'r, [u8]>)) -> Option<Answer> {
        let limits = &self.routes.client_limits;
        if limits.is_empty() {
            return None;
        }
        let (network, path) = limited();
        limits.refusal(&network, &path, &self.services)
    }

    /// Sets up the response for an answer that was found before the rules.
    #[cold]
    pub fn refuse(&'static self, answer: Answer, request: &dyn Values, response: &mut ResponseWriter<'_>) -> Routed {
        self.routed(Verdict::Answer(answer), Overrides::default(), request, response)
    }

    /// Whether there is more than these limits.
    pub fn needs_walk(&self) -> bool {
        self.needs_walk
    }

    /// Walks the rules for a request, and sets up the response for changes to its answer.
    pub fn walk(&'static self, request: &dyn Values, response: &mut ResponseWriter<'_>) -> Routed {
        let mut overrides = Overrides::default();
        let mut verdict = Verdict::Serve;
        if !self.routes.limits.is_empty() {
            verdict = self.routes.limits.walk(request, &mut overrides);
        }
        if verdict == Verdict::Serve {
            verdict = match self.checked(request) {
                Some(answer) => Verdict::Answer(answer),
                None => self.routes.requests.walk(request, &mut overrides),
            };
        }
        tell_all(&mut overrides.lines);
        self.routed(verdict, overrides, request, response)
    }

    fn routed(
        &'static self,
        verdict: Verdict,
        mut overrides: Overrides,
        request: &dyn Values,
        response: &mut ResponseWriter<'_>,
    ) -> Routed {
        for (name, value) in &overrides.log_variables {
            response.notes.set_log_variable(name, value);
        }
        response.notes.is_unlogged = overrides.is_unlogged;
        response.notes.harakiri_ms = overrides.harakiri_ms;
        if let Some(policy) = overrides.cancel_on_disconnect {
            response.notes.cancel_on_disconnect = policy;
        }
        let concerns_answer = !overrides.added.is_empty() || !overrides.removed.is_empty() || overrides.is_compressed;
        if concerns_answer || !self.answers.is_empty() {
            let seen = WithOverrides { request, overrides: &overrides };
            let variables = self.answers.variables().map(|name| (name.clone(), owned(seen.value(name)))).collect();
            let accepted = match self.answers.may_compress() || overrides.is_compressed {
                true => AcceptedCodings::read(&request.value(b"HTTP_ACCEPT_ENCODING").unwrap_or_default()),
                false => AcceptedCodings::default(),
            };
            let worker = request.server(ServerValue::Worker);
            response.set_filter(ResponseFilter::new(
                &self.answers,
                &self.routes.responses,
                &mut overrides,
                variables,
                accepted,
                (worker, &self.services),
            ));
        }
        if !overrides.stores.is_empty() {
            response.store(std::mem::take(&mut overrides.stores), self.services.caches);
        }
        Routed { verdict: Some(verdict).filter(|verdict| *verdict != Verdict::Serve), overrides }
    }

    /// The answer to a GET request that is in the cache of `check-cache`. As in uWSGI it comes before all routes.
    fn checked(&self, request: &dyn Values) -> Option<Answer> {
        let cache = self.checked_cache.as_ref()?;
        let uri = request.value(b"REQUEST_URI").filter(|_| request.value(b"REQUEST_METHOD").is_some_and(|it| *it == *b"GET"))?;
        self.services.caches.response(cache, &uri).map(whole_response)
    }

    pub fn services(&self) -> &SharedServices {
        &self.services
    }

    /// Directories of the files that routes serve, by their number.
    pub fn directories(&self) -> &[std::path::PathBuf] {
        &self.routes.needs.directories
    }

    /// Whether they are walked before a request's body is read.
    pub fn come_before_bodies(&self) -> bool {
        self.routes.needs.comes_before_body
    }

    /// Whether the server's own answers with this status may have a page.
    pub fn has_error_page(&self, status: u16) -> bool {
        self.error_pages.iter().any(|(of, _)| *of == status)
    }

    /// Returns the page for the server's own answers with this status, if one can be read.
    pub fn error_page(&self, status: u16) -> Option<Vec<u8>> {
        let pages = self.error_pages.iter().filter(|(of, _)| *of == status);
        pages.map(|(_, path)| path).find_map(|path| {
            let metadata = std::fs::metadata(path).ok().filter(|found| found.is_file() && found.len() <= PAGE_BYTES);
            metadata.and_then(|_| std::fs::read(path).ok())
        })
    }
}

impl Routed {
    /// The value of a variable after the rules.
    pub fn or<'a>(&'a self, name: &[u8], before: &'a [u8]) -> &'a [u8] {
        self.overrides.value(name).unwrap_or(before)
    }

    /// The value of a variable if a rule has set it.
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.overrides.value(name)
    }

    /// Variables that rules have set for the application.
    pub fn variables(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.overrides.variables
    }

    /// The decision of a rule, if there is one.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Returns a uwsgi packet with the variables that rules have set appended: if a name occurs several times, the last value
    /// counts.
    pub fn packet(
        &self,
        bytes: &[u8],
        variables: &[Variable],
        facts: VariableFacts,
    ) -> Option<(Vec<u8>, Vec<Variable>, VariableFacts)> {
        if self.overrides.variables.is_empty() {
            return None;
        }
        let (mut bytes, mut variables, mut facts) = (bytes.to_vec(), variables.to_vec(), facts);
        for (name, value) in &self.overrides.variables {
            let mut put = |text: &[u8]| {
                let start = bytes.len();
                bytes.extend_from_slice(text);
                Span { start: start as u32, end: bytes.len() as u32 }
            };
            let variable = Variable { name: put(name), value: put(value) };
            variables.push(variable);
            match name.as_slice() {
                b"REQUEST_METHOD" => facts.method = Some(variable.value),
                b"REQUEST_URI" => facts.uri = Some(variable.value),
                _ => {}
            }
        }
        Some((bytes, variables, facts))
    }
}

fn owned(value: Option<Cow<'_, [u8]>>) -> Option<Vec<u8>> {
    value.map(Cow::into_owned)
}

/// Sends a rule's own answer, in the same way as an application's. If a field's value contains bytes of a client that are invalid
/// in a header, the field is left out.
pub fn give(answer: &Answer, rules: Option<&'static Rules>, response: &mut ResponseWriter<'_>) {
    let Answer { status, reason: text, fields, body, closes, is_in_own_words } = answer;
    let page = rules.filter(|_| *is_in_own_words).and_then(|rules| rules.error_page(*status));
    if response.status(format!("{status} {text}").as_bytes()).is_err() {
        let plain = format!("{status} {}", reason(*status).unwrap_or("Unknown"));
        // A status made of digits and a known phrase is always accepted.
        let _ = response.status(plain.as_bytes());
    }
    for (name, value) in fields {
        let value: &[u8] = if page.is_some() && name == "Content-Type" { b"text/html" } else { value };
        if let Err(refusal) = response.field(name.as_bytes(), value) {
            tell(format!("bolide: a route's {name} is omitted: {refusal}").as_bytes());
        }
    }
    if *closes {
        response.close_after();
    }
    response.give_whole(page.as_ref().unwrap_or(body));
}

/// Sends an item of a cache, with the length and the type that its rule gives it. Conditions of the client are not considered:
/// an item has no validators.
pub fn give_cached(cached: &Cached, files: Option<&Files>, response: &mut ResponseWriter<'_>) {
    let Cached { value, key, form, .. } = cached;
    let by_key = form.type_by_key.then(|| Files::type_by_name(files, key)).flatten();
    // The status and all fields were checked when the rule was compiled.
    let _ = response.status_code_only(200);
    let _ = response.field(b"Content-Type", by_key.as_deref().unwrap_or(&form.content_type).as_bytes());
    if !form.content_encoding.is_empty() {
        let _ = response.field(b"Content-Encoding", form.content_encoding.as_bytes());
    }
    if let Some(date) = cached.expires() {
        let _ = response.field(b"Expires", date.as_bytes());
    }
    response.declare_length(value.len() as u64);
    response.push_ready(value);
}

/// A request with the variables that rules have set.
struct WithOverrides<'a> {
    request: &'a dyn Values,
    overrides: &'a Overrides,
}

impl Values for WithOverrides<'_> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.overrides.value(name).map(Cow::Borrowed).or_else(|| self.request.value(name))
    }

    fn server(&self, what: ServerValue) -> u64 {
        self.request.server(what)
    }

    fn services(&self) -> Option<&dyn Services> {
        self.request.services()
    }

    fn aside(&self, work: &mut dyn FnMut()) {
        self.request.aside(work);
    }
}

/// A request, the services that its rules may use, and how to run slow work of these.
pub struct WithMeans<'a, V> {
    pub values: V,
    pub services: &'a SharedServices,
    pub aside: &'a dyn Fn(&mut dyn FnMut()),
}

impl<V: Values> Values for WithMeans<'_, V> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.values.value(name)
    }

    fn server(&self, what: ServerValue) -> u64 {
        self.values.server(what)
    }

    fn services(&self) -> Option<&dyn Services> {
        Some(self.services)
    }

    fn aside(&self, work: &mut dyn FnMut()) {
        (self.aside)(work);
    }
}

/// An HTTP request by CGI names, with the values of `environ`.
pub struct HttpValues<'a> {
    pub method: &'a [u8],
    pub uri: &'a [u8],
    pub path: &'a [u8],
    pub query: &'a [u8],
    pub authority: &'a [u8],
    pub version: Version,
    /// The header fields' bytes. They are searched when a rule needs a field, because a repeated header block of a connection is
    /// not parsed.
    pub header_bytes: &'a [u8],
    pub body_bytes: u64,
    pub peer: &'a Peer,
    pub script_name: &'a [u8],
    pub is_https: bool,
    pub listener: Option<&'a ListeningSocket>,
    pub worker: u32,
}

impl Values for HttpValues<'_> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(match name {
            b"PATH_INFO" => self.path,
            b"REQUEST_URI" => self.uri,
            b"QUERY_STRING" => self.query,
            b"REQUEST_METHOD" => self.method,
            b"SCRIPT_NAME" => self.script_name,
            b"DOCUMENT_ROOT" => b"",
            b"HTTPS" => return self.is_https.then_some(Cow::Borrowed(b"on")),
            b"REMOTE_ADDR" => self.peer.address.as_bytes(),
            b"REMOTE_PORT" => self.peer.port.as_bytes(),
            b"SERVER_NAME" => self.listener?.server_name.as_bytes(),
            b"SERVER_PORT" => self.listener?.server_port.as_bytes(),
            b"SERVER_PROTOCOL" => self.version.name().as_bytes(),
            b"HTTP_HOST" if !self.authority.is_empty() => self.authority,
            b"CONTENT_TYPE" => return self.header(b"CONTENT_TYPE"),
            b"CONTENT_LENGTH" if self.body_bytes > 0 => return Some(self.body_bytes.to_string().into_bytes().into()),
            b"CONTENT_LENGTH" => return self.header(b"CONTENT_LENGTH"),
            // CVE-2016-5385: see `environ`.
            b"HTTP_PROXY" => return None,
            _ => match name.strip_prefix(b"HTTP_") {
                Some(name) => return self.header(name),
                None => return self.of_tls(name),
            },
        }))
    }

    fn server(&self, what: ServerValue) -> u64 {
        server_value(self.worker, what)
    }
}

impl HttpValues<'_> {
    fn of_tls(&self, wanted: &[u8]) -> Option<Cow<'_, [u8]>> {
        let variables = self.peer.tls.as_ref()?.variables();
        let (_, value) = variables.into_iter().find(|(name, _)| name.as_bytes() == wanted)?;
        Some(value.into_owned().into_bytes().into())
    }

    fn header(&self, wanted: &[u8]) -> Option<Cow<'_, [u8]>> {
        header_of(self.header_bytes, wanted)
    }
}

/// Returns a header by its CGI name; several of the same name are joined as in `environ`.
pub fn header_of<'a>(header_bytes: &'a [u8], wanted: &[u8]) -> Option<Cow<'a, [u8]>> {
    let mut found: Option<Cow<'a, [u8]>> = None;
    let mut rest = header_bytes;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        // The name ends at the first colon, so most lines need no look at each byte of their name.
        if line.get(wanted.len()) != Some(&b':') || !is_cgi_name(&line[..wanted.len()], wanted) {
            continue;
        }
        let value = line[wanted.len() + 1..].trim_ascii();
        found = Some(match found {
            None => value.into(),
            Some(before) => [&before, joint(wanted), value].concat().into(),
        });
    }
    found
}

/// Whether a field's name maps to this CGI name. A name with an underscore maps to none: it could forge another field.
fn is_cgi_name(name: &[u8], wanted: &[u8]) -> bool {
    name.len() == wanted.len()
        && name.iter().zip(wanted).all(|(&byte, &upper)| match byte {
            b'-' => upper == b'_',
            b'_' | b':' => false,
            _ => byte.to_ascii_uppercase() == upper,
        })
}

/// A reverse proxy's request, which has CGI variables.
#[derive(Clone, Copy)]
pub struct VariableValues<'a> {
    pub bytes: &'a [u8],
    pub variables: &'a [Variable],
    pub worker: u32,
}

impl Values for VariableValues<'_> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let found = self.variables.iter().rfind(|variable| variable.name.of(self.bytes) == name)?;
        Some(found.value.of(self.bytes).into())
    }

    fn server(&self, what: ServerValue) -> u64 {
        server_value(self.worker, what)
    }
}

fn server_value(worker: u32, what: ServerValue) -> u64 {
    match what {
        ServerValue::Worker => worker.into(),
        ServerValue::Process => std::process::id().into(),
        ServerValue::Status => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_by_its_cgi_name_whole_and_joined() {
        let block = b"Host: a:8000\r\nX-Forwarded-For: 1\r\nHosts: no\r\nX_Id: forged\r\nX-Id:  b \r\nx-forwarded-FOR: 2\r\n\
            none\r\nCookie: c";
        for (wanted, value) in [
            (&b"HOST"[..], Some("a:8000")),
            (b"X_FORWARDED_FOR", Some("1, 2")),
            (b"X_ID", Some("b")),
            (b"COOKIE", Some("c")),
            // A name has no colon.
            (b"HOST: A", None),
            (b"HOS", None),
            (b"NONE", None),
            (b"", None),
        ] {
            let found = header_of(block, wanted).map(|value| String::from_utf8_lossy(&value).into_owned());
            assert_eq!(found.as_deref(), value, "{}", String::from_utf8_lossy(wanted));
        }
        assert_eq!(header_of(b"", b"HOST"), None);
    }
}
