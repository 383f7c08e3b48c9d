//! The variables of a program: those of RFC 3875 section 4.1, the request's header fields as HTTP_*, what the configuration sets,
//! and PATH. Nothing else of the server's own environment reaches a program. It does not know how programs are executed. Workers
//! run it.

use std::ffi::CString;

use bolide_contract::settings::Settings;
use bolide_engine::ListeningSocket;
use bolide_engine::request::Request;
use bolide_engine::request::variables::{OwnVariable, Variables};

/// The PATH of programs if that of the server is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const SERVER_SOFTWARE: &str = concat!("bolide/", env!("CARGO_PKG_VERSION"));

/// Names that the server and its reverse proxy use among themselves.
const INTERNAL: [&[u8]; 2] = [b"UWSGI_", b"BOLIDE_"];
/// A loader, a shell or an interpreter finds code by variables whose names begin like these, or are these. No request sets them.
const CODE_BEGINNINGS: [&[u8]; 10] =
    [b"LD_", b"BASH_", b"PYTHON", b"PERL", b"RUBY", b"NODE_", b"GCONV_", b"GLIBC_", b"MALLOC_", b"JAVA_"];
const CODE_NAMES: [&[u8]; 7] = [b"PATH", b"ENV", b"IFS", b"SHELLOPTS", b"BASHOPTS", b"PS4", b"HOME"];

/// What is the same for all requests of a worker.
pub struct Base {
    /// One for each listener.
    listeners: Vec<Environment>,
    /// What the configuration sets: it has the last word.
    configured: Vec<(Vec<u8>, Vec<u8>)>,
    unset: Vec<Vec<u8>>,
    ignores_script_name: bool,
}

/// The variables of one program.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `NAME=VALUE`
    entries: Vec<Vec<u8>>,
}

/// What the program was found by.
pub struct ScriptFacts<'a> {
    pub file: &'a [u8],
    pub name: &'a [u8],
    pub path_info: &'a [u8],
    pub root: &'a [u8],
}

impl Base {
    pub fn new(settings: &Settings, listeners: &[ListeningSocket], unset: &[String]) -> Base {
        let search = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let of_listener = |listener: &ListeningSocket| {
            let mut environment = Environment::default();
            environment.put(b"GATEWAY_INTERFACE", b"CGI/1.1");
            environment.put(b"SERVER_SOFTWARE", SERVER_SOFTWARE.as_bytes());
            // A PHP that was built for safety runs only with it.
            environment.put(b"REDIRECT_STATUS", b"200");
            environment.put(b"PATH", search.as_encoded_bytes());
            environment.set(OwnVariable::ServerName, listener.server_name.as_bytes());
            environment.set(OwnVariable::ServerPort, listener.server_port.as_bytes());
            environment.set(OwnVariable::QueryString, b"");
            environment.set_scheme(listener.tls.is_some());
            environment
        };
        let application = &settings.application;
        let configured = application.environment.iter();
        let configured = configured.filter(|(name, _)| !application.removed_variables.contains(name));
        Base {
            listeners: listeners.iter().map(of_listener).collect(),
            configured: configured.map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes())).collect(),
            unset: application.removed_variables.iter().chain(unset).map(|name| name.clone().into_bytes()).collect(),
            ignores_script_name: application.ignore_script_name,
        }
    }

    /// The value of PATH, in which programs are found.
    pub fn search(settings: &Settings) -> Vec<u8> {
        let configured = settings.application.environment.iter().rfind(|(name, _)| name == "PATH");
        match configured {
            Some((_, path)) => path.clone().into_bytes(),
            None => std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()).into_encoded_bytes(),
        }
    }

    /// The variables of a request, before its program is known.
    pub fn of_request<Memo>(&self, request: &mut Request<'_, Memo>) -> Environment {
        let mut environment = self.listeners.get(request.listener).or(self.listeners.first()).cloned().unwrap_or_default();
        let of_block = request.set_connection_variables(&mut environment);
        request.set_variables(&mut environment, of_block);
        if self.ignores_script_name {
            environment.put(b"SCRIPT_NAME", b"");
        }
        environment
    }

    /// Completes the variables of a program. SCRIPT_NAME may contain a prefix that a reverse proxy has taken from the path.
    pub fn complete(&self, environment: &mut Environment, script: &ScriptFacts<'_>) {
        let prefix = environment.get(b"SCRIPT_NAME").unwrap_or_default().to_vec();
        environment.put(b"SCRIPT_NAME", &[prefix.strip_suffix(b"/").unwrap_or(&prefix), script.name].concat());
        // A reverse proxy's SCRIPT_FILENAME would be a file that was not checked here.
        environment.put(b"SCRIPT_FILENAME", script.file);
        if environment.get(b"DOCUMENT_ROOT").is_none_or(<[u8]>::is_empty) {
            environment.put(b"DOCUMENT_ROOT", script.root);
        }
        if script.path_info.is_empty() {
            environment.take(b"PATH_INFO");
            environment.take(b"PATH_TRANSLATED");
        } else {
            environment.put(b"PATH_INFO", script.path_info);
            let root = environment.get(b"DOCUMENT_ROOT").unwrap_or_default();
            let translated = [root, script.path_info].concat();
            environment.put(b"PATH_TRANSLATED", &translated);
        }
        let is_user = |user: &[u8]| !user.is_empty();
        let is_basic = |field: &[u8]| field.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "));
        if environment.get(b"REMOTE_USER").is_some_and(is_user)
            && environment.get(b"AUTH_TYPE").is_none()
            && environment.get(b"HTTP_AUTHORIZATION").is_some_and(is_basic)
        {
            environment.put(b"AUTH_TYPE", b"Basic");
        }
        for (name, value) in &self.configured {
            environment.put(name, value);
        }
        for name in &self.unset {
            environment.take(name);
        }
    }
}

