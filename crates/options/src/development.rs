//! A certificate for development: created in memory when an instance starts, served by every address with `auto`, and discarded
//! with the instance. Runs in the process that reads the configuration, and only if that process goes on to serve.

use std::fmt::Write;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::known_files::KnownFiles;
use bolide_contract::settings::{Listener, Settings};
use bolide_contract::tls::{Certificate, PrivateKey};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

/// Creates the certificate that addresses with `auto` need, if there are any. All of them, every worker and every reload use the
/// same one.
///
/// # Errors
/// No certificate can be created: there are no random numbers.
pub fn complete(settings: &mut Settings, host_name: &str, known: &KnownFiles) -> Result<Option<Diagnostic>, Diagnostic> {
    if let Some(known) = known.development() {
        for certificate in settings.listeners.iter_mut().filter_map(wanted_mut) {
            (certificate.chain, certificate.key) = (known.chain.clone(), known.key.clone());
        }
    }
    let mut origin = None;
    for listener in settings.listeners.iter().filter(|listener| wanted(listener).is_some()) {
        origin.get_or_insert_with(|| listener.origin.clone());
    }
    let Some(origin) = origin else { return Ok(None) };
    let location = Location::file(&origin, 0);
    let names = names(host_name);
    let made = make(&names)
        .map_err(|error| Diagnostic::error(Some(&location), format!("no certificate for development can be created: {error}")))?;
    for certificate in settings.listeners.iter_mut().filter_map(wanted_mut) {
        certificate.chain = made.chain.clone().into_bytes();
        certificate.key = PrivateKey(made.key.clone().into_bytes());
    }
    let message = format!(
        "the certificate for {} was created for this run, for development only; SHA-256 fingerprint {}",
        names.join(", "),
        made.fingerprint
    );
    Ok(Some(Diagnostic::note(Some(&location), message).advise("browsers ask before they accept it, and curl needs `--insecure`")))
}

/// The slot that `resolve` has left for the certificate: one without files and without bytes.
fn wanted(listener: &Listener) -> Option<&Certificate> {
    listener.tls.as_ref()?.certificates.first().filter(|first| first.files.is_none() && first.chain.is_empty())
}

fn wanted_mut(listener: &mut Listener) -> Option<&mut Certificate> {
    listener.tls.as_mut()?.certificates.first_mut().filter(|first| first.files.is_none() && first.chain.is_empty())
}

fn names(host_name: &str) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    if !host_name.is_empty() && host_name != "localhost" && is_name(host_name) {
        names.push(host_name.to_owned());
    }
    names
}

struct Made {
    chain: String,
    key: String,
    fingerprint: String,
}

fn make(names: &[String]) -> Result<Made, rcgen::Error> {
    /// Clients reject certificates that are valid for longer than 398 days.
    const DAYS: i64 = 397;
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "Bolide, for development");
    let today = time::OffsetDateTime::now_utc();
    parameters.not_before = today - time::Duration::DAY;
    parameters.not_after = today + time::Duration::days(DAYS - 1);
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = parameters.self_signed(&key)?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate.der());
    let mut fingerprint = String::new();
    for byte in digest.as_ref() {
        // Writing to a String can't fail.
        let _ = write!(fingerprint, "{}{byte:02X}", if fingerprint.is_empty() { "" } else { ":" });
    }
    Ok(Made { chain: certificate.pem(), key: key.serialize_pem(), fingerprint })
}
