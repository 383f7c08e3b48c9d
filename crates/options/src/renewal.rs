//! Certificates at a reload: read again from where they were, and kept as they are where that fails. The master runs it, when a
//! generation is to be started; nobody is asked anything, and what is to be said are lines for the log.

use std::collections::HashMap;
use std::path::Path;

use bolide_contract::settings::Listener;
use bolide_contract::tls::{Certificate, CertificateFiles, Tls};

use crate::certificates::{self, Trouble};
use crate::trust::Writer;

/// Lines that one reload writes about certificates; of a folder of thousands not each has to be named.
const LINES_MOST: usize = 20;

/// The files of one certificate, and the names that it is shown for.
type Wanted = (Vec<String>, CertificateFiles, String);

/// Reads the certificates of all listeners again, for this user where root reads for another one. Gives the lines for the log: what has
/// changed, and what could not be taken.
pub fn renew(listeners: &mut [Listener], user: Option<&Writer>) -> Vec<String> {
    let mut renewal = Renewal { user, read: HashMap::new(), lines: Vec::new() };
    for tls in listeners.iter_mut().filter_map(|listener| listener.tls.as_mut()) {
        renewal.renew(tls);
    }
    let mut lines = renewal.lines;
    let more = lines.len().saturating_sub(LINES_MOST);
    lines.truncate(LINES_MOST);
    if more > 0 {
        lines.push(format!("certificates: {more} further lines like these are omitted"));
    }
    lines
}

/// What was read in this reload: several listeners may show one certificate.
struct Renewal<'a> {
    user: Option<&'a Writer>,
    read: HashMap<Wanted, Option<Certificate>>,
    lines: Vec<String>,
}

impl Renewal<'_> {
    fn renew(&mut self, tls: &mut Tls) {
        let of_folder = |certificate: &Certificate| {
            certificate.files.as_ref().is_some_and(|files| files.chain.parent() == tls.folder.as_deref())
        };
        let mut renewed = Vec::with_capacity(tls.certificates.len());
        let listed = tls.folder.as_deref().and_then(|folder| self.list(folder, &origin_of_folder(tls)));
        for (index, old) in tls.certificates.iter().enumerate() {
            // The first one is the address's own, wherever it lies.
            match (index > 0 && of_folder(old), &listed) {
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

    /// The certificates of a folder by now; `None` where it can't be read, and all stay as they are.
    fn list(&mut self, folder: &Path, origin: &str) -> Option<Vec<Wanted>> {
        match certificates::folder(folder) {
            Ok(listed) => Some(listed.into_iter().map(|(name, files)| (vec![name], files, origin.to_owned())).collect()),
            Err(trouble) => {
                self.keep(origin, &trouble, "its previous certificates stay in use");
                None
            }
        }
    }

    fn again(&mut self, old: &Certificate) -> Certificate {
        let Some(files) = &old.files else { return old.clone() };
        let mut wanted = certificates::files(files.chain.clone(), files.key.clone());
        // `tls-ocsp-file` lies elsewhere.
        wanted.ocsp = wanted.ocsp.or_else(|| files.ocsp.clone());
        self.read(&(old.names.clone(), wanted, old.origin.clone()), Some(old)).unwrap_or_else(|| old.clone())
    }

    /// The certificate of these files. `None`: it can't be taken, and that is said.
    fn read(&mut self, wanted: &Wanted, old: Option<&Certificate>) -> Option<Certificate> {
        if let Some(read) = self.read.get(wanted) {
            return read.clone();
        }
        let (names, files, origin) = wanted;
        let read = certificates::read(files, names, origin, self.user)
            .and_then(|read| certificates::check(&read).map(|told| (read, told)));
        let read = match read {
            Ok((certificate, told)) => {
                self.note_change(&certificate, old, &files.chain);
                for remark in told {
                    self.say(format!("WARNING: {origin}: {}", remark.message));
                }
                Some(certificate)
            }
            Err(trouble) => {
                let instead = if old.is_some() { "the previous one stays in use" } else { "it is not sent to clients" };
                self.keep(origin, &trouble, instead);
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
                self.say(format!("the OCSP response of the certificate {shown} has changed"));
            }
            Some(_) => self.say(format!("the certificate {shown} has changed: {}", certificates::describe(new))),
            None => self.say(format!("the certificate {shown} is new: {}", certificates::describe(new))),
        }
    }

    fn authorities(&mut self, path: &Path, old: &[u8]) -> Vec<u8> {
        match certificates::authorities(path, self.user) {
            Ok(new) => {
                if new != old {
                    self.say(format!("the client authorities {} have changed", path.display()));
                }
                new
            }
            Err(trouble) => {
                self.keep("client authorities", &trouble, "the previous ones stay in use");
                old.to_vec()
            }
        }
    }

    fn keep(&mut self, origin: &str, trouble: &Trouble, instead: &str) {
        self.say(format!("WARNING: {origin}: {}; {instead} ({})", trouble.message, trouble.advice));
    }

    /// What several addresses show is said once.
    fn say(&mut self, line: String) {
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }
}

/// Where the folder was asked for: its certificates say that too, if there is one.
fn origin_of_folder(tls: &Tls) -> String {
    let found = tls
        .certificates
        .iter()
        .skip(1)
        .find(|one| one.files.as_ref().is_some_and(|files| files.chain.parent() == tls.folder.as_deref()));
    found.map_or_else(|| "sni-dir".to_owned(), |one| one.origin.clone())
}