impl Environment {
    fn position(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| entry.get(name.len()) == Some(&b'=') && entry.starts_with(name))
    }

    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.position(name).map(|index| &self.entries[index][name.len() + 1..])
    }

    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        let entry = [name, b"=", value].concat();
        match self.position(name) {
            Some(index) => self.entries[index] = entry,
            None => self.entries.push(entry),
        }
    }

    fn take(&mut self, name: &[u8]) {
        if let Some(index) = self.position(name) {
            self.entries.remove(index);
        }
    }

    /// The body's length, which the request did not say.
    pub fn set_length(&mut self, length: u64) {
        self.put(b"CONTENT_LENGTH", length.to_string().as_bytes());
    }

    /// The request has given the length of its body.
    pub fn has_length(&self) -> bool {
        self.get(b"CONTENT_LENGTH").is_some_and(|length| !length.is_empty())
    }

    /// The variables as exec needs them. A value with a NUL byte would be another one, so the variable is left out.
    pub fn into_variables(self) -> Vec<CString> {
        self.entries.into_iter().filter_map(|entry| CString::new(entry).ok()).collect()
    }
}

/// Whether a request may set a variable of this name.
fn may_set(name: &[u8]) -> bool {
    let is_hidden = INTERNAL.iter().chain(&CODE_BEGINNINGS).any(|beginning| name.starts_with(beginning));
    // HTTP_PROXY would be the machine's proxy to HTTP libraries (CVE-2016-5385).
    !is_hidden && !CODE_NAMES.contains(&name) && name != b"HTTP_PROXY" && !name.is_empty() && !name.contains(&b'=')
}

impl Variables for Environment {
    fn set(&mut self, name: OwnVariable, value: &[u8]) {
        match name {
            // It is for libraries of Python.
            OwnVariable::RawUri => {}
            name => self.put(name.name().as_bytes(), value),
        }
    }

    fn set_named(&mut self, name: &[u8], value: &[u8]) {
        if may_set(name) {
            self.put(name, value);
        }
    }

