//! The functions of uWSGI's cache, at a real server.

use bolide_distributed::{CacheBounds, RemoteCache, Write};

use crate::support::{Server, engine, wait_until};

const BOUNDS: CacheBounds = CacheBounds { key_bytes: 100, value_bytes: 1000, initial: 0 };

#[test]
fn items_are_seen_by_all_machines_and_by_no_other_cache() {
    let server = Server::start();
    let here = RemoteCache::new(engine(&server.url()), "pages", BOUNDS);
    let there = RemoteCache::new(engine(&server.url()), "pages", BOUNDS);
    let other = RemoteCache::new(engine(&server.url()), "users", BOUNDS);
    assert_eq!(here.get(b"key"), None);
    assert!(here.set(b"key", b"one", 0, Write::New));
    assert_eq!(there.get(b"key").as_deref(), Some(b"one".as_slice()));
    assert!(!there.set(b"key", b"two", 0, Write::New), "it is there already");
    assert!(there.set(b"key", b"two\0\xff", 0, Write::Any));
    assert_eq!(here.get(b"key").as_deref(), Some(b"two\0\xff".as_slice()));
    assert!(here.exists(b"key") && !other.exists(b"key"));
    assert!(here.delete(b"key") && !here.delete(b"key") && !here.exists(b"key"));
}

#[test]
fn items_expire() {
    let server = Server::start();
    let cache = RemoteCache::new(engine(&server.url()), "c", BOUNDS);
    assert!(cache.set(b"short", b"x", 1, Write::Any) && cache.set(b"long", b"x", 1000, Write::Any));
    wait_until("an end of the item", || !cache.exists(b"short"));
    assert!(cache.exists(b"long"));
    assert!(cache.set(b"long", b"y", 0, Write::Any), "an update without expiry");
    assert_eq!(server.ask("PTTL bolide:cache:c:long"), ":-1");
}

#[test]
fn keys_and_values_have_the_bounds_of_the_options() {
    let server = Server::start();
    let cache = RemoteCache::new(engine(&server.url()), "c", BOUNDS);
    assert!(cache.set(&[b'k'; 100], &[b'v'; 1000], 0, Write::Any));
    assert!(!cache.set(&[b'k'; 101], b"v", 0, Write::Any) && !cache.set(b"k", &[b'v'; 1001], 0, Write::Any));
    assert!(!cache.set(b"", b"v", 0, Write::Any) && !cache.set(b"k", b"", 0, Write::Any));
    assert_eq!(cache.get(&[b'k'; 101]), None);
    // Another program's value that is larger than the bound is not read.
    let large = "x".repeat(60_000);
    for _ in 0..2 {
        assert!(server.ask(&format!("APPEND bolide:cache:c:large {large}")).starts_with(':'));
    }
    assert_eq!(cache.get(b"large"), None);
    assert!(cache.exists(b"large"), "the next call has a connection");
}

#[test]
fn numbers_are_computed_with_64_bits_and_keep_their_time() {
    let server = Server::start();
    let cache = RemoteCache::new(engine(&server.url()), "c", CacheBounds { initial: 10, ..BOUNDS });
    assert!(cache.add(b"n", 5, 1000));
    assert_eq!(cache.number(b"n"), 15);
    assert_eq!(cache.get(b"n"), Some(15i64.to_le_bytes().to_vec()), "uWSGI's eight bytes");
    assert!(cache.subtract(b"n", 16, 0));
    assert_eq!(cache.number(b"n"), -1);
    assert!(cache.multiply(b"n", -(1 << 62), 0));
    assert_eq!(cache.number(b"n"), 1 << 62);
    assert!(cache.add(b"n", (1 << 62) - 1, 0));
    assert_eq!(cache.number(b"n"), i64::MAX);
    assert!(cache.divide(b"n", 3, 0));
    assert_eq!(cache.number(b"n"), i64::MAX / 3);
    assert!(cache.divide(b"n", 0, 0));
    assert_eq!(cache.number(b"n"), 0);
    assert_ne!(server.ask("PTTL bolide:cache:c:n"), ":-1", "a number that is there keeps its expiry");
    assert!(cache.multiply(b"new", 3, 0) && cache.number(b"new") == 30);
    assert!(cache.subtract(b"least", i64::MIN, 0) && cache.number(b"least") == 10i64.wrapping_sub(i64::MIN));
    assert_eq!(cache.number(b"absent"), 0);
}

#[test]
fn no_sum_of_many_writers_is_lost() {
    let server = Server::start();
    let url = server.url();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let cache = RemoteCache::new(engine(&url), "c", BOUNDS);
                for _ in 0..100 {
                    assert!(cache.add(b"n", 3, 0));
                }
            });
        }
    });
    assert_eq!(RemoteCache::new(engine(&url), "c", BOUNDS).number(b"n"), 1200);
}

#[test]
fn clear_and_keys_are_of_one_cache_alone() {
    let server = Server::start();
    let cache = RemoteCache::new(engine(&server.url()), "a*", BOUNDS);
    let other = RemoteCache::new(engine(&server.url()), "ab", BOUNDS);
    for number in 0..2_500u32 {
        assert!(cache.set(format!("key {number}").as_bytes(), b"v", 0, Write::New));
    }
    assert!(other.set(b"stays", b"v", 0, Write::New));
    let keys = cache.keys().expect("the keys");
    assert_eq!(keys.len(), 2_500);
    assert!(keys.contains(&b"key 2499".to_vec()));
    assert!(cache.clear());
    assert_eq!(cache.keys(), Some(Vec::new()));
    assert_eq!(other.keys(), Some(vec![b"stays".to_vec()]));
}
