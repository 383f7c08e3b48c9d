//! Tests of the options of TLS, from their values to the certificates and authorities of listeners.

use std::sync::LazyLock;

use bolide_contract::settings::{Listener, Protocol, Settings};
use bolide_contract::tls::{ClientAuth, Http2, Tls, TlsVersion};
use bolide_options::renewal;
use rcgen::{CertificateParams, DnType, KeyPair};
use time::{Duration, OffsetDateTime};

use crate::reading::{Failure, Reading};
use crate::tests::{Directory, outcome};

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub certificate: String,
    pub key: String,
}

/// A certificate of these names that is valid for this number of days from now.
pub(crate) fn pair(names: &[&str], days: i64) -> Pair {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut parameters = CertificateParams::new(names.clone()).expect("names");
    parameters.distinguished_name.push(DnType::CommonName, names[0].clone());
    parameters.not_before = OffsetDateTime::now_utc() - Duration::days(100);
    // One more hour, so that a day does not end during the test.
    parameters.not_after = OffsetDateTime::now_utc() + Duration::days(days) + Duration::HOUR;
    let key = KeyPair::generate().expect("a key");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    Pair { certificate: certificate.pem().replace('\r', ""), key: key.serialize_pem().replace('\r', "") }
}

static APP: LazyLock<Pair> = LazyLock::new(|| pair(&["app.example", "localhost"], 300));
static OTHER: LazyLock<Pair> = LazyLock::new(|| pair(&["x.example", "*.y.example", "b.example", "a.example"], 300));

/// A directory with a certificate, a key, and client authorities.
fn directory(name: &str) -> Directory {
    let directory = Directory::new(&format!("tls-{name}"));
    let both = format!("{}{}", APP.key, APP.certificate);
    directory.write("app.pem", &APP.certificate).write("app.key", &APP.key).write("both.pem", both);
    directory.write("other.pem", &OTHER.certificate).write("other.key", &OTHER.key).write("clients.pem", &OTHER.certificate);
    directory
}

/// The outcome of a file with an application and these lines.
fn read(directory: &Directory, text: &str) -> Result<(Settings, Vec<String>), Vec<String>> {
    directory.write("app.ini", format!("[uwsgi]\nmodule = shop\n{text}\n"));
    match outcome(directory, "app.ini", &[]) {
        Ok(Reading::Run { settings, diagnostics, .. }) => Ok((*settings, diagnostics.iter().map(ToString::to_string).collect())),
        Ok(other) => panic!("{text}: {other:?}"),
        Err(Failure { diagnostics }) => Err(diagnostics.iter().map(ToString::to_string).collect()),
    }
}

