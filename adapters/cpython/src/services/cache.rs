//! `uwsgi.cache_get` and the related functions, on the caches that all processes of the instance share. It knows no request. The
//! calling threads hold the interpreter, except while they wait for another writer.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use bolide_memory::atomics::AtomicU64;
use bolide_memory::cache::table::{Sink, copy_words};
use bolide_memory::cache::{Cache, Calculation, Change, Content, Outcome, Waiting, Written};
use pyo3::ffi;

use crate::services::arguments::{CallArguments, Error, Made, ToPython, TrueOrNone, functions, raise, without_interpreter};
use crate::services::attachment::attached;
use crate::services::remote_caches::{self, NamedCache};

functions! { FUNCTIONS:
    cache_get(1..=2) |arguments: CallArguments<'_>| get(&arguments);
    cache_exists(1..=2) |arguments: CallArguments<'_>| exists(&arguments);
    cache_num(1..=2) |arguments: CallArguments<'_>| num(&arguments);
    cache_keys(0..=1) |arguments: CallArguments<'_>| keys(&arguments);
    cache_set(2..=4) |arguments: CallArguments<'_>| put(&arguments, false);
    cache_update(2..=4) |arguments: CallArguments<'_>| put(&arguments, true);
    cache_inc(1..=4) |arguments: CallArguments<'_>| calculate(&arguments, Calculation::Add, 1);
    cache_dec(1..=4) |arguments: CallArguments<'_>| calculate(&arguments, Calculation::Subtract, 1);
    cache_mul(1..=4) |arguments: CallArguments<'_>| calculate(&arguments, Calculation::Multiply, 2);
    cache_div(1..=4) |arguments: CallArguments<'_>| calculate(&arguments, Calculation::Divide, 2);
    cache_count(4..=4) |arguments: CallArguments<'_>| count(&arguments);
    cache_del(1..=2) |arguments: CallArguments<'_>| delete(&arguments);
    cache_clear(0..=1) |arguments: CallArguments<'_>| clear(&arguments);
}

