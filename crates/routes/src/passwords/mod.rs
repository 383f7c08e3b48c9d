//! Files of users and passwords in the format of `htpasswd`: `user:hash`, one for each line.
//!
//! Workers run it, for requests with credentials. A changed file is read again. A slow hash (bcrypt takes tens of milliseconds,
//! on purpose) is not computed again for credentials that were right a moment ago: a digest of them is cached.

mod des_crypt;
pub mod hashes;

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use sha1::{Digest as _, Sha1};

use crate::passwords::hashes::verify;

/// Maximum size of a password file, in bytes.
const FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Maximum number of cached credentials.
const REMEMBERED: usize = 128;

/// Maximum number of bytes of a password that are compared; bcrypt itself uses only 72.
const PASSWORD_BYTES: usize = 1024;

/// A password file and its cache.
#[derive(Debug)]
pub struct PasswordFile {
    path: PathBuf,
    known: Mutex<LoadedFile>,
}

#[derive(Debug, Default)]
struct LoadedFile {
    /// Modification time and length.
    stamp: Option<(SystemTime, u64)>,
    entries: Vec<(Vec<u8>, String)>,
    right: VecDeque<[u8; 20]>,
}

impl PasswordFile {
    pub fn new(path: PathBuf) -> PasswordFile {
        PasswordFile { path, known: Mutex::new(LoadedFile::default()) }
    }

    /// Whether the file contains this user with this password.
    ///
    /// # Errors
    /// The file can't be read, or the user's hash has no known format.
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
                "{} has a hash for `{}` of an unknown kind: create it again with `htpasswd -B`",
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
            return Err(format!("the password file {} is not a file, or has more than 4 MiB", self.path.display()));
        }
        let text = fs::read(&self.path).map_err(fault)?;
        known.entries = String::from_utf8_lossy(&text).lines().filter_map(entry).collect();
        known.right.clear();
        known.stamp = Some(stamp);
        Ok(())
    }
}

fn entry(line: &str) -> Option<(Vec<u8>, String)> {
    let (user, rest) = line.trim_end().split_once(':').filter(|_| !line.starts_with('#'))?;
    // More fields may follow, as in /etc/shadow.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_a_user_and_a_hash() {
        assert_eq!(entry("ann:x"), Some((b"ann".to_vec(), "x".to_owned())));
        assert_eq!(entry("ann:x:1:2\r"), Some((b"ann".to_vec(), "x".to_owned())));
        assert_eq!(entry("# ann:x"), None);
        assert_eq!(entry("ann"), None);
    }
}
