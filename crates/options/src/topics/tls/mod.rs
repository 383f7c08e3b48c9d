//! Resolves the options of TLS to the certificates, ciphers and client authorities of each listener. It reads the files that they
//! name. Relative paths start at the folder of the start, since uWSGI reads these files before `chdir`. Runs in the process that
//! reads the configuration.

pub mod ciphers;

use std::path::PathBuf;

use bolide_configuration::certificates::{self, CertificateError};
use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::trust::Writer;
use bolide_contract::settings::{Identity, Protocol};
use bolide_contract::tls::{Certificate, ClientAuth, Http2, Tls, TlsVersion};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, SocketKind, Value, set, words};
use crate::topics::sockets;
use crate::topics::sockets::{CredentialFiles, Credentials, SocketDraft, SocketsDraft};
use crate::values;

const MODIFIER: Value = Value::Number { least: 0, most: 255, unit: "" };

/// RFC 8446 section 4.6.1: a ticket must not be used for longer than seven days.
const MAX_SESSION_SECONDS: i64 = 7 * 24 * 3600;
/// Longer chains between a client's certificate and its authority do not occur in practice.
const MAX_DEPTH: i64 = 16;

const VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];
const VERSION_WORDS: [&str; 2] = words(&VERSIONS);

/// The numbers are those of Python's `ssl` module, which gunicorn and uvicorn accept.
const CLIENT_AUTH: [(&str, ClientAuth); 6] = [
    ("off", ClientAuth::Off),
    ("optional", ClientAuth::Optional),
    ("required", ClientAuth::Required),
    ("0", ClientAuth::Off),
    ("1", ClientAuth::Optional),
    ("2", ClientAuth::Required),
];
const CLIENT_AUTH_WORDS: [&str; 6] = words(&CLIENT_AUTH);

const HTTP2: [(&str, Http2); 7] = [
    ("on", Http2::Tls),
    ("off", Http2::Off),
    ("h2c", Http2::Everywhere),
    ("true", Http2::Tls),
    ("false", Http2::Off),
    ("1", Http2::Tls),
    ("0", Http2::Off),
];
const HTTP2_WORDS: [&str; 7] = words(&HTTP2);

