//! Turns a file and a request's conditions into an answer: which head, which bytes. Pure, except that a counter is part of
//! the boundary of a multipart answer. It must not know sockets: the engine sends the answer. Workers run it.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::codings::AcceptedCodings;
use crate::conditions::{Conditions, Outcome, Validators, evaluate, range_holds};
use crate::dates;
use crate::entry::{Content, Entry, Head, Variant};
use crate::ranges::{RequestedRange, wanted};
use crate::roots::FileVersion;

/// An answer, complete except for the connection's own fields.
pub struct Answer {
    pub status: u16,
    head: AnswerHead,
    /// Fields that depend on the moment.
    extra: Head,
    /// The value of Content-Length; `None` if the answer does not contain one.
    pub length: Option<u64>,
    pub body: Body,
}

enum AnswerHead {
    Whole(Arc<Entry>, usize),
    NotModified(Arc<Entry>, usize),
    Made(Head),
}

/// The bytes that follow the head. They are not sent in answer to HEAD.
pub enum Body {
    Nothing,
    Text(Vec<u8>),
    Memory(Arc<[u8]>, Range<usize>),
    File(FileRange),
    Parts(Parts),
}

/// A range of an open file, and the version that the file had when the head was made.
pub struct FileRange {
    pub file: Arc<File>,
    pub bytes: Range<u64>,
    pub version: FileVersion,
}

/// Several ranges of a file, each with the lines that precede it: multipart/byteranges.
pub struct Parts {
    pub parts: Vec<(Vec<u8>, FileRange)>,
    pub end: Vec<u8>,
}

impl Answer {
    /// Returns the lines of the head, each with its line end, without the empty line. The first is the status and its reason.
    pub fn head(&self) -> [&[u8]; 2] {
        [&self.first().bytes, &self.extra.bytes]
    }

    /// Returns the number of fields in the head.
    pub fn fields(&self) -> u32 {
        self.first().fields + self.extra.fields
    }

    /// Whether the file is still the version that the head describes. Always true of content in memory.
    pub(crate) fn is_current(&self) -> bool {
        let part = match &self.body {
            Body::File(part) => Some(part),
            Body::Parts(parts) => parts.parts.first().map(|(_, part)| part),
            _ => None,
        };
        part.is_none_or(|part| FileVersion::now(&part.file).is_ok_and(|version| version == part.version))
    }

    fn first(&self) -> &Head {
        match &self.head {
            AnswerHead::Whole(entry, variant) => &entry.variants[*variant].whole,
            AnswerHead::NotModified(entry, variant) => &entry.variants[*variant].not_modified,
            AnswerHead::Made(head) => head,
        }
    }

    /// A short text answer without a file. `fields` are more lines of its head.
    pub fn plain_text(status: u16, reason: &str, fields: Head, text: &str) -> Answer {
        let body = format!("{text}\n").into_bytes();
        let head = Head::status(&format!("{status} {reason}"))
            .with("Content-Type", "text/plain; charset=utf-8")
            .and(&fields)
            .with_number("Content-Length", body.len() as u64);
        let length = Some(body.len() as u64);
        Answer { status, head: AnswerHead::Made(head), extra: Head::default(), length, body: Body::Text(body) }
    }

    /// An answer without a body.
    pub fn empty(status: u16, reason: &str, fields: Head) -> Answer {
        let mut head = Head::status(&format!("{status} {reason}")).and(&fields);
        // RFC 9110 section 8.6: no Content-Length in a 204.
        let length = (status != 204).then_some(0);
        if length.is_some() {
            head = head.with_number("Content-Length", 0);
        }
        Answer { status, head: AnswerHead::Made(head), extra: Head::default(), length, body: Body::Nothing }
    }

    /// Returns the variant that a 304 is about: its type, its length, and whether it is a compressed form.
    pub fn unmodified(&self) -> Option<(&str, u64, bool)> {
        let AnswerHead::NotModified(entry, variant) = &self.head else { return None };
        let variant = &entry.variants[*variant];
        Some((&variant.content_type, variant.version.bytes, variant.coding.is_some()))
    }

    /// The text is the server's own, so another page may replace it.
    pub fn is_in_own_words(&self) -> bool {
        self.status >= 400 && matches!(self.body, Body::Text(_))
    }

    fn made(status: u16, head: Head, length: u64, body: Body) -> Answer {
        Answer { status, head: AnswerHead::Made(head), extra: Head::default(), length: Some(length), body }
    }
}

