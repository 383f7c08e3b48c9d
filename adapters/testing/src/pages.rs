//! The pages of the test applications, by the path of the request. It knows neither answers nor connections. The threads of a
//! test worker run it.
//!
//! | path | answer |
//! | --- | --- |
//! | `/echo…` | the method, the target, and the request's body, with a Content-Length |
//! | `/fields` | the request's header fields, one a line |
//! | `/variables` | the request's CGI variables, one a line |
//! | `/slow/NAME`, `/busy/NAME` | the same as `/echo`, once the gate NAME is open; `/busy` holds the language in the meantime |
//! | `/stream/PARTS/BYTES` | a body of unknown length: PARTS parts of BYTES bytes each |
//! | `/fail` | the application fails before it has sent anything |
//! | `/fail/PARTS/BYTES` | it fails after these parts |
//! | `/leave` | it fails, and asks the process to exit |
//! | `/short`, `/long` | less, and more, than its Content-Length |
//! | anything else | 404 |

/// Most bytes of an answer that a request can ask for, and most parts.
const MAX_BYTES: usize = 4 * 1024 * 1024;
const MAX_PARTS: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    Echo,
    Fields,
    Variables,
    Slow { gate: String, keeps_language: bool },
    Stream { parts: usize, bytes: usize, fails: bool },
    Fail { leaves: bool },
    Short,
    Long,
    NotFound,
}

impl Page {
    pub fn of(path: &[u8]) -> Page {
        let path = String::from_utf8_lossy(path);
        let mut segments = path.split('/').skip(1);
        let name = segments.next().unwrap_or_default();
        let rest: Vec<&str> = segments.collect();
        let number = |text: &str, most: usize| text.parse::<usize>().ok().filter(|number| *number <= most);
        match (name, rest.as_slice()) {
            ("echo", _) => Page::Echo,
            ("fields", []) => Page::Fields,
            ("variables", []) => Page::Variables,
            ("slow" | "busy", [gate]) => Page::Slow { gate: (*gate).to_owned(), keeps_language: name == "busy" },
            ("fail", []) => Page::Fail { leaves: false },
            ("leave", []) => Page::Fail { leaves: true },
            ("short", []) => Page::Short,
            ("long", []) => Page::Long,
            ("stream" | "fail", [parts, bytes]) => match (number(parts, MAX_PARTS), number(bytes, MAX_BYTES)) {
                (Some(parts), Some(bytes)) if parts * bytes <= MAX_BYTES => Page::Stream { parts, bytes, fails: name == "fail" },
                _ => Page::NotFound,
            },
            _ => Page::NotFound,
        }
    }
}

/// The bytes of one part of a stream: each part has a different letter.
pub fn part(number: usize, bytes: usize) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; bytes]
}

/// The complete body of a stream.
pub fn stream(parts: usize, bytes: usize) -> Vec<u8> {
    (0..parts).flat_map(|number| part(number, bytes)).collect()
}
