//! `cache:`, `cachestore:` and the related actions of uWSGI's `router_cache`: how they are compiled, and what they ask of a
//! cache.
//!
//! Must not know how a cache is kept: it is anything that implements [`crate::Caches`]. Workers run it, and the process that
//! reads the configuration.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use regex::bytes::Captures;

use crate::cache_access::{Change, Operator, Write};
use crate::cache_arguments::{Parts, cache_name};
use crate::condition::number;
use crate::diagnostics::Mistakes;
use crate::service_access::Services;
use crate::template::{Groups, Template};
use crate::values::Values;

/// A value of a cache that is an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    pub value: Vec<u8>,
    /// In seconds since 1970; 0 is never.
    pub expires_s: u64,
    pub key: Vec<u8>,
    pub form: Arc<CachedForm>,
}

impl Cached {
    /// The value of the field `Expires`; `None` if the item never expires.
    pub fn expires(&self) -> Option<String> {
        let since_epoch = Duration::from_secs(Some(self.expires_s).filter(|&seconds| seconds != 0)?);
        Some(httpdate::fmt_http_date(UNIX_EPOCH.checked_add(since_epoch)?))
    }
}

/// How `cache:` presents a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedForm {
    pub content_type: String,
    /// Empty: none.
    pub content_encoding: String,
    /// The type follows from the key's extension, if that is known.
    pub type_by_key: bool,
}

/// `cachestore:` for one answer: the item that its body becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    pub cache: Vec<u8>,
    pub key: Vec<u8>,
    /// The key of a further item: the same compressed with gzip.
    pub gzip_key: Option<Vec<u8>>,
    /// Instead of the body.
    pub value: Option<Vec<u8>>,
    /// A status besides 200.
    pub status: Option<u16>,
    pub expires_s: i64,
}

impl Store {
    /// Whether an answer with this status is stored.
    pub fn takes(&self, status: u16) -> bool {
        status == 200 || self.status == Some(status)
    }
}

/// A compiled action.
#[derive(Debug)]
pub struct CacheAction {
    /// Only that of [`Use::Store`] may have variables.
    cache: Template,
    key: Template,
    what: Use,
    expires_s: i64,
}

#[derive(Debug)]
enum Use {
    Answer(Arc<CachedForm>),
    Store { gzip_key: Option<Template>, value: Option<Template>, status: Option<u16> },
    Variable { name: Vec<u8>, is_number: bool },
    Add { value: Template },
    Calculate { operator: Operator, value: Option<Template> },
}

/// What an action does to its request.
pub enum Effect {
    None,
    Answer(Cached),
    Store(Store),
    Set(Vec<u8>, Vec<u8>),
}

/// Actions by their names, with the parts that their arguments may have.
const ACTIONS: &[(&str, &[&str])] = &[
    (
        "cache",
        &[
            "key",
            "name",
            "content_type",
            "content_encoding",
            "mime",
            // Values are always sent with their length, and never block a thread.
            "no_offload",
            "no_content_length",
            "no_cl",
            "nocl",
        ],
    ),
    ("cachestore", &["key", "name", "gzip", "value", "status", "code", "expires"]),
    ("cachevar", &["key", "name", "var", "num", "as_num"]),
    ("cacheset", &["key", "name", "value", "expires"]),
    ("cacheinc", CALCULATION),
    ("cachedec", CALCULATION),
    ("cachemul", CALCULATION),
    ("cachediv", CALCULATION),
];

const CALCULATION: &[&str] = &["key", "name", "value", "expires"];

/// Whether there is an action of this name. The alias is uWSGI's.
pub fn has_action(name: &str) -> bool {
    ACTIONS.iter().any(|(known, _)| *known == canonical(name))
}

fn canonical(name: &str) -> &str {
    if name == "cache-store" { "cachestore" } else { name }
}

