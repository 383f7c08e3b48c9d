//! Renews certificates at a reload: reads them again from their files, and keeps the known ones if that fails. The master runs it
//! before it starts a generation. It never prompts; its messages are lines for the log.

use std::collections::HashMap;
use std::path::Path;

use bolide_configuration::certificates::{self, CertificateError};
use bolide_configuration::trust::Writer;
use bolide_contract::settings::Listener;
use bolide_contract::tls::{Certificate, CertificateFiles, Tls};

/// Most lines about certificates in one reload, so that a directory of thousands does not flood the log.
const MAX_LINES: usize = 20;

/// The names that a certificate is served for, its files, and its origin.
type Wanted = (Vec<String>, CertificateFiles, String);

/// Reads the certificates of all listeners again. If root reads for another user, `user` is that user. Returns lines for the log:
/// the changes, and the certificates that could not be renewed.
pub fn renew(listeners: &mut [Listener], user: Option<&Writer>) -> Vec<String> {
    let mut renewal = Renewal { user, read: HashMap::new(), lines: Vec::new() };
    for tls in listeners.iter_mut().filter_map(|listener| listener.tls.as_mut()) {
        renewal.renew(tls);
    }
    let mut lines = renewal.lines;
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    if more > 0 {
        lines.push(format!("certificates: {more} more lines like these are omitted"));
    }
    lines
}

/// The certificates that this reload has read: several listeners may use the same one.
struct Renewal<'a> {
    user: Option<&'a Writer>,
    read: HashMap<Wanted, Option<Certificate>>,
    lines: Vec<String>,
}

impl Renewal<'_> {
    fn renew(&mut self, tls: &mut Tls) {
        let of_directory = |certificate: &Certificate| {
            certificate.files.as_ref().is_some_and(|files| files.chain.parent() == tls.directory.as_deref())
        };
        let mut renewed = Vec::with_capacity(tls.certificates.len());
        let listed = tls.directory.as_deref().and_then(|directory| self.list(directory, &origin_of_directory(tls)));
        for (index, old) in tls.certificates.iter().enumerate() {
            // The first certificate is the address's own, even if it lies in the directory.
            match (index > 0 && of_directory(old), &listed) {
                (true, Some(_)) => {}
                (true, None) => renewed.push(old.clone()),
                (false, _) => renewed.push(self.again(old)),
            }
        }
        let old = |files: &CertificateFiles| {
            tls.certificates.iter().skip(1).find(|old| old.files.as_ref().is_some_and(|other| other.chain == files.chain))
        };
        for (names, files, origin) in listed.into_iter().flatten() {
            let before = old(&files);
            renewed.extend(self.read(&(names, files, origin), before).or_else(|| before.cloned()));
        }
        if let Some(path) = tls.client_authorities_file.clone() {
            tls.client_authorities = self.authorities(&path, &tls.client_authorities);
        }
        tls.certificates = renewed;
    }

    /// Returns the present certificates of a directory; `None` if it can't be read, in which case all known ones stay.
    fn list(&mut self, directory: &Path, origin: &str) -> Option<Vec<Wanted>> {
        match certificates::directory(directory) {
            Ok(listed) => Some(listed.into_iter().map(|(name, files)| (vec![name], files, origin.to_owned())).collect()),
            Err(fault) => {
                self.keep(origin, &fault, "its previous certificates stay in use");
                None
            }
        }
    }

    fn again(&mut self, old: &Certificate) -> Certificate {
        let Some(files) = &old.files else { return old.clone() };
        let mut wanted = certificates::files(files.chain.clone(), files.key.clone());
        // `tls-ocsp-file` is at another place.
        wanted.ocsp = wanted.ocsp.or_else(|| files.ocsp.clone());
        self.read(&(old.names.clone(), wanted, old.origin.clone()), Some(old)).unwrap_or_else(|| old.clone())
    }

    /// Returns the certificate of these files, or `None`, with a line for the log, if it can't be used.
    fn read(&mut self, wanted: &Wanted, old: Option<&Certificate>) -> Option<Certificate> {
        if let Some(read) = self.read.get(wanted) {
            return read.clone();
        }
        let (names, files, origin) = wanted;
        let read = certificates::read(files, names, origin, self.user)
            .and_then(|read| certificates::check(&read).map(|remarks| (read, remarks)));
        let read = match read {
            Ok((certificate, remarks)) => {
                self.note_change(&certificate, old, &files.chain);
                for remark in remarks {
                    self.add_line(format!("WARNING: {origin}: {}", remark.message));
                }
                Some(certificate)
            }
            Err(fault) => {
                let instead = if old.is_some() { "the previous one stays in use" } else { "it is not sent to clients" };
                self.keep(origin, &fault, instead);
                None
            }
        };
        self.read.insert(wanted.clone(), read.clone());
        read
    }

    fn note_change(&mut self, new: &Certificate, old: Option<&Certificate>, path: &Path) {
        let shown = path.display();
        match old {
            Some(old) if old.chain == new.chain && old.key == new.key && old.ocsp == new.ocsp => {}
            Some(old) if old.chain == new.chain && old.key == new.key => {
                self.add_line(format!("the OCSP response of the certificate {shown} has changed"));
            }
            Some(_) => self.add_line(format!("the certificate {shown} has changed: {}", certificates::describe(new))),
            None => self.add_line(format!("the certificate {shown} is new: {}", certificates::describe(new))),
        }
    }

    fn authorities(&mut self, path: &Path, old: &[u8]) -> Vec<u8> {
        match certificates::authorities(path, self.user) {
            Ok(new) => {
                if new != old {
                    self.add_line(format!("the client authorities {} have changed", path.display()));
                }
                new
            }
            Err(fault) => {
                self.keep("client authorities", &fault, "the previous ones stay in use");
                old.to_vec()
            }
        }
    }

    fn keep(&mut self, origin: &str, fault: &CertificateError, instead: &str) {
        self.add_line(format!("WARNING: {origin}: {}; {instead} ({})", fault.message, fault.advice));
    }

    /// Adds a line for the log, once for all addresses that share the certificate.
    fn add_line(&mut self, line: String) {
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }
}

/// The origin of the directory: that of its certificates, if there are any.
fn origin_of_directory(tls: &Tls) -> String {
    let found = tls
        .certificates
        .iter()
        .skip(1)
        .find(|one| one.files.as_ref().is_some_and(|files| files.chain.parent() == tls.directory.as_deref()));
    found.map_or_else(|| "sni-dir".to_owned(), |one| one.origin.clone())
}
