//! What is changed in an answer before it leaves: fields taken out and added, response routes, compression.
//!
//! A response has it only where the settings or a route ask for it. It works on the head's text when that is complete, so that whoever writes
//! a head (an application, a route, the engine itself) needs to know nothing of it.

use std::borrow::Cow;

use bolide_contract::answering::{Answering, Coding, Collected, Compression};
use bolide_files::AcceptedCodings;
use bolide_routes::{Overrides, ServerValue, Table, Values};

use crate::compression::{Encoder, is_wanted_type};
use crate::fields::{Known, is_field_value, is_token, known_field};
use crate::routing::tell_all;

/// A body of up to this many bytes that is complete is compressed before its head leaves, so that its length can be told.
const WHOLE_BYTES: usize = 256 * 1024;

/// What happens to every answer, resolved at a worker's start.
pub struct FilterRules {
    /// `Name: value` with its line end, ready to be added.
    added: Vec<Vec<u8>>,
    removed: Vec<Vec<u8>>,
    collected: Vec<Collected>,
    compression: Compression,
    /// Variables that response routes read.
    variables: Vec<Vec<u8>>,
    has_routes: bool,
}

impl FilterRules {
    pub fn new(answering: &Answering, routes: &Table) -> FilterRules {
        let mut variables: Vec<Vec<u8>> = Vec::new();
        routes.variables(&mut |name| {
            if !variables.iter().any(|known| known == name) {
                variables.push(name.to_vec());
            }
        });
        FilterRules {
            added: answering.added.iter().map(|(name, value)| format!("{name}: {value}\r\n").into_bytes()).collect(),
            removed: answering.removed.iter().map(|name| name.clone().into_bytes()).collect(),
            collected: answering.collected.clone(),
            compression: answering.compression.clone(),
            variables,
            has_routes: !routes.is_empty(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.collected.is_empty() && !self.has_routes && !self.compresses()
    }

    fn compresses(&self) -> bool {
        !self.compression.codings.is_empty() || self.compression.on_demand
    }

    /// Whether it is worth to know what a client accepts. A response route may ask for `gzip`.
    pub fn may_compress(&self) -> bool {
        self.compresses() || self.has_routes
    }

    pub fn variables(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.variables.iter()
    }
}

/// The same for one answer, with what the routes of its request said.
pub struct ResponseFilter {
    rules: &'static FilterRules,
    routes: &'static Table,
    added: Vec<Vec<u8>>,
    removed: Vec<Vec<u8>>,
    /// The `gzip:` of a route.
    is_gzip_asked: bool,
    /// The request's variables that response routes read.
    variables: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    accepted: AcceptedCodings,
    worker: u64,
    /// Of an answer 304: what it is about is nothing that would be compressed.
    is_of_plain: bool,
    encoder: Option<Encoder>,
}

/// A head that is complete but for the fields that are the response's own, and what is known of its answer.
pub struct Head<'a> {
    /// The status line and the fields, each with its line end.
    pub text: &'a mut Vec<u8>,
    pub status: &'a mut u16,
    pub content_length: &'a mut Option<u64>,
    /// The length is told by the server: the application did not say it.
    pub is_length_declared: bool,
    pub has_date: &'a mut bool,
    pub has_server: &'a mut bool,
    pub count: &'a mut u32,
    /// `donotlog` of a response route.
    pub is_unlogged: &'a mut bool,
    pub head_only: bool,
}

/// What follows a head.
#[derive(Clone, Copy)]
pub enum Body<'a> {
    /// A part of it, or all.
    Part(&'a [u8]),
    File,
    Nothing,
}

impl ResponseFilter {
    pub fn new(
        rules: &'static FilterRules,
        routes: &'static Table,
        overrides: &mut Overrides,
        variables: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        accepted: AcceptedCodings,
        worker: u64,
    ) -> Box<ResponseFilter> {
        Box::new(ResponseFilter {
            rules,
            routes,
            added: std::mem::take(&mut overrides.added),
            removed: std::mem::take(&mut overrides.removed),
            is_gzip_asked: overrides.is_compressed,
            variables,
            accepted,
            worker,
            is_of_plain: false,
            encoder: None,
        })
    }

    /// What an answer 304 is about, where that is known.
    pub fn note_unmodified(&mut self, content_type: &[u8], bytes: u64, is_compressed: bool) {
        let compression = &self.rules.compression;
        self.is_of_plain = is_compressed || bytes < compression.least_bytes || !is_wanted_type(compression, content_type);
    }

    /// Changes a head. Returns the body to send in place of the one that was given, if it was compressed whole.
    pub fn head(&mut self, head: &mut Head<'_>, body: Body<'_>) -> Option<Vec<u8>> {
        for name in self.rules.removed.iter().chain(&self.removed) {
            head.remove_for_rule(name);
        }
        self.collect(head);
        if self.rules.has_routes {
            self.walk(head);
        }
        for line in &self.rules.added {
            head.add(line);
        }
        for line in &self.added {
            if let Err(refusal) = head.add_checked(line) {
                tell_all(&mut vec![format!("bolide: a field that a route adds is left out: {refusal}").into_bytes()]);
            }
        }
        let coding = self.coding(head, body)?;
        self.compress(coding, head, body)
    }

