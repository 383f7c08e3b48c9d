//! TLS of a listener, as every process sees it. The options room reads certificates and keys while it has the right to, and hands on their
//! bytes: no process opens their files afterwards. Plain data; nobody changes it.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a listener speaks TLS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tls {
    /// Never empty. The first one is shown to clients that name no host, or one that no other certificate is for.
    pub certificates: Vec<Certificate>,
    pub least_version: TlsVersion,
    /// Cipher suites by the names that rustls has for them, in the order of preference; empty: its own choice.
    pub cipher_suites: Vec<String>,
    pub client_auth: ClientAuth,
    /// PEM of the authorities whose client certificates are taken; empty where none are asked for.
    pub client_authorities: Vec<u8>,
    /// The file that they were read from.
    pub client_authorities_file: Option<PathBuf>,
    /// `ssl-verify-depth`: certificates that may stand between a client's and an authority's.
    pub verify_depth: u32,
    /// Seconds for which a session can be resumed (`ssl-sessions-timeout`); 0: never.
    pub session_lifetime_s: u32,
    /// `https-export-cert`: the application sees the client's certificate itself, and not only its names.
    pub exports_certificate: bool,
    /// `sni-dir`: the folder of further certificates, which a reload looks through again.
    pub folder: Option<PathBuf>,
    /// `tls-keylog`: secrets of all sessions are written here, for who debugs the wire.
    pub key_log: Option<PathBuf>,
}

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Hosts that it is shown for, as `example.com` or `*.example.com`; empty: those that it names itself.
    pub names: Vec<String>,
    /// PEM: the certificate, and those that lead to its authority.
    pub chain: Vec<u8>,
    /// PEM.
    pub key: PrivateKey,
    /// DER of an OCSP response that goes along with it.
    pub ocsp: Option<Vec<u8>>,
    /// The files that they were read from, to be read again at a reload; `None`: made by us, for development.
    pub files: Option<CertificateFiles>,
    /// Where it was asked for: `uwsgi.ini:3`.
    pub origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CertificateFiles {
    pub chain: PathBuf,
    pub key: PathBuf,
    pub ocsp: Option<PathBuf>,
}

/// A key's bytes, which no log and no dump of settings shows.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PrivateKey(pub Vec<u8>);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PrivateKey(not shown)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// Whether clients are asked for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAuth {
    Off,
    /// One without a certificate is let in, one with a wrong one is not.
    Optional,
    Required,
}

/// Where HTTP/2 is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Http2 {
    Off,
    /// With clients that choose it within TLS.
    #[default]
    Tls,
    /// Without TLS too, with those that begin with it or ask to upgrade.
    Everywhere,
}
