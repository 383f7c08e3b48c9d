//! A certificate with its key, parsed and verified to match.
//!
//! Must not know files: errors say what is wrong, and the reader of the configuration adds the path. The master runs it at
//! startup, workers at theirs.

use std::fmt::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bolide_contract::tls::Certificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::provider::provider;

/// Characters of a PEM line (RFC 7468 section 2).
const PEM_LINE_CHARACTERS: usize = 64;

/// The beginning of the error about a type of key that this server's TLS can't sign with.
pub const UNSUPPORTED_KEY: &str = "this server's TLS library can't sign with keys of the type ";
/// Types of keys that OpenSSL makes, by their object identifiers (RFC 8410, RFC 8017).
const UNSIGNED_KEYS: [(&str, &str); 3] =
    [("1.3.101.113", "Ed448"), ("1.2.840.113549.1.1.10", "RSA-PSS"), ("1.2.840.10040.4.1", "DSA")];

/// A certificate that can be sent to clients.
#[derive(Debug)]
pub struct LoadedCertificate {
    pub key: Arc<CertifiedKey>,
    /// Hosts that it is sent for, in lower case.
    pub names: Vec<String>,
    /// Its validity, in seconds since 1970.
    pub not_before_s: i64,
    pub not_after_s: i64,
    /// The certificate alone, for applications.
    pub pem: Arc<str>,
}

/// Parses a certificate and its key.
///
/// # Errors
/// The mistake, as the end of a sentence that begins with the file.
pub fn load(certificate: &Certificate) -> Result<LoadedCertificate, String> {
    let chain = certificates_of(&certificate.chain)?;
    let Some(first) = chain.first() else { return Err("there is no certificate in it (-----BEGIN CERTIFICATE-----)".into()) };
    let (_, parsed) = X509Certificate::from_der(first).map_err(|error| format!("the certificate can't be read: {error}"))?;
    let names = match certificate.names.as_slice() {
        [] => names_of_parsed(&parsed),
        names => names.iter().map(|name| name.to_ascii_lowercase()).collect(),
    };
    let (not_before_s, not_after_s) = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
    let pem = Arc::from(pem_of(first));
    let key = key_of(&certificate.key.0)?;
    let public_key = parsed.public_key();
    let key = provider().key_provider.load_private_key(key).map_err(|error| {
        let kind = UNSIGNED_KEYS.iter().find(|(oid, _)| public_key.algorithm.algorithm.to_id_string() == *oid);
        kind.map_or_else(|| format!("the key can't be used: {error}"), |(_, kind)| format!("{UNSUPPORTED_KEY}{kind}"))
    })?;
    // The library would parse the whole certificate again, and accepts only version 3 of X.509. A server's own may have any
    // version: it is sent, not verified, here.
    if key.public_key().is_some_and(|own| own.as_ref() != public_key.raw) {
        return Err("the key belongs to another certificate; the server's certificate must come first in its file".to_owned());
    }
    let mut key = CertifiedKey::new(chain, key);
    key.ocsp.clone_from(&certificate.ocsp);
    Ok(LoadedCertificate { key: Arc::new(key), names, not_before_s, not_after_s, pem })
}

/// Returns the hosts that a certificate names (RFC 6125 section 6.4.4: the subject counts only if it has no alternative names).
///
/// # Errors
/// It can't be parsed.
pub fn names_of(chain: &[u8]) -> Result<Vec<String>, String> {
    let chain = certificates_of(chain)?;
    let first = chain.first().ok_or("there is no certificate in it (-----BEGIN CERTIFICATE-----)")?;
    let (_, parsed) = X509Certificate::from_der(first).map_err(|error| format!("the certificate can't be read: {error}"))?;
    Ok(names_of_parsed(&parsed))
}

/// Returns the certificates of a PEM file.
pub(crate) fn certificates_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("it is not PEM with certificates: {error}"))
}

/// Encodes a certificate as PEM.
pub(crate) fn pem_of(certificate: &[u8]) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_LINE_CHARACTERS));
        // Writing into a String can't fail.
        let _ = writeln!(text, "{line}");
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

fn key_of(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let has = |mark: &[u8]| pem.windows(mark.len()).any(|window| window == mark);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        let advice =
            "there is no prompt for a password when workers start: write the key without one (openssl pkey -in KEY -out NEW)";
        return Err(format!("the key is encrypted; {advice}"));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => "there is no private key in it (-----BEGIN PRIVATE KEY-----)".to_owned(),
        error => format!("it is not PEM with a private key: {error}"),
    })
}

fn names_of_parsed(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    if let Some(alternatives) = alternatives {
        let names = alternatives.value.general_names.iter();
        return names
            .filter_map(|name| if let GeneralName::DNSName(name) = name { Some(name.to_ascii_lowercase()) } else { None })
            .collect();
    }
    let common_names = certificate.subject().iter_common_name();
    common_names.filter_map(|name| name.as_str().ok()).map(str::to_ascii_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::tls::PrivateKey;

    fn made(name: &str) -> (Vec<u8>, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes())
    }

    fn certificate(chain: &[u8], key: &[u8]) -> Certificate {
        let (chain, key) = (chain.to_vec(), PrivateKey(key.to_vec()));
        Certificate { names: Vec::new(), chain, key, ocsp: Some(vec![0x30]), files: None, origin: "the test".into() }
    }

    #[test]
    fn a_certificate_with_its_key_is_loaded() {
        let (chain, key) = made("WWW.example");
        let loaded = load(&certificate(&chain, &key)).expect("they belong together");
        assert_eq!(loaded.names, ["www.example"]);
        assert_eq!(loaded.pem.as_bytes(), chain.as_slice().trim_ascii_end().iter().chain(b"\n").copied().collect::<Vec<_>>());
        assert_eq!(loaded.key.ocsp.as_deref(), Some(&[0x30][..]));
        assert!(loaded.not_before_s < loaded.not_after_s);
    }

    #[test]
    fn mistakes_are_named() {
        let ((chain, key), (other, other_key)) = (made("one.example"), made("other.example"));
        let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let garbled = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let cases: [(&[u8], &[u8], &str); 7] = [
            (&chain, &other_key, "another certificate"),
            (&other, &key, "another certificate"),
            (b"", &key, "no certificate"),
            (&key, &key, "no certificate"),
            (garbled, &key, "can't be read"),
            (&chain, &chain, "no private key"),
            (&chain, encrypted, "encrypted"),
        ];
        for (chain, key, wanted) in cases {
            let told = load(&certificate(chain, key)).expect_err(wanted);
            assert!(told.contains(wanted), "{told}");
        }
    }
}
