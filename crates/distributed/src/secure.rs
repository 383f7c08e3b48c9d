//! TLS to an engine: the certificates that are trusted, and a session over a channel.
//!
//! The room `tls` serves clients and knows no servers' certificates, so this is its counterpart. The cryptography is the same.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::channel::Channel;

pub type SecureChannel = StreamOwned<ClientConnection, Channel>;

/// Bytes of a file of certificates.
const AUTHORITIES_BYTES_MOST: u64 = 4 << 20;

/// Where systems keep the certificates that they trust. The variable SSL_CERT_FILE names another file, as in OpenSSL.
const SYSTEM_AUTHORITIES: [&str; 4] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"];

/// The handshake runs with the first bytes that are written.
pub fn secure(channel: Channel, host: &str, authority: Option<&Path>) -> io::Result<SecureChannel> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(authorities(authority)?)
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(session, channel))
}

fn authorities(authority: Option<&Path>) -> io::Result<RootCertStore> {
    let path = match authority {
        Some(path) => path.to_owned(),
        None => system_authorities().ok_or_else(|| io::Error::other("no file of trusted certificates; write ?ca=FILE"))?,
    };
    let told = |error: String| io::Error::other(format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(|error| told(error.to_string()))?;
    file.take(AUTHORITIES_BYTES_MOST).read_to_end(&mut bytes).map_err(|error| told(error.to_string()))?;
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok);
    match store.add_parsable_certificates(found) {
        (0, _) => Err(told("it has no certificate".to_owned())),
        _ => Ok(store),
    }
}

fn system_authorities() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named.into_iter().chain(SYSTEM_AUTHORITIES.iter().map(PathBuf::from)).find(|path| path.is_file())
}
