//! The versions of HTTP that a request may have. Workers run it.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http10,
    /// HTTP/1.1, or a later minor version, which RFC 9110 section 2.5 has a server treat as the highest that it supports.
    Http11,
    Http2,
}

impl Version {
    /// SERVER_PROTOCOL.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }
}
