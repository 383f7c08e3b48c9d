//! A cache of uWSGI's functions on an engine. Each item is a key of its own, with the engine's own expiry.
//!
//! While the engine is away, reads miss and writes are False, as a cache may forget at any time. Numbers are eight bytes as in
//! uWSGI, so `cache_get` returns the same bytes from either kind of cache.

use std::time::{Duration, Instant};

use crate::engine::{Engine, Script};
use crate::wire::{Command, Value};

/// Keys that `keys` and `clear` ask for in one call.
const SCAN_COUNT: u32 = 1_000;
/// Keys that `keys` returns.
const MAX_KEYS: usize = 100_000;
/// How long `keys` and `clear` go on. The server serves others between their calls.
const SCAN_MS: u64 = 10_000;
/// Tries of a product or a quotient, if other writers change the number in the meantime.
const MAX_TRIES: u32 = 16;
/// Milliseconds of the longest expiry, 100 years. Redis refuses those that overflow its clock.
const MAX_EXPIRY_MS: u64 = 100 * 365 * 86_400_000;

const ADD: &str = include_str!("scripts/cache_add.lua");
const REPLACE: &str = include_str!("scripts/cache_replace.lua");

/// What the options say about a cache's items, and the number that a counter begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBounds {
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub initial: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Only if there is no such item.
    New,
    Any,
}

pub struct RemoteCache {
    engine: &'static Engine,
    prefix: Vec<u8>,
    bounds: CacheBounds,
}

