//! Writes the fields of a request as a head of HTTP/1: a request line and a header block. Workers run it.
//!
//! The checks that depend on the order of fields (RFC 9113 section 8.3) or on several of them (sections 8.2.3 and 8.3.1) are done
//! here, and those of the bytes that a field's name and value may contain (sections 8.2.1 and 8.2.2). The bytes are checked
//! afterwards, unless they equal the previous head's.

use super::error::Http2Error;
use crate::fault::{Fault, Span};
use crate::hpack::table::FieldKind;
use crate::http1::head::{Field, HeadLimits};
use crate::http1::scan::{first_below, name_class};
use crate::http1::underscores::{REFUSED, Underscores};
use crate::session::HeadParts;

/// By how many times a head may exceed its limit before the connection ends. Below that the request is answered with 431.
const MAX_SURPLUS: usize = 4;

/// Size of a field besides its bytes (RFC 9113 section 6.5.2).
const FIELD_SURPLUS_BYTES: usize = 32;

pub struct HeadText<'a> {
    pub bytes: &'a mut Vec<u8>,
    /// Spans relative to the header block.
    pub fields: &'a mut Vec<Field>,
    /// Pseudo-header fields, followed by the crumbs of cookies.
    values: &'a mut Vec<u8>,
    pub pseudo: Pseudo,
    /// Bytes of the request line, once it is written.
    pub line_bytes: Option<usize>,
    cookies: Option<usize>,
    bytes_most: usize,
    count_most: usize,
    /// Size of all fields so far, including the surplus of each.
    decoded_bytes: usize,
    underscores: Underscores,
    /// A field was left out because its name has an underscore.
    pub has_left_out: bool,
    /// Such fields stay until the whole head is known.
    pub keeps_underscored: bool,
    /// The request is malformed (RFC 9113 section 8.1.1).
    pub is_malformed: bool,
    pub fault: Option<Fault>,
}

/// Positions in the values.
#[derive(Debug, Default)]
pub struct Pseudo {
    pub method: Option<Span>,
    pub scheme: Option<Span>,
    pub path: Option<Span>,
    pub authority: Option<Span>,
    pub protocol: Option<Span>,
}

impl<'a> HeadText<'a> {
    /// Borrows the buffers of `parts` for a head, and the decoder's scratch space.
    pub fn new(parts: &'a mut HeadParts, limits: &HeadLimits) -> (HeadText<'a>, &'a mut Vec<u8>) {
        let HeadParts { fields, bytes, scratch, .. } = parts;
        fields.clear();
        bytes.clear();
        scratch.values.clear();
        let text = HeadText {
            bytes,
            fields,
            values: &mut scratch.values,
            pseudo: Pseudo::default(),
            line_bytes: None,
            cookies: None,
            bytes_most: limits.head_bytes.min(Span::REACH_BYTES / 8),
            count_most: limits.header_count,
            decoded_bytes: 0,
            underscores: limits.underscores,
            has_left_out: false,
            keeps_underscored: false,
            is_malformed: false,
            fault: None,
        };
        (text, &mut scratch.literal)
    }

    pub fn has_fields(&self) -> bool {
        self.decoded_bytes > 0
    }

    /// Returns the bytes of a pseudo-header field; empty if there is none.
    pub fn value_of(&self, span: Option<Span>) -> &[u8] {
        span.map_or(&[], |span| span.of(self.values))
    }

    /// Adds the next field, which is not a regular one and not written as a line yet.
    #[inline]
    pub fn field(&mut self, kind: FieldKind, name: &[u8], value: &[u8]) -> Result<(), Http2Error> {
        if !self.admits(name.len() + value.len())? {
            return Ok(());
        }
        match kind {
            FieldKind::Regular => self.write(name, value),
            FieldKind::Underscored => self.underscored(name, value),
            FieldKind::Host => self.host(value),
            FieldKind::Cookie => self.crumb(value),
            _ => self.pseudo(kind, value),
        }
        Ok(())
    }

    /// Adds a regular field as the line that it is in a head.
    #[inline]
    pub fn line(&mut self, line: &[u8], name_bytes: usize) -> Result<(), Http2Error> {
        if !self.admits(line.len())? {
            return Ok(());
        }
        let start = self.begin_line();
        self.bytes.extend_from_slice(line);
        self.note_line(start, name_bytes);
        Ok(())
    }

    /// Whether a field of this size fits.
    #[inline]
    fn admits(&mut self, bytes: usize) -> Result<bool, Http2Error> {
        self.decoded_bytes += bytes + FIELD_SURPLUS_BYTES;
        if self.decoded_bytes <= self.bytes_most && self.fields.len() < self.count_most {
            return Ok(true);
        }
        self.admits_barely(bytes)
    }

    #[cold]
    fn admits_barely(&mut self, bytes: usize) -> Result<bool, Http2Error> {
        if self.decoded_bytes > self.bytes_most.saturating_mul(MAX_SURPLUS) {
            return Err(Http2Error::calm("A request's header fields are far larger than the limit."));
        }
        let has_room = self.bytes.len() + self.values.len() + bytes <= self.bytes_most;
        if has_room && self.fields.len() < self.count_most && self.fault.is_none() {
            return Ok(true);
        }
        self.fault = Some(Fault::new(431, "The request's header fields are more or longer than the limit."));
        Ok(false)
    }

