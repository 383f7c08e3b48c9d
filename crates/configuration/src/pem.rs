//! PEM (RFC 7468): finds the parts of a file by their labels. It decodes none of them. Pure functions over bytes.

/// A part of a file, from its `-----BEGIN …-----` to its `-----END …-----`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// `CERTIFICATE`, `PRIVATE KEY`.
    pub label: &'a [u8],
    /// The whole part, including both of these lines.
    pub bytes: &'a [u8],
}

impl Part<'_> {
    pub fn is_certificate(&self) -> bool {
        matches!(self.label, b"CERTIFICATE" | b"X509 CERTIFICATE" | b"TRUSTED CERTIFICATE")
    }

    pub fn is_key(&self) -> bool {
        self.label.ends_with(b"PRIVATE KEY")
    }

    /// Whether it is protected with a password: the form of PKCS #8 (RFC 5958 section 3), or that of RFC 1421 section 4.6.1.1.
    pub fn is_encrypted(&self) -> bool {
        self.label == b"ENCRYPTED PRIVATE KEY" || find(self.bytes, b"Proc-Type: 4,ENCRYPTED").is_some()
    }
}

/// Returns the parts of a file, in their order. Text between them is a comment; a part without an end does not count.
pub fn parts(mut bytes: &[u8]) -> Vec<Part<'_>> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    const DASHES: &[u8] = b"-----";
    let mut found = Vec::new();
    while let Some(start) = find(bytes, BEGIN) {
        bytes = &bytes[start..];
        let Some(length) = find(&bytes[BEGIN.len()..], DASHES) else { break };
        let label = &bytes[BEGIN.len()..BEGIN.len() + length];
        let end_line = [b"-----END ", label, DASHES].concat();
        let Some(end) = find(bytes, &end_line) else { break };
        let end = end + end_line.len();
        found.push(Part { label, bytes: &bytes[..end] });
        bytes = &bytes[end..];
    }
    found
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<String> {
        parts(text.as_bytes()).iter().map(|part| String::from_utf8_lossy(part.label).into_owned()).collect()
    }

    #[test]
    fn test_parts_are_found_between_comments_and_only_whole() {
        let one = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN EC PRIVATE KEY-----\nBBBB\n-----END EC PRIVATE KEY-----\n";
        assert_eq!(labels(&format!("subject=x\n{one}\n# issuer\n{key}{one}")), ["CERTIFICATE", "EC PRIVATE KEY", "CERTIFICATE"]);
        for end in 0..one.len() - 1 {
            assert!(labels(&one[..end]).is_empty(), "{end} bytes are not a whole part");
        }
        assert!(labels("-----BEGIN CERTIFICATE-----\nAAAA\n-----END PRIVATE KEY-----").is_empty());
        assert_eq!(parts(format!("x{one}").as_bytes())[0].bytes, one.trim_end().as_bytes());
    }

    #[test]
    fn test_both_forms_of_an_encrypted_key_are_seen() {
        for (text, is_encrypted) in [
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nA\n-----END ENCRYPTED PRIVATE KEY-----", true),
            ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nA\n-----END RSA PRIVATE KEY-----", true),
            ("-----BEGIN PRIVATE KEY-----\nA\n-----END PRIVATE KEY-----", false),
        ] {
            let found = parts(text.as_bytes());
            assert!(found[0].is_key() && found[0].is_encrypted() == is_encrypted, "{text}");
        }
    }
}