    fn collect(&mut self, head: &mut Head<'_>) {
        for Collected { field, variable, pulled } in &self.rules.collected {
            let Some(value) = head.value(field.as_bytes()).map(<[u8]>::to_vec) else { continue };
            self.variables.push((variable.as_bytes().to_vec(), Some(value)));
            if *pulled {
                head.remove_for_rule(field.as_bytes());
            }
        }
    }

    fn walk(&mut self, head: &mut Head<'_>) {
        let mut overrides = Overrides::default();
        let values = AnswerValues { variables: &self.variables, status: *head.status, worker: self.worker };
        self.routes.walk(&values, &mut overrides);
        tell_all(&mut overrides.lines);
        *head.is_unlogged |= overrides.is_unlogged;
        self.is_gzip_asked |= overrides.is_compressed;
        // A switch of protocols can't become another answer.
        if let Some((status, reason)) = &overrides.cleared
            && *head.status >= 200
        {
            head.clear(*status, reason);
        }
        for name in &overrides.removed {
            head.remove_for_rule(name);
        }
        self.added.append(&mut overrides.added);
    }

    /// Whether and how this answer is compressed. Where it might have been for another client, Vary says so (RFC 9110 section 12.5.5).
    fn coding(&mut self, head: &mut Head<'_>, body: Body<'_>) -> Option<Coding> {
        let compression = &self.rules.compression;
        let asked = compression.on_demand
            && head.remove(b"uwsgi-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"gzip"))
            && (head.content_length.is_none() || head.is_length_declared);
        let is_forced = asked || self.is_gzip_asked;
        let offered: &[Coding] = if is_forced { &[Coding::Gzip] } else { &compression.codings };
        if offered.is_empty() || !may_be_coded(head) {
            return None;
        }
        // RFC 9110 section 15.4.5: it has the Vary and the ETag that the answer 200 would have. Of an application's we do not know the type.
        if *head.status == 304 {
            if !self.is_of_plain {
                head.vary();
                if self.accepted.best(offered.iter().copied()).is_some() {
                    head.weaken_tag();
                }
            }
            return None;
        }
        let has_body = head.content_length.is_some() || head.head_only || !matches!(body, Body::Nothing);
        let is_worth_it = head.content_length.is_none_or(|length| length >= compression.least_bytes)
            && head.value(b"content-type").is_some_and(|text| is_wanted_type(compression, text));
        if !has_body || !(is_forced || is_worth_it) {
            return None;
        }
        head.vary();
        self.accepted.best(offered.iter().copied())
    }

    fn compress(&mut self, coding: Coding, head: &mut Head<'_>, body: Body<'_>) -> Option<Vec<u8>> {
        if head.head_only {
            head.coded(coding);
            return None;
        }
        // Without memory for the encoder the answer goes out as it is.
        let mut encoder = Encoder::new(coding, self.rules.compression.level).ok()?;
        let whole = match body {
            Body::Part(part) if *head.content_length == Some(part.len() as u64) && part.len() <= WHOLE_BYTES => Some(part),
            Body::Part(_) | Body::File => None,
            Body::Nothing => return None,
        };
        let Some(part) = whole else {
            head.coded(coding);
            self.encoder = Some(encoder);
            return None;
        };
        let mut made = Vec::with_capacity(part.len() / 2);
        encoder.write(part, &mut made).ok()?;
        encoder.finish(&mut made).ok()?;
        if made.len() >= part.len() {
            return None;
        }
        head.coded(coding);
        *head.content_length = Some(made.len() as u64);
        head.text.extend_from_slice(format!("Content-Length: {}\r\n", made.len()).as_bytes());
        Some(made)
    }

    pub fn encoder(&mut self) -> Option<&mut Encoder> {
        self.encoder.as_mut()
    }

    pub fn take_encoder(&mut self) -> Option<Encoder> {
        self.encoder.take()
    }
}

/// An answer's coding is its application's where it has chosen one; a part of something can't be coded; and nobody may change what
/// `no-transform` forbids (RFC 9110 section 7.7) or what a digest was taken of.
fn may_be_coded(head: &Head<'_>) -> bool {
    const FIXED: [&[u8]; 6] =
        [b"content-encoding", b"content-range", b"content-md5", b"digest", b"content-digest", b"repr-digest"];
    let has_content = *head.status >= 200 && !(204..=206).contains(head.status);
    has_content
        && FIXED.iter().all(|name| head.value(name).is_none())
        && !head.values(b"cache-control").any(|value| has_word(value, b"no-transform"))
}

fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(word))
}

