//! TLS in a worker: handshakes and records in any pieces, clients that are slow, that disconnect, that send invalid data, and
//! clients that speak another protocol. The client is that of the library, in the same thread.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

use bolide_contract::tls::{Certificate, ClientAuth, Http2, PrivateKey, Tls, TlsVersion};
use bolide_engine::app::Language;
use bolide_testing::gates::LocalGates;
use bolide_testing::harness::{self, Client, Harness};
use bolide_testing::language::TestLanguage;
use bolide_testing::replies::{Reply, replies};
use bolide_testing::streaming::TestStreams;
use bolide_tls::rustls::client::Resumption;
use bolide_tls::rustls::pki_types::{CertificateDer, ServerName};
use bolide_tls::rustls::version::{TLS12, TLS13};
use bolide_tls::rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

/// Number of the listener of these tests, after those of the harness.
const HTTPS: u32 = 3;

const HELLO: &[u8] = b"GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n";

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

struct Made {
    certificate: CertificateDer<'static>,
    tls: Tls,
}

/// A self-signed certificate for `localhost`.
fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let certificate = Certificate {
            names: Vec::new(),
            chain: key.cert.pem().into_bytes(),
            key: PrivateKey(key.signing_key.serialize_pem().into_bytes()),
            ocsp: None,
            files: None,
            origin: "the test".into(),
        };
        let tls = Tls {
            certificates: vec![certificate],
            least_version: TlsVersion::Tls12,
            cipher_suites: Vec::new(),
            client_auth: ClientAuth::Off,
            client_authorities: Vec::new(),
            client_authorities_file: None,
            verify_depth: 1,
            session_lifetime_s: 300,
            exports_certificate: false,
            directory: None,
            key_log: None,
        };
        Made { certificate: key.cert.der().clone(), tls }
    })
}

/// A worker with an additional listener, which speaks TLS.
fn worker_of<L: Language>(language: &'static L, options: &[&str]) -> Harness<L> {
    let mut settings = harness::settings(options);
    let mut listener = settings.listeners[0].clone();
    listener.tls = Some(made().tls.clone());
    listener.http2 = Http2::Off;
    settings.listeners.push(listener);
    Harness::with_settings(language, settings)
}

fn called() -> Harness<TestLanguage> {
    worker_of(TestLanguage::new(Arc::new(LocalGates::default())), &[])
}

/// A TLS client over a connection of the worker.
struct TlsClient {
    client: Client,
    tls: ClientConnection,
    /// Bytes that are moved in each direction at a time.
    piece: usize,
    has_ended: bool,
    /// Plaintext that has arrived, and whether the server has sent `close_notify`.
    plain: Vec<u8>,
    said_end: bool,
}

fn config_of(version: &'static SupportedProtocolVersion) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(made().certificate.clone()).expect("a root");
    let builder = ClientConfig::builder_with_provider(bolide_tls::provider().clone());
    let mut config =
        builder.with_protocol_versions(&[version]).expect("a version").with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config
}

impl TlsClient {
    fn new<L: Language>(worker: &mut Harness<L>, version: &'static SupportedProtocolVersion, room: Option<usize>) -> TlsClient {
        let client = worker.client_of(HTTPS, room);
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(Arc::new(config_of(version)), name).expect("a client");
        TlsClient { client, tls, piece: 64 * 1024, has_ended: false, plain: Vec::new(), said_end: false }
    }

    /// Moves bytes in both directions, a piece at a time, until neither side has more to send.
    fn settle<L: Language>(&mut self, worker: &mut Harness<L>) {
        loop {
            let mut moved = false;
            while self.tls.wants_write() {
                let mut records = Vec::new();
                self.tls.write_tls(&mut records).expect("records");
                for piece in records.chunks(self.piece) {
                    let mut rest = piece;
                    while !rest.is_empty() {
                        let Some(count) = self.client.send_some(rest) else { return };
                        rest = &rest[count..];
                        worker.settle();
                        if count == 0 {
                            self.take_in();
                        }
                    }
                }
                moved = true;
            }
            worker.settle();
            moved |= self.take_in();
            if !moved {
                return;
            }
        }
    }

    /// True: some bytes arrived.
    fn take_in(&mut self) -> bool {
        let (bytes, ended) = self.client.receive(self.piece);
        self.has_ended |= ended;
        let mut left = &bytes[..];
        while !left.is_empty() {
            self.tls.read_tls(&mut left).expect("room");
            self.tls.process_new_packets().expect("the server keeps to TLS");
            self.take_plain();
        }
        !bytes.is_empty()
    }

    /// Returns the plaintext that has arrived. True: the server has sent `close_notify`.
    fn received(&mut self) -> (Vec<u8>, bool) {
        (std::mem::take(&mut self.plain), self.said_end)
    }

