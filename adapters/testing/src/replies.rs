//! Parses answers from the bytes of an HTTP/1 connection, as a client does. It trusts nothing: bytes that are not a valid answer
//! are an error. The tests run it.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    /// False: the connection ended before the body did.
    pub is_whole: bool,
}

/// Parses all answers. `is_head` returns whether the request of this number was HEAD, which is answered without a body.
///
/// # Errors
/// A sentence that describes the invalid bytes.
pub fn replies(bytes: &[u8], is_head: impl Fn(usize) -> bool) -> Result<Vec<Reply>, String> {
    let mut found = Vec::new();
    let mut left = bytes;
    while !left.is_empty() {
        let bytes = find(left, b"\r\n\r\n").ok_or("a head without an end")? + 4;
        let (head, rest) = left.split_at(bytes);
        let head = Head::read(head)?;
        if (100..200).contains(&head.status) {
            left = rest;
            continue;
        }
        let (body, used, is_whole) = if is_head(found.len()) || matches!(head.status, 204 | 304) {
            (Vec::new(), 0, true)
        } else if let Some(length) = head.length {
            let used = length.min(rest.len());
            (rest[..used].to_vec(), used, used == length)
        } else if head.is_chunked {
            chunks(rest)?
        } else {
            (rest.to_vec(), rest.len(), true)
        };
        left = &rest[used..];
        found.push(Reply { status: head.status, body, is_whole });
    }
    Ok(found)
}

struct Head {
    status: u16,
    length: Option<usize>,
    is_chunked: bool,
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Head, String> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|digits| digits.parse().ok());
        let mut head =
            Head { status: status.ok_or_else(|| format!("{first:?} is not a status line"))?, length: None, is_chunked: false };
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").ok_or_else(|| format!("{line:?} is not a field"))?;
            if name.eq_ignore_ascii_case("content-length") {
                head.length = Some(value.parse().map_err(|_| format!("{value:?} is not a length"))?);
            }
            head.is_chunked |= name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked";
        }
        Ok(head)
    }
}

/// Returns the content of a chunked body, its encoded length, and whether it is complete.
fn chunks(bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), String> {
    let (mut content, mut used) = (Vec::new(), 0);
    loop {
        let Some(line) = find(&bytes[used..], b"\r\n") else { return Ok((content, bytes.len(), false)) };
        let digits = String::from_utf8_lossy(&bytes[used..used + line]).into_owned();
        let length = usize::from_str_radix(&digits, 16).map_err(|_| format!("{digits:?} is not a size of a chunk"))?;
        used += line + 2;
        let Some(chunk) = bytes.get(used..used + length + 2) else { return Ok((content, bytes.len(), false)) };
        if !chunk.ends_with(b"\r\n") {
            return Err("a chunk has no line end behind it".to_owned());
        }
        content.extend_from_slice(&chunk[..length]);
        used += length + 2;
        if length == 0 {
            return Ok((content, used, true));
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_by_their_framing_and_other_bytes_are_refused() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\
            Content-Length: 9\r\n\r\nHTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n";
        let found = replies(bytes, |number| number == 1).expect("answers");
        let facts: Vec<_> = found.iter().map(|reply| (reply.status, &reply.body[..], reply.is_whole)).collect();
        assert_eq!(facts, [(200, &b"hi"[..], true), (200, b"", true), (404, b"no", true)]);
        let cut = replies(&bytes[..bytes.len() - 3], |number| number == 1).expect("answers");
        assert!(!cut[2].is_whole);
        for broken in
            ["what is this", "HTTP/1.1 200 OK\r\nno field\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxy\r\n"]
        {
            assert!(replies(broken.as_bytes(), |_| false).is_err(), "{broken}");
        }
    }
}
