//! TLS to an engine: the certificates that are trusted, and a session over a channel.
//!
//! The counterpart of what the room `tls` has for clients, with the same cryptography.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bolide_tls::{read_authorities, system_authorities};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::channel::Channel;

pub type SecureChannel = StreamOwned<ClientConnection, Channel>;

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
    let path = authority.map(Path::to_owned).or_else(system_authorities);
    read_authorities(&path.ok_or_else(|| io::Error::other("no file of trusted certificates; write ?ca=FILE"))?)
}
