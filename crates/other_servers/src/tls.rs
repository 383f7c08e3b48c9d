//! Flags for TLS. Pure data and functions over values.

use bolide_options::server::Server::{Flask, Granian, Gunicorn, Hypercorn, Uvicorn};

use super::row::Meaning::{Done, Fixed, Made, Nothing, Option, Refused, Same};
use super::row::{ServerSetting, flag, settings, switch};
use super::translation::{Subject, Translation};

const VERSION: &str = "TLS 1.2 and 1.3 are supported, and `tls-min-version = 1.3` disables the older one";
const CIPHERS: &str = "write them after the key: `--https ADDRESS,CERTIFICATE,KEY,CIPHERS`";
const SPEAK: &str = "the addresses of `http` then speak TLS. `https` sets an address with its certificate ([HTTPS](https.md))";

pub const FLAGS: &[ServerSetting] = settings![
    flag("certfile", &[Gunicorn, Hypercorn], Same).setting("certfile").says(SPEAK),
    flag("keyfile", &[Gunicorn, Hypercorn], Same).setting("keyfile"),
    flag("ca-certs", &[Gunicorn, Hypercorn], Same).setting("ca_certs"),
    flag("cert-reqs", &[Gunicorn, Hypercorn], Same).setting("cert_reqs"),
    flag("ssl-certfile", &[Uvicorn], Same).says(SPEAK),
    flag("ssl-certificate", &[Granian], Same).says(SPEAK),
    flag("ssl-keyfile", &[Uvicorn, Granian], Same),
    flag("ssl-ca-certs", &[Uvicorn], Same),
    flag("ssl-cert-reqs", &[Uvicorn], Same),
    flag("ssl-ca", &[Granian], Option("tls-client-ca")),
    switch("ssl-client-verify", &[Granian], Fixed(&[("tls-client-auth", "required")])),
    switch("no-ssl-client-verify", &[Granian], Fixed(&[("tls-client-auth", "off")])),
    flag(
        "ssl-crl",
        &[Granian],
        Refused("leave it out, because revocation lists are not supported. Give clients short-lived certificates"),
    ),
    flag("ssl-protocol-min", &[Granian], Made(least_version, "`tls-min-version = 1.2` or `1.3`")),
    flag("verify-mode", &[Hypercorn], Made(verify_mode, "`tls-client-auth = off`, `optional` or `required`")),
    /// `adhoc` is `https = ADDRESS,auto`: a certificate for development
    flag("cert", &[Flask], Made(certificate, "`tls-certificate = FILE`")),
    flag("key", &[Flask], Option("tls-key")),
    // The catalog has the name, and refuses it for every server.
    flag(
        "ssl-keyfile-password",
        &[Uvicorn, Granian],
        Refused("write the key without one, with `openssl pkey -in KEY -out NEW` and mode 600"),
    ),
    flag(
        "keyfile-password",
        &[Hypercorn],
        Refused("write the key without one, with `openssl pkey -in KEY -out NEW` and mode 600"),
    ),
    flag("ssl-version", &[Gunicorn, Uvicorn], Nothing(VERSION)).setting("ssl_version"),
    flag("ciphers", &[Gunicorn, Hypercorn], Made(ciphers, "nothing")).setting("ciphers"),
    flag("ssl-ciphers", &[Uvicorn], Made(ciphers, "nothing")),
    switch("suppress-ragged-eofs", &[Gunicorn], Done("a client that closes without a TLS close_notify is not an error"))
        .setting("suppress_ragged_eofs"),
    switch("do-handshake-on-connect", &[Gunicorn], Done("a handshake does not occupy a worker"))
        .setting("do_handshake_on_connect"),
];

/// Words of OpenSSL that exclude none of the ciphers here. A list that excludes some belongs to an address.
fn ciphers(to: &mut Translation, text: &str) -> Result<(), String> {
    match bolide_options::resolve::ciphers::read(text) {
        Some(read) if read.suites.is_empty() => {
            to.note("nothing to do: it excludes none of the ciphers here, which are all of TLS 1.3 and 1.2 with forward secrecy");
            Ok(())
        }
        _ if text.starts_with("TLS") || text.starts_with("SSL") => {
            to.note(format!("nothing to do: {VERSION}"));
            Ok(())
        }
        _ => Err(CIPHERS.to_owned()),
    }
}

fn least_version(to: &mut Translation, text: &str) -> Result<(), String> {
    to.add("tls-min-version", text.trim_start_matches("tls"));
    Ok(())
}

/// The names of Python's `ssl.VerifyMode`.
fn verify_mode(to: &mut Translation, text: &str) -> Result<(), String> {
    let mode = match text.trim_start_matches("VerifyMode.") {
        "CERT_NONE" => "off",
        "CERT_OPTIONAL" => "optional",
        "CERT_REQUIRED" => "required",
        _ => return Err("write `CERT_NONE`, `CERT_OPTIONAL` or `CERT_REQUIRED`".to_owned()),
    };
    to.add("tls-client-auth", mode);
    Ok(())
}

fn certificate(to: &mut Translation, text: &str) -> Result<(), String> {
    if text == "adhoc" {
        to.keep(Subject::SelfSigned, text);
        return Ok(());
    }
    to.add("tls-certificate", text);
    Ok(())
}