const TOO_OLD: &str =
    "remove it: clients without TLS 1.2 are not served, since TLS 1.0, 1.1 and SSL must not be used (RFC 8996, RFC 7568)";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("https", set!(|draft, _, pair| listen(draft, SocketKind::HttpRouter, &values::text(pair)?, pair)?), Value::Special, "", "Listen on this address with HTTPS: `ADDRESS,CERTIFICATE,KEY[,CIPHERS[,CLIENT-CA]]`, files in PEM. The certificate's file also contains the intermediate certificates. `ADDRESS,auto` creates a certificate for development; `ADDRESS` alone uses that of `tls-certificate` and `tls-key`. CLIENT-CA asks clients for a certificate of these authorities, `!CLIENT-CA` refuses those without one.").several()
        .uwsgi("uWSGI accepts any client certificate, from any authority; here an invalid one is refused. CIPHERS apply to TLS 1.2, as there; those without forward secrecy are omitted. A UNIX socket may speak TLS too.")
        .example("https = :8443,/etc/ssl/app.pem,/etc/ssl/app.key\nhttps = :8443,app.pem,app.key,HIGH,!clients.pem\nhttps = 127.0.0.1:8443,auto").reach(Reach::Master),
    OptionEntry::supported("https2", set!(|draft, _, pair| listen(draft, SocketKind::HttpRouter, &of_key_values(pair)?, pair)?), Value::Special, "", "Listen on this address with HTTPS, in another form: `addr=ADDRESS,cert=FILE,key=FILE[,ciphers=CIPHERS][,clientca=FILE]`.").several()
        .uwsgi("`spdy=1` is an error: SPDY is obsolete, and HTTP/2 is on.")
        .example("https2 = addr=:8443,cert=app.pem,key=app.key").reach(Reach::Master),
    OptionEntry::supported("https-socket", set!(|draft, _, pair| listen(draft, SocketKind::Of(Protocol::Http), &values::text(pair)?, pair)?), Value::Special, "", "Like `https`, with the time limit of `socket-timeout`.").several()
        .uwsgi("uWSGI closes the connection after each response; here it is kept alive.")
        .example("https-socket = :8443,/etc/ssl/app.pem,/etc/ssl/app.key").reach(Reach::Master),
    OptionEntry::refused("https-socket-modifier1", MODIFIER, "The uWSGI plugin that serves requests of `https-socket`.", "leave it out: every request goes to the application"),
    OptionEntry::refused("https-socket-modifier2", MODIFIER, "A variant of `https-socket-modifier1`.", "leave it out: every request goes to the application"),
    OptionEntry::supported("ssl-socket", set!(|draft, _, pair| listen(draft, SocketKind::Of(Protocol::Uwsgi), &values::text(pair)?, pair)?), Value::Special, "", "Listen on this address with the uwsgi protocol over TLS, in the syntax of `https`. nginx speaks it with `uwsgi_pass suwsgi://…`.").several()
        .example("ssl-socket = :3032,app.pem,app.key").reach(Reach::Master),
    OptionEntry::supported("tls-certificate", Setting::Located(|draft| &mut draft.of::<TlsDraft>().certificate), Value::Path, "", "The certificate, with its intermediate certificates, in PEM, of each `https` address that names none. Without any `https`, the addresses of `http` and `http-socket` speak TLS with it.")
        .example("https = :8443\ntls-certificate = /etc/ssl/app.pem\ntls-key = /etc/ssl/app.key")
        .also(&["certfile", "ssl-certfile", "ssl-certificate"]).reach(Reach::Master),
    OptionEntry::supported("tls-key", Setting::Located(|draft| &mut draft.of::<TlsDraft>().key), Value::Path, "the file of the certificate", "The key of `tls-certificate`, in PEM and without a password.")
        .example("tls-key = /etc/ssl/app.key")
        .also(&["keyfile", "ssl-keyfile"]).reach(Reach::Master),
    OptionEntry::refused("ssl-keyfile-password", Value::Text, "The password of the key.", "a server that starts unattended needs the password beside the key, where it protects nothing: write the key without one, with `openssl pkey -in KEY -out NEW` and mode 600")
        .also(&["keyfile-password"]),
    OptionEntry::supported("tls-client-ca", Setting::Located(|draft| &mut draft.of::<TlsDraft>().client_authorities), Value::Path, "", "Certificates, in PEM, of the authorities whose clients are accepted, for each address that names none itself.")
        .example("tls-client-ca = clients.pem\ntls-client-auth = required")
        .also(&["ca-certs", "ssl-ca-certs"]).reach(Reach::Master),
    OptionEntry::supported("tls-client-auth", set!(|draft, _, pair| draft.of::<TlsDraft>().client_auth = Some((draft.one_of(pair, &CLIENT_AUTH)?, pair.location.clone()))), Value::OneOf(&CLIENT_AUTH_WORDS), "off", "Whether clients are asked for a certificate: `off`, `optional` (clients without one are accepted, clients with an invalid one are refused) or `required`; 0, 1 and 2 mean the same. With client authorities, `optional` is the default.")
        .example("tls-client-auth = required")
        .also(&["cert-reqs", "ssl-cert-reqs"]).reach(Reach::Master),
    OptionEntry::supported("tls-min-version", set!(|draft, _, pair| draft.of::<TlsDraft>().least_version = draft.one_of(pair, &VERSIONS)?), Value::OneOf(&VERSION_WORDS), "1.2", "The oldest supported version of TLS: `1.2` or `1.3`.")
        .example("tls-min-version = 1.3").reach(Reach::Master),
    OptionEntry::supported("tls-ocsp-file", Setting::Located(|draft| &mut draft.of::<TlsDraft>().ocsp), Value::Path, "", "An OCSP response (DER) that says that the certificate of the `https` addresses is not revoked; clients get it with the certificate. Responses for other certificates are found beside them, as CERTIFICATE.ocsp.")
        .example("tls-ocsp-file = /etc/ssl/app.ocsp").reach(Reach::Master),
    OptionEntry::supported("tls-keylog", Setting::Located(|draft| &mut draft.of::<TlsDraft>().key_log), Value::Path, "", "Writes the secrets of all TLS sessions into this file, so that Wireshark can decrypt the traffic. Anyone with access to the file can decrypt it too: use it for debugging only.")
        .example("tls-keylog = /tmp/keys.log").reach(Reach::Master),
    OptionEntry::supported("http2", set!(|draft, _, pair| draft.of::<TlsDraft>().http2 = draft.one_of(pair, &HTTP2)?), Value::OneOf(&HTTP2_WORDS), "on", "Where HTTP/2 is available: `on`, with TLS clients that negotiate it; `h2c`, on addresses without TLS too; `off`.")
        .example("http2 = h2c").reach(Reach::Application),
    OptionEntry::supported("http-to-https", Setting::By(http_to_https), Value::Address, "", "Listen on this address with HTTP, and redirect each client to the same path with `https`: 301 for GET and HEAD, 308 for the others, which repeats the method. `ADDRESS,PORT` names the port of HTTPS if it is not 443.")
        .uwsgi("uWSGI answers 301 to all methods, and clients then turn a POST into a GET.")
        .example("http-to-https = :80\nhttp-to-https = :8080,8443").reach(Reach::Master),
    OptionEntry::supported("https-export-cert", Setting::Switch(|draft| &mut draft.of::<TlsDraft>().exports_certificate), Value::Switch, "off", "The application sees the client's certificate itself: `HTTPS_CC` and `SSL_CLIENT_CERT`, in PEM.")
        .example("https-export-cert = true").reach(Reach::Master),
    OptionEntry::supported("ssl-verify-depth", Setting::Number(|draft| &mut draft.of::<TlsDraft>().verify_depth), Value::Number { least: 0, most: MAX_DEPTH, unit: "certificates" }, "1", "The maximum number of intermediate certificates between a client's and its authority's.")
        .example("ssl-verify-depth = 2").reach(Reach::Master),
    OptionEntry::supported("ssl-sessions-timeout", Setting::Number(|draft| &mut draft.of::<TlsDraft>().session_lifetime_s), Value::Number { least: 0, most: MAX_SESSION_SECONDS, unit: "seconds" }, "300", "How long a TLS session can be resumed, on any worker and after a reload; 0 means never.")
        .example("ssl-sessions-timeout = 3600").reach(Reach::Master),
    OptionEntry::accepted("ssl-sessions-use-cache", Value::Text, "Keeps TLS sessions in a cache that all workers share.", "clients keep their sessions themselves, as tickets that every worker can read"),
    OptionEntry::accepted("https-session-context", Value::Text, "Names the context of TLS sessions.", "a session can be resumed with the same listener settings, whatever their name"),
    OptionEntry::accepted("ssl-tmp-dir", Value::Path, "The folder for certificates that are written into the configuration itself.", "nothing is written: certificates and keys stay in memory"),
    OptionEntry::accepted("ssl-verbose", Value::Switch, "Logs TLS failures.", "a failed handshake is always logged, once per peer and minute"),
    OptionEntry::supported("sni", Setting::By(add_server_name), Value::Special, "", "A certificate for clients that ask for these names: `NAME CERTIFICATE,KEY`; several names separated by commas, `*.example.com` for each of one level.").several()
        .uwsgi("CIPHERS and CLIENT-CA after the key apply to the whole address here: name them with `https`. A client authority that the address does not have is an error.")
        .example("sni = api.example.com /etc/ssl/api.pem,/etc/ssl/api.key\nsni = example.org,*.example.org org.pem,org.key").reach(Reach::Master),
    OptionEntry::supported("sni-regexp", Setting::By(add_server_name), Value::Special, "", "A certificate for clients that ask for names that match an expression, otherwise as `sni`; here the certificate is used for the names that it contains.").several()
        .example("sni-regexp = ^(www\\.)?example\\.org$ org.pem,org.key").reach(Reach::Master),
    OptionEntry::supported("sni-dir", Setting::Located(|draft| &mut draft.of::<TlsDraft>().folder), Value::Path, "", "A folder with a certificate NAME.crt and a key NAME.key for each name that clients ask for.")
        .uwsgi("uWSGI looks for the files at each connection, as the user who serves; here they are read at the start and at each reload, while root still can. NAME.ca is an error, unless the address has the same client authorities.")
        .example("sni-dir = /etc/ssl/sites").reach(Reach::Master),
    OptionEntry::refused("sni-dir-ciphers", Value::Text, "Ciphers of the certificates of `sni-dir`.", "name them with `https`: they apply to all certificates of the address"),
    OptionEntry::refused("ssl-enable-sslv3", Value::Switch, "Enables SSL 3.", TOO_OLD),
    OptionEntry::refused("ssl-enable-tlsv1", Value::Switch, "Enables TLS 1.0.", TOO_OLD),
    OptionEntry::refused("ssl-option", Value::List, "A number for OpenSSL's SSL_CTX_set_options.", "remove it: there is no OpenSSL here; see `tls-min-version`, and CIPHERS of `https`"),
];