/// The settings of a file without diagnostics.
fn settings(directory: &Directory, text: &str) -> Settings {
    let (settings, diagnostics) = read(directory, text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
    assert!(diagnostics.is_empty(), "{text}: {diagnostics:?}");
    settings
}

fn listener(directory: &Directory, text: &str) -> Listener {
    settings(directory, text).listeners.remove(0)
}

fn tls(directory: &Directory, text: &str) -> Tls {
    listener(directory, text).tls.unwrap_or_else(|| panic!("{text}: no TLS"))
}

/// The one error of a file.
fn error(directory: &Directory, text: &str) -> String {
    // The additional address prevents a second error about a missing one.
    let errors = read(directory, &format!("{text}\nsocket = app.sock")).expect_err(text);
    assert_eq!(errors.len(), 1, "{text}: {errors:?}");
    errors[0].clone()
}

#[test]
fn test_each_way_to_write_an_https_address_has_its_certificate_and_key() {
    let directory = directory("ways");
    for text in [
        "https = :8443,app.pem,app.key",
        "https = :8443, app.pem , app.key",
        "https2 = addr=:8443,cert=app.pem,key=app.key",
        "https2 = key=app.key,crt=app.pem,addr=:8443",
        "https-socket = :8443,app.pem,app.key",
        "https = :8443\ntls-certificate = app.pem\ntls-key = app.key",
        "http = :8443\ncertfile = app.pem\nkeyfile = app.key",
        "http-socket = :8443\nssl-certfile = app.pem\nssl-keyfile = app.key",
        "socket = :8443\nprotocol = http\ntls-key = app.key\ntls-certificate = app.pem",
    ] {
        let listener = listener(&directory, text);
        let tls = listener.tls.expect(text);
        assert_eq!((listener.protocol, listener.http2), (Protocol::Http, Http2::Tls), "{text}");
        assert_eq!(tls.certificates.len(), 1, "{text}");
        let own = &tls.certificates[0];
        assert_eq!((own.chain.as_slice(), own.key.0.as_slice()), (APP.certificate.as_bytes(), APP.key.as_bytes()), "{text}");
        assert!(own.origin.starts_with("app.ini:"), "{text}: {}", own.origin);
        let files = own.files.as_ref().expect(text);
        assert_eq!(files.chain, directory.path().join("app.pem"), "{text}");
        assert_eq!(files.key, directory.path().join("app.key"), "{text}");
        assert_eq!((tls.client_auth, tls.least_version), (ClientAuth::Off, TlsVersion::Tls12), "{text}");
        assert_eq!((tls.session_lifetime_s, tls.verify_depth), (300, 1), "{text}: as uWSGI has it");
    }
}

#[test]
fn test_a_key_in_the_file_of_its_certificate_is_not_shown_with_it() {
    let directory = directory("both");
    for text in ["https = :8443,both.pem", "https = :8443,both.pem,both.pem", "http = :8001\ncertfile = both.pem"] {
        let tls = tls(&directory, text);
        assert_eq!(tls.certificates[0].chain, APP.certificate.as_bytes(), "{text}");
        assert_eq!(tls.certificates[0].key.0, APP.key.as_bytes(), "{text}");
        let secret = APP.key.lines().nth(1).expect("a line of the key");
        assert!(!format!("{tls:?}").contains(secret), "{text}");
    }
}

#[test]
fn test_files_are_those_of_the_start_and_not_of_chdir() {
    let directory = directory("chdir");
    std::fs::create_dir(directory.path().join("deep")).expect("made");
    let tls = tls(&directory, "chdir = deep\nhttps = :8443,app.pem,app.key");
    assert_eq!(tls.certificates[0].files.as_ref().map(|files| files.chain.clone()), Some(directory.path().join("app.pem")));
}

#[test]
fn test_plain_addresses_stay_plain_beside_an_https_one() {
    let directory = directory("plain");
    let settings = settings(&directory, "http = :80\nhttps = :443\nsocket = app.sock\ntls-certificate = both.pem");
    let tls: Vec<bool> = settings.listeners.iter().map(|listener| listener.tls.is_some()).collect();
    assert_eq!(tls, [false, true, false]);
    let (_, told) = read(&directory, "socket = app.sock\ntls-certificate = both.pem").expect("it starts");
    assert!(told[0].contains("no address speaks HTTP: the certificate has no effect"), "{told:?}");
    let (_, told) =
        read(&directory, "http = :80\nsni = x.example other.pem,other.key\ntls-client-auth = required").expect("it starts");
    assert_eq!(told.iter().filter(|line| line.contains("no address speaks TLS: this has no effect")).count(), 2, "{told:?}");
}

#[test]
fn test_client_certificates_are_requested_by_the_address_or_the_option() {
    let directory = directory("clients");
    let with = "https = :8443,app.pem,app.key";
    for (text, wanted) in [
        (format!("{with},,clients.pem"), ClientAuth::Optional),
        (format!("{with},,!clients.pem"), ClientAuth::Required),
        (format!("{with},,!clients.pem\ntls-client-auth = optional"), ClientAuth::Required),
        (format!("{with},,clients.pem\ntls-client-auth = required"), ClientAuth::Required),
        (format!("{with}\ntls-client-ca = clients.pem"), ClientAuth::Optional),
        (format!("{with}\nca-certs = clients.pem\ncert-reqs = 2"), ClientAuth::Required),
        (format!("{with}\nssl-ca-certs = clients.pem\nssl-cert-reqs = 1"), ClientAuth::Optional),
        (format!("{with}\ntls-client-ca = clients.pem\ntls-client-auth = off"), ClientAuth::Off),
        ("https2 = addr=:8001,cert=app.pem,key=app.key,clientca=!clients.pem".to_owned(), ClientAuth::Required),
    ] {
        let tls = tls(&directory, &text);
        assert_eq!(tls.client_auth, wanted, "{text}");
        assert_eq!(tls.client_authorities.is_empty(), wanted == ClientAuth::Off, "{text}");
    }
    let told = error(&directory, &format!("{with}\ntls-client-auth = required"));
    assert!(told.starts_with("app.ini:4: error: it is not configured whose certificates"), "{told}");
}

#[test]
fn test_versions_sessions_depth_http2_and_their_kin_are_the_listeners() {
    let directory = directory("numbers");
    let base = "https = :8443,app.pem,app.key\n";
    let with = |text: &str| tls(&directory, &format!("{base}{text}"));
    assert_eq!(with("tls-min-version = 1.3").least_version, TlsVersion::Tls13);
    assert_eq!(with("ssl-verify-depth = 3").verify_depth, 3);
    assert_eq!(with("ssl-session-timeout = 0").session_lifetime_s, 0);
    assert!(with("https-export-cert = true").exports_certificate);
    for (text, wanted) in [("off", Http2::Off), ("h2c", Http2::Everywhere), ("on", Http2::Tls), ("true", Http2::Tls)] {
        assert_eq!(listener(&directory, &format!("{base}http2 = {text}")).http2, wanted, "{text}");
    }
    assert_eq!(listener(&directory, "ssl-socket = :8001,app.pem,app.key").http2, Http2::Off, "uwsgi has no HTTP/2");
    let (settings, told) = read(&directory, &format!("{base}tls-keylog = keys.log")).expect("it starts");
    let log = settings.listeners[0].tls.as_ref().and_then(|tls| tls.key_log.clone());
    assert_eq!(log, Some(directory.path().join("keys.log")));
    assert!(told[0].contains("warning: the secrets of all TLS sessions are written to keys.log"), "{told:?}");
}

#[test]
fn test_omitted_ciphers_are_reported_and_an_empty_list_is_an_error() {
    let directory = directory("ciphers");
    assert!(tls(&directory, "https = :8001,app.pem,app.key,HIGH:!aNULL:!MD5").cipher_suites.is_empty());
    let text = "https = :8001,app.pem,app.key,ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA:DHE-RSA-AES256-SHA";
    let (settings, told) = read(&directory, text).expect("it starts");
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("ciphers are omitted: AES128-SHA, DHE-RSA-AES256-SHA"), "{told:?}");
    let suites = settings.listeners[0].tls.as_ref().map(|tls| tls.cipher_suites.clone()).unwrap_or_default();
    assert_eq!(suites.last().map(String::as_str), Some("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"));
    let told = error(&directory, "https = :8001,app.pem,app.key,RC4-SHA");
    assert!(told.contains("none of the ciphers in `RC4-SHA` is supported"), "{told}");
}