    fn add_field(&mut self, name: &[u8], value: &[u8], joint: &'static [u8]) {
        let upper = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        let mut own = Vec::with_capacity(5 + name.len());
        own.extend_from_slice(b"HTTP_");
        own.extend(name.iter().map(upper));
        // RFC 3875 section 4.1.18: they have variables of their own.
        let own = if matches!(&own[5..], b"CONTENT_TYPE" | b"CONTENT_LENGTH") { &own[5..] } else { &own[..] };
        if !may_set(own) {
            return;
        }
        match self.position(own) {
            Some(index) => {
                let entry = &mut self.entries[index];
                entry.extend_from_slice(joint);
                entry.extend_from_slice(value);
            }
            None => self.put(own, value),
        }
    }

    fn remove(&mut self, name: OwnVariable) {
        self.take(name.name().as_bytes());
    }

    fn set_scheme(&mut self, is_https: bool) {
        self.put(b"REQUEST_SCHEME", if is_https { b"https" } else { b"http" });
        match is_https {
            true => self.put(b"HTTPS", b"on"),
            false => self.take(b"HTTPS"),
        }
    }

    fn set_identifier(&mut self, _id: &[u8]) {
        // HTTP_X_REQUEST_ID has it too.
    }

    fn length_of(&self, name: OwnVariable) -> u32 {
        self.get(name.name().as_bytes()).map_or(0, |value| value.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_variables_and_some_never_do() {
        let mut environment = Environment::default();
        for (name, value) in [("accept", "a"), ("Accept", "b"), ("Proxy", "x"), ("content-type", "text/plain"), ("X-A", "")] {
            environment.add_field(name.as_bytes(), value.as_bytes(), b", ");
        }
        for name in ["HTTP_PROXY", "LD_PRELOAD", "PATH", "UWSGI_SCHEME", "BOLIDE_X", "BASH_ENV", "", "A=B"] {
            environment.set_named(name.as_bytes(), b"x");
        }
        environment.set_named(b"GIT_PROJECT_ROOT", b"/srv/git");
        environment.set_named(b"NUL", b"a\0b");
        let variables: Vec<String> =
            environment.into_variables().into_iter().map(|variable| variable.to_string_lossy().into_owned()).collect();
        assert_eq!(variables, ["HTTP_ACCEPT=a, b", "CONTENT_TYPE=text/plain", "HTTP_X_A=", "GIT_PROJECT_ROOT=/srv/git"]);
    }

    #[test]
    fn a_program_gets_its_names_and_the_configuration_has_the_last_word() {
        let base = Base {
            listeners: Vec::new(),
            configured: vec![(b"COLOR".to_vec(), b"red".to_vec())],
            unset: vec![b"SERVER_SOFTWARE".to_vec()],
            ignores_script_name: false,
        };
        let mut environment = Environment::default();
        environment.put(b"SERVER_SOFTWARE", b"x");
        environment.put(b"SCRIPT_NAME", b"/prefix/");
        environment.put(b"SCRIPT_FILENAME", b"/etc/passwd");
        environment.put(b"PATH_INFO", b"/app.cgi/a");
        let script = ScriptFacts { file: b"/srv/app.cgi", name: b"/app.cgi", path_info: b"/a", root: b"/srv" };
        base.complete(&mut environment, &script);
        for (name, value) in [
            ("SCRIPT_NAME", "/prefix/app.cgi"),
            ("SCRIPT_FILENAME", "/srv/app.cgi"),
            ("PATH_INFO", "/a"),
            ("PATH_TRANSLATED", "/srv/a"),
            ("DOCUMENT_ROOT", "/srv"),
            ("COLOR", "red"),
        ] {
            assert_eq!(environment.get(name.as_bytes()), Some(value.as_bytes()), "{name}");
        }
        assert_eq!(environment.get(b"SERVER_SOFTWARE"), None);
        base.complete(&mut environment, &ScriptFacts { path_info: b"", ..script });
        assert_eq!((environment.get(b"PATH_INFO"), environment.get(b"PATH_TRANSLATED")), (None, None));
    }
}