    /// Writes the bytes in front of regular fields.
    #[inline]
    fn begin_line(&mut self) -> usize {
        if self.line_bytes.is_none() {
            self.write_request_line();
        }
        self.bytes.len()
    }

    #[inline]
    fn note_line(&mut self, start: usize, name_bytes: usize) {
        let block = self.line_bytes.unwrap_or(0);
        let value = Span::between(start - block + name_bytes + 2, self.bytes.len() - block - 2);
        self.fields.push(Field { name: Span::between(start - block, start - block + name_bytes), value });
    }

    fn write(&mut self, name: &[u8], value: &[u8]) {
        let start = self.begin_line();
        for part in [name, b": ", value, b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
        self.note_line(start, name.len());
    }

    /// A field whose name has an underscore is checked and counted, but left out of the head, as in HTTP/1: in `environ` it would
    /// equal the name with a dash. It is left out before anything is remembered, so no later reader of the head sees it.
    #[cold]
    fn underscored(&mut self, name: &[u8], value: &[u8]) {
        match self.underscores {
            Underscores::Keep if name != b"script_name" => {
                self.keeps_underscored = true;
                return self.write(name, value);
            }
            Underscores::Refuse => self.fault = self.fault.or(Some(Fault::bad_request(REFUSED))),
            Underscores::Keep | Underscores::Drop => {}
        }
        self.has_left_out = true;
        self.begin_line();
        self.count_most = self.count_most.saturating_sub(1);
        self.is_malformed |= !is_good_field(name, value);
    }

    /// RFC 9113 section 8.3.1: :authority is the host, and a Host field with another value is a fault.
    fn host(&mut self, value: &[u8]) {
        match self.pseudo.authority {
            None => self.write(b"host", value),
            Some(authority) if authority.of(self.values).eq_ignore_ascii_case(value) => {}
            Some(_) => self.is_malformed = true,
        }
    }

    /// RFC 9113 section 8.2.3: crumbs of cookies are joined into one field outside of HTTP/2.
    fn crumb(&mut self, value: &[u8]) {
        if matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) {
            self.is_malformed = true;
        }
        self.begin_line();
        match self.cookies {
            None => self.cookies = Some(self.values.len()),
            Some(_) => self.values.extend_from_slice(b"; "),
        }
        self.values.extend_from_slice(value);
    }

    fn pseudo(&mut self, kind: FieldKind, value: &[u8]) {
        let place = match kind {
            FieldKind::Method => &mut self.pseudo.method,
            FieldKind::Scheme => &mut self.pseudo.scheme,
            FieldKind::Path => &mut self.pseudo.path,
            FieldKind::Authority => &mut self.pseudo.authority,
            FieldKind::Protocol => &mut self.pseudo.protocol,
            _ => {
                self.is_malformed = true;
                return;
            }
        };
        // A duplicate, or after a regular field.
        if place.is_some() || self.line_bytes.is_some() {
            self.is_malformed = true;
        } else {
            let start = self.values.len();
            *place = Some(Span::between(start, start + value.len()));
            self.values.extend_from_slice(value);
        }
    }

    fn write_request_line(&mut self) {
        let values = &*self.values;
        let of = |span: Option<Span>| span.map_or(&b""[..], |span| span.of(values));
        let target = of(self.pseudo.path.or(self.pseudo.authority));
        for part in [of(self.pseudo.method), b" ", target, b" HTTP/2.0\r\n"] {
            self.bytes.extend_from_slice(part);
        }
        self.line_bytes = Some(self.bytes.len());
        if let Some(authority) = self.pseudo.authority {
            let start = self.bytes.len();
            for part in [b"host: ", authority.of(values), b"\r\n"] {
                self.bytes.extend_from_slice(part);
            }
            self.note_line(start, b"host".len());
        }
    }

    /// Writes the rest of a head, and the line that ends it.
    pub fn finish(&mut self) {
        let start = self.begin_line();
        if let Some(crumbs) = self.cookies {
            for part in [b"cookie: ", self.values.get(crumbs..).unwrap_or_default(), b"\r\n"] {
                self.bytes.extend_from_slice(part);
            }
            self.note_line(start, b"cookie".len());
        }
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// Whether a request may have the field (RFC 9113 sections 8.2.1 and 8.2.2), whatever its name means. Names must be in lower
/// case.
#[inline]
pub(super) fn is_good_field(name: &[u8], value: &[u8]) -> bool {
    let class = name_class(name);
    class.is_token && !class.has_uppercase && is_value(value) && !is_of_connections(name, value)
}

/// Whether the bytes are valid after the colon and blank of a header block that is written from fields.
fn is_value(value: &[u8]) -> bool {
    let mut from = 0;
    while let Some(found) = first_below::<0x20>(value, from) {
        if value.get(found) != Some(&b'\t') {
            return false;
        }
        from = found + 1;
    }
    !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// Whether the field is connection-specific: here a connection carries many requests.
fn is_of_connections(name: &[u8], value: &[u8]) -> bool {
    match name.len() {
        2 => name == b"te" && !value.eq_ignore_ascii_case(b"trailers"),
        7 => name == b"upgrade",
        10 => matches!(name, b"connection" | b"keep-alive"),
        16 => name == b"proxy-connection",
        17 => name == b"transfer-encoding",
        _ => false,
    }
}
