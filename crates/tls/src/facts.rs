//! Facts about a connection's TLS once its handshake is complete: for environ, scope and log. Workers collect them once for each
//! connection.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{CipherSuite, CommonState, HandshakeKind, ProtocolVersion};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificate::pem_of;
use crate::names::{oneline, rfc4514};

#[derive(Debug)]
pub struct TlsFacts {
    /// `TLSv1.3`, and its number on the wire: 0x0304.
    pub version: &'static str,
    pub version_number: u16,
    /// OpenSSL's name of the suite, its number on the wire, and the bits of its key.
    pub cipher: &'static str,
    pub cipher_number: u16,
    pub cipher_bits: u16,
    /// The host that the client sent (SNI), if any.
    pub server_name: Option<Box<str>>,
    pub is_resumed: bool,
    /// The certificate that the client was sent, in PEM.
    pub certificate: Option<Arc<str>>,
    /// The client's verified certificate.
    pub client: Option<ClientFacts>,
}

#[derive(Debug)]
pub struct ClientFacts {
    /// In the format of RFC 4514: `CN=alice,O=Example,C=DE`.
    pub subject: String,
    /// In uWSGI's format: `/C=DE/O=Example/CN=alice`.
    pub subject_oneline: String,
    pub issuer: String,
    /// Hexadecimal digits.
    pub serial: String,
    /// In PEM, the client's own first; empty unless the application gets it (`https-export-cert`).
    pub chain: Vec<String>,
}

impl TlsFacts {
    /// Collects the facts of a complete handshake.
    pub fn new(
        state: &CommonState,
        server_name: Option<&str>,
        certificate: Option<Arc<str>>,
        exports_certificate: bool,
    ) -> TlsFacts {
        let version = state.protocol_version().unwrap_or(ProtocolVersion::TLSv1_3);
        let suite = state.negotiated_cipher_suite().map_or(CipherSuite::TLS13_AES_128_GCM_SHA256, |suite| suite.suite());
        let (cipher, cipher_bits) = cipher_of(suite);
        TlsFacts {
            version: version_name(version.into()),
            version_number: version.into(),
            cipher,
            cipher_number: suite.into(),
            cipher_bits,
            server_name: server_name.map(Into::into),
            is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
            certificate,
            client: state.peer_certificates().and_then(|chain| ClientFacts::new(chain, exports_certificate)),
        }
    }
}

impl TlsFacts {
    /// Returns the variables of a request on this connection, with mod_ssl's names, and uWSGI's, which begin with `HTTPS_`.
    pub fn variables(&self) -> Vec<(&'static str, Cow<'_, str>)> {
        let mut variables: Vec<(&'static str, Cow<'_, str>)> = vec![
            ("HTTPS", "on".into()),
            ("SSL_PROTOCOL", self.version.into()),
            ("SSL_CIPHER", self.cipher.into()),
            ("SSL_CIPHER_USEKEYSIZE", self.cipher_bits.to_string().into()),
            ("SSL_SESSION_RESUMED", if self.is_resumed { "Resumed".into() } else { "Initial".into() }),
            // A connection with an invalid certificate does not get this far.
            ("SSL_CLIENT_VERIFY", if self.client.is_some() { "SUCCESS".into() } else { "NONE".into() }),
        ];
        if let Some(name) = &self.server_name {
            variables.push(("SSL_TLS_SNI", (&**name).into()));
        }
        if let Some(client) = &self.client {
            variables.push(("SSL_CLIENT_S_DN", (&client.subject).into()));
            variables.push(("SSL_CLIENT_I_DN", (&client.issuer).into()));
            variables.push(("SSL_CLIENT_M_SERIAL", (&client.serial).into()));
            variables.push(("HTTPS_DN", (&client.subject_oneline).into()));
        }
        if let Some(certificate) = self.client.as_ref().and_then(|client| client.chain.first()) {
            variables.push(("SSL_CLIENT_CERT", certificate.into()));
            variables.push(("HTTPS_CC", certificate.into()));
        }
        variables
    }
}

impl ClientFacts {
    /// `None`: there is no certificate, or one that the verifier can parse and we can't.
    fn new(chain: &[CertificateDer<'_>], exports_certificate: bool) -> Option<ClientFacts> {
        let (_, parsed) = X509Certificate::from_der(chain.first()?).ok()?;
        let mut serial = String::new();
        for byte in parsed.raw_serial() {
            // Writing into a String can't fail.
            let _ = write!(serial, "{byte:02X}");
        }
        // A number whose first bit is set is encoded with a leading zero byte (X.690 section 8.3), which is not part of it.
        let serial = serial.strip_prefix("00").filter(|rest| !rest.is_empty()).unwrap_or(&serial).to_owned();
        Some(ClientFacts {
            subject: rfc4514(parsed.subject()),
            subject_oneline: oneline(parsed.subject()),
            issuer: rfc4514(parsed.issuer()),
            serial,
            chain: if exports_certificate { chain.iter().map(|one| pem_of(one)).collect() } else { Vec::new() },
        })
    }
}

/// The name of a version with this number on the wire.
pub fn version_name(number: u16) -> &'static str {
    if number == u16::from(ProtocolVersion::TLSv1_2) { "TLSv1.2" } else { "TLSv1.3" }
}

/// The name and the bits of a suite with this number on the wire.
pub fn cipher_name(number: u16) -> (&'static str, u16) {
    cipher_of(CipherSuite::from(number))
}

/// Returns the name that OpenSSL and mod_ssl use, and the bits of the key.
fn cipher_of(suite: CipherSuite) -> (&'static str, u16) {
    match suite {
        CipherSuite::TLS13_AES_256_GCM_SHA384 => ("TLS_AES_256_GCM_SHA384", 256),
        CipherSuite::TLS13_AES_128_GCM_SHA256 => ("TLS_AES_128_GCM_SHA256", 128),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => ("TLS_CHACHA20_POLY1305_SHA256", 256),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-ECDSA-AES256-GCM-SHA384", 256),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-ECDSA-AES128-GCM-SHA256", 128),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-ECDSA-CHACHA20-POLY1305", 256),
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-RSA-AES256-GCM-SHA384", 256),
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-RSA-AES128-GCM-SHA256", 128),
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-RSA-CHACHA20-POLY1305", 256),
        _ => ("unknown", 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::provider;

    #[test]
    fn each_suite_of_the_library_has_a_name() {
        for suite in &provider().cipher_suites {
            assert_ne!(cipher_of(suite.suite()), ("unknown", 0), "{suite:?}");
        }
    }
}
