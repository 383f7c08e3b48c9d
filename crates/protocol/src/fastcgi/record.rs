//! One FastCGI record: its head of eight bytes and the numbers in it (sections 3.3 and 8 of the specification).
//!
//! Must not know earlier records. Workers run it.

use crate::fault::Fault;

/// Bytes of a record before its content.
pub const HEAD_BYTES: usize = 8;

/// Maximum size of content in one record, in bytes: the length has two bytes. A multiple of eight keeps the following records
/// aligned without padding, as section 3.3 recommends.
pub const MAX_CONTENT_BYTES: usize = 65_528;

/// FCGI_VERSION_1
pub(super) const VERSION: u8 = 1;

/// The record types that a responder receives or sends (section 8). Others belong to other roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    BeginRequest = 1,
    AbortRequest = 2,
    EndRequest = 3,
    Parameters = 4,
    Stdin = 5,
    Stdout = 6,
    GetValues = 9,
    GetValuesResult = 10,
    Unknown = 11,
}

/// A parsed record head.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHead {
    /// `None` for a type that is not sent to responders.
    pub kind: Option<Type>,
    pub type_byte: u8,
    /// 0: a management record, which belongs to no request.
    pub id: u16,
    pub content_bytes: u16,
    pub padding_bytes: u8,
}

impl RecordHead {
    pub const NONE: RecordHead = RecordHead { kind: None, type_byte: 0, id: 0, content_bytes: 0, padding_bytes: 0 };

    /// Returns `None` for an unknown version.
    pub fn read(bytes: [u8; HEAD_BYTES]) -> Option<RecordHead> {
        let [VERSION, type_byte, id_high, id_low, content_high, content_low, padding_bytes, _] = bytes else { return None };
        let kind = match type_byte {
            1 => Some(Type::BeginRequest),
            2 => Some(Type::AbortRequest),
            4 => Some(Type::Parameters),
            5 => Some(Type::Stdin),
            9 => Some(Type::GetValues),
            _ => None,
        };
        let (id, content_bytes) = (u16::from_be_bytes([id_high, id_low]), u16::from_be_bytes([content_high, content_low]));
        Some(RecordHead { kind, type_byte, id, content_bytes, padding_bytes })
    }

    pub fn written(kind: Type, id: u16, content_bytes: u16, padding_bytes: u8) -> [u8; HEAD_BYTES] {
        let ([id_high, id_low], [content_high, content_low]) = (id.to_be_bytes(), content_bytes.to_be_bytes());
        [VERSION, kind as u8, id_high, id_low, content_high, content_low, padding_bytes, 0]
    }
}

/// Names the data that came instead of a record, as far as its first bytes tell.
#[cold]
pub(super) fn not_a_record(start: &[u8; HEAD_BYTES]) -> Fault {
    match start {
        [0x16, ..] => Fault::mixup("The client speaks TLS (https://), but this socket speaks FastCGI."),
        [first, second, third, ..] if [first, second, third].iter().all(|byte| byte.is_ascii_uppercase()) => Fault::mixup(
            "A FastCGI socket received HTTP: write `http-socket` instead of `fastcgi-socket`, or `fastcgi_pass` instead of \
                nginx's `proxy_pass`.",
        ),
        _ => Fault::bad_request("The FastCGI record does not have version 1."),
    }
}

/// The content of FCGI_BEGIN_REQUEST (section 5.1).
pub(super) struct Begin {
    pub role: Role,
    /// FCGI_KEEP_CONN: the application leaves the connection open after the answer.
    pub keep_connection: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Responder,
    /// An authorizer, a filter, or an undefined role.
    Other,
}

impl Begin {
    pub const BYTES: usize = 8;

    /// `bytes` must be eight; otherwise the role is unknown.
    pub fn read(bytes: &[u8]) -> Begin {
        let [role_high, role_low, flags, ..] = *bytes else {
            return Begin { role: Role::Other, keep_connection: false };
        };
        let role = if u16::from_be_bytes([role_high, role_low]) == 1 { Role::Responder } else { Role::Other };
        Begin { role, keep_connection: flags & 1 == 1 }
    }
}
