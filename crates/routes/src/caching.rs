//! `cache:`, `cachestore:` and the related actions of uWSGI's `router_cache`.
//!
//! Must not know how a cache is kept: it is anything that implements [`crate::Caches`]. Workers run it, and the process that
//! reads the configuration. Reads and writes take a microsecond; a write that must wait for another process waits aside.

use std::sync::Arc;

use crate::cache_access::{Cached, CachedForm, Change, Operator, Store, Write};
use crate::cache_arguments::Parts;
use crate::compiler::Compiler;
use crate::condition::number;
use crate::service_access::Services;
use crate::template::Template;
use crate::values::Values;
use crate::verdict::Verdict;
use crate::visit::{Action, Step, Visit, changes, decides};

/// The item that an action reads or writes.
struct Item {
    cache: Vec<u8>,
    key: Template,
}

impl Item {
    fn compile(parts: &Parts<'_>, compiler: &mut Compiler<'_>) -> Option<Item> {
        Some(Item { key: parts.key(compiler)?, cache: parts.cache(compiler)? })
    }

    /// Returns its key, its value, and the second since 1970 at which it expires. `None`: there is no such item.
    fn read(&self, visit: &Visit<'_>) -> Option<(Vec<u8>, Vec<u8>, u64)> {
        let caches = visit.services().map(Services::caches)?;
        let key = visit.fill(&self.key);
        let (value, expires_s) = caches.get(&self.cache, &key)?;
        Some((key, value, expires_s))
    }

    fn write(&self, visit: &Visit<'_>, write: &Write<'_>) {
        let Some(caches) = visit.services().map(Services::caches) else { return };
        let key = visit.fill(&self.key);
        if !caches.write(&self.cache, &key, write, false) {
            visit.aside(&mut || _ = caches.write(&self.cache, &key, write, true));
        }
    }
}

/// `cache:` answers with an item. Values are always sent with their length, and never block a thread, whatever an argument says.
pub fn answer(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let without_effect = ["no_offload", "no_content_length", "no_cl", "nocl"];
    let known = [&["key", "name", "content_type", "content_encoding", "mime"][..], &without_effect].concat();
    let parts = Parts::read("cache", argument, &known, compiler);
    let item = Item::compile(&parts, compiler)?;
    let form = Arc::new(form(&parts, compiler)?);
    compiler.needs.media_types |= form.type_by_key;
    decides(move |visit| match item.read(visit) {
        Some((key, value, expires_s)) => Step::End(Verdict::Cached(Cached { value, expires_s, key, form: form.clone() })),
        None => Step::Next,
    })
}

fn form(parts: &Parts<'_>, compiler: &mut Compiler<'_>) -> Option<CachedForm> {
    let text = |name: &str, default: &str| parts.get(name).unwrap_or(default).to_owned();
    let (content_type, content_encoding) = (text("content_type", "text/html"), text("content_encoding", ""));
    if [&content_type, &content_encoding].iter().any(|text| text.bytes().any(|byte| byte.is_ascii_control())) {
        compiler.error("a type and a coding can't contain control characters", "");
        return None;
    }
    Some(CachedForm { content_type, content_encoding, type_by_key: parts.get("mime").is_some() })
}

/// `cachestore:` stores the answer. The name of the cache may have variables, as in no other action.
pub fn store(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let known = ["key", "name", "gzip", "value", "status", "code", "expires"];
    let parts = Parts::read("cachestore", argument, &known, compiler);
    let key = parts.key(compiler)?;
    let cache = parts.filled_cache(compiler)?;
    let (gzip_key, value) = (parts.text("gzip", compiler), parts.text("value", compiler));
    let (status, expires_s) = (parts.status(compiler)?, parts.expires(compiler)?);
    changes(move |visit| {
        let fill = |text: &Template| visit.fill(text);
        let (gzip_key, value) = (gzip_key.as_ref().map(fill), value.as_ref().map(fill));
        let store = Store { cache: fill(&cache), key: fill(&key), gzip_key, value, status, expires_s };
        visit.overrides.stores.push(store);
    })
}

/// `cachevar:` sets a variable to an item.
pub fn variable(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let parts = Parts::read("cachevar", argument, &["key", "name", "var", "num", "as_num"], compiler);
    let item = Item::compile(&parts, compiler)?;
    let name = parts.wanted("var", compiler)?.as_bytes().to_vec();
    let is_number = parts.get("num").or(parts.get("as_num")).is_some();
    changes(move |visit| {
        if let Some((_, value, _)) = item.read(visit) {
            visit.overrides.set(&name, if is_number { decimal(&value) } else { value });
        }
    })
}

/// The number in the eight bytes of a value, as `cacheinc:` and `uwsgi.cache_inc` keep it; 0 if there are not eight.
fn decimal(value: &[u8]) -> Vec<u8> {
    let number = value.try_into().map_or(0, i64::from_ne_bytes);
    number.to_string().into_bytes()
}

/// `cacheset:` adds an item.
pub fn add(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let parts = Parts::read("cacheset", argument, &["key", "name", "value", "expires"], compiler);
    let item = Item::compile(&parts, compiler)?;
    parts.wanted("value", compiler)?;
    let value = parts.text("value", compiler)?;
    let expires_s = parts.expires(compiler)?;
    changes(move |visit| item.write(visit, &Write { change: Change::Add(&visit.fill(&value)), expires_s }))
}

/// `cacheinc:`, `cachedec:`, `cachemul:`, `cachediv:`
pub fn calculate(name: &str, operator: Operator, argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let parts = Parts::read(name, argument, &["key", "name", "value", "expires"], compiler);
    let item = Item::compile(&parts, compiler)?;
    let (value, expires_s) = (parts.text("value", compiler), parts.expires(compiler)?);
    let without_value = if matches!(operator, Operator::Plus | Operator::Minus) { 1 } else { 2 };
    changes(move |visit| {
        let operand = value.as_ref().map_or(without_value, |value| number(&visit.fill(value)));
        item.write(visit, &Write { change: Change::Calculate(operator, operand), expires_s });
    })
}

#[cfg(test)]
#[path = "tests/caching.rs"]
mod tests;
