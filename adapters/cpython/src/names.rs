//! The strings that every `environ` has: made once, interned, with the names of header fields that were seen.

use std::collections::HashMap;

use pyo3::ffi;

use crate::object::{Object, latin1};

/// Names of header fields (or uwsgi variables) that are kept as ready-made keys. Clients choose names; memory must not be theirs.
const KEPT_NAMES: usize = 1024;

/// Longest name that is kept, in bytes.
const KEPT_NAME_BYTES: usize = 64;

/// Makes a struct of interned strings, each named after what it says.
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

interned! { Names {
    request_method = "REQUEST_METHOD",
    script_name = "SCRIPT_NAME",
    path_info = "PATH_INFO",
    query_string = "QUERY_STRING",
    request_uri = "REQUEST_URI",
    server_protocol = "SERVER_PROTOCOL",
    server_name = "SERVER_NAME",
    server_port = "SERVER_PORT",
    remote_addr = "REMOTE_ADDR",
    remote_port = "REMOTE_PORT",
    content_length = "CONTENT_LENGTH",
    wsgi_input = "wsgi.input",
    wsgi_url_scheme = "wsgi.url_scheme",
    uwsgi_core = "uwsgi.core",
    http = "http",
    https = "https",
    slash = "/",
    http_1_0 = "HTTP/1.0",
    http_1_1 = "HTTP/1.1",
    close = "close",
} }

interned! {
    /// The usual methods of requests.
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
    /// The method as a string; the usual ones are ready-made.
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

/// Names that clients and front servers use, as keys of `environ`. A thread has its own.
#[derive(Default)]
pub struct KnownKeys {
    header_keys: HashMap<Box<[u8]>, Object>,
    variable_keys: HashMap<Box<[u8]>, Object>,
}

impl KnownKeys {
    /// `Accept-Encoding` -> `HTTP_ACCEPT_ENCODING`; Content-Type and Content-Length have no `HTTP_` (RFC 3875 section 4.1).
    pub fn header(&mut self, name: &[u8]) -> Option<Object> {
        keep(&mut self.header_keys, name, |name| intern_bytes(&header_key(name)))
    }

    /// The name of a uwsgi variable as it is.
    pub fn variable(&mut self, name: &[u8]) -> Option<Object> {
        keep(&mut self.variable_keys, name, intern_bytes)
    }
}

fn keep(keys: &mut HashMap<Box<[u8]>, Object>, name: &[u8], make: impl Fn(&[u8]) -> Option<Object>) -> Option<Object> {
    if let Some(key) = keys.get(name) {
        return Some(key.clone());
    }
    let key = make(name)?;
    if keys.len() < KEPT_NAMES && name.len() <= KEPT_NAME_BYTES {
        keys.insert(name.into(), key.clone());
    }
    Some(key)
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
