//! A connection to an HTTPS port, with junk at each stage: instead of a handshake, within it, after it instead of records, and
//! within records. The first byte of an input selects the stage ([`Stage`]), the second how the client's own records are changed.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::sync::Arc;

use bolide_testing::gates::Events;
use bolide_testing::harness::{Client, Harness, discard_log, settings};
use bolide_testing::interpreter::Interpreter;
use bolide_testing::language::TestLanguage;
use bolide_tls::rustls::pki_types::pem::PemObject;
use bolide_tls::rustls::pki_types::{CertificateDer, ServerName};
use bolide_tls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target {
    name: "tls",
    check,
    seeds,
    words: &[
        b"\x16\x03\x01",
        b"\x16\x03\x03\x00\x04\x0e\x00\x00\x00",
        b"\x14\x03\x03\x00\x01\x01",
        b"\x15\x03\x03\x00\x02\x01\x00",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x17\x03\x03\x00\x00",
        b"\x17\x03\x03\x40\x11",
        b"\xff\xff",
        b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
};

/// How often bytes are moved between client and worker, at most: a handshake needs three.
const MAX_ROUNDS: u32 = 32;

/// The stage at which the input's bytes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// Instead of the client's first message.
    First,
    /// After the client's first message.
    Within,
    /// After the handshake, instead of records.
    Records,
    /// Within records.
    Plain,
}

struct Served {
    worker: Harness<TestLanguage>,
    interpreter: &'static Interpreter,
    /// The number of the listener.
    https: u32,
    config: Arc<ClientConfig>,
}

thread_local! {
    static SERVED: RefCell<Option<Served>> = const { RefCell::new(None) };
}

fn check(input: &[u8]) -> Result<Kind, String> {
    let [first, changed, sent @ ..] = input else { return Ok(Kind::of("nothing")) };
    if sent.windows(5).any(|window| window == b"leave") {
        // The application would end the worker.
        return Ok(Kind::of("nothing"));
    }
    let stage = [Stage::First, Stage::Within, Stage::Records, Stage::Plain][usize::from(first % 4)];
    SERVED.with_borrow_mut(|served| talk(served.get_or_insert_with(served_by_tls), stage, *changed, sent))
}

fn served_by_tls() -> Served {
    discard_log();
    let language = TestLanguage::new(Arc::new(Events(|_: &str| {})));
    let settings = settings(&["--https", "127.0.0.1:0,auto", "--http2", "off", "--limit-post", "20000"]);
    let https = settings.listeners.iter().position(|listener| listener.tls.is_some()).expect("asked for");
    let chain = settings.listeners[https].tls.as_ref().map_or(&b""[..], |tls| &tls.certificates[0].chain);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(chain).expect("a certificate")).expect("a root");
    let config = ClientConfig::builder_with_provider(bolide_tls::provider().clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Served {
        worker: Harness::with_settings(language, settings),
        interpreter: language.interpreter,
        https: https as u32,
        config: Arc::new(config),
    }
}

fn talk(served: &mut Served, stage: Stage, changed: u8, sent: &[u8]) -> Result<Kind, String> {
    let Served { worker, interpreter, https, config } = served;
    let mut client = worker.client_of(*https, None);
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(config.clone(), name).map_err(|error| error.to_string())?;
    let mut received = Vec::new();
    let is_whole = match stage {
        Stage::First => true,
        Stage::Within => {
            send_records(&mut client, &mut tls, changed);
            true
        }
        Stage::Records | Stage::Plain => {
            shake_hands(worker, &mut client, &mut tls, if stage == Stage::Plain { 0 } else { changed })?
        }
    };
    if stage == Stage::Plain && is_whole {
        let _ = tls.writer().write_all(sent);
        send_records(&mut client, &mut tls, changed);
    } else {
        let _ = client.send_some(sent);
    }
    worker.settle();
    received.extend(client.receive(usize::from(u16::MAX)).0);
    let _is_closed_already = client.stream.shutdown(std::net::Shutdown::Write);
    worker.settle();
    received.extend(client.receive(usize::from(u16::MAX)).0);
    drop(client);
    worker.settle();
    ensure!(worker.connections() == 0, "the connection is not over");
    let (kept, faults) = interpreter.balance();
    ensure!((kept, faults) == (0, 0), "{kept} answers are left with the engine, {faults} times it broke its word");
    let calls = interpreter.take_calls().len();
    ensure!(calls == 0 || stage == Stage::Plain, "{calls} calls for bytes that no side has encrypted");
    if received.starts_with(b"HTTP/1.1 400 ") {
        ensure!(stage == Stage::First, "an answer in plain text behind a handshake");
        return Ok(Kind::of("plain text"));
    }
    // Change cipher spec, alert, handshake, application data: RFC 8446 section 5.1.
    ensure!(received.first().is_none_or(|first| (0x14..=0x17).contains(first)), "what is not a record was sent");
    let alert = received.get(..7).filter(|bytes| bytes[0] == 0x15).map(<[u8]>::to_vec);
    Ok(Kind::of((stage, is_whole, alert, calls.min(4), received.len().min(4))))
}

/// Completes a handshake. Returns false if the worker did not accept it.
fn shake_hands(
    worker: &mut Harness<TestLanguage>,
    client: &mut Client,
    tls: &mut ClientConnection,
    changed: u8,
) -> Result<bool, String> {
    for _ in 0..MAX_ROUNDS {
        send_records(client, tls, changed);
        worker.settle();
        let (bytes, has_ended) = client.receive(usize::from(u16::MAX));
        let mut left = &bytes[..];
        while !left.is_empty() {
            tls.read_tls(&mut left).map_err(|error| error.to_string())?;
            if tls.process_new_packets().is_err() {
                // The client's records were changed on their way, so an alert is a valid answer.
                ensure!(changed != 0, "the server does not keep to TLS");
                return Ok(false);
            }
            let _ = tls.reader().read_to_end(&mut Vec::new());
        }
        if has_ended || !tls.is_handshaking() && !tls.wants_write() {
            return Ok(!has_ended);
        }
    }
    Ok(false)
}

/// Sends the pending records of the library, with one byte changed.
fn send_records(client: &mut Client, tls: &mut ClientConnection, changed: u8) {
    let mut records = Vec::new();
    while tls.wants_write() && tls.write_tls(&mut records).is_ok() {}
    if changed != 0 && !records.is_empty() {
        let place = usize::from(changed) * 7 % records.len();
        records[place] ^= changed;
    }
    let _ = client.send_some(&records);
}

fn seeds() -> Vec<Vec<u8>> {
    let sent: [&[u8]; 8] = [
        b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",
        b"\x17\x03\x03\x00\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"\x14\x03\x03\x00\x01\x01\x14\x03\x03\x00\x01\x01\x14\x03\x03\x00\x01\x01",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"",
    ];
    let mut seeds = Vec::new();
    for stage in 0..4u8 {
        for changed in [0, 1, 77] {
            seeds.extend(sent.iter().map(|sent| [&[stage, changed], *sent].concat()));
        }
    }
    seeds
}
