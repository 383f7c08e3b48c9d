//! Changes to an answer before it is sent: removed and added fields, response routes, compression.
//!
//! A response only has a filter if the settings or a route require it. It changes the head's fields after they are complete, so
//! the code that writes a head (an application, a route, the engine itself) need not know it. Worker threads run it.

use std::borrow::Cow;

use bolide_contract::answering::{Answering, Coding, Collected, Compression};
use bolide_files::AcceptedCodings;
use bolide_protocol::http1::is_token;
use bolide_protocol::response::ResponseHead;
use bolide_routes::{Overrides, ServerValue, Services, Store, Table, Values};

use crate::logging::access_log::tell_all;
use crate::response::compression::{Encoder, is_wanted_type};
use crate::response::fields::{Known, has_word, is_field_value, known_field};
use crate::services::{SharedCaches, SharedServices};

/// A complete body up to this size is compressed before its head is sent, so that its length is known.
const WHOLE_BYTES: usize = 256 * 1024;

/// The rules for every answer, resolved at a worker's start.
pub struct FilterRules {
    /// Names and values of added fields.
    added: Vec<(String, String)>,
    removed: Vec<Vec<u8>>,
    collected: Vec<Collected>,
    compression: Compression,
    /// Variables that response routes read.
    variables: Vec<Vec<u8>>,
    has_routes: bool,
}

