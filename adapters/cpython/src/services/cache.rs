//! `uwsgi.cache_get` and the related functions, on the caches that all processes of the instance share. It does not know about
//! requests. The calling threads hold the interpreter, except while they wait for another writer.

use bolide_distributed::RemoteCache;
use bolide_memory::atomics::AtomicU64;
use bolide_memory::cache::table::{Sink, copy_words};
use bolide_memory::cache::{Cache, Calculation, Change, Content, Outcome, Waiting, Written};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::services::arguments::{CallArguments, TrueOrNone, functions};
use crate::services::attachment::attached;
use crate::services::remote_caches::{self, NamedCache};

functions! { FUNCTIONS:
    cache_get(1..=2) get;
    cache_exists(1..=2) exists;
    cache_num(1..=2) num;
    cache_keys(0..=1) keys;
    cache_set(2..=4) |arguments| put(arguments, Change::Add(&arguments.bytes(1)?));
    cache_update(2..=4) |arguments| put(arguments, Change::Update(&arguments.bytes(1)?));
    cache_inc(1..=4) |arguments| put(arguments, Change::Calculate(Calculation::Add, arguments.long_or(1, 1)?));
    cache_dec(1..=4) |arguments| put(arguments, Change::Calculate(Calculation::Subtract, arguments.long_or(1, 1)?));
    cache_mul(1..=4) |arguments| put(arguments, Change::Calculate(Calculation::Multiply, arguments.long_or(1, 2)?));
    cache_div(1..=4) |arguments| put(arguments, Change::Calculate(Calculation::Divide, arguments.long_or(1, 2)?));
    cache_count(4..=4) count;
    cache_expires(2..=2) expires;
    cache_del(1..=2) delete;
    cache_clear(0..=1) clear;
}

