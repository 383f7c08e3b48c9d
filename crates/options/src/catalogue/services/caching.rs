//! Rows of the caches that processes share. Pure data.

use crate::resolve::services::caching;
use crate::resolve::services::caching::CachingDraft;
use crate::row::{OptionEntry, Setting, Value, set};

const ONE_MACHINE: &str = "write `cache2 = name=NAME,engine=redis://HOST:6379/0` for a cache that several machines share; within one machine all processes of an instance share a cache anyway";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "cache2",
        set!(|draft, _, pair| caching::add(draft, pair)?),
        Value::List,
        "",
        "A cache that all processes of the instance share (`uwsgi.cache_get` and the related functions), as `KEY=VALUE,…`: `name` and `items` are needed; `blocksize` (bytes of a value, 65536) and `keysize` (bytes of a key, 2048), with `bitmap=1` and `blocks` values of several blocks; `purge_lru`, `clear_on_full`, `ignore_full`, `no_expire`, `lastmod`, `math_initial`; `store`, `store_sync` and `store_delete` for a file that keeps it. With `engine=redis://HOST:6379/0` a Redis or Valkey server keeps it, and the caches of one name on all machines are one cache; `items` is not needed then, the server removes items by its own `maxmemory-policy`, and while it is away all items are missing.",
    )
    .uwsgi("readers take no lock, and a process that is killed while it writes holds no other one up; `items` is exact (uWSGI stores one less); an item that has expired is never returned and makes room at once; `hash` and `hashsize` have no effect; `purge_lru` purges an item that was not read for long, not exactly the oldest; `nodes`, `sync` and `udp` are refused")
    .example("cache2 = name=sessions,items=10000,blocksize=4096\ncache2 = name=pages,items=1000,store=/srv/shop/pages.cache\ncache2 = name=users,engine=redis://127.0.0.1:6379/0"),
    OptionEntry::supported(
        "cache",
        Setting::Located(|draft| &mut draft.of::<CachingDraft>().items),
        Value::Number { least: 1, most: caching::MAX_ITEMS, unit: "items" },
        "",
        "A cache of this many items with the name `default`, which is the first one.",
    )
    .example("cache = 1000"),
    OptionEntry::supported(
        "cache-blocksize",
        Setting::Positive(|draft| &mut draft.of::<CachingDraft>().block_bytes),
        Value::Number { least: 1, most: caching::MAX_BLOCK_BYTES, unit: "bytes" },
        "65536",
        "Bytes of a value in the cache of `cache`.",
    )
    .example("cache-blocksize = 4096"),
    OptionEntry::supported(
        "cache-store",
        Setting::Text(|draft| &mut draft.of::<CachingDraft>().store),
        Value::Path,
        "",
        "The file that keeps the cache of `cache` beyond the end of the instance.",
    )
    .example("cache-store = /srv/shop/default.cache"),
    OptionEntry::supported(
        "cache-store-sync",
        Setting::Positive(|draft| &mut draft.of::<CachingDraft>().sync_s),
        Value::Number { least: 0, most: 86_400, unit: "seconds" },
        "0",
        "The time between two writes of the files of caches to the disk, unless `store_sync` of `cache2` names another one; 0 leaves it to the kernel and to the end of the instance.",
    )
    .example("cache-store-sync = 30"),
    OptionEntry::supported(
        "cache-no-expire",
        Setting::Switch(|draft| &mut draft.of::<CachingDraft>().never_expires),
        Value::Switch,
        "off",
        "Items of caches never expire, whatever time they are given.",
    )
    .example("cache-no-expire = true"),
    OptionEntry::supported(
        "cache-use-last-modified",
        Setting::Switch(|draft| &mut draft.of::<CachingDraft>().notes_changes),
        Value::Switch,
        "off",
        "The statistics have the time of the last change of the cache of `cache`.",
    )
    .example("cache-use-last-modified = true"),
    OptionEntry::accepted(
        "cache-expire-freq",
        Value::Number { least: 0, most: 86_400, unit: "seconds" },
        "The time between two searches for expired items.",
        "no item is returned after its time, and its room is taken when it is needed: there is nothing to search for",
    ),
    OptionEntry::accepted(
        "cache-report-freed-items",
        Value::Switch,
        "Logs how many expired items a search has removed.",
        "there is no such search: expired items are never returned, and make way when room is needed",
    ),
    OptionEntry::refused("cache-sync", Value::Address, "Copies the cache of another server at the start.", ONE_MACHINE),
    OptionEntry::refused("cache-udp-server", Value::Address, "Receives changes of the cache of another server.", ONE_MACHINE),
    OptionEntry::refused("cache-udp-node", Value::Address, "Sends changes of the cache to another server.", ONE_MACHINE),
];
