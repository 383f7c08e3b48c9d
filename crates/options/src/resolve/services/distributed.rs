//! Resolves the addresses of engines that several machines share. It opens no connection. Runs in the process that reads the
//! configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::distributed::{EngineCache, EngineSettings};
use bolide_contract::services::SharedCache;
use bolide_distributed::{Address, Purpose};

use crate::catalogue::row::OptionRow;
use crate::resolve::draft::Draft;
use crate::resolve::values;

/// Addresses of one configuration.
const MAX_ENGINES: usize = 64;
/// Bytes of a value of a cache on an engine: Redis' own bound.
const MAX_VALUE_BYTES: u64 = 512 << 20;

/// `lock-engine`: an address, or one of uWSGI's names for means of the operating system.
pub fn set_lock_engine(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    if Address::is_meant(&text) {
        draft.services.distributed.lock_engine = Some(add_engine(draft, pair, &text, Purpose::Locks)?.0);
        return Ok(());
    }
    // The message does not repeat the value, which may have a password.
    if text.contains(':') {
        let message = format!("`{}` is no address of an engine", pair.key);
        return Err(Diagnostic::error(Some(&pair.location), message).advise("write redis://HOST:6379/0"));
    }
    let message = format!("`{} = {text}` has no effect", pair.key);
    let why = "locks of one machine are in shared memory, and survive their holders; redis://HOST:6379/0 is for several machines";
    draft.diagnostics.push(Diagnostic::note(Some(&pair.location), message).advise(why));
    Ok(())
}

/// `timer-engine`: an address.
pub fn set_timer_engine(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    draft.services.distributed.timer_engine = Some(add_engine(draft, pair, &text, Purpose::Timers)?.0);
    Ok(())
}

/// `cache2` with `engine`: a cache that several machines share.
pub fn add_cache(draft: &mut Draft, pair: &Pair, engine: usize, cache: SharedCache) -> Result<(), Diagnostic> {
    let error = |message: String, advice: &str| Diagnostic::error(Some(&pair.location), message).advise(advice.to_owned());
    if cache.name.is_empty() || cache.name.contains(['@', '{', '}']) {
        return Err(error("`cache2` with `engine` has no name, or one with @ or braces".to_owned(), "write `name=pages`"));
    }
    let caches = &draft.services.distributed.caches;
    let is_taken = caches.iter().any(|other| other.name == cache.name)
        || draft.caching.caches.iter().any(|(other, ..)| other.name == cache.name);
    if is_taken {
        return Err(error(format!("there are two caches with the name `{}`", cache.name), "give one of them another name"));
    }
    if cache.block_bytes > MAX_VALUE_BYTES {
        return Err(error(
            format!("`cache2` with `engine` has a `blocksize` of more than {MAX_VALUE_BYTES} bytes"),
            "an engine takes smaller values",
        ));
    }
    let is_default = caches.is_empty() && draft.caching.caches.is_empty();
    draft.services.distributed.caches.push(EngineCache {
        name: cache.name,
        engine,
        key_bytes: cache.key_bytes,
        value_bytes: cache.block_bytes,
        never_expires: cache.never_expires,
        first_number: cache.first_number,
        is_default,
    });
    Ok(())
}

/// Returns the number of an engine, and its address. An address that is written twice is one engine.
pub fn add_engine(draft: &mut Draft, pair: &Pair, text: &str, purpose: Purpose) -> Result<(usize, Address), Diagnostic> {
    let wrong = |what: &str| Diagnostic::error(Some(&pair.location), format!("`{}`: the engine's address: {what}", pair.key));
    let address = Address::parse(text, purpose).map_err(|what| wrong(&what))?;
    let engines = &mut draft.services.distributed.engines;
    if let Some(number) = engines.iter().position(|engine| engine.url == text) {
        return Ok((number, address));
    }
    if engines.len() >= MAX_ENGINES {
        return Err(wrong(&format!("there are more than {MAX_ENGINES}; use one for several services")));
    }
    engines.push(EngineSettings { url: text.to_owned(), shown: address.to_string(), origin: pair.location.to_string() });
    Ok((engines.len() - 1, address))
}
