//! Headers of the PROXY protocol.

use bolide_protocol::Progress;
use bolide_protocol::proxy_header::{MAX_PROXY_HEADER_BYTES, proxy_header};

use crate::cases::proxy_header::{SIGNATURE, cases};
use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target {
    name: "proxy_header",
    check,
    seeds,
    words: &[
        SIGNATURE,
        b"PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\n",
        b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n",
        b"PROXY UNKNOWN\r\n",
        b"\x21\x11\x00\x0c",
        b"\x21\x21\x00\x24",
        b"\x20\x00\x00\x00",
        b"\x20\x00\x05\x01\0\0\0\0",
        b"\x21\x00\x07TLSv1.3",
        b"\r\n",
    ],
};

fn check(input: &[u8]) -> Result<Kind, String> {
    let header = match proxy_header(input) {
        Ok(Progress::Complete(header)) => header,
        Ok(Progress::Partial) => {
            ensure!(input.len() < MAX_PROXY_HEADER_BYTES, "more is waited for than a header may have");
            return Ok(Kind::of("partial"));
        }
        Err(fault) => {
            ensure!(fault.status == 400 && !fault.reason.is_empty(), "a fault without a status or a reason");
            let longer = [input, b"\r\n"].concat();
            ensure!(proxy_header(&longer).is_err(), "what is wrong becomes right by what follows it");
            return Ok(Kind::of(fault.reason));
        }
    };
    ensure!((1..=MAX_PROXY_HEADER_BYTES).contains(&header.length) && header.length <= input.len(), "a length beyond the bytes");
    // Fuzzers make small inputs, so every prefix can be tried.
    for end in 0..header.length {
        ensure!(proxy_header(&input[..end]) == Ok(Progress::Partial), "the header is whole, or wrong, without its last bytes");
    }
    ensure!(proxy_header(&input[..header.length]) == Ok(Progress::Complete(header)), "what follows a header changes it");
    for text in header.tls.iter().flat_map(|tls| [tls.version, tls.cipher, tls.common_name]) {
        ensure!(text.start <= text.end && text.end as usize <= header.length, "a text that is not the header's");
    }
    Ok(Kind::of((std::mem::discriminant(&header.source), header.tls.map(|tls| (tls.has_certificate, tls.is_verified)))))
}

fn seeds() -> Vec<Vec<u8>> {
    cases().into_iter().map(|case| case.bytes).collect()
}
