//! An HTTP/2 client for tests of the worker: it writes and reads frames by hand, with the few fields that need no compression. It
//! must not know the worker's own code for HTTP/2. The tests run it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_contract::tls::Http2;
use bolide_engine::app::Language;

use crate::gates::LocalGates;
use crate::harness::{Client, HTTP, Harness, settings};
use crate::language::TestLanguage;
use crate::streaming::TestStreams;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Bytes of a body that a client accepts before it sends WINDOW_UPDATE (RFC 9113 section 6.9.2).
pub const WINDOW_BYTES: usize = 65_535;

pub fn worker<L: Language>(language: &'static L) -> Harness<L> {
    let mut settings = settings(&[]);
    settings.listeners[0].http2 = Http2::Everywhere;
    Harness::with_settings(language, settings)
}

pub fn called() -> Harness<TestLanguage> {
    worker(TestLanguage::new(Arc::new(LocalGates::default())))
}

pub fn streamed() -> (Harness<TestStreams>, &'static TestStreams) {
    let language = TestStreams::new();
    (worker(language), language)
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request without a body: fields that refer to the static table, and literals (RFC 7541 section 6).
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    head(stream, 0x82, path, END_STREAM)
}

/// The head of a request whose body follows.
pub fn post(stream: u32, path: &str) -> Vec<u8> {
    head(stream, 0x83, path, 0)
}

pub fn head(stream: u32, method: u8, path: &str, flags: u8) -> Vec<u8> {
    let block = [&[method, 0x86, 0x04, path.len() as u8], path.as_bytes(), b"\x01\x01h"].concat();
    frame(HEADERS, flags | END_HEADERS, stream, &block)
}

pub fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// The data that a client has received on each stream, and on the connection.
#[derive(Debug, Default)]
pub struct Got {
    pub bodies: BTreeMap<u32, Vec<u8>>,
    pub ended: Vec<u32>,
    pub reset: Vec<u32>,
    /// The last stream identifiers of the GOAWAY frames.
    pub goaways: Vec<u32>,
    /// The error codes of those frames (RFC 9113 section 7).
    pub codes: Vec<u32>,
    /// Bytes by which the connection's window was opened.
    pub granted: usize,
    rest: Vec<u8>,
}

impl Got {
    pub fn read(&mut self, client: &mut Client) {
        self.take(&client.received());
    }

    pub fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let [a, b, c, kind, flags, stream @ ..] = self.rest.as_slice() {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let Some((number, rest)) = stream.split_first_chunk() else { return };
            let number = u32::from_be_bytes(*number);
            let Some(payload) = rest.get(..length) else { return };
            match *kind {
                DATA => self.bodies.entry(number).or_default().extend_from_slice(payload),
                HEADERS => drop(self.bodies.entry(number).or_default()),
                RST_STREAM => self.reset.push(number),
                WINDOW_UPDATE if number == 0 => {
                    self.granted += u32::from_be_bytes(payload.try_into().expect("four bytes")) as usize
                }
                GOAWAY => {
                    let number = |place: usize| u32::from_be_bytes(payload[place..place + 4].try_into().expect("four bytes"));
                    self.goaways.push(number(0));
                    self.codes.push(number(4));
                }
                _ => {}
            }
            if matches!(*kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                self.ended.push(number);
            }
            self.rest.drain(..9 + length);
        }
    }

    pub fn text(&self, stream: u32) -> &str {
        self.bodies.get(&stream).map_or("", |body| std::str::from_utf8(body).expect("text"))
    }
}

/// Connects a client and sends its preface.
pub fn client<L: Language>(worker: &mut Harness<L>) -> Client {
    let mut client = worker.client_of(HTTP, None);
    client.send(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
    worker.settle();
    client.send(&frame(SETTINGS, 1, 0, b""));
    worker.settle();
    client
}