impl Head<'_> {
    /// Where the lines of fields with this name stand, their line ends included.
    fn lines(&self, name: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut start = 0;
        let text: &[u8] = self.text;
        std::iter::from_fn(move || {
            while let Some(length) = memchr::memchr(b'\n', &text[start..]) {
                let range = start..start + length + 1;
                start = range.end;
                let line = &text[range.clone()];
                let is_field = line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name);
                // The first line is the status.
                if range.start > 0 && is_field {
                    return Some(range);
                }
            }
            None
        })
    }

    fn line(&self, name: &[u8]) -> Option<std::ops::Range<usize>> {
        self.lines(name).next()
    }

    fn values(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let length = name.len() + 1;
        self.lines(name).map(move |range| self.text[range][length..].trim_ascii())
    }

    fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// Takes all fields of this name out, but for those that say how the bytes that follow are to be read.
    fn remove_for_rule(&mut self, name: &[u8]) {
        if !matches!(known_field(name), Some(Known::ContentLength | Known::HopByHop)) {
            self.remove(name);
        }
    }

    /// Takes all fields of this name out; returns the value of the first.
    fn remove(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        // Without this the response would set its own.
        match known_field(name) {
            Some(Known::Date) => *self.has_date = true,
            Some(Known::Server) => *self.has_server = true,
            Some(Known::ContentLength) => *self.content_length = None,
            Some(Known::HopByHop | Known::Trailer | Known::NamesFile(_)) | None => {}
        }
        let first = self.value(name)?.to_vec();
        while let Some(range) = self.line(name) {
            self.text.drain(range);
            *self.count = self.count.saturating_sub(1);
        }
        Some(first)
    }

    /// Adds a line that is known to be good.
    fn add(&mut self, line: &[u8]) {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        match known_field(name) {
            Some(Known::Date) => *self.has_date = true,
            Some(Known::Server) => *self.has_server = true,
            Some(Known::ContentLength | Known::HopByHop | Known::Trailer | Known::NamesFile(_)) | None => {}
        }
        self.text.extend_from_slice(line);
        *self.count += 1;
    }

    fn add_checked(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let colon = line.iter().position(|&byte| byte == b':').ok_or("it has no colon")?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !is_token(name) {
            return Err("its name is not a token");
        }
        if !is_field_value(value) {
            return Err("its value has a control character in it");
        }
        if matches!(known_field(name), Some(Known::ContentLength | Known::HopByHop | Known::Trailer)) {
            return Err("it is the server's to set");
        }
        self.add(&[name, b": ", value, b"\r\n"].concat());
        Ok(())
    }

    /// A new status, and no field but the length, which the framing rests on.
    fn clear(&mut self, status: u16, reason: &str) {
        let reason = if is_field_value(reason.as_bytes()) { reason } else { "" };
        *self.status = status;
        *self.count = 0;
        *self.has_date = false;
        *self.has_server = false;
        self.text.clear();
        self.text.extend_from_slice(format!("HTTP/1.1 {status} {reason}\r\n").as_bytes());
        if matches!(status, 204 | 304) {
            *self.content_length = None;
        }
        if let Some(length) = self.content_length {
            self.text.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
    }

    fn vary(&mut self) {
        if self.values(b"vary").any(|value| value == b"*" || has_word(value, b"accept-encoding")) {
            return;
        }
        let Some(range) = self.line(b"vary") else {
            self.text.extend_from_slice(b"Vary: Accept-Encoding\r\n");
            return;
        };
        let end = range.end - b"\r\n".len();
        self.text.splice(end..end, *b", Accept-Encoding");
    }

    /// Says how the body is coded. It is another representation then (RFC 9110 section 8.8.3): a strong validator becomes a weak one, parts of
    /// the body can't be asked for, and its length is not that of the body as it was.
    fn coded(&mut self, coding: Coding) {
        self.remove(b"content-length");
        self.remove(b"accept-ranges");
        self.weaken_tag();
        self.text.extend_from_slice(format!("Content-Encoding: {}\r\n", coding.name()).as_bytes());
    }

    fn weaken_tag(&mut self) {
        let tag = self.line(b"etag");
        if let Some(range) = tag
            && let Some(quote) = self.text[range.clone()].iter().position(|&byte| byte == b'"')
            && !self.text[range.clone()][..quote].ends_with(b"W/")
        {
            let at = range.start + quote;
            self.text.splice(at..at, *b"W/");
        }
    }
}

/// An answer as response routes see it.
struct AnswerValues<'a> {
    variables: &'a [(Vec<u8>, Option<Vec<u8>>)],
    status: u16,
    worker: u64,
}

impl Values for AnswerValues<'_> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let (_, value) = self.variables.iter().rfind(|(known, _)| known == name)?;
        value.as_deref().map(Cow::Borrowed)
    }

    fn server(&self, what: ServerValue) -> u64 {
        match what {
            ServerValue::Status => self.status.into(),
            ServerValue::Worker => self.worker,
            ServerValue::Process => std::process::id().into(),
        }
    }
}

#[cfg(test)]
#[path = "response_filters_tests.rs"]
mod tests;
