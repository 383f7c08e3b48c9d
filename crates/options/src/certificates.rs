//! Files of certificates and keys: read whole, and looked at, so that what is wrong with them is one clear sentence. What a message
//! says is a path and never a byte of a file. Runs in the process that reads the configuration, and in the master at each reload.

use std::io::Read;
use std::path::{Path, PathBuf};

use bolide_contract::tls::{Certificate, CertificateFiles, PrivateKey};

use crate::diagnostic::plain_error;
use crate::pem::{Part, parts};

/// Largest file of certificates, in bytes: all authorities that browsers know take a fifth of it.
const FILE_BYTES_MOST: u64 = 1024 * 1024;
/// Most certificates of a folder.
const FOLDER_MOST: usize = 10_000;

/// A file that can't be used: what happened, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub message: String,
    pub advice: String,
    /// It is about a file that is not there, or may not be read here: the machine that will serve may have it.
    pub is_local: bool,
}

impl Trouble {
    fn new(message: String, advice: impl Into<String>) -> Trouble {
        Trouble { message, advice: advice.into(), is_local: false }
    }
}

/// Reads a certificate, its key, and what lies beside them.
///
/// # Errors
/// One of the files is not what it should be.
pub fn read(files: &CertificateFiles, names: &[String], origin: &str) -> Result<Certificate, Trouble> {
    let chain = chain(&files.chain)?;
    let key = key(&files.key, &files.chain)?;
    let ocsp = files.ocsp.as_deref().map(ocsp_response).transpose()?;
    Ok(Certificate { names: names.to_vec(), chain, key, ocsp, files: Some(files.clone()), origin: origin.to_owned() })
}

/// The certificates of a file, in PEM and without anything else that is there: a key may be, and is shown to nobody.
///
/// # Errors
/// It has none, or can't be read.
pub fn chain(path: &Path) -> Result<Vec<u8>, Trouble> {
    let bytes = contents(path, "the certificate")?;
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

fn no_certificate(path: &Path, bytes: &[u8], parts: &[Part<'_>]) -> Trouble {
    let shown = path.display();
    if parts.iter().any(Part::is_key) {
        let message = format!("the certificate {shown} is a key, and no certificate is in it");
        return Trouble::new(message, "the certificate's file comes first, and the key's behind it; are the two swapped?");
    }
    if parts.iter().any(|part| part.label == b"CERTIFICATE REQUEST") {
        return Trouble::new(
            format!("the certificate {shown} is a request for one"),
            "send it to an authority, and name what that answers",
        );
    }
    not_pem(path, bytes, "the certificate", "openssl x509 -inform der", "-----BEGIN CERTIFICATE-----")
}

fn key(path: &Path, chain: &Path) -> Result<PrivateKey, Trouble> {
    let shown = path.display();
    let bytes = contents(path, "the key")?;
    let parts = parts(&bytes);
    match parts.iter().find(|part| part.is_key()) {
        Some(part) if part.is_encrypted() => Err(Trouble::new(
            format!("the key {shown} is encrypted, and nobody is there to type its password"),
            format!("write it without one, in a file that others can't read: `openssl pkey -in {shown} -out NEW`"),
        )),
        Some(part) => Ok(PrivateKey([part.bytes, b"\n"].concat())),
        None if parts.iter().any(Part::is_certificate) && path == chain => Err(Trouble::new(
            format!("no key is in {shown} beside the certificate"),
            "name the key's file behind the certificate's",
        )),
        None if parts.iter().any(Part::is_certificate) => Err(Trouble::new(
            format!("the key {shown} is a certificate, and no key is in it"),
            "the certificate's file comes first, and the key's behind it; are the two swapped?",
        )),
        None => Err(not_pem(path, &bytes, "the key", "openssl pkey -inform der", "-----BEGIN PRIVATE KEY-----")),
    }
}

/// The response of an OCSP responder, as it came: DER.
fn ocsp_response(path: &Path) -> Result<Vec<u8>, Trouble> {
    let bytes = contents(path, "the OCSP response")?;
    match bytes.first() {
        Some(&DER_SEQUENCE) => Ok(bytes),
        _ => Err(Trouble::new(
            format!("the OCSP response {} is not DER", path.display()),
            "save it with `openssl ocsp … -respout FILE`",
        )),
    }
}

/// What lies beside a certificate: `CERTIFICATE.ocsp`, as HAProxy has it.
pub fn files(chain: PathBuf, key: PathBuf) -> CertificateFiles {
    let mut beside = chain.clone().into_os_string();
    beside.push(".ocsp");
    let ocsp = Some(PathBuf::from(beside)).filter(|path| path.is_file());
    CertificateFiles { chain, key, ocsp }
}

/// The certificates of a folder: NAME.crt with NAME.key, in the order of their names.
///
/// # Errors
/// The folder can't be read, or has too many.
pub fn folder(path: &Path) -> Result<Vec<(String, CertificateFiles)>, Trouble> {
    let shown = path.display();
    let trouble = |error: std::io::Error| Trouble {
        message: format!("the folder {shown} can't be read: {}", plain_error(&error)),
        advice: "make it, or correct its path".to_owned(),
        is_local: true,
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(trouble)? {
        let chain = entry.map_err(trouble)?.path();
        let name = chain.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".crt"));
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        let key = path.join(format!("{name}.key"));
        // As uWSGI, which shows a certificate only where its key is there too.
        if !key.is_file() {
            continue;
        }
        if found.len() == FOLDER_MOST {
            let message = format!("the folder {shown} has more than {FOLDER_MOST} certificates");
            return Err(Trouble::new(message, "serve them with several instances"));
        }
        found.push((name.to_ascii_lowercase(), files(chain.clone(), key)));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// The first byte of DER: certificates, keys and responses are sequences (X.690 section 8.9).
const DER_SEQUENCE: u8 = 0x30;

fn not_pem(path: &Path, bytes: &[u8], what: &str, command: &str, label: &str) -> Trouble {
    let shown = path.display();
    match bytes.first() {
        Some(&DER_SEQUENCE) => Trouble::new(
            format!("{what} {shown} is DER, and not PEM"),
            format!(
                "convert it: `{command} -in {shown} -out NEW`; or `openssl pkcs12 -nodes -in {shown} -out NEW` where it is PKCS #12"
            ),
        ),
        None => Trouble::new(format!("{what} {shown} is empty"), "name a file in PEM"),
        _ => Trouble::new(format!("{what} {shown} is not PEM"), format!("it has no whole part that begins with {label}")),
    }
}

fn contents(path: &Path, what: &str) -> Result<Vec<u8>, Trouble> {
    let shown = path.display();
    let trouble = |error: std::io::Error| Trouble {
        message: format!("{what} {shown} can't be read: {}", plain_error(&error)),
        advice: match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "start as a user who may read it: root reads it before `uid` counts, and workers need no right to it".to_owned()
            }
            _ => "correct its path".to_owned(),
        },
        is_local: true,
    };
    let file = std::fs::File::open(path).map_err(trouble)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MOST + 1).read_to_end(&mut bytes).map_err(trouble)?;
    match bytes.len() as u64 > FILE_BYTES_MOST {
        true => Err(Trouble::new(format!("{what} {shown} is larger than a MiB"), "no certificate and no key is so large")),
        false => Ok(bytes),
    }
}
