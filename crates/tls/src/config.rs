//! Converts a listener's settings for the TLS library. Each worker makes a configuration for each TLS listener; the master makes
//! one to validate the settings. If the log of TLS secrets is configured, workers write it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use bolide_contract::tls::{ClientAuth, Tls, TlsVersion};
use bolide_scoreboard::ticket_keys::TicketKeys;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CommonState, KeyLog, NoKeyLog, ServerConfig};

use crate::certificate::load;
use crate::client_certificates::verifier;
use crate::facts::TlsFacts;
use crate::provider::{provider, with_suites};
use crate::resolver::CertificatesByName;
use crate::tickets::{SealedTickets, TERMS_BYTES};

/// ALPN ids of the protocols within TLS (RFC 7301 section 6).
pub const ALPN_HTTP1: &[u8] = b"http/1.1";
pub const ALPN_HTTP1_0: &[u8] = b"http/1.0";
pub const ALPN_HTTP2: &[u8] = b"h2";

/// TLS of one listener.
#[derive(Debug)]
pub struct ListenerTls {
    pub config: Arc<ServerConfig>,
    certificates: Arc<CertificatesByName>,
    exports_certificate: bool,
}

impl ListenerTls {
    /// `protocols` are those that clients may choose, the preferred one first. Without `ticket_keys` no session is resumed.
    /// `complain` receives problems that do not prevent startup.
    ///
    /// # Errors
    /// A mistake in the settings, and its place.
    pub fn new(
        tls: &Tls,
        protocols: &[&[u8]],
        ticket_keys: Option<TicketKeys>,
        complain: &mut dyn FnMut(&str),
    ) -> Result<ListenerTls, String> {
        let load_one = |certificate| load(certificate).map_err(|error| format!("{}: {error}", certificate.origin));
        let certificates = tls.certificates.iter().map(load_one).collect::<Result<Vec<_>, String>>()?;
        if certificates.is_empty() {
            return Err("a socket that speaks TLS needs a certificate".into());
        }
        let certificates = Arc::new(CertificatesByName::new(certificates));
        let provider = if tls.cipher_suites.is_empty() { Arc::clone(provider()) } else { with_suites(&tls.cipher_suites)? };
        let versions = if tls.least_version == TlsVersion::Tls13 { &[&TLS13][..] } else { &[&TLS13, &TLS12][..] };
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
        let builder = builder.map_err(|error| format!("the cipher suites do not match the versions of TLS: {error}"))?;
        let verifier = verifier(tls)?.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
        let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::clone(&certificates) as _);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // A configured order of cipher suites takes precedence over the client's.
        config.ignore_client_order = !tls.cipher_suites.is_empty();
        // Early data can be replayed by an attacker (RFC 8446 section 8).
        config.max_early_data_size = 0;
        // Sessions are stored in their tickets only.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if let Some(keys) = ticket_keys.filter(|_| tls.session_lifetime_s > 0) {
            config.ticketer = Arc::new(SealedTickets { keys, lifetime_s: tls.session_lifetime_s, terms: terms_of(tls) });
            // Two, like other servers: one for each of the connections that a browser opens next.
            config.send_tls13_tickets = 2;
        }
        config.key_log = match tls.key_log.as_deref().map(|path| (path, SecretsLog::open(path))) {
            Some((_, Ok(log))) => Arc::new(log),
            Some((path, Err(error))) => {
                complain(&format!("secrets can't be written to {}: {error} (tls-keylog)", path.display()));
                Arc::new(NoKeyLog {})
            }
            None => Arc::new(NoKeyLog {}),
        };
        Ok(ListenerTls { config: Arc::new(config), certificates, exports_certificate: tls.exports_certificate })
    }

    /// Returns the facts for applications about a connection whose handshake is complete.
    pub fn facts(&self, state: &CommonState, server_name: Option<&str>) -> TlsFacts {
        let certificate = self.certificates.find(server_name).map(|certificate| Arc::clone(&certificate.pem));
        TlsFacts::new(state, server_name, certificate, self.exports_certificate)
    }
}

/// Returns a digest of the listener's requirements for clients. A session's ticket is only valid with the same requirements: at
/// another listener, or after a reload that adds requirements, its client must present its certificate again.
fn terms_of(tls: &Tls) -> [u8; TERMS_BYTES] {
    let mut context = Context::new(&SHA256);
    context.update(match tls.client_auth {
        ClientAuth::Off => b"off",
        ClientAuth::Optional => b"optional",
        ClientAuth::Required => b"required",
    });
    context.update(&tls.verify_depth.to_be_bytes());
    context.update(&tls.client_authorities);
    let mut terms = [0; TERMS_BYTES];
    terms.copy_from_slice(context.finish().as_ref());
    terms
}

/// The log of TLS secrets (`tls-keylog`), in the format of Wireshark (`SSLKEYLOGFILE`).
#[derive(Debug)]
struct SecretsLog {
    file: File,
}

impl SecretsLog {
    /// Readable by its owner only: the secrets decrypt the sessions.
    fn open(path: &Path) -> io::Result<SecretsLog> {
        Ok(SecretsLog { file: OpenOptions::new().append(true).create(true).mode(0o600).open(path)? })
    }
}

impl KeyLog for SecretsLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        push_hexadecimal(&mut line, client_random);
        line.push(' ');
        push_hexadecimal(&mut line, secret);
        line.push('\n');
        // One write for each line, so lines of several workers do not mix. A full disk loses lines, but no connection.
        let _ = (&self.file).write_all(line.as_bytes());
    }
}

fn push_hexadecimal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
}
