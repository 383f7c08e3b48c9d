//! Rows of TLS: its addresses, their certificates, and HTTP/2, which browsers speak only over TLS. Pure data.

use crate::resolve::tls::TlsDraft;
use bolide_contract::settings::Protocol;
use bolide_contract::tls::{ClientAuth, Http2, TlsVersion};

use crate::resolve::tls;
use crate::row::SocketKind;
use crate::row::{OptionEntry, Setting, Value, set, words};
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
    OptionEntry::supported("https", set!(|draft, _, pair| tls::listen(draft, SocketKind::HttpRouter, &values::text(pair)?, pair)?), Value::Special, "", "Listen on this address with HTTPS: `ADDRESS,CERTIFICATE,KEY[,CIPHERS[,CLIENT-CA]]`, files in PEM. The certificate's file also contains the intermediate certificates. `ADDRESS,auto` creates a certificate for development; `ADDRESS` alone uses that of `tls-certificate` and `tls-key`. CLIENT-CA asks clients for a certificate of these authorities, `!CLIENT-CA` refuses those without one.").several()
        .uwsgi("uWSGI accepts any client certificate, from any authority; here an invalid one is refused. CIPHERS apply to TLS 1.2, as there; those without forward secrecy are omitted. A UNIX socket may speak TLS too.")
        .example("https = :8443,/etc/ssl/app.pem,/etc/ssl/app.key\nhttps = :8443,app.pem,app.key,HIGH,!clients.pem\nhttps = 127.0.0.1:8443,auto"),
    OptionEntry::supported("https2", set!(|draft, _, pair| tls::listen(draft, SocketKind::HttpRouter, &tls::of_key_values(pair)?, pair)?), Value::Special, "", "Listen on this address with HTTPS, in another form: `addr=ADDRESS,cert=FILE,key=FILE[,ciphers=CIPHERS][,clientca=FILE]`.").several()
        .uwsgi("`spdy=1` is an error: SPDY is obsolete, and HTTP/2 is on.")
        .example("https2 = addr=:8443,cert=app.pem,key=app.key"),
    OptionEntry::supported("https-socket", set!(|draft, _, pair| tls::listen(draft, SocketKind::Of(Protocol::Http), &values::text(pair)?, pair)?), Value::Special, "", "Like `https`, with the time limit of `socket-timeout`.").several()
        .uwsgi("uWSGI closes the connection after each response; here it is kept alive.")
        .example("https-socket = :8443,/etc/ssl/app.pem,/etc/ssl/app.key"),
    OptionEntry::refused("https-socket-modifier1", MODIFIER, "The uWSGI plugin that serves requests of `https-socket`.", "leave it out: every request goes to the application"),
    OptionEntry::refused("https-socket-modifier2", MODIFIER, "A variant of `https-socket-modifier1`.", "leave it out: every request goes to the application"),
    OptionEntry::supported("ssl-socket", set!(|draft, _, pair| tls::listen(draft, SocketKind::Of(Protocol::Uwsgi), &values::text(pair)?, pair)?), Value::Special, "", "Listen on this address with the uwsgi protocol over TLS, in the syntax of `https`. nginx speaks it with `uwsgi_pass suwsgi://…`.").several()
        .example("ssl-socket = :3032,app.pem,app.key"),
    OptionEntry::supported("tls-certificate", Setting::Located(|draft| &mut draft.of::<TlsDraft>().certificate), Value::Path, "", "The certificate, with its intermediate certificates, in PEM, of each `https` address that names none. Without any `https`, the addresses of `http` and `http-socket` speak TLS with it.")
        .example("https = :8443\ntls-certificate = /etc/ssl/app.pem\ntls-key = /etc/ssl/app.key")
        .also(&["certfile", "ssl-certfile", "ssl-certificate"]),
    OptionEntry::supported("tls-key", Setting::Located(|draft| &mut draft.of::<TlsDraft>().key), Value::Path, "the file of the certificate", "The key of `tls-certificate`, in PEM and without a password.")
        .example("tls-key = /etc/ssl/app.key")
        .also(&["keyfile", "ssl-keyfile"]),
    OptionEntry::refused("ssl-keyfile-password", Value::Text, "The password of the key.", "a server that starts unattended needs the password beside the key, where it protects nothing: write the key without one, with `openssl pkey -in KEY -out NEW` and mode 600")
        .also(&["keyfile-password"]),
    OptionEntry::supported("tls-client-ca", Setting::Located(|draft| &mut draft.of::<TlsDraft>().client_authorities), Value::Path, "", "Certificates, in PEM, of the authorities whose clients are accepted, for each address that names none itself.")
        .example("tls-client-ca = clients.pem\ntls-client-auth = required")
        .also(&["ca-certs", "ssl-ca-certs"]),
    OptionEntry::supported("tls-client-auth", set!(|draft, _, pair| draft.of::<TlsDraft>().client_auth = Some((draft.one_of(pair, &CLIENT_AUTH)?, pair.location.clone()))), Value::OneOf(&CLIENT_AUTH_WORDS), "off", "Whether clients are asked for a certificate: `off`, `optional` (clients without one are accepted, clients with an invalid one are refused) or `required`; 0, 1 and 2 mean the same. With client authorities, `optional` is the default.")
        .example("tls-client-auth = required")
        .also(&["cert-reqs", "ssl-cert-reqs"]),
    OptionEntry::supported("tls-min-version", set!(|draft, _, pair| draft.of::<TlsDraft>().least_version = draft.one_of(pair, &VERSIONS)?), Value::OneOf(&VERSION_WORDS), "1.2", "The oldest supported version of TLS: `1.2` or `1.3`.")
        .example("tls-min-version = 1.3"),
    OptionEntry::supported("tls-ocsp-file", Setting::Located(|draft| &mut draft.of::<TlsDraft>().ocsp), Value::Path, "", "An OCSP response (DER) that says that the certificate of the `https` addresses is not revoked; clients get it with the certificate. Responses for other certificates are found beside them, as CERTIFICATE.ocsp.")
        .example("tls-ocsp-file = /etc/ssl/app.ocsp"),
    OptionEntry::supported("tls-keylog", Setting::Located(|draft| &mut draft.of::<TlsDraft>().key_log), Value::Path, "", "Writes the secrets of all TLS sessions into this file, so that Wireshark can decrypt the traffic. Anyone with access to the file can decrypt it too: use it for debugging only.")
        .example("tls-keylog = /tmp/keys.log"),
    OptionEntry::supported("http2", set!(|draft, _, pair| draft.of::<TlsDraft>().http2 = draft.one_of(pair, &HTTP2)?), Value::OneOf(&HTTP2_WORDS), "on", "Where HTTP/2 is available: `on`, with TLS clients that negotiate it; `h2c`, on addresses without TLS too; `off`.")
        .example("http2 = h2c"),
    OptionEntry::supported("http-to-https", Setting::By(tls::http_to_https), Value::Address, "", "Listen on this address with HTTP, and redirect each client to the same path with `https`: 301 for GET and HEAD, 308 for the others, which repeats the method. `ADDRESS,PORT` names the port of HTTPS if it is not 443.")
        .uwsgi("uWSGI answers 301 to all methods, and clients then turn a POST into a GET.")
        .example("http-to-https = :80\nhttp-to-https = :8080,8443"),
    OptionEntry::supported("https-export-cert", Setting::Switch(|draft| &mut draft.of::<TlsDraft>().exports_certificate), Value::Switch, "off", "The application sees the client's certificate itself: `HTTPS_CC` and `SSL_CLIENT_CERT`, in PEM.")
        .example("https-export-cert = true"),
    OptionEntry::supported("ssl-verify-depth", Setting::Number(|draft| &mut draft.of::<TlsDraft>().verify_depth), Value::Number { least: 0, most: MAX_DEPTH, unit: "certificates" }, "1", "The maximum number of intermediate certificates between a client's and its authority's.")
        .example("ssl-verify-depth = 2"),
    OptionEntry::supported("ssl-sessions-timeout", Setting::Number(|draft| &mut draft.of::<TlsDraft>().session_lifetime_s), Value::Number { least: 0, most: MAX_SESSION_SECONDS, unit: "seconds" }, "300", "How long a TLS session can be resumed, on any worker and after a reload; 0 means never.")
        .example("ssl-sessions-timeout = 3600"),
    OptionEntry::accepted("ssl-sessions-use-cache", Value::Text, "Keeps TLS sessions in a cache that all workers share.", "clients keep their sessions themselves, as tickets that every worker can read"),
    OptionEntry::accepted("https-session-context", Value::Text, "Names the context of TLS sessions.", "a session can be resumed with the same listener settings, whatever their name"),
    OptionEntry::accepted("ssl-tmp-dir", Value::Path, "The folder for certificates that are written into the configuration itself.", "nothing is written: certificates and keys stay in memory"),
    OptionEntry::accepted("ssl-verbose", Value::Switch, "Logs TLS failures.", "a failed handshake is always logged, once per peer and minute"),
    OptionEntry::supported("sni", Setting::By(tls::add_server_name), Value::Special, "", "A certificate for clients that ask for these names: `NAME CERTIFICATE,KEY`; several names separated by commas, `*.example.com` for each of one level.").several()
        .uwsgi("CIPHERS and CLIENT-CA after the key apply to the whole address here: name them with `https`. A client authority that the address does not have is an error.")
        .example("sni = api.example.com /etc/ssl/api.pem,/etc/ssl/api.key\nsni = example.org,*.example.org org.pem,org.key"),
    OptionEntry::supported("sni-regexp", Setting::By(tls::add_server_name), Value::Special, "", "A certificate for clients that ask for names that match an expression, otherwise as `sni`; here the certificate is used for the names that it contains.").several()
        .example("sni-regexp = ^(www\\.)?example\\.org$ org.pem,org.key"),
    OptionEntry::supported("sni-dir", Setting::Located(|draft| &mut draft.of::<TlsDraft>().folder), Value::Path, "", "A folder with a certificate NAME.crt and a key NAME.key for each name that clients ask for.")
        .uwsgi("uWSGI looks for the files at each connection, as the user who serves; here they are read at the start and at each reload, while root still can. NAME.ca is an error, unless the address has the same client authorities.")
        .example("sni-dir = /etc/ssl/sites"),
    OptionEntry::refused("sni-dir-ciphers", Value::Text, "Ciphers of the certificates of `sni-dir`.", "name them with `https`: they apply to all certificates of the address"),
    OptionEntry::refused("ssl-enable-sslv3", Value::Switch, "Enables SSL 3.", TOO_OLD),
    OptionEntry::refused("ssl-enable-tlsv1", Value::Switch, "Enables TLS 1.0.", TOO_OLD),
    OptionEntry::refused("ssl-option", Value::List, "A number for OpenSSL's SSL_CTX_set_options.", "remove it: there is no OpenSSL here; see `tls-min-version`, and CIPHERS of `https`"),
];