#[test]
fn test_names_have_their_certificates_on_every_address_behind_its_own() {
    let directory = directory("names");
    std::fs::create_dir(directory.path().join("sites")).expect("made");
    directory.write("sites/B.example.crt", &OTHER.certificate).write("sites/B.example.key", &OTHER.key);
    directory.write("sites/a.example.crt", &OTHER.certificate);
    directory.write("sites/B.example.crt.ocsp", b"\x30\x00").write("sites/README", "");
    let text = "https = :8001,app.pem,app.key\nhttps = :2,app.pem,app.key\nsni = X.example,*.y.example other.pem,other.key\n\
                sni-regexp = ^z other.pem,other.key\nsni-dir = sites";
    let settings = settings(&directory, text);
    for listener in &settings.listeners {
        let tls = listener.tls.as_ref().expect("TLS");
        let names: Vec<&[String]> = tls.certificates.iter().map(|one| one.names.as_slice()).collect();
        let wanted: [&[String]; 4] = [&[], &["x.example".to_owned(), "*.y.example".to_owned()], &[], &["b.example".to_owned()]];
        assert_eq!(names, wanted, "a certificate of the directory without its key is none");
        assert_eq!(tls.directory, Some(directory.path().join("sites")));
        assert_eq!(tls.certificates[3].ocsp.as_deref(), Some(&b"\x30\x00"[..]), "what lies beside it goes with it");
    }
}