impl CacheAction {
    /// Compiles `key=…,name=…`. `None`: the mistake was reported.
    pub fn compile(name: &str, argument: &str, groups: Groups, mistakes: &mut Mistakes<'_>) -> Option<CacheAction> {
        let name = canonical(name);
        let known = ACTIONS.iter().find(|(action, _)| *action == name).map_or(&[][..], |(_, parts)| parts);
        let parts = Parts::read(name, argument, known, mistakes);
        let template = |text: &str, mistakes: &mut Mistakes<'_>| Template::compile(text, groups, mistakes);
        let key = template(parts.key(mistakes)?, mistakes);
        let expires_s = match parts.get("expires") {
            Some(text) => parts.seconds(text, mistakes)?,
            None => 0,
        };
        let value = parts.get("value").map(|text| template(text, mistakes));
        let what = match name {
            "cache" => Use::Answer(Arc::new(form(&parts, mistakes)?)),
            "cachestore" => {
                let status = match parts.get("status").or(parts.get("code")) {
                    Some(text) => Some(parts.status(text, mistakes)?),
                    None => None,
                };
                Use::Store { gzip_key: parts.get("gzip").map(|text| template(text, mistakes)), value, status }
            }
            "cachevar" => Use::Variable {
                name: parts.wanted("var", mistakes)?.as_bytes().to_vec(),
                is_number: parts.get("num").or(parts.get("as_num")).is_some(),
            },
            "cacheset" => {
                parts.wanted("value", mistakes)?;
                Use::Add { value: value.unwrap_or_default() }
            }
            _ => Use::Calculate { operator: operator(name), value },
        };
        let cache_name = cache_name(parts.get("name"), mistakes)?;
        let cache = match what {
            Use::Store { .. } => template(cache_name, mistakes),
            _ => Template::fixed(cache_name),
        };
        Some(CacheAction { cache, key, what, expires_s })
    }

    /// Does what the action says. Reads and writes take a microsecond; a write that must wait for another process waits aside.
    pub fn run(&self, values: &dyn Values, groups: Option<&Captures<'_>>) -> Effect {
        let fill = |template: &Template| template.filled(values, groups);
        let (cache, key) = (fill(&self.cache), fill(&self.key));
        if let Use::Store { gzip_key, value, status } = &self.what {
            let (gzip_key, value) = (gzip_key.as_ref().map(fill), value.as_ref().map(fill));
            return Effect::Store(Store { cache, key, gzip_key, value, status: *status, expires_s: self.expires_s });
        }
        let Some(caches) = values.services().map(Services::caches) else { return Effect::None };
        let write = |change| {
            let write = Write { change, expires_s: self.expires_s };
            if !caches.write(&cache, &key, &write, false) {
                values.aside(&mut || _ = caches.write(&cache, &key, &write, true));
            }
        };
        match &self.what {
            Use::Answer(form) => {
                if let Some((value, expires_s)) = caches.get(&cache, &key) {
                    return Effect::Answer(Cached { value, expires_s, key, form: form.clone() });
                }
            }
            Use::Variable { name, is_number } => {
                if let Some((value, _)) = caches.get(&cache, &key) {
                    let value = if *is_number { decimal(&value) } else { value };
                    return Effect::Set(name.clone(), value);
                }
            }
            Use::Add { value } => write(Change::Add(&fill(value))),
            Use::Calculate { operator, value } => {
                let operand = match value {
                    Some(value) => number(&fill(value)),
                    None if matches!(operator, Operator::Plus | Operator::Minus) => 1,
                    None => 2,
                };
                write(Change::Calculate(*operator, operand));
            }
            Use::Store { .. } => {}
        }
        Effect::None
    }

    /// Calls `see` with each text of the action.
    pub fn templates(&self, see: &mut dyn FnMut(&Template)) {
        see(&self.cache);
        see(&self.key);
        match &self.what {
            Use::Store { gzip_key, value, .. } => gzip_key.iter().chain(value).for_each(see),
            Use::Add { value } => see(value),
            Use::Calculate { value, .. } => value.iter().for_each(see),
            Use::Answer(_) | Use::Variable { .. } => {}
        }
    }

    /// The name of its cache, if that is the same for every request.
    pub fn cache_name(&self) -> Option<&[u8]> {
        self.cache.constant()
    }

    pub fn needs_types(&self) -> bool {
        matches!(&self.what, Use::Answer(form) if form.type_by_key)
    }
}

fn operator(name: &str) -> Operator {
    match name {
        "cacheinc" => Operator::Plus,
        "cachedec" => Operator::Minus,
        "cachemul" => Operator::Times,
        _ => Operator::Divide,
    }
}

fn form(parts: &Parts<'_>, mistakes: &mut Mistakes<'_>) -> Option<CachedForm> {
    let text = |name: &str| parts.get(name).unwrap_or_default().to_owned();
    let (content_type, content_encoding) = (parts.get("content_type").unwrap_or("text/html"), text("content_encoding"));
    if [content_type, &content_encoding].iter().any(|text| text.bytes().any(|byte| byte.is_ascii_control())) {
        mistakes.error("a type and a coding can't contain control characters", "");
        return None;
    }
    Some(CachedForm { content_type: content_type.to_owned(), content_encoding, type_by_key: parts.get("mime").is_some() })
}

/// The number in the eight bytes of a value, as `cacheinc:` and `uwsgi.cache_inc` keep it; 0 if there are not eight.
fn decimal(value: &[u8]) -> Vec<u8> {
    let number = value.try_into().map_or(0, i64::from_ne_bytes);
    number.to_string().into_bytes()
}

#[cfg(test)]
#[path = "tests/caching.rs"]
mod tests;
