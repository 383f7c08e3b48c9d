//! TLS settings of a listener, as every process sees them. Plain data: the options room reads certificates and keys while it has
//! the privileges, and passes on their bytes. No process opens these files afterwards.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The TLS configuration of a listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tls {
    /// Never empty. The first one is used for clients without a server name, or with one that no other certificate matches.
    pub certificates: Vec<Certificate>,
    pub least_version: TlsVersion,
    /// Cipher suites by their names in rustls, in the order of preference; empty: the default of rustls.
    pub cipher_suites: Vec<String>,
    pub client_auth: ClientAuth,
    /// PEM of the authorities whose client certificates are accepted; empty if none are requested.
    pub client_authorities: Vec<u8>,
    /// The file that the authorities were read from.
    pub client_authorities_file: Option<PathBuf>,
    /// `ssl-verify-depth`: maximum number of certificates between a client's and an authority's.
    pub verify_depth: u32,
    /// Seconds for which a session can be resumed (`ssl-sessions-timeout`); 0: never.
    pub session_lifetime_s: u32,
    /// `https-export-cert`: the application gets the client's certificate itself, in addition to its names.
    pub exports_certificate: bool,
    /// `sni-dir`: a directory of more certificates, which a reload reads again.
    pub directory: Option<PathBuf>,
    /// `tls-keylog`: the secrets of all sessions are written here, for debugging with a packet analyser.
    pub key_log: Option<PathBuf>,
}

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Hosts that use it, such as `example.com` or `*.example.com`; empty: the names in the certificate.
    pub names: Vec<String>,
    /// PEM: the certificate and its intermediates.
    pub chain: Vec<u8>,
    /// PEM.
    pub key: PrivateKey,
    /// DER of the OCSP response to staple.
    pub ocsp: Option<Vec<u8>>,
    /// The files that they were read from, which a reload reads again; `None`: generated for development.
    pub files: Option<CertificateFiles>,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CertificateFiles {
    pub chain: PathBuf,
    pub key: PathBuf,
    pub ocsp: Option<PathBuf>,
}

/// The bytes of a key, which are never logged or dumped with the settings.
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
    /// A client without a certificate is accepted, one with an invalid certificate is not.
    Optional,
    Required,
}

/// Where HTTP/2 is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Http2 {
    Off,
    /// For clients that negotiate it in TLS.
    #[default]
    Tls,
    /// Also without TLS, for clients that begin with it or ask to upgrade.
    Everywhere,
}