    /// The library buffers no more than a few records by itself.
    fn take_plain(&mut self) {
        let mut part = vec![0; 64 * 1024];
        loop {
            match self.tls.reader().read(&mut part) {
                Ok(0) => return self.said_end = true,
                Ok(count) => self.plain.extend_from_slice(&part[..count]),
                Err(_) => return,
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        // The library would buffer no more than 64 KiB by default.
        self.tls.set_buffer_limit(None);
        self.tls.writer().write_all(bytes).expect("kept");
    }

    /// Sends the bytes, and returns all answers in order.
    fn converse<L: Language>(&mut self, worker: &mut Harness<L>, bytes: &[u8]) -> Vec<Reply> {
        self.say(bytes);
        let mut all = Vec::new();
        loop {
            self.settle(worker);
            let (more, _) = self.received();
            if more.is_empty() {
                return replies(&all, |_| false).expect("answers");
            }
            all.extend(more);
        }
    }
}

fn bodies(replies: Vec<Reply>) -> Vec<(u16, Vec<u8>)> {
    replies.into_iter().map(|reply| (reply.status, reply.body)).collect()
}

#[test]
fn a_request_is_answered_in_either_version_whatever_pieces_its_records_come_in() {
    let mut worker = called();
    for version in VERSIONS {
        for piece in [64 * 1024, 1000, 16, 3, 1] {
            let mut client = TlsClient::new(&mut worker, version, None);
            client.piece = piece;
            let replies = client.converse(&mut worker, HELLO);
            assert_eq!(bodies(replies), [(200, b"GET /echo\n".to_vec())], "{version:?} in pieces of {piece}");
            drop(client);
            worker.settle();
        }
    }
    assert_eq!(worker.connections(), 0);
}

#[test]
fn requests_that_share_a_record_are_answered_in_their_order() {
    let mut worker = called();
    let mut client = TlsClient::new(&mut worker, &TLS13, None);
    let many: Vec<u8> =
        (0..200).flat_map(|number| format!("GET /echo/{number} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()).collect();
    let replies = bodies(client.converse(&mut worker, &many));
    let wanted: Vec<_> = (0..200).map(|number| (200, format!("GET /echo/{number}\n").into_bytes())).collect();
    assert_eq!(replies, wanted);
}

/// A body larger than all buffers of either side, in records of the largest size.
fn large_bodies_pass<L: Language>(mut worker: Harness<L>) {
    for version in VERSIONS {
        for piece in [64 * 1024, 4999] {
            let body: Vec<u8> = (0..300_000u32).map(|number| (number % 251) as u8).collect();
            let mut client = TlsClient::new(&mut worker, version, Some(4096));
            client.piece = piece;
            let head = format!("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
            let replies = client.converse(&mut worker, &[head.as_bytes(), &body].concat());
            assert_eq!(replies.len(), 1);
            assert!(replies[0].is_whole && replies[0].body == [b"POST /echo\n", &body[..]].concat(), "{version:?} {piece}");
        }
    }
}

#[test]
fn large_bodies_pass_both_ways_through_a_narrow_socket() {
    large_bodies_pass(called());
}

#[test]
fn large_bodies_pass_to_an_application_that_takes_its_body_as_it_comes() {
    large_bodies_pass(worker_of(TestStreams::new(), &[]));
}

#[test]
fn a_body_of_unknown_length_passes_in_parts() {
    for (parts, bytes) in [(3, 10), (100, 1), (5, 100_000)] {
        let mut worker = called();
        let mut client = TlsClient::new(&mut worker, &TLS13, Some(4096));
        let request = format!("GET /stream/{parts}/{bytes} HTTP/1.1\r\nHost: h\r\n\r\n");
        let replies = client.converse(&mut worker, request.as_bytes());
        assert!(replies[0].is_whole && replies[0].body.len() == parts * bytes, "{parts} of {bytes}");
    }
}

#[test]
fn an_answer_is_one_record() {
    let mut worker = called();
    for version in VERSIONS {
        let mut client = TlsClient::new(&mut worker, version, None);
        client.settle(&mut worker);
        client.say(HELLO);
        let mut records = Vec::new();
        client.tls.write_tls(&mut records).expect("records");
        client.client.send(&records);
        worker.settle();
        let answer = client.client.received();
        let length = usize::from(u16::from_be_bytes([answer[3], answer[4]]));
        assert_eq!(answer.len(), 5 + length, "{version:?}");
    }
}

#[test]
fn the_end_of_a_connection_is_said_within_tls() {
    let mut worker = called();
    for version in VERSIONS {
        let mut client = TlsClient::new(&mut worker, version, None);
        client.say(b"GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        client.settle(&mut worker);
        let (answer, said) = client.received();
        assert!(answer.ends_with(b"GET /echo\n") && said, "{version:?}");
        assert!(client.has_ended);
    }
    assert_eq!(worker.connections(), 0);
}

#[test]
fn an_answer_that_is_given_up_and_has_no_other_end_is_no_whole_one() {
    let mut worker = called();
    let mut client = TlsClient::new(&mut worker, &TLS13, None);
    client.say(b"GET /fail/2/10 HTTP/1.0\r\n\r\n");
    client.settle(&mut worker);
    // The library reports it as an error: the connection ends without `close_notify`.
    while client.tls.wants_read() && !client.has_ended {
        client.take_in();
    }
    let _ = client.tls.read_tls(&mut std::io::empty());
    let mut all = Vec::new();
    let error = client.tls.reader().read_to_end(&mut all).expect_err("it was cut off");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_client_that_says_that_it_ends_is_ended_at_once() {
    let mut worker = called();
    for version in VERSIONS {
        let mut client = TlsClient::new(&mut worker, version, None);
        client.settle(&mut worker);
        client.say(HELLO);
        client.tls.send_close_notify();
        client.settle(&mut worker);
        let (answer, said) = client.received();
        assert!(answer.ends_with(b"GET /echo\n") && said, "{version:?}: what was asked before is answered");
        assert_eq!(worker.connections(), 0);
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_body_or_of_a_record_ends_its_own_connection() {
    let mut worker = called();
    for cut in [0, 1, 10] {
        let mut client = TlsClient::new(&mut worker, &TLS13, None);
        client.say(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf");
        client.settle(&mut worker);
        client.say(b"more");
        let mut records = Vec::new();
        client.tls.write_tls(&mut records).expect("records");
        client.client.send(&records[..records.len() - cut]);
        client.client.end_sending();
        worker.settle();
        assert_eq!(worker.connections(), 0, "{cut} bytes of the record are missing");
        assert!(client.received().0.is_empty());
    }
}

#[test]
fn a_record_of_which_a_bit_differs_ends_the_connection_with_an_alert() {
    let mut worker = called();
    let mut client = TlsClient::new(&mut worker, &TLS13, None);
    client.settle(&mut worker);
    client.say(HELLO);
    let mut records = Vec::new();
    client.tls.write_tls(&mut records).expect("records");
    let last = records.len() - 1;
    records[last] ^= 1;
    client.client.send(&records);
    worker.settle();
    client.client.end_sending();
    worker.settle();
    assert_eq!(worker.connections(), 0);
    let (alert, _) = client.client.receive(1000);
    assert!(!alert.is_empty(), "RFC 8446 section 5.2: bad_record_mac");
}

#[test]
fn http_to_an_https_port_gets_a_plain_text_error() {
    let mut worker = called();
    for cut in [1, 5, HELLO.len()] {
        let mut client = worker.client_of(HTTPS, None);
        client.send(&HELLO[..cut]);
        worker.settle();
        let _ = client.send_some(&HELLO[cut..]);
        worker.settle();
        let answer = String::from_utf8(client.received()).expect("text");
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.contains("use https://"), "{answer}");
        client.end_sending();
        worker.settle();
        assert_eq!(worker.connections(), 0);
    }
    // The log is shared by all tests of this program, and each line contains its worker's socket.
    let log = harness::log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("it speaks plain HTTP")).collect();
    let places: HashSet<&str> = told.iter().copied().collect();
    assert!(!told.is_empty() && told.len() == places.len(), "one line a minute: {log}");
}

#[test]
fn junk_in_place_of_a_handshake_or_within_one_ends_its_connection() {
    let mut worker = called();
    let mut hello = Vec::new();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config_of(&TLS13)), name).expect("a client");
    tls.write_tls(&mut hello).expect("records");
    let mut cases: Vec<Vec<u8>> = vec![
        vec![0; 100],
        vec![0x80, 0x2e, 1, 0, 2],
        vec![0x16; 100],
        b"\x16\x03\x01\xff\xff".to_vec(),
        b"\x16\x03\x01\x00\x00".to_vec(),
    ];
    for place in (0..hello.len()).step_by(7) {
        let mut other = hello.clone();
        other[place] ^= 0x55;
        cases.push(other);
        cases.push([&hello[..place], &[0xff; 64][..]].concat());
    }
    for case in cases {
        let mut client = worker.client_of(HTTPS, None);
        client.send(&case);
        worker.settle();
        client.end_sending();
        worker.settle();
        assert_eq!(worker.connections(), 0, "{case:?}");
    }
    let mut client = TlsClient::new(&mut worker, &TLS13, None);
    assert_eq!(bodies(client.converse(&mut worker, HELLO)), [(200, b"GET /echo\n".to_vec())], "the others are served");
}

#[test]
fn tls_to_an_http_port_is_logged_once() {
    let mut worker = called();
    for _ in 0..3 {
        let mut client = worker.client();
        client.send(b"\x16\x03\x01\x00\x05hello");
        worker.settle();
        drop(client);
        worker.settle();
    }
    let told = harness::log().lines().filter(|line| line.contains("The client speaks TLS")).count();
    assert_eq!(told, 1);
}

#[test]
fn events_after_a_handshake_that_came_with_a_request_are_not_lost() {
    // The last flight of the handshake and the request share one write, so no poll reports the second.
    let mut worker = called();
    let mut client = TlsClient::new(&mut worker, &TLS13, None);
    let mut records = Vec::new();
    client.tls.write_tls(&mut records).expect("records");
    client.client.send(&records);
    worker.settle();
    client.take_in();
    assert!(!client.tls.is_handshaking());
    client.say(HELLO);
    let mut records = Vec::new();
    while client.tls.wants_write() {
        client.tls.write_tls(&mut records).expect("records");
    }
    client.client.send(&records);
    worker.settle();
    client.take_in();
    assert!(client.received().0.ends_with(b"GET /echo\n"));
}
