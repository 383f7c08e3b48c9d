//! Resolves the options of caches. It does not create memory. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::suggest;
use bolide_contract::distributed::{Distributed, EngineCache};
use bolide_contract::services::{SharedCache, Store, WhenFull};
use bolide_distributed::Purpose;

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, Reach, Setting, Value, accepted, field, list, on, refused, rows, set, supported, within};
use crate::topics::services::distributed;
use crate::values;

const ONE_MACHINE: &str = "write `cache2 = name=NAME,engine=redis://HOST:6379/0` for a cache that several machines share. \
    Within one machine all processes of an instance share a cache anyway";

pub const ENTRIES: &[OptionEntry] = rows![
    /// Add a cache that all processes of the instance share (`uwsgi.cache_get` and the related functions), as `KEY=VALUE,…`.
    /// `name` and `items` are required. `blocksize` is the maximum size of a value in bytes (65536), and `keysize` that of a key
    /// (2048). With `bitmap=1` and `blocks`, a value may occupy several blocks. `store`, `store_sync` and `store_delete` are
    /// about a file that keeps the cache. The other keys are `purge_lru`, `clear_on_full`, `ignore_full`, `no_expire`, `lastmod`
    /// and `math_initial`. With `engine=redis://HOST:6379/0` a Redis or Valkey server keeps the cache, and the caches of one name
    /// on all machines are one cache. In this case `items` is not needed, and the server removes items by its own
    /// `maxmemory-policy`. While the server is not reachable, all items are missing.
    /// uWSGI: Readers do not take locks, and a process that is killed while it writes does not block others. `items` is exact,
    /// while uWSGI stores one item less. An expired item is never returned, and its room is free immediately. `hash` and
    /// `hashsize` have no effect. `purge_lru` purges an item that has not been read for a long time, which is not always the
    /// oldest. `nodes`, `sync` and `udp` are refused.
    /// Example: cache2 = name=sessions,items=10000,blocksize=4096
    ///          cache2 = name=pages,items=1000,store=/srv/shop/pages.cache
    ///          cache2 = name=users,engine=redis://127.0.0.1:6379/0
    list("cache2", set!(|draft, _, pair| add(draft, pair)?)).reach(Reach::Master),
    /// A cache of this many items with the name `default`, which is the first one.
    /// Example: cache = 1000
    supported("cache", Setting::Located(field!(CachingDraft.items)))
        .takes(within(1, MAX_ITEMS, "items"), "").reach(Reach::Master),
    /// The maximum size of a value in the cache of `cache`, in bytes.
    /// Example: cache = 1000
    ///          cache-blocksize = 4096
    supported("cache-blocksize", Setting::Positive(field!(CachingDraft.block_bytes)))
        .takes(within(1, MAX_BLOCK_BYTES, "bytes"), "65536").reach(Reach::Master),
    /// The file that keeps the cache of `cache` after the instance has exited.
    /// Example: cache = 1000
    ///          cache-store = /srv/shop/default.cache
    supported("cache-store", Setting::Text(field!(CachingDraft.store))).takes(Value::Path, "").reach(Reach::Master),
    /// The time between two writes of the files of caches to the disk, unless `store_sync` of `cache2` sets another one. With 0
    /// they are written by the kernel, and when the instance exits.
    /// Example: cache2 = name=pages,items=1000,store=/var/lib/shop/pages
    ///          cache-store-sync = 30
    supported("cache-store-sync", Setting::Positive(field!(CachingDraft.sync_s)))
        .takes(within(0, 86_400, "seconds"), "0").reach(Reach::Master),
    /// Let items of caches never expire, even if they have an expiry time.
    /// Example: cache2 = name=pages,items=1000,store=/var/lib/shop/pages
    ///          cache-no-expire = true
    on("cache-no-expire", Setting::Switch(field!(CachingDraft.never_expires))).reach(Reach::Master),
    /// Report the time of the last change of the cache of `cache` in the statistics.
    /// Example: cache = 1000
    ///          cache-use-last-modified = true
    on("cache-use-last-modified", Setting::Switch(field!(CachingDraft.notes_changes))).reach(Reach::Master),
    /// The time between two searches for expired items.
    /// Why: expired items are never returned, and their room is reused when it is needed, so they are not searched for
    accepted("cache-expire-freq", within(0, 86_400, "seconds")),
    /// Log how many expired items a search has removed.
    /// Why: Bolide does not search for expired items. They are never returned, and their room is reused when it is needed
    accepted("cache-report-freed-items", Value::Switch),
    /// Copy the cache of another server at startup.
    refused("cache-sync", Value::Address).reason(ONE_MACHINE),
    /// Receive changes of the cache of another server.
    refused("cache-udp-server", Value::Address).reason(ONE_MACHINE),
    /// Send changes of the cache to another server.
    refused("cache-udp-node", Value::Address).reason(ONE_MACHINE),
];