/// Answers a GET or HEAD. `expires` is the time at which the answer expires, in seconds since 1970.
pub fn of(
    entry: &Arc<Entry>,
    conditions: &Conditions<'_>,
    is_get: bool,
    now: i64,
    expires: impl Fn(&Variant) -> Option<i64>,
) -> Answer {
    let number = match entry.variants.len() {
        1 => 0,
        _ => {
            let accepted = conditions.accept_encoding.as_deref().map(AcceptedCodings::read).unwrap_or_default();
            let preferred = accepted.preferred(entry.variants.iter().filter_map(|variant| variant.coding));
            let sent =
                preferred.and_then(|preferred| entry.variants.iter().position(|variant| variant.coding == Some(preferred)));
            sent.unwrap_or(0)
        }
    };
    let variant = &entry.variants[number];
    let validators = Validators { etag: variant.etag.as_bytes(), last_modified: variant.last_modified, now };
    let mut answer = match evaluate(conditions, &validators) {
        Outcome::Proceed => whole_or_parts(entry, number, conditions, is_get, &validators),
        Outcome::NotModified => Answer {
            status: 304,
            head: AnswerHead::NotModified(entry.clone(), number),
            extra: Head::default(),
            length: None,
            body: Body::Nothing,
        },
        Outcome::Failed => {
            return Answer::plain_text(412, "Precondition Failed", Head::default(), "The file is not the expected one.");
        }
    };
    if answer.status != 416
        && let Some(seconds) = expires(variant)
    {
        answer.extra = answer.extra.with("Expires", dates::format(seconds));
    }
    answer
}

/// The whole file with the given status and type, whatever the request's method and conditions.
pub fn page(entry: &Entry, status: u16, reason: &str, content_type: &str) -> Answer {
    let variant = &entry.variants[0];
    let size = variant.version.bytes;
    let head = Head::status(&format!("{status} {reason}")).with("Content-Type", content_type).with_number("Content-Length", size);
    Answer::made(status, head, size, body(variant, 0..size))
}

fn whole_or_parts(
    entry: &Arc<Entry>,
    number: usize,
    conditions: &Conditions<'_>,
    is_get: bool,
    validators: &Validators<'_>,
) -> Answer {
    let variant = &entry.variants[number];
    let size = variant.version.bytes;
    let range = conditions.range.and_then(|range| range.value());
    // RFC 9110 section 14.2: ranges are only defined for GET.
    let wanted = match range {
        Some(field) if is_get && range_holds(conditions, validators) => wanted(field, size),
        _ => RequestedRange::Whole,
    };
    match wanted {
        RequestedRange::Whole => Answer {
            status: 200,
            head: AnswerHead::Whole(entry.clone(), number),
            extra: Head::default(),
            length: Some(size),
            body: body(variant, 0..size),
        },
        RequestedRange::Nothing => {
            let fields = Head::default().with("Content-Range", format!("bytes */{size}")).with("Accept-Ranges", "bytes");
            Answer::plain_text(416, "Range Not Satisfiable", fields, "The file does not contain these bytes.")
        }
        RequestedRange::Parts(ranges) => match ranges.as_slice() {
            [range] => one_part(variant, range.clone()),
            _ => several_parts(variant, ranges),
        },
    }
}

fn body(variant: &Variant, bytes: Range<u64>) -> Body {
    match &variant.content {
        Content::Memory(content) => Body::Memory(content.clone(), bytes.start as usize..bytes.end as usize),
        Content::File(file) => Body::File(FileRange { file: file.clone(), bytes, version: variant.version }),
    }
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

fn one_part(variant: &Variant, range: Range<u64>) -> Answer {
    let length = range.end - range.start;
    let head = Head::status("206 Partial Content")
        .with("Content-Type", &variant.content_type)
        .and(&variant.common)
        .with("Content-Range", content_range(&range, variant.version.bytes))
        .with_number("Content-Length", length);
    Answer::made(206, head, length, body(variant, range))
}

/// RFC 9110 section 14.6.
fn several_parts(variant: &Variant, ranges: Vec<Range<u64>>) -> Answer {
    let boundary = boundary(variant);
    let size = variant.version.bytes;
    let lines = |range: &Range<u64>| {
        let (kind, range) = (&variant.content_type, content_range(range, size));
        format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n").into_bytes()
    };
    let end = format!("\r\n--{boundary}--\r\n").into_bytes();
    let mut length = end.len() as u64;
    let parts: Vec<(Vec<u8>, Range<u64>)> = ranges
        .into_iter()
        .map(|range| (lines(&range), range))
        .inspect(|(lines, range)| length += lines.len() as u64 + range.end - range.start)
        .collect();
    let body = match &variant.content {
        Content::Memory(content) => {
            let mut text = Vec::with_capacity(length as usize);
            for (lines, range) in &parts {
                text.extend_from_slice(lines);
                text.extend_from_slice(&content[range.start as usize..range.end as usize]);
            }
            text.extend_from_slice(&end);
            Body::Text(text)
        }
        Content::File(file) => {
            let of_file = |bytes| FileRange { file: file.clone(), bytes, version: variant.version };
            Body::Parts(Parts { parts: parts.into_iter().map(|(lines, range)| (lines, of_file(range))).collect(), end })
        }
    };
    let head = Head::status("206 Partial Content")
        .with("Content-Type", format!("multipart/byteranges; boundary={boundary}"))
        .and(&variant.common)
        .with_number("Content-Length", length);
    Answer::made(206, head, length, body)
}

/// RFC 2046 section 5.1.1: a line that no part contains. It differs between answers, so no file can be prepared to contain it.
fn boundary(variant: &Variant) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Relaxed);
    let seconds = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
    format!("{:016x}{:032x}{count:016x}", variant.version.inode, seconds)
}
