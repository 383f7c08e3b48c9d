//! The strings that every `environ` has, made once and interned, and a cache of names that peers choose. Worker threads run it
//! while they hold the interpreter.

use std::collections::HashMap;

use pyo3::ffi;

use crate::object::{Object, latin1};

/// Maximum number of names of header fields (or uwsgi variables) whose objects a thread keeps. Clients choose names, so their
/// memory must be bounded.
const KEPT_NAMES: usize = 1024;

/// Longest name that is kept, in bytes.
const KEPT_NAME_BYTES: usize = 64;

/// Makes a struct of interned strings, with a field for each.
macro_rules! interned {
    ($(#[$about:meta])* $name:ident { $($field:ident = $text:literal),* $(,)? }) => {
        $(#[$about])*
        pub struct $name { $(pub $field: $crate::object::Object,)* }

        impl $name {
            /// `None`: out of memory, an exception is set.
            pub fn new() -> Option<$name> {
                Some($name { $($field: $crate::names::intern($text)?,)* })
            }
        }
    };
}
pub(crate) use interned;

interned! { EnvironNames {
    request_method = "REQUEST_METHOD",
    script_name = "SCRIPT_NAME",
    path_info = "PATH_INFO",
    query_string = "QUERY_STRING",
    request_uri = "REQUEST_URI",
    raw_uri = "RAW_URI",
    server_protocol = "SERVER_PROTOCOL",
    server_name = "SERVER_NAME",
    server_port = "SERVER_PORT",
    remote_addr = "REMOTE_ADDR",
    remote_port = "REMOTE_PORT",
    content_length = "CONTENT_LENGTH",
    wsgi_input = "wsgi.input",
    wsgi_url_scheme = "wsgi.url_scheme",
    uwsgi_core = "uwsgi.core",
    uwsgi_appid = "UWSGI_APPID",
    http_host = "HTTP_HOST",
    transfer_encoding = "HTTP_TRANSFER_ENCODING",
    http = "http",
    https = "https",
    https_variable = "HTTPS",
    on = "on",
    slash = "/",
    http_1_0 = "HTTP/1.0",
    http_1_1 = "HTTP/1.1",
    http_2 = "HTTP/2.0",
    close = "close",
    gunicorn_socket = "gunicorn.socket",
    werkzeug_socket = "werkzeug.socket",
    request_id = "bolide.request_id",
    request_id_field = "HTTP_X_REQUEST_ID",
    traceparent = "HTTP_TRACEPARENT",
    tracestate = "HTTP_TRACESTATE",
    request_start = "HTTP_X_REQUEST_START",
} }

interned! {
    /// The common request methods.
    Methods {
    get = "GET",
    post = "POST",
    put = "PUT",
    head = "HEAD",
    delete = "DELETE",
    patch = "PATCH",
    options = "OPTIONS",
} }

impl Methods {
    /// Returns the method as a string; the common ones are interned.
    pub fn of(&self, method: &[u8]) -> Option<Object> {
        let known = match method {
            b"GET" => &self.get,
            b"POST" => &self.post,
            b"PUT" => &self.put,
            b"HEAD" => &self.head,
            b"DELETE" => &self.delete,
            b"PATCH" => &self.patch,
            b"OPTIONS" => &self.options,
            _ => return latin1(method),
        };
        Some(known.clone())
    }
}

/// Header fields that browsers, programs and reverse proxies send. Their keys are interned, like those in an application's code.
const USUAL_HEADERS: [&str; 60] = [
    "Accept",
    "Accept-Charset",
    "Accept-Encoding",
    "Accept-Language",
    "Access-Control-Request-Headers",
    "Access-Control-Request-Method",
    "Authorization",
    "Cache-Control",
    "CF-Connecting-IP",
    "CF-IPCountry",
    "CF-RAY",
    "CF-Visitor",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Cookie",
    "DNT",
    "Expect",
    "Forwarded",
    "From",
    "Host",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Keep-Alive",
    "Origin",
    "Pragma",
    "Priority",
    "Range",
    "Referer",
    "Sec-CH-UA",
    "Sec-CH-UA-Mobile",
    "Sec-CH-UA-Platform",
    "Sec-Fetch-Dest",
    "Sec-Fetch-Mode",
    "Sec-Fetch-Site",
    "Sec-Fetch-User",
    "Sec-GPC",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Version",
    "TE",
    "Transfer-Encoding",
    "Upgrade",
    "Upgrade-Insecure-Requests",
    "User-Agent",
    "Via",
    "X-Amzn-Trace-Id",
    "X-CSRFToken",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "X-Request-ID",
    "X-Requested-With",
];

/// Variables that nginx' `uwsgi_params` and similar configurations send.
const USUAL_VARIABLES: [&str; 18] = [
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "HTTPS",
    "PATH_INFO",
    "QUERY_STRING",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SCRIPT_NAME",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "UWSGI_SCHEME",
    "UWSGI_SCRIPT",
];

/// A cache of objects for names that peers choose. Common names stay. Of other names few are kept, and all are dropped if there
/// are too many, so that junk does not occupy memory for long.
pub struct NameCache {
    known: HashMap<Box<[u8]>, (Object, IsUsual)>,
}

type IsUsual = bool;

impl NameCache {
    fn new() -> NameCache {
        NameCache { known: HashMap::new() }
    }

    /// Returns a cache with the common header fields. `None`: out of memory, an exception is set.
    pub fn of_usual_headers(mut make: impl FnMut(&[u8]) -> Option<Object>) -> Option<NameCache> {
        let mut cache = NameCache::new();
        for name in USUAL_HEADERS {
            let object = make(name.as_bytes())?;
            // As programs write it, and in lower case, as in HTTP/2, which reverse proxies pass on.
            cache.add_usual(name.as_bytes(), object.clone());
            cache.add_usual(name.to_ascii_lowercase().as_bytes(), object);
        }
        Some(cache)
    }

    /// Adds a name that stays.
    fn add_usual(&mut self, name: &[u8], object: Object) {
        self.known.insert(name.into(), (object, true));
    }

    /// Returns the object of a name, made now if it is not cached. `None`: an exception is set.
    pub fn get_or_make(&mut self, name: &[u8], make: impl FnOnce(&[u8]) -> Option<Object>) -> Option<Object> {
        if let Some((object, _)) = self.known.get(name) {
            return Some(object.clone());
        }
        let object = make(name)?;
        if name.len() <= KEPT_NAME_BYTES {
            if self.known.len() >= KEPT_NAMES {
                self.known.retain(|_, (_, is_usual)| *is_usual);
            }
            self.known.insert(name.into(), (object.clone(), false));
        }
        Some(object)
    }
}

/// The keys of `environ` for names that clients and reverse proxies use. Each thread has its own.
///
/// Names that a peer chooses are never interned: some Pythons (3.12.0 to 3.12.6, and free-threaded ones) never free an interned
/// string.
pub struct EnvironKeys {
    header_keys: NameCache,
    variable_keys: NameCache,
}

impl EnvironKeys {
    /// `None`: out of memory, an exception is set.
    pub fn new() -> Option<EnvironKeys> {
        let mut variable_keys = NameCache::new();
        let header_keys = NameCache::of_usual_headers(|name| {
            let key = header_key(name);
            let object = intern_bytes(&key)?;
            variable_keys.add_usual(&key, object.clone());
            Some(object)
        })?;
        for name in USUAL_VARIABLES {
            variable_keys.add_usual(name.as_bytes(), intern(name)?);
        }
        Some(EnvironKeys { header_keys, variable_keys })
    }

    /// `Accept-Encoding` -> `HTTP_ACCEPT_ENCODING`; Content-Type and Content-Length have no `HTTP_` (RFC 3875 section 4.1).
    pub fn header(&mut self, name: &[u8]) -> Option<Object> {
        self.header_keys.get_or_make(name, |name| latin1(&header_key(name)))
    }

    /// Returns the name of a uwsgi variable unchanged.
    pub fn variable(&mut self, name: &[u8]) -> Option<Object> {
        self.variable_keys.get_or_make(name, latin1)
    }
}

fn header_key(name: &[u8]) -> Vec<u8> {
    let upper = name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() });
    if name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"content-length") {
        upper.collect()
    } else {
        b"HTTP_".iter().copied().chain(upper).collect()
    }
}

pub fn intern(text: &str) -> Option<Object> {
    intern_bytes(text.as_bytes())
}

fn intern_bytes(bytes: &[u8]) -> Option<Object> {
    let mut pointer = {
        let text = latin1(bytes)?;
        let pointer = text.as_ptr();
        std::mem::forget(text);
        pointer
    };
    // SAFETY: the pointer is an owned reference to a str; interning may exchange it for another owned one.
    unsafe {
        ffi::PyUnicode_InternInPlace(&mut pointer);
        Object::owned(pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::header_key;

    #[test]
    fn header_names_become_the_keys_of_cgi() {
        assert_eq!(header_key(b"Accept-Encoding"), b"HTTP_ACCEPT_ENCODING");
        assert_eq!(header_key(b"content-type"), b"CONTENT_TYPE");
        assert_eq!(header_key(b"Content-Length"), b"CONTENT_LENGTH");
        assert_eq!(header_key(b"x"), b"HTTP_X");
    }
}
