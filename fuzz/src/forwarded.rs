//! Statements of reverse proxies about a request, in the fields of a header block.

use std::net::IpAddr;

use bolide_protocol::Progress;
use bolide_protocol::forwarded::{ForwardedFields, forwarded_request};
use bolide_protocol::http1::head::{HeadLimits, Version, header_block};

use crate::cases::forwarded::CASES;
use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target {
    name: "forwarded",
    check,
    seeds,
    words: &[
        b"X-Forwarded-For: ",
        b"X-Forwarded-Proto: https\r\n",
        b"X-Forwarded-Host: ",
        b"X-Forwarded-Port: 443\r\n",
        b"X-Forwarded-Prefix: /",
        b"Forwarded: for=",
        b"for=\"[2001:db8::1]:4711\"",
        b";proto=https",
        b";host=\"",
        b", 10.0.0.1",
        b"\\\"",
    ],
};

const LIMITS: HeadLimits = HeadLimits::of(1024, 4096, 128);

const COUNTING: ForwardedFields = ForwardedFields {
    x_forwarded_for: true,
    x_forwarded_proto: true,
    x_forwarded_host: true,
    x_forwarded_port: true,
    x_forwarded_prefix: true,
    forwarded: true,
};

fn check(input: &[u8]) -> Result<Kind, String> {
    let mut fields = Vec::new();
    let Ok(Progress::Complete(facts)) = header_block(input, Version::Http10, &LIMITS, &mut fields) else {
        return Ok(Kind::of("no block"));
    };
    let is_trusted = |address: IpAddr| matches!(address, IpAddr::V4(address) if address.octets()[0] == 10);
    let found = forwarded_request(&fields, input, COUNTING, &is_trusted);
    if let Some(host) = found.host {
        ensure!(
            !host.is_empty() && host.iter().all(|byte| byte.is_ascii_graphic() && !b"/\\@\"<>?#".contains(byte)),
            "a host that is none"
        );
    }
    if let Some(prefix) = found.prefix {
        let begins = prefix.is_empty() || prefix.starts_with(b"/") && !prefix.starts_with(b"//");
        ensure!(begins && prefix.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'\\'), "a prefix that is not a path");
    }
    let of_nobody = forwarded_request(&fields, input, ForwardedFields::default(), &is_trusted);
    ensure!(of_nobody.is_empty(), "a field that does not count says something");
    // A reverse proxy appends its own entry: no earlier one changes the client's address.
    let before = &input[..facts.length as usize - b"\r\n".len()];
    let appended = [before, b"X-Forwarded-For: 192.0.2.77\r\n\r\n"].concat();
    if matches!(header_block(&appended, Version::Http10, &LIMITS, &mut fields), Ok(Progress::Complete(_))) {
        let client = forwarded_request(&fields, &appended, COUNTING, &is_trusted).client;
        ensure!(client.is_some_and(|client| client.address == IpAddr::from([192, 0, 2, 77])), "a client chooses its own address");
    }
    Ok(Kind::of((
        found.client.map(|client| client.port.is_some()),
        found.is_https,
        found.host.is_some(),
        found.port.is_some(),
        found.prefix.is_some(),
    )))
}

fn seeds() -> Vec<Vec<u8>> {
    let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
    CASES.iter().map(|(list, _)| (list.iter().map(line).collect::<String>() + "\r\n").into_bytes()).collect()
}
