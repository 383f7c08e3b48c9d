//! The functions `uwsgi.cache_…` on caches that an engine keeps for several machines (`cache2` with `engine`). Python code runs
//! while they wait for the engine. A cache whose engine is away has no items and takes none.

use std::sync::OnceLock;

use bolide_contract::distributed::Distributed;
use bolide_distributed::{CacheBounds, Engine, RemoteCache, Write};
use bolide_memory::cache::Calculation;

use crate::services::arguments::without_interpreter;

static CACHES: OnceLock<Vec<NamedCache>> = OnceLock::new();

pub struct NamedCache {
    name: String,
    /// It is the first cache of the configuration.
    is_default: bool,
    never_expires: bool,
    cache: RemoteCache,
}

/// Called once in the prototype. `engines` are those of the settings.
pub fn attach(settings: &Distributed, engines: &'static [Engine]) {
    if settings.caches.is_empty() {
        return;
    }
    let named = settings.caches.iter().filter_map(|cache| {
        let bounds = CacheBounds {
            key_bytes: cache.key_bytes as usize,
            value_bytes: usize::try_from(cache.value_bytes).unwrap_or(usize::MAX),
            initial: cache.first_number,
        };
        Some(NamedCache {
            name: cache.name.clone(),
            is_default: cache.is_default,
            never_expires: cache.never_expires,
            cache: RemoteCache::new(engines.get(cache.engine)?, &cache.name, bounds),
        })
    });
    CACHES.get_or_init(|| named.collect());
}

/// Returns whether there are any.
#[inline]
pub fn are_used() -> bool {
    CACHES.get().is_some()
}

/// The cache of this name; an empty name is the first cache of the configuration. `None`: it is not on an engine.
pub fn named(name: &str) -> Option<&'static NamedCache> {
    CACHES.get()?.iter().find(|cache| if name.is_empty() { cache.is_default } else { cache.name == name })
}

impl NamedCache {
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        without_interpreter(|| self.cache.get(key))
    }

    pub fn exists(&self, key: &[u8]) -> bool {
        without_interpreter(|| self.cache.exists(key))
    }

    pub fn number(&self, key: &[u8]) -> i64 {
        without_interpreter(|| self.cache.number(key))
    }

    pub fn keys(&self) -> Vec<Vec<u8>> {
        without_interpreter(|| self.cache.keys()).unwrap_or_default()
    }

    pub fn put(&self, key: &[u8], value: &[u8], expires_s: i64, replaces: bool) -> bool {
        let write = if replaces { Write::Any } else { Write::New };
        without_interpreter(|| self.cache.set(key, value, self.expiry(expires_s), write))
    }

    pub fn calculate(&self, key: &[u8], calculation: Calculation, operand: i64, expires_s: i64) -> bool {
        let expires = self.expiry(expires_s);
        without_interpreter(|| match calculation {
            Calculation::Add => self.cache.add(key, operand, expires),
            Calculation::Subtract => self.cache.subtract(key, operand, expires),
            Calculation::Multiply => self.cache.multiply(key, operand, expires),
            Calculation::Divide => self.cache.divide(key, operand, expires),
        })
    }

    pub fn delete(&self, key: &[u8]) -> bool {
        without_interpreter(|| self.cache.delete(key))
    }

    pub fn clear(&self) -> bool {
        without_interpreter(|| self.cache.clear())
    }

    /// Seconds; 0 is never.
    fn expiry(&self, expires_s: i64) -> u64 {
        if self.never_expires { 0 } else { u64::try_from(expires_s).unwrap_or(0) }
    }
}
