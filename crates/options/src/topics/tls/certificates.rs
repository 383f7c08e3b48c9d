//! The options of TLS as written, and what they make: the certificates, ciphers and client authorities of each listener. It reads
//! the files that they name. Relative paths start at the startup directory, since uWSGI reads these files before `chdir`.
//! Runs in the process that reads the configuration.

use std::path::PathBuf;

use bolide_configuration::certificates::{self, CertificateError};
use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::trust::Writer;
use bolide_contract::settings::{Identity, Protocol};
use bolide_contract::tls::{Certificate, ClientAuth, Http2, Tls, TlsVersion};

use crate::context::{Context, normalized};
use crate::topics::sockets::{CredentialFiles, Credentials, SocketDraft, SocketsDraft};
use crate::topics::tls::ciphers;

/// As in uWSGI.
pub const SESSION_LIFETIME_S: u32 = 300;

bolide_contract::with_defaults! {
    /// Settings of TLS that apply to all addresses without their own. Paths are as written.
    pub struct TlsDraft {
        pub certificate: Option<(String, Location)>,
        pub key: Option<(String, Location)>,
        pub client_authorities: Option<(String, Location)>,
        pub client_auth: Option<(ClientAuth, Location)>,
        pub least_version: TlsVersion = TlsVersion::Tls12,
        pub key_log: Option<(String, Location)>,
        pub ocsp: Option<(String, Location)>,
        pub exports_certificate: bool,
        pub verify_depth: u32 = 1,
        pub session_lifetime_s: u32 = SESSION_LIFETIME_S,
        /// Host names, if any, with their certificates.
        pub server_names: Vec<(Vec<String>, CredentialFiles, Location)>,
        pub directory: Option<(String, Location)>,
        pub http2: Http2,
    }
}

/// The PEM of authorities, and its file.
type Authorities = (Vec<u8>, PathBuf);

impl TlsDraft {
    /// Assigns `tls-certificate` to the addresses that use it. If there is no `https` address, it enables TLS on all HTTP
    /// addresses.
    pub fn assign_common_certificate(&self, sockets: &mut SocketsDraft, context: &mut Context) {
        let Some((_, location)) = self.certificate.clone().or_else(|| self.key.clone()) else { return };
        if sockets.list.iter().any(|socket| socket.credentials.is_some()) {
            return;
        }
        let protocol = sockets.protocol;
        let is_http = |socket: &&mut SocketDraft| socket.https_port.is_none() && socket.protocol(protocol) == Protocol::Http;
        let mut found = false;
        for socket in sockets.list.iter_mut().filter(is_http) {
            socket.credentials = Some(Credentials::Common);
            found = true;
        }
        if !found {
            let message = "no address speaks HTTP: the certificate has no effect";
            context.diagnostics.push(Diagnostic::warning(Some(&location), message).advise("write `https = ADDRESS`"));
        }
    }

    /// Returns the TLS settings of each socket; `None` for sockets without TLS. Errors are among the diagnostics.
    pub fn complete(&self, sockets: &[SocketDraft], identity: &Identity, context: &mut Context) -> Vec<Option<Tls>> {
        let mut reader = CertificateReader { draft: self, sockets, identity, context };
        if sockets.iter().all(|socket| socket.credentials.is_none()) {
            reader.warn_of_tls_without_an_address();
            return sockets.iter().map(|_| None).collect();
        }
        let named = reader.named_certificates();
        reader.warn_of_key_log();
        let make = |socket: &SocketDraft| match reader.tls(socket.credentials.as_ref()?, &named, &socket.location) {
            Ok(tls) => Some(tls),
            Err(diagnostic) => {
                reader.context.diagnostics.push(diagnostic);
                None
            }
        };
        sockets.iter().map(make).collect()
    }

    /// Whether a listener with this protocol offers HTTP/2.
    pub fn http2_of(&self, protocol: Protocol) -> Http2 {
        if protocol == Protocol::Http { self.http2 } else { Http2::Off }
    }
}

/// Reads the certificate files of the addresses that use them.
struct CertificateReader<'d, 'c> {
    draft: &'d TlsDraft,
    sockets: &'d [SocketDraft],
    identity: &'d Identity,
    context: &'d mut Context<'c>,
}

impl CertificateReader<'_, '_> {
    /// Warns of TLS settings without a TLS address: an address has probably been forgotten.
    fn warn_of_tls_without_an_address(&mut self) {
        let draft = &self.draft;
        let named = [&draft.client_authorities, &draft.key_log, &draft.ocsp, &draft.directory];
        let locations = named.into_iter().flatten().map(|(_, location)| location);
        let locations = locations.chain(draft.server_names.iter().map(|(_, _, location)| location));
        let locations = locations.chain(draft.client_auth.iter().map(|(_, location)| location));
        let warning = |location: &Location| {
            Diagnostic::warning(Some(location), "no address speaks TLS: this has no effect")
                .advise("write `https = ADDRESS,CERTIFICATE,KEY`")
        };
        let diagnostics: Vec<Diagnostic> = locations.map(warning).collect();
        self.context.diagnostics.extend(diagnostics);
    }

