//! Flags about TLS.

use super::row::Flag;
use super::row::Meaning::{Fixed, Made, Nothing, Option, Refused, Same};
use super::server::Server::{Flask, Granian, Gunicorn, Hypercorn, Uvicorn};
use super::translation::Translation;

const VERSION: &str = "leave it out: TLS 1.2 and 1.3 are spoken; write `--tls-min-version 1.3` for the newer one alone";
const CIPHERS: &str = "leave it out; or name them behind the key: `--https ADDRESS,CERTIFICATE,KEY,CIPHERS`";
const SPEAK: &str = "the addresses of `http` speak TLS then; `https` names one with its certificate ([HTTPS](https.md))";

pub const FLAGS: &[Flag] = &[
    Flag::new("certfile", &[Gunicorn, Hypercorn], Same).setting("certfile").says(SPEAK),
    Flag::new("keyfile", &[Gunicorn, Hypercorn], Same).setting("keyfile"),
    Flag::new("ca-certs", &[Gunicorn, Hypercorn], Same).setting("ca_certs"),
    Flag::new("cert-reqs", &[Gunicorn, Hypercorn], Same).setting("cert_reqs"),
    Flag::new("ssl-certfile", &[Uvicorn], Same).says(SPEAK),
    Flag::new("ssl-certificate", &[Granian], Same).says(SPEAK),
    Flag::new("ssl-keyfile", &[Uvicorn, Granian], Same),
    Flag::new("ssl-ca-certs", &[Uvicorn], Same),
    Flag::new("ssl-cert-reqs", &[Uvicorn], Same),
    Flag::new("ssl-ca", &[Granian], Option("tls-client-ca")),
    Flag::switch("ssl-client-verify", &[Granian], Fixed(&[("tls-client-auth", "required")])),
    Flag::switch("no-ssl-client-verify", &[Granian], Fixed(&[("tls-client-auth", "off")])),
    Flag::new(
        "ssl-crl",
        &[Granian],
        Refused("leave it out: lists of revoked certificates are not read; give clients certificates that end soon"),
    ),
    Flag::new("ssl-protocol-min", &[Granian], Made(least_version, "`tls-min-version = 1.2` or `1.3`")),
    Flag::new("verify-mode", &[Hypercorn], Made(verify_mode, "`tls-client-auth = off`, `optional` or `required`")),
    Flag::new("cert", &[Flask], Made(certificate, "`tls-certificate = FILE`")),
    Flag::new("key", &[Flask], Option("tls-key")),
    // The catalogue knows the name, and refuses it for every server.
    Flag::new(
        "ssl-keyfile-password",
        &[Uvicorn, Granian],
        Refused("write the key without one, with `openssl pkey -in KEY -out NEW` and mode 600"),
    ),
    Flag::new(
        "keyfile-password",
        &[Hypercorn],
        Refused("write the key without one, with `openssl pkey -in KEY -out NEW` and mode 600"),
    ),
    Flag::new("ssl-version", &[Gunicorn, Uvicorn], Refused(VERSION)).setting("ssl_version"),
    Flag::new("ciphers", &[Gunicorn, Hypercorn], Refused(CIPHERS)).setting("ciphers"),
    Flag::new("ssl-ciphers", &[Uvicorn], Refused(CIPHERS)),
    Flag::switch("suppress-ragged-eofs", &[Gunicorn], Nothing("a client that closes without TLS' farewell is no error"))
        .setting("suppress_ragged_eofs"),
    Flag::switch("do-handshake-on-connect", &[Gunicorn], Nothing("a handshake holds up no worker"))
        .setting("do_handshake_on_connect"),
];

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
        return Err("write `--https 127.0.0.1:8443,auto`, which makes a certificate for development".to_owned());
    }
    to.add("tls-certificate", text);
    Ok(())
}