#[test]
fn test_client_authorities_of_a_name_alone_are_an_error() {
    let directory = directory("name-clients");
    let name = "sni = x.example other.pem,other.key,,clients.pem";
    let told = error(&directory, &format!("https = :8001,app.pem,app.key\n{name}"));
    assert!(told.starts_with("app.ini:4: error: client authorities of one name (clients.pem)"), "{told}");
    settings(&directory, &format!("https = :8001,app.pem,app.key,,!clients.pem\n{name}"));
    std::fs::create_dir(directory.path().join("sites")).expect("made");
    directory.write("sites/a.example.crt", &OTHER.certificate).write("sites/a.example.key", &OTHER.key);
    directory.write("sites/a.example.ca", &OTHER.certificate);
    let told = error(&directory, "https = :8001,app.pem,app.key\nsni-dir = sites");
    assert!(told.contains("sites/a.example.ca"), "{told}");
}

#[test]
fn test_a_development_certificate_is_made_once_for_all_addresses_and_its_fingerprint_is_reported() {
    let directory = directory("auto");
    let (settings, told) =
        read(&directory, "https = :8001,auto\nhttps = :2,auto\nhttps = :3,app.pem,app.key").expect("it starts");
    let certificates: Vec<_> =
        settings.listeners.iter().filter_map(|listener| listener.tls.as_ref()).map(|tls| &tls.certificates[0]).collect();
    assert_eq!(certificates[0].chain, certificates[1].chain);
    assert!(certificates[0].chain.starts_with(b"-----BEGIN CERTIFICATE-----") && !certificates[0].key.0.is_empty());
    assert_eq!((&certificates[0].files, certificates[2].chain.as_slice()), (&None, APP.certificate.as_bytes()));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("the certificate for localhost, 127.0.0.1, ::1, box was created for this run"), "{told:?}");
    let fingerprint = told[0].split("fingerprint ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    assert_eq!(fingerprint.split(':').filter(|byte| byte.len() == 2).count(), 32, "{told:?}");
    let Ok(Reading::Print { text, status: 0 }) = outcome(&directory, "check app.ini", &[]) else { panic!("check prints") };
    assert!(!text.contains("fingerprint"), "check makes none: {text}");
}

#[test]
fn test_http_to_https_is_a_plain_listener_with_the_port_to_go_to() {
    let directory = directory("redirect");
    for (text, port) in [("http-to-https = :80", 443), ("http-to-https = :80,8443", 8443)] {
        let listener = listener(&directory, text);
        assert_eq!((listener.redirects_to_https, listener.tls.is_none()), (Some(port), true), "{text}");
    }
    assert!(error(&directory, "http-to-https = :80,x").contains("does not contain a port of HTTPS"));
    let text = "http-to-https = :80\nhttp = :81\ntls-certificate = both.pem";
    let tls: Vec<bool> = settings(&directory, text).listeners.iter().map(|listener| listener.tls.is_some()).collect();
    assert_eq!(tls, [false, true], "the address that sends away stays plain");
}