impl RemoteCache {
    /// Caches of one name share their items, on whatever machine they are.
    pub fn new(engine: &'static Engine, name: &str, bounds: CacheBounds) -> RemoteCache {
        RemoteCache { engine, prefix: engine.key("cache", name), bounds }
    }

    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// `None`: there is no such item, or the engine is away.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(key)?;
        match self.engine.call(Command::new("GET").arg(key), self.bounds.value_bytes as u64) {
            Ok(Value::Bytes(value)) => Some(value),
            _ => None,
        }
    }

    /// `expires` is in seconds; 0 is never. False: the item is there already (`Write::New`), it is too large or empty, or the
    /// engine is away.
    pub fn set(&self, key: &[u8], value: &[u8], expires: u64, write: Write) -> bool {
        let Some(key) = self.key(key).filter(|_| (1..=self.bounds.value_bytes).contains(&value.len())) else {
            return false;
        };
        let mut command = Command::new("SET");
        command.arg(key).arg(value);
        if expires > 0 {
            command.arg("PX").number(milliseconds(expires));
        }
        if write == Write::New {
            command.arg("NX");
        }
        self.engine.call(&command, 0).is_ok_and(|answer| answer.is_ok())
    }

    /// Returns whether the item was there.
    pub fn delete(&self, key: &[u8]) -> bool {
        let Some(key) = self.key(key) else { return false };
        matches!(self.engine.call(Command::new("DEL").arg(key), 0), Ok(Value::Integer(1)))
    }

    pub fn exists(&self, key: &[u8]) -> bool {
        let Some(key) = self.key(key) else { return false };
        matches!(self.engine.call(Command::new("EXISTS").arg(key), 0), Ok(Value::Integer(1)))
    }

    /// Adds to a number, which wraps around at 64 bits. A number that is new expires after `expires` seconds; an older one keeps
    /// its time, as in uWSGI.
    pub fn add(&self, key: &[u8], delta: i64, expires: u64) -> bool {
        let Some(key) = self.key(key) else { return false };
        let (initial, delta) = (self.bounds.initial.to_le_bytes(), delta.to_string());
        let expiry = milliseconds(expires).to_string();
        let arguments: [&[u8]; 3] = [&initial, delta.as_bytes(), expiry.as_bytes()];
        let answer = self.engine.run(&Script { text: ADD, keys: &[&key], arguments: &arguments, answer_bytes: 0 });
        matches!(answer, Ok(Value::Integer(1)))
    }

    pub fn subtract(&self, key: &[u8], delta: i64, expires: u64) -> bool {
        match delta.checked_neg() {
            Some(delta) => self.add(key, delta, expires),
            None => self.change(key, expires, |number| number.wrapping_sub(delta)),
        }
    }

    pub fn multiply(&self, key: &[u8], factor: i64, expires: u64) -> bool {
        self.change(key, expires, |number| number.wrapping_mul(factor))
    }

    /// A division by zero makes the number 0, as in uWSGI.
    pub fn divide(&self, key: &[u8], divisor: i64, expires: u64) -> bool {
        self.change(key, expires, |number| if divisor == 0 { 0 } else { number.wrapping_div(divisor) })
    }

    /// Computes here, as Lua's numbers have 53 bits, and writes only if no other process has changed the number in the meantime.
    fn change(&self, key: &[u8], expires: u64, compute: impl Fn(i64) -> i64) -> bool {
        let Some(full) = self.key(key) else { return false };
        let expiry = milliseconds(expires).to_string();
        for _ in 0..MAX_TRIES {
            let old = match self.engine.call(Command::new("GET").arg(&full), self.bounds.value_bytes as u64) {
                Ok(Value::Bytes(value)) => Some(value),
                Ok(Value::Nil) => None,
                _ => return false,
            };
            let number = old.as_deref().map_or(self.bounds.initial, number);
            let new = compute(number).to_le_bytes();
            let is_old: &[u8] = if old.is_some() { b"1" } else { b"0" };
            let arguments: [&[u8]; 4] = [is_old, old.as_deref().unwrap_or_default(), &new, expiry.as_bytes()];
            match self.engine.run(&Script { text: REPLACE, keys: &[&full], arguments: &arguments, answer_bytes: 0 }) {
                Ok(Value::Integer(1)) => return true,
                Ok(_) => continue,
                Err(_) => return false,
            }
        }
        false
    }

    /// The number of an item, 0 if it has none.
    pub fn number(&self, key: &[u8]) -> i64 {
        self.get(key).filter(|value| value.len() == 8).map_or(0, |value| number(&value))
    }

    /// Removes all items. False: the engine is away, or the time was not enough for the number of items.
    pub fn clear(&self) -> bool {
        self.scan(|keys| {
            let mut command = Command::new("UNLINK");
            keys.iter().for_each(|key| {
                command.arg(key);
            });
            keys.is_empty() || self.engine.call(&command, 0).is_ok()
        })
    }

    /// The keys of at most [`MAX_KEYS`] items. `None`: the engine is away.
    pub fn keys(&self) -> Option<Vec<Vec<u8>>> {
        let mut found = std::collections::BTreeSet::new();
        let is_whole = self.scan(|keys| {
            // A scan may return a key twice.
            found.extend(keys.into_iter().map(|key| key[self.prefix.len()..].to_vec()));
            found.len() < MAX_KEYS
        });
        (is_whole || found.len() >= MAX_KEYS).then(|| found.into_iter().take(MAX_KEYS).collect())
    }

    /// Returns whether all items were passed to `take`, which says whether to go on.
    fn scan(&self, mut take: impl FnMut(Vec<Vec<u8>>) -> bool) -> bool {
        let until = Instant::now() + Duration::from_millis(SCAN_MS);
        let pattern = pattern_of(&self.prefix);
        let answer_bytes = u64::from(SCAN_COUNT) * (self.prefix.len() + self.bounds.key_bytes + 32) as u64 * 4;
        let mut cursor = b"0".to_vec();
        while Instant::now() < until {
            let mut command = Command::new("SCAN");
            command.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").number(SCAN_COUNT.into());
            let Ok(Value::List(parts)) = self.engine.call(&command, answer_bytes) else { return false };
            let [Value::Bytes(next), Value::List(keys)] = parts.as_slice() else { return false };
            let keys = keys.iter().filter_map(|key| match key {
                Value::Bytes(key) if key.starts_with(&self.prefix) => Some(key.clone()),
                _ => None,
            });
            if !take(keys.collect()) {
                return false;
            }
            if next == b"0" {
                return true;
            }
            cursor.clone_from(next);
        }
        false
    }

    /// `None`: the key is empty or too long, as uWSGI says.
    fn key(&self, key: &[u8]) -> Option<Vec<u8>> {
        (1..=self.bounds.key_bytes).contains(&key.len()).then(|| [&self.prefix, key].concat())
    }
}

/// Patterns of Redis: `*`, `?`, `[` and `\` have a meaning.
fn pattern_of(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix {
        if b"*?[]\\".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    pattern
}

fn milliseconds(seconds: u64) -> u64 {
    seconds.saturating_mul(1000).min(MAX_EXPIRY_MS)
}

/// The first eight bytes of a value; a shorter one is filled up with zeros.
fn number(value: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    let count = value.len().min(8);
    bytes[..count].copy_from_slice(&value[..count]);
    i64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_signs_of_patterns_stays_a_name() {
        assert_eq!(pattern_of(b"b:cache:a*[x]?\\:"), b"b:cache:a\\*\\[x\\]\\?\\\\:*");
    }

    #[test]
    fn an_expiry_has_a_bound() {
        assert_eq!(milliseconds(2), 2000);
        assert_eq!(milliseconds(u64::MAX), MAX_EXPIRY_MS);
    }
}