/// The PEM of authorities, and its file.
type Authorities = (Vec<u8>, PathBuf);

/// The default port of an `https` URL.
const HTTPS_PORT: u16 = 443;

/// `ADDR,CERT,KEY[,CIPHERS[,CLIENTCA]]`, `ADDR,auto`, `ADDR`.
pub fn listen(draft: &mut Draft, kind: SocketKind, text: &str, pair: &Pair) -> Result<(), Diagnostic> {
    let mut words = text.splitn(5, ',').map(str::trim);
    let written = words.next().unwrap_or_default();
    let address = Pair { value: Some(written.to_owned()), ..pair.clone() };
    let address = sockets::address_of(draft, &address)?;
    let rest: Vec<&str> = words.collect();
    let optional = |index: usize| rest.get(index).copied().filter(|text| !text.is_empty()).map(str::to_owned);
    let credentials = match rest.as_slice() {
        [] => Credentials::Common,
        ["auto"] => Credentials::Development,
        [certificate, ..] if certificate.is_empty() || rest.get(1).is_some_and(|key| key.is_empty()) => {
            return Err(Diagnostic::error(
                Some(&pair.location),
                format!("`{} = {text}` names no certificate or no key", pair.key),
            )
            .advise("write ADDRESS,CERTIFICATE,KEY; or ADDRESS,auto for a certificate for development"));
        }
        [certificate, ..] => Credentials::Files(CredentialFiles {
            certificate: (*certificate).to_owned(),
            key: optional(1).unwrap_or_else(|| (*certificate).to_owned()),
            ciphers: optional(2),
            client_authorities: optional(3),
        }),
    };
    let socket = SocketDraft::new(kind, address, pair.location.clone());
    draft.of::<SocketsDraft>().list.push(SocketDraft { credentials: Some(credentials), ..socket });
    Ok(())
}

