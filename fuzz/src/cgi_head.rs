//! Header blocks of CGI programs.

use bolide_cgi::head::{Head, HeadFault, HeadReader, MAX_HEAD_BYTES};

use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target {
    name: "cgi_head",
    check,
    seeds,
    words: &[b"Status: ", b"404 Not Found", b"Location: ", b"Content-Type: text/html", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b" "],
};

/// The number of bytes of a block, and the block; `None`: it is not complete.
type Read = Result<Option<(usize, Head)>, HeadFault>;

fn check(input: &[u8]) -> Result<Kind, String> {
    let whole = read(input, input.len().max(1));
    ensure!(read(input, 1) == whole, "the block differs byte by byte");
    let (used, head) = match whole {
        Ok(Some(read)) => read,
        Ok(None) => {
            ensure!(input.len() < MAX_HEAD_BYTES, "a block beyond the bound goes on");
            return Ok(Kind::of("incomplete"));
        }
        Err(HeadFault(fault)) => return Ok(Kind::of(("fault", fault.get(..12).map(str::to_owned)))),
    };
    ensure!(used <= input.len().min(MAX_HEAD_BYTES), "a block beyond the input or the bound");
    let block = &input[..used];
    ensure!(block.ends_with(b"\n"), "a block without its empty line");
    let is_same = matches!(read(block, used), Ok(Some((again, of_block))) if again == used && of_block == head);
    ensure!(is_same, "what follows a block changes it");
    let status = head.status();
    ensure!(matches!(status, [b'2'..=b'5', b'0'..=b'9', b'0'..=b'9', ..]), "a status that is none");
    let mut count = 0;
    for (name, value) in head.fields() {
        count += 1;
        ensure!(!name.is_empty() && !name.eq_ignore_ascii_case(b"status"), "a field without a name, or the status");
        ensure!(!value.contains(&b'\n'), "a value of two lines");
    }
    Ok(Kind::of((used.min(80), count.min(8), status.first().copied())))
}

fn read(input: &[u8], step: usize) -> Read {
    let mut reader = HeadReader::default();
    let mut used = 0;
    for piece in input.chunks(step) {
        let (taken, head) = reader.feed(piece)?;
        used += taken;
        if let Some(head) = head {
            return Ok(Some((used, head)));
        }
    }
    Ok(None)
}

fn seeds() -> Vec<Vec<u8>> {
    let blocks = [
        &b"Content-Type: text/html\n\nbody"[..],
        b"Content-Type: text/html\r\n\r\nbody",
        b"Content-Type: text/html\r\n\nbody",
        b"Content-Type: text/html\n\r\nbody",
        b"Status: 404 Not Found\r\nContent-Type: text/html\r\n\r\nbody",
        b"Status: 204\n\n",
        b"Status: 999 None\n\n",
        b"Status: OK\n\n",
        b"Status: 200 OK\nStatus: 500 No\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n",
        b"Location: /there\n\n",
        b"Location: https://there.example/\nStatus: 301 Moved Permanently\n\n",
        b"Content-Length: 4\nContent-Type: text/plain\n\nbody",
        b"Set-Cookie: a=b\nSet-Cookie: c=d\n\n",
        b"X-Empty:\n\n",
        b"X-Spaces: \t a b \t\n\n",
        b" folded: line\n\n",
        b"no colon\n\n",
        b": no name\n\n",
        b"a name: with a blank\n\n",
        b"X-Zero: a\0b\n\n",
        b"\n",
        b"\r\n",
        b"\r\r\n",
        b"<p>no head</p>\n\n",
        b"",
    ];
    blocks.iter().map(|block| block.to_vec()).collect()
}
