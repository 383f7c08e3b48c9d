//! Names of subjects and issuers as text: in the format of RFC 4514, and in OpenSSL's older one-line format, which uWSGI passes
//! on.
//!
//! Workers run it, once for each connection whose client has a certificate.

use std::fmt::Write;

use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Attribute types that have a short name (RFC 4514 section 3, and OpenSSL's).
const SHORT_NAMES: [(&str, &str); 15] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// `CN=alice,O=Example,C=DE`: the last part of the name first (RFC 4514 section 2.1).
pub fn rfc4514(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = name
        .iter_rdn()
        .map(|part| {
            let attributes: Vec<String> = part.iter().map(|attribute| attribute_text(attribute)).collect();
            attributes.join("+")
        })
        .collect();
    parts.reverse();
    parts.join(",")
}

/// `/C=DE/O=Example/CN=alice`: `HTTPS_DN` of uWSGI. Bytes that are not printable ASCII are written as `\xC3`, as OpenSSL does.
pub fn oneline(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    for attribute in name.iter_attributes() {
        let (kind, value) = parts_of(attribute);
        // Writing into a String can't fail.
        let _ = write!(text, "/{kind}=");
        for byte in value {
            let _ = match byte {
                b' '..=b'~' => write!(text, "{}", char::from(byte)),
                _ => write!(text, "\\x{byte:02X}"),
            };
        }
    }
    text
}

fn attribute_text(attribute: &AttributeTypeAndValue<'_>) -> String {
    let (kind, value) = parts_of(attribute);
    let Ok(value) = String::from_utf8(value) else {
        // Section 2.4: a value without a text form is written as the bytes of its encoding.
        let digits: String = attribute.attr_value().data.iter().map(|byte| format!("{byte:02x}")).collect();
        return format!("{kind}=#{digits}");
    };
    format!("{kind}={}", escaped(&value))
}

/// Section 2.4: the separators, a `#` or space at startup and a space at the end are escaped, and control characters as
/// hexadecimal digits.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (place, character) in value.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', character]),
            ' ' if place == 0 || place == last => text.push_str("\\ "),
            '#' if place == 0 => text.push_str("\\#"),
            control if control.is_ascii_control() => {
                let _ = write!(text, "\\{:02X}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text
}

/// Returns the type's name and the bytes of the value: UTF-8 for every string type.
fn parts_of(attribute: &AttributeTypeAndValue<'_>) -> (String, Vec<u8>) {
    let number = attribute.attr_type().to_id_string();
    let kind = SHORT_NAMES.iter().find(|(known, _)| *known == number).map_or(number, |(_, name)| (*name).to_owned());
    let value = match attribute.as_str() {
        Ok(value) => value.as_bytes().to_vec(),
        Err(_) => attribute.as_slice().to_vec(),
    };
    (kind, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::FromDer;

    /// C=DE, O="Example, Inc. ", CN="#é".
    const NAME: &[u8] =
        b"\x30\x32\x31\x0b\x30\x09\x06\x03\x55\x04\x06\x13\x02DE\x31\x15\x30\x13\x06\x03\x55\x04\x0a\x0c\x0cExample, I. \
        \x31\x0c\x30\x0a\x06\x03\x55\x04\x03\x0c\x03#\xc3\xa9";

    #[test]
    fn a_name_is_written_in_both_ways() {
        let (_, name) = X509Name::from_der(NAME).expect("a name");
        assert_eq!(rfc4514(&name), "CN=\\#é,O=Example\\, I.\\ ,C=DE");
        assert_eq!(oneline(&name), "/C=DE/O=Example, I. /CN=#\\xC3\\xA9");
    }
}
