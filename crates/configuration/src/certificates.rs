//! Reads files of certificates and keys completely, and validates them, so that each fault is one clear sentence. A message
//! contains paths, and never a byte of a file. Runs in the process that reads the configuration, and in the master at each
//! reload.

use std::io::Read;
use std::path::{Path, PathBuf};

use bolide_contract::tls::{Certificate, CertificateFiles, PrivateKey};
use bolide_tls::{Inspection, UNSUPPORTED_KEY, inspect};
use time::OffsetDateTime;

use crate::bounded::open_file;
use crate::diagnostic::{Diagnostic, Location, plain_error};
use crate::pem::{Part, parts};
use crate::trust::Writer;

/// Largest file of certificates, in bytes. The bundle of all authorities that browsers trust takes a fifth of it.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Days before the expiry of a certificate from which it is reported. Automatic renewal (ACME) happens thirty days before the
/// expiry.
const EXPIRES_SOON_DAYS: i64 = 30;
const DAY_S: i64 = 24 * 3600;
/// Most certificates in a directory.
const MAX_DIRECTORY: usize = 10_000;

/// A file that can't be used: what happened, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateError {
    pub message: String,
    pub advice: String,
    /// The file is missing or not readable here; the machine that will serve may have it.
    pub is_local: bool,
}

impl CertificateError {
    /// Returns the message about a certificate that is named here.
    pub fn at(self, location: &Location) -> Diagnostic {
        let diagnostic = Diagnostic::error(Some(location), self.message).advise(self.advice);
        if self.is_local { diagnostic.local() } else { diagnostic }
    }
}

impl CertificateError {
    fn new(message: String, advice: impl Into<String>) -> CertificateError {
        CertificateError { message, advice: advice.into(), is_local: false }
    }
}

/// Reads a certificate, its key, and the files beside them. If root reads for another user, `user` is that user.
///
/// # Errors
/// One of the files is invalid.
pub fn read(
    files: &CertificateFiles,
    names: &[String],
    origin: &str,
    user: Option<&Writer>,
) -> Result<Certificate, CertificateError> {
    let chain = chain(&files.chain, user)?;
    let key = key(&files.key, &files.chain, user)?;
    let ocsp = files.ocsp.as_deref().map(|path| ocsp_response(path, user)).transpose()?;
    Ok(Certificate { names: names.to_vec(), chain, key, ocsp, files: Some(files.clone()), origin: origin.to_owned() })
}

/// A doubtful property of a usable certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub message: String,
    pub advice: &'static str,
}

/// Checks that a certificate and its key match, and returns the properties that clients may reject.
///
/// # Errors
/// The certificate and the key do not match, or can't be used.
pub fn check(certificate: &Certificate) -> Result<Vec<Remark>, CertificateError> {
    let shown = shown(certificate);
    let found = inspect(certificate).map_err(|error| {
        let key = certificate.files.as_ref().filter(|files| files.key != files.chain);
        let key = key.map(|files| format!(" (with the key {})", files.key.display())).unwrap_or_default();
        let advice = match error.starts_with(UNSUPPORTED_KEY) {
            true => "create another key: ECDSA (openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256), Ed25519 or RSA",
            false => "name a certificate and a key that belong together",
        };
        CertificateError::new(format!("the certificate {shown}{key} can't be used: {error}"), advice)
    })?;
    let mut remarks = Vec::new();
    let mut remark = |message: String, advice| remarks.push(Remark { message, advice });
    let now_s = OffsetDateTime::now_utc().unix_timestamp();
    let days = (found.not_after_s - now_s) / DAY_S;
    if found.not_after_s < now_s {
        let message = format!("the certificate {shown} expired on {}: clients refuse it", date(found.not_after_s));
        remark(message, "renew it, and reload (SIGHUP)");
    } else if found.not_before_s > now_s {
        let message = format!("the certificate {shown} is valid only from {} on: clients refuse it", date(found.not_before_s));
        remark(message, "is the clock right?");
    } else if days < EXPIRES_SOON_DAYS {
        let message = format!("the certificate {shown} expires in {}, on {}", in_days(days), date(found.not_after_s));
        remark(message, "renew it, and reload (SIGHUP)");
    }
    if let Some(gap) = &found.gap {
        let (place, next) = (gap.place, gap.place + 1);
        let message = format!(
            "the chain of {shown} is incomplete: certificate {place} was issued by {}, and certificate {next} is that of {}",
            gap.issuer, gap.next_subject
        );
        remark(message, "put the server's certificate first, and each issuer's after it, as in certbot's fullchain.pem");
    }
    for name in certificate.names.iter().filter(|name| !found.names.iter().any(|pattern| covers(pattern, name))) {
        let message = format!("the certificate {shown} is not for {name}, but for {}", listed(&found.names));
        remark(message, "clients refuse it for that name");
    }
    Ok(remarks)
}

