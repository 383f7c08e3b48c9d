//! `rediss://` with a real server.

use std::fs;
use std::net::TcpListener;

use bolide_distributed::{CacheBounds, PublishedMessage, Publisher, Received, RemoteCache, Write};

use crate::channels::Listening;
use crate::support::{Server, engine, lines_of, wait_until};

const BOUNDS: CacheBounds = CacheBounds { key_bytes: 100, value_bytes: 100_000, initial: 0 };

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

#[test]
fn an_engine_is_reached_by_tls_and_only_if_its_certificate_is_trusted() {
    let directory = std::env::temp_dir().join(format!("bolide-redis-tls-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    fs::write(&certificate, made.cert.pem()).expect("a file");
    fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let port = free_port();
    let _server = Server::with(&[
        "--bind",
        "127.0.0.1",
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate.display().to_string(),
        "--tls-key-file",
        &key.display().to_string(),
        "--tls-ca-cert-file",
        &certificate.display().to_string(),
        "--tls-auth-clients",
        "no",
    ]);
    let limits = "connect-ms=5000&answer-ms=5000";
    let url = format!("rediss://localhost:{port}/0?ca={}&{limits}", certificate.display());
    let cache = RemoteCache::new(engine(&url), "c", BOUNDS);
    let large = vec![b'x'; 90_000];
    for _ in 0..3 {
        assert!(cache.set(b"k", &large, 0, Write::Any), "{:?}", lines_of(cache.engine()));
        assert_eq!(cache.get(b"k").as_deref(), Some(large.as_slice()));
    }
    let listening = Listening::on(cache.engine(), &["news"]);
    let message = || PublishedMessage::new("news", &large, false, 7);
    // It is sent until the subscriber listens.
    wait_until("a message", || {
        assert_eq!(Publisher::new(cache.engine()).send(&[message()]), Ok(1));
        matches!(listening.heard.try_recv(), Ok(Received::Message(heard)) if heard == message())
    });
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let others = directory.join("other.pem");
    fs::write(&others, other.cert.pem()).expect("a file");
    for (host, authority, told) in [("localhost", &others, "certificate"), ("127.0.0.1", &certificate, "certificate")] {
        let url = format!("rediss://{host}:{port}/0?ca={}&{limits}", authority.display());
        let cache = RemoteCache::new(engine(&url), "c", BOUNDS);
        assert_eq!(cache.get(b"k"), None);
        // Engines of one address share the name by which lines are found, so the newest one is looked at.
        let lines = lines_of(cache.engine());
        assert!(lines.last().is_some_and(|line| line.contains(told)), "{lines:?}");
    }
    let url = format!("rediss://localhost:{port}/0?ca={}&{limits}", directory.join("absent.pem").display());
    let cache = RemoteCache::new(engine(&url), "c", BOUNDS);
    assert_eq!(cache.get(b"k"), None);
    assert!(lines_of(cache.engine()).last().is_some_and(|line| line.contains("absent.pem")));
    let _ = fs::remove_dir_all(&directory);
}
