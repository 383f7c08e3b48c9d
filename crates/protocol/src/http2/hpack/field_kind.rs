//! Which fields of a head are more to HTTP/2 than a name and a value. Workers run it.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Regular,
    Host,
    Cookie,
    Method,
    Scheme,
    Path,
    Authority,
    /// RFC 8441 section 4.
    Protocol,
    /// No request has any other.
    OtherPseudo,
}

impl FieldKind {
    #[inline]
    pub fn of(name: &[u8]) -> FieldKind {
        match name {
            b"host" => FieldKind::Host,
            b"cookie" => FieldKind::Cookie,
            [b':', ..] => match name {
                b":method" => FieldKind::Method,
                b":scheme" => FieldKind::Scheme,
                b":path" => FieldKind::Path,
                b":authority" => FieldKind::Authority,
                b":protocol" => FieldKind::Protocol,
                _ => FieldKind::OtherPseudo,
            },
            _ => FieldKind::Regular,
        }
    }
}