/// The cache that an argument names, or the first one of the configuration. The inner `None`: there is no such cache. The outer
/// one: an exception is set.
fn cache_of(arguments: &CallArguments<'_>, place: usize) -> Option<Option<&'static Cache>> {
    let caches = attached().map_or(&[][..], |attached| &attached.caches);
    if !arguments.has(place) {
        return Some(caches.first());
    }
    let name = arguments.text(place)?;
    if name.contains('@') {
        return raise(
            Error::Value,
            &format!(
                "'{name}' names a cache of another server, which is not supported: name a cache of this configuration, or use one with \
                engine=redis://HOST:6379/0 for several machines"
            ),
        );
    }
    Some(if name.is_empty() { caches.first() } else { caches.iter().find(|cache| cache.name() == name) })
}

/// The cache on an engine that an argument names, or that is the first one of the configuration. The inner `None`: it is none of
/// those. The outer one: an exception is set.
#[inline]
fn remote_of(arguments: &CallArguments<'_>, place: usize) -> Option<Option<&'static NamedCache>> {
    if !remote_caches::are_used() {
        return Some(None);
    }
    let name = if arguments.has(place) { arguments.text(place)? } else { "" };
    Some(remote_caches::named(name))
}

fn get(arguments: &CallArguments<'_>) -> Option<Made> {
    if let Some(remote) = remote_of(arguments, 1)? {
        return value_of(remote, arguments.bytes(0)?.as_slice());
    }
    let (key, cache) = (arguments.bytes(0)?, cache_of(arguments, 1)?);
    let mut value = NewBytes(null_mut());
    match cache.map(|cache| cache.get(key.as_slice(), &mut value)) {
        Some(Outcome::Hit { .. }) => Some(Made(std::mem::replace(&mut value.0, null_mut()))),
        // An exception is set.
        Some(Outcome::NoRoom) => None,
        // SAFETY: None lives as long as the interpreter.
        _ => Some(Made(unsafe { crate::object::new_reference(ffi::Py_None()) })),
    }
}

/// The value of an item on an engine as a `bytes` object, or None. An exception is set if there is no memory.
fn value_of(remote: &NamedCache, key: &[u8]) -> Option<Made> {
    let Some(value) = remote.get(key) else {
        // SAFETY: None lives as long as the interpreter.
        return Some(Made(unsafe { crate::object::new_reference(ffi::Py_None()) }));
    };
    let length = ffi::Py_ssize_t::try_from(value.len()).ok()?;
    // SAFETY: the thread holds the interpreter, and the bytes are copied.
    let object = unsafe { ffi::PyBytes_FromStringAndSize(value.as_ptr().cast(), length) };
    (!object.is_null()).then_some(Made(object))
}

fn exists(arguments: &CallArguments<'_>) -> Option<TrueOrNone> {
    if let Some(remote) = remote_of(arguments, 1)? {
        return Some(TrueOrNone(remote.exists(arguments.bytes(0)?.as_slice())));
    }
    let (key, cache) = (arguments.bytes(0)?, cache_of(arguments, 1)?);
    Some(TrueOrNone(cache.is_some_and(|cache| cache.exists(key.as_slice()))))
}

fn num(arguments: &CallArguments<'_>) -> Option<i64> {
    if let Some(remote) = remote_of(arguments, 1)? {
        return Some(remote.number(arguments.bytes(0)?.as_slice()));
    }
    let (key, cache) = (arguments.bytes(0)?, cache_of(arguments, 1)?);
    let mut value = Vec::new();
    let outcome = cache.map(|cache| cache.get(key.as_slice(), &mut value));
    let number = <[u8; 8]>::try_from(value).map_or(0, i64::from_ne_bytes);
    Some(if matches!(outcome, Some(Outcome::Hit { .. })) { number } else { 0 })
}

fn keys(arguments: &CallArguments<'_>) -> Option<Vec<Option<Vec<u8>>>> {
    if let Some(remote) = remote_of(arguments, 0)? {
        return Some(remote.keys().into_iter().map(Some).collect());
    }
    match cache_of(arguments, 0)? {
        Some(cache) => Some(cache.keys().into_iter().map(Some).collect()),
        None => raise(Error::Value, "no local uWSGI cache available"),
    }
}

fn put(arguments: &CallArguments<'_>, replaces: bool) -> Option<TrueOrNone> {
    let (key, value) = (arguments.bytes(0)?, arguments.bytes(1)?);
    if let Some(remote) = remote_of(arguments, 3)? {
        return Some(TrueOrNone(remote.put(key.as_slice(), value.as_slice(), arguments.long_or(2, 0)?, replaces)));
    }
    let (expires_s, cache) = (arguments.long_or(2, 0)?, cache_of(arguments, 3)?);
    let change = if replaces { Change::Update(value.as_slice()) } else { Change::Add(value.as_slice()) };
    write(cache, |cache, waiting| cache.put_as(Content::Response, key.as_slice(), change, expires_s, waiting))
}

fn calculate(arguments: &CallArguments<'_>, calculation: Calculation, missing: i64) -> Option<TrueOrNone> {
    let (key, operand) = (arguments.bytes(0)?, arguments.long_or(1, missing)?);
    if let Some(remote) = remote_of(arguments, 3)? {
        return Some(TrueOrNone(remote.calculate(key.as_slice(), calculation, operand, arguments.long_or(2, 0)?)));
    }
    let (expires_s, cache) = (arguments.long_or(2, 0)?, cache_of(arguments, 3)?);
    write(cache, |cache, waiting| cache.put(key.as_slice(), Change::Calculate(calculation, operand), expires_s, waiting))
}

/// For `bolide.contrib.django` alone, which needs the sum: adds to a number and returns it, or `None` if it is not stored.
fn count(arguments: &CallArguments<'_>) -> Option<Made> {
    let (key, operand) = (arguments.bytes(0)?, arguments.long(1)?);
    let (expires_s, cache) = (arguments.long(2)?, cache_of(arguments, 3)?);
    let count = |waiting| cache.map_or(Err(Written::Unchanged), |cache| cache.count(key.as_slice(), operand, expires_s, waiting));
    let counted = match count(Waiting::Never) {
        Err(Written::Busy) => without_interpreter(|| count(Waiting::Bounded)),
        counted => counted,
    };
    if let (Err(written), Some(cache)) = (counted, cache) {
        say(cache, written);
    }
    Some(Made(match counted {
        Ok(sum) => sum.into_python(),
        Err(_) => ().into_python(),
    }))
}

fn delete(arguments: &CallArguments<'_>) -> Option<TrueOrNone> {
    if let Some(remote) = remote_of(arguments, 1)? {
        return Some(TrueOrNone(remote.delete(arguments.bytes(0)?.as_slice())));
    }
    let (key, cache) = (arguments.bytes(0)?, cache_of(arguments, 1)?);
    write(cache, |cache, waiting| cache.delete(key.as_slice(), waiting))
}

fn clear(arguments: &CallArguments<'_>) -> Option<TrueOrNone> {
    if let Some(remote) = remote_of(arguments, 0)? {
        return Some(TrueOrNone(remote.clear()));
    }
    write(cache_of(arguments, 0)?, Cache::clear)
}

/// Writes to a cache. Other threads run Python code while this one waits for another writer.
fn write(cache: Option<&Cache>, write: impl Fn(&Cache, Waiting) -> Written) -> Option<TrueOrNone> {
    let Some(cache) = cache else { return Some(TrueOrNone(false)) };
    let written = match write(cache, Waiting::Never) {
        Written::Busy => without_interpreter(|| write(cache, Waiting::Bounded)),
        written => written,
    };
    say(cache, written);
    Some(TrueOrNone(written == Written::Done))
}

/// Logs that a cache is full.
fn say(cache: &Cache, written: Written) {
    let name = cache.name();
    match written {
        Written::Full { is_to_be_said: true } => bolide_log::line(&format!(
            "WARNING: the cache \"{name}\" is full ({} items): new items are not stored; give it more items or blocks, or purge_lru=1 \
            (said once a minute)",
            cache.settings().items
        )),
        Written::DiskFull { is_to_be_said: true } => bolide_log::line(&format!(
            "WARNING: the cache \"{name}\" stores no new items, because the disk of its file is full (said once a minute)"
        )),
        _ => {}
    }
}

/// A `bytes` object that is filled from a cache.
struct NewBytes(*mut ffi::PyObject);

impl Sink for NewBytes {
    fn copy(&mut self, words: &[AtomicU64], bytes: usize) -> bool {
        let Ok(length) = ffi::Py_ssize_t::try_from(bytes) else { return false };
        // SAFETY: the thread holds the interpreter; the object was made here, and no other code knows it yet.
        let room = unsafe {
            if self.0.is_null() || ffi::PyBytes_Size(self.0) != length {
                ffi::Py_XDECREF(self.0);
                self.0 = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
            }
            if self.0.is_null() {
                return false;
            }
            std::slice::from_raw_parts_mut(ffi::PyBytes_AsString(self.0).cast::<MaybeUninit<u8>>(), bytes)
        };
        copy_words(words, room);
        true
    }
}

impl Drop for NewBytes {
    fn drop(&mut self) {
        // SAFETY: it is ours, or null if it was handed on.
        unsafe { ffi::Py_XDECREF(self.0) };
    }
}
