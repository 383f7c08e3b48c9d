//! Files that a running instance has read already. A reload reads its configuration again, but does not open known certificates:
//! `renewal` does that afterwards, and keeps the known one if it fails. Plain data; it opens nothing.

use std::path::Path;

use bolide_contract::settings::Settings;
use bolide_contract::tls::{Certificate, CertificateFiles, Tls};

use crate::certificates::{self, CertificateError};
use crate::trust::Writer;

/// The certificates of a running instance; none at startup.
#[derive(Debug, Clone, Default)]
pub struct KnownFiles {
    tls: Vec<Tls>,
    is_reload: bool,
}

impl KnownFiles {
    pub fn of(settings: &Settings) -> KnownFiles {
        KnownFiles { tls: settings.listeners.iter().filter_map(|listener| listener.tls.clone()).collect(), is_reload: true }
    }

    /// Returns the certificate of these files: the known one, or else reads it. If root reads for another user, `user` is that
    /// user.
    ///
    /// # Errors
    /// It is not known, and one of the files is invalid.
    pub fn certificate(
        &self,
        files: &CertificateFiles,
        names: &[String],
        origin: &str,
        user: Option<&Writer>,
    ) -> Result<Certificate, CertificateError> {
        match self.find(files) {
            Some(known) => {
                Ok(Certificate { names: names.to_vec(), origin: origin.to_owned(), files: Some(files.clone()), ..known.clone() })
            }
            None => certificates::read(files, names, origin, user),
        }
    }

    /// Returns the authorities of this file: the known ones, or else reads them.
    ///
    /// # Errors
    /// They are not known, and the file is invalid.
    pub fn authorities(&self, path: &Path, user: Option<&Writer>) -> Result<Vec<u8>, CertificateError> {
        let known = self.tls.iter().find(|tls| tls.client_authorities_file.as_deref() == Some(path));
        known.map_or_else(|| certificates::authorities(path, user), |known| Ok(known.client_authorities.clone()))
    }

    /// The certificate that was created for development.
    pub fn development(&self) -> Option<&Certificate> {
        self.certificates().find(|certificate| certificate.files.is_none() && !certificate.chain.is_empty())
    }

    /// Returns whether a certificate of a directory is new to a running instance: `renewal` checks it, and skips it if it is
    /// invalid.
    pub fn is_new(&self, files: &CertificateFiles) -> bool {
        self.is_reload && self.find(files).is_none()
    }

    fn find(&self, files: &CertificateFiles) -> Option<&Certificate> {
        let is_it = |known: &&Certificate| {
            known.files.as_ref().is_some_and(|known| (&known.chain, &known.key) == (&files.chain, &files.key))
        };
        self.certificates().find(is_it)
    }

    fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.tls.iter().flat_map(|tls| &tls.certificates)
    }
}
