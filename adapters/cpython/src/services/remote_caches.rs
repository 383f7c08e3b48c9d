//! The functions `uwsgi.cache_…` on caches that an engine keeps for several machines (`cache2` with `engine`). Python code runs
//! while they wait for the engine. A cache whose engine is away has no items and takes none.

use std::sync::OnceLock;

use bolide_contract::distributed::Distributed;
use bolide_distributed::{CacheBounds, Engine, RemoteCache, Write};
use bolide_memory::cache::{Calculation, Change};
use pyo3::prelude::*;

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

/// The cache of this name; an empty name is the first cache of the configuration. `None`: it is not on an engine.
pub fn named(name: &str) -> Option<&'static NamedCache> {
    CACHES.get()?.iter().find(|cache| if name.is_empty() { cache.is_default } else { cache.name == name })
}

impl NamedCache {
    /// Asks the engine. Python code runs in the meantime.
    pub fn ask<R: Send>(&self, python: Python<'_>, ask: impl FnOnce(&RemoteCache) -> R + Send) -> R {
        python.detach(|| ask(&self.cache))
    }

    /// Changes an item.
    pub fn put(&self, python: Python<'_>, key: &[u8], change: Change<'_>, expires_s: i64) -> bool {
        // Seconds; 0 is never.
        let expires = if self.never_expires { 0 } else { u64::try_from(expires_s).unwrap_or(0) };
        self.ask(python, |cache| match change {
            Change::Add(value) => cache.set(key, value, expires, Write::New),
            Change::Update(value) => cache.set(key, value, expires, Write::Any),
            Change::Calculate(Calculation::Add, operand) => cache.add(key, operand, expires),
            Change::Calculate(Calculation::Subtract, operand) => cache.subtract(key, operand, expires),
            Change::Calculate(Calculation::Multiply, operand) => cache.multiply(key, operand, expires),
            Change::Calculate(Calculation::Divide, operand) => cache.divide(key, operand, expires),
        })
    }
}