    fn warn_of_key_log(&mut self) {
        let Some((file, location)) = &self.draft.key_log else { return };
        let message = format!(
            "the secrets of all TLS sessions are written to {file}: every user with access to it can decrypt the \
            traffic"
        );
        self.context
            .diagnostics
            .push(Diagnostic::warning(Some(location), message).advise("remove `tls-keylog` when you no longer need it"));
    }

    fn tls(&mut self, credentials: &Credentials, named: &[Certificate], location: &Location) -> Result<Tls, Diagnostic> {
        let none = CredentialFiles::default();
        let (own, files) = match credentials {
            Credentials::Development => (development(location), &none),
            Credentials::Common => (self.common_certificate(location)?, &none),
            Credentials::Files(files) => (self.certificate(files, &[], location)?, files),
        };
        let (client_auth, authorities) = self.client_auth(files, location)?;
        let cipher_suites = files.ciphers.as_deref().map(|text| self.ciphers(text, location)).transpose()?.unwrap_or_default();
        let certificates = std::iter::once(own).chain(named.iter().cloned()).collect();
        Ok(Tls {
            certificates,
            least_version: self.draft.least_version,
            cipher_suites,
            client_auth,
            client_authorities: authorities.as_ref().map(|(read, _)| read.clone()).unwrap_or_default(),
            client_authorities_file: authorities.map(|(_, path)| path),
            verify_depth: self.draft.verify_depth,
            session_lifetime_s: self.draft.session_lifetime_s,
            exports_certificate: self.draft.exports_certificate,
            key_log: self.draft.key_log.as_ref().map(|(path, _)| self.context.absolute_at_start(path)),
            directory: self.draft.directory.as_ref().map(|(path, _)| self.context.absolute(path)),
        })
    }

    fn common_certificate(&mut self, location: &Location) -> Result<Certificate, Diagnostic> {
        let Some((certificate, named)) = self.draft.certificate.clone() else {
            let at = self.draft.key.as_ref().map_or(location, |(_, location)| location);
            return Err(Diagnostic::error(Some(at), "no certificate is named").advise(
                "write ADDRESS,CERTIFICATE,KEY; or `tls-certificate = FILE` and `tls-key = FILE`; or ADDRESS,auto for \
                development",
            ));
        };
        let key = self.draft.key.as_ref().map_or_else(|| certificate.clone(), |(key, _)| key.clone());
        self.certificate(&CredentialFiles { certificate, key, ..CredentialFiles::default() }, &[], &named)
    }

    /// The user that needs the keys which root reads.
    fn served(&self) -> Option<&Writer> {
        self.context.host.trust.served(self.identity)
    }

    /// Reads the certificate of an address.
    fn certificate(&mut self, files: &CredentialFiles, names: &[String], location: &Location) -> Result<Certificate, Diagnostic> {
        let path = |text: &str| normalized(&self.context.host.directory.join(text));
        let mut found = certificates::files(path(&files.certificate), path(&files.key));
        if let Some((ocsp, _)) = self.draft.ocsp.as_ref().filter(|_| names.is_empty()) {
            found.ocsp = Some(path(ocsp));
        }
        let read = self.context.host.known.certificate(&found, names, &location.to_string(), self.served());
        self.checked(read, location)
    }

    /// The certificates of `sni` and `sni-dir`.
    fn named_certificates(&mut self) -> Vec<Certificate> {
        let mut found = Vec::new();
        for (names, files, location) in self.draft.server_names.clone() {
            let path = |text: &str| normalized(&self.context.host.directory.join(text));
            let wanted = certificates::files(path(&files.certificate), path(&files.key));
            let read = self.context.host.known.certificate(&wanted, &names, &location.to_string(), self.served());
            self.keep(read, &location, &mut found);
            if let Some(authorities) = &files.client_authorities {
                self.check_authorities_of_name(authorities, &location);
            }
        }
        if let Some((written, location)) = self.draft.directory.clone() {
            let path = self.context.absolute(written);
            match certificates::directory(&path) {
                Ok(listed) => {
                    for (name, files) in listed {
                        let authorities = path.join(format!("{name}.ca"));
                        if authorities.is_file() {
                            self.check_authorities_of_name(&authorities.to_string_lossy(), &location);
                        }
                        if self.context.host.known.is_new(&files) {
                            continue;
                        }
                        let read = self.context.host.known.certificate(&files, &[name], &location.to_string(), self.served());
                        self.keep(read, &location, &mut found);
                    }
                }
                Err(fault) => self.context.diagnostics.push(fault.at(&location)),
            }
        }
        found
    }

