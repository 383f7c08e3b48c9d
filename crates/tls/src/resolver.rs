//! Selects the certificate for a client by its host name (SNI, RFC 6066 section 3). Workers run it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::LoadedCertificate;

thread_local! {
    /// The host name that a client has just sent, within the handshake that the thread continues.
    static NAMED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// Returns the host name that the client sent, right after the records with its first message were processed, and forgets it.
/// rustls passes it only to the certificate resolver, and on its unbuffered connections to no other code.
pub fn take_named_host() -> Option<Box<str>> {
    NAMED.take()
}

#[derive(Debug)]
pub struct CertificatesByName {
    certificates: Vec<LoadedCertificate>,
    /// Indices of the certificates above by name; a wildcard is stored without its star: `.example.com`.
    names: HashMap<String, usize>,
}

impl CertificatesByName {
    /// The first certificate of a name takes precedence. There must be at least one.
    pub fn new(certificates: Vec<LoadedCertificate>) -> CertificatesByName {
        let mut names = HashMap::new();
        for (number, certificate) in certificates.iter().enumerate() {
            for name in &certificate.names {
                let name = name.strip_prefix('*').unwrap_or(name);
                names.entry(name.to_owned()).or_insert(number);
            }
        }
        CertificatesByName { certificates, names }
    }

    /// Returns the certificate for a host in lower case, as rustls passes it: the one with its name, else a wildcard for its
    /// first label (RFC 6125 section 6.4.3), else the first of all.
    pub fn find(&self, host: Option<&str>) -> Option<&LoadedCertificate> {
        let of_name = |name: &str| self.names.get(name).copied();
        let number = host.and_then(|host| of_name(host).or_else(|| of_name(&host[host.find('.')?..]))).unwrap_or(0);
        self.certificates.get(number)
    }
}

impl ResolvesServerCert for CertificatesByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        NAMED.set(hello.server_name().map(Into::into));
        self.find(hello.server_name()).map(|certificate| Arc::clone(&certificate.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::load;
    use bolide_contract::tls::{Certificate, PrivateKey};

    fn certificate(names: &[&str], shown_for: &[&str]) -> LoadedCertificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let certificate = Certificate {
            names: shown_for.iter().map(|name| (*name).to_owned()).collect(),
            chain: made.cert.pem().into_bytes(),
            key: PrivateKey(made.signing_key.serialize_pem().into_bytes()),
            ocsp: None,
            files: None,
            origin: "the test".into(),
        };
        load(&certificate).expect("a certificate and its key")
    }

    #[test]
    fn a_host_is_shown_its_own_certificate_then_a_wildcards_then_the_first() {
        let certificates = CertificatesByName::new(vec![
            certificate(&["first.example"], &[]),
            certificate(&["A.example", "both.example"], &[]),
            certificate(&["*.example", "both.example"], &[]),
            certificate(&["x.example"], &["*.deep.example", "Told.Example"]),
        ]);
        let cases = [
            (Some("first.example"), 0),
            (Some("a.example"), 1),
            (Some("both.example"), 1),
            (Some("other.example"), 2),
            (Some("x.example"), 2),
            (Some("x.deep.example"), 3),
            (Some("told.example"), 3),
            (Some("x.y.deep.example"), 0),
            (Some("example"), 0),
            (Some(""), 0),
            (Some("."), 0),
            (None, 0),
        ];
        for (host, wanted) in cases {
            let found = certificates.find(host).expect("there is always one");
            assert!(std::ptr::eq(found, &raw const certificates.certificates[wanted]), "{host:?}");
        }
    }
}