/// The cache of a call.
enum CalledCache {
    /// `None`: there is no such cache.
    Here(Option<&'static Cache>),
    OnEngine(&'static NamedCache),
}
use CalledCache::{Here, OnEngine};

/// The cache that an argument names. Without a name it is the first one of the configuration.
fn cache_of(arguments: &CallArguments<'_, '_>, place: usize) -> PyResult<CalledCache> {
    let name = if arguments.has(place) { arguments.text(place)? } else { "" };
    if let Some(remote) = remote_caches::named(name) {
        return Ok(OnEngine(remote));
    }
    if name.contains('@') {
        return Err(PyValueError::new_err(format!(
            "'{name}' is a cache of another server, which is not supported: use a cache of this configuration, or one with \
             engine=redis://HOST:6379/0 for several machines"
        )));
    }
    let caches = attached().map_or(&[][..], |attached| &attached.caches);
    Ok(Here(caches.iter().find(|cache| name.is_empty() || cache.name() == name)))
}

fn get<'py>(arguments: &CallArguments<'_, 'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let (key, python) = (arguments.bytes(0)?, arguments.python);
    let mut value = NewBytes { python, made: Ok(None) };
    match cache_of(arguments, 1)? {
        OnEngine(remote) => Ok(remote.ask(python, |cache| cache.get(&key)).map(|value| PyBytes::new(python, &value))),
        Here(cache) => match cache.map(|cache| cache.get(&key, &mut value)) {
            Some(Outcome::Hit { .. } | Outcome::NoRoom) => value.made,
            _ => Ok(None),
        },
    }
}

fn exists(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let key = &*arguments.bytes(0)?;
    let exists = match cache_of(arguments, 1)? {
        OnEngine(remote) => remote.ask(arguments.python, |cache| cache.exists(key)),
        Here(cache) => cache.is_some_and(|cache| cache.exists(key)),
    };
    Ok(exists.then_some(true))
}

fn num(arguments: &CallArguments<'_, '_>) -> PyResult<i64> {
    let key = &*arguments.bytes(0)?;
    let cache = match cache_of(arguments, 1)? {
        OnEngine(remote) => return Ok(remote.ask(arguments.python, |cache| cache.number(key))),
        Here(cache) => cache,
    };
    let mut value = Vec::new();
    let outcome = cache.map(|cache| cache.get(key, &mut value));
    let number = <[u8; 8]>::try_from(value).map_or(0, i64::from_ne_bytes);
    Ok(if matches!(outcome, Some(Outcome::Hit { .. })) { number } else { 0 })
}

fn keys(arguments: &CallArguments<'_, '_>) -> PyResult<Vec<Vec<u8>>> {
    match cache_of(arguments, 0)? {
        OnEngine(remote) => Ok(remote.ask(arguments.python, RemoteCache::keys).unwrap_or_default()),
        Here(Some(cache)) => Ok(cache.keys()),
        Here(None) => Err(PyValueError::new_err("no local uWSGI cache available")),
    }
}

fn put(arguments: &CallArguments<'_, '_>, change: Change<'_>) -> PyResult<TrueOrNone> {
    let (key, expires_s) = (&*arguments.bytes(0)?, arguments.long_or(2, 0)?);
    let content = if let Change::Calculate(..) = change { Content::Body } else { Content::Response };
    match cache_of(arguments, 3)? {
        OnEngine(remote) => Ok(remote.put(arguments.python, key, change, expires_s).then_some(true)),
        Here(cache) => {
            let put = |cache: &Cache, waiting| cache.put_as(content, key, change, expires_s, waiting);
            Ok(write(arguments.python, cache, put))
        }
    }
}

/// For `bolide.contrib.django` and `bolide.contrib.limits`, which need the sum: adds to a number and returns it, or None if it
/// is not stored.
fn count(arguments: &CallArguments<'_, '_>) -> PyResult<Option<i64>> {
    let (key, operand, expires_s) = (&*arguments.bytes(0)?, arguments.long(1)?, arguments.long(2)?);
    let Here(Some(cache)) = cache_of(arguments, 3)? else { return Ok(None) };
    let count = |waiting| cache.count(key, operand, expires_s, waiting);
    let counted = match count(Waiting::Never) {
        Err(Written::Busy) => arguments.python.detach(|| count(Waiting::Bounded)),
        counted => counted,
    };
    Ok(counted.map_err(|written| say(cache, written)).ok())
}

/// Returns when an item expires, in milliseconds since 1970; 0 for never, and None for a missing item. Only
/// `bolide.contrib.limits` calls it.
fn expires(arguments: &CallArguments<'_, '_>) -> PyResult<Option<i64>> {
    let key = &*arguments.bytes(0)?;
    let Here(Some(cache)) = cache_of(arguments, 1)? else { return Ok(None) };
    Ok(match cache.get(key, &mut Vec::new()) {
        Outcome::Hit { expires_ms, .. } => Some(i64::try_from(expires_ms).unwrap_or(i64::MAX)),
        Outcome::Miss | Outcome::NoRoom | Outcome::Overtaken => None,
    })
}

fn delete(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let key = &*arguments.bytes(0)?;
    match cache_of(arguments, 1)? {
        OnEngine(remote) => Ok(remote.ask(arguments.python, |cache| cache.delete(key)).then_some(true)),
        Here(cache) => Ok(write(arguments.python, cache, |cache, waiting| cache.delete(key, waiting))),
    }
}

fn clear(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    match cache_of(arguments, 0)? {
        OnEngine(remote) => Ok(remote.ask(arguments.python, RemoteCache::clear).then_some(true)),
        Here(cache) => Ok(write(arguments.python, cache, Cache::clear)),
    }
}

/// Writes to a cache. Other threads run Python code while this one waits for another writer.
fn write(python: Python<'_>, cache: Option<&Cache>, write: impl Fn(&Cache, Waiting) -> Written + Sync) -> TrueOrNone {
    let cache = cache?;
    let written = match write(cache, Waiting::Never) {
        Written::Busy => python.detach(|| write(cache, Waiting::Bounded)),
        written => written,
    };
    say(cache, written);
    (written == Written::Done).then_some(true)
}

/// Logs that a cache is full.
fn say(cache: &Cache, written: Written) {
    let name = cache.name();
    match written {
        Written::Full { is_to_be_said: true } => bolide_log::line(&format!(
            "WARNING: the cache \"{name}\" is full ({} items): new items are not stored; give it more items or blocks, or \
            purge_lru=1 (logged once a minute)",
            cache.settings().items
        )),
        Written::DiskFull { is_to_be_said: true } => bolide_log::line(&format!(
            "WARNING: the cache \"{name}\" can't store new items, because the disk of its file is full (logged once a minute)"
        )),
        _ => {}
    }
}

/// A `bytes` object that is filled from a cache.
struct NewBytes<'py> {
    python: Python<'py>,
    made: PyResult<Option<Bound<'py, PyBytes>>>,
}

impl Sink for NewBytes<'_> {
    fn copy(&mut self, words: &[AtomicU64], bytes: usize) -> bool {
        // SAFETY: a new object, which no other code knows yet, so it may be written through its address.
        self.made = unsafe {
            let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), bytes as ffi::Py_ssize_t);
            Bound::from_owned_ptr_or_err(self.python, made).map(|made| {
                copy_words(words, std::slice::from_raw_parts_mut(ffi::PyBytes_AsString(made.as_ptr()).cast(), bytes));
                Some(made.cast_into_unchecked())
            })
        };
        self.made.is_ok()
    }
}
