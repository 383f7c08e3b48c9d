//! `check-cache`: an item of a cache that is a whole response, from its status line to its body. Workers run it, for each request
//! that such an item answers.

use std::borrow::Cow;

use crate::status;
use crate::verdict::Answer;

/// Maximum size of a response's head in a cache, in bytes.
const HEAD_BYTES: usize = 64 * 1024;

/// Fields that the server sets itself.
const OWN: &[&str] = &[
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-connection",
    "server",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns the answer of an item that was stored as a whole response. One that does not begin like a response of HTTP/1 is the
/// body of a page.
pub fn whole_response(item: Vec<u8>) -> Answer {
    match parse(&item) {
        Some((answer, body)) => Answer { body: item[body..].to_vec(), ..answer },
        None => {
            let fields = vec![("Content-Type".into(), b"text/html".to_vec())];
            Answer { status: 200, reason: "OK".into(), fields, body: item, closes: false, is_in_own_words: false }
        }
    }
}

/// Returns the head, and where the body begins.
fn parse(item: &[u8]) -> Option<(Answer, usize)> {
    if !item.starts_with(b"HTTP/1.") {
        return None;
    }
    let mut fields = Vec::new();
    let mut status_line = None;
    let mut at = 0;
    while at < HEAD_BYTES {
        let end = at + item.get(at..)?.iter().position(|&byte| byte == b'\n')?;
        let line = item[at..end].strip_suffix(b"\r").unwrap_or(&item[at..end]);
        at = end + 1;
        match &status_line {
            None => status_line = Some(status_of(line)?),
            Some((status, reason)) if line.is_empty() => {
                let reason: Cow<'static, str> = reason.clone().into();
                let answer = Answer { status: *status, reason, fields, body: Vec::new(), closes: false, is_in_own_words: false };
                return Some((answer, at));
            }
            Some(_) => {
                let colon = line.iter().position(|&byte| byte == b':')?;
                let name = std::str::from_utf8(&line[..colon]).ok()?;
                if !OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
                    fields.push((name.to_owned().into(), line[colon + 1..].trim_ascii().to_vec()));
                }
            }
        }
    }
    None
}

/// `HTTP/1.1 200 OK`
fn status_of(line: &[u8]) -> Option<(u16, String)> {
    let line = std::str::from_utf8(line).ok()?;
    let (_, rest) = line.split_once(' ')?;
    let (code, reason) = status::split(rest)?;
    (code >= 200).then(|| (code, reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(answer: &Answer) -> Vec<(&str, &str)> {
        answer.fields.iter().map(|(name, value)| (&**name, std::str::from_utf8(value).unwrap())).collect()
    }

    #[test]
    fn a_whole_response_keeps_its_status_fields_and_body() {
        let item = b"HTTP/1.0 404 Not Here\r\nContent-Type: text/plain\r\nX-A:  b \r\nContent-Length: 99\r\n\r\nbody\r\n\r\nmore";
        let answer = whole_response(item.to_vec());
        assert_eq!((answer.status, &*answer.reason), (404, "Not Here"));
        assert_eq!(fields(&answer), [("Content-Type", "text/plain"), ("X-A", "b")]);
        assert_eq!(answer.body, b"body\r\n\r\nmore");
        let answer = whole_response(b"HTTP/1.1 204 No Content\n\n".to_vec());
        assert_eq!((answer.status, answer.body.len(), answer.fields.len()), (204, 0, 0));
    }

    #[test]
    fn anything_else_is_the_body_of_a_page() {
        let long = [b"HTTP/1.1 200 OK\r\n".as_slice(), &b"X: 1\r\n".repeat(20_000), b"\r\n"].concat();
        for item in [&b"<p>page"[..], b"HTTP/1.1 200 OK", b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", &long] {
            let answer = whole_response(item.to_vec());
            assert_eq!((answer.status, answer.body.as_slice()), (200, item));
            assert_eq!(fields(&answer), [("Content-Type", "text/html")]);
        }
    }
}
