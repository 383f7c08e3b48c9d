//! Files of users and passwords, as `htpasswd` writes them: `user:hash`, one a line.
//!
//! Workers run it, for requests with credentials. The file is read anew when it has changed. A slow hash (bcrypt takes tens of milliseconds, on
//! purpose) is not computed again for credentials that were right a moment ago: what is remembered of them is a digest.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use sha1::Sha1;

/// Bytes of a password file.
const FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Right credentials that are remembered.
const REMEMBERED: usize = 128;

/// Bytes of a password that are looked at; bcrypt itself takes no more than 72.
const PASSWORD_BYTES: usize = 1024;

/// A password file and what was lately found in it.
#[derive(Debug)]
pub struct PasswordFile {
    path: PathBuf,
    known: Mutex<LoadedFile>,
}

#[derive(Debug, Default)]
struct LoadedFile {
    /// Time of the last change, and length.
    stamp: Option<(SystemTime, u64)>,
    entries: Vec<(Vec<u8>, String)>,
    right: VecDeque<[u8; 20]>,
}

impl PasswordFile {
    pub fn new(path: PathBuf) -> PasswordFile {
        PasswordFile { path, known: Mutex::new(LoadedFile::default()) }
    }

    /// Whether the file has this user with this password.
    ///
    /// # Errors
    /// The file can't be read, or the user's hash is of a kind that is not known.
    pub fn allows(&self, user: &[u8], password: &[u8]) -> Result<bool, String> {
        let digest = digest_of(user, password);
        let hash = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            self.refresh(&mut known)?;
            if known.right.contains(&digest) {
                return Ok(true);
            }
            known.entries.iter().find(|(name, _)| name == user).map(|(_, hash)| hash.clone())
        };
        let Some(hash) = hash else { return Ok(false) };
        if password.len() > PASSWORD_BYTES || password.contains(&0) {
            return Ok(false);
        }
        let is_right = verify(password, &hash).ok_or_else(|| {
            format!(
                "{} has a hash for `{}` that is of no known kind: make it anew with `htpasswd -B`",
                self.path.display(),
                String::from_utf8_lossy(user)
            )
        })?;
        if is_right {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.right.truncate(REMEMBERED - 1);
            known.right.push_front(digest);
        }
        Ok(is_right)
    }

    fn refresh(&self, known: &mut LoadedFile) -> Result<(), String> {
        let fault = |error: std::io::Error| format!("the password file {} can't be read: {error}", self.path.display());
        let metadata = fs::metadata(&self.path).map_err(fault)?;
        let stamp = (metadata.modified().map_err(fault)?, metadata.len());
        if known.stamp == Some(stamp) {
            return Ok(());
        }
        if !metadata.is_file() || metadata.len() > FILE_BYTES {
            return Err(format!("the password file {} is no file, or has more than 4 MiB", self.path.display()));
        }
        let text = fs::read(&self.path).map_err(fault)?;
        known.entries = String::from_utf8_lossy(&text).lines().filter_map(entry).collect();
        known.right.clear();
        known.stamp = Some(stamp);
        Ok(())
    }
}

/// Whether two texts are the same, in a time that depends on their lengths only.
pub fn equal_in_constant_time(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

fn entry(line: &str) -> Option<(Vec<u8>, String)> {
    let (user, rest) = line.trim_end().split_once(':').filter(|_| !line.starts_with('#'))?;
    // Further fields may follow, as in /etc/shadow.
    let hash = rest.split(':').next().unwrap_or(rest);
    Some((user.as_bytes().to_vec(), hash.to_owned()))
}

fn digest_of(user: &[u8], password: &[u8]) -> [u8; 20] {
    let mut hasher = Sha1::new();
    hasher.update((user.len() as u64).to_le_bytes());
    hasher.update(user);
    hasher.update(password);
    hasher.finalize().into()
}

/// `None`: a hash of no known kind.
fn verify(password: &[u8], hash: &str) -> Option<bool> {
    if let Some(encoded) = hash.strip_prefix("{SHA}") {
        return Some(equal_in_constant_time(STANDARD.encode(Sha1::digest(password)).as_bytes(), encoded.as_bytes()));
    }
    if let Some(rest) = hash.strip_prefix("$apr1$") {
        let (salt, _) = rest.split_once('$')?;
        return Some(equal_in_constant_time(apache_md5(password, salt.as_bytes()).as_bytes(), hash.as_bytes()));
    }
    let is_crypt = ["$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$"].iter().any(|kind| hash.starts_with(kind));
    // Traditional DES: a salt of two characters and eleven more. It is what uWSGI itself knows, next to {SHA}.
    let is_des = hash.len() == 13 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/');
    (is_crypt || is_des).then(|| pwhash::unix::verify(password, hash))
}

/// Apache's variant of MD5-based crypt: a thousand rounds, salted.
fn apache_md5(password: &[u8], salt: &[u8]) -> String {
    const ROUNDS: usize = 1000;
    const SALT_BYTES: usize = 8;
    let salt = &salt[..salt.len().min(SALT_BYTES)];
    let inner: [u8; 16] = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut outer = Md5::new().chain_update(password).chain_update("$apr1$").chain_update(salt);
    for start in (0..password.len()).step_by(16) {
        outer.update(&inner[..(password.len() - start).min(16)]);
    }
    let mut bits = password.len();
    while bits > 0 {
        outer.update(if bits & 1 == 1 { [0] } else { [password[0]] });
        bits >>= 1;
    }
    let mut state: [u8; 16] = outer.finalize().into();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        if round % 2 == 1 {
            next.update(password)
        } else {
            next.update(state)
        }
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        if round % 2 == 1 {
            next.update(state)
        } else {
            next.update(password)
        }
        state = next.finalize().into();
    }
    format!("$apr1${}${}", String::from_utf8_lossy(salt), crypt_digits(&state))
}

/// Six bits a character, in crypt's own alphabet and order.
fn crypt_digits(state: &[u8; 16]) -> String {
    const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const ORDER: [(usize, usize, usize); 5] = [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)];
    let mut made = String::with_capacity(22);
    let mut digits = |mut value: u32, count: usize| {
        for _ in 0..count {
            made.push(ALPHABET[(value & 0x3f) as usize] as char);
            value >>= 6;
        }
    };
    for (high, middle, low) in ORDER {
        digits(u32::from(state[high]) << 16 | u32::from(state[middle]) << 8 | u32::from(state[low]), 4);
    }
    digits(u32::from(state[11]), 2);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_hash_that_htpasswd_writes_is_known() {
        // Made with `openssl passwd` and Python's `crypt`.
        for hash in HASHES {
            assert_eq!(verify(b"secret", hash), Some(true), "{hash}");
            assert_eq!(verify(b"Secret", hash), Some(false), "{hash}");
        }
        assert_eq!(verify(b"secret", "secret"), None);
        assert_eq!(verify(b"secret", "$9$x$y"), None);
    }

    const HASHES: &[&str] = &[
        "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/",
        "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1",
        "$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM.",
        "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.",
        "$2b$04$hMK6t.8maSXSDfM4n/5CtuoXFwrU63gepOcajaWu/C/KAv16FoALa",
        "abNANd1rDfiNc",
        "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
    ];

    #[test]
    fn entries_have_a_user_and_a_hash() {
        assert_eq!(entry("ann:x"), Some((b"ann".to_vec(), "x".to_owned())));
        assert_eq!(entry("ann:x:1:2\r"), Some((b"ann".to_vec(), "x".to_owned())));
        assert_eq!(entry("# ann:x"), None);
        assert_eq!(entry("ann"), None);
    }
}