/// Describes a certificate in one line: its names, its key and its expiry.
pub fn describe(certificate: &Certificate) -> String {
    match inspect(certificate) {
        Ok(Inspection { names, key, not_after_s, .. }) => {
            format!("for {}; key {key}; expires on {}", listed(&names), date(not_after_s))
        }
        Err(error) => error,
    }
}

fn shown(certificate: &Certificate) -> String {
    certificate.files.as_ref().map_or_else(|| "for development".to_owned(), |files| files.chain.display().to_string())
}

/// RFC 9525 section 6.3: an asterisk stands for exactly one whole label, the first.
fn covers(pattern: &str, name: &str) -> bool {
    let behind_first = |text: &str| text.split_once('.').map(|(_, rest)| rest.to_owned());
    pattern == name || pattern.starts_with("*.") && behind_first(pattern) == behind_first(name)
}

fn listed(names: &[String]) -> String {
    /// A certificate may have hundreds of names.
    const MAX_NAMES: usize = 5;
    let some = names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "no host".to_owned(),
        count if count > MAX_NAMES => format!("{some} and {} more", count - MAX_NAMES),
        _ => some,
    }
}

fn in_days(days: i64) -> String {
    match days {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

fn date(seconds: i64) -> String {
    // The exact day of a date beyond the calendar does not matter.
    let Ok(time) = OffsetDateTime::from_unix_timestamp(seconds) else { return "a day beyond the calendar".to_owned() };
    format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
}

/// Reads the client authorities of a file, in PEM.
///
/// # Errors
/// The file does not contain a certificate, or one that can't be read.
pub fn authorities(path: &Path, user: Option<&Writer>) -> Result<Vec<u8>, CertificateError> {
    let chain = chain(path, user)?;
    match bolide_tls::names_of(&chain) {
        Ok(_) => Ok(chain),
        Err(error) => Err(CertificateError::new(
            format!("the client authorities {} can't be used: {error}", path.display()),
            "name a file with their certificates, in PEM",
        )),
    }
}

/// Reads the certificates of a file, in PEM, without anything else in it: the file may also hold a key, which must not be
/// exposed.
///
/// # Errors
/// The file does not contain a certificate, or can't be read.
fn chain(path: &Path, user: Option<&Writer>) -> Result<Vec<u8>, CertificateError> {
    let bytes = contents(path, "the certificate", user)?;
    let parts = parts(&bytes);
    let mut chain = Vec::new();
    for part in parts.iter().filter(|part| part.is_certificate()) {
        chain.extend_from_slice(part.bytes);
        chain.push(b'\n');
    }
    match chain.is_empty() {
        false => Ok(chain),
        true => Err(no_certificate(path, &bytes, &parts)),
    }
}

fn no_certificate(path: &Path, bytes: &[u8], parts: &[Part<'_>]) -> CertificateError {
    let shown = path.display();
    if parts.iter().any(Part::is_key) {
        let message = format!("the certificate {shown} is a key, and does not contain a certificate");
        return CertificateError::new(
            message,
            "the certificate's file comes first, and the key's after it; are the two swapped?",
        );
    }
    if parts.iter().any(|part| part.label == b"CERTIFICATE REQUEST") {
        return CertificateError::new(
            format!("the certificate {shown} is a certificate request"),
            "send it to an authority, and name the certificate that it returns",
        );
    }
    not_pem(path, bytes, "the certificate", "openssl x509 -inform der", "-----BEGIN CERTIFICATE-----")
}

fn key(path: &Path, chain: &Path, user: Option<&Writer>) -> Result<PrivateKey, CertificateError> {
    let shown = path.display();
    let bytes = contents(path, "the key", user)?;
    let parts = parts(&bytes);
    match parts.iter().find(|part| part.is_key()) {
        Some(part) if part.is_encrypted() => Err(CertificateError::new(
            format!("the key {shown} is encrypted, and there is no prompt for its password"),
            format!("write it without one, in a file that other users can't read: `openssl pkey -in {shown} -out NEW`"),
        )),
        Some(part) => Ok(PrivateKey([part.bytes, b"\n"].concat())),
        None if parts.iter().any(Part::is_certificate) && path == chain => Err(CertificateError::new(
            format!("{shown} has no key beside the certificate"),
            "write the key's file after the certificate's",
        )),
        None if parts.iter().any(Part::is_certificate) => Err(CertificateError::new(
            format!("the key {shown} is a certificate, and does not contain a key"),
            "the certificate's file comes first, and the key's after it; are the two swapped?",
        )),
        None => Err(not_pem(path, &bytes, "the key", "openssl pkey -inform der", "-----BEGIN PRIVATE KEY-----")),
    }
}

/// Reads the response of an OCSP responder, unchanged: DER.
fn ocsp_response(path: &Path, user: Option<&Writer>) -> Result<Vec<u8>, CertificateError> {
    let bytes = contents(path, "the OCSP response", user)?;
    match bytes.first() {
        Some(&DER_SEQUENCE) => Ok(bytes),
        _ => Err(CertificateError::new(
            format!("the OCSP response {} is not DER", path.display()),
            "save it with `openssl ocsp … -respout FILE`",
        )),
    }
}

/// Returns the paths of a certificate with its key and the file beside it: `CERTIFICATE.ocsp`, as in HAProxy.
pub fn files(chain: PathBuf, key: PathBuf) -> CertificateFiles {
    let mut beside = chain.clone().into_os_string();
    beside.push(".ocsp");
    let ocsp = Some(PathBuf::from(beside)).filter(|path| path.is_file());
    CertificateFiles { chain, key, ocsp }
}

/// Lists the certificates of a directory: NAME.crt with NAME.key, sorted by name.
///
/// # Errors
/// The directory can't be read, or has too many certificates.
pub fn directory(path: &Path) -> Result<Vec<(String, CertificateFiles)>, CertificateError> {
    let shown = path.display();
    let fault = |error: std::io::Error| CertificateError {
        message: format!("the directory {shown} can't be read: {}", plain_error(&error)),
        advice: "create it, or correct its path".to_owned(),
        is_local: true,
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fault)? {
        let chain = entry.map_err(fault)?.path();
        let name = chain.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".crt"));
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        let key = path.join(format!("{name}.key"));
        // As in uWSGI, a certificate without its key is skipped.
        if !key.is_file() {
            continue;
        }
        if found.len() == MAX_DIRECTORY {
            let message = format!("the directory {shown} has more than {MAX_DIRECTORY} certificates");
            return Err(CertificateError::new(message, "serve them with several instances"));
        }
        found.push((name.to_ascii_lowercase(), files(chain.clone(), key)));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// The first byte of DER: certificates, keys and responses are sequences (X.690 section 8.9).
const DER_SEQUENCE: u8 = 0x30;

fn not_pem(path: &Path, bytes: &[u8], what: &str, command: &str, label: &str) -> CertificateError {
    let shown = path.display();
    match bytes.first() {
        Some(&DER_SEQUENCE) => CertificateError::new(
            format!("{what} {shown} is DER instead of PEM"),
            format!(
                "convert it: `{command} -in {shown} -out NEW`; or `openssl pkcs12 -nodes -in {shown} -out NEW` if it is PKCS #12"
            ),
        ),
        None => CertificateError::new(format!("{what} {shown} is empty"), "name a file in PEM"),
        _ => CertificateError::new(
            format!("{what} {shown} is not PEM"),
            format!("it has no complete part that begins with {label}"),
        ),
    }
}

fn contents(path: &Path, what: &str, user: Option<&Writer>) -> Result<Vec<u8>, CertificateError> {
    let shown = path.display();
    let fault = |error: std::io::Error| CertificateError {
        message: format!("{what} {shown} can't be read: {}", plain_error(&error)),
        advice: match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "start as a user who may read it: root reads it before `uid` applies, and workers need no access to it".to_owned()
            }
            _ => "correct its path".to_owned(),
        },
        is_local: true,
    };
    let file = match open_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            return Err(CertificateError::new(
                format!("{what} {shown} is not a file"),
                "name a file: it is read again at each reload",
            ));
        }
        opened => opened.map_err(fault)?,
    };
    if let Some(user) = user.filter(|user| !user.may_receive(path, &file)) {
        return Err(CertificateError::new(
            format!("{what} {shown} is not read for the user of uid: `{}` may replace it, and may not read it", user.name),
            "name the file itself instead of a link to it; or make root the owner of it and of the directories above it (`chown \
                root`)",
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(fault)?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(CertificateError::new(
            format!("{what} {shown} is larger than a MiB"),
            "certificates and keys are never that large",
        )),
        false => Ok(bytes),
    }
}