#[test]
fn test_a_fault_of_files_is_one_clear_error_with_file_line_and_path() {
    let directory = directory("wrong");
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nBBBB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    directory.write("encrypted.key", encrypted).write("empty.pem", "").write("der.pem", b"\x30\x82").write("junk.pem", "hello");
    directory.write("request.pem", "-----BEGIN CERTIFICATE REQUEST-----\nA\n-----END CERTIFICATE REQUEST-----\n");
    std::fs::create_dir(directory.path().join("sites")).expect("made");
    nix::unistd::mkfifo(&directory.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    directory.write("large.pem", vec![b'x'; 2 * 1024 * 1024]);
    for (files, said) in [
        ("missing.pem,app.key", "the certificate DIR/missing.pem can't be read: No such file or directory"),
        ("app.pem,missing.key", "the key DIR/missing.key can't be read: No such file or directory"),
        ("app.key,app.pem", "the certificate DIR/app.key is a key, and does not contain a certificate"),
        ("app.pem,other.pem", "the key DIR/other.pem is a certificate, and does not contain a key"),
        ("app.pem", "DIR/app.pem has no key beside the certificate"),
        ("app.pem,encrypted.key", "`openssl pkey -in DIR/encrypted.key -out NEW`"),
        ("empty.pem,app.key", "the certificate DIR/empty.pem is empty"),
        ("app.pem,empty.pem", "the key DIR/empty.pem is empty"),
        ("der.pem,app.key", "the certificate DIR/der.pem is DER instead of PEM (convert it: `openssl x509 -inform der"),
        ("app.pem,der.pem", "the key DIR/der.pem is DER instead of PEM (convert it: `openssl pkey -inform der"),
        ("junk.pem,app.key", "the certificate DIR/junk.pem is not PEM"),
        ("request.pem,app.key", "the certificate DIR/request.pem is a certificate request"),
        ("large.pem,app.key", "the certificate DIR/large.pem is larger than a MiB"),
        ("app.pem,app.key,,missing.pem", "the certificate DIR/missing.pem can't be read"),
        ("pipe,app.key", "the certificate DIR/pipe is not a file"),
        ("sites,app.key", "the certificate DIR/sites is not a file"),
        (",app.key", "lacks a certificate or a key"),
        ("app.pem,", "lacks a certificate or a key"),
    ] {
        let told = error(&directory, &format!("https = :8001,{files}"));
        let told = told.replace(&directory.path().display().to_string(), "DIR");
        assert!(told.starts_with("app.ini:3: error: ") && told.contains(said), "{files}: {told}");
    }
}

#[test]
fn test_invalid_words_are_an_error_that_says_what_to_write() {
    let directory = directory("words");
    for (text, said) in [
        ("https = :8001", "no certificate is named"),
        ("https2 = addr=:8001,cert=app.pem,key=app.key,spdy=1", "HTTP/2 replaced it"),
        ("https2 = addr=:8001,cert=app.pem", "needs addr, cert and key"),
        ("https2 = addr=:8001,cert=app.pem,key=app.key,color=red", "`color=red` of `https2` is unknown"),
        ("https2 = :8001,app.pem,app.key", "`:8001` of `https2` has no `=`"),
        ("https = :8001,both.pem\nsni = x.example", "does not contain a certificate and a key"),
        ("https = :8001,both.pem\nsni-dir = nowhere", "nowhere can't be read"),
        ("https = :8001,both.pem\nssl-enable-tlsv1 = true", "TLS 1.0, 1.1 and SSL must not be used"),
        ("https = :8001,both.pem\nssl-keyfile-password = secret", "openssl pkey"),
        ("https = :8001,both.pem\ntls-min-version = 1.1", "write `1.2` or `1.3`"),
        ("https = :8001,both.pem\nhttp2 = h3", "is unknown"),
        ("https = :8001,both.pem\ntls-ocsp-file = app.pem", "app.pem is not DER"),
    ] {
        let told = error(&directory, text);
        assert!(told.contains(said) && told.contains('('), "{text}: {told}");
        assert!(!told.contains("secret"), "{told}");
    }
}

/// The report of `check` about a file with an application and these lines.
fn checked(directory: &Directory, text: &str) -> String {
    directory.write("app.ini", format!("[uwsgi]\nmodule = shop\n{text}\n"));
    match outcome(directory, "check app.ini", &[]) {
        Ok(Reading::Print { text, .. }) => text.replace(&directory.path().display().to_string(), "DIR"),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn test_check_tells_names_key_and_end_of_each_certificate() {
    let directory = directory("check");
    let set_mode = |name: &str, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(directory.path().join(name), permissions).expect("set");
    };
    set_mode("app.key", 0o640);
    set_mode("other.key", 0o644);
    let text = "https = :8001,app.pem,app.key,HIGH:!aNULL:!CHACHA20\nsni = x.example other.pem,other.key\nhttp-to-https = :8002";
    let text = checked(&directory, text);
    for line in [
        "app.ini:3: note: the certificate DIR/app.pem is for app.example, localhost; key EC P-256; expires on 2",
        "app.ini:4: note: the certificate DIR/other.pem is for x.example, *.y.example, b.example, a.example; key EC P-256",
        ", sent to clients that ask for x.example",
        "note: of `HIGH:!aNULL:!CHACHA20` 4 are available with TLS 1.2: ECDHE-ECDSA-AES256-GCM-SHA384, ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("app.ini:4: warning: every user of this machine may read the key DIR/other.key"), "{text}");
    assert!(
        text.contains("app.ini:5: note: clients are redirected to port 443, but no address here speaks HTTPS on it"),
        "{text}"
    );
    assert!(text.ends_with("1 warning, 4 notes\n"), "{text}");
}

#[test]
fn test_a_certificate_that_clients_will_not_like_is_a_warning_and_the_start_goes_on() {
    let directory = directory("doubtful");
    let write = |name: &str, pair: &Pair| {
        directory.write(&format!("{name}.pem"), &pair.certificate).write(&format!("{name}.key"), &pair.key);
    };
    write("soon", &pair(&["app.example"], 12));
    write("today", &pair(&["app.example"], 0));
    write("over", &pair(&["app.example"], -2));
    directory.write("chain.pem", format!("{}{}", APP.certificate, OTHER.certificate));
    for (text, said) in [
        ("https = :8001,soon.pem,soon.key", "soon.pem expires in 12 days, on 2"),
        ("https = :8001,today.pem,today.key", "today.pem expires in less than a day, on 2"),
        ("https = :8001,over.pem,over.key", "over.pem expired on 2"),
        (
            "https = :8001,chain.pem,app.key",
            "chain.pem is incomplete: certificate 1 was issued by CN=app.example, and certificate 2 is that of CN=x.example",
        ),
        (
            "https = :8001,app.pem,app.key\nsni = z.example other.pem,other.key",
            "other.pem is not for z.example, but for x.example",
        ),
    ] {
        let (_, told) = read(&directory, text).expect(text);
        assert_eq!(told.len(), 1, "{text}: {told:?}");
        assert!(told[0].contains("warning: ") && told[0].contains(said), "{text}: {told:?}");
    }
    settings(&directory, "https = :8001,app.pem,app.key\nsni = q.y.example,X.example other.pem,other.key");
}

#[test]
fn test_a_key_of_another_certificate_is_an_error() {
    let directory = directory("pairs");
    let told = error(&directory, "https = :8001,app.pem,other.key").replace(&directory.path().display().to_string(), "DIR");
    assert!(
        told.starts_with("app.ini:3: error: the certificate DIR/app.pem (with the key DIR/other.key) can't be used: the key"),
        "{told}"
    );
    directory.write("reversed.pem", format!("{}{}", OTHER.certificate, APP.certificate));
    let told = error(&directory, "https = :8001,reversed.pem,app.key");
    assert!(told.contains("the server's certificate must come first in its file"), "{told}");
    let broken = APP.certificate.replacen("MII", "AII", 1).replacen("MIIB", "AIIB", 1);
    directory.write("broken.pem", broken);
    assert!(error(&directory, "https = :8001,broken.pem,app.key").contains("broken.pem"));
    assert!(error(&directory, "https = :8001,app.pem,app.key,,broken.pem").contains("the client authorities"));
}

#[test]
fn test_a_renewal_reads_changed_certificates_and_keeps_unreadable_ones() {
    let directory = directory("renewal");
    std::fs::create_dir(directory.path().join("sites")).expect("made");
    for name in ["a.example", "b.example"] {
        directory.write(&format!("sites/{name}.crt"), &OTHER.certificate).write(&format!("sites/{name}.key"), &OTHER.key);
    }
    let text = "https = :8001,app.pem,app.key,,clients.pem\nhttps = :2,app.pem,app.key,,clients.pem\nsni-dir = sites";
    let mut listeners = settings(&directory, text).listeners;
    let before = listeners.clone();
    assert_eq!(renewal::renew(&mut listeners, None), Vec::<String>::new(), "nothing has changed");
    assert_eq!(listeners, before);

    let new = pair(&["app.example"], 90);
    directory.write("app.pem", &new.certificate).write("app.key", &new.key).write("clients.pem", &new.certificate);
    std::fs::remove_file(directory.path().join("sites/a.example.crt")).expect("removed");
    directory.write("sites/b.example.key", &new.key);
    directory.write("sites/c.example.crt", &pair(&["c.example"], 9).certificate).write("sites/c.example.key", &new.key);
    directory.write("sites/d.example.crt", &pair(&["d.example"], 9).certificate);
    let lines = renewal::renew(&mut listeners, None);
    for listener in &listeners {
        let tls = listener.tls.as_ref().expect("TLS");
        assert_eq!(tls.certificates[0].chain, new.certificate.as_bytes());
        assert_eq!(tls.client_authorities, new.certificate.as_bytes());
        let rest: Vec<_> = tls.certificates[1..].iter().map(|one| (one.names.join(","), one.key.0.as_slice())).collect();
        assert_eq!(rest, [("b.example".to_owned(), OTHER.key.as_bytes())], "b's new key is not its own, c's neither, a is gone");
    }
    let said = [
        "app.pem has changed: for app.example; key EC P-256; expires on 2",
        "clients.pem have changed",
        "b.example.key) can't be used: the key",
        "; the previous one stays in use",
        "c.example.key) can't be used: the key",
        "; it is not sent to clients",
    ];
    for part in said {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:?}");
    }
    assert_eq!(lines.len(), 4, "each is said once, whatever listeners show it: {lines:?}");
    assert!(lines.iter().filter(|line| line.starts_with("WARNING: app.ini:5: ")).count() == 2, "{lines:?}");
}

#[test]
fn test_a_renewal_of_files_that_are_gone_keeps_all() {
    let directory = directory("gone");
    std::fs::create_dir(directory.path().join("sites")).expect("made");
    directory.write("sites/a.example.crt", &OTHER.certificate).write("sites/a.example.key", &OTHER.key);
    let mut listeners = settings(&directory, "https = :8001,app.pem,app.key,,clients.pem\nsni-dir = sites").listeners;
    let before = listeners.clone();
    for name in ["app.pem", "clients.pem"] {
        std::fs::remove_file(directory.path().join(name)).expect("removed");
    }
    std::fs::remove_dir_all(directory.path().join("sites")).expect("removed");
    let lines = renewal::renew(&mut listeners, None);
    assert_eq!(listeners, before);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("WARNING: ") && line.contains("No such file")), "{lines:?}");
}
