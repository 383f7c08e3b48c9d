//! The certificates that are trusted where Bolide is the client: of an engine, of a collector. A file, or the system's.
//!
//! It opens one file and no socket. Workers that talk to an engine run it, and the process that sends spans.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Bytes of a file of certificates.
const MAX_AUTHORITIES_BYTES: u64 = 4 << 20;

/// Where systems keep the certificates that they trust. The variable SSL_CERT_FILE names another file, as in OpenSSL.
const SYSTEM_AUTHORITIES: [&str; 4] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"];

/// Reads a file of trusted certificates (PEM).
///
/// # Errors
/// It can't be read, or does not contain a certificate; the error contains its path.
pub fn read_authorities(path: &Path) -> io::Result<RootCertStore> {
    let told = |error: String| io::Error::other(format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| told(error.to_string()))?;
    file.take(MAX_AUTHORITIES_BYTES).read_to_end(&mut bytes).map_err(|error| told(error.to_string()))?;
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok);
    match store.add_parsable_certificates(found) {
        (0, _) => Err(told("it has no certificate".to_owned())),
        _ => Ok(store),
    }
}

/// Returns the file of certificates that the system trusts, if it has one.
pub fn system_authorities() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named.into_iter().chain(SYSTEM_AUTHORITIES.iter().map(PathBuf::from)).find(|path| path.is_file())
}
