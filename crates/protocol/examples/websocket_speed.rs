//! Measures the cost of WebSocket messages, in nanoseconds, and their length when compressed.
//!
//! `cargo run --release -p bolide-protocol --example websocket_speed`. Prints the best of several rounds, because on a busy
//! machine that is the least disturbed one.

use std::hint::black_box;
use std::time::Instant;

use bolide_protocol::websocket::{Deflation, Event, Inflation, Limits, MessageKind, Receiver, handshake, send};

const ROUNDS: usize = 15;
const MESSAGE_BYTES: [usize; 7] = [0, 100, 256, 512, 1024, 4096, 65536];
const LIMITS: Limits = Limits { message_bytes: 1 << 20 };

/// Typical application data, cut to a length.
fn json(length: usize) -> Vec<u8> {
    let record = |number: usize| {
        format!(
            "{{\"id\":{number},\"name\":\"customer {}\",\"balance\":{},\"active\":{}}},",
            number * 31,
            number * 7919 % 1000,
            number.is_multiple_of(3)
        )
    };
    (0..=length / 40).map(record).collect::<String>().into_bytes()[..length].to_vec()
}

fn client_frame(is_compressed: bool, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![0x81 | u8::from(is_compressed) << 6, 0xff];
    frame.extend((payload.len() as u64).to_be_bytes());
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// Returns the nanoseconds of one call, the best of several rounds.
fn best(count: usize, mut call: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..count).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / count as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    let Ok(Some(deflate)) = handshake::negotiate(b"permessage-deflate") else { return };
    let (mut inflation, mut deflation) = (Inflation::default(), Deflation::default());
    println!("{:>8} {:>8} {:>8} {:>8} {:>9} {:>8}", "bytes", "receive", "send", "inflate", "deflated", "deflate");
    for length in MESSAGE_BYTES {
        let payload = json(length);
        let count = (4_000_000 / (length + 2000)).max(20);
        let mut out = Vec::new();
        let mut receiver = Receiver::new(LIMITS, Some(deflate));
        let mut receive = |frame: &[u8]| {
            let mut input = frame.to_vec();
            let copying = best(count, || input.copy_from_slice(black_box(frame)));
            let whole = best(count, || {
                input.copy_from_slice(black_box(frame));
                let told = receiver.feed(&mut input, &mut inflation);
                assert!(matches!(black_box(told), Ok((_, Event::Message { .. }))));
            });
            whole - copying
        };
        let plain = receive(&client_frame(false, &payload));
        let sending = best(count, || {
            out.clear();
            send::encode_message(MessageKind::Text, black_box(&payload), None, &mut out);
        });
        let deflating = best(count, || {
            out.clear();
            send::encode_message(MessageKind::Text, black_box(&payload), Some((&deflate, &mut deflation)), &mut out);
        });
        // A server's frame of less than 64 KiB has a head of four bytes at most.
        let head = if out.len() < 128 { 2 } else { 4 };
        let is_compressed = out.first().is_some_and(|&byte| byte & 0x40 != 0);
        let inflating = if is_compressed { receive(&client_frame(true, &out[head..])) } else { plain };
        println!("{length:8} {plain:8.0} {sending:8.0} {inflating:8.0} {:9} {deflating:8.0}", out.len());
    }
}