/// Items of a cache at most: slots have numbers of 32 bits.
pub const MAX_ITEMS: i64 = 1_000_000_000;
/// Bytes of a block at most.
pub const MAX_BLOCK_BYTES: i64 = 1 << 40;
/// Bytes of a value of a cache on an engine: Redis' own bound.
const MAX_VALUE_BYTES: u64 = 512 << 20;
/// Bytes of a key at most, as in uWSGI.
const MAX_KEY_BYTES: u64 = 65_534;
/// Bytes of a cache at most: a process has 128 TiB of addresses.
const MAX_CACHE_BYTES: u64 = 1 << 45;
/// The name of the cache of `cache`, as in uWSGI.
const DEFAULT_NAME: &str = "default";

/// Keys that are supported, for suggestions.
const KEYS: [&str; 19] = [
    "name",
    "items",
    "maxitems",
    "max_items",
    "blocksize",
    "blocks",
    "keysize",
    "bitmap",
    "purge_lru",
    "clear_on_full",
    "ignore_full",
    "no_expire",
    "lastmod",
    "math_initial",
    "store",
    "store_sync",
    "store_delete",
    "lazy_expire",
    "engine",
];

/// Adds a cache: `KEY=VALUE,KEY=VALUE`.
pub fn add(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let error = |message: String, advice: &str| Diagnostic::error(Some(&pair.location), message).advise(advice.to_owned());
    let mut cache = SharedCache::new(String::new(), 0, pair.location.to_string());
    let mut blocks = None;
    let mut file = FileDraft::default();
    let mut engine = None;
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let number = |least: u64, most: u64| match value.parse::<u64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(error(format!("`cache2`: `{key}={value}` is not a number from {least} to {most}"), "correct the number")),
        };
        match key {
            "name" => value.clone_into(&mut cache.name),
            "items" | "maxitems" | "max_items" => cache.items = number(1, MAX_ITEMS as u64)?,
            "blocksize" => cache.block_bytes = number(1, MAX_BLOCK_BYTES as u64)?,
            "blocks" => blocks = Some(number(1, u64::MAX)?),
            "keysize" | "key_size" => cache.key_bytes = number(1, MAX_KEY_BYTES)? as u32,
            "bitmap" => cache.is_bitmap = true,
            "purge_lru" | "lru" => cache.when_full = WhenFull::Purge,
            "clear_on_full" if cache.when_full == WhenFull::Refuse => cache.when_full = WhenFull::Clear,
            "clear_on_full" => {}
            "ignore_full" => cache.ignores_full = true,
            "no_expire" => cache.never_expires = true,
            "lastmod" => cache.notes_changes = true,
            "math_initial" => {
                let number =
                    value.parse().map_err(|_| error(format!("`cache2`: `{word}` is not a number"), "correct the number"))?;
                cache.first_number = number;
            }
            "store" if !value.is_empty() => file.path = Some(value.to_owned()),
            "store_sync" | "storesync" => file.sync_s = Some(number(0, 86_400)?),
            "store_delete" | "storedelete" => file.deletes_foreign = true,
            "engine" => engine = Some(distributed::add_engine(draft, pair, value, Purpose::Cache)?.0),
            // Each of these asks for what a cache does in any case.
            "lazy_expire" | "lazy" | "sweep_on_full" => {}
            "hash" | "hashsize" | "hash_size" => draft.diagnostics.push(
                Diagnostic::note(Some(&pair.location), format!("`cache2`: `{word}` has no effect"))
                    .advise("the cache chooses both itself, with a secret number against keys of one hash"),
            ),
            "node" | "nodes" | "sync" | "udp" | "udp_servers" | "udp_server" | "udpservers" | "udpserver" => {
                return Err(error(
                    format!("`cache2`: `{key}` is not supported: a cache belongs to one machine"),
                    "write `engine=redis://HOST:6379/0` for a cache that several machines share",
                ));
            }
            _ => {
                let nearest = KEYS.iter().filter_map(|known| Some((suggest::distance(key, known)?, *known))).min();
                let advice = nearest.map_or_else(|| "remove it".to_owned(), |(_, known)| format!("did you mean `{known}`?"));
                let warning =
                    Diagnostic::warning(Some(&pair.location), format!("`cache2`: `{key}` is not known: it has no effect"));
                draft.diagnostics.push(warning.advise(advice));
            }
        }
    }
    if let Some(engine) = engine {
        return add_engine_cache(draft, pair, engine, cache);
    }
    if cache.name.is_empty() || cache.items == 0 {
        let missing = if cache.name.is_empty() { "name" } else { "items" };
        return Err(error(format!("`cache2 = {text}` has no `{missing}`"), "write `cache2 = name=pages,items=1000`"));
    }
    if cache.name.contains('@') {
        return Err(error(
            format!("`cache2`: the name `{}` has an `@`, which is the address of a server", cache.name),
            "choose another name",
        ));
    }
    if draft.of::<Distributed>().caches.iter().any(|other| other.name == cache.name) {
        return Err(error(format!("there are two caches with the name `{}`", cache.name), "give one of them another name"));
    }
    cache.blocks = blocks.unwrap_or(cache.items);
    if cache.blocks < cache.items {
        return Err(error(
            format!("`cache2`: the cache `{}` has fewer blocks ({}) than items ({})", cache.name, cache.blocks, cache.items),
            "give it at least a block for each item, or leave `blocks` out",
        ));
    }
    draft.of::<CachingDraft>().caches.push((cache, file, pair.location.clone()));
    Ok(())
}

