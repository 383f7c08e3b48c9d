//! Which header fields HTTP/2 handles specially, by name. Workers run it.
//!
//! A name is classified once, when it comes as a literal. The table stores the class, so an indexed entry is treated like its
//! literal.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Regular,
    /// A regular name with an underscore: no head has it.
    Underscored,
    Host,
    Cookie,
    Method,
    Scheme,
    Path,
    Authority,
    /// RFC 8441 section 4.
    Protocol,
    /// No request has any other, nor a name with a colon within, which could be read as that of another field.
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
            _ => match memchr::memchr2(b':', b'_', name) {
                None => FieldKind::Regular,
                Some(place) if name.get(place) == Some(&b'_') => FieldKind::Underscored,
                Some(_) => FieldKind::OtherPseudo,
            },
        }
    }
}
