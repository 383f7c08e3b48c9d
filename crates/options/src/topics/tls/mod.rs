//! The options of TLS. It does not open files. Runs in the process that reads the configuration.

pub mod certificates;
pub mod ciphers;

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::Protocol;
use bolide_contract::tls::{ClientAuth, Http2, TlsVersion};

use crate::draft::Draft;
use crate::row::{
    OptionEntry, OptionRow, Reach, Setting, SocketKind, Value, accepted, field, on, refused, rows, set, supported, within, words,
};
use crate::topics::sockets;
use crate::topics::sockets::{CredentialFiles, Credentials, SocketDraft, SocketsDraft};
use crate::topics::tls::certificates::TlsDraft;
use crate::values;

const MODIFIER: Value = within(0, 255, "");

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

const TOO_OLD: &str = "remove it. TLS 1.2 is the minimum, since TLS 1.0, 1.1 and SSL must not be used (RFC 8996, RFC 7568)";

/// The value of `https` and of the options like it.
const ADDRESS: Value = Value::Form("`ADDRESS,CERTIFICATE,KEY[,CIPHERS[,CLIENT-CA]]`, `ADDRESS,auto`, or `ADDRESS`");

pub const ENTRIES: &[OptionEntry] = rows![
    /// Listen on this address with HTTPS: `ADDRESS,CERTIFICATE,KEY[,CIPHERS[,CLIENT-CA]]`. The files are in PEM. The
    /// certificate's file also contains the intermediate certificates. `ADDRESS,auto` creates a certificate for development,
    /// while `ADDRESS` alone uses that of `tls-certificate` and `tls-key`. CLIENT-CA asks clients for a certificate of these
    /// authorities, and `!CLIENT-CA` refuses clients without one.
    /// uWSGI: uWSGI accepts any client certificate, from any authority. Here an invalid one is refused. CIPHERS apply to TLS 1.2,
    /// as in uWSGI, but those without forward secrecy are omitted. A UNIX socket may speak TLS too.
    /// Example: https = :8443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          https = :8443,app.pem,app.key,HIGH,!clients.pem
    ///          https = 127.0.0.1:8443,auto
    supported("https", set!(|draft, _, pair| listen(draft, SocketKind::HttpRouter, &values::text(pair)?, pair)?))
        .takes(ADDRESS, "").several().reach(Reach::Master),
    /// Listen on this address with HTTPS, in another form: `addr=ADDRESS,cert=FILE,key=FILE[,ciphers=CIPHERS][,clientca=FILE]`.
    /// uWSGI: `spdy=1` is an error, because SPDY is obsolete and HTTP/2 is on.
    /// Example: https2 = addr=:8443,cert=app.pem,key=app.key
    supported("https2", set!(|draft, _, pair| listen(draft, SocketKind::HttpRouter, &of_key_values(pair)?, pair)?))
        .takes(Value::Form("`addr=ADDRESS,cert=FILE,key=FILE[,ciphers=CIPHERS][,clientca=FILE]`"), "")
        .several()
        .reach(Reach::Master),
    /// Like `https`, with the time limit of `socket-timeout`.
    /// uWSGI: uWSGI closes the connection after each response. Here it is kept alive.
    /// Example: https-socket = :8443,/etc/ssl/app.pem,/etc/ssl/app.key
    supported("https-socket", set!(|draft, _, pair| listen(draft, SocketKind::Of(Protocol::Http), &values::text(pair)?, pair)?))
        .takes(ADDRESS, "").several().reach(Reach::Master),
    /// The uWSGI plugin that serves requests of `https-socket`.
    /// Instead: leave it out, because every request goes to the application
    refused("https-socket-modifier1", MODIFIER),
    /// A variant of `https-socket-modifier1`.
    /// Instead: leave it out, because every request goes to the application
    refused("https-socket-modifier2", MODIFIER),
    /// Listen on this address with the uwsgi protocol over TLS, in the syntax of `https`. nginx speaks it with `uwsgi_pass
    /// suwsgi://…`.
    /// Example: ssl-socket = :3032,app.pem,app.key
    supported("ssl-socket", set!(|draft, _, pair| listen(draft, SocketKind::Of(Protocol::Uwsgi), &values::text(pair)?, pair)?))
        .takes(ADDRESS, "").several().reach(Reach::Master),
    /// The certificate, with its intermediate certificates, in PEM, of each `https` address without one. Without any `https`,
    /// the addresses of `http` and `http-socket` speak TLS with it.
    /// Example: https = :8443
    ///          tls-certificate = /etc/ssl/app.pem
    ///          tls-key = /etc/ssl/app.key
    supported("tls-certificate", Setting::Located(field!(TlsDraft.certificate)))
        .takes(Value::Path, "").also(&["certfile", "ssl-certfile", "ssl-certificate"]).reach(Reach::Master),
    /// The key of `tls-certificate`, in PEM and without a password.
    /// Example: https = :443
    ///          tls-certificate = /etc/ssl/app.pem
    ///          tls-key = /etc/ssl/app.key
    supported("tls-key", Setting::Located(field!(TlsDraft.key)))
        .takes(Value::Path, "the file of the certificate").also(&["keyfile", "ssl-keyfile"]).reach(Reach::Master),
    /// The password of the key.
    /// Instead: write the key without a password, with `openssl pkey -in KEY -out NEW` and mode 600. A server that starts
    /// unattended needs the password beside the key, where it does not protect anything
    refused("ssl-keyfile-password", Value::Text).also(&["keyfile-password"]),
    /// Certificates, in PEM, of the authorities whose clients are accepted, for each address that does not have its own.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          tls-client-ca = clients.pem
    ///          tls-client-auth = required
    supported("tls-client-ca", Setting::Located(field!(TlsDraft.client_authorities)))
        .takes(Value::Path, "").also(&["ca-certs", "ssl-ca-certs"]).reach(Reach::Master),
    /// Whether clients are asked for a certificate: `off`, `optional` (clients without one are accepted, clients with an invalid
    /// one are refused) or `required`. The numbers 0, 1 and 2 mean the same. With client authorities, `optional` is the default.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          tls-client-ca = clients.pem
    ///          tls-client-auth = required
    supported(
        "tls-client-auth",
        set!(|draft, _, pair| {
            draft.of::<TlsDraft>().client_auth = Some((draft.one_of(pair, &CLIENT_AUTH)?, pair.location.clone()));
        }),
    )
    .takes(Value::OneOf(&CLIENT_AUTH_WORDS), "off")
    .also(&["cert-reqs", "ssl-cert-reqs"])
    .reach(Reach::Master),
    /// The oldest supported version of TLS: `1.2` or `1.3`.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          tls-min-version = 1.3
    supported("tls-min-version", set!(|draft, _, pair| draft.of::<TlsDraft>().least_version = draft.one_of(pair, &VERSIONS)?))
        .takes(Value::OneOf(&VERSION_WORDS), "1.2").reach(Reach::Master),
    /// A file with an OCSP response (DER), which proves that the certificate of the `https` addresses is not revoked. Clients get
    /// it with the certificate. Responses for other certificates are next to them, as CERTIFICATE.ocsp.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          tls-ocsp-file = /etc/ssl/app.ocsp
    supported("tls-ocsp-file", Setting::Located(field!(TlsDraft.ocsp))).takes(Value::Path, "").reach(Reach::Master),
    /// Write the secrets of all TLS sessions into this file, so that Wireshark can decrypt the traffic. Anyone with access to the
    /// file can decrypt it too, so use this option for debugging only.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          tls-keylog = /tmp/keys.log
    supported("tls-keylog", Setting::Located(field!(TlsDraft.key_log))).takes(Value::Path, "").reach(Reach::Master),
    /// Where HTTP/2 is available. With `on`, clients negotiate it in TLS. With `h2c`, it is also available on addresses without
    /// TLS. `off` disables it.
    /// Example: http2 = h2c
    supported("http2", set!(|draft, _, pair| draft.of::<TlsDraft>().http2 = draft.one_of(pair, &HTTP2)?))
        .takes(Value::OneOf(&HTTP2_WORDS), "on").reach(Reach::Application),
    /// Listen on this address with HTTP, and redirect each client to the same path with `https`. The status is 301 for GET and
    /// HEAD, and 308 for the other methods, so that clients repeat the method. Write `ADDRESS,PORT` if the port of HTTPS is not
    /// 443.
    /// uWSGI: uWSGI answers 301 to all methods, and clients then turn a POST into a GET.
    /// Example: http-to-https = :80
    ///          http-to-https = :8080,8443
    supported("http-to-https", Setting::By(http_to_https)).takes(Value::Address, "").reach(Reach::Master),
    /// Pass the client's certificate itself to the application, in PEM, as `HTTPS_CC` and `SSL_CLIENT_CERT`.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          https-export-cert = true
    on("https-export-cert", Setting::Switch(field!(TlsDraft.exports_certificate))).reach(Reach::Master),
    /// The maximum number of intermediate certificates between a client's and its authority's.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          ssl-verify-depth = 2
    supported("ssl-verify-depth", Setting::Number(field!(TlsDraft.verify_depth)))
        .takes(within(0, MAX_DEPTH, "certificates"), "1").reach(Reach::Master),
    /// How long a TLS session can be resumed, on any worker and after a reload. With 0 it can't be resumed.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          ssl-sessions-timeout = 3600
    supported("ssl-sessions-timeout", Setting::Number(field!(TlsDraft.session_lifetime_s)))
        .takes(within(0, MAX_SESSION_SECONDS, "seconds"), "300").reach(Reach::Master),
    /// Keep TLS sessions in a cache that all workers share.
    /// Why: clients keep their sessions themselves, as tickets that every worker can read
    accepted("ssl-sessions-use-cache", Value::Text),
    /// Name the context of TLS sessions.
    /// Why: a session can be resumed with the same listener settings, whatever their name
    accepted("https-session-context", Value::Text),
    /// The directory for certificates that are written into the configuration itself.
    /// Why: certificates and keys stay in memory, and are not written to files
    accepted("ssl-tmp-dir", Value::Path),
    /// Log TLS failures.
    /// Why: a failed handshake is always logged, once per peer and minute
    accepted("ssl-verbose", Value::Switch),
    /// A certificate for clients that ask for these names: `NAME CERTIFICATE,KEY`. Separate several names by commas.
    /// `*.example.com` stands for each name of one level.
    /// uWSGI: CIPHERS and CLIENT-CA after the key apply to the whole address here, so write them with `https`. A client authority
    /// that the address does not have is an error.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          sni = api.example.com /etc/ssl/api.pem,/etc/ssl/api.key
    ///          sni = example.org,*.example.org org.pem,org.key
    supported("sni", Setting::By(add_server_name))
        .takes(Value::Form("`NAME[,NAME…] CERTIFICATE,KEY`"), "").several().reach(Reach::Master),
    /// Like `sni`, for clients that ask for names that match an expression. In Bolide the certificate is used for the names that
    /// it contains.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          sni-regexp = ^(www\.)?example\.org$ org.pem,org.key
    supported("sni-regexp", Setting::By(add_server_name))
        .takes(Value::Form("`EXPRESSION CERTIFICATE,KEY`"), "").several().reach(Reach::Master),
    /// A directory with a certificate NAME.crt and a key NAME.key for each name that clients ask for.
    /// uWSGI: uWSGI looks for the files at each connection, as the user of the workers. Here root reads them at startup and at
    /// each reload. NAME.ca is an error, unless the address has the same client authorities.
    /// Example: https = :443,/etc/ssl/app.pem,/etc/ssl/app.key
    ///          sni-dir = /etc/ssl/sites
    supported("sni-dir", Setting::Located(field!(TlsDraft.directory))).takes(Value::Path, "").reach(Reach::Master),
    /// Ciphers of the certificates of `sni-dir`.
    /// Instead: write them with `https`, because they apply to all certificates of the address
    refused("sni-dir-ciphers", Value::Text),
    /// Enable SSL 3.
    refused("ssl-enable-sslv3", Value::Switch).reason(TOO_OLD),
    /// Enable TLS 1.0.
    refused("ssl-enable-tlsv1", Value::Switch).reason(TOO_OLD),
    /// A number for OpenSSL's SSL_CTX_set_options.
    /// Instead: remove it, because Bolide does not use OpenSSL. Use `tls-min-version`, and CIPHERS of `https`
    refused("ssl-option", Value::List),
];

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
            return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` lacks a certificate or a key", pair.key))
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
            return Err(Diagnostic::error(
                Some(&pair.location),
                format!("`{} = {text}` does not contain a port of HTTPS", pair.key),
            )
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
        Diagnostic::error(Some(&pair.location), format!("`{} = {text}` does not contain a certificate and a key", pair.key))
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