/// `cache2` with `engine`: a cache that several machines share.
fn add_engine_cache(draft: &mut Draft, pair: &Pair, engine: usize, cache: SharedCache) -> Result<(), Diagnostic> {
    let error = |message: String, advice: &str| Diagnostic::error(Some(&pair.location), message).advise(advice.to_owned());
    if cache.name.is_empty() || cache.name.contains(['@', '{', '}']) {
        return Err(error("`cache2` with `engine` has no name, or one with @ or braces".to_owned(), "write `name=pages`"));
    }
    let own = draft.of::<CachingDraft>().caches.iter().map(|(other, ..)| other.name.clone()).collect::<Vec<_>>();
    let caches = &mut draft.of::<Distributed>().caches;
    let is_taken = caches.iter().map(|other| &other.name).chain(&own).any(|name| *name == cache.name);
    if is_taken {
        return Err(error(format!("there are two caches with the name `{}`", cache.name), "give one of them another name"));
    }
    if cache.block_bytes > MAX_VALUE_BYTES {
        return Err(error(
            format!("`cache2` with `engine` has a `blocksize` of more than {MAX_VALUE_BYTES} bytes"),
            "an engine takes smaller values",
        ));
    }
    let is_default = caches.is_empty() && own.is_empty();
    caches.push(EngineCache {
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

impl CachingDraft {
    /// Applies the options of all caches to those on engines.
    pub fn complete_engine_caches(&self, caches: &mut [EngineCache]) {
        for cache in caches {
            // The cache of `cache` comes before those of `cache2`.
            cache.is_default &= self.items.is_none();
            cache.never_expires |= self.never_expires;
        }
    }

    /// Completes the settings: the cache of `cache` is the first one.
    pub fn complete(self, context: &mut Context) -> Vec<SharedCache> {
        let mut caches = Vec::new();
        if let Some((text, location)) = &self.items {
            match text.trim().parse::<u64>().ok().filter(|items| (1..=MAX_ITEMS as u64).contains(items)) {
                Some(items) => {
                    let mut cache = SharedCache::new(DEFAULT_NAME.to_owned(), items, location.to_string());
                    cache.block_bytes = self.block_bytes.unwrap_or(SharedCache::BLOCK_BYTES);
                    cache.notes_changes = self.notes_changes;
                    let file = FileDraft { path: self.store.clone(), ..FileDraft::default() };
                    caches.push((cache, file, location.clone()));
                }
                None => context.diagnostics.push(
                    Diagnostic::error(Some(location), format!("`cache = {text}` is not a number from 1 to {MAX_ITEMS}"))
                        .advise("write the number of items, such as `cache = 1000`"),
                ),
            }
        }
        for (option, is_set) in [("cache-blocksize", self.block_bytes.is_some()), ("cache-store", self.store.is_some())] {
            if is_set && self.items.is_none() {
                let warning = Diagnostic::warning(None, format!("`{option}` has no effect without `cache`"));
                let advice = format!(
                    "with `cache2` write `{}` beside the name",
                    if option == "cache-store" { "store=FILE" } else { "blocksize=BYTES" }
                );
                context.diagnostics.push(warning.advise(advice));
            }
        }
        caches.extend(self.caches);
        let mut complete: Vec<SharedCache> = Vec::new();
        for (mut cache, file, location) in caches {
            check(&cache, &complete, &location, context);
            cache.never_expires |= self.never_expires;
            let sync_s = file.sync_s.or(self.sync_s).unwrap_or(0);
            let path = file.path.map(|path| normalized(&context.directory.join(path)));
            cache.store = path.map(|path| Store { path, sync_s, deletes_foreign: file.deletes_foreign });
            complete.push(cache);
        }
        complete
    }
}

/// Checks a cache beside those before it.
fn check(cache: &SharedCache, others: &[SharedCache], location: &Location, context: &mut Context) {
    let error = |message: String, advice: &str| Diagnostic::error(Some(location), message).advise(advice.to_owned());
    if others.iter().any(|other| other.name == cache.name) {
        context
            .diagnostics
            .push(error(format!("there are two caches with the name `{}`", cache.name), "give one of them another name"));
    }
    let values = cache.blocks.max(cache.items).saturating_mul(cache.block_bytes);
    let bytes = values.saturating_add(cache.items.saturating_mul(u64::from(cache.key_bytes) + 128));
    if bytes > MAX_CACHE_BYTES {
        context.diagnostics.push(error(
            format!("the cache `{}` would need {} GiB of addresses", cache.name, bytes >> 30),
            "give it fewer items, or a smaller `blocksize`",
        ));
    }
}

/// Settings of caches. Paths are as written.
#[derive(Default)]
pub struct CachingDraft {
    /// `cache`
    pub items: Option<(String, Location)>,
    pub block_bytes: Option<u64>,
    pub store: Option<String>,
    pub sync_s: Option<u64>,
    pub never_expires: bool,
    pub notes_changes: bool,
    /// `cache2`
    pub caches: Vec<(SharedCache, FileDraft, Location)>,
}

/// The file of a cache.
#[derive(Default)]
pub struct FileDraft {
    pub path: Option<String>,
    /// `None`: as `cache-store-sync` says.
    pub sync_s: Option<u64>,
    pub deletes_foreign: bool,
}