    /// The server requests a client certificate before it knows the requested host, so authorities belong to addresses, and names
    /// have none of their own.
    fn check_authorities_of_name(&mut self, wanted: &str, location: &Location) {
        let path = |text: &str| normalized(&self.context.host.directory.join(text.strip_prefix('!').unwrap_or(text)));
        let common = self.draft.client_authorities.as_ref().map(|(text, _)| text.as_str());
        let of_address = |credentials: &Credentials| match credentials {
            Credentials::Files(files) => files.client_authorities.clone(),
            Credentials::Common | Credentials::Development => None,
        };
        let mut addresses = self.sockets.iter().filter_map(|socket| socket.credentials.as_ref());
        let is_same = addresses
            .all(|credentials| of_address(credentials).as_deref().or(common).is_some_and(|text| path(text) == path(wanted)));
        if !is_same {
            let message = format!(
                "client authorities of one name ({wanted}) are not supported yet: a client that asks for another name would not \
                    be asked for a certificate"
            );
            self.context.diagnostics.push(Diagnostic::error(Some(location), message).advise(
                "name them for the whole address: `https = ADDRESS,CERTIFICATE,KEY,,CLIENT-CA`, or `tls-client-ca = FILE`",
            ));
        }
    }

    fn keep(&mut self, read: Result<Certificate, CertificateError>, location: &Location, found: &mut Vec<Certificate>) {
        match self.checked(read, location) {
            Ok(certificate) => found.push(certificate),
            Err(diagnostic) => self.context.diagnostics.push(diagnostic),
        }
    }

    /// Checks a certificate. Remarks about it are reported once.
    fn checked(&mut self, read: Result<Certificate, CertificateError>, location: &Location) -> Result<Certificate, Diagnostic> {
        let checked = read.and_then(|read| certificates::check(&read).map(|remarks| (read, remarks)));
        let (certificate, remarks) = checked.map_err(|fault| fault.at(location))?;
        for remark in remarks {
            let diagnostic = Diagnostic::warning(Some(location), remark.message).advise(remark.advice).local();
            if !self.context.diagnostics.contains(&diagnostic) {
                self.context.diagnostics.push(diagnostic);
            }
        }
        Ok(certificate)
    }

    /// Returns whether clients present a certificate, and the accepted authorities.
    fn client_auth(
        &mut self,
        files: &CredentialFiles,
        location: &Location,
    ) -> Result<(ClientAuth, Option<Authorities>), Diagnostic> {
        let own = files.client_authorities.as_deref().map(|text| (text.to_owned(), location.clone()));
        let asked = self.draft.client_auth.clone();
        let Some((text, at)) = own.or_else(|| self.draft.client_authorities.clone()) else {
            return match asked {
                Some((ClientAuth::Optional, at)) => {
                    let message = "clients are not asked for certificates: it is not configured whose are accepted";
                    let warning = Diagnostic::warning(Some(&at), message);
                    self.context.diagnostics.push(warning.advise("name the authorities' certificates: `tls-client-ca = FILE`"));
                    Ok((ClientAuth::Off, None))
                }
                Some((ClientAuth::Required, at)) => {
                    Err(Diagnostic::error(Some(&at), "it is not configured whose certificates clients must show")
                        .advise("name the authorities' certificates: `tls-client-ca = FILE`"))
                }
                _ => Ok((ClientAuth::Off, None)),
            };
        };
        let (path, is_required) = text.strip_prefix('!').map_or((text.as_str(), false), |path| (path, true));
        let client_auth = match asked {
            _ if is_required => ClientAuth::Required,
            Some((client_auth, _)) => client_auth,
            None => ClientAuth::Optional,
        };
        if client_auth == ClientAuth::Off {
            return Ok((client_auth, None));
        }
        let path = self.context.absolute_at_start(path);
        let read = self.context.host.known.authorities(&path, self.served()).map_err(|fault| fault.at(&at))?;
        Ok((client_auth, Some((read, path))))
    }

    fn ciphers(&mut self, text: &str, location: &Location) -> Result<Vec<String>, Diagnostic> {
        let Some(read) = ciphers::read(text) else {
            return Err(Diagnostic::error(Some(location), format!("none of the ciphers in `{text}` is supported")).advise(
                "leave the ciphers out, or write some of `ECDHE+AESGCM:ECDHE+CHACHA20`: others have no forward secrecy, \
                    or no integrity protection",
            ));
        };
        if !read.left_out.is_empty() {
            let message = format!("unsupported ciphers are omitted: {}", read.left_out.join(", "));
            self.context.diagnostics.push(Diagnostic::warning(Some(location), message).advise(
                "they have no forward secrecy, or no integrity protection; every TLS 1.2 client since 2014 has better ones",
            ));
        }
        Ok(read.suites)
    }
}

/// The slot for a certificate that is generated when the instance starts.
fn development(location: &Location) -> Certificate {
    Certificate {
        names: Vec::new(),
        chain: Vec::new(),
        key: bolide_contract::tls::PrivateKey(Vec::new()),
        ocsp: None,
        files: None,
        origin: location.to_string(),
    }
}