/// Bits of `ssl-option`, OpenSSL's SSL_CTX_set_options, that switch off what does not exist here: SSL 2 and 3, TLS 1.0 and 1.1,
/// compression, keys that are used twice, and workarounds for old clients.
const SSL_BITS_OF_NOTHING: i64 =
    0x0100_0000 | 0x0200_0000 | 0x0400_0000 | 0x1000_0000 | 0x0002_0000 | 0x0010_0000 | 0x0008_0000 | 0x8000_0850;

/// Whether this number of `ssl-option` asks only for what is the case anyway.
pub fn asks_for_nothing(pair: &Pair) -> bool {
    let bits = bolide_configuration::values::number(pair.value.as_deref().unwrap_or_default()).value;
    bits >= 0 && bits & !SSL_BITS_OF_NOTHING == 0
}

/// `ADDR[,PORT]`.
pub fn http_to_https(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let (written, port) = text.split_once(',').map_or((text.as_str(), None), |(written, port)| (written, Some(port.trim())));
    let https_port = match port.map(str::parse::<u16>) {
        None => HTTPS_PORT,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => {
            return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` names no port of HTTPS", pair.key))
                .advise("write ADDRESS,PORT, such as :80,8443"));
        }
    };
    let address = sockets::address_of(draft, &Pair { value: Some(written.to_owned()), ..pair.clone() })?;
    let socket = SocketDraft::new(SocketKind::HttpRouter, address, pair.location.clone());
    draft.of::<SocketsDraft>().list.push(SocketDraft { https_port: Some(https_port), ..socket });
    Ok(())
}

/// `NAME CERT,KEY[,CIPHERS[,CLIENTCA]]`. The name in `sni-regexp` is an expression; the certificate's own names replace it.
pub fn add_server_name(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let wrong = || {
        Diagnostic::error(Some(&pair.location), format!("`{} = {text}` names no certificate and key", pair.key))
            .advise("write the name, a space, and the files: `example.com example.pem,example.key`")
    };
    let (name, files) = text.split_once(' ').ok_or_else(wrong)?;
    let words: Vec<&str> = files.splitn(4, ',').map(str::trim).collect();
    let optional = |index: usize| words.get(index).copied().filter(|text| !text.is_empty()).map(str::to_owned);
    let (Some(certificate), Some(key)) = (optional(0), optional(1)) else { return Err(wrong()) };
    let files = CredentialFiles { certificate, key, ciphers: optional(2), client_authorities: optional(3) };
    if files.ciphers.is_some() {
        let message = format!("the ciphers of `{name}` have no effect: those of the address apply to all its certificates");
        draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise("name them with `https`"));
    }
    let names = match row.name() {
        "sni-regexp" => Vec::new(),
        _ => name.split(',').filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect(),
    };
    draft.of::<TlsDraft>().server_names.push((names, files, pair.location.clone()));
    Ok(())
}

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
        let named = [&draft.client_authorities, &draft.key_log, &draft.ocsp, &draft.folder];
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
            "the secrets of all TLS sessions are written to {file}: every user who reads it can decrypt the \
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
            folder: self.draft.folder.as_ref().map(|(path, _)| self.context.absolute(path)),
        })
    }

    fn common_certificate(&mut self, location: &Location) -> Result<Certificate, Diagnostic> {
        let Some((certificate, named)) = self.draft.certificate.clone() else {
            let at = self.draft.key.as_ref().map_or(location, |(_, location)| location);
            return Err(Diagnostic::error(Some(at), "no certificate is named")
                .advise("write ADDRESS,CERTIFICATE,KEY; or `tls-certificate = FILE` and `tls-key = FILE`; or ADDRESS,auto for development"));
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
        let path = |text: &str| normalized(&self.context.host.folder.join(text));
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
            let path = |text: &str| normalized(&self.context.host.folder.join(text));
            let wanted = certificates::files(path(&files.certificate), path(&files.key));
            let read = self.context.host.known.certificate(&wanted, &names, &location.to_string(), self.served());
            self.keep(read, &location, &mut found);
            if let Some(authorities) = &files.client_authorities {
                self.check_authorities_of_name(authorities, &location);
            }
        }
        if let Some((written, location)) = self.draft.folder.clone() {
            let path = self.context.absolute(written);
            match certificates::folder(&path) {
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
        let path = |text: &str| normalized(&self.context.host.folder.join(text.strip_prefix('!').unwrap_or(text)));
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
            return Err(Diagnostic::error(Some(location), format!("no cipher of `{text}` is supported")).advise(
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

impl SocketDraft {
    /// The protocol of this socket, with `default` as the value of `protocol`.
    pub(super) fn protocol(&self, default: Protocol) -> Protocol {
        match self.kind {
            SocketKind::HttpRouter => Protocol::Http,
            SocketKind::Of(protocol) => protocol,
            SocketKind::Default => default,
        }
    }
}

/// Converts the `KEY=VALUE` form of `https2` to the form of `https`.
pub fn of_key_values(pair: &Pair) -> Result<String, Diagnostic> {
    let text = values::text(pair)?;
    let wrong = |message: String| Diagnostic::error(Some(&pair.location), message);
    let (mut address, mut certificate, mut key, mut ciphers, mut authorities) = ("", "", "", "", "");
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let Some((name, value)) = item.split_once('=') else {
            return Err(wrong(format!("`{item}` of `{}` has no `=`", pair.key)).advise("write addr=ADDRESS,cert=FILE,key=FILE"));
        };
        match name.trim() {
            "addr" => address = value,
            "cert" | "crt" => certificate = value,
            "key" => key = value,
            "ciphers" => ciphers = value,
            "clientca" | "client_ca" => authorities = value,
            "spdy" => {
                return Err(
                    wrong("SPDY is obsolete".to_owned()).advise("remove `spdy`: HTTP/2 replaced it and is on (`http2 = on`)")
                );
            }
            _ => {
                let advice = "the keys are addr, cert, key, ciphers and clientca";
                return Err(wrong(format!("`{item}` of `{}` is unknown", pair.key)).advise(advice));
            }
        }
    }
    if address.is_empty() || certificate.is_empty() || key.is_empty() {
        return Err(
            wrong(format!("`{} = {text}` needs addr, cert and key", pair.key)).advise("write addr=ADDRESS,cert=FILE,key=FILE")
        );
    }
    Ok([address, certificate, key, ciphers, authorities].join(","))
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

/// As in uWSGI.
pub const SESSION_LIFETIME_S: u32 = 300;

/// Settings of TLS that apply to all addresses without their own. Paths are as written.
pub struct TlsDraft {
    pub certificate: Option<(String, Location)>,
    pub key: Option<(String, Location)>,
    pub client_authorities: Option<(String, Location)>,
    pub client_auth: Option<(ClientAuth, Location)>,
    pub least_version: TlsVersion,
    pub key_log: Option<(String, Location)>,
    pub ocsp: Option<(String, Location)>,
    pub exports_certificate: bool,
    pub verify_depth: u32,
    pub session_lifetime_s: u32,
    /// Host names, if any, with their certificates.
    pub server_names: Vec<(Vec<String>, CredentialFiles, Location)>,
    pub folder: Option<(String, Location)>,
    pub http2: Http2,
}

impl Default for TlsDraft {
    fn default() -> TlsDraft {
        TlsDraft {
            certificate: None,
            key: None,
            client_authorities: None,
            client_auth: None,
            least_version: TlsVersion::Tls12,
            key_log: None,
            ocsp: None,
            exports_certificate: false,
            verify_depth: 1,
            session_lifetime_s: SESSION_LIFETIME_S,
            server_names: Vec::new(),
            folder: None,
            http2: Http2::default(),
        }
    }
}
