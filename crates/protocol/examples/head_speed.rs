//! Measures the time to parse a request's head, in nanoseconds: ours, and `httparse` with the code that it would need around it.
//!
//! `cargo run --release -p bolide-protocol --example head_speed`. Prints the best of several rounds, because on a busy machine
//! that is the least disturbed one.

use std::hint::black_box;
use std::time::Instant;

use bolide_protocol::Progress;
use bolide_protocol::http1::head::{Field, HeadLimits, header_block, request_line};
use bolide_protocol::http1::target::split_target;

const ROUNDS: usize = 25;
const HEADS_PER_ROUND: u32 = 40_000;
const LIMITS: HeadLimits = HeadLimits::of(8192, 65536, 100);

const SMALL: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: wrk/4.2.0\r\nAccept: */*\r\n\r\n";

const BROWSER: &[u8] = b"GET /shop/articles/4711?color=blue&size=42&sort=price HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: max-age=0\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Dest: document\r\n\
    Referer: https://www.example.org/shop/\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9\r\n\
    Cookie: sessionid=3f9d2b7c5a1e4f608d7c9b2a1e3f5d7c; csrftoken=Zx8Qw2Er4Ty6Ui8Op0As2Df4Gh6Jk8L0\r\n\r\n";

fn main() {
    for (label, head) in [("wrk-like", SMALL), ("browser-like", BROWSER)] {
        let mut fields = Vec::with_capacity(64);
        let ours = nanoseconds(|| read_ours(black_box(head), &mut fields));
        let theirs = nanoseconds(|| read_httparse(black_box(head), &mut fields));
        println!("{label:13} {:4} bytes: {ours:6.1} ns, httparse {theirs:6.1} ns", head.len());
    }
}

fn nanoseconds(mut read: impl FnMut() -> usize) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..HEADS_PER_ROUND {
            black_box(read());
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(HEADS_PER_ROUND));
    }
    best
}

/// All work between the read buffer and the call of an application: line, fields, facts and the parts of the target.
fn read_ours(head: &[u8], fields: &mut Vec<Field>) -> usize {
    let Ok(Progress::Complete(line)) = request_line(head, &LIMITS) else { return 0 };
    let target = split_target(line.target.of(head), line.method.of(head));
    let Ok(Progress::Complete(facts)) = header_block(&head[line.length as usize..], line.version, &LIMITS, fields) else {
        return 0;
    };
    facts.length as usize + target.map_or(0, |target| target.path.len())
}

/// Only the fields as spans, and the second pass that finds a bare LF: no facts, no checks of Host.
fn read_httparse(head: &[u8], fields: &mut Vec<Field>) -> usize {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = request.parse(head) else { return 0 };
    let newlines = memchr::memchr_iter(b'\n', &head[..length]).count();
    let returns = memchr::memchr_iter(b'\r', &head[..length]).count();
    fields.clear();
    let base = head.as_ptr() as usize;
    let span = |text: &[u8]| {
        let start = (text.as_ptr() as usize - base) as u32;
        bolide_protocol::Span { start, end: start + text.len() as u32 }
    };
    fields.extend(request.headers.iter().map(|header| Field { name: span(header.name.as_bytes()), value: span(header.value) }));
    length + usize::from(newlines != returns)
}