impl FilterRules {
    pub fn new(answering: &Answering, routes: &Table) -> FilterRules {
        FilterRules {
            added: answering.added.clone(),
            removed: answering.removed.iter().map(|name| name.clone().into_bytes()).collect(),
            collected: answering.collected.clone(),
            compression: answering.compression.clone(),
            variables: routes.variables.clone(),
            has_routes: !routes.is_empty(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.collected.is_empty() && !self.has_routes && !self.compresses()
    }

    fn compresses(&self) -> bool {
        !self.compression.codings.is_empty() || self.compression.on_demand
    }

    /// Whether the client's accepted codings are needed. A response route may ask for `gzip`.
    pub fn may_compress(&self) -> bool {
        self.compresses() || self.has_routes
    }

    pub fn variables(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.variables.iter()
    }
}

/// The filter of one answer: the rules, and the changes by routes of its request.
pub struct ResponseFilter {
    rules: &'static FilterRules,
    routes: &'static Table,
    added: Vec<Vec<u8>>,
    removed: Vec<Vec<u8>>,
    /// A route has requested `gzip:`.
    is_gzip_asked: bool,
    /// The request's variables that response routes read.
    variables: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    accepted: AcceptedCodings,
    worker: u64,
    services: &'static SharedServices,
    /// For a 304: the content that it refers to would not be compressed.
    is_of_plain: bool,
    encoder: Option<Encoder>,
}

/// A head that is complete except for the server's own fields, with data of its answer.
pub struct FilteredHead<'a> {
    pub head: &'a mut ResponseHead,
    /// `donotlog` of a response route.
    pub is_unlogged: &'a mut bool,
    /// Variables that response routes set for the log line.
    pub log_variables: &'a mut Vec<(Vec<u8>, Vec<u8>)>,
    /// `cachestore` of a response route.
    pub stores: &'a mut Vec<Store>,
    pub head_only: bool,
}

/// The beginning of the body, as far as it is known when the head is filtered.
#[derive(Clone, Copy)]
pub enum FirstPart<'a> {
    /// A part of the body, or all of it.
    Bytes(&'a [u8]),
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
        (worker, services): (u64, &'static SharedServices),
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
            services,
            is_of_plain: false,
            encoder: None,
        })
    }

    pub fn caches(&self) -> SharedCaches {
        self.services.caches
    }

    /// Notes the content that a 304 refers to, if known.
    pub fn note_unmodified(&mut self, content_type: &[u8], bytes: u64, is_compressed: bool) {
        let compression = &self.rules.compression;
        self.is_of_plain = is_compressed || bytes < compression.least_bytes || !is_wanted_type(compression, content_type);
    }

    /// Changes a head. Returns the body that replaces the given one, if it was compressed as a whole.
    pub fn head(&mut self, head: &mut FilteredHead<'_>, body: FirstPart<'_>) -> Option<Vec<u8>> {
        for name in self.rules.removed.iter().chain(&self.removed) {
            head.remove_for_rule(name);
        }
        self.collect(head);
        if self.rules.has_routes {
            self.walk(head);
        }
        for (name, value) in &self.rules.added {
            head.add(name.as_bytes(), value.as_bytes());
        }
        for line in &self.added {
            if let Err(refusal) = head.add_checked(line) {
                tell_all(&mut vec![format!("bolide: a field that a route adds is omitted: {refusal}").into_bytes()]);
            }
        }
        let coding = self.coding(head, body)?;
        self.compress(coding, head, body)
    }

    fn collect(&mut self, head: &mut FilteredHead<'_>) {
        for Collected { field, variable, pulled } in &self.rules.collected {
            let Some(value) = head.head.value(field.as_bytes()).map(<[u8]>::to_vec) else { continue };
            head.log_variables.push((variable.as_bytes().to_vec(), value.clone()));
            self.variables.push((variable.as_bytes().to_vec(), Some(value)));
            if *pulled {
                head.remove_for_rule(field.as_bytes());
            }
        }
    }

    fn walk(&mut self, head: &mut FilteredHead<'_>) {
        let mut overrides = Overrides::default();
        let (status, worker) = (head.head.status(), self.worker);
        let values = AnswerValues { variables: &self.variables, status, worker, services: self.services };
        self.routes.walk(&values, &mut overrides);
        tell_all(&mut overrides.lines);
        *head.is_unlogged |= overrides.is_unlogged;
        head.log_variables.append(&mut overrides.log_variables);
        head.stores.append(&mut overrides.stores);
        self.is_gzip_asked |= overrides.is_compressed;
        // A switch of protocols can't become another answer.
        if let Some((status, reason)) = &overrides.cleared
            && head.head.status() >= 200
        {
            head.clear(*status, reason);
        }
        for name in &overrides.removed {
            head.remove_for_rule(name);
        }
        self.added.append(&mut overrides.added);
    }

    /// Decides whether and how this answer is compressed. If other clients might get another coding, Vary tells caches (RFC 9110
    /// section 12.5.5).
    fn coding(&mut self, head: &mut FilteredHead<'_>, body: FirstPart<'_>) -> Option<Coding> {
        let compression = &self.rules.compression;
        let asked = compression.on_demand
            && head.remove(b"uwsgi-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"gzip"))
            && (head.head.content_length.is_none() || head.head.length_is_own);
        let is_forced = asked || self.is_gzip_asked;
        let offered: &[Coding] = if is_forced { &[Coding::Gzip] } else { &compression.codings };
        if offered.is_empty() || !may_be_coded(head) {
            return None;
        }
        // RFC 9110 section 15.4.5: a 304 has the Vary and the ETag of the corresponding 200. The type of an application's content
        // is unknown.
        if head.head.status() == 304 {
            if !self.is_of_plain {
                head.vary();
                if self.accepted.best(offered.iter().copied()).is_some() {
                    head.weaken_tag();
                }
            }
            return None;
        }
        let has_body = head.head.content_length.is_some() || head.head_only || !matches!(body, FirstPart::Nothing);
        let is_worth_it = head.head.content_length.is_none_or(|length| length >= compression.least_bytes)
            && head.head.value(b"content-type").is_some_and(|text| is_wanted_type(compression, text));
        if !has_body || !(is_forced || is_worth_it) {
            return None;
        }
        head.vary();
        self.accepted.best(offered.iter().copied())
    }

    fn compress(&mut self, coding: Coding, head: &mut FilteredHead<'_>, body: FirstPart<'_>) -> Option<Vec<u8>> {
        if head.head_only {
            head.coded(coding);
            return None;
        }
        // Without memory for the encoder the answer is sent uncompressed.
        let mut encoder = Encoder::new(coding, self.rules.compression.level).ok()?;
        let whole = match body {
            FirstPart::Bytes(part) if head.head.content_length == Some(part.len() as u64) && part.len() <= WHOLE_BYTES => {
                Some(part)
            }
            FirstPart::Bytes(_) | FirstPart::File => None,
            FirstPart::Nothing => return None,
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
        head.head.set_length(made.len() as u64);
        Some(made)
    }

    pub fn encoder(&mut self) -> Option<&mut Encoder> {
        self.encoder.as_mut()
    }

    pub fn take_encoder(&mut self) -> Option<Encoder> {
        self.encoder.take()
    }
}

/// Whether an answer may be compressed. Not if its application has chosen a coding, if it is a partial answer, if `no-transform`
/// forbids it (RFC 9110 section 7.7), or if it has a digest.
fn may_be_coded(head: &mut FilteredHead<'_>) -> bool {
    const FIXED: [&[u8]; 6] =
        [b"content-encoding", b"content-range", b"content-md5", b"digest", b"content-digest", b"repr-digest"];
    let has_content = head.head.status() >= 200 && !(204..=206).contains(&head.head.status());
    has_content
        && FIXED.iter().all(|name| head.head.value(name).is_none())
        && !head.head.values(b"cache-control").any(|value| has_word(value, b"no-transform"))
}

impl FilteredHead<'_> {
    /// Removes all fields of this name, except those that define the framing.
    fn remove_for_rule(&mut self, name: &[u8]) {
        if !matches!(known_field(name), Some(Known::ContentLength | Known::HopByHop)) {
            self.remove(name);
        }
    }

    /// Removes all fields of this name; returns the value of the first.
    fn remove(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        self.note(name);
        if let Some(Known::ContentLength) = known_field(name) {
            self.head.content_length = None;
        }
        self.head.remove(name)
    }

    /// The server does not add its own field if this one was set or removed.
    fn note(&mut self, name: &[u8]) {
        match known_field(name) {
            Some(Known::Date) => self.head.has_date = true,
            Some(Known::Server) => self.head.has_server = true,
            Some(Known::ContentLength | Known::HopByHop | Known::Trailer | Known::NamesFile(_)) | None => {}
        }
    }

    /// Adds a valid field.
    fn add(&mut self, name: &[u8], value: &[u8]) {
        self.note(name);
        self.head.add(name, value);
    }

    fn add_checked(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let colon = line.iter().position(|&byte| byte == b':').ok_or("it has no colon")?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !is_token(name) {
            return Err("its name is not a token");
        }
        if !is_field_value(value) {
            return Err("its value contains a control character");
        }
        if matches!(known_field(name), Some(Known::ContentLength | Known::HopByHop | Known::Trailer)) {
            return Err("the server sets it");
        }
        self.add(name, value);
        Ok(())
    }

    /// Sets a new status and removes all fields except for the length, which the framing depends on.
    fn clear(&mut self, status: u16, reason: &str) {
        let reason = if is_field_value(reason.as_bytes()) { reason } else { "" };
        let length = self.head.content_length.filter(|_| !matches!(status, 204 | 304));
        self.head.begin_with(status, reason);
        if let Some(length) = length {
            self.head.set_length(length);
        }
    }

    fn vary(&mut self) {
        if self.head.values(b"vary").any(|value| value == b"*" || has_word(value, b"accept-encoding")) {
            return;
        }
        if !self.head.change(b"vary", |value| value.extend_from_slice(b", Accept-Encoding")) {
            self.head.add_own(b"Vary", b"Accept-Encoding");
        }
    }

    /// Sets the coding of the body. The result is another representation (RFC 9110 section 8.8.3): a strong validator becomes a
    /// weak one, ranges are not available, and the length changes.
    fn coded(&mut self, coding: Coding) {
        self.remove(b"content-length");
        self.remove(b"accept-ranges");
        self.weaken_tag();
        self.head.add_own(b"Content-Encoding", coding.name().as_bytes());
    }

    fn weaken_tag(&mut self) {
        self.head.change(b"etag", |value| {
            if value.starts_with(b"\"") {
                value.splice(0..0, *b"W/");
            }
        });
    }
}

/// An answer as response routes see it.
struct AnswerValues<'a> {
    variables: &'a [(Vec<u8>, Option<Vec<u8>>)],
    status: u16,
    worker: u64,
    services: &'a SharedServices,
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

    fn services(&self) -> Option<&dyn Services> {
        Some(self.services)
    }
}

#[cfg(test)]
#[path = "filters_tests.rs"]
mod tests;
